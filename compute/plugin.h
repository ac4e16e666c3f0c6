/* plugin: opens backends that are separate libraries when a config names their device, so that the
 * program itself does not link CUDA. A plugin exports one symbol, COMPUTE_PLUGIN_SYMBOL, a struct
 * compute_plugin. A plugin that was built from other headers is refused. An opened plugin is never
 * closed. Only compute/device.c opens plugins, on the thread that opens the device; the plugin
 * itself (cuda/backend.cu) includes this header for struct compute_plugin. It opens no devices.
 *
 * If the environment variable CLEAVE_CUDA_PLUGIN is set, the library is the file that it names.
 * Otherwise it is libcleave-cuda.so beside the executable, else in <prefix>/lib/cleave. */
#ifndef COMPUTE_PLUGIN_H
#define COMPUTE_PLUGIN_H

#include "compute/compute.h"

#include <stddef.h>
#include <stdint.h>

/* Increase it with each change of compute.h or device_memory.h that the sizes in struct
 * compute_plugin do not show. */
#define COMPUTE_PLUGIN_ABI    2
#define COMPUTE_PLUGIN_SYMBOL "cleave_compute_plugin"
/* Bytes of struct compute_ops and of its tables of abilities. */
#define COMPUTE_PLUGIN_OPS_BYTES                                                                   \
    (sizeof(struct compute_ops) + sizeof(struct compute_lanes_ops) +                               \
     sizeof(struct compute_group_ops) + sizeof(struct compute_steps_ops) +                         \
     sizeof(struct compute_sampling_ops))

/* What a plugin exports. */
struct compute_plugin {
    uint32_t abi;           /* COMPUTE_PLUGIN_ABI. */
    uint32_t ops_bytes;     /* COMPUTE_PLUGIN_OPS_BYTES. */
    uint32_t options_bytes; /* sizeof(struct compute_options). */
    const char *version;    /* Release of cleave, for error texts. */
    const struct compute_ops *ops;
};

/* Opens libcleave-cuda.so. ST_NOT_FOUND: no such file. ST_MISMATCH: it is no plugin, was built from
 * other headers, or lacks a function. ST_UNSUPPORTED: it cannot be loaded, for example because a
 * library that it needs is missing. *ops_out stays valid until the process ends. Any thread. */
enum status compute_plugin_open(const struct compute_ops **ops_out, struct error *error);

/* True if no function of `ops`, and of each ability that `ops` has, is NULL. */
bool compute_ops_complete(const struct compute_ops *ops);

#endif
