/* http_fixture: for the tests of server/http: the real HTTP side with a scripted gateway
 * (fake_gateway.h), and clients with plain sockets over loopback. The server runs on a separate
 * thread; the test calls all functions on its main thread. There is one server at a time. A
 * function whose step fails ends the test; a wait fails after a minute. It needs no machines and no
 * model. */
#ifndef TESTS_SERVER_HTTP_HTTP_FIXTURE_H
#define TESTS_SERVER_HTTP_HTTP_FIXTURE_H

#include "server/http/internal.h"
#include "tests/server/http/fake_gateway.h"

#include <pthread.h>

#define REPLY_BYTES_MAX (16u << 20)

extern struct http *http;
extern struct api_keys *keys;
extern struct config config;

/* Sets a config with small limits. */
void server_config_default(void);
/* Starts a server with `config`. The fixture fills the fields of the options that it knows. */
void server_start(struct http_options options);
void server_stop(void);
/* Stops it while requests are open. */
void server_stop_now(void);
uint16_t server_port(void);
/* Between server_pause and server_resume the server's thread does nothing, so the test may change
 * the config. */
void server_pause(void);
void server_resume(void);
/* Sets the server's clock forward. */
void clock_advance(int64_t us);
/* Replaces the API keys by those of a key file with this text. */
void keys_use(const char *text);

/* --- a client --- */

int dial(void);
void put(int fd, const char *data, size_t bytes);
/* Adds Host and, for a body, Content-Type, unless `headers` has them. Each line of `headers` ends
 * with "\r\n". */
void put_request(int fd, const char *method, const char *path, const char *headers,
                 const char *body);
/* Reads one reply (Content-Length or chunked) into `reply`. Returns its status. */
int get(int fd);
/* One request on a new connection. Return the status. */
int ask(const char *method, const char *path, const char *headers, const char *body);
int post(const char *path, const char *body);

extern char reply[REPLY_BYTES_MAX]; /* Headers and decoded body of the last reply. */
extern char *reply_body;
extern size_t reply_bytes; /* Bytes of the body. */
void expect(const char *part);
void expect_not(const char *part);
/* Returns how many times the last reply's body contains `part`. */
uint32_t count_of(const char *part);

/* Waits for a counter of the server's thread. */
void wait_for(atomic_uint *counter, unsigned value, const char *what);
/* Waits until the server keeps this many bytes of bodies that are still arriving. */
void wait_for_body(uint64_t bytes);
/* Waits until the server has closed the connection, and closes it. */
void wait_closed(int fd);

#endif
