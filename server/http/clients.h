/* http_clients: which connections of clients may stay open. Each open connection takes one of a
 * fixed number of places, and moves through these states:
 *
 *   arriving ─► receiving ─► working ─► answering ─► idle ─┐
 *                   ▲           ▲  └────────┘             │
 *                   └─ headers of the next request ◄──────┘
 *
 * A client has a time limit while the server does no work for it (arriving, receiving, answering,
 * idle). When all places are taken, a new connection takes the place of the one that has been
 * arriving or idle for the longest time. Some places are kept free of work, so that requests such
 * as /health are always answered. Clients without an API key also have a limit for each address.
 *
 * It reads and writes no sockets and knows no HTTP. The files of server/http/ make every call on
 * the gateway's loop thread, pass the time and the address, and close the connections. */
#ifndef SERVER_HTTP_CLIENTS_H
#define SERVER_HTTP_CLIENTS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum http_client_state {
    HTTP_CLIENT_ARRIVING,  /* Its handshake, or the headers of its first request. */
    HTTP_CLIENT_RECEIVING, /* The body of its request. */
    HTTP_CLIENT_WORKING,   /* The server computes its answer. */
    HTTP_CLIENT_ANSWERING, /* Bytes of its answer wait until the client reads. */
    HTTP_CLIENT_IDLE,      /* The headers of its next request. */
    HTTP_CLIENT_CLOSING,   /* It was closed, and will be removed. */
    HTTP_CLIENT_STATES
};

struct http_clients;
struct http_client;

struct http_clients_options {
    uint32_t places;
    uint32_t places_kept;     /* Places that http_client_work does not give away. */
    uint32_t per_address_max; /* Clients of one address that are not known. */
    int64_t arriving_us;      /* Limit for the state ARRIVING. */
    int64_t idle_us;          /* Limit for the state IDLE. */
    int64_t grace_us;         /* RECEIVING and ANSWERING: the rate counts after this time. */
    uint64_t bytes_per_second_min;
    /* Closes the connection; the client's state is CLOSING. `why` is a text for the log. */
    void (*close)(void *self, struct http_client *client, const char *why);
    void *self;
};

enum status http_clients_open(const struct http_clients_options *options,
                              struct http_clients **out);
void http_clients_close(struct http_clients *clients); /* NULL is fine. No client may be left. */
/* Changes the limits that a reload may change. */
void http_clients_limits_set(struct http_clients *clients, uint32_t per_address_max,
                             int64_t arriving_us, uint64_t bytes_per_second_min);

/* Makes room for a new connection from this address, by closing another connection if necessary.
 * Returns false if no connection can be closed: the new one must not be accepted. */
bool http_clients_admit(struct http_clients *clients, const struct sockaddr *address);
/* Adds an accepted connection; its state is ARRIVING. Returns NULL without memory. Connections of
 * this host (loopback, Unix sockets) have no limit for each address. */
struct http_client *http_client_add(struct http_clients *clients, const struct sockaddr *address,
                                    int fd, int64_t now_us);
void http_client_remove(struct http_client *client);
int http_client_fd(const struct http_client *client);
/* Closes the connection, unless it is CLOSING already. */
void http_client_close(struct http_client *client, const char *why);
/* The owner's record of the client's request; NULL = none. */
void http_client_request_set(struct http_client *client, void *request);
void *http_client_request(const struct http_client *client);

/* Enters a state. Does nothing for a client that is CLOSING. */
void http_client_enter(struct http_client *client, enum http_client_state state, int64_t now_us);
enum http_client_state http_client_state(const struct http_client *client);
/* RECEIVING: received this many bytes; ANSWERING: the client has read this many. */
void http_client_moved(struct http_client *client, uint64_t bytes, int64_t now_us);
/* The client has shown an API key: it no longer counts for its address. */
void http_client_key_shown(struct http_client *client);
/* Begins a request that may take long. Returns false if all places but the kept ones have work. The
 * work ends when the client is idle again. */
bool http_client_work(struct http_client *client);

/* Closes the clients whose time is over. Returns the microseconds until the next call; -1 = when a
 * client has entered a state. */
int64_t http_clients_turn(struct http_clients *clients, int64_t now_us);

/* The client in the state ANSWERING that has not read for the longest time; NULL = none. */
struct http_client *http_clients_stalled(struct http_clients *clients);
/* Open connections, without those that are CLOSING. */
uint32_t http_clients_count(const struct http_clients *clients);

#endif
