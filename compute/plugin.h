/* plugin: loads a backend that is a separate library, so that the program itself does not link
 * CUDA. device.c loads the plugin when a device name asks for a GPU; the plugin (cuda/backend.cu)
 * includes this header for struct compute_plugin. Plugins with another interface
 * (COMPUTE_PLUGIN_ABI, sizes of tables) are refused. A loaded plugin stays loaded until the process
 * ends. This part opens no devices (compute_ops.open does). Any thread.
 *
 * If the environment variable CLEAVE_CUDA_PLUGIN is set and not empty, the library is the file that
 * this variable names. Otherwise the library is libcleave-cuda.so in the folder of the executable
 * or, if that folder does not have the file, in <prefix>/<libdir>/cleave (Meson's options). */
#ifndef COMPUTE_PLUGIN_H
#define COMPUTE_PLUGIN_H

#include "compute/compute.h"

#include <stddef.h>
#include <stdint.h>

/* Increase this number with each change of compute.h, or of a header that compute.h includes,
 * unless the change also changes ops_bytes or options_bytes of struct compute_plugin. */
#define COMPUTE_PLUGIN_ABI    4
#define COMPUTE_PLUGIN_SYMBOL "cleave_compute_plugin"
/* Bytes of struct compute_ops and of the tables of its abilities. */
#define COMPUTE_PLUGIN_OPS_BYTES                                                                   \
    (sizeof(struct compute_ops) + sizeof(struct compute_lanes_ops) +                               \
     sizeof(struct compute_latent_ops) + sizeof(struct compute_group_ops) +                        \
     sizeof(struct compute_experts_ops) + sizeof(struct compute_steps_ops) +                       \
     sizeof(struct compute_sampling_ops))

/* What a plugin exports, by the name COMPUTE_PLUGIN_SYMBOL. */
struct compute_plugin {
    uint32_t abi;           /* COMPUTE_PLUGIN_ABI. */
    uint32_t ops_bytes;     /* COMPUTE_PLUGIN_OPS_BYTES. */
    uint32_t options_bytes; /* sizeof(struct compute_options). */
    const char *version;    /* Release of cleave, for error texts. */
    const struct compute_ops *ops;
};

/* Loads the library. Returns ST_NOT_FOUND if no file is found or the file cannot be read;
 * ST_MISMATCH if the file is no plugin, has another interface or lacks a function; or
 * ST_UNSUPPORTED if the file cannot be loaded, for example because a library that the plugin needs
 * is missing. *ops_out stays valid until the process ends. */
enum status compute_plugin_open(const struct compute_ops **ops_out, struct error *error);

/* Returns true if no function is NULL in `ops` (except low_rank) and in the tables of the abilities
 * that `ops` has. */
bool compute_ops_complete(const struct compute_ops *ops);

#endif
