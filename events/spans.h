/* spans: sends spans of requests to an OpenTelemetry collector, as JSON over HTTP (OTLP). Config key
 * `log/otlp_endpoint`. server/http/ writes the spans as JSON on the gateway's event loop thread; a
 * thread of this part gathers them for up to a second and sends them. What the collector does not
 * take is dropped and counted: nothing is sent twice, and the loop never waits. It does not know
 * what the spans mean. It needs libcurl, which is loaded when spans are opened. */
#ifndef EVENTS_SPANS_H
#define EVENTS_SPANS_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

struct spans;

struct spans_counts {
    uint64_t sent;    /* Spans that the collector has taken. */
    uint64_t dropped; /* Spans that it will never get. */
    /* Why the latest spans were dropped; empty = none were, or later ones were sent. */
    char failure[160];
};

/* endpoint: http://HOST:PORT/v1/traces, or https. Contacts no host yet. ST_INVALID: it is no such
 * address. ST_UNSUPPORTED: libcurl is not installed. ST_NO_MEMORY. */
enum status spans_open(const char *endpoint, struct spans **out, struct error *error);
/* Sends what is left, for at most a second. NULL is fine. */
void spans_close(struct spans *spans);

/* Adds spans: `count` JSON objects of the form of OTLP, separated by commas; copied. */
void spans_add(struct spans *spans, const char *json, size_t bytes, uint32_t count);

struct spans_counts spans_counts(struct spans *spans);

#endif
