/* http_records: for each request whose response has ended: the line of the access log; if the
 * request took long, a line that says where its time went; and its spans for a collector. Only
 * requests to API endpoints with a valid key (if there are keys) have lines, so that other clients
 * cannot fill the disk. */
#include "server/http/internal.h"

#include "common/log.h"

#include <string.h>

void http_access_log_set(struct http *h, struct event_log *file, bool to_stderr)
{
    h->access_log = file;
    h->access_to_stderr = to_stderr;
    h->access_dropped = 0;
    h->access_warned = false;
}

static void ledger_check(struct http *h)
{
    struct metrics *metrics = h->options.metrics;
    if (h->options.ledger == NULL)
        return;
    struct ledger_counts counts = ledger_counts(h->options.ledger);
    metrics_value_set(metrics, METRICS_LEDGER_WAITING, counts.waiting);
    if (counts.without_entry > h->ledger_lost)
        metrics_counter_add(metrics, METRICS_LEDGER_LOST, counts.without_entry - h->ledger_lost);
    h->ledger_lost = counts.without_entry;
    bool fails = counts.failure[0] != 0;
    if (fails && !h->ledger_warned)
        log_warn("log/ledger_file takes no lines: %s; they wait, and serving goes on",
                 counts.failure);
    if (!fails && h->ledger_warned && counts.waiting == 0)
        log_info("log/ledger_file has all lines again");
    if (fails || counts.waiting == 0)
        h->ledger_warned = fails;
}

static void spans_check(struct http *h)
{
    if (h->options.spans == NULL)
        return;
    struct spans_counts counts = spans_counts(h->options.spans);
    if (counts.dropped == h->spans_dropped)
        return;
    metrics_counter_add(h->options.metrics, METRICS_SPANS_DROPPED,
                        counts.dropped - h->spans_dropped);
    h->spans_dropped = counts.dropped;
    if (!h->spans_warned)
        log_warn("log/otlp_endpoint loses spans: %s; serving goes on", counts.drop_reason);
    h->spans_warned = true; /* The counter shows how many. */
}

static void access_check(struct http *h)
{
    if (h->access_log == NULL)
        return;
    struct event_log_counts counts = event_log_counts(h->access_log);
    if (counts.dropped == h->access_dropped)
        return;
    metrics_counter_add(h->options.metrics, METRICS_ACCESS_DROPPED,
                        counts.dropped - h->access_dropped);
    h->access_dropped = counts.dropped;
    if (!h->access_warned)
        log_warn("log/access_file loses lines: %s; serving goes on", counts.drop_reason);
    h->access_warned = true; /* The counter shows how many. */
}

void http_records_turn(struct http *h)
{
    access_check(h);
    ledger_check(h);
    spans_check(h);
}

static int64_t between(int64_t from_us, int64_t to_us)
{
    return from_us > 0 && to_us > from_us ? to_us - from_us : 0;
}

static void phases_fill(const struct exchange *x, int64_t now_us, struct http_record *r)
{
    const struct completion_facts *facts = r->facts;
    const struct gateway_summary *s = &facts->last_summary;
    int64_t *phases = r->phases_us, sum = 0;
    r->total_us = between(x->began_us, now_us);
    r->first_token_us = facts->summarised && s->first_us >= 0 ? s->first_us - x->arrived_us : -1;
    phases[HTTP_PHASE_READ] = between(x->began_us, x->arrived_us > 0 ? x->arrived_us : now_us);
    phases[HTTP_PHASE_TEXT] = between(x->arrived_us, x->opened_us > 0 ? x->opened_us : now_us);
    if (facts->summarised) {
        phases[HTTP_PHASE_QUEUE] = s->queue_us - phases[HTTP_PHASE_TEXT];
        phases[HTTP_PHASE_RESERVE] = s->reserve_us;
        phases[HTTP_PHASE_PROMPT] = s->prompt_us;
        phases[HTTP_PHASE_TRANSFER] = s->transfer_us;
        phases[HTTP_PHASE_RESUME] = s->resume_us;
        phases[HTTP_PHASE_DECODE] = s->decode_us;
    }
    for (int i = 0; i < HTTP_PHASE_SEND; i++) {
        phases[i] = phases[i] > 0 ? phases[i] : 0;
        sum += phases[i];
    }
    phases[HTTP_PHASE_SEND] = r->total_us > sum ? r->total_us - sum : 0;
}

static bool is_recorded(const struct exchange *x)
{
    const struct api_keys *keys = x->http->options.keys;
    bool with_keys = keys != NULL && api_keys_configured(keys);
    return x->route != NULL && x->route->access == HTTP_KEY && !x->is_preflight &&
           !x->from_admin_socket && (x->api_key_index != API_KEY_NONE || !with_keys);
}

void http_record_write(struct exchange *x)
{
    struct http *h = x->http;
    int64_t now_us = clock_now_us(h->options.clock);
    uint32_t slow_s = h->options.config->log.slow_s;
    bool slow = slow_s > 0 && between(x->began_us, now_us) >= slow_s * 1000000ll;
    bool traced = h->options.spans != NULL && !x->trace_unwanted;
    if ((h->access_log == NULL && !h->access_to_stderr && !slow && !traced) || !is_recorded(x))
        return;
    const struct api_key_settings *settings =
        h->options.keys != NULL ? api_keys_settings(h->options.keys, x->api_key_index) : NULL;
    struct http_record record = {.request_id = x->request_id,
                                 .trace_id = x->trace_id,
                                 .trace_parent = x->trace_parent,
                                 .facts = &x->facts,
                                 .path = x->route->path,
                                 .key_name = settings != NULL ? settings->name : "",
                                 .error = x->error_text[0] != 0 ? x->error_text : x->facts.error,
                                 .status = x->status_code};
    if (x->opened_us > 0)
        record.finish =
            x->status_code >= 400 || x->facts.finish == NULL ? "error" : x->facts.finish;
    http_client_address(x, record.client, sizeof(record.client));
    phases_fill(x, now_us, &record);
    bool json = strcmp(h->options.config->log.format, "json") == 0;
    struct text line = {0};
    if (slow) {
        http_record_slow(&record, &line);
        if (!line.broken)
            log_warn("%.*s", (int)line.bytes, line.data);
        text_clear(&line);
    }
    if (traced) {
        uint64_t ids[2];
        completion_id_draw(&h->completions, ids);
        uint32_t count = http_record_spans(&record, ids, &line);
        if (!line.broken)
            spans_add(h->options.spans, line.data, line.bytes, count);
        text_clear(&line);
    }
    if (json)
        http_record_json(&record, &line);
    else
        http_record_line(&record, &line);
    if (h->access_log != NULL && !line.broken)
        event_log_add(h->access_log, line.data, line.bytes);
    if (h->access_to_stderr && !line.broken && json)
        log_object(LOG_INFO, false, "access", line.data, line.bytes);
    else if (h->access_to_stderr && !line.broken)
        log_audit("access: %.*s", (int)line.bytes, line.data);
    text_done(&line);
}
