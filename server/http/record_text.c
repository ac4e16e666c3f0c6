/* http_record_text: a record of a request as JSON, as a line of text, and as a sentence. */
#include "server/http/internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const phase_names[HTTP_PHASE_COUNT] = {
    "read", "text", "queue", "reserve", "prompt", "transfer", "resume", "decode", "send"};

const char *http_phase_name(enum http_phase phase)
{
    return phase_names[phase];
}

static const char *const phase_sentences[HTTP_PHASE_COUNT] = {
    [HTTP_PHASE_READ] = "the client sent its body",
    [HTTP_PHASE_TEXT] = "its body became tokens",
    [HTTP_PHASE_QUEUE] = "it waited for machines",
    [HTTP_PHASE_RESERVE] = "it waited for KV memory",
    [HTTP_PHASE_PROMPT] = "its prompt was computed",
    [HTTP_PHASE_TRANSFER] = "its KV travelled",
    [HTTP_PHASE_RESUME] = "it waited for machines or memory that it had lost",
    [HTTP_PHASE_DECODE] = "its answer was generated",
    [HTTP_PHASE_SEND] = "the client read its answer",
};

/* Writes date and time (UTC, RFC 3339). */
static void time_add(struct text *out)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    text_format_add(out, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                    utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, (int)(now.tv_nsec / 1000000));
}

static void member_add(struct text *out, const char *name, const char *value)
{
    if (value[0] == 0)
        return;
    text_format_add(out, ",\"%s\":", name);
    text_add_json_string(out, value, strlen(value));
}

static void seconds_add(struct text *out, int64_t us)
{
    text_format_add(out, "%.6f", (double)us * 1e-6);
}

static void completion_add_json(const struct http_record *r, struct text *out)
{
    const struct completion_facts *facts = r->facts;
    member_add(out, "answer", facts->answer_id);
    member_add(out, facts->is_adapter ? "adapter" : "model", facts->model);
    member_add(out, "finish", r->finish);
    text_format_add(
        out,
        ",\"stream\":%s,\"choices\":%u,\"prompt_tokens\":%llu,\"cached_tokens\":%llu"
        ",\"answer_tokens\":%llu",
        facts->streams ? "true" : "false", facts->choices, (unsigned long long)facts->prompt_tokens,
        (unsigned long long)facts->cached_tokens, (unsigned long long)facts->answer_tokens);
    if (!facts->summarised)
        return;
    member_add(out, "prompt_machine", facts->last_summary.prompt_machine);
    member_add(out, "token_machine", facts->last_summary.token_machine);
    text_format_add(out, ",\"machine_request\":\"%llx\",\"resumed\":%u",
                    (unsigned long long)facts->last_summary.id, facts->resumed);
}

void http_record_json(const struct http_record *r, struct text *out)
{
    text_string_add(out, "{\"time\":\"");
    time_add(out);
    text_string_add(out, "\"");
    member_add(out, "request", r->request_id);
    member_add(out, "trace", r->trace_id);
    member_add(out, "trace_parent", r->trace_parent);
    text_format_add(out, ",\"status\":%u", r->status);
    member_add(out, "path", r->path);
    member_add(out, "key", r->key_name);
    member_add(out, "client", r->client);
    if (r->finish != NULL)
        completion_add_json(r, out);
    text_string_add(out, ",\"seconds\":");
    seconds_add(out, r->total_us);
    if (r->first_token_us >= 0) {
        text_string_add(out, ",\"first_token\":");
        seconds_add(out, r->first_token_us);
    }
    text_string_add(out, ",\"phases\":{");
    for (int i = 0; i < HTTP_PHASE_COUNT; i++) {
        text_format_add(out, i > 0 ? ",\"%s\":" : "\"%s\":", phase_names[i]);
        seconds_add(out, r->phases_us[i]);
    }
    text_string_add(out, "}");
    member_add(out, "error", r->error);
    text_string_add(out, "}");
}

/* Values that are not one plain word are written as JSON strings, so that none can look like
 * another word of the line. */
