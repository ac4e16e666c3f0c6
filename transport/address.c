/* address: see the header. */
#include "transport/address.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Connections that may wait to be accepted: a burst of clients connects at once. */
#define LISTEN_BACKLOG 1024

enum status address_parse(const char *text, struct address *out, struct error *error)
{
    const char *colon = strrchr(text, ':');
    const char *host = text;
    const char *host_end = colon;
    if (text[0] == '[') {
        host = text + 1;
        host_end = strchr(text, ']');
        if (host_end == NULL || host_end + 1 != colon)
            colon = NULL;
    } else if (colon != NULL && memchr(text, ':', (size_t)(colon - text)) != NULL) {
        colon = NULL; /* An IPv6 address without brackets: it is unknown where its port begins. */
    }
    if (colon != NULL && strcspn(host, "[]") < (size_t)(host_end - host))
        colon = NULL; /* Brackets are only around a host. */
    if (colon == NULL || host_end == host || (size_t)(host_end - host) >= sizeof(out->host))
        return error_set(error, ST_INVALID, "\"%.128s\": want \"host:port\" or \"[IPv6]:port\"",
                         text);
    size_t digits = strspn(colon + 1, "0123456789");
    if (digits == 0 || digits > 5 || colon[1 + digits] != 0 || atoi(colon + 1) > 65535)
        return error_set(error, ST_INVALID, "\"%.128s\": want a port from 0 to 65535", text);
    struct address address = {0};
    memcpy(address.host, host, (size_t)(host_end - host));
    memcpy(address.port, colon + 1, digits);
    *out = address;
    return ST_OK;
}

/* Returns what getaddrinfo returns. */
static int look_up(const struct address *address, bool for_listening, int flags,
                   struct address_found *out)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | flags | (for_listening ? AI_PASSIVE : 0),
    };
    struct addrinfo *found;
    int rc = getaddrinfo(address->host, address->port, &hints, &found);
    if (rc != 0)
        return rc;
    out->count = 0;
    for (struct addrinfo *at = found; at != NULL && out->count < ADDRESS_FOUND_MAX;
         at = at->ai_next) {
        if (at->ai_addrlen > sizeof(out->list[0].address))
            continue;
        memcpy(&out->list[out->count].address, at->ai_addr, at->ai_addrlen);
        out->list[out->count++].bytes = at->ai_addrlen;
    }
    freeaddrinfo(found);
    return out->count > 0 ? 0 : EAI_NONAME;
}

bool address_numeric(const struct address *address, bool for_listening, struct address_found *out)
{
    return look_up(address, for_listening, AI_NUMERICHOST, out) == 0;
}

enum status address_resolve(const struct address *address, bool for_listening,
                            struct address_found *out, struct error *error)
{
    if (address_numeric(address, for_listening, out))
        return ST_OK;
    int rc = look_up(address, for_listening, 0, out);
    if (rc != 0)
        return error_set(error, ST_UNREACHABLE, "%s: %s", address->host, gai_strerror(rc));
    return ST_OK;
}

void address_format(const struct sockaddr *socket_address, socklen_t bytes,
                    char out[LIMIT_ADDRESS_BYTES])
{
    char host[96], port[16];
    if (getnameinfo(socket_address, bytes, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(out, LIMIT_ADDRESS_BYTES, "unknown address");
    else
        snprintf(out, LIMIT_ADDRESS_BYTES,
                 socket_address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

static int listen_on(const struct sockaddr *where, socklen_t bytes)
{
    int fd = socket(where->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, where, bytes) == 0 && listen(fd, LISTEN_BACKLOG) == 0)
        return fd;
    int error_number = errno;
    close(fd);
    errno = error_number;
    return -1;
}

enum status address_listen(const char *text, int *fd_out, char bound_out[LIMIT_ADDRESS_BYTES],
                           struct error *error)
{
    struct address address;
    struct address_found found = {0};
    enum status status = address_parse(text, &address, error);
    if (status == ST_OK)
        status = address_resolve(&address, true, &found, error);
    if (status != ST_OK) {
        error_prefix(error, "listen on %.128s", text);
        return status;
    }
    int fd = -1;
    for (uint32_t i = 0; i < found.count && fd < 0; i++)
        fd = listen_on((const struct sockaddr *)&found.list[i].address, found.list[i].bytes);
    int error_number = errno;
    if (fd < 0 && error_number == EADDRINUSE)
        return error_set(error, ST_IO, "listen on %s: address already in use", text);
    if (fd < 0)
        return error_set(error, ST_IO, "listen on %s: %s", text, strerror(error_number));
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof(bound);
    if (getsockname(fd, (struct sockaddr *)&bound, &bytes) != 0) {
        close(fd);
        return error_set(error, ST_IO, "listen on %s: %s", text, strerror(errno));
    }
    address_format((struct sockaddr *)&bound, bytes, bound_out);
    *fd_out = fd;
    return ST_OK;
}
