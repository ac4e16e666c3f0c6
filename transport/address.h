/* address: "host:port" texts and socket addresses, and listening on them. server/ listens with it
 * as well. */
#ifndef TRANSPORT_ADDRESS_H
#define TRANSPORT_ADDRESS_H

#include "common/limits.h"
#include "common/status.h"

#include <netdb.h>
#include <stdbool.h>
#include <sys/socket.h>

/* A text taken apart: the host without the brackets of an IPv6 address. */
struct address {
    char host[LIMIT_ADDRESS_BYTES];
    char port[6];
};

/* ST_INVALID: not "host:port" with a port from 0 to 65535. */
enum status address_parse(const char *text, struct address *out, struct error *error);

/* The socket addresses of a host, best first (freeaddrinfo frees them). Names are looked up, which
 * may block; numbers are not. passive: to listen. ST_UNREACHABLE: no such host. */
enum status address_resolve(const struct address *address, bool passive, struct addrinfo **out,
                            struct error *error);

/* A non-blocking TCP socket that listens on "host:port" (port 0: any); bound_out says where, in
 * numbers. Errors name the address ("listen on 127.0.0.1:7400: address already in use"). */
enum status address_listen(const char *text, int *fd_out, char bound_out[LIMIT_ADDRESS_BYTES],
                           struct error *error);

void address_format(const struct sockaddr *socket_address, socklen_t bytes,
                    char out[LIMIT_ADDRESS_BYTES]);

#endif
