/* partition_cluster: describes the hosts and devices over which a model's layers may be split, and
 * the links between them. A cluster is made from a cluster file (docs/partitioning.md), a hardware
 * file, or a profile. `cleave partition`, `plan` and `simulate` call the functions on the main
 * thread. The caller owns the cluster, which points to devices of a profile; the profile must
 * outlive the cluster. This part computes no times: cost.h does. */
#ifndef TOOLS_PARTITION_CLUSTER_H
#define TOOLS_PARTITION_CLUSTER_H

#include "profile/profile.h"
#include "tools/partition/solver/partition.h"

/* A kind of device. */
struct cluster_kind {
    const struct profile_device *device;
    uint64_t memory_bytes; /* Usable memory of one device. */
};

/* A link between two devices. */
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
    /* Between two devices of one host. Equals between_hosts if each host has one device. */
    struct cluster_link inside_host;
    struct cluster_link between_hosts; /* Equals inside_host if there is only one host. */
};

/* Reads a cluster file. Links that the file does not give are taken from the profile. ST_IO: the
 * file cannot be read. ST_INVALID: the text or a value is wrong, or a link is missing.
 * ST_TOO_LARGE: too many kinds of devices. ST_NO_MEMORY: memory runs out. The error names
 * the file. */
enum status partition_cluster_load(const char *path, const struct profile *profile,
                                   struct partition_cluster *out, struct error *error);
/* Does what partition_cluster_load does, for a text. name: the file's name in errors. */
enum status partition_cluster_parse(const char *text, size_t bytes, const char *name,
                                    const struct profile *profile, struct partition_cluster *out,
                                    struct error *error);

/* Reads a hardware file (tools/simulate/hardware.h) as a cluster of one host with the name `name`.
 * Uses the file's keys "devices" and "links". Returns the errors of partition_cluster_load. */
enum status partition_cluster_of_machine(const char *path, const char *name,
                                         const struct profile *profile,
                                         struct partition_cluster *out, struct error *error);

/* Makes a cluster of the profile's hosts. Each host has one device of each kind that was measured
 * on the host. Measurements with several ranks or beside busy devices are left out. If a CPU was
 * measured with several numbers of threads, the measurement with the most threads is used.
 *
 * Every link inside a host is as fast as the link inside the first device's host. Every link
 * between hosts is as fast as the link between the pair of hosts with the slowest link; if a pair
 * has several links, its fastest link counts. ST_TOO_LARGE: too many hosts or kinds of devices.
 * ST_INVALID: the profile has no device that can be used or lacks a link that is needed, or a link
 * inside a host has more latency than a link between hosts. */
enum status partition_cluster_of_profile(const struct profile *profile,
                                         struct partition_cluster *out, struct error *error);

/* Parses a number of bytes: "1000", or with a unit from KiB to TiB, e.g. "8GiB". Returns false if
 * the text has another form or the number does not fit 64 bits. */
bool partition_size_parse(const char *text, uint64_t *out);

#endif
