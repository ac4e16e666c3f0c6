/* completion_events: what happens to a request, as events of its own stream (`"cleave": {"events":
 * true}`): machines, the transfer of its KV, resumptions. So only the client that sent the request
 * can read them. A completion writes at most EVENTS_MAX of them.
 *
 * Clients that may read /metrics see the names of machines there, so they get the names here. To
 * all others the machines of a request are "machine 1", "machine 2" and so on, in the order in
 * which this request got to them. */
#include "server/http/completion_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX   256
#define MACHINES_MAX 16 /* Most machines of one completion that get a number in place of a name. */

struct event_writer {
    uint32_t events;
    bool named;
    uint32_t machine_count;
    char machines[MACHINES_MAX][LIMIT_NAME_BYTES]; /* Unless `named`. */
};

bool completion_events_begin(struct completion *c)
{
    if (!c->request.life_events)
        return true;
    const struct api_key_settings *settings = api_keys_settings(c->server->keys, c->api_key_index);
    c->event_writer = calloc(1, sizeof(*c->event_writer));
    if (c->event_writer == NULL)
        return false;
    c->event_writer->named = settings == NULL || settings->admin || settings->metrics;
    return true;
}

void completion_events_end(struct completion *c)
{
    free(c->event_writer);
    c->event_writer = NULL;
}

/* Returns the number of a machine in this completion, from 1 on; 0 = there are too many. */
static uint32_t machine_number(struct event_writer *life, const char *name)
{
    for (uint32_t i = 0; i < life->machine_count; i++)
        if (strcmp(life->machines[i], name) == 0)
            return i + 1;
    if (life->machine_count == MACHINES_MAX)
        return 0;
    snprintf(life->machines[life->machine_count], LIMIT_NAME_BYTES, "%s", name);
    return ++life->machine_count;
}

static void write_machine(struct text *out, struct event_writer *life, const char *field,
                          const char *name)
{
    if (name == NULL)
        return;
    text_format_add(out, ",\"%s\":", field);
    uint32_t number = life->named ? 0 : machine_number(life, name);
    if (life->named)
        text_add_json_string(out, name, strlen(name));
    else if (number > 0)
        text_format_add(out, "\"machine %u\"", number);
    else
        text_string_add(out, "\"another machine\"");
}

static void write_transfer(struct text *out, const struct message_prefilled *m)
{
    text_format_add(out,
                    ",\"queue_us\":%u,\"prefill_us\":%u,\"transfer_us\":%u,\"exposed_us\":%u,"
                    "\"layers\":%u,\"layerwise\":%s,\"bytes\":%llu",
                    m->queue_us, m->prefill_us, m->transfer_us, m->exposed_us, m->layers,
                    m->layerwise ? "true" : "false", (unsigned long long)m->bytes);
    text_string_add(out, ",\"layer_us\":[");
    for (uint32_t i = 0; i < m->layer_count; i++)
        text_format_add(out, i > 0 ? ",%u" : "%u", m->layer_us[i]);
    text_string_add(out, "]");
}

static void write_details(struct text *out, struct event_writer *life,
                          const struct gateway_event *event)
{
    write_machine(out, life, "prompt_machine", event->prompt_machine);
    write_machine(out, life, "token_machine", event->token_machine);
    if (event->kind == GATEWAY_EVENT_RESUMING)
        text_format_add(out, ",\"reason\":\"%s\"", gateway_resume_name(event->resume_reason));
    if (event->kind == GATEWAY_EVENT_FIRST_TOKEN)
        text_format_add(out, ",\"wait_us\":%u,\"run_us\":%u,\"cached_tokens\":%u",
                        event->token->wait_us, event->token->run_us, event->token->cached_tokens);
    if (event->kind == GATEWAY_EVENT_TRANSFERRED)
        write_transfer(out, event->transfer);
}

void completion_on_event(void *self, const struct gateway_event *event)
{
    struct choice *choice = self;
    struct completion *c = choice->completion;
    if (choice->ended || c->finished || c->event_writer == NULL ||
        c->event_writer->events == EVENTS_MAX)
        return;
    c->event_writer->events++;
    c->output_begun = true;
    text_format_add(&c->output,
                    "event: cleave\ndata: {\"type\":\"%s\",\"choice\":%u,\"after_us\":%u,"
                    "\"generation\":%u,\"tokens\":%u",
                    gateway_event_name(event->kind), choice->index, event->after_us,
                    event->generation, event->delivered);
    write_details(&c->output, c->event_writer, event);
    text_string_add(&c->output, "}\n\n");
    c->changed(c->self);
}
