/* plugin: backends that are libraries of their own, opened when a config names their device: the
 * program links none of what they need. A plugin has one symbol, PLUGIN_SYMBOL, a struct
 * compute_plugin; it is refused if it was built from other headers. Once open it stays so.
 *
 * It is looked for as CLEAVE_CUDA_PLUGIN says (a file), else beside the executable, else in
 * <prefix>/lib/cleave. */
#ifndef COMPUTE_PLUGIN_H
#define COMPUTE_PLUGIN_H

#include "compute/compute.h"

#include <stddef.h>
#include <stdint.h>

/* One more with each change of compute.h or device_memory.h that the sizes below do not show. */
#define COMPUTE_PLUGIN_ABI    1
#define COMPUTE_PLUGIN_SYMBOL "cleave_compute_plugin"

struct compute_plugin {
    uint32_t abi;
    uint32_t ops_bytes; /* sizeof(struct compute_ops) */
    uint32_t options_bytes;
    const char *version; /* the program's, for people */
    const struct compute_ops *ops;
};

/* Opens libcleave-cuda.so, or says why not: ST_NOT_FOUND (there is none where it is looked for),
 * ST_MISMATCH (of another version), ST_UNSUPPORTED (it cannot be loaded: what it needs is not
 * there). Any thread. */
enum status compute_plugin_open(const struct compute_ops **ops_out, struct error *error);

#endif