static void word_add(struct text *out, const char *name, const char *value)
{
    bool plain = true;
    for (const char *at = value; *at != 0; at++)
        plain = plain && *at > ' ' && *at < 127 && *at != '"' && *at != '\\';
    if (value[0] == 0)
        return;
    text_format_add(out, " %s=", name);
    if (plain)
        text_string_add(out, value);
    else
        text_add_json_string(out, value, strlen(value));
}

static void completion_add_line(const struct http_record *r, struct text *out)
{
    const struct completion_facts *facts = r->facts;
    word_add(out, "answer", facts->answer_id);
    word_add(out, facts->is_adapter ? "adapter" : "model", facts->model);
    word_add(out, "finish", r->finish);
    text_format_add(out, " prompt_tokens=%llu cached_tokens=%llu answer_tokens=%llu",
                    (unsigned long long)facts->prompt_tokens,
                    (unsigned long long)facts->cached_tokens,
                    (unsigned long long)facts->answer_tokens);
    if (!facts->summarised)
        return;
    word_add(out, "prompt_machine", facts->last_summary.prompt_machine);
    word_add(out, "token_machine", facts->last_summary.token_machine);
    text_format_add(out, " machine_request=%llx resumed=%u",
                    (unsigned long long)facts->last_summary.id, facts->resumed);
}

void http_record_line(const struct http_record *r, struct text *out)
{
    time_add(out);
    text_format_add(out, " %s %u %s", r->request_id, r->status, r->path);
    word_add(out, "trace", r->trace_id);
    word_add(out, "trace_parent", r->trace_parent);
    word_add(out, "key", r->key_name);
    word_add(out, "client", r->client);
    if (r->finish != NULL)
        completion_add_line(r, out);
    text_format_add(out, " seconds=%.6f", (double)r->total_us * 1e-6);
    if (r->first_token_us >= 0)
        text_format_add(out, " first_token=%.6f", (double)r->first_token_us * 1e-6);
    for (int i = 0; i < HTTP_PHASE_COUNT; i++)
        text_format_add(out, " %s=%.6f", phase_names[i], (double)r->phases_us[i] * 1e-6);
    if (r->error[0] == 0)
        return;
    text_string_add(out, " error=");
    text_add_json_string(out, r->error, strlen(r->error));
}

void http_record_slow(const struct http_record *r, struct text *out)
{
    const struct gateway_summary *last = &r->facts->last_summary;
    bool said[HTTP_PHASE_COUNT] = {false};
    text_format_add(out, "request %s took %.3f s:", r->request_id, (double)r->total_us * 1e-6);
    /* Writes the longest phase first. Leaves out phases below a hundredth of the time. */
    for (int n = 0; n < HTTP_PHASE_COUNT; n++) {
        int longest = -1;
        for (int i = 0; i < HTTP_PHASE_COUNT; i++)
            if (!said[i] && (longest < 0 || r->phases_us[i] > r->phases_us[longest]))
                longest = i;
        said[longest] = true;
        if (n > 0 && r->phases_us[longest] * 100 < r->total_us)
            break;
        text_format_add(out, "%s %s %.3f s", n > 0 ? "," : "", phase_sentences[longest],
                        (double)r->phases_us[longest] * 1e-6);
    }
    text_format_add(out, "; status %u", r->status);
    if (r->finish == NULL)
        return;
    text_format_add(out, ", %s, %llu prompt tokens (%llu cached), %llu answer tokens", r->finish,
                    (unsigned long long)r->facts->prompt_tokens,
                    (unsigned long long)r->facts->cached_tokens,
                    (unsigned long long)r->facts->answer_tokens);
    if (r->facts->summarised && last->prompt_machine[0] != 0)
        text_format_add(out, ", machines %s%s%s (request %llx there), resumed %u times",
                        last->prompt_machine, last->token_machine[0] != 0 ? " and " : "",
                        last->token_machine, (unsigned long long)last->id, r->facts->resumed);
}
