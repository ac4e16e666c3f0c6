/* energy: the energy that the CPUs of this computer have used, as their own meters say (RAPL of
 * Intel and AMD, in Linux's powercap folder), or that one GPU has used (nvml.h). A machine's process
 * opens one struct energy at its start and reads it on the same thread. Often there is no meter to
 * read: virtual machines have none for CPUs, and the kernel lets only root read it. The energy is
 * then unknown; this is no error. Memory, disks and losses of the power supply are not measured.
 * power_limit.h limits the power. */
#ifndef HOST_ENERGY_H
#define HOST_ENERGY_H

#include "host/nvml.h"

#include <stdbool.h>
#include <stdint.h>

#define ENERGY_FOLDER       "/sys/class/powercap"
#define ENERGY_PACKAGES_MAX 16
#define ENERGY_NAME_BYTES   32

/* The meter of one CPU package. It counts from 0 to `greatest_uj` microjoules, then again from 0. */
struct energy_package {
    int fd; /* The open file energy_uj. */
    uint64_t greatest_uj;
    uint64_t latest_uj; /* What the meter showed at the latest reading. */
};

struct energy {
    struct energy_package packages[ENERGY_PACKAGES_MAX];
    uint32_t package_count; /* 0 = the energy of the CPUs is not known. */
    struct nvml gpu;        /* All zeros = the energy of no GPU is known. */
    uint64_t gpu_latest_uj; /* What the GPU's meter showed at the latest reading. */
    uint64_t used_uj;       /* From energy_open or energy_open_gpu to the latest reading. */
};

/* Reads a file that holds one number, from its beginning. Returns false, with errno, if the file
 * cannot be read or holds something else (EINVAL). */
bool energy_number_read(int fd, uint64_t *out);
/* Writes the names of the folders of the CPU packages in `folder`, such as "intel-rapl:0", to
 * `names`, in any order. Returns their number; 0 = there are none, or too many. */
uint32_t energy_packages(const char *folder, char names[ENERGY_PACKAGES_MAX][ENERGY_NAME_BYTES]);

/* Opens the meters of all packages in `folder` (ENERGY_FOLDER). If one of them cannot be read, none
 * is opened. The caller closes *out with energy_close. */
void energy_open(const char *folder, struct energy *out);
/* Opens the meter of a GPU, such as "cuda:0" (nvml_open). The caller closes *out. */
void energy_open_gpu(const char *device, struct energy *out);
/* Whether a meter is open. */
bool energy_known(const struct energy *e);
/* Reads the meters. Returns the microjoules that have been used since the meters were opened; 0 =
 * unknown. Call it at least once in the time in which a meter begins anew, about a minute at full
 * power: a second round is not noticed. If a meter cannot be read, its energy until the next
 * reading is missing. */
uint64_t energy_used_uj(struct energy *e);
void energy_close(struct energy *e);

#endif
