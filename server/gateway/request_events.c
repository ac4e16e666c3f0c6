/* gateway_request_events: see the header. */
#include "server/gateway/request_events.h"

void request_event_report(const struct gateway_request *r, int64_t now_us,
                          const struct gateway_event *event)
{
    if (r->client.event == NULL)
        return;
    struct gateway_event copy = *event;
    int64_t after_us = now_us - r->life.entered_us[REQUEST_QUEUED];
    copy.after_us = after_us < 0 ? 0 : after_us < UINT32_MAX ? (uint32_t)after_us : UINT32_MAX;
    copy.generation = r->generation;
    copy.delivered = r->delivered;
    copy.prompt_machine = r->prompt_machine != NULL ? r->prompt_machine->config.name : NULL;
    copy.token_machine = r->token_machine != NULL ? r->token_machine->config.name : NULL;
    r->client.event(r->client.self, &copy);
}
