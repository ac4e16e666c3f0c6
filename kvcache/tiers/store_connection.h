/* store_connection: a connection to one server of the shared store (tier_store.h), over TCP or TLS.
 * The connection owns the socket and the TLS session. It sends and receives bytes, and does not
 * know the meaning of the bytes (store_session.h does). A call with a deadline waits at most until
 * the deadline. A deadline is a time of clock_system in microseconds. store_session.c and
 * tier_store.c call the functions, on one thread at a time (tier_backend.h). A connection does not
 * connect again by itself. */
#ifndef KVCACHE_TIERS_STORE_CONNECTION_H
#define KVCACHE_TIERS_STORE_CONNECTION_H

#include "common/status.h"
#include "transport/resolver.h"

#include <stddef.h>
#include <stdint.h>

struct store_tls; /* The CAs that are trusted to sign the certificates of servers. */

/* Reads the CAs from a file in PEM; NULL or "" = the CAs of the system. Returns ST_INVALID if no
 * certificate can be read, ST_NO_MEMORY. */
enum status store_tls_open(const char *ca_file, struct store_tls **out, struct error *error);
/* Requires that no connection uses `tls`. NULL is fine. */
void store_tls_close(struct store_tls *tls);

struct store_connection;

struct store_connection_options {
    const struct address *address; /* Address of the server. */
    struct resolver *resolver;     /* Finds the numeric addresses of the server's host. */
    struct store_tls *tls;         /* NULL = no TLS. Must outlive the connection. */
    int64_t deadline_us;           /* Deadline of store_connection_open. */
};

/* Resolves the server's host, connects to the host's first numeric address that answers, and with
 * TLS makes the hand-shake. The server's certificate must name the host and be signed by a trusted
 * CA. Returns ST_TIMED_OUT, ST_UNREACHABLE, ST_MISMATCH if the hand-shake fails, ST_NO_MEMORY, or
 * an error of resolver_find. */
enum status store_connection_open(const struct store_connection_options *options,
                                  struct store_connection **out, struct error *error);
void store_connection_close(struct store_connection *c); /* NULL is fine. */

/* Sends all bytes. After ST_TIMED_OUT or ST_UNREACHABLE, the number of bytes that were sent is
 * unknown, and the connection can only be closed. */
enum status store_connection_send(struct store_connection *c, const void *data, size_t bytes,
                                  int64_t deadline_us, struct error *error);
/* Waits for bytes and stores at most `capacity` of them, at least 1. Returns ST_TIMED_OUT, or
 * ST_UNREACHABLE if the connection is closed or has failed. */
enum status store_connection_receive(struct store_connection *c, void *data, size_t capacity,
                                     int64_t deadline_us, size_t *bytes_out, struct error *error);

/* Returns true if the socket is readable or has failed. Does not wait. With TLS, the result is only
 * a hint: bytes that the TLS session holds are not seen, and a TLS record need not carry data. */
bool store_connection_has_input(const struct store_connection *c);

#endif
