/* serve_dump: SIGUSR1 writes the latest requests and decisions to the log: what the gateway
 * remembers without an event log. The lines are written over several iterations, because the log
 * drops lines that stderr does not take at once. */
#include "server/gateway/history.h"
#include "server/serve_internal.h"

#include <string.h>

enum {
    LINES_PER_TURN = 32,
    PAUSE_MS = 10,
};

void serve_dump_begin(struct serve *s)
{
    text_clear(&s->dump_requests);
    text_clear(&s->dump_events);
    const struct history_query all = {
        .requests_max = UINT32_MAX, .with_events = true, .separator = "\n"};
    gateway_requests_list(s->gateway, &all, &s->dump_requests);
    gateway_decisions_lines(s->gateway, &s->dump_events);
    s->dump_requests_at = s->dump_events_at = 0;
    log_info("SIGUSR1: the latest requests and decisions follow");
}

/* Writes lines of a text from *at on. Returns how many. */
static uint32_t lines_log(const struct text *text, size_t *at, const char *name, uint32_t most)
{
    uint32_t lines = 0;
    for (; lines < most && *at < text->bytes; lines++) {
        const char *line = text->data + *at;
        const char *end = memchr(line, '\n', text->bytes - *at);
        size_t bytes = end != NULL ? (size_t)(end - line) : text->bytes - *at;
        log_object(LOG_INFO, false, name, line, bytes);
        *at += bytes + 1;
    }
    return lines;
}

int serve_dump_turn(struct serve *s)
{
    if (s->dump_requests.bytes == 0 && s->dump_events.bytes == 0)
        return -1;
    uint32_t lines = lines_log(&s->dump_requests, &s->dump_requests_at, "request", LINES_PER_TURN);
    if (lines == 0)
        lines = lines_log(&s->dump_events, &s->dump_events_at, "decision", LINES_PER_TURN);
    if (lines > 0)
        return PAUSE_MS;
    log_info("SIGUSR1: that was all");
    serve_dump_end(s);
    return -1;
}

void serve_dump_end(struct serve *s)
{
    text_done(&s->dump_requests);
    text_done(&s->dump_events);
}
