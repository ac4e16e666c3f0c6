/* turns: the order in which constraints are compiled. API keys take turns: the constraints of a key
 * have turns one after the other, so a constraint of another key waits for at most one of them,
 * however many there are. The cache of constraints (answers.c) owns a queue, locks it, and frees the
 * items. */
#ifndef MODEL_GRAMMAR_TURNS_H
#define MODEL_GRAMMAR_TURNS_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#define TURNS_MAX 4096 /* Most items of a queue. */

/* Part of a constraint. */
struct turns_item {
    uint64_t key;  /* Number of the API key; 0 = no key. Set by the caller. */
    uint64_t turn; /* Of two items that wait, the one with the lower turn is next. */
};

struct turns {                             /* A queue. All bytes 0 = empty. */
    struct turns_item *waiting[TURNS_MAX]; /* In order of arrival. */
    uint32_t count;
    uint64_t turn; /* Turn of the item that was popped last. */
};

/* Adds an item, which must stay until it is popped. Requires that fewer than TURNS_MAX wait. */
static inline void turns_push(struct turns *turns, struct turns_item *item)
{
    assert(turns->count < TURNS_MAX);
    item->turn = turns->turn;
    for (uint32_t i = 0; i < turns->count; i++)
        if (turns->waiting[i]->key == item->key && turns->waiting[i]->turn >= item->turn)
            item->turn = turns->waiting[i]->turn + 1;
    turns->waiting[turns->count++] = item;
}

/* Removes and returns the item with the lowest turn, of several the first. Requires that an item
 * waits. */
static inline struct turns_item *turns_pop(struct turns *turns)
{
    uint32_t next = 0;
    assert(turns->count > 0);
    for (uint32_t i = 1; i < turns->count; i++)
        if (turns->waiting[i]->turn < turns->waiting[next]->turn)
            next = i;
    struct turns_item *item = turns->waiting[next];
    turns->count--;
    memmove(&turns->waiting[next], &turns->waiting[next + 1],
            (turns->count - next) * sizeof(struct turns_item *));
    turns->turn = item->turn;
    return item;
}

#endif
