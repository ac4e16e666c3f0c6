/* A plugin that was built with other headers, like an old plugin that was left in its folder. */
#include "compute/plugin.h"

extern const struct compute_plugin cleave_compute_plugin;
const struct compute_plugin cleave_compute_plugin = {
    .abi = COMPUTE_PLUGIN_ABI,
    .ops_bytes = COMPUTE_PLUGIN_OPS_BYTES - sizeof(void *),
    .options_bytes = sizeof(struct compute_options),
    .version = "0.0.1",
    .ops = &compute_cpu,
};

const struct compute_ops compute_cpu = {.name = "other"};
