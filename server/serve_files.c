/* serve_files: the files that the config names and that a reload reads again (API keys,
 * certificate, event log, cluster keys), and the socket of the administrator, which it does not
 * change. */
#include "server/serve_internal.h"

#include "common/secret.h"
#include "server/http/tls.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ADMIN_BACKLOG 16

enum status serve_keys_read(const struct config *config, struct api_key_set **set_out,
                            struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    *set_out = NULL;
    if (config->server.api_keys_file[0] == 0)
        return ST_OK;
    enum status status = config_file_path(config, config->server.api_keys_file, path, error);
    return status == ST_OK ? api_key_set_read(path, set_out, error) : status;
}

enum status serve_certificate_read(const struct config *config, struct http_certificate **out,
                                   struct error *error)
{
    char chain[LIMIT_PATH_BYTES];
    char key[LIMIT_PATH_BYTES];
    *out = NULL;
    if (config->server.tls_certificate_file[0] == 0)
        return ST_OK;
    enum status status =
        config_file_path(config, config->server.tls_certificate_file, chain, error);
    if (status == ST_OK)
        status = config_file_path(config, config->server.tls_key_file, key, error);
    if (status == ST_OK)
        status = http_certificate_read(chain, key, out, error);
    if (status == ST_OK && http_certificate_expires(*out) < time(NULL))
        log_warn("the certificate in %s has expired: clients will refuse it", chain);
    return status;
}

/* Opens a file of lines that the config names with this key; `file` "" = none. */
static enum status lines_open(const struct config *config, const char *key, const char *file,
                              struct event_log **out, struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    *out = NULL;
    if (file[0] == 0)
        return ST_OK;
    enum status status = config_file_path(config, file, path, error);
    if (status == ST_OK)
        status = event_log_open(path, out, error);
    if (status != ST_OK)
        error_prefix(error, "%s", key);
    return status;
}

enum status serve_events_open(const struct config *config, struct event_log **out,
                              struct error *error)
{
    return lines_open(config, "log/events_file", config->log.events_file, out, error);
}

static bool access_to_stderr(const struct config *config)
{
    return strcmp(config->log.access_file, "-") == 0;
}

enum status serve_access_open(const struct config *config, struct event_log **out,
                              struct error *error)
{
    return lines_open(config, "log/access_file",
                      access_to_stderr(config) ? "" : config->log.access_file, out, error);
}

enum status serve_ledger_open(struct serve *s, struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    if (s->config->log.ledger_file[0] == 0)
        return ST_OK;
    enum status status = config_file_path(s->config, s->config->log.ledger_file, path, error);
    if (status == ST_OK)
        status = ledger_open(path, &s->ledger, error);
    if (status != ST_OK) {
        error_prefix(error, "log/ledger_file");
        return status;
    }
    struct ledger_counts counts = ledger_counts(s->ledger);
    serve_keys_restore(s, path);
    if (counts.torn_bytes > 0)
        log_warn("log/ledger_file: its last line was torn (%llu bytes), and is marked",
                 (unsigned long long)counts.torn_bytes);
    if (counts.left_by_earlier > 0)
        log_warn("log/ledger_file: %u answers of a process that was killed get their lines now",
                 counts.left_by_earlier);
    return ST_OK;
}

enum status serve_spans_open(struct serve *s, struct error *error)
{
    const char *endpoint = s->config->log.otlp_endpoint;
    return endpoint[0] != 0 ? spans_open(endpoint, &s->spans, error) : ST_OK;
}

void serve_access_use(struct serve *s, struct event_log *log)
{
    struct event_log *before = s->access;
    s->access = log;
    http_access_log_set(s->http, log, access_to_stderr(s->config));
    event_log_close(before); /* It first writes what it still holds. */
}

void serve_log_configure(const struct serve *s)
{
    enum log_level level = s->options.log_level;
    if (s->options.log_level_name == NULL)
        (void)log_level_parse(s->config->log.level, &level);
    if (s->launcher != NULL && level != log_level_min())
        launcher_log_level_send(s->launcher, level);
    log_level_set(level);
    log_format_set(strcmp(s->config->log.format, "json") == 0 ? LOG_JSON : LOG_TEXT);
}

enum status serve_cluster_keys_find(struct serve *s, struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    char ids[SECRET_KEYS_TEXT_BYTES];
    uint8_t key[SECRET_HASH_BYTES];
    if (s->config->cluster.key_file[0] != 0) {
        enum status status = config_file_path(s->config, s->config->cluster.key_file, path, error);
        if (status == ST_OK)
            status = secret_keys_read(path, &s->cluster_keys, error);
        if (status != ST_OK) {
            error_prefix(error, "cluster/key_file");
            return status;
        }
        secret_keys_text(&s->cluster_keys, ids);
        log_info("cluster keys: %s", ids);
        return ST_OK;
    }
    if (s->is_loopback && !config_has_etcd(s->config)) {
        secret_random(key, sizeof(key));
        secret_keys_set(&s->cluster_keys, key);
        secret_wipe(key, sizeof(key));
    }
    return ST_OK;
}

enum status serve_cluster_keys_read(const struct serve *s, struct secret_keys *out,
                                    struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    out->count = 0;
    if (s->config->cluster.key_file[0] == 0)
        return ST_OK;
    enum status status = config_file_path(s->config, s->config->cluster.key_file, path, error);
    if (status == ST_OK)
        status = secret_keys_read_again(path, &s->cluster_keys, out, error);
    if (status == ST_OK && secret_keys_equal(&s->cluster_keys, out))
        out->count = 0;
    return status;
}

/* True if no process listens at this socket any more. */
static bool socket_is_stale(const struct sockaddr_un *address)
{
    struct stat found;
    if (lstat(address->sun_path, &found) != 0 || !S_ISSOCK(found.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
                 errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return stale;
}

/* Binds with mode 0600 from the beginning. */
static bool socket_bind(int fd, const struct sockaddr_un *address)
{
    mode_t before = umask(0177);
    bool bound = bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0;
    umask(before);
    return bound;
}

enum status serve_admin_socket_open(struct serve *s, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (s->config->http.admin_socket[0] == 0)
        return ST_OK;
    enum status status =
        config_file_path(s->config, s->config->http.admin_socket, s->admin_path, error);
    size_t bytes = strlen(s->admin_path);
    if (status != ST_OK || bytes >= sizeof(address.sun_path)) {
        s->admin_path[0] = 0;
        return status != ST_OK ? status
                               : error_set(error, ST_TOO_LARGE,
                                           "http/admin_socket: the path has %zu bytes: want at "
                                           "most %zu",
                                           bytes, sizeof(address.sun_path) - 1);
    }
    memcpy(address.sun_path, s->admin_path, bytes + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 && socket_bind(fd, &address);
    if (fd >= 0 && !bound && errno == EADDRINUSE && socket_is_stale(&address))
        bound = unlink(address.sun_path) == 0 && socket_bind(fd, &address);
    if (bound && listen(fd, ADMIN_BACKLOG) == 0) {
        s->admin_fd = fd;
        return ST_OK;
    }
    error_set(error, ST_IO, "http/admin_socket %s: %s", s->admin_path, strerror(errno));
    if (!bound) /* the file is not ours */
        s->admin_path[0] = 0;
    if (fd >= 0)
        close(fd);
    return ST_IO;
}

void serve_admin_socket_remove(struct serve *s)
{
    if (s->admin_path[0] != 0)
        unlink(s->admin_path);
    s->admin_path[0] = 0;
}
