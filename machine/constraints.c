/* machine_constraints: requests whose constraint is not compiled yet. Compiling takes up to about a
 * second for a hostile constraint. The event loop must not wait for it, because heartbeats and all
 * other requests would wait too, so the RESERVE or PREFILL is handled when the compilation has
 * ended. Messages that the gateway or another machine sends about the request meanwhile:
 *
 * - CANCEL of the gateway: the held message is forgotten.
 * - CANCEL of the token machine: prompt_pool_withdraw makes the held PREFILL fail.
 * - KV_READY and KV_ABORTED: cannot come, because a prompt machine gets PREFILL only after RESERVE
 *   was answered. */
#include "machine/state.h"

#include <stdlib.h>
#include <string.h>

/* Memory of all held messages. */
#define HELD_BYTES_MAX (64u << 20)

struct machine_held {
    struct machine_held *next;
    struct transport_peer *gateway;
    struct message_request request;
    size_t bytes;
    uint8_t data[]; /* The encoded message. */
};

struct constrained { /* The part of a message that matters here. */
    const struct message_request *request;
    const char *text;
    uint32_t bytes;
};

/* Returns false if the message brings no constraint. */
static bool constrained_read(const struct message *message, struct constrained *out)
{
    if (message->kind == MESSAGE_RESERVE)
        *out = (struct constrained){&message->reserve.request, message->reserve.constraint,
                                    message->reserve.constraint_bytes};
    else if (message->kind == MESSAGE_PREFILL)
        *out = (struct constrained){&message->prefill.request, message->prefill.constraint,
                                    message->prefill.constraint_bytes};
    else
        return false;
    return out->bytes > 0;
}

bool machine_constraints_hold(struct machine *m, struct transport_peer *gateway,
                              const struct message *message, const uint8_t *data, size_t bytes)
{
    struct constrained constrained;
    struct machine_held *held = NULL, **at = &m->held_messages;
    if (m->stopping || !constrained_read(message, &constrained) ||
        grammar_cache_prepare(m->grammars, constrained.text, constrained.bytes))
        return false;
    if (m->held_bytes + bytes <= HELD_BYTES_MAX)
        held = malloc(sizeof(*held) + bytes);
    if (held == NULL) {
        machine_request_refuse(m, gateway, constrained.request, ST_NO_RESOURCE,
                               "compiles too many constraints");
        return true;
    }
    *held =
        (struct machine_held){.gateway = gateway, .request = *constrained.request, .bytes = bytes};
    memcpy(held->data, data, bytes);
    while (*at != NULL)
        at = &(*at)->next;
    *at = held;
    m->held_bytes += bytes;
    return true;
}

static void held_remove(struct machine *m, struct machine_held **at)
{
    struct machine_held *held = *at;
    *at = held->next;
    m->held_bytes -= held->bytes;
    free(held);
}

/* Returns true if the message can be handled now. It was decoded before, so it is valid. */
static bool held_read(struct machine *m, const struct machine_held *held, struct message *out)
{
    struct constrained constrained;
    struct error error;
    return message_decode(held->data, held->bytes, out, &error) == ST_OK &&
           (m->stopping || !constrained_read(out, &constrained) ||
            grammar_cache_prepare(m->grammars, constrained.text, constrained.bytes));
}

void machine_constraints_turn(struct machine *m)
{
    struct message message;
    if (!grammar_cache_ended(m->grammars) && !m->stopping)
        return;
    for (struct machine_held **at = &m->held_messages; *at != NULL;) {
        if (!held_read(m, *at, &message)) {
            at = &(*at)->next;
            continue;
        }
        m->event_count++;
        m->stats_changed = true;
        machine_gateway_message(m, (*at)->gateway, &message); /* points into *at */
        held_remove(m, at);
    }
}

void machine_constraints_cancel(struct machine *m, const struct message_request *request,
                                const struct transport_peer *gateway)
{
    for (struct machine_held **at = &m->held_messages; *at != NULL;) {
        const struct machine_held *held = *at;
        bool same = request != NULL ? held->request.id == request->id &&
                                          held->request.generation == request->generation
                                    : held->gateway == gateway;
        if (same)
            held_remove(m, at);
        else
            at = &(*at)->next;
    }
}

void machine_constraints_close(struct machine *m)
{
    while (m->held_messages != NULL)
        held_remove(m, &m->held_messages);
}
