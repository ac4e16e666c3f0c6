/* fabric_staging: copies between a device's region and pinned host memory in both directions, and
 * the accounting of copies to other devices. See fabric_internal.h.
 *
 * Pinned memory consists of slots of one piece each. They are taken from the device in chunks when
 * needed, and kept. Outgoing data fills a slot of its link, received data a slot of the fabric, one
 * piece behind the other. A slot is free again when it has no users, so a link can copy into one
 * slot while it sends from another. Copies of one direction are done in the order in which they
 * were queued. */
#include "common/clock.h"
#include "transport/fabric_internal.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_SLOTS 8
/* Received bytes that may wait for the device; more wait in the network. */
#define LANDING_BYTES_MAX (32 * FABRIC_PIECE_BYTES_MAX)

struct fabric_chunk {
    struct fabric_chunk *next;
    void *memory;
    struct fabric_slot slots[CHUNK_SLOTS];
};

enum status fabric_staging_open(struct fabric *fabric, const struct fabric_options *options)
{
    struct fabric_staging *staging = calloc(1, sizeof(*staging));
    if (staging == NULL)
        return ST_NO_MEMORY;
    staging->device = options->device;
    staging->copy_us = (int64_t)options->copy_ms * 1000;
    fabric->staging = staging;
    return ST_OK;
}

void fabric_staging_close(struct fabric *fabric)
{
    struct fabric_staging *staging = fabric->staging;
    if (staging == NULL)
        return;
    fabric_imports_reap(fabric, true);
    while (staging->chunks != NULL) {
        struct fabric_chunk *chunk = staging->chunks;
        staging->chunks = chunk->next;
        staging->device->ops->host_free(staging->device->self, chunk->memory);
        free(chunk);
    }
    for (int i = 0; i < DEVICE_DIRECTIONS; i++)
        free(staging->copies[i].ring);
    free(staging);
    fabric->staging = NULL;
}

/* ---- slots ---- */

static void slot_give(struct fabric_slot *slot)
{
    struct fabric_staging *staging = slot->fabric->staging;
    slot->next = staging->free_slots;
    staging->free_slots = slot;
}

static bool chunk_take(struct fabric *fabric)
{
    struct fabric_staging *staging = fabric->staging;
    const struct device_memory *device = staging->device;
    struct fabric_chunk *chunk = calloc(1, sizeof(*chunk));
    struct error ignored;
    if (chunk == NULL)
        return false;
    if (device->ops->host_allocate(device->self, CHUNK_SLOTS * FABRIC_PIECE_BYTES_MAX,
                                   &chunk->memory, &ignored) != ST_OK) {
        free(chunk);
        return false;
    }
    chunk->next = staging->chunks;
    staging->chunks = chunk;
    for (size_t i = 0; i < CHUNK_SLOTS; i++) {
        chunk->slots[i].fabric = fabric;
        chunk->slots[i].memory = (uint8_t *)chunk->memory + i * FABRIC_PIECE_BYTES_MAX;
        slot_give(&chunk->slots[i]);
    }
    return true;
}

uint8_t *fabric_slot_memory(struct fabric *fabric, struct fabric_slot **slot, size_t bytes)
{
    struct fabric_staging *staging = fabric->staging;
    assert(bytes <= FABRIC_PIECE_BYTES_MAX);
    /* Its only user is the caller, so it can be filled again. */
    if (*slot != NULL && (*slot)->users == 1)
        (*slot)->used_bytes = 0;
    if (*slot == NULL || (*slot)->used_bytes + bytes > FABRIC_PIECE_BYTES_MAX) {
        fabric_slot_drop(*slot);
        *slot = NULL;
        if (staging->free_slots == NULL && !chunk_take(fabric))
            return NULL;
        *slot = staging->free_slots;
        staging->free_slots = (*slot)->next;
        (*slot)->users = 1;
        (*slot)->used_bytes = 0;
    }
    uint8_t *memory = (*slot)->memory + (*slot)->used_bytes;
    (*slot)->used_bytes += (bytes + 63) / 64 * 64;
    return memory;
}

void fabric_slot_drop(struct fabric_slot *slot)
{
    if (slot != NULL && --slot->users == 0)
        slot_give(slot);
}

/* ---- copies ---- */

static struct fabric_copy *copy_at(const struct fabric_copies *copies, uint64_t index)
{
    return &copies->ring[index % copies->capacity];
}

