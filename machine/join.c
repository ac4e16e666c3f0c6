/* machine_join: see the header. */
#include "machine/join.h"

#include "transport/address.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_DEFAULT "7400"

/* Writes the endpoints as cluster/etcd_endpoints has them, and the first HOST:PORT. */
static enum status endpoints_read(const char *text, char urls[1024], char first[256],
                                  struct error *error)
{
    bool tls = strncmp(text, "etcds://", 8) == 0;
    const char *at = text + (tls ? 8 : 7);
    size_t used = 0;
    if ((!tls && strncmp(text, "etcd://", 7) != 0) || *at == 0 || strlen(text) > 512)
        return error_set(error, ST_USAGE,
                         "--join = \"%.100s\": want etcd://HOST:PORT, or etcds:// for TLS; several "
                         "HOST:PORT with commas between",
                         text);
    snprintf(first, 256, "%.*s", (int)strcspn(at, ","), at);
    while (*at != 0) {
        char endpoint[256];
        struct address parsed;
        size_t length = strcspn(at, ",");
        snprintf(endpoint, sizeof(endpoint), "%.*s", (int)length, at);
        if (length >= sizeof(endpoint) || address_parse(endpoint, &parsed, NULL) != ST_OK)
            return error_set(error, ST_USAGE, "--join: \"%.100s\": want HOST:PORT", endpoint);
        int more = snprintf(urls + used, 1024 - used, "%s%s://%s", used > 0 ? "," : "",
                            tls ? "https" : "http", endpoint);
        used += (size_t)more;
        if (used >= 1024)
            return error_set(error, ST_USAGE, "--join: too many endpoints");
        at += length + (at[length] == ',');
    }
    return ST_OK;
}

/* Finds the address of this host from which it reaches `toward`, "HOST:PORT". A datagram socket
 * that is connected sends nothing, but the kernel chooses the address. */
static enum status own_address(const char *toward, char out[LIMIT_ADDRESS_BYTES],
                               struct error *error)
{
    struct address address;
    struct address_found found;
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof(own);
    enum status status = address_parse(toward, &address, error);
    if (status == ST_OK)
        status = address_resolve(&address, false, &found, error);
    if (status != ST_OK)
        return status;
    const struct sockaddr *to = (const struct sockaddr *)&found.list[0].address;
    int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && connect(fd, to, found.list[0].bytes) == 0 &&
                getsockname(fd, (struct sockaddr *)&own, &bytes) == 0;
    if (!good)
        error_set(error, ST_UNREACHABLE, "--join: no way to %s: %s", toward, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (!good)
        return ST_UNREACHABLE;
    address_format((const struct sockaddr *)&own, bytes, out);
    char *port = strrchr(out, ':');
    if (port == NULL)
        return error_set(error, ST_UNREACHABLE, "--join: no way to %s", toward);
    snprintf(port + 1, LIMIT_ADDRESS_BYTES - (size_t)(port + 1 - out), PORT_DEFAULT);
    return ST_OK;
}

/* Writes the name of the host, up to its first dot, "-" and the pool. */
static void name_make(const char *pool, char out[LIMIT_NAME_BYTES])
{
    char host[256] = "host";
    gethostname(host, sizeof(host) - 1);
    host[strcspn(host, ".")] = 0;
    snprintf(out, LIMIT_NAME_BYTES, "%.*s-%s", (int)(LIMIT_NAME_BYTES - 2 - strlen(pool)), host,
             pool);
}

enum status machine_join_config(const struct machine_join *join, char name_out[LIMIT_NAME_BYTES],
                                struct config *config, struct error *error)
{
    char urls[1024], first[256], address[LIMIT_ADDRESS_BYTES], pool[32], key[96];
    if (join->name != NULL && (strlen(join->name) >= LIMIT_NAME_BYTES ||
                               strspn(join->name, "0123456789") == strlen(join->name)))
        return error_set(error, ST_USAGE,
                         "NAME = \"%.60s\": want at most %d bytes, not only digits", join->name,
                         LIMIT_NAME_BYTES - 1);
    if (join->name != NULL)
        snprintf(name_out, LIMIT_NAME_BYTES, "%s", join->name);
    else
        name_make(join->pool, name_out);
    enum status status = endpoints_read(join->endpoints, urls, first, error);
    if (status == ST_OK && join->listen == NULL)
        status = own_address(first, address, error);
    if (status != ST_OK)
        return status;
    if (join->listen != NULL)
        snprintf(address, sizeof(address), "%s", join->listen);
    snprintf(pool, sizeof(pool), "pools/%s", join->pool);
    snprintf(key, sizeof(key), "machines/%s/address", name_out);
    const char *const settings[][2] = {
        {"cluster/membership", "etcd"},
        {"cluster/etcd_endpoints", urls},
        {"pools/prompt", "0"},
        {"pools/token", "0"},
        {pool, name_out},
        {key, address},
    };
    size_t count = sizeof(settings) / sizeof(settings[0]);
    if (strrchr(address, ':') != NULL && strcmp(strrchr(address, ':'), ":0") == 0)
        count--; /* Any port: the config does not know the address. */
    for (size_t i = 0; i < count && status == ST_OK; i++)
        status = config_set(config, "--join", settings[i][0], settings[i][1], error);
    return status == ST_OK ? ST_OK : ST_USAGE;
}
