/* fleet: see the header. */
#include "server/fleet/fleet.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void record_clear(struct fleet *f, uint32_t index)
{
    f->machines[index] = (struct fleet_machine){
        .index = index, .process = {.pidfd = -1, .ready_fd = -1, .keys_fd = -1, .batches_fd = -1}};
}

static void record_fill(struct fleet *f, uint32_t index, const struct config_machine *config)
{
    struct fleet_machine *machine = &f->machines[index];
    machine->config = *config;
    machine->home = config->pool;
    machine->phase = FLEET_SERVING;
    f->phase_counts[FLEET_SERVING]++;
}

enum status fleet_open(struct config *config, struct fleet **out)
{
    struct fleet *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++)
        record_clear(f, i);
    for (uint32_t i = 0; i < config->machine_count; i++)
        record_fill(f, i, &config->machines[i]);
    f->count = config->machine_count;
    config->machine_count = 0;
    *out = f;
    return ST_OK;
}

void fleet_close(struct fleet *f)
{
    free(f);
}

struct fleet_machine *fleet_next(const struct fleet *f, const struct fleet_machine *machine)
{
    for (uint32_t i = machine == NULL ? 0 : machine->index + 1; i < f->count; i++)
        if (fleet_machine_present(&f->machines[i]))
            return (struct fleet_machine *)&f->machines[i];
    return NULL;
}

struct fleet_machine *fleet_find(const struct fleet *f, const char *name)
{
    struct fleet_machine *m = fleet_next(f, NULL);
    while (m != NULL && strcmp(m->config.name, name) != 0)
        m = fleet_next(f, m);
    return m;
}

struct fleet_machine *fleet_add(struct fleet *f, const struct config_machine *config)
{
    uint32_t index = 0;
    assert(fleet_find(f, config->name) == NULL);
    while (index < f->count && fleet_machine_present(&f->machines[index]))
        index++;
    if (index == LIMIT_MACHINES)
        return NULL;
    if (index == f->count)
        f->count++;
    record_fill(f, index, config);
    return &f->machines[index];
}

void fleet_remove(struct fleet *f, struct fleet_machine *machine)
{
    assert(machine->process.pid == 0 && machine->connection.peer == NULL);
    fleet_member_set(f, machine, FLEET_MEMBER_NONE);
    f->phase_counts[machine->phase]--;
    record_clear(f, machine->index);
}

void fleet_phase_set(struct fleet *f, struct fleet_machine *machine, enum fleet_phase phase)
{
    /* [from] has a bit for each phase that may follow. */
    static const uint8_t legal[FLEET_PHASE_COUNT] = {
        [FLEET_SERVING] = 1 << FLEET_DRAINING | 1 << FLEET_LEAVING,
        [FLEET_DRAINING] = 1 << FLEET_SERVING | 1 << FLEET_LEAVING,
        [FLEET_LEAVING] = 1 << FLEET_SERVING | 1 << FLEET_ENDING,
    };
    if (machine->phase == phase)
        return;
    assert((legal[machine->phase] >> phase & 1) != 0);
    f->phase_counts[machine->phase]--;
    f->phase_counts[phase]++;
    machine->phase = phase;
}

void fleet_wants_end_set(struct fleet *f, struct fleet_machine *machine, bool wants_end)
{
    f->wants_end_count += (uint32_t)wants_end - (uint32_t)machine->connection.wants_end;
    machine->connection.wants_end = wants_end;
    machine->connection.end_granted = false;
}

void fleet_member_set(struct fleet *f, struct fleet_machine *machine, enum fleet_member member)
{
    f->expired_count += member == FLEET_MEMBER_EXPIRED;
    f->expired_count -= machine->member == FLEET_MEMBER_EXPIRED;
    machine->member = member;
}

void fleet_config_write(const struct fleet *f, struct config *out)
{
    out->machine_count = f->count;
    for (uint32_t i = 0; i < f->count; i++)
        out->machines[i] = f->machines[i].config;
}
