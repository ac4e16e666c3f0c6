/* queue_model: a second implementation of the order of scheduler/queue.h, simple enough to check by
 * eye: slots and keys are arrays, and every choice compares all of them. test_queue.c compares it
 * with the real queue, and cluster_model.c uses it; both on one thread. The caller owns the struct.
 * queue.h explains the virtual times (tag, end, last, clocks). The model tests nothing itself. */
#ifndef TESTS_SCHEDULER_QUEUE_MODEL_H
#define TESTS_SCHEDULER_QUEUE_MODEL_H

#include "scheduler/queue.h"

#define QUEUE_MODEL_SLOTS   64
#define QUEUE_MODEL_KEYS    64 /* Over all classes. */
#define QUEUE_MODEL_CLASSES 7  /* -3 to 3. */

struct queue_model_slot {
    bool waits; /* false = the slot is unused. */
    struct sched_ticket ticket;
    int32_t class;
    uint64_t tag;
    uint64_t serial;
    int64_t since_us;
    uint64_t joined; /* Orders slots with equal since_us. */
};

struct queue_model_key {
    bool used;
    uint64_t id;
    int32_t class;
    uint64_t end;
    uint64_t last;
    uint64_t answer; /* Expected tokens of an answer, times 16. */
    bool answered;   /* An answer of the key has ended. */
};

struct queue_model {
    uint64_t serials;
    uint64_t joins;
    uint64_t clocks[QUEUE_MODEL_CLASSES];
    struct queue_model_key keys[QUEUE_MODEL_KEYS];
    struct queue_model_slot slots[QUEUE_MODEL_SLOTS];
};

void queue_model_add(struct queue_model *m, uint32_t slot, const struct sched_ticket *ticket,
                     int64_t now_us);
/* turn = true: the slot leaves because its request is served, false: because it is given up. */
void queue_model_leave(struct queue_model *m, uint32_t slot, bool turn);
/* Returns the slot that follows `after` in the queue's order (NULL = the first one), or
 * SCHED_QUEUE_NONE. */
uint32_t queue_model_next(const struct queue_model *m, const struct queue_model_slot *after);
void queue_model_age(struct queue_model *m, int64_t ageing_us, int64_t now_us);
uint32_t queue_model_answer(struct queue_model *m, uint64_t key, int32_t priority, uint32_t most);
void queue_model_answered(struct queue_model *m, uint64_t key, uint32_t weight, int32_t priority,
                          uint32_t charged, uint32_t generated);

#endif
