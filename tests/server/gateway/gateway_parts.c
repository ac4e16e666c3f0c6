/* gateway_parts: see the header. */
#include "tests/server/gateway/gateway_parts.h"

#include "tests/check.h"
#include "tests/transport/loopback.h"

#include <stdio.h>

static void machines_name(struct config *config, uint32_t count, char letter, enum pool pool)
{
    for (uint32_t i = 0; i < count; i++) {
        struct config_machine *m = &config->machines[config->machine_count++];
        snprintf(m->name, sizeof(m->name), "%c%u", letter, i);
        m->pool = pool;
        m->local = true;
    }
}

void gateway_parts_config(uint32_t prompt, uint32_t token, uint32_t mixed,
                          uint32_t queue_requests_max, struct config *out)
{
    out->scheduler.queue_requests_max = queue_requests_max;
    out->scheduler.wait_ms = 30000;
    out->scheduler.takeover_delay_ms = 5000;
    out->scheduler.batch_sequences_max = 256;
    out->scheduler.handover_tokens_min = 4;
    out->slo.tbt_ms = 50;
    out->kv.block_tokens = FAKE_BLOCK_TOKENS;
    out->kv.prefix_cache = true;
    machines_name(out, prompt, 'p', POOL_PROMPT);
    machines_name(out, token, 't', POOL_TOKEN);
    machines_name(out, mixed, 'm', POOL_MIXED);
}

void gateway_parts_open(struct config *config, struct clock *clock, struct fleet **fleet_out,
                        struct metrics **metrics_out, struct gateway **gateway_out)
{
    struct error error;
    CHECK(fleet_open(config, fleet_out) == ST_OK);
    CHECK(metrics_open(*fleet_out, "fake", NULL, metrics_out) == ST_OK);
    const struct gateway_options options = {.config = config,
                                            .fleet = *fleet_out,
                                            .clock = clock,
                                            .transport = &transport_loopback,
                                            .metadata_hash = FAKE_METADATA(FAKE_MODEL),
                                            .context_tokens = 4096,
                                            .metrics = *metrics_out};
    CHECK(gateway_open(&options, gateway_out, &error) == ST_OK);
}
