/* queue: see the header. Tags are tokens in fixed point, so sums are exact: a key that gets a cost
 * back has paid nothing. */
#include "scheduler/queue.h"

#include "common/limits.h"
#include "common/random.h"

#include <assert.h>
#include <stdlib.h>

#define NONE    SCHED_QUEUE_NONE
#define CLASSES (2 * LIMIT_PRIORITY + 1)
/* Keys are remembered per class, in sets of KEY_WAYS selected by a hash. A new key whose set is
 * full replaces the key that is least ahead of the virtual time of its class; only that lead is
 * lost. */
#define KEY_SETS 256
#define KEY_WAYS 16
/* Tag units per token at weight 1, so that weights up to LIMIT_KEY_WEIGHT make a difference. */
#define TAG_SCALE 4096
/* The mean answer length moves by 1/8 of the difference with each answer. */
#define ANSWER_SHIFT 3
#define ANSWER_SCALE 16

struct key {
    uint64_t id;
    int32_t class;
    uint64_t end;  /* Tag of its next request, unless the virtual time or `last` is higher. */
    uint64_t last; /* Tag of its previous request; counts while some of its requests wait. */
    uint32_t waiting;
    uint64_t answer; /* Mean tokens of its answers × ANSWER_SCALE. */
    bool used;
    bool answered;
};

struct queue_node {
    struct sched_ticket ticket;
    int32_t class;
    uint64_t tag;
    uint64_t serial; /* Order of arrival; decides among equal tags. */
    uint64_t heap;   /* Random priority in the treap. */
    uint32_t left;
    uint32_t right;
    uint32_t next; /* Next in the order of service. */
    uint32_t previous;
    uint32_t younger; /* Next in the ageing list. */
    uint32_t older;
    int64_t since_us; /* Since when it has been in its class. */
};

struct sched_accounts {
    uint64_t serial;
    uint64_t clocks[CLASSES]; /* Virtual time of each class. */
    struct key keys[KEY_SETS][KEY_WAYS];
    uint32_t slot_count;
    struct queue_node nodes[];
};

enum status sched_accounts_open(uint32_t slot_count, struct sched_accounts **out)
{
    struct sched_accounts *accounts =
        calloc(1, sizeof(*accounts) + slot_count * sizeof(accounts->nodes[0]));
    if (accounts == NULL)
        return ST_NO_MEMORY;
    accounts->slot_count = slot_count;
    *out = accounts;
    return ST_OK;
}

void sched_accounts_close(struct sched_accounts *accounts)
{
    free(accounts);
}

void sched_queue_init(struct sched_queue *queue)
{
    *queue = (struct sched_queue){
        .root = NONE, .first = NONE, .last = NONE, .ageing_first = NONE, .ageing_last = NONE};
}

/* ---- keys ---- */

static uint64_t *clock_of(struct sched_accounts *accounts, int32_t class)
{
    assert(class >= -LIMIT_PRIORITY && class <= LIMIT_PRIORITY);
    return &accounts->clocks[class + LIMIT_PRIORITY];
}

static uint64_t set_of(uint64_t id, int32_t class)
{
    return random_mix(id + ((uint64_t)(uint32_t) class << 32)) % KEY_SETS;
}

/* Returns NULL if the key is not remembered. */
static struct key *key_find(const struct sched_accounts *accounts, uint64_t id, int32_t class)
{
    const struct key *set = accounts->keys[set_of(id, class)];
    for (int i = 0; i < KEY_WAYS; i++)
        if (set[i].used && set[i].id == id && set[i].class == class)
            return (struct key *)&set[i];
    return NULL;
}

static uint64_t ahead(struct sched_accounts *accounts, const struct key *key)
{
    uint64_t clock = *clock_of(accounts, key->class);
    return key->used && key->end > clock ? key->end - clock : 0;
}

static struct key *key_get(struct sched_accounts *accounts, uint64_t id, int32_t class)
{
    struct key *key = key_find(accounts, id, class);
    if (key != NULL)
        return key;
    struct key *set = accounts->keys[set_of(id, class)];
    key = &set[0];
    for (int i = 1; i < KEY_WAYS && key->used; i++)
        if (!set[i].used || ahead(accounts, &set[i]) < ahead(accounts, key))
            key = &set[i];
    *key = (struct key){.id = id, .class = class, .used = true};
    return key;
}

static uint64_t tag_length(uint64_t tokens, uint32_t weight)
{
    return tokens * TAG_SCALE / (weight > 0 ? weight : 1);
}

static uint64_t ticket_length(const struct sched_ticket *ticket)
{
    return ticket->resumed ? 0 : tag_length(ticket->cost, ticket->weight);
}

