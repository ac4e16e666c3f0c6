/* etcd: calls of etcd's JSON gateway (etcd 3.4 or newer, /v3/…), over libcurl, which is loaded by
 * the first etcd_open. Several endpoints: after a call that failed, the next one is asked. One
 * event loop thread owns it; nothing here waits, logs or tries again: that is its callers' part. */
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

/* The call is over, for the last time that anything is heard of it. reply: the first JSON value of
 * the answer, the callee's to read; NULL if it failed: then `why` says how, and where. */
typedef void (*etcd_done)(void *self, json_t *reply, const char *why);
/* One line of an answer that goes on; NULL: it is no JSON. */
typedef void (*etcd_line)(void *self, json_t *line);

/* endpoints: "http://HOST:PORT", several with commas between. */
enum status etcd_open(const char *endpoints, const struct clock *clock, struct etcd **out,
                      struct error *error);
void etcd_close(struct etcd *e); /* NULL is fine; no callback is called */

/* POSTs `body` (whose reference is taken) to the endpoint of now. line: the answer is a stream, of
 * which each line is given (else NULL, and it must come within 5 s). NULL: no memory. Callbacks
 * come from etcd_turn. */
struct etcd_call *etcd_begin(struct etcd *e, const char *path, json_t *body, etcd_line line,
                             etcd_done done, void *self);
/* It is not heard of any more. NULL is fine. Also from inside a callback. */
void etcd_cancel(struct etcd_call *call);

/* Call turn when fd is readable, after calls of begin, and after as many ms as it returned (-1:
 * none). */
int etcd_fd(const struct etcd *e);
int etcd_turn(struct etcd *e);
const char *etcd_endpoint(const struct etcd *e); /* that the next call goes to */

/* ---- texts in etcd's JSON ---- */

json_t *etcd_bytes(const char *text, size_t bytes); /* in base64; NULL: no memory */
/* The text in base64 of a reply, NUL-terminated; NULL: it is none, or no memory. Free it. */
char *etcd_text(const json_t *value);
/* 64-bit numbers are texts there; what is missing is 0. */
int64_t etcd_number(const json_t *object, const char *key);

#endif
