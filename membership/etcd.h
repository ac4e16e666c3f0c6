/* etcd: a client that calls etcd's JSON gateway (etcd 3.4 or newer, /v3/…) over libcurl. A client
 * owns its connections and its login. If there are several endpoints (addresses of etcd), a failed
 * call makes the following calls go to the next endpoint. If the config names a user, calls wait
 * until the client has logged in. If etcd no longer accepts the login, the client logs in again and
 * repeats the call once. registration.c and watch.c use the client, on the event loop thread of
 * their process. The client does not wait for the network, and does not log. It does not repeat
 * calls that failed for other reasons, and does not know what the keys mean. */
#ifndef MEMBERSHIP_ETCD_H
#define MEMBERSHIP_ETCD_H

#include "common/clock.h"
#include "common/status.h"
#include "config/config.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ETCD_ENDPOINTS_MAX 8

struct etcd;      /* A client, with its endpoints and its calls in flight. */
struct etcd_call; /* One call in flight. */

/* Called when a call has ended; no further callback follows. `reply` is the first JSON value of the
 * answer, valid during the callback. NULL = the call has failed, or is a stream that has ended;
 * `why` then names the endpoint and the reason. */
typedef void (*etcd_done)(void *self, json_t *reply, const char *why);
/* Called for each line of a streamed answer. `line` is valid during the callback; NULL = the line
 * is not JSON, or memory has run out. */
typedef void (*etcd_line)(void *self, json_t *line);

/* Opens a client with the endpoints (endpoints after the first ETCD_ENDPOINTS_MAX are ignored), the
 * user and the files of cluster/etcd_…. The clock must outlive the client. Returns an error if
 * libcurl cannot be loaded, if a file cannot be used, if the config names no endpoint, or if memory
 * or descriptors run out. */
enum status etcd_open(const struct config *config, const struct clock *clock, struct etcd **out,
                      struct error *error);
/* Ends all calls without a callback and frees the client. NULL is fine. */
void etcd_close(struct etcd *client);

/* POSTs `body`, whose reference it takes over, to the current endpoint. `path` must be valid until
 * the call has ended. `on_line` is called for each line of an answer that is a stream; NULL = the
 * answer is not a stream, and must arrive within 5 s. etcd_turn calls the callbacks, with `self` as
 * their first argument. Returns NULL if there is no memory, or if `body` is NULL. */
struct etcd_call *etcd_call_begin(struct etcd *client, const char *path, json_t *body,
                                  etcd_line on_line, etcd_done on_done, void *self);
/* Ends the call without a callback; `call` must not be used afterwards. May be called from a
 * callback. NULL is fine. */
void etcd_call_cancel(struct etcd_call *call);

/* Returns a descriptor for the caller's epoll set; the client owns it. */
int etcd_fd(const struct etcd *client);
/* Moves all calls forward and calls their callbacks. Returns the number of milliseconds after which
 * the caller must call etcd_turn again; -1 = no time limit. The caller also calls etcd_turn after
 * etcd_call_begin, and when the descriptor is readable. */
int etcd_turn(struct etcd *client);
/* Returns the address of the endpoint that the next call goes to. */
const char *etcd_endpoint(const struct etcd *client);

/* ---- etcd_text.c: texts in etcd's JSON ---- */

/* Returns a JSON string (a new reference) with `text` in base64; NULL = no memory. */
json_t *etcd_text_encode(const char *text, size_t bytes);
/* Decodes a base64 text of a reply. The caller frees the NUL-terminated result. NULL = not a base64
 * text, or no memory. */
char *etcd_text_decode(const json_t *value);
/* Returns the member `key` of an object as a number (etcd writes 64-bit numbers as texts); 0 =
 * none. */
int64_t etcd_number_read(const json_t *object, const char *key);

#endif
