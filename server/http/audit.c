/* http_audit: one audit line for each request to a path under /admin, accepted or refused: when its
 * answer is queued, or when its client has left before. */
#include "server/http/internal.h"

#include "server/api/audit.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define TARGET_BYTES LIMIT_NAME_BYTES

struct http_audit {
    char act[AUDIT_ACT_BYTES];
    char target[TARGET_BYTES];
};

bool http_audit_open(struct exchange *x, const char *url, const char *method)
{
    static const char admin[] = "/admin";
    size_t length = sizeof(admin) - 1;
    if (strncmp(url, admin, length) != 0 || (url[length] != '/' && url[length] != 0))
        return true;
    x->audit = calloc(1, sizeof(*x->audit));
    if (x->audit == NULL)
        return false;
    snprintf(x->audit->act, sizeof(x->audit->act), "%.16s %.64s", method,
             x->route != NULL ? x->route->path : url);
    http_audit_target_set(x, x->path_tail);
    return true;
}

void http_audit_target_set(struct exchange *x, const char *target)
{
    if (x->audit != NULL)
        snprintf(x->audit->target, sizeof(x->audit->target), "%.*s", TARGET_BYTES - 1, target);
}

/* Fills in the party at the other end of the administrator's socket. */
static void actor_from_socket(const struct exchange *x, struct audit_actor *out)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    snprintf(out->address, sizeof(out->address), "admin socket");
    if (info != NULL && getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0)
        snprintf(out->name, sizeof(out->name), "admin socket uid %u", (unsigned)peer.uid);
    else
        snprintf(out->name, sizeof(out->name), "admin socket");
}

static void address_write(const struct sockaddr *address, char *out, size_t capacity)
{
    char host[64], port[8];
    bool is_ipv6 = address != NULL && address->sa_family == AF_INET6;
    size_t bytes = is_ipv6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (address == NULL || getnameinfo(address, (socklen_t)bytes, host, sizeof(host), port,
                                       sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(out, capacity, "unknown address");
    else
        snprintf(out, capacity, is_ipv6 ? "[%s]:%s" : "%s:%s", host, port);
}

void http_client_address(const struct exchange *x, char *out, size_t capacity)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    address_write(info != NULL ? info->client_addr : NULL, out, capacity);
}

static void actor_from_network(const struct exchange *x, struct audit_actor *out)
{
    const struct api_keys *keys = x->http->options.keys;
    const struct api_key_settings *settings =
        keys != NULL ? api_keys_settings(keys, x->api_key_index) : NULL;
    if (settings != NULL)
        snprintf(out->name, sizeof(out->name), "key %s", settings->name);
    else if (keys != NULL && api_keys_configured(keys))
        snprintf(out->name, sizeof(out->name), "no valid key");
    else
        snprintf(out->name, sizeof(out->name), "%s client",
                 http_peer_is_loopback(x) ? "loopback" : "unknown");
    http_client_address(x, out->address, sizeof(out->address));
}

void http_audit_actor(const struct exchange *x, struct audit_actor *out)
{
    *out = (struct audit_actor){.is_administrator = x->is_administrator};
    if (x->from_admin_socket)
        actor_from_socket(x, out);
    else
        actor_from_network(x, out);
}

void http_audit_write(struct exchange *x, unsigned status)
{
    struct audit_actor actor;
    if (x->audit == NULL)
        return;
    http_audit_actor(x, &actor);
    audit_write(&actor, x->audit->act, x->audit->target, status);
    free(x->audit);
    x->audit = NULL;
}
