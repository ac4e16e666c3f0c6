/* address: parses "host:port" texts, resolves names, and opens listening TCP sockets. Gateways,
 * machines and tools call the functions, on any thread. The functions keep no state and connect to
 * no address. */
#ifndef TRANSPORT_ADDRESS_H
#define TRANSPORT_ADDRESS_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* The two parts of a "host:port" text. An IPv6 host is stored without its brackets. */
struct address {
    char host[LIMIT_ADDRESS_BYTES];
    char port[6];
};

/* Splits "host:port" or "[IPv6]:port" into host and port. Returns ST_INVALID for any other text,
 * for a port above 65535 and for a host that is too long; *out is then unchanged. */
enum status address_parse(const char *text, struct address *out, struct error *error);

#define ADDRESS_FOUND_MAX 8

/* Socket addresses of a host, in the order of getaddrinfo. */
struct address_found {
    uint32_t count;
    struct {
        struct sockaddr_storage address;
        socklen_t bytes;
    } list[ADDRESS_FOUND_MAX];
};

/* Converts a host that is a numeric address. for_listening: the result is for bind(), not for
 * connect(). Returns false if the host is not a numeric address. Never blocks. */
bool address_numeric(const struct address *address, bool for_listening, struct address_found *out);

/* Finds the socket addresses of a host, at most ADDRESS_FOUND_MAX. May block if the host is a name;
 * resolver_find (resolver.h) does not block. for_listening: as in address_numeric. Returns
 * ST_UNREACHABLE if the look-up fails, for example because the name is unknown. */
enum status address_resolve(const struct address *address, bool for_listening,
                            struct address_found *out, struct error *error);

/* Opens a non-blocking TCP socket that listens on "host:port" (port 0 = any free port). Blocks
 * during the look-up if the host is a name. The caller closes *fd_out. bound_out receives the
 * numeric address and the port in use. Returns ST_INVALID for a text that address_parse refuses,
 * ST_UNREACHABLE if the look-up fails, or ST_IO if the socket cannot listen. */
enum status address_listen(const char *text, int *fd_out, char bound_out[LIMIT_ADDRESS_BYTES],
                           struct error *error);

/* Writes a socket address as a numeric "host:port"; "unknown address" if that fails. */
void address_format(const struct sockaddr *socket_address, socklen_t bytes,
                    char out[LIMIT_ADDRESS_BYTES]);

#endif
