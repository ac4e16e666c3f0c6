/* machine_held: requests that wait for something before this machine can handle their message:
 *
 * - for their constraint. Compiling takes up to about a second for a hostile constraint, and the
 *   event loop must not wait for it, because heartbeats and all other requests would wait too.
 * - for KV of their prompt that a tier has stored (tiers.c), so that the prefix cache has it when the
 *   message is handled;
 * - for a copy of their KV that another machine sends (token_pool_copy_arrives). The gateway hears
 *   from the sender that it has sent the copy, and its next message may overtake the copy.
 *
 * The RESERVE or PREFILL is handled when all have ended. Messages that the gateway or another
 * machine sends about the request meanwhile:
 *
 * - CANCEL of the gateway: the held message is forgotten.
 * - CANCEL of the token machine: prompt_pool_withdraw makes the held PREFILL fail.
 * - KV_READY and KV_ABORTED: cannot come, because a prompt machine gets PREFILL only after RESERVE
 *   was answered. */
#include "machine/state.h"

#include "common/pooling.h"

#include <stdlib.h>
#include <string.h>

/* Memory of all held messages. */
#define HELD_BYTES_MAX (64u << 20)

struct machine_held {
    struct machine_held *next;
    struct transport_peer *gateway;
    struct message_request request;
    struct machine_load *load; /* NULL = the request waits for no stored KV. */
    bool awaits_copy;          /* A copy of the request's KV is on its way. */
    int64_t arrived_us;        /* When the message reached the machine. */
    size_t bytes;
    uint8_t data[]; /* The encoded message. */
};

/* The parts of a message that matter here. */
struct awaited {
    const struct message_request *request;
    const char *constraint;
    uint32_t constraint_bytes; /* 0 = no constraint. */
    uint64_t key;              /* Number of the request's API key; 0 = no key. */
    /* The tokens that this machine computes, except the last one; 0 = none are loaded. */
    uint64_t salt;
    const uint32_t *tokens;
    uint32_t token_count;
    bool is_copy; /* The message is about a copy itself, and waits for none. */
};

/* Only the machine that computes a prompt loads its KV. The last token is always computed, because
 * its row gives the first token of the answer. */
static void reserve_read(const struct machine *m, const struct message_reserve *reserve,
                         struct awaited *out)
{
    *out = (struct awaited){.request = &reserve->request,
                            .constraint = reserve->constraint,
                            .constraint_bytes = reserve->constraint_bytes,
                            .key = reserve->rank.key,
                            .is_copy = reserve->copy};
    if (!reserve->prefix_cache || reserve->copy || reserve->prompt_count == 0 ||
        reserve->prompt_count != reserve->prompt_tokens ||
        strcmp(reserve->prompt_machine, m->config_entry->name) != 0)
        return;
    out->salt = reserve->prefix_salt;
    out->tokens = reserve->prompt;
    out->token_count = reserve->prompt_count - 1;
}

static void prefill_read(const struct machine *m, const struct message_prefill *prefill,
                         struct awaited *out)
{
    *out = (struct awaited){.request = &prefill->request,
                            .constraint = prefill->constraint,
                            .constraint_bytes = prefill->constraint_bytes,
                            .key = prefill->rank.key,
                            .is_copy = prefill->copied_generation > 0};
    if (prefill->copied_generation > 0 || prefill->score_prompt ||
        prefill->pooling != POOLING_NONE || prefill->prompt_count == 0 ||
        strcmp(prefill->token_machine, m->config_entry->name) == 0)
        return;
    out->salt = prefill->prefix_salt;
    out->tokens = prefill->prompt;
    out->token_count = prefill->prompt_count - 1;
}

/* Returns false if messages of this kind are never held. */
static bool awaited_read(const struct machine *m, const struct message *message,
                         struct awaited *out)
{
    if (message->kind == MESSAGE_RESERVE)
        reserve_read(m, &message->reserve, out);
    else if (message->kind == MESSAGE_PREFILL)
        prefill_read(m, &message->prefill, out);
    else
        return false;
    return true;
}

static bool constraint_is_ready(const struct machine *m, const struct awaited *awaited)
{
    return awaited->constraint_bytes == 0 ||
           grammar_cache_prepare(m->grammars, awaited->constraint, awaited->constraint_bytes,
                                 awaited->key);
}

static bool copy_arrives(const struct machine *m, const struct awaited *awaited)
{
    return !awaited->is_copy && token_pool_copy_arrives(m->token_pool, awaited->request->id);
}

bool machine_held_take(struct machine *m, struct transport_peer *gateway,
                       const struct message *message, const uint8_t *data, size_t bytes)
{
    struct awaited awaited;
    struct machine_held *held = NULL, **at = &m->held_messages;
    if (m->stopping || !awaited_read(m, message, &awaited))
        return false;
    const bool compiles = !constraint_is_ready(m, &awaited);
    struct machine_load *load =
        machine_load_begin(m, awaited.salt, awaited.tokens, awaited.token_count);
    const bool copy = copy_arrives(m, &awaited);
    if (!compiles && load == NULL && !copy)
        return false;
    if (m->held_bytes + bytes <= HELD_BYTES_MAX)
        held = malloc(sizeof(*held) + bytes);
    if (held == NULL) {
        machine_load_leave(load);
        if (compiles)
            machine_request_refuse(m, gateway, awaited.request, ST_NO_RESOURCE,
                                   "compiles too many constraints");
        return compiles;
    }
    *held = (struct machine_held){.gateway = gateway,
                                  .request = *awaited.request,
                                  .load = load,
                                  .awaits_copy = copy,
                                  .arrived_us = m->now_us,
                                  .bytes = bytes};
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
    machine_load_leave(held->load);
    free(held);
}

/* Returns true if the message can be handled now. It was decoded before, so it is valid. */
static bool held_read(struct machine *m, const struct machine_held *held, struct message *out)
{
    struct awaited awaited;
    struct error error;
    return message_decode(held->data, held->bytes, out, &error) == ST_OK &&
           (m->stopping || !awaited_read(m, out, &awaited) ||
            (constraint_is_ready(m, &awaited) && machine_load_ended(held->load) &&
             !copy_arrives(m, &awaited)));
}

/* Returns true if a copy has ended for which a message was held. */
static bool copy_ended(struct machine *m)
{
    bool ended = false;
    for (struct machine_held *held = m->held_messages; held != NULL; held = held->next)
        if (held->awaits_copy && !token_pool_copy_arrives(m->token_pool, held->request.id)) {
            held->awaits_copy = false;
            ended = true;
        }
    return ended;
}

void machine_held_turn(struct machine *m)
{
    struct message message;
    const bool compiled = grammar_cache_ended(m->grammars);
    const bool loaded = machine_tiers_turn(m);
    const bool copied = copy_ended(m);
    if (!compiled && !loaded && !copied && !m->stopping)
        return;
    for (struct machine_held **at = &m->held_messages; *at != NULL;) {
        if (!held_read(m, *at, &message)) {
            at = &(*at)->next;
            continue;
        }
        m->event_count++;
        m->stats_changed = true;
        /* The message points into *at. */
        machine_gateway_message(m, (*at)->gateway, &message, (*at)->arrived_us);
        held_remove(m, at);
    }
}

void machine_held_cancel(struct machine *m, const struct message_request *request,
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

void machine_held_close(struct machine *m)
{
    while (m->held_messages != NULL)
        held_remove(m, &m->held_messages);
}
