/* spans: sends spans (named time intervals of requests) to an OpenTelemetry collector, as JSON over
 * HTTP (OTLP). Config key `log/otlp_endpoint`. The gateway's event loop thread makes every call:
 * server/serve*.c opens and closes the part, server/http/ makes the JSON of the spans. A thread
 * that this part owns gathers spans for a second, or until they are 512 KiB, and POSTs them; while
 * a POST runs (up to 10 s), the next spans wait. Spans are dropped and counted if their POST fails
 * (also with a status other than 2xx), or if 1 MiB of spans waits already. No span is sent twice,
 * and the event loop never waits. The part does not know what the spans mean. spans_open loads
 * libcurl. */
#ifndef EVENTS_SPANS_H
#define EVENTS_SPANS_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct spans;

struct spans_counts {
    uint64_t sent;         /* Spans that the collector has accepted. */
    uint64_t dropped;      /* Spans that the collector will never get. */
    char drop_reason[160]; /* Why spans were dropped last; empty = none were dropped. */
};

/* Starts the thread. endpoint: http://HOST:PORT/v1/traces, or https. Contacts no host yet. Returns
 * ST_INVALID if the endpoint begins otherwise or is too long, ST_UNSUPPORTED if libcurl is not
 * installed, ST_NO_MEMORY if memory or a thread is missing. */
enum status spans_open(const char *endpoint, struct spans **out, struct error *error);
/* Waits at most a second until the remaining spans are sent. NULL is fine. */
void spans_close(struct spans *spans);

/* Adds `count` spans: JSON objects of OTLP, separated by commas. The text is copied. */
void spans_add(struct spans *spans, const char *json, size_t bytes, uint32_t count);

/* Returns the counts since spans_open. */
struct spans_counts spans_counts(struct spans *spans);

#endif
