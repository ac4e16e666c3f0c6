/* http_record_spans: a record of a request as spans of OpenTelemetry, in the JSON form of OTLP. The
 * phases are spans that follow one another; those on machines name the machine. */
#include "server/http/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SPAN_INTERNAL = 1, SPAN_SERVER = 2, STATUS_ERROR = 2 }; /* Numbers of OTLP. */

static const char *separator(const struct text *out)
{
    return out->bytes > 0 && out->data[out->bytes - 1] == '[' ? "" : ",";
}

static void text_attribute(struct text *out, const char *name, const char *value)
{
    if (value[0] == 0)
        return;
    text_format_add(out, "%s{\"key\":\"%s\",\"value\":{\"stringValue\":", separator(out), name);
    text_add_json_string(out, value, strlen(value));
    text_string_add(out, "}}");
}

/* Writes a whole number of 64 bits as a text, as OTLP requires in JSON. */
static void number_attribute(struct text *out, const char *name, uint64_t value)
{
    text_format_add(out, "%s{\"key\":\"%s\",\"value\":{\"intValue\":\"%" PRIu64 "\"}}",
                    separator(out), name, value);
}

/* Begins a span, up to its attributes. parent: "" = none. */
static void span_begin(struct text *out, const char *trace, uint64_t id, const char *parent,
                       const char *name, int kind, int64_t start_us, int64_t end_us)
{
    text_format_add(out, "{\"traceId\":\"%s\",\"spanId\":\"%016" PRIx64 "\"", trace, id);
    if (parent[0] != 0)
        text_format_add(out, ",\"parentSpanId\":\"%s\"", parent);
    text_string_add(out, ",\"name\":");
    text_add_json_string(out, name, strlen(name));
    text_format_add(out,
                    ",\"kind\":%d,\"startTimeUnixNano\":\"%" PRId64
                    "000\",\"endTimeUnixNano\":\"%" PRId64 "000\",\"attributes\":[",
                    kind, start_us, end_us);
}

static void request_attributes(const struct http_record *r, struct text *out)
{
    const struct completion_facts *facts = r->facts;
    text_attribute(out, "http.route", r->path);
    number_attribute(out, "http.response.status_code", r->status);
    text_attribute(out, "client.address", r->client);
    text_attribute(out, "cleave.request", r->request_id);
    text_attribute(out, "cleave.key", r->key_name);
    if (r->finish == NULL)
        return;
    text_attribute(out, "gen_ai.response.id", facts->answer_id);
    text_attribute(out, "gen_ai.response.model", facts->model);
    text_attribute(out, "cleave.finish", r->finish);
    number_attribute(out, "gen_ai.usage.input_tokens", facts->prompt_tokens);
    number_attribute(out, "gen_ai.usage.output_tokens", facts->answer_tokens);
    number_attribute(out, "cleave.cached_tokens", facts->cached_tokens);
    number_attribute(out, "cleave.resumed", facts->resumed);
}

/* Returns the machine of a phase; "" = the gateway. */
static const char *phase_machine(const struct http_record *r, int phase)
{
    const struct gateway_summary *last = &r->facts->last_summary;
    if (phase == HTTP_PHASE_PROMPT)
        return last->prompt_machine;
    bool is_token =
        phase == HTTP_PHASE_RESERVE || phase == HTTP_PHASE_TRANSFER || phase == HTTP_PHASE_DECODE;
    return !is_token                     ? ""
           : last->token_machine[0] != 0 ? last->token_machine
                                         : last->prompt_machine;
}

static void phase_add(const struct http_record *r, int phase, const char *trace, uint64_t id,
                      const char *parent, int64_t start_us, struct text *out)
{
    const char *machine = phase_machine(r, phase);
    text_string_add(out, ",");
    span_begin(out, trace, id, parent, http_phase_name(phase), SPAN_INTERNAL, start_us,
               start_us + r->phases_us[phase]);
    text_attribute(out, "cleave.machine", machine);
    if (machine[0] != 0) {
        char number[20];
        snprintf(number, sizeof(number), "%" PRIx64, r->facts->last_summary.id);
        text_attribute(out, "cleave.machine_request", number);
    }
    text_string_add(out, "]}");
}

uint32_t http_record_spans(const struct http_record *r, const uint64_t ids[2], struct text *out)
{
    char trace[33], parent[17];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t end_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    int64_t at_us = end_us - r->total_us;
    uint32_t count = 1;
    const uint64_t id = ids[0] | 1; /* Not 0, which would be no id. */
    snprintf(trace, sizeof(trace), "%016" PRIx64 "%016" PRIx64, ids[1] | 1, ids[0]);
    if (r->trace_id[0] != 0)
        snprintf(trace, sizeof(trace), "%s", r->trace_id);
    span_begin(out, trace, id, r->trace_parent, r->path, SPAN_SERVER, at_us, end_us);
    request_attributes(r, out);
    text_format_add(out, "],\"status\":{\"code\":%d}}",
                    r->status >= 500 || (r->finish != NULL && strcmp(r->finish, "error") == 0)
                        ? STATUS_ERROR
                        : 0);
    snprintf(parent, sizeof(parent), "%016" PRIx64, id);
    for (int i = 0; i < HTTP_PHASE_COUNT; i++) {
        if (r->phases_us[i] == 0)
            continue;
        phase_add(r, i, trace, (id + 2 * (uint64_t)(i + 1)) | 1, parent, at_us, out);
        at_us += r->phases_us[i];
        count++;
    }
    return count;
}