uint64_t fabric_copies_oldest(const struct fabric_copies *copies)
{
    return copies->count > 0 ? copy_at(copies, copies->first)->number : UINT64_MAX;
}

static bool copies_grow(struct fabric_copies *copies)
{
    uint64_t capacity = copies->capacity > 0 ? copies->capacity * 2 : 64;
    struct fabric_copy *ring = calloc(capacity, sizeof(*ring));
    if (ring == NULL)
        return false;
    for (uint64_t n = copies->first; n < copies->first + copies->count; n++)
        ring[n % capacity] = *copy_at(copies, n);
    free(copies->ring);
    copies->ring = ring;
    copies->capacity = capacity;
    return true;
}

static enum status copies_room(struct fabric_copies *copies, struct error *error)
{
    return copies->count < copies->capacity || copies_grow(copies)
               ? ST_OK
               : error_set(error, ST_NO_MEMORY, "out of memory");
}

/* Records a copy that the device was given as `number`; 0 = the device refused it. */
static enum status copy_queued(struct fabric *fabric, enum device_direction direction,
                               uint64_t number, struct fabric_copy copy, struct error *error)
{
    const struct device_memory *memory = fabric->staging->device;
    struct fabric_copies *copies = &fabric->staging->copies[direction];
    if (number == 0) {
        uint64_t done;
        error_set(error, ST_IO, "it takes no copies");
        (void)memory->ops->poll(memory->self, direction, &done, error);
        error_prefix(error, "%s", memory->name);
        return ST_IO;
    }
    copy.begun_us = clock_now_us(&clock_system);
    copy.number = number;
    if (copy.slot != NULL)
        copy.slot->users++;
    if (copies->count++ == 0)
        copies->busy_since_us = copy.begun_us;
    *copy_at(copies, copies->first + copies->count - 1) = copy;
    return ST_OK;
}

enum status fabric_staging_copy(struct fabric *fabric, enum device_direction direction,
                                void *device, struct fabric_copy copy, struct error *error)
{
    const struct device_memory *memory = fabric->staging->device;
    enum status status = copies_room(&fabric->staging->copies[direction], error);
    if (status != ST_OK)
        return status;
    uint64_t number = memory->ops->copy(memory->self, direction, device, copy.memory, copy.bytes);
    return copy_queued(fabric, direction, number, copy, error);
}

enum status fabric_staging_copy_runs(struct fabric *fabric, const struct device_run *runs,
                                     uint32_t count, struct fabric_copy copy, uint64_t *number_out,
                                     struct error *error)
{
    const struct device_memory *memory = fabric->staging->device;
    enum status status = copies_room(&fabric->staging->copies[DEVICE_TO_PEER], error);
    if (status != ST_OK)
        return status;
    *number_out = memory->ops->copy_to_peer(memory->self, runs, count);
    return copy_queued(fabric, DEVICE_TO_PEER, *number_out, copy, error);
}

static void copy_done(struct fabric *fabric, enum device_direction direction)
{
    struct fabric_copies *copies = &fabric->staging->copies[direction];
    struct fabric_copy copy = *copy_at(copies, copies->first);
    copies->first++;
    copies->count--;
    copies->copy_counts.copies++;
    copies->copy_counts.bytes += copy.bytes;
    if (copies->count == 0)
        copies->copy_counts.busy_us += clock_now_us(&clock_system) - copies->busy_since_us;
    if (direction == HOST_TO_DEVICE)
        fabric->staging->landing_bytes -= copy.bytes;
    if (copy.link != NULL)
        fabric_link_copied(copy.link, &copy);
    if (copy.inbox != NULL)
        fabric_inbox_copied(copy.inbox, &copy);
    fabric_slot_drop(copy.slot);
}

static void copy_fail(const struct fabric_copy *copy, const char *text)
{
    if (copy->link != NULL && copy->link->device_failed == ST_OK)
        copy->link->device_failed = error_set(&copy->link->device_failure, ST_IO, "%s", text);
    if (copy->inbox != NULL)
        fabric_inbox_fail(copy->inbox, ST_IO, text);
}

