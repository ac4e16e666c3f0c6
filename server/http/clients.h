/* http_clients: decides which connections of HTTP clients may stay open, and owns the table of
 * clients. Here a *client* is one connection. server/http/ calls the functions on the gateway's
 * event loop thread, and closes the connections. This part reads and writes no sockets and knows no
 * HTTP.
 *
 * The states ARRIVING and IDLE have a time limit; RECEIVING and ANSWERING have a minimum rate of
 * bytes. The number of places for connections is fixed. When all places are taken, a new connection
 * replaces the connection that has waited longest without a request: an idle connection, or a
 * connection that has been arriving for at least HTTP_CLIENT_YOUNG_US. If no connection waits, the
 * new connection is accepted without a place, up to a limit, so that its request can get a 503.
 * Some places are kept for short requests such as /health. The number of clients of one address
 * that have shown no API key is limited. An IPv6 address stands for its network of 64 bits. TLS
 * handshakes have a limited time in each iteration of the event loop. */
#ifndef SERVER_HTTP_CLIENTS_H
#define SERVER_HTTP_CLIENTS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* What a connection does. */
enum http_client_state {
    HTTP_CLIENT_ARRIVING,  /* The first state: TLS hand-shake or first headers are awaited. */
    HTTP_CLIENT_RECEIVING, /* The body of a request is being received. */
    HTTP_CLIENT_WORKING,   /* The server computes the answer. */
    HTTP_CLIENT_ANSWERING, /* Bytes of the answer wait until the client reads. */
    HTTP_CLIENT_IDLE,      /* The headers of the next request are awaited. */
    HTTP_CLIENT_CLOSING,   /* `close` was called; http_client_remove was not called yet. */
    HTTP_CLIENT_STATES     /* Number of states. */
};

/* For this time a new connection is not replaced by a connection of another address. */
#define HTTP_CLIENT_YOUNG_US 250000

/* In each iteration of the event loop (from one call of http_clients_turn to the next), no TLS
 * handshake goes on later than this time after the first one. After half of this time, only
 * addresses that had no handshake in the iteration may begin one. */
#define HTTP_CLIENT_HANDSHAKES_US 20000

struct http_clients;
struct http_client;

struct http_clients_options {
    uint32_t connections_max;      /* Number of places. */
    uint32_t connections_surplus;  /* Maximum number of connections without a place. */
    uint32_t connections_reserved; /* Places that are kept for short requests. */
    uint32_t per_address_max;      /* Maximum number of clients per address without API key. */
    int64_t arriving_us;           /* Longest time in the state ARRIVING. */
    int64_t idle_us;               /* Longest time in the state IDLE. */
    int64_t grace_us;              /* RECEIVING and ANSWERING: time before the rate is checked. */
    uint64_t bytes_per_second_min; /* RECEIVING and ANSWERING: minimum rate, ≥ 1. */
    /* Closes the connection of a client whose state is CLOSING. reason: a text for the log. */
    void (*close)(void *self, struct http_client *client, const char *reason);
    void *self; /* First argument of `close`. */
};

/* Opens an empty table; *options is copied. Returns ST_NO_MEMORY on failure. */
enum status http_clients_open(const struct http_clients_options *options,
                              struct http_clients **out);
/* Requires that all clients were removed. NULL is fine. */
void http_clients_close(struct http_clients *clients);
/* Changes these limits. */
void http_clients_limits_set(struct http_clients *clients, uint32_t per_address_max,
                             int64_t arriving_us, uint64_t bytes_per_second_min);

/* Decides about a new connection from this address. Closes another connection that waits without a
 * request, if a place is needed. If the address is at its limit, closes a connection of this
 * address that waits. Returns false if the new connection must not be accepted. */
bool http_clients_admit(struct http_clients *clients, const struct sockaddr *address,
                        int64_t now_us);
/* Adds an accepted connection with the socket `fd`, in the state ARRIVING. Connections from this
 * host (loopback, Unix sockets) have no limit per address. Returns NULL if there is no memory. */
struct http_client *http_client_add(struct http_clients *clients, const struct sockaddr *address,
                                    int fd, int64_t now_us);
void http_client_remove(struct http_client *client);  /* Frees the client and its place. */
int http_client_fd(const struct http_client *client); /* Returns the connection's socket. */
/* Closes the connection, unless it is CLOSING already. reason: a text for the log. */
void http_client_close(struct http_client *client, const char *reason);
/* Sets the caller's pointer to the client's request; NULL = none. */
void http_client_request_set(struct http_client *client, void *request);
/* Returns the pointer of http_client_request_set; NULL = none. */
void *http_client_request(const struct http_client *client);

/* Returns true if the TLS handshake of the client, whose state is ARRIVING, may go on now; false =
 * after the next http_clients_turn. */
bool http_client_handshake_permit(struct http_client *client, int64_t now_us);

/* Enters a state other than ARRIVING and CLOSING. Does nothing for a client that is CLOSING. */
void http_client_state_set(struct http_client *client, enum http_client_state state,
                           int64_t now_us);
enum http_client_state http_client_state(const struct http_client *client);
/* Records that the server has received `bytes` bytes from the client (state RECEIVING), or that the
 * client has read `bytes` bytes (state ANSWERING). */
void http_client_bytes_add(struct http_client *client, uint64_t bytes, int64_t now_us);
/* Records that the client has shown an API key: the limit of its address no longer counts it. */
void http_client_key_shown(struct http_client *client);
/* Marks the client's request as long, until the client becomes IDLE, is closed or is removed.
 * Returns false, without a mark, if only the places for short requests are left. No effect on a
 * client that is marked or CLOSING: returns true. */
bool http_client_work_begin(struct http_client *client);

/* Closes the clients that have exceeded a time limit or are too slow. Closes waiting clients while
 * there are more connections than places. Returns the microseconds until the next call; -1 = no
 * call is needed before a client is added or changes its state. */
int64_t http_clients_turn(struct http_clients *clients, int64_t now_us);

/* Returns the ANSWERING client that has read nothing for the longest time; NULL = none. */
struct http_client *http_clients_stalled(struct http_clients *clients);
/* Returns the number of open connections, without those in the state CLOSING. */
uint32_t http_clients_count(const struct http_clients *clients);

#endif