/* Returns the tag of the key's next request in the class, and charges the key. */
static uint64_t tag_next(struct sched_accounts *accounts, const struct sched_ticket *ticket,
                         int32_t class)
{
    uint64_t tag = *clock_of(accounts, class);
    if (ticket->resumed)
        return tag;
    struct key *key = key_get(accounts, ticket->key, class);
    tag = key->end > tag ? key->end : tag;
    tag = key->waiting > 0 && key->last > tag ? key->last : tag;
    key->last = tag;
    key->waiting++;
    key->end = tag + ticket_length(ticket);
    return tag;
}

/* One request of the key less waits in this class. */
static void key_left(struct sched_accounts *accounts, const struct sched_ticket *ticket,
                     int32_t class)
{
    struct key *key = key_find(accounts, ticket->key, class);
    if (key != NULL && key->waiting > 0 && !ticket->resumed)
        key->waiting--;
}

static void give_back(struct sched_accounts *accounts, uint64_t id, int32_t class, uint64_t length)
{
    struct key *key = key_find(accounts, id, class);
    if (key != NULL)
        key->end -= length < key->end ? length : key->end;
}

uint32_t sched_accounts_answer_expected(const struct sched_accounts *accounts, uint64_t key,
                                        int32_t priority, uint32_t tokens_max)
{
    const struct key *known = key_find(accounts, key, priority);
    if (known == NULL || !known->answered || known->answer / ANSWER_SCALE >= tokens_max)
        return tokens_max;
    return (uint32_t)(known->answer / ANSWER_SCALE);
}

void sched_accounts_answer_ended(struct sched_accounts *accounts, uint64_t key, uint32_t weight,
                                 int32_t priority, uint32_t charged_tokens,
                                 uint32_t generated_tokens)
{
    struct key *known = key_get(accounts, key, priority);
    uint64_t tokens = (uint64_t)generated_tokens * ANSWER_SCALE;
    known->answer = !known->answered ? tokens
                                     : known->answer + (tokens >> ANSWER_SHIFT) -
                                           (known->answer >> ANSWER_SHIFT);
    known->answered = true;
    if (generated_tokens > charged_tokens)
        known->end += tag_length(generated_tokens - charged_tokens, weight);
    else
        give_back(accounts, key, priority, tag_length(charged_tokens - generated_tokens, weight));
}

/* ---- the order ---- */

bool sched_queue_before(const struct sched_accounts *accounts, uint32_t a, uint32_t b)
{
    const struct queue_node *x = &accounts->nodes[a];
    const struct queue_node *y = &accounts->nodes[b];
    if (x->class != y->class)
        return x->class < y->class;
    if (x->ticket.resumed != y->ticket.resumed)
        return x->ticket.resumed;
    if (x->tag != y->tag)
        return x->tag < y->tag;
    return x->serial < y->serial;
}

uint32_t sched_queue_next(const struct sched_accounts *accounts, uint32_t slot)
{
    assert(slot < accounts->slot_count);
    return accounts->nodes[slot].next;
}

uint32_t sched_queue_last_new(const struct sched_accounts *accounts,
                              const struct sched_queue *queue)
{
    uint32_t slot = queue->last;
    while (slot != NONE && accounts->nodes[slot].ticket.resumed)
        slot = accounts->nodes[slot].previous;
    return slot;
}

static void list_insert(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot,
                        uint32_t previous, uint32_t next)
{
    accounts->nodes[slot].previous = previous;
    accounts->nodes[slot].next = next;
    if (previous == NONE)
        queue->first = slot;
    else
        accounts->nodes[previous].next = slot;
    if (next == NONE)
        queue->last = slot;
    else
        accounts->nodes[next].previous = slot;
}

static void list_remove(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot)
{
    const struct queue_node *node = &accounts->nodes[slot];
    if (node->previous == NONE)
        queue->first = node->next;
    else
        accounts->nodes[node->previous].next = node->next;
    if (node->next == NONE)
        queue->last = node->previous;
    else
        accounts->nodes[node->next].previous = node->previous;
}

/* Descends to where the slot's heap number belongs, and splits the subtree below into the slot's
 * two sides. On the way it finds the slot's neighbours in the order. */
static void order_insert(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot)
{
    struct queue_node *node = &accounts->nodes[slot];
    uint32_t previous = NONE;
    uint32_t next = NONE;
    uint32_t *at = &queue->root;
    while (*at != NONE && accounts->nodes[*at].heap > node->heap) {
        bool left = sched_queue_before(accounts, slot, *at);
        *(left ? &next : &previous) = *at;
        at = left ? &accounts->nodes[*at].left : &accounts->nodes[*at].right;
    }
    uint32_t below = *at;
    uint32_t *left = &node->left;
    uint32_t *right = &node->right;
    *at = slot;
    while (below != NONE) {
        if (sched_queue_before(accounts, below, slot)) {
            previous = *left = below;
            left = &accounts->nodes[below].right;
            below = *left;
        } else {
            next = *right = below;
            right = &accounts->nodes[below].left;
            below = *right;
        }
    }
    *left = *right = NONE;
    list_insert(accounts, queue, slot, previous, next);
    queue->count++;
}

