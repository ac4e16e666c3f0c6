/* gateway_request_events: see the header. */
#include "server/gateway/request_events.h"

#include "server/gateway/request_summary.h"

void request_event_report(struct history *history, struct gateway_request *r, int64_t now_us,
                          const struct gateway_event *event)
{
    struct gateway_event copy = *event;
    int64_t after_us = now_us - r->life.entered_us[REQUEST_QUEUED];
    copy.after_us = after_us < 0 ? 0 : after_us < UINT32_MAX ? (uint32_t)after_us : UINT32_MAX;
    copy.generation = r->generation;
    copy.delivered = r->delivered;
    copy.prompt_machine = r->prompt_machine != NULL ? r->prompt_machine->config.name : NULL;
    copy.token_machine = r->token_machine != NULL ? r->token_machine->config.name : NULL;
    request_summary_event(r, &copy, now_us);
    history_event(history, r, &copy);
    if (r->client.event != NULL)
        r->client.event(r->client.self, &copy);
}

void request_end_report(struct history *history, struct gateway_request *r, enum history_end end,
                        const char *reason, int64_t now_us)
{
    request_summary_end(r, now_us);
    history_end(history, r, end, reason, now_us);
    if (r->client.summarise != NULL)
        r->client.summarise(r->client.self, &r->summary);
}
