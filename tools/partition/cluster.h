/* partition_cluster: the devices over which a model's layers may be split: kinds of devices, kinds
 * of hosts, the number of hosts of each kind, and the links. A cluster is read from a cluster file
 * (docs/partitioning.md), from a hardware file, or taken from the profile. `cleave partition`,
 * `plan` and `simulate` read it on their main thread; it does not change afterwards. The devices
 * belong to a profile, which must outlive the cluster. This part computes no times: cost.h does. */
#ifndef TOOLS_PARTITION_CLUSTER_H
#define TOOLS_PARTITION_CLUSTER_H

#include "profile/profile.h"
#include "tools/partition/solver/partition.h"

/* A kind of device. */
struct cluster_kind {
    const struct profile_device *device;
    uint64_t memory_bytes; /* Usable memory, from the file or else from the profile. */
};

/* A link between two stages: between two devices of a host, or between two hosts. */
struct cluster_link {
    double bandwidth_bytes_per_s;
    double latency_us;
};

struct partition_cluster {
    uint32_t kind_count; /* Number of kinds of devices. */
    struct cluster_kind kinds[PARTITION_KINDS_MAX];
    uint32_t host_count; /* Number of kinds of hosts. */
    struct partition_host hosts[PARTITION_HOSTS_MAX];
    /* Name of each kind of host. */
    char host_names[PARTITION_HOSTS_MAX][LIMIT_ADDRESS_BYTES];
    /* Links between two devices of one host, and between two hosts. If no pipeline can use one of
     * the two, because there is one host or because each host has one device, it equals the other.
     */
    struct cluster_link inside_host;
    struct cluster_link between_hosts;
};

/* Read a cluster file, or its text. name: the file's name in errors. ST_INVALID, ST_TOO_LARGE,
 * ST_IO: the error names file, position in the file, value and what was wanted. */
enum status partition_cluster_load(const char *path, const struct profile *profile,
                                   struct partition_cluster *out, struct error *error);
enum status partition_cluster_parse(const char *text, size_t bytes, const char *name,
                                    const struct profile *profile, struct partition_cluster *out,
                                    struct error *error);

/* Reads a hardware file (tools/simulate/hardware.h) as a cluster of one host with the name `name`:
 * its keys "devices" and "links"/"inside". Other keys are ignored. Returns the errors of
 * partition_cluster_load, but ST_INVALID if the file cannot be read. */
enum status partition_cluster_of_machine(const char *path, const char *name,
                                         const struct profile *profile,
                                         struct partition_cluster *out, struct error *error);

/* Makes a cluster of the profile's hosts. Each host gets one device of each kind; devices that were
 * measured with several ranks are left out. If a CPU was measured with several numbers of threads,
 * the measurement with the largest number is used, because all of them use the same cores.
 * ST_TOO_LARGE: too many hosts or kinds. ST_INVALID: the profile has no device or lacks a link. */
enum status partition_cluster_of_profile(const struct profile *profile,
                                         struct partition_cluster *out, struct error *error);

/* Parses a number of bytes: "1000", or with a unit KiB to TiB, e.g. "8GiB". Returns false if the
 * text has another form, or if the number does not fit 64 bits. */
bool partition_size_parse(const char *text, uint64_t *out);

#endif
