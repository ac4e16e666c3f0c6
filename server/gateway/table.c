/* gateway_table: see the header. */
#include "server/gateway/table.h"

#include <assert.h>
#include <stdlib.h>

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

struct gateway_request *request_table_take(struct request_table *table)
{
    if (table->open_count == LIMIT_CLUSTER_REQUESTS)
        return NULL;
    uint32_t slot = table->free_slots[LIMIT_CLUSTER_REQUESTS - 1 - table->open_count++];
    struct gateway_request *r = &table->slots[slot];
    table->id_counter++;
    *r = (struct gateway_request){.id = table->id_tag << 32 |
                                        (table->id_counter & COUNTER_MASK) << SLOT_BITS | slot};
    return r;
}

void request_table_free(struct request_table *table, struct gateway_request *r)
{
    request_table_state_set(table, r, GATEWAY_REQUEST_FREE);
    free(r->tokens);
    free(r->rules);
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
    for (size_t slot = r == NULL ? 0 : (size_t)(r - table->slots) + 1;
         slot < LIMIT_CLUSTER_REQUESTS; slot++)
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

void request_table_state_set(struct request_table *table, struct gateway_request *r,
                             enum gateway_request_state to)
{
    static const uint32_t legal[GATEWAY_REQUEST_STATE_COUNT] = {
        [GATEWAY_REQUEST_FREE] = TO(ARRIVING) | TO(ENDING),
        [GATEWAY_REQUEST_ARRIVING] = TO(SCHEDULED) | TO(SUSPECTED) | TO_END,
        [GATEWAY_REQUEST_SUSPECTED] = TO(ARRIVING) | TO_END,
        [GATEWAY_REQUEST_SCHEDULED] = TO(RESERVING) | TO(PREFILLING) | TO(ARRIVING) | TO_END,
        [GATEWAY_REQUEST_RESERVING] = TO(PREFILLING) | TO(ARRIVING) | TO_END,
        [GATEWAY_REQUEST_PREFILLING] = TO(PREFILLED) | TO(ARRIVING) | TO_END,
        [GATEWAY_REQUEST_PREFILLED] = TO(ARRIVING) | TO_END,
        [GATEWAY_REQUEST_ENDING] = TO(FREE),
    };
    assert((legal[r->state] & 1u << to) != 0);
    if (r->state != GATEWAY_REQUEST_FREE)
        list_remove(&table->lists[r->state], r);
    r->state = to;
    if (to != GATEWAY_REQUEST_FREE)
        list_add(&table->lists[to], r);
}
