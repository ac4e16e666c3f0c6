/* serve_machines: adds and removes machines while others serve. A machine keeps its index, by which
 * all parts know it. A removed machine leaves a free entry in the config, which the next new
 * machine uses:
 *
 *   remove ─► drains ─► (it has no requests left) ─► its process is asked to end
 *          ─► (it has ended) ─► free entry
 */
#include "server/serve_internal.h"

#include <assert.h>

enum status serve_machine_add(struct serve *s, const struct config_machine *machine,
                              uint32_t version, struct error *error)
{
    struct config *config = s->config;
    uint32_t slot = 0;
    assert(config_machine_find(config, machine->name) < 0);
    while (slot < config->machine_count && config_machine_present(config, slot))
        slot++;
    if (slot == LIMIT_MACHINES)
        return error_set(error, ST_NO_RESOURCE,
                         "machine %s: there are %d already, those that are leaving included",
                         machine->name, LIMIT_MACHINES);
    config->machines[slot] = *machine;
    s->gone_count -= s->members[slot].gone ? 1 : 0;
    s->members[slot] = (struct serve_member){.is = false};
    if (slot == config->machine_count)
        config->machine_count++;
    log_info("machine %s is added to pool %s", machine->name, pool_name(machine->pool));
    s->machine_versions[slot] = machine->local ? version : 0;
    if (machine->local) {
        gateway_machine_version_set(s->gateway, slot, version);
        launcher_machine_start(s->launcher, slot);
    } else {
        gateway_machine_address(s->gateway, slot, machine->address);
    }
    s->hurry = true;
    return ST_OK;
}

void serve_machine_remove(struct serve *s, uint32_t machine)
{
    log_info("machine %s is taken out: drains", s->config->machines[machine].name);
    gateway_machine_drain(s->gateway, machine, true);
    machine_bits_put(&s->removing, machine, true);
    s->hurry = true;
}

bool serve_machine_keep(struct serve *s, uint32_t machine)
{
    if (machine_bits_has(&s->ending, machine))
        return false;
    machine_bits_put(&s->removing, machine, false);
    gateway_machine_drain(s->gateway, machine, false);
    return true;
}

void serve_machine_pool(struct serve *s, uint32_t machine, enum pool pool)
{
    s->config->machines[machine].pool = pool;
    gateway_machine_home(s->gateway, machine);
}

bool serve_machine_leaving(const struct serve *s, uint32_t machine)
{
    return machine_bits_has(&s->removing, machine);
}

/* Ends a leaving machine whose requests have ended. */
static void end(struct serve *s, uint32_t machine)
{
    struct config_machine *entry = &s->config->machines[machine];
    if (!machine_bits_has(&s->ending, machine) && entry->local) {
        gateway_machine_shutdown(s->gateway, machine);
        launcher_machine_stop(s->launcher, machine);
        machine_bits_put(&s->ending, machine, true);
    }
    if (entry->local && launcher_machine_running(s->launcher, machine))
        return;
    log_info("machine %s is no longer of this cluster", entry->name);
    gateway_machine_forget(s->gateway, machine);
    s->machine_versions[machine] = 0;
    *entry = (struct config_machine){.name = ""};
    machine_bits_put(&s->removing, machine, false);
    machine_bits_put(&s->ending, machine, false);
}

void serve_machines_turn(struct serve *s)
{
    if (machine_bits_empty(&s->removing))
        return;
    for (uint32_t machine = 0; machine < s->config->machine_count; machine++)
        if (machine_bits_has(&s->removing, machine) && gateway_machine_idle(s->gateway, machine))
            end(s, machine);
}
