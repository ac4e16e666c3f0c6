/* gateway_request_metrics: see the header. */
#include "server/gateway/request_metrics.h"

/* Compares the answer with the SLO. A request without tokens, such as one that is only scored, has
 * no time to the first token. */
static void slo_report(struct metrics *metrics, const struct gateway_request *r,
                       enum metrics_reason reason)
{
    bool failed = reason == METRICS_ERROR;
    if (reason == METRICS_ABORT || (!failed && r->first_us < 0))
        return;
    metrics_slo_answer_add(metrics, failed, r->first_us - r->life.entered_us[REQUEST_QUEUED],
                           r->delivered > 1 ? (r->last_us - r->first_us) / (r->delivered - 1) : 0);
}

void request_ended_report(struct metrics *metrics, const struct gateway_request *r, int64_t now_us,
                          enum metrics_reason reason)
{
    metrics_request_ended(metrics, reason);
    slo_report(metrics, r, reason);
    metrics_time_add(metrics, METRICS_E2E, now_us - r->life.entered_us[REQUEST_QUEUED]);
    if (r->delivered > 1)
        metrics_time_add(metrics, METRICS_DECODE, r->last_us - r->first_us);
    if (r->delivered > 1)
        metrics_time_add(metrics, METRICS_PER_TOKEN,
                         (r->last_us - r->first_us) / (r->delivered - 1));
    if (reason == METRICS_STOP || reason == METRICS_LENGTH)
        metrics_request_sizes(metrics, r->prompt_count, r->delivered);
}

/* Reports the parts of the time to the first token. */
static void first_token_report(struct metrics *metrics, const struct gateway_request *r,
                               const struct message_token *token, int64_t now_us)
{
    const int64_t *at = r->life.entered_us;
    int64_t reserve = r->token_machine != NULL ? at[REQUEST_RESERVED] - r->reserve_us : 0;
    int64_t wait = at[REQUEST_PREFILLING] - at[REQUEST_QUEUED] + token->wait_us;
    metrics_time_add(metrics, METRICS_RESERVE, reserve);
    metrics_time_add(metrics, METRICS_QUEUE, wait - reserve);
    metrics_time_add(metrics, METRICS_WAIT, wait);
    metrics_time_add(metrics, METRICS_PROMPT, token->run_us);
    metrics_time_add(metrics, METRICS_TTFT, now_us - at[REQUEST_QUEUED]);
    metrics_counter_add(metrics, METRICS_PROMPT_TOKENS, r->prompt_count);
}

/* Counts what a resumed request had to compute. cached: tokens that its prompt machine found. */
static void resumed_report(struct metrics *metrics, const struct gateway_request *r,
                           uint32_t cached)
{
    uint32_t tokens = r->prompt_count + r->delivered_before;
    uint32_t reused = cached < tokens ? cached : tokens;
    metrics_counter_add(metrics, METRICS_TOKENS_REUSED, reused);
    if (r->held.checkpoint)
        metrics_counter_add(metrics, METRICS_CHECKPOINT_TOKENS_USED, reused);
    metrics_counter_add(metrics, METRICS_TOKENS_RECOMPUTED, tokens - reused);
}

void request_token_report(struct metrics *metrics, const struct gateway_request *r,
                          const struct message_token *token, int64_t now_us)
{
    if (r->first_us < 0)
        first_token_report(metrics, r, token, now_us);
    else
        metrics_time_add(metrics, METRICS_INTER_TOKEN, now_us - r->last_us);
    if (token->index == 0 && r->generation > 0)
        resumed_report(metrics, r, token->cached_tokens);
    if (token->index == 1)
        metrics_time_add(metrics, METRICS_FIRST_DECODE, (int64_t)token->wait_us + token->run_us);
    metrics_counter_add(metrics, METRICS_GENERATED_TOKENS, 1);
}
