/* Goal: the fleet's table finds, adds and removes machines, keeps their indices, and counts their
 * phases. Method: random operations against a plain list of names with a phase each; the operations
 * include only legal changes of phases. */
#include "common/random.h"
#include "server/fleet/fleet.h"
#include "tests/check.h"

#include <string.h>

#define NAMES 12
#define STEPS 20000

static uint64_t seed, drawn;

static uint32_t draw(uint32_t count)
{
    return (uint32_t)(random_at(seed, drawn++) % count);
}

struct plain {
    bool present;
    uint32_t index;
    enum fleet_phase phase;
    bool expired;
};

static struct config_machine machine_named(uint32_t name)
{
    struct config_machine machine = {.pool = (enum pool)(name % POOL_COUNT)};
    snprintf(machine.name, sizeof(machine.name), "m%u", name);
    return machine;
}

/* Adds the machine at the lowest free index. */
static void add(struct fleet *f, struct plain *plain, uint32_t name)
{
    bool used[NAMES] = {false};
    uint32_t lowest = 0;
    for (uint32_t i = 0; i < NAMES; i++)
        if (plain[i].present)
            used[plain[i].index] = true;
    while (used[lowest])
        lowest++;
    struct config_machine config = machine_named(name);
    struct fleet_machine *m = fleet_add(f, &config);
    CHECK(m != NULL && m->index == lowest && m->home == config.pool && m->process.pidfd == -1);
    plain[name] = (struct plain){.present = true, .index = lowest, .phase = FLEET_SERVING};
}

static void step(struct fleet *f, struct plain *plain)
{
    uint32_t name = draw(NAMES);
    struct plain *p = &plain[name];
    if (!p->present) {
        add(f, plain, name);
        return;
    }
    struct fleet_machine *m = &f->machines[p->index];
    enum fleet_phase next = (enum fleet_phase)(FLEET_SERVING + draw(4));
    if (draw(4) == 0) {
        p->expired = draw(2) == 0;
        fleet_member_set(f, m, p->expired ? FLEET_MEMBER_EXPIRED : FLEET_MEMBER_REGISTERED);
    } else if (p->phase >= FLEET_LEAVING && draw(2) == 0) {
        fleet_remove(f, m);
        p->present = false;
    } else if (p->phase < FLEET_LEAVING ? next < FLEET_ENDING
                                        : p->phase == FLEET_LEAVING && next != FLEET_DRAINING) {
        fleet_phase_set(f, m, next);
        p->phase = next;
    }
}

static void compare(const struct fleet *f, const struct plain *plain)
{
    uint32_t present = 0, draining = 0, leaving = 0, expired = 0, seen = 0;
    for (uint32_t name = 0; name < NAMES; name++) {
        struct config_machine config = machine_named(name);
        const struct fleet_machine *m = fleet_find(f, config.name);
        CHECK((m != NULL) == plain[name].present);
        if (m == NULL)
            continue;
        CHECK(m->index == plain[name].index && m->phase == plain[name].phase);
        CHECK(fleet_machine_draining(m) == (m->phase >= FLEET_DRAINING));
        present++;
        draining += fleet_machine_draining(m);
        leaving += fleet_machine_leaving(m);
        expired += plain[name].expired;
    }
    for (const struct fleet_machine *m = fleet_next(f, NULL), *last = NULL; m != NULL;
         m = fleet_next(f, m)) {
        CHECK(last == NULL || last->index < m->index);
        CHECK(strcmp(fleet_name(f, m->index), m->config.name) == 0);
        last = m;
        seen++;
    }
    CHECK(seen == present && fleet_present_count(f) == present && f->expired_count == expired);
    CHECK(fleet_any_draining(f) == (draining > 0) && fleet_any_leaving(f) == (leaving > 0));
}

/* The fleet takes the machines out of the config, and writes them back with its holes. */
static void test_config(void)
{
    static struct config config, written;
    struct fleet *f;
    config.machine_count = 3;
    for (uint32_t i = 0; i < 3; i++)
        config.machines[i] = machine_named(i);
    CHECK(fleet_open(&config, &f) == ST_OK && config.machine_count == 0 && f->count == 3);
    fleet_phase_set(f, &f->machines[1], FLEET_LEAVING);
    fleet_remove(f, &f->machines[1]);
    fleet_config_write(f, &written);
    CHECK(written.machine_count == 3 && !config_machine_present(&written, 1));
    CHECK(config_machine_find(&written, "m2") == 2 && fleet_find(f, "m1") == NULL);
    CHECK(strcmp(fleet_name(f, 99), "?") == 0);
    fleet_close(f);
}

int main(void)
{
    static struct config config;
    struct plain plain[NAMES] = {{false}};
    struct fleet *f;
    seed = test_seed();
    test_config();
    CHECK(fleet_open(&config, &f) == ST_OK);
    for (int i = 0; i < STEPS; i++) {
        step(f, plain);
        compare(f, plain);
    }
    fleet_close(f);
    return 0;
}
