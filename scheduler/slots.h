/* sched_slots: the bounded table of the requests that one request table of a machine knows. It maps
 * (id, generation) to a slot: the dense index by which sched_machine and the table know the
 * request. A resumed request (with a higher generation) is a second entry. The prompt pool and
 * the token pool have one table each, on the machine's event loop thread. Pure, no allocation after
 * opening; not thread-safe. It holds no requests and no blocks, only ids and slots. */
#ifndef SCHEDULER_SLOTS_H
#define SCHEDULER_SLOTS_H

#include "common/status.h"
#include "scheduler/machine/machine.h"

#include <stdbool.h>
#include <stdint.h>

struct sched_slots;

/* Hands out the slots first … first + count - 1. The tables of one machine share one sched_machine,
 * each with its own range. */
enum status sched_slots_open(sched_slot first, uint32_t count, struct sched_slots **out);
void sched_slots_close(struct sched_slots *slots); /* NULL is fine */

/* Takes a free slot. ST_NO_RESOURCE: no slot is free. ST_INVALID: the request is known already. */
enum status sched_slots_take(struct sched_slots *slots, uint64_t id, uint32_t generation,
                             sched_slot *slot_out);
void sched_slots_free(struct sched_slots *slots, sched_slot slot);
bool sched_slots_find(const struct sched_slots *slots, uint64_t id, uint32_t generation,
                      sched_slot *slot_out);
bool sched_slots_used(const struct sched_slots *slots, sched_slot slot);
uint32_t sched_slots_count(const struct sched_slots *slots); /* Slots in use.  */

#endif
