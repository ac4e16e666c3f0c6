/* hardware: a kind of machine, as described by a file such as those in deploy/hardware/: cost,
 * power, memory, link, and the source of its times. The times come from the rows of a table of
 * measurements (cost_table.h), from a device of a profile, or from several devices of a profile,
 * over which the layers are split (machine_split.h). `cleave simulate` and `cleave plan` own the
 * struct, and call the functions on the main thread; after that the struct is constant. This part
 * reads no times and no lists of devices. */
#ifndef TOOLS_SIMULATE_HARDWARE_H
#define TOOLS_SIMULATE_HARDWARE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct hardware {
    char name[32];
    char description[128];
    uint64_t memory_bytes; /* Memory for weights and KV; 0 = not given. */
    /* Memory for KV alone; 0 = what the weights leave of memory_bytes; if memory_bytes is 0 too,
     * kv/memory of the config. */
    uint64_t kv_memory_bytes;
    double cost_per_hour;    /* 0 = not given. */
    double power;            /* In the unit of all files, or the profile's watts; 0 = not given. */
    double link_bytes_per_s; /* Rate at which KV is sent and received; 0 = not given. */
    /* Value of the table's column "hardware"; empty = the times come from a profile. */
    char table_hardware[32];
    /* Number of ranks. With a table: > 0. With a device of a profile: 0 counts as 1. With several
     * devices: 0. */
    uint32_t tensor_parallel;
    char device[32];  /* Kind of the profile's device; empty = a table, or several devices. */
    uint32_t threads; /* Threads of the profile's device; 0 = not given. */
    char host[LIMIT_ADDRESS_BYTES]; /* Host of the profile's device; empty = any. */
    /* The machine has several devices; partition_cluster_of_machine reads them. */
    bool has_devices;
    bool has_links; /* The file has links between the devices. */
    /* Memory that each of several devices needs besides weights and KV; 0 = the default. */
    uint64_t workspace_bytes;
};

/* Finds a hardware file and stores its path. If there is no file at a relative `path`, looks up the
 * last part of `path` in share/cleave/hardware of the installed program, with ".json" added if it
 * is missing: "h100" and "deploy/hardware/h100.json" both mean share/cleave/hardware/h100.json. If
 * no file is found, stores `path`. */
void hardware_find(const char *path, char out[LIMIT_PATH_BYTES]);
/* Reads the file into *out, which stays as it is on an error. Returns ST_IO if the file cannot
 * be read, ST_INVALID if it is wrong, or ST_NO_MEMORY. The error names the file, and says what is
 * wrong. */
enum status hardware_read(const char *path, struct hardware *out, struct error *error);

#endif
