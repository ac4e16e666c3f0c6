/* gateway_request_summary: see the header. */
#include "server/gateway/request_summary.h"

#include <stdio.h>

static void name_copy(char out[LIMIT_NAME_BYTES], const struct fleet_machine *m)
{
    snprintf(out, LIMIT_NAME_BYTES, "%s", m != NULL ? m->config.name : "");
}

/* The first token of a generation has arrived. */
static void token_add(struct gateway_request *r, const struct message_token *token, int64_t now_us)
{
    const int64_t *at = r->life.entered_us;
    struct gateway_summary *s = &r->summary;
    if (r->first_us < 0) {
        int64_t sent_us = now_us - at[REQUEST_PREFILLING]; /* More waiting cannot be true. */
        s->reserve_us = r->token_machine != NULL ? at[REQUEST_RESERVED] - r->reserve_us : 0;
        s->queue_us = at[REQUEST_PREFILLING] - at[REQUEST_QUEUED] - s->reserve_us +
                      (token->wait_us < sent_us ? token->wait_us : sent_us);
        s->prompt_us = now_us - at[REQUEST_QUEUED] - s->queue_us - s->reserve_us;
    }
    if (r->resuming_us > 0)
        s->resume_us += now_us - r->resuming_us;
    r->resuming_us = 0;
}

void request_summary_event(struct gateway_request *r, const struct gateway_event *event,
                           int64_t now_us)
{
    switch (event->kind) {
    case GATEWAY_EVENT_ROUTED:
        name_copy(r->summary.prompt_machine, r->prompt_machine);
        name_copy(r->summary.token_machine, r->token_machine);
        break;
    case GATEWAY_EVENT_FIRST_TOKEN:
        token_add(r, event->token, now_us);
        break;
    case GATEWAY_EVENT_TRANSFERRED:
        if (r->generation == 0)
            r->summary.transfer_us = event->transfer->exposed_us;
        break;
    case GATEWAY_EVENT_RESUMING:
        if (r->first_us >= 0 && r->resuming_us == 0)
            r->resuming_us = now_us;
        break;
    default:
        break;
    }
}

/* The phase in which a request ended that has no token. */
static void unfinished_add(struct gateway_request *r, int64_t now_us)
{
    const int64_t *at = r->life.entered_us;
    struct gateway_summary *s = &r->summary;
    bool sent = r->state == GATEWAY_REQUEST_PREFILLING || r->state == GATEWAY_REQUEST_PREFILLED;
    bool reserving = r->state == GATEWAY_REQUEST_RESERVING;
    int64_t reserve_end = sent ? at[REQUEST_PREFILLING] : now_us;
    s->reserve_us =
        reserving || (sent && r->token_machine != NULL) ? reserve_end - r->reserve_us : 0;
    s->prompt_us = sent ? now_us - at[REQUEST_PREFILLING] : 0;
    s->queue_us = now_us - at[REQUEST_QUEUED] - s->reserve_us - s->prompt_us;
}

void request_summary_end(struct gateway_request *r, int64_t now_us)
{
    struct gateway_summary *s = &r->summary;
    if (r->first_us < 0)
        unfinished_add(r, now_us);
    if (r->resuming_us > 0) /* It waited to the end. */
        s->resume_us += now_us - r->resuming_us;
    s->id = r->id;
    s->resumed = r->generation;
    s->preemptions = r->preemptions;
    s->first_us = r->first_us;
    if (r->first_us >= 0) {
        int64_t rest = (r->resuming_us > 0 ? now_us : r->last_us) - r->first_us - s->resume_us;
        s->transfer_us = s->transfer_us < rest ? s->transfer_us : rest;
        s->decode_us = rest - s->transfer_us;
    }
    r->resuming_us = 0;
}
