/* queue: keeps waiting requests in the order of service. The cluster scheduler has one queue, for
 * requests that wait for machines. The scheduler of a machine has several queues, for requests that
 * wait for memory or for a batch. Each scheduler calls the functions on its own
 * thread: the event loop thread of the gateway or of the machine, or the simulator's thread. Not
 * thread-safe. Pure: no clock, no I/O, no allocation after opening. A queue knows a request only as
 * a slot with a ticket.
 *
 * The order:
 * 1. The most urgent class (the lowest priority number) first.
 * 2. In a class, resumed requests first.
 * 3. Then the API keys, which share by their weights.
 * 4. For each key, the order of arrival.
 *
 * Sharing is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Each request gets a
 * tag, and the lowest tag is served first. A key's next tag is its previous tag plus cost / weight
 * of its previous request, but not below the class's *virtual time*: the highest tag of the class
 * that was served. So keys that always have waiting requests get tokens in proportion to their
 * weights. A key gets no credit for the time in which it had no requests. The number of remembered
 * keys is bounded; a key that was forgotten starts at the virtual time again.
 *
 * Ageing: a request that has been in its class for ageing_us joins the next more urgent class that
 * has waiting requests, as if the request arrived now. If there is no such class, the time starts
 * again.
 *
 * Adding and removing a slot costs O(log n). */
#ifndef SCHEDULER_QUEUE_H
#define SCHEDULER_QUEUE_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHED_QUEUE_NONE UINT32_MAX /* No slot. */

/* The accounts of the API keys, and the tickets of slot_count slots. A slot is in at most one
 * queue. Several queues may use the same accounts, as the queues of a machine's paths do: the keys
 * then share all these queues together by their weights. */
struct sched_accounts;

/* Opens the accounts. Returns ST_NO_MEMORY on failure. */
enum status sched_accounts_open(uint32_t slot_count, struct sched_accounts **out);
void sched_accounts_close(struct sched_accounts *accounts); /* NULL is fine */

/* A queue. Callers may read `first` and `count`. */
struct sched_queue {
    uint32_t root;         /* Root of the treap. */
    uint32_t first;        /* Slot that is served next; SCHED_QUEUE_NONE = the queue is empty. */
    uint32_t last;         /* Slot that is served last. */
    uint32_t count;        /* Number of slots in the queue. */
    uint32_t ageing_first; /* Slot that has been in its class for the longest time. */
    uint32_t ageing_last;  /* Slot that has been in its class for the shortest time. */
};

/* Makes the queue empty. */
void sched_queue_init(struct sched_queue *queue);

/* What decides the place of a slot in the queue. */
struct sched_ticket {
    /* Identifies the API key; any number. All requests without a key have one common number. */
    uint64_t key;
    uint32_t weight;  /* Weight of the key; 0 counts as 1. */
    int32_t priority; /* Class, from -LIMIT_PRIORITY to LIMIT_PRIORITY; lower is more urgent. */
    uint64_t cost;    /* Tokens for which the key is charged. */
    /* The request was served before: it goes before new requests. `cost` is ignored. */
    bool resumed;
};

/* Adds a slot that is in no queue, and charges the key. */
void sched_queue_add(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot,
                     const struct sched_ticket *ticket, int64_t now_us);
/* Removes the slot from the queue because the request is served. */
void sched_queue_take(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot);
/* Removes the slot from the queue without serving the request. Its key gets the cost back. */
void sched_queue_drop(struct sched_accounts *accounts, struct sched_queue *queue, uint32_t slot);

/* Returns the slot that is served after `slot`; SCHED_QUEUE_NONE = none. Requires that `slot` is in
 * a queue. */
uint32_t sched_queue_next(const struct sched_accounts *accounts, uint32_t slot);
/* Returns the last slot of the queue whose ticket is not `resumed`; SCHED_QUEUE_NONE = none. */
uint32_t sched_queue_last_new(const struct sched_accounts *accounts,
                              const struct sched_queue *queue);
/* Returns true if slot `a` is served before slot `b`, perhaps in different queues. */
bool sched_queue_before(const struct sched_accounts *accounts, uint32_t a, uint32_t b);

/* Applies ageing to all slots of the queue. ageing_us = 0: no ageing. */
void sched_queue_age(struct sched_accounts *accounts, struct sched_queue *queue, int64_t ageing_us,
                     int64_t now_us);

/* Returns the expected tokens of an answer, for the cost of a ticket: the mean of the key's recent
 * answers with this priority, at most tokens_max; tokens_max if no such answer is remembered. */
uint32_t sched_accounts_answer_expected(const struct sched_accounts *accounts, uint64_t key,
                                        int32_t priority, uint32_t tokens_max);
/* Records that an answer of generated_tokens tokens has ended, and corrects the key's charge.
 * charged_tokens = part of the ticket's cost that was charged for the answer. */
void sched_accounts_answer_ended(struct sched_accounts *accounts, uint64_t key, uint32_t weight,
                                 int32_t priority, uint32_t charged_tokens,
                                 uint32_t generated_tokens);

#endif