static void order_remove(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot)
{
    uint32_t *at = &queue->root;
    while (*at != slot) {
        assert(*at != NONE);
        at = sched_queue_before(accounts, slot, *at) ? &accounts->nodes[*at].left
                                                     : &accounts->nodes[*at].right;
    }
    uint32_t left = accounts->nodes[slot].left;
    uint32_t right = accounts->nodes[slot].right;
    while (left != NONE && right != NONE) {
        if (accounts->nodes[left].heap > accounts->nodes[right].heap) {
            *at = left;
            at = &accounts->nodes[left].right;
            left = *at;
        } else {
            *at = right;
            at = &accounts->nodes[right].left;
            right = *at;
        }
    }
    *at = left != NONE ? left : right;
    list_remove(accounts, queue, slot);
    queue->count--;
}

/* ---- ageing ---- */

static void age_append(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot,
                       int64_t now_us)
{
    struct queue_node *node = &accounts->nodes[slot];
    node->since_us = now_us;
    node->younger = NONE;
    node->older = queue->ageing_last;
    if (queue->ageing_last == NONE)
        queue->ageing_first = slot;
    else
        accounts->nodes[queue->ageing_last].younger = slot;
    queue->ageing_last = slot;
}

static void age_remove(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot)
{
    const struct queue_node *node = &accounts->nodes[slot];
    if (node->older == NONE)
        queue->ageing_first = node->younger;
    else
        accounts->nodes[node->older].younger = node->younger;
    if (node->younger == NONE)
        queue->ageing_last = node->older;
    else
        accounts->nodes[node->younger].older = node->older;
}

/* Returns the least urgent slot in a more urgent class than `class`. */
static uint32_t above(const struct sched_accounts *accounts, const struct sched_queue *queue,
                      int32_t class)
{
    uint32_t found = NONE;
    for (uint32_t at = queue->root; at != NONE;) {
        bool higher = accounts->nodes[at].class < class;
        found = higher ? at : found;
        at = higher ? accounts->nodes[at].right : accounts->nodes[at].left;
    }
    return found;
}

static void rise(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot,
                 int64_t now_us)
{
    struct queue_node *node = &accounts->nodes[slot];
    const struct sched_ticket *ticket = &node->ticket;
    uint32_t up = above(accounts, queue, node->class);
    age_remove(accounts, queue, slot);
    if (up != NONE) {
        order_remove(accounts, queue, slot);
        key_left(accounts, ticket, node->class);
        give_back(accounts, ticket->key, node->class, ticket_length(ticket));
        node->class = accounts->nodes[up].class;
        node->tag = tag_next(accounts, ticket, node->class);
        order_insert(accounts, queue, slot);
    }
    age_append(accounts, queue, slot, now_us);
}

void sched_queue_age(struct sched_accounts *accounts, struct sched_queue *queue, int64_t ageing_us,
                     int64_t now_us)
{
    uint32_t looks = queue->count; /* Checks each slot at most once. */
    while (ageing_us > 0 && looks-- > 0 &&
           now_us - accounts->nodes[queue->ageing_first].since_us >= ageing_us)
        rise(accounts, queue, queue->ageing_first, now_us);
}

/* ---- in and out ---- */

void sched_queue_add(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot,
                     const struct sched_ticket *ticket, int64_t now_us)
{
    assert(slot < accounts->slot_count);
    struct queue_node *node = &accounts->nodes[slot];
    node->ticket = *ticket;
    node->class = ticket->priority;
    node->serial = accounts->serial++;
    node->heap = random_mix(node->serial);
    node->tag = tag_next(accounts, ticket, node->class);
    order_insert(accounts, queue, slot);
    age_append(accounts, queue, slot, now_us);
}

static void queue_remove(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot)
{
    assert(slot < accounts->slot_count);
    order_remove(accounts, queue, slot);
    age_remove(accounts, queue, slot);
    key_left(accounts, &accounts->nodes[slot].ticket, accounts->nodes[slot].class);
}

void sched_queue_take(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot)
{
    queue_remove(accounts, queue, slot);
    const struct queue_node *node = &accounts->nodes[slot];
    uint64_t *clock = clock_of(accounts, node->class);
    *clock = node->tag > *clock ? node->tag : *clock;
}

void sched_queue_drop(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot)
{
    queue_remove(accounts, queue, slot);
    const struct queue_node *node = &accounts->nodes[slot];
    give_back(accounts, node->ticket.key, node->class, ticket_length(&node->ticket));
}
