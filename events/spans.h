/* spans: sends trace spans (named time intervals of requests, not the spans of the glossary) to an
 * OpenTelemetry collector, as JSON over HTTP (config key `log/otlp_endpoint`). server/ uses the
 * part, on the gateway's event loop thread. The part owns a buffer of 1 MiB for spans, and a thread
 * that sends them in one POST about once per second. Spans are dropped and counted if the buffer is
 * full, if memory runs out, or if the collector does not answer their POST with a status 2xx within
 * 10 s. The part does not make the JSON of a span: server/http/ does. */
#ifndef EVENTS_SPANS_H
#define EVENTS_SPANS_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct spans;

struct spans_counts {
    uint64_t sent;         /* Spans whose POST was answered with a status 2xx. */
    uint64_t dropped;      /* Spans that were dropped. */
    char drop_reason[160]; /* Why the latest spans were dropped; empty = no span was dropped. */
};

/* Loads libcurl and starts the thread, without contacting the collector. endpoint: a URL such as
 * http://HOST:PORT/v1/traces. Returns ST_INVALID if the endpoint does not begin with http:// or
 * https://, or is too long (LIMIT_PATH_BYTES); ST_UNSUPPORTED if libcurl is not installed;
 * ST_NO_MEMORY, also if no thread can be started. */
enum status spans_open(const char *endpoint, struct spans **out, struct error *error);
/* Waits at most a second until the remaining spans are sent, and frees the part. If a POST takes
 * longer, the thread goes on, and nothing is freed. NULL is fine. */
void spans_close(struct spans *spans);

/* Adds span_count spans: JSON objects of OTLP, separated by commas. The text is copied. */
void spans_add(struct spans *spans, const char *json, size_t json_bytes, uint32_t span_count);

/* Returns the counts since spans_open. */
struct spans_counts spans_counts(struct spans *spans);

#endif
