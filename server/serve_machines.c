/* serve_machines: adds and removes machines while others serve:
 *
 *   remove ─► drains ─► (it has no requests left) ─► its process is asked to end
 *          ─► (it has ended) ─► free record
 */
#include "server/serve_internal.h"

struct fleet_machine *serve_machine_add(struct serve *s, const struct config_machine *config,
                                        uint32_t version, struct error *error)
{
    struct fleet_machine *m = fleet_add(s->fleet, config);
    if (m == NULL) {
        error_set(error, ST_NO_RESOURCE,
                  "machine %s: there are %d already, including machines that are leaving",
                  config->name, LIMIT_MACHINES);
        return NULL;
    }
    log_info("machine %s is added to pool %s", config->name, pool_name(config->pool));
    gateway_machine_add(s->gateway, m, config->local ? version : 0);
    if (config->local)
        launcher_machine_start(s->launcher, m);
    else
        gateway_machine_address_set(s->gateway, m, config->address);
    s->work_pending = true;
    return m;
}

void serve_machine_remove(struct serve *s, struct fleet_machine *m)
{
    log_info("machine %s is removed: it drains first", m->config.name);
    gateway_machine_phase_set(s->gateway, m, FLEET_LEAVING);
    s->work_pending = true;
}

bool serve_machine_keep(struct serve *s, struct fleet_machine *m)
{
    if (m->phase == FLEET_ENDING)
        return false;
    gateway_machine_phase_set(s->gateway, m, FLEET_SERVING);
    return true;
}

/* Ends a leaving machine whose requests have ended. */
static void leaving_end(struct serve *s, struct fleet_machine *m)
{
    if (m->phase == FLEET_LEAVING && m->config.local) {
        gateway_machine_shutdown(s->gateway, m);
        launcher_machine_stop(s->launcher, m);
        gateway_machine_phase_set(s->gateway, m, FLEET_ENDING);
    }
    if (m->process.pid != 0)
        return;
    log_info("machine %s has left the cluster", m->config.name);
    gateway_machine_remove(s->gateway, m);
}

void serve_machines_turn(struct serve *s)
{
    if (!fleet_any_leaving(s->fleet))
        return;
    for (struct fleet_machine *m = fleet_next(s->fleet, NULL); m != NULL;
         m = fleet_next(s->fleet, m))
        if (fleet_machine_leaving(m) && gateway_machine_idle(s->gateway, m))
            leaving_end(s, m);
}