/* The device has failed: no copy will be done, and none touches its slot any longer. */
static void copies_fail(struct fabric *fabric, enum device_direction direction, const char *text)
{
    struct fabric_copies *copies = &fabric->staging->copies[direction];
    for (; copies->count > 0; copies->first++, copies->count--) {
        struct fabric_copy *copy = copy_at(copies, copies->first);
        copy_fail(copy, text);
        if (direction == HOST_TO_DEVICE)
            fabric->staging->landing_bytes -= copy->bytes;
        if (copy->link != NULL)
            copy->link->copying_bytes -= copy->bytes;
        if (copy->inbox != NULL)
            fabric_inbox_copied(copy->inbox, NULL);
        fabric_slot_drop(copy->slot);
    }
}

static bool direction_progress(struct fabric *fabric, enum device_direction direction)
{
    const struct device_memory *device = fabric->staging->device;
    struct fabric_copies *copies = &fabric->staging->copies[direction];
    struct error error = {{0}};
    uint64_t done = 0;
    if (copies->count == 0)
        return false;
    if (device->ops->poll(device->self, direction, &done, &error) != ST_OK) {
        error_prefix(&error, "%s", device->name);
        copies_fail(fabric, direction, error.text);
        return true;
    }
    bool did = fabric_copies_oldest(copies) <= done;
    while (fabric_copies_oldest(copies) <= done)
        copy_done(fabric, direction);
    return did;
}

bool fabric_staging_progress(struct fabric *fabric)
{
    bool did = false;
    for (int i = 0; i < DEVICE_DIRECTIONS; i++)
        did = direction_progress(fabric, (enum device_direction)i) || did;
    if (fabric->staging->closing != NULL)
        fabric_imports_reap(fabric, false);
    for (struct fabric_link *link = fabric->links; link != NULL; link = link->next)
        if (link->staged)
            did = fabric_link_pump(link) || did;
    return did;
}

void fabric_staging_settle(struct fabric *fabric, const size_t *left)
{
    int64_t looked_us = clock_now_us(&clock_system);
    for (int64_t left_us = FABRIC_SETTLE_US; *left > 0 && left_us > 0;) {
        if (!fabric_staging_progress(fabric))
            sched_yield();
        const int64_t now_us = clock_now_us(&clock_system), took_us = now_us - looked_us;
        left_us -= took_us < FABRIC_SETTLE_STEP_US ? took_us : FABRIC_SETTLE_STEP_US;
        looked_us = now_us;
    }
}

bool fabric_staging_arm(struct fabric *fabric)
{
    const struct device_memory *device = fabric->staging->device;
    for (int i = 0; i < DEVICE_DIRECTIONS; i++) {
        struct fabric_copies *copies = &fabric->staging->copies[i];
        if (copies->count == 0 || copies->wake_number >= fabric_copies_oldest(copies))
            continue;
        copies->wake_number = copy_at(copies, copies->first + copies->count - 1)->number;
        device->ops->signal_when_done(device->self, (enum device_direction)i);
    }
    return !fabric_staging_full(fabric);
}

void fabric_staging_tick(struct fabric *fabric)
{
    struct fabric_staging *staging = fabric->staging;
    int64_t before_us = clock_now_us(&clock_system) - staging->copy_us;
    char text[128];
    snprintf(text, sizeof(text), "%s: a copy of KV is not done after %d ms", staging->device->name,
             (int)(staging->copy_us / 1000));
    (void)fabric_staging_progress(fabric); /* A copy is not late if only this process was paused. */
    for (int i = 0; i < DEVICE_DIRECTIONS; i++) {
        struct fabric_copies *copies = &staging->copies[i];
        for (uint64_t n = copies->first; n < copies->first + copies->count; n++)
            if (copy_at(copies, n)->begun_us < before_us)
                copy_fail(copy_at(copies, n), text);
    }
}

bool fabric_staging_full(const struct fabric *fabric)
{
    return fabric->staging->landing_bytes >= LANDING_BYTES_MAX;
}

void fabric_staging_forget(struct fabric *fabric, const struct fabric_link *link,
                           const struct fabric_inbox *inbox)
{
    for (int i = 0; i < DEVICE_DIRECTIONS && fabric->staging != NULL; i++) {
        struct fabric_copies *copies = &fabric->staging->copies[i];
        for (uint64_t n = copies->first; n < copies->first + copies->count; n++) {
            struct fabric_copy *copy = copy_at(copies, n);
            if (link != NULL && copy->link == link)
                copy->link = NULL;
            if (inbox != NULL && copy->inbox == inbox)
                copy->inbox = NULL;
        }
    }
}
