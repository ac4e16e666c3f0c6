/* sched_slots: maps the id and generation of a request on a machine to the request's slot, the
 * small index that sched_machine and the request tables use. Two generations of one request have
 * two slots. prompt_pool/ and token_pool/ have one map each, and call it on the machine's event
 * loop thread; a map is not thread-safe. Pure: no I/O, no allocation after opening. A map holds ids
 * and slots, no requests and no blocks. */
#ifndef SCHEDULER_SLOTS_H
#define SCHEDULER_SLOTS_H

#include "common/status.h"
#include "scheduler/machine/machine.h"

#include <stdbool.h>
#include <stdint.h>

struct sched_slots;

/* Opens an empty map with the slots first to first + count - 1. The two maps of a machine have
 * different ranges of slots. Returns ST_INVALID if count is 0 or above LIMIT_MACHINE_REQUESTS,
 * ST_NO_MEMORY if memory is short. */
enum status sched_slots_open(sched_slot first, uint32_t count, struct sched_slots **out);
void sched_slots_close(struct sched_slots *slots); /* NULL is fine */

/* Takes a free slot for a request. Returns ST_INVALID if the request has a slot already, else
 * ST_NO_RESOURCE if no slot is free. */
enum status sched_slots_take(struct sched_slots *slots, uint64_t id, uint32_t generation,
                             sched_slot *slot_out);
/* Frees a slot. Requires that it is in use. */
void sched_slots_free(struct sched_slots *slots, sched_slot slot);
/* Stores the request's slot. Returns false if the request has no slot. */
bool sched_slots_find(const struct sched_slots *slots, uint64_t id, uint32_t generation,
                      sched_slot *slot_out);
/* Returns true if the slot is in use. Requires that the slot is in the map's range. */
bool sched_slots_used(const struct sched_slots *slots, sched_slot slot);
/* Returns the number of slots in use. */
uint32_t sched_slots_used_count(const struct sched_slots *slots);

#endif
