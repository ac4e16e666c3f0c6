/* http_fixture: an HTTP server for the tests of server/http, and clients that send requests to it.
 * The server is the real one; behind it is a scripted gateway (fake_gateway.h), so the tests need
 * no machines and no model. The clients are plain sockets on loopback. The fixture owns the
 * server's thread; the test calls all functions on its main thread. There is one server at a time.
 * If a function cannot do what its comment says, it ends the test with an error; every wait is at
 * most one minute. It judges no answers: the tests do. */
#ifndef TESTS_SERVER_HTTP_HTTP_FIXTURE_H
#define TESTS_SERVER_HTTP_HTTP_FIXTURE_H

#include "server/http/internal.h"
#include "tests/server/http/fake_gateway.h"

#include <pthread.h>

#define REPLY_BYTES_MAX (16u << 20)

/* The running server, its API keys and its config. The server's thread uses them: see
 * server_pause. */
extern struct http *http;
extern struct api_keys *keys;
extern struct config config;

/* Sets `config` to small limits. */
void server_config_default(void);
/* Starts a server with `config` on a free port. Overwrites options.listen_fd, config, gateway,
 * keys, clock and model. */
void server_start(struct http_options options);
/* Completes the options as server_start does, and returns true if http_open fails with them. The
 * caller closes options->listen_fd. Requires that http_open fails. */
bool server_open_fails(struct http_options *options);
/* Waits until all requests have ended, and stops the server. */
void server_stop(void);
/* Stops the server at once: open requests are cut off. */
void server_stop_now(void);
uint16_t server_port(void);
/* Between server_pause and server_resume the server's thread does nothing, so the test may change
 * the config and read the server's fields. */
void server_pause(void);
void server_resume(void);
/* Moves the server's clock forward. */
void clock_advance(int64_t us);
/* From now on, the server's clock moves forward by this time whenever it is read. */
void clock_step(int64_t us);
/* Replaces the API keys by those of a key file with this text. */
void keys_use(const char *text);

/* --- a client --- */

/* Returns a new connection to the server, which the caller closes. */
int dial(void);
void send_bytes(int fd, const char *data, size_t bytes);
/* Sends a request with these headers, of which each line ends with "\r\n". Adds Content-Length,
 * and, unless `headers` has them, Host and (for a body) Content-Type. `body` "" = no body. */
void send_request(int fd, const char *method, const char *path, const char *headers,
                  const char *body);
/* Reads one reply (Content-Length or chunked) into `reply`. Returns its HTTP status. */
int read_reply(int fd);
/* Send one request on a new connection, read the reply and close the connection. `post` sends no
 * headers of its own. Return the HTTP status. */
int ask(const char *method, const char *path, const char *headers, const char *body);
int post(const char *path, const char *body);

/* Headers and body of the last reply, the body without chunk sizes; ends with a NUL. */
extern char reply[REPLY_BYTES_MAX];
extern char *reply_body;        /* The body in `reply`. */
extern size_t reply_body_bytes; /* Bytes of the body. */
/* `expect` ends the test unless the last reply (headers and body) contains `part`; `expect_not`
 * ends it if the reply does. */
void expect(const char *part);
void expect_not(const char *part);
/* Returns how many times the last reply's body contains `part`. */
uint32_t count_in_body(const char *part);

/* Waits until a counter of fake_gateway.h has this value. `what`: name of the counter in errors. */
void wait_for_counter(atomic_uint *counter, unsigned value, const char *what);
/* Waits until the server holds this many bytes of request bodies that it has not parsed yet. */
void wait_for_body_bytes(uint64_t bytes);
/* Waits until the server has closed the connection, and closes this end. */
void wait_closed(int fd);

#endif
