/* sched_slots: the bounded table of the requests that one pool of a machine knows, from (id,
 * generation) to a slot: the dense index by which sched_machine and the pool's own table know the
 * request. Pure, no allocation after opening. A request and a resumed form of it (a higher
 * generation) are two entries. One owner. */
#ifndef SCHEDULER_SLOTS_H
#define SCHEDULER_SLOTS_H

#include "common/status.h"
#include "scheduler/machine.h"

#include <stdbool.h>
#include <stdint.h>

struct sched_slots;

/* Slots first … first + count - 1: the pools of one machine share sched_machine with ranges of
 * their own. */
enum status sched_slots_open(sched_slot first, uint32_t count, struct sched_slots **out);
void sched_slots_close(struct sched_slots *slots); /* NULL is fine */

/* ST_NO_RESOURCE: all are taken. ST_INVALID: the request is known already. */
enum status sched_slots_take(struct sched_slots *slots, uint64_t id, uint32_t generation,
                             sched_slot *slot_out);
void sched_slots_free(struct sched_slots *slots, sched_slot slot);
bool sched_slots_find(const struct sched_slots *slots, uint64_t id, uint32_t generation,
                      sched_slot *slot_out);
bool sched_slots_used(const struct sched_slots *slots, sched_slot slot);
uint32_t sched_slots_count(const struct sched_slots *slots); /* that are taken */

#endif
