/* sim_state: see the header. */
#include "tests/scheduler/sim_state.h"

#include <stdio.h>

struct sched_rank sim_rank_of(const struct request *r)
{
    return (struct sched_rank){.key = r->key,
                               .weight = 1 + r->key,
                               .priority = r->priority,
                               .resumed = r->resumed,
                               .born_us = r->born_us,
                               .request_number = r->number};
}

void sim_dump(const struct sched_cluster *cluster, const struct machine *machines,
              const struct request *requests, const struct sched_cluster_options *options)
{
    for (uint32_t i = 0; i < SIM_MACHINES; i++) {
        const struct machine *m = &machines[i];
        struct sched_machine_view view;
        sched_cluster_view(cluster, i, &view);
        printf("machine %u %s%s home %s pool %s kv %u (%u mixed): %u prompts %u decodes, %u tokens "
               "pending, %u scheduled; %u of %u blocks free\n",
               i, view.up ? "up" : "down", view.draining ? " drains" : "", pool_name(view.home),
               pool_name(view.pool), (uint32_t)m->kv_tokens, (uint32_t)m->mixed_kv_tokens,
               view.prompts, view.decodes, (uint32_t)view.prompt_tokens_pending,
               (uint32_t)view.kv_tokens_scheduled, m->sim.blocks_free, m->sim.blocks);
    }
    for (uint32_t id = 0; id < SIM_REQUESTS; id++) {
        const struct request *r = &requests[id];
        if (r->state != GONE)
            printf("request %u %s%s generation %u: %u + %u, %u given, machines %d and %d%s%s\n", id,
                   r->state == WAITING ? "waits" : "is routed", r->resumed ? ", resumed" : "",
                   r->generation, r->prompt_tokens, r->wanted, r->answered, (int)r->prompt_machine,
                   (int)r->token_machine, r->prompt_sent ? ", prompt sent" : "",
                   r->prefilled ? ", moved" : "");
    }
    sim_options_print(options);
}
