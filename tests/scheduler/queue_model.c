#include "tests/scheduler/queue_model.h"

#include "tests/check.h"

#define SCALE 4096

static uint64_t *clock_of(struct queue_model *m, int32_t class)
{
    CHECK(class >= -3 && class <= 3);
    return &m->clocks[class + 3];
}

static struct queue_model_key *key_of(struct queue_model *m, uint64_t id, int32_t class)
{
    for (int i = 0; i < QUEUE_MODEL_KEYS; i++) {
        struct queue_model_key *key = &m->keys[i];
        if (!key->used)
            *key = (struct queue_model_key){.used = true, .id = id, .class = class};
        if (key->id == id && key->class == class)
            return key;
    }
    CHECK(!"room for a key");
    return NULL;
}

static uint64_t length(const struct sched_ticket *ticket)
{
    return ticket->cost * SCALE / (ticket->weight > 0 ? ticket->weight : 1);
}

static bool key_waits(const struct queue_model *m, uint64_t id, int32_t class)
{
    for (int i = 0; i < QUEUE_MODEL_SLOTS; i++) {
        const struct queue_model_slot *place = &m->slots[i];
        if (place->waits && place->ticket.key == id && place->class == class &&
            !place->ticket.resumed)
            return true;
    }
    return false;
}

static void place_pay(struct queue_model *m, struct queue_model_slot *place)
{
    struct queue_model_key *key = key_of(m, place->ticket.key, place->class);
    place->tag = *clock_of(m, place->class);
    if (place->ticket.resumed)
        return;
    if (key->end > place->tag)
        place->tag = key->end;
    if (key_waits(m, key->id, key->class) && key->last > place->tag)
        place->tag = key->last;
    key->last = place->tag;
    key->end = place->tag + length(&place->ticket);
}

static void place_give_back(struct queue_model *m, const struct queue_model_slot *place)
{
    struct queue_model_key *key = key_of(m, place->ticket.key, place->class);
    uint64_t back = place->ticket.resumed ? 0 : length(&place->ticket);
    key->end = back < key->end ? key->end - back : 0;
}

void queue_model_add(struct queue_model *m, uint32_t slot, const struct sched_ticket *ticket,
                     int64_t now_us)
{
    struct queue_model_slot *place = &m->slots[slot];
    CHECK(slot < QUEUE_MODEL_SLOTS && !place->waits);
    *place = (struct queue_model_slot){.ticket = *ticket,
                                       .class = ticket->priority,
                                       .serial = m->serials++,
                                       .since_us = now_us,
                                       .joined = m->joins++};
    place_pay(m, place);
    place->waits = true;
}

void queue_model_leave(struct queue_model *m, uint32_t slot, bool turn)
{
    struct queue_model_slot *place = &m->slots[slot];
    CHECK(slot < QUEUE_MODEL_SLOTS && place->waits);
    place->waits = false;
    uint64_t *clock = clock_of(m, place->class);
    if (!turn)
        place_give_back(m, place);
    else if (place->tag > *clock)
        *clock = place->tag;
}

static bool before(const struct queue_model_slot *a, const struct queue_model_slot *b)
{
    if (a->class != b->class)
        return a->class < b->class;
    if (a->ticket.resumed != b->ticket.resumed)
        return a->ticket.resumed;
    return a->tag != b->tag ? a->tag < b->tag : a->serial < b->serial;
}

uint32_t queue_model_next(const struct queue_model *m, const struct queue_model_slot *after)
{
    uint32_t next = SCHED_QUEUE_NONE;
    for (uint32_t i = 0; i < QUEUE_MODEL_SLOTS; i++)
        if (m->slots[i].waits && (after == NULL || before(after, &m->slots[i])) &&
            (next == SCHED_QUEUE_NONE || before(&m->slots[i], &m->slots[next])))
            next = i;
    return next;
}

static void rise(struct queue_model *m, struct queue_model_slot *place, int64_t now_us)
{
    int32_t up = INT32_MIN;
    for (int i = 0; i < QUEUE_MODEL_SLOTS; i++) {
        const struct queue_model_slot *other = &m->slots[i];
        if (other->waits && other->class < place->class && other->class > up)
            up = other->class;
    }
    place->since_us = now_us;
    place->joined = m->joins++;
    if (up == INT32_MIN)
        return;
    place->waits = false;
    place_give_back(m, place);
    place->class = up;
    place_pay(m, place);
    place->waits = true;
}

void queue_model_age(struct queue_model *m, int64_t ageing_us, int64_t now_us)
{
    /* A slot that joins a class in this call has already been checked. */
    uint64_t joins = m->joins;
    while (ageing_us > 0) {
        struct queue_model_slot *longest = NULL;
        for (int i = 0; i < QUEUE_MODEL_SLOTS; i++) {
            struct queue_model_slot *place = &m->slots[i];
            if (place->waits && place->joined < joins &&
                (longest == NULL || place->joined < longest->joined))
                longest = place;
        }
        if (longest == NULL || now_us - longest->since_us < ageing_us)
            return;
        rise(m, longest, now_us);
    }
}

uint32_t queue_model_answer(struct queue_model *m, uint64_t key, int32_t priority, uint32_t most)
{
    const struct queue_model_key *known = key_of(m, key, priority);
    return known->answered && known->answer / 16 < most ? (uint32_t)(known->answer / 16) : most;
}

void queue_model_answered(struct queue_model *m, uint64_t key, uint32_t weight, int32_t priority,
                          uint32_t charged, uint32_t generated)
{
    struct queue_model_key *known = key_of(m, key, priority);
    uint64_t tokens = generated * 16ull;
    if (known->answered)
        known->answer = known->answer + tokens / 8 - known->answer / 8;
    else
        known->answer = tokens;
    known->answered = true;
    if (generated > charged) {
        known->end += (uint64_t)(generated - charged) * SCALE / (weight > 0 ? weight : 1);
        return;
    }
    uint64_t back = (uint64_t)(charged - generated) * SCALE / (weight > 0 ? weight : 1);
    known->end = back < known->end ? known->end - back : 0;
}
