/* queue_model: the order of scheduler/queue.h again, simple enough to check by eye: slots and keys
 * are arrays, and every choice compares all of them. test_queue.c and cluster_model.c compare it
 * with the real queue, on one thread. An index of `places` is a slot. The virtual times (tag, end,
 * last, clocks) are explained in queue.h. It does not test anything itself. */
#ifndef TESTS_SCHEDULER_QUEUE_MODEL_H
#define TESTS_SCHEDULER_QUEUE_MODEL_H

#include "scheduler/queue.h"

#define QUEUE_MODEL_PLACES  64
#define QUEUE_MODEL_KEYS    64 /* Over all classes. */
#define QUEUE_MODEL_CLASSES 7  /* -3 to 3. */

struct queue_model_place {
    bool waits;
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
    uint64_t answer; /* × 16. */
    bool answered;
};

struct queue_model {
    uint64_t serials;
    uint64_t joins;
    uint64_t clocks[QUEUE_MODEL_CLASSES];
    struct queue_model_key keys[QUEUE_MODEL_KEYS];
    struct queue_model_place places[QUEUE_MODEL_PLACES];
};

void queue_model_add(struct queue_model *m, uint32_t slot, const struct sched_ticket *ticket,
                     int64_t now_us);
void queue_model_leave(struct queue_model *m, uint32_t slot, bool turn);
/* Returns the slot after `after` (NULL = the first one), or SCHED_QUEUE_NONE. */
uint32_t queue_model_next(const struct queue_model *m, const struct queue_model_place *after);
void queue_model_age(struct queue_model *m, int64_t ageing_us, int64_t now_us);
uint32_t queue_model_answer(struct queue_model *m, uint64_t key, int32_t priority, uint32_t most);
void queue_model_answered(struct queue_model *m, uint64_t key, uint32_t weight, int32_t priority,
                          uint32_t charged, uint32_t generated);

#endif
