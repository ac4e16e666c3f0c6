/* queue: waiting requests in the order in which they are served. The cluster scheduler queues its
 * requests with it, and the scheduler of a machine queues the requests that wait for memory or for
 * a batch. Each scheduler calls it on its own thread (the event loop of the gateway or the machine,
 * or the simulator). Pure: no clock, no I/O, no allocation after opening; not thread-safe. It does
 * not know requests or machines, only slots and their cost.
 *
 * The order:
 * 1. The most urgent class (the lowest priority number) first.
 * 2. In a class, requests that were served before and lost their memory or machine.
 * 3. Then API keys share by their weights.
 * 4. The requests of one key in the order of their arrival.
 *
 * Without keys and with equal priorities that is first come, first served.
 *
 * Sharing is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). A request's tag is the
 * end of its key's previous request, and each request moves that end by cost / weight; but a tag is
 * never below the virtual time of the class, which is the tag of the request that was served last.
 * So keys that always have waiting requests get tokens in proportion to their weights, however many
 * requests they send. A key that was idle starts level with the others.
 *
 * Ageing: a request that has been in its class for ageing_us joins the next more urgent class that
 * has waiting requests, as if it arrived now. So urgent requests starve no other request, and
 * ageing among equals changes nothing.
 *
 * A change costs O(log n): a treap finds the position, and a list through it gives the order. */
#ifndef SCHEDULER_QUEUE_H
#define SCHEDULER_QUEUE_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHED_QUEUE_NONE UINT32_MAX

/* The accounts of the keys, and the entries of slot_count slots. Each slot is in at most one queue.
 * Queues that serve the same resource share one sched_fair. */
struct sched_fair;

enum status sched_fair_open(uint32_t slot_count, struct sched_fair **out);
void sched_fair_close(struct sched_fair *fair); /* NULL is fine */

struct sched_queue {
    uint32_t root; /* Root of the treap. */
    uint32_t first;
    uint32_t last;
    uint32_t count;
    /* Ends of the ageing list: the slot that has been in its class for the longest and the shortest
     * time. */
    uint32_t longest;
    uint32_t shortest;
};

void sched_queue_init(struct sched_queue *queue);

struct sched_ticket {
    /* Identifies the API key; any number. Requests without a key share one number. */
    uint64_t key;
    uint32_t weight;  /* Weight of the key against other keys; 0 counts as 1. */
    int32_t priority; /* Class, from -LIMIT_PRIORITY to LIMIT_PRIORITY. */
    uint64_t cost;    /* Tokens that the key is charged for the request. */
    /* Goes before others of its class, in order of arrival. Its key has paid already: `cost` does
     * not count. */
    bool resumed;
};

void sched_queue_add(struct sched_fair *fair, struct sched_queue *queue, uint32_t slot,
                     const struct sched_ticket *ticket, int64_t now_us);
/* Take the slot out of the queue. `take`: the request is served. `drop`: it leaves without being
 * served, and its key gets the cost back. */
void sched_queue_take(struct sched_fair *fair, struct sched_queue *queue, uint32_t slot);
void sched_queue_drop(struct sched_fair *fair, struct sched_queue *queue, uint32_t slot);

/* Returns the slot that follows `slot`, which is in the queue; SCHED_QUEUE_NONE = it is the last.
 */
uint32_t sched_queue_next(const struct sched_fair *fair, uint32_t slot);
/* Returns the last slot that is not resumed; SCHED_QUEUE_NONE = none. */
uint32_t sched_queue_last_new(const struct sched_fair *fair, const struct sched_queue *queue);
/* True if `a` is served before `b`. They may be in two queues. */
bool sched_queue_before(const struct sched_fair *fair, uint32_t a, uint32_t b);

/* Moves each slot that has been in its class for ageing_us or longer to the next more urgent class
 * that has waiting requests. ageing_us 0 = no ageing. */
void sched_queue_age(struct sched_fair *fair, struct sched_queue *queue, int64_t ageing_us,
                     int64_t now_us);

/* The length of an answer is not known in advance. sched_fair_answer returns the mean length of the
 * key's recent answers with that priority, at most `most` (`most` if none is known); the key is
 * charged for it. sched_fair_answered corrects the charge when the answer has ended: `charged`
 * tokens were charged, `generated` were generated. */
uint32_t sched_fair_answer(const struct sched_fair *fair, uint64_t key, int32_t priority,
                           uint32_t most);
void sched_fair_answered(struct sched_fair *fair, uint64_t key, uint32_t weight, int32_t priority,
                         uint32_t charged, uint32_t generated);

#endif
