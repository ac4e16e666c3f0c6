/* admin_screen: see the header. */
#include "tools/admin/screen.h"

#include "tools/admin/view.h"

#include <string.h>

#define BAR_COLUMNS     30
#define SCREEN_PROBLEMS 4 /* More would push the machines off a small screen. */

/* In the order in which a request goes through them. */
static const struct {
    const char *family;
    const char *name;
} phases[SCREEN_PHASES] = {
    {"cleave_request_queue_seconds", "queue"},
    {"cleave_request_reserve_seconds", "reserve KV memory"},
    {"cleave_request_prompt_seconds", "prompt"},
    {"cleave_request_exposed_transfer_seconds", "exposed transfer"},
    {"cleave_request_first_decode_seconds", "first decode"},
};

void screen_sample_read(const char *page, int64_t at_us, struct screen_sample *out)
{
    out->known = true;
    out->at_us = at_us;
    out->prompt_tokens = page_sum(page, "vllm:prompt_tokens_total");
    out->answer_tokens = page_sum(page, "vllm:generation_tokens_total");
    out->ended = page_sum(page, "vllm:request_success_total");
    out->refused = page_sum(page, "cleave_requests_refused_total");
    out->resumed = page_sum(page, "cleave_requests_resumed_total");
    out->preemptions = page_sum(page, "vllm:num_preemptions_total");
    page_histogram_read(page, "vllm:time_to_first_token_seconds", &out->ttft);
    page_histogram_read(page, "vllm:inter_token_latency_seconds", &out->tbt);
    for (int i = 0; i < SCREEN_PHASES; i++)
        page_histogram_read(page, phases[i].family, &out->phases[i]);
}

/* A counter may have begun again. */
static double grown(double now, double before)
{
    return now >= before ? now - before : now;
}

static void latency_write(const char *title, const struct page_histogram *h, double limit_ms,
                          FILE *out)
{
    if (h->total <= 0) {
        fprintf(out, "%s  none", title);
        return;
    }
    fprintf(out, "%s  p50 %.0f ms  p99 %.0f ms", title, page_quantile(h, 0.5) * 1e3,
            page_quantile(h, 0.99) * 1e3);
    if (limit_ms > 0)
        fprintf(out, "  %.1f %% within %.0f ms", page_share_up_to(h, limit_ms * 1e-3) * 100,
                limit_ms);
}

static void phases_write(const struct screen_sample *since, FILE *out)
{
    double means[SCREEN_PHASES], most = 0;
    for (int i = 0; i < SCREEN_PHASES; i++) {
        const struct page_histogram *h = &since->phases[i];
        means[i] = h->total > 0 ? h->sum / h->total * 1e3 : 0;
        most = means[i] > most ? means[i] : most;
    }
    for (int i = 0; i < SCREEN_PHASES; i++) {
        int filled = most > 0 ? (int)(means[i] / most * BAR_COLUMNS + 0.5) : 0;
        fprintf(out, "  %-18s %8.1f ms  ", phases[i].name, means[i]);
        for (int k = 0; k < filled; k++)
            fputs("█", out);
        fputc('\n', out);
    }
}

void screen_write(const json_t *state, const char *gateway_name, const struct screen_sample *now,
                  const struct screen_sample *before, FILE *out)
{
    struct screen_sample since = *now, none = {.known = false};
    const json_t *slo = json_object_get(state, "slo");
    const bool whole = !before->known;
    double seconds = whole ? json_number_value(json_object_get(state, "uptime_s"))
                           : (double)(now->at_us - before->at_us) * 1e-6;
    seconds = seconds > 0 ? seconds : 1;
    if (whole)
        before = &none;
    page_histogram_since(&since.ttft, &before->ttft);
    page_histogram_since(&since.tbt, &before->tbt);
    for (int i = 0; i < SCREEN_PHASES; i++)
        page_histogram_since(&since.phases[i], &before->phases[i]);

    view_gateway(state, gateway_name, out);
    view_problems(state, SCREEN_PROBLEMS, out);
    fprintf(out, "tokens/s  prompt %.0f, answer %.0f; answers/s %.2f (%s)\n",
            grown(now->prompt_tokens, before->prompt_tokens) / seconds,
            grown(now->answer_tokens, before->answer_tokens) / seconds,
            grown(now->ended, before->ended) / seconds,
            whole ? "since the start" : "in this interval");
    view_requests(state, out);
    fprintf(out, "so far    %.0f refused, %.0f resumed, %.0f preempted\n", now->refused,
            now->resumed, now->preemptions);
    latency_write("TTFT    ", &since.ttft, (double)view_whole(slo, "ttft_ms"), out);
    fputc('\n', out);
    latency_write("TBT     ", &since.tbt, (double)view_whole(slo, "tbt_ms"), out);
    fprintf(out, "\nphases of a request, mean of %.0f\n", since.phases[0].total);
    phases_write(&since, out);
    view_machines(state, true, out);
    view_kv(state, out);
    view_links(state, out);
}
