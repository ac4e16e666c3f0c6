/* plugin: opens backends that are separate libraries when a config names their device, so that the
 * program itself does not link CUDA. A plugin exports one symbol, COMPUTE_PLUGIN_SYMBOL, a struct
 * compute_plugin. Plugins built with other versions of these structs are refused. An opened plugin
 * is never closed. compute/device.c opens plugins, on the thread that opens the device; the plugin
 * (cuda/backend.cu) includes this header for struct compute_plugin. It opens no devices.
 *
 * If the environment variable CLEAVE_CUDA_PLUGIN is set and not empty, the library is the file that
 * this variable names. Otherwise it is libcleave-cuda.so beside the executable, or, if there is
 * none, in <prefix>/lib/cleave. */
#ifndef COMPUTE_PLUGIN_H
#define COMPUTE_PLUGIN_H

#include "compute/compute.h"

#include <stddef.h>
#include <stdint.h>

/* Increase this number with each change of compute.h, or of a header that it includes, that leaves
 * the sizes in struct compute_plugin as they are. */
#define COMPUTE_PLUGIN_ABI    4
#define COMPUTE_PLUGIN_SYMBOL "cleave_compute_plugin"
/* Bytes of struct compute_ops and of the tables of its abilities. */
#define COMPUTE_PLUGIN_OPS_BYTES                                                                   \
    (sizeof(struct compute_ops) + sizeof(struct compute_lanes_ops) +                               \
     sizeof(struct compute_latent_ops) + sizeof(struct compute_group_ops) +                        \
     sizeof(struct compute_experts_ops) + sizeof(struct compute_steps_ops) +                       \
     sizeof(struct compute_sampling_ops))

/* What a plugin exports. */
struct compute_plugin {
    uint32_t abi;           /* COMPUTE_PLUGIN_ABI. */
    uint32_t ops_bytes;     /* COMPUTE_PLUGIN_OPS_BYTES. */
    uint32_t options_bytes; /* sizeof(struct compute_options). */
    const char *version;    /* Release of cleave, for error texts. */
    const struct compute_ops *ops;
};

/* Opens the library. Returns ST_NOT_FOUND if no file is found or it cannot be read, ST_MISMATCH if
 * the file is no plugin, was built from other headers or lacks a function, ST_UNSUPPORTED if the
 * file cannot be loaded, for example because a library that it needs is missing. *ops_out stays
 * valid until the process ends. Any thread. */
enum status compute_plugin_open(const struct compute_ops **ops_out, struct error *error);

/* Returns true if no function is NULL in `ops` (except low_rank) and in the tables of the abilities
 * that `ops` has. */
bool compute_ops_complete(const struct compute_ops *ops);

#endif
