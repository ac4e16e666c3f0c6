/* gateway_table: see the header. */
#include "server/gateway/table.h"

#include "common/token_rules.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A request id has 32 bits of this gateway's tag, 19 bits of a counter and 13 bits of the slot. So
 * no gateway meets ids of another one, or of its predecessor, on a machine, and a look-up is one
 * comparison. The tag is also in the gateway's name, because a machine connects only one gateway
 * per name. */
#define SLOT_BITS 13
static_assert(LIMIT_CLUSTER_REQUESTS == 1u << SLOT_BITS, "a request's id holds its slot");
#define COUNTER_MASK ((1ull << (32 - SLOT_BITS)) - 1)

void request_table_init(struct request_table *table, uint32_t id_tag)
{
    table->id_tag = id_tag;
    for (uint32_t slot = 0; slot < LIMIT_CLUSTER_REQUESTS; slot++)
        table->free_slots[slot] = LIMIT_CLUSTER_REQUESTS - 1 - slot;
}

static struct gateway_request *slot_take(struct request_table *table)
{
    assert(table->open_count < LIMIT_CLUSTER_REQUESTS);
    uint32_t slot = table->free_slots[LIMIT_CLUSTER_REQUESTS - 1 - table->open_count++];
    struct gateway_request *r = &table->slots[slot];
    table->id_counter++;
    if (table->slots_end <= slot)
        table->slots_end = slot + 1;
    *r = (struct gateway_request){.id = table->id_tag << 32 |
                                        (table->id_counter & COUNTER_MASK) << SLOT_BITS | slot};
    return r;
}

enum status request_table_add(struct request_table *table, const struct gateway_submit *submit,
                              struct gateway_request **out)
{
    uint64_t capacity = (uint64_t)submit->prompt_count + submit->sampling.output_tokens_max;
    uint32_t *tokens = malloc(capacity * sizeof(*tokens));
    uint32_t *rules =
        submit->token_rule_words > 0 ? malloc(submit->token_rule_words * sizeof(*rules)) : NULL;
    if (tokens == NULL || (rules == NULL && submit->token_rule_words > 0)) {
        free(tokens);
        free(rules);
        return ST_NO_MEMORY;
    }
    if (rules != NULL)
        memcpy(rules, submit->token_rules, submit->token_rule_words * sizeof(*rules));
    memcpy(tokens, submit->prompt, submit->prompt_count * sizeof(*tokens));

    struct gateway_request *r = slot_take(table);
    r->client = submit->client;
    snprintf(r->client_id, sizeof(r->client_id), "%s",
             submit->client_id != NULL ? submit->client_id : "-");
    r->sampling = submit->sampling;
    r->token_rules = rules;
    r->token_rule_words = submit->token_rule_words;
    r->constraint = submit->constraint;
    r->constraint_bytes = submit->constraint != NULL ? submit->constraint_bytes : 0;
    r->score_prompt = submit->score_prompt && submit->prompt_count > 1;
    r->pooling = submit->pooling;
    r->transfer_mode = submit->transfer_mode;
    r->key = submit->key;
    r->key_hash = submit->key_hash;
    r->prefix_salt = submit->prefix_salt;
    r->weight = submit->weight > 0 ? submit->weight : 1;
    r->priority = submit->priority;
    r->tokens = tokens;
    r->prompt_count = submit->prompt_count;
    r->scored_next = 1;
    r->first_us = -1;
    r->end = GATEWAY_DONE; /* the default */
    *out = r;
    return ST_OK;
}

void request_table_free(struct request_table *table, struct gateway_request *r)
{
    request_table_state_set(table, r, GATEWAY_REQUEST_FREE);
    free(r->tokens);
    free(r->token_rules);
    free(r->early_tokens);
    r->tokens = NULL;
    r->early_tokens = NULL;
    table->free_slots[LIMIT_CLUSTER_REQUESTS - table->open_count--] = request_slot(r);
    r->id = 0;
}

struct gateway_request *request_table_find(struct request_table *table, uint64_t id)
{
    struct gateway_request *r = &table->slots[id % LIMIT_CLUSTER_REQUESTS];
    return id != 0 && r->id == id ? r : NULL;
}

struct gateway_request *request_table_next(struct request_table *table,
                                           const struct gateway_request *r)
{
    for (size_t slot = r == NULL ? 0 : (size_t)(r - table->slots) + 1; slot < table->slots_end;
         slot++)
        if (table->slots[slot].id != 0)
            return &table->slots[slot];
    return NULL;
}

