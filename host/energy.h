/* energy: reads how much energy the CPUs of this host have used, from their own meters (RAPL of
 * Intel and AMD, in Linux's powercap folder), or how much energy one GPU has used (nvml.h). A
 * machine's process opens at most one struct energy, at its start, and reads it on the same thread;
 * `cleave profile` also uses this part. Often no meter can be read: virtual machines have no meters
 * of CPUs, and the kernel lets only root read such meters. The energy is then unknown, which is no
 * error. This part does not measure memory, disks and losses of the power supply, and does not
 * limit the power (power_limit.h does). */
#ifndef HOST_ENERGY_H
#define HOST_ENERGY_H

#include "host/nvml.h"

#include <stdbool.h>
#include <stdint.h>

#define ENERGY_FOLDER       "/sys/class/powercap"
#define ENERGY_PACKAGES_MAX 16
#define ENERGY_NAME_BYTES   32

/* The meter of one CPU package, which counts microjoules. After greatest_uj, the count restarts at
 * 0. */
struct energy_package {
    int fd; /* The open file energy_uj. */
    uint64_t greatest_uj;
    uint64_t latest_uj; /* The count at the latest reading. */
};

struct energy {
    struct energy_package packages[ENERGY_PACKAGES_MAX];
    uint32_t package_count; /* Number of open meters of CPU packages; 0 = none. */
    struct nvml gpu;        /* The GPU with an open meter; all zeros = none. */
    uint64_t gpu_latest_uj; /* Count of the GPU's meter at the latest reading. */
    uint64_t used_uj;       /* Energy used between the opening and the latest reading. */
};

/* Reads the number at the beginning of a file. Returns false, with errno set, if the file cannot be
 * read or does not hold one number (EINVAL). */
bool energy_number_read(int fd, uint64_t *out);
/* Stores the names of the CPU packages' folders in `folder`, such as "intel-rapl:0", in any order.
 * Returns the number of names; 0 = there are none, more than ENERGY_PACKAGES_MAX, or a name that is
 * too long. */
uint32_t energy_packages(const char *folder, char names[ENERGY_PACKAGES_MAX][ENERGY_NAME_BYTES]);

/* Opens the meters of all CPU packages in `folder` (ENERGY_FOLDER). If one meter cannot be read,
 * opens no meter. The caller closes *out with energy_close. */
void energy_open(const char *folder, struct energy *out);
/* Opens the meter of the GPU `device`, such as "cuda:0" (nvml_open). If the meter cannot be read,
 * opens no meter. The caller closes *out with energy_close. */
void energy_open_gpu(const char *device, struct energy *out);
/* Returns true if a meter is open. */
bool energy_known(const struct energy *e);
/* Reads the meters. Returns the microjoules that were used since the meters were opened; 0 if no
 * meter is open. Call this function before a meter of a CPU package has counted greatest_uj since
 * the latest reading (about a minute at full power): only one restart of the count is noticed. If a
 * meter cannot be read, its energy is added at the next reading that succeeds. */
uint64_t energy_used_uj(struct energy *e);
void energy_close(struct energy *e); /* All zeros are fine. Sets *e to zeros. */

#endif
