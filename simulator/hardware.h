/* hardware: a kind of machine, as a file of deploy/hardware/ describes it: what it costs, how much
 * power it takes, its memory and link, and where its times are: rows of a table of measurements, a
 * device of a profile, or several devices of a profile, over which its layers are split
 * (machine_split.h). Read once, then constant. */
#ifndef SIMULATOR_HARDWARE_H
#define SIMULATOR_HARDWARE_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct hardware {
    char name[32];
    char description[128];
    uint64_t memory_bytes;    /* for weights and KV; 0: not said */
    uint64_t kv_memory_bytes; /* for KV alone; 0: what the weights leave of memory_bytes */
    double cost_per_hour;     /* 0: not said */
    double power;             /* in a unit that all files share; 0: not said */
    double link_bytes_per_s;  /* to send and to receive KV; 0: the profile's */
    char table[32];           /* "hardware" in the table; empty: a profile has the times */
    uint32_t tensor_parallel; /* … with this one */
    char device[32];          /* of the profile … */
    uint32_t threads;         /* … with so many threads */
    bool has_devices;         /* … or several: partition_cluster_of_machine reads them */
    bool has_links;
    uint64_t workspace_bytes; /* … that each needs besides weights and KV; 0: the default */
};

/* An error names file, key and what was wanted. */
enum status hardware_read(const char *path, struct hardware *out, struct error *error);

#endif
