/* fake_plugin: the fake device as the library that a config's "cuda:N" opens (CLEAVE_CUDA_PLUGIN
 * names it), for whole clusters of processes. */
#include "compute/plugin.h"
#include "tests/device/fake_compute.h"

#include <stdlib.h>
#include <string.h>

static uint64_t option(const char *text, const char *name)
{
    const char *at = text != NULL ? strstr(text, name) : NULL;
    return at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;
}

__attribute__((constructor)) static void options_read(void)
{
    const char *text = getenv("CLEAVE_FAKE_DEVICE");
    fake_compute_options = (struct fake_memory_options){
        .delay_us = (uint32_t)option(text, "delay_us="),
        .fail_after = option(text, "fail_after="),
        .stick_after = option(text, "stick_after="),
        .room_bytes = option(text, "room_bytes="),
        .count = option(text, "count="),
        .hang = option(text, "hang=") != 0,
        .crash = option(text, "crash=") != 0,
        .alone = option(text, "alone=") != 0,
        .refuse = option(text, "refuse=") != 0,
        .garbage = option(text, "garbage=") != 0,
    };
}

__attribute__((visibility("default"))) extern const struct compute_plugin cleave_compute_plugin;
const struct compute_plugin cleave_compute_plugin = {COMPUTE_PLUGIN_ABI, COMPUTE_PLUGIN_OPS_BYTES,
                                                     sizeof(struct compute_options), CLEAVE_VERSION,
                                                     &fake_compute_ops};
