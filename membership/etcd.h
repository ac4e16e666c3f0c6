/* etcd: calls of etcd's JSON gateway (etcd 3.4 or newer, /v3/…) over libcurl, which the first
 * etcd_open loads. With several endpoints, a failed call makes the following calls go to the next
 * endpoint. One event loop thread owns it. It never waits, logs or repeats a call; its callers
 * do. */
#ifndef MEMBERSHIP_ETCD_H
#define MEMBERSHIP_ETCD_H

#include "common/clock.h"
#include "common/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ETCD_ENDPOINTS_MAX 8

struct etcd;
struct etcd_call;

/* The call has ended; no further callback follows. reply: the first JSON value of the answer, valid
 * during the callback; NULL = the call failed, and `why` names the endpoint and the reason. */
typedef void (*etcd_done)(void *self, json_t *reply, const char *why);
/* One line of a streamed answer; NULL = the line is not JSON. */
typedef void (*etcd_line)(void *self, json_t *line);

/* endpoints: "http://HOST:PORT", separated by commas if there are several. */
enum status etcd_open(const char *endpoints, const struct clock *clock, struct etcd **out,
                      struct error *error);
void etcd_close(struct etcd *e); /* Calls no callback. NULL is fine. */

/* POSTs `body` (whose reference it takes over) to the current endpoint. line: called for each line
 * of an answer that is a stream; NULL = not a stream, and the answer must arrive within 5 s.
 * Returns NULL if there is no memory. Callbacks are called by etcd_turn. */
struct etcd_call *etcd_begin(struct etcd *e, const char *path, json_t *body, etcd_line line,
                             etcd_done done, void *self);
/* Ends the call without a callback. May be called from a callback. NULL is fine. */
void etcd_cancel(struct etcd_call *call);

/* Call etcd_turn when the descriptor is readable, after etcd_begin, and after the number of
 * milliseconds that it returned; -1 = no time limit. */
int etcd_fd(const struct etcd *e);
int etcd_turn(struct etcd *e);
const char *etcd_endpoint(const struct etcd *e); /* The endpoint of the next call. */

/* ---- texts in etcd's JSON ---- */

json_t *etcd_bytes(const char *text, size_t bytes); /* Encodes in base64. NULL = no memory. */
/* Decodes a base64 text of a reply. The caller frees the NUL-terminated result. NULL = not such a
 * text, or no memory. */
char *etcd_text(const json_t *value);
/* Reads a 64-bit number, which etcd writes as a text; 0 if it is missing. */
int64_t etcd_number(const json_t *object, const char *key);

#endif
