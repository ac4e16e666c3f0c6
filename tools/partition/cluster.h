/* partition_cluster: describes the devices over which a model's layers may be split: kinds of
 * devices, kinds of hosts, the number of hosts of each kind, and the links. A cluster is made from
 * a cluster file (docs/partitioning.md), a hardware file, or a profile. `cleave partition`, `plan`
 * and `simulate` call the functions on their main thread. The caller owns the cluster, which points
 * to devices of a profile; the profile must outlive it. This part computes no times: cost.h
 * does. */
#ifndef TOOLS_PARTITION_CLUSTER_H
#define TOOLS_PARTITION_CLUSTER_H

#include "profile/profile.h"
#include "tools/partition/solver/partition.h"

/* A kind of device. */
struct cluster_kind {
    const struct profile_device *device;
    uint64_t memory_bytes; /* Usable memory of one device. */
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
    /* Between two devices of one host. Equals between_hosts if each host has one device. */
    struct cluster_link inside_host;
    struct cluster_link between_hosts; /* Equals inside_host if there is only one host. */
};

/* Reads a cluster file. Returns ST_INVALID, ST_TOO_LARGE or ST_IO; the error names the place in the
 * file, the value and what was wanted. */
enum status partition_cluster_load(const char *path, const struct profile *profile,
                                   struct partition_cluster *out, struct error *error);
/* As partition_cluster_load, for the text of a cluster file. name: the file's name in errors. */
enum status partition_cluster_parse(const char *text, size_t bytes, const char *name,
                                    const struct profile *profile, struct partition_cluster *out,
                                    struct error *error);

/* Reads a hardware file (tools/simulate/hardware.h) as a cluster of one host with the name `name`.
 * Uses only the file's keys "devices" and "links"/"inside". Returns the errors of
 * partition_cluster_load, except that a file that cannot be read gives ST_INVALID. */
enum status partition_cluster_of_machine(const char *path, const char *name,
                                         const struct profile *profile,
                                         struct partition_cluster *out, struct error *error);

/* Makes a cluster of the profile's hosts. Each host has one device of each kind that was measured
 * on it. Devices that were measured with several ranks are left out. Of a CPU that was measured
 * with several numbers of threads, only the measurement with the largest number is used. The link
 * inside a host is that of the first device's host. The link between hosts is the slowest of the
 * fastest links of each pair of hosts. ST_TOO_LARGE: too many hosts or kinds. ST_INVALID: the
 * profile has no device or lacks a link, or the latency between hosts is less than inside. */
enum status partition_cluster_of_profile(const struct profile *profile,
                                         struct partition_cluster *out, struct error *error);

/* Parses a number of bytes: "1000", or with a unit KiB to TiB, e.g. "8GiB". Returns false if the
 * text has another form, or if the number does not fit 64 bits. */
bool partition_size_parse(const char *text, uint64_t *out);

#endif
