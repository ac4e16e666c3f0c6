/* partition_cluster: the devices that a split may use: kinds of hosts, how many there are, what
 * each has, and the links. A JSON file (docs/partitioning.md), or what a profile was measured on.
 * Devices are those of a profile, which outlives the cluster. It computes no times. */
#ifndef SIMULATOR_PARTITION_CLUSTER_H
#define SIMULATOR_PARTITION_CLUSTER_H

#include "common/profile.h"
#include "scheduler/partition.h"

struct cluster_kind {
    const struct profile_device *device;
    uint64_t memory_bytes; /* that one may use: the file's, or the profile's */
};

struct cluster_link {
    double bandwidth_bytes_per_s;
    double latency_us;
};

struct partition_cluster {
    uint32_t kind_count;
    struct cluster_kind kinds[PARTITION_KINDS_MAX];
    uint32_t host_count; /* kinds of hosts */
    struct partition_host hosts[PARTITION_HOSTS_MAX];
    char host_names[PARTITION_HOSTS_MAX][LIMIT_ADDRESS_BYTES];
    struct cluster_link inside;
    struct cluster_link between;
};

/* An error names file, place, value and what was wanted. */
enum status partition_cluster_load(const char *path, const struct profile *profile,
                                   struct partition_cluster *out, struct error *error);
enum status partition_cluster_parse(const char *text, size_t bytes, const char *name,
                                    const struct profile *profile, struct partition_cluster *out,
                                    struct error *error);

/* One host: "devices", as those of a host, and "links"."inside" of a file of a kind of machine
 * (hardware.h), whose other keys are not looked at. */
enum status partition_cluster_of_machine(const char *path, const char *name,
                                         const struct profile *profile,
                                         struct partition_cluster *out, struct error *error);

/* The hosts of the profile with a device each of its kinds: of CPUs with several numbers of threads
 * the one with the most, since they are the same cores. */
enum status partition_cluster_of_profile(const struct profile *profile,
                                         struct partition_cluster *out, struct error *error);

/* "8GiB", "512MiB", "1000": bytes. */
bool partition_size_parse(const char *text, uint64_t *out);

#endif