static void list_add(struct request_list *list, struct gateway_request *r)
{
    r->list_previous = list->last;
    r->list_next = NULL;
    if (r->list_previous != NULL)
        r->list_previous->list_next = r;
    else
        list->first = r;
    list->last = r;
    list->count++;
}

static void list_remove(struct request_list *list, struct gateway_request *r)
{
    if (r->list_previous != NULL)
        r->list_previous->list_next = r->list_next;
    else
        list->first = r->list_next;
    if (r->list_next != NULL)
        r->list_next->list_previous = r->list_previous;
    else
        list->last = r->list_previous;
    list->count--;
}

#define TO(state) (1u << GATEWAY_REQUEST_##state)
#define TO_END    (TO(ENDING) | TO(FREE)) /* possible at any time */
#define TO_NEXT   (TO(ARRIVING) | TO(DOUBTED))

void request_table_state_set(struct request_table *table, struct gateway_request *r,
                             enum gateway_request_state to)
{
    static const uint32_t legal[GATEWAY_REQUEST_STATE_COUNT] = {
        [GATEWAY_REQUEST_FREE] = TO(ARRIVING) | TO(ENDING),
        [GATEWAY_REQUEST_ARRIVING] = TO(SCHEDULED) | TO(SUSPECTED) | TO_END,
        [GATEWAY_REQUEST_SUSPECTED] = TO(ARRIVING) | TO_END,
        [GATEWAY_REQUEST_DOUBTED] = TO(ARRIVING) | TO_END,
        [GATEWAY_REQUEST_SCHEDULED] =
            TO(PULLING) | TO(RESERVING) | TO(PREFILLING) | TO(ARRIVING) | TO_END,
        [GATEWAY_REQUEST_PULLING] = TO(RESERVING) | TO(PREFILLING) | TO(ARRIVING) | TO_END,
        [GATEWAY_REQUEST_RESERVING] = TO(PREFILLING) | TO_NEXT | TO_END,
        [GATEWAY_REQUEST_PREFILLING] = TO(PREFILLED) | TO_NEXT | TO_END,
        [GATEWAY_REQUEST_PREFILLED] = TO_NEXT | TO_END,
        [GATEWAY_REQUEST_ENDING] = TO(FREE),
    };
    assert((legal[r->state] & 1u << to) != 0);
    if (r->state != GATEWAY_REQUEST_FREE)
        list_remove(&table->lists[r->state], r);
    r->state = to;
    if (to != GATEWAY_REQUEST_FREE)
        list_add(&table->lists[to], r);
}

bool request_table_suspect_is_scheduled(const struct request_table *table,
                                        const struct gateway_request *except)
{
    for (int state = GATEWAY_REQUEST_SCHEDULED; state <= GATEWAY_REQUEST_PREFILLED; state++)
        for (const struct gateway_request *r = table->lists[state].first; r != NULL;
             r = r->list_next)
            if (r != except && blame_is_suspect(&r->blame))
                return true;
    return false;
}

/* Returns the request that has arrived first. If there is none, a suspect that waits arrives,
 * unless a suspect is on machines. NULL = none. */
static struct gateway_request *arrived_first(struct request_table *table)
{
    struct gateway_request *suspect = table->lists[GATEWAY_REQUEST_SUSPECTED].first;
    struct gateway_request *r = table->lists[GATEWAY_REQUEST_ARRIVING].first;
    if (r != NULL || suspect == NULL || request_table_suspect_is_scheduled(table, NULL))
        return r;
    request_table_state_set(table, suspect, GATEWAY_REQUEST_ARRIVING);
    return suspect;
}

struct gateway_request *request_table_arrived_take(struct request_table *table)
{
    struct gateway_request *r;
    while ((r = arrived_first(table)) != NULL) {
        bool waits = blame_is_suspect(&r->blame) && request_table_suspect_is_scheduled(table, NULL);
        request_table_state_set(table, r,
                                waits ? GATEWAY_REQUEST_SUSPECTED : GATEWAY_REQUEST_SCHEDULED);
        if (!waits)
            return r;
    }
    return NULL;
}

bool request_had_machine(const struct gateway_request *r, const struct fleet_machine *m)
{
    return m == r->prompt_machine || m == r->token_machine || m == r->machines_before[0] ||
           m == r->machines_before[1];
}
