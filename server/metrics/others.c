/* metrics_others: the figures of other gateways on the same machines. */
#include "server/metrics/internal.h"

#include <stddef.h>

void metrics_gateway_name_set(struct metrics *m, const char *name)
{
    snprintf(m->gateway_name, sizeof(m->gateway_name), "%s", name);
}

void metrics_leads_set(struct metrics *m, bool leads)
{
    m->follows = !leads;
}

struct others_family {
    const char *name;
    const char *help;
    double (*value)(const struct message_others *others);
};

static double gateways(const struct message_others *others)
{
    return others->gateways;
}

static double prompts(const struct message_others *others)
{
    return others->prompts;
}

static double prompt_tokens(const struct message_others *others)
{
    return (double)others->prompt_tokens;
}

static double decodes(const struct message_others *others)
{
    return others->decodes;
}

static double kv_tokens(const struct message_others *others)
{
    return (double)others->kv_tokens;
}

static const struct others_family families[] = {
    {"cleave_machine_gateways", "Gateways that are connected to a machine, this one included.",
     gateways},
    {"cleave_machine_others_prompts",
     "Other gateways' prompts that a machine has not computed yet.", prompts},
    {"cleave_machine_others_prompt_tokens",
     "Other gateways' prompt tokens that a machine has not computed yet.", prompt_tokens},
    {"cleave_machine_others_decodes", "Other gateways' answers on a machine, running or reserved.",
     decodes},
    {"cleave_machine_others_kv_tokens",
     "KV memory, in tokens, that other gateways' requests may fill.", kv_tokens},
};

void metrics_others_render(struct text *out, const struct metrics *m)
{
    metrics_family(out, "cleave_gateway_info", "gauge",
                   "Always 1. name: this gateway's name, as machines know it.");
    text_string_add(out, "cleave_gateway_info");
    metrics_label_add(out, "{", "name", m->gateway_name);
    text_string_add(out, "} 1\n");
    metrics_family(
        out, "cleave_gateway_leads", "gauge",
        "1 while this gateway is the leader, which alone repurposes machines (scheduling.md).");
    text_format_add(out, "cleave_gateway_leads %d\n", m->follows ? 0 : 1);
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        metrics_family(out, families[f].name, "gauge", families[f].help);
        for (const struct fleet_machine *machine = fleet_next(m->fleet, NULL); machine != NULL;
             machine = fleet_next(m->fleet, machine))
            if (machine->others.gateways > 0)
                metrics_machine_sample(out, m, families[f].name, machine->index,
                                       families[f].value(&machine->others));
    }
}
