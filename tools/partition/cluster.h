/* partition_cluster: the devices that a layer split may use: the kinds of hosts, how many hosts of
 * each kind, their devices, and the links. Read from a JSON file (docs/partitioning.md), or taken
 * from the profile. The devices are those of a profile, which must outlive the cluster. This part
 * computes no times. */
#ifndef TOOLS_PARTITION_CLUSTER_H
#define TOOLS_PARTITION_CLUSTER_H

#include "profile/profile.h"
#include "tools/partition/solver/partition.h"

struct cluster_kind {
    const struct profile_device *device;
    uint64_t memory_bytes; /* Usable memory, from the file or else from the profile. */
};

struct cluster_link {
    double bandwidth_bytes_per_s;
    double latency_us;
};

struct partition_cluster {
    uint32_t kind_count;
    struct cluster_kind kinds[PARTITION_KINDS_MAX];
    uint32_t host_count; /* Number of kinds of hosts. */
    struct partition_host hosts[PARTITION_HOSTS_MAX];
    char host_names[PARTITION_HOSTS_MAX][LIMIT_ADDRESS_BYTES];
    struct cluster_link inside;
    struct cluster_link between;
};

/* Read a cluster file, or its text. ST_INVALID, ST_TOO_LARGE, ST_IO: the error names file, position
 * in the file, value and what was wanted. */
enum status partition_cluster_load(const char *path, const struct profile *profile,
                                   struct partition_cluster *out, struct error *error);
enum status partition_cluster_parse(const char *text, size_t bytes, const char *name,
                                    const struct profile *profile, struct partition_cluster *out,
                                    struct error *error);

/* Reads a hardware file (hardware.h) as a cluster of one host: its keys "devices" and
 * "links"."inside". Other keys are ignored. */
enum status partition_cluster_of_machine(const char *path, const char *name,
                                         const struct profile *profile,
                                         struct partition_cluster *out, struct error *error);

/* Makes a cluster of the profile's hosts. Each host gets one device of each kind. For a CPU that
 * was measured with several numbers of threads, the largest number is used, since the cores are the
 * same. */
enum status partition_cluster_of_profile(const struct profile *profile,
                                         struct partition_cluster *out, struct error *error);

/* Parses a number of bytes: "1000", or with a unit KiB to TiB, e.g. "8GiB". False: wrong text. */
bool partition_size_parse(const char *text, uint64_t *out);

#endif
