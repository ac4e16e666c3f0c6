/* queue: requests that wait, in the order in which they get their turn: the most urgent class first
 * (the lowest priority number); in a class those that were served before and lost it; then the keys
 * share what there is by their weights; a key's own requests in the order of their arrival. Without
 * keys and with equal priorities that is first come, first served.
 *
 * Sharing is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). A request's tag is
 * where its key's last one ended, cost / weight further for each, but never before the virtual
 * time of its class, which is the tag of the last one that got its turn. So keys that wait all the
 * time get tokens by their weights, however many requests each has; one that was idle begins at the
 * others' place, not before it.
 *
 * Ageing: who has been in a class for so long without a turn joins the next more urgent one that
 * waits, as if it arrived now. So nobody is starved by urgent requests, and ageing among equals
 * changes nothing.
 *
 * Pure, and no allocation after opening. A change costs O(log n): a treap finds the place, a list
 * through it gives the order. The cluster level queues its requests so, and a machine those that
 * wait for memory and for a batch. */
#ifndef SCHEDULER_QUEUE_H
#define SCHEDULER_QUEUE_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHED_QUEUE_NONE UINT32_MAX

/* A clock of keys, and the places of so many slots, each of which is in one queue at most. Queues
 * that serve the same resource share one. */
struct sched_fair;

enum status sched_fair_open(uint32_t slot_count, struct sched_fair **out);
void sched_fair_close(struct sched_fair *fair); /* NULL is fine */

struct sched_queue {
    uint32_t root; /* of the treap */
    uint32_t first;
    uint32_t last;
    uint32_t count;
    uint32_t longest; /* who is in its class for the longest time, and so on: the order of ageing */
    uint32_t shortest;
};

void sched_queue_init(struct sched_queue *queue);

struct sched_ticket {
    uint64_t key;     /* whose; any number, also for nobody's */
    uint32_t weight;  /* of that key against others; 0 counts as 1 */
    int32_t priority; /* its class; ± LIMIT_PRIORITY */
    uint64_t cost;    /* tokens: what its turn gives its key */
    bool resumed; /* before others of its class, in order; its key has paid: cost does not count */
};

void sched_queue_add(struct sched_fair *fair, struct sched_queue *queue, uint32_t slot,
                     const struct sched_ticket *ticket, int64_t now_us);
/* The slot leaves: it has its turn; or it goes without one, and its key gets back what it cost. */
void sched_queue_take(struct sched_fair *fair, struct sched_queue *queue, uint32_t slot);
void sched_queue_drop(struct sched_fair *fair, struct sched_queue *queue, uint32_t slot);

/* The one after `slot`, which is in the queue; SCHED_QUEUE_NONE: it is the last. */
uint32_t sched_queue_next(const struct sched_fair *fair, uint32_t slot);
/* The last one that is not resumed, or SCHED_QUEUE_NONE. */
uint32_t sched_queue_last_new(const struct sched_fair *fair, const struct sched_queue *queue);
/* Does `a` come before `b`? They may be in two queues. */
bool sched_queue_before(const struct sched_fair *fair, uint32_t a, uint32_t b);

/* Those that are in their class since ageing_us or longer join the next more urgent one. 0: nobody.
 */
void sched_queue_age(struct sched_fair *fair, struct sched_queue *queue, int64_t ageing_us,
                     int64_t now_us);

/* Answers. Nobody knows how long one will be, so a key is charged for as many tokens as its answers
 * of that priority had lately, `most` at most; and for those that it had when it has ended. */
uint32_t sched_fair_answer(const struct sched_fair *fair, uint64_t key, int32_t priority,
                           uint32_t most);
void sched_fair_answered(struct sched_fair *fair, uint64_t key, uint32_t weight, int32_t priority,
                         uint32_t charged, uint32_t generated);

#endif
