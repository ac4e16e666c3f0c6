/* power_limit: see the header. */
#include "host/power_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MICROWATTS  1000000u
#define MILLIWATTS  1000u
#define LIMIT_NAME  "constraint_0_name" /* "long_term" on all CPUs with RAPL. */
#define LIMIT_VALUE "constraint_0_power_limit_uw"

/* The kernel takes the number of one write. */
static bool limit_write(int fd, uint64_t uw)
{
    char text[32];
    int length = snprintf(text, sizeof(text), "%" PRIu64 "\n", uw);
    return pwrite(fd, text, (size_t)length, 0) == length;
}

static bool is_long_term(const char *folder, const char *name)
{
    char path[1024], text[32] = "";
    snprintf(path, sizeof(path), "%s/%s/" LIMIT_NAME, folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool good = fgets(text, sizeof(text), file) != NULL && strncmp(text, "long_term", 9) == 0;
    fclose(file);
    return good;
}

static enum status package_limit(const char *folder, const char *name, uint64_t uw,
                                 struct power_limit *limit, struct error *error)
{
    char path[1024];
    if (!is_long_term(folder, name))
        return error_set(error, ST_UNSUPPORTED, "%s/%s has no long-term limit", folder, name);
    snprintf(path, sizeof(path), "%s/%s/" LIMIT_VALUE, folder, name);
    struct power_limit_package *package = &limit->packages[limit->package_count];
    package->fd = open(path, O_RDWR | O_CLOEXEC);
    if (package->fd < 0)
        return error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    bool known = energy_number_read(package->fd, &package->former_uw);
    if (known && limit_write(package->fd, uw) &&
        energy_number_read(package->fd, &package->set_uw)) {
        limit->package_count++;
        return ST_OK;
    }
    error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    if (known)
        limit_write(package->fd, package->former_uw);
    close(package->fd);
    return ST_IO;
}

enum status power_limit_set(const char *folder, uint32_t watts, struct power_limit *out,
                            struct error *error)
{
    char names[ENERGY_PACKAGES_MAX][ENERGY_NAME_BYTES];
    const uint32_t count = energy_packages(folder, names);
    *out = (struct power_limit){.package_count = 0};
    if (count == 0)
        return error_set(error, ST_UNSUPPORTED, "%s has no CPU package", folder);
    const uint64_t package_uw = (uint64_t)watts * MICROWATTS / count;
    for (uint32_t i = 0; i < count; i++) {
        enum status status = package_limit(folder, names[i], package_uw, out, error);
        if (status != ST_OK) {
            power_limit_restore(out);
            return status;
        }
    }
    return ST_OK;
}

enum status power_limit_set_gpu(const char *device, uint32_t watts, struct power_limit *out,
                                struct error *error)
{
    *out = (struct power_limit){.package_count = 0};
    enum status status = nvml_open(device, &out->gpu, error);
    if (status == ST_OK && !nvml_limit_mw(&out->gpu, &out->gpu_former_mw))
        status = error_set(error, ST_UNSUPPORTED, "%s has no power limit", device);
    if (status == ST_OK)
        status = nvml_limit_set(&out->gpu, watts * MILLIWATTS, error);
    if (status == ST_OK && !nvml_limit_mw(&out->gpu, &out->gpu_set_mw))
        status = error_set(error, ST_IO, "%s: its power limit cannot be read", device);
    if (status != ST_OK) {
        struct error ignored;
        if (out->gpu_former_mw > 0)
            nvml_limit_set(&out->gpu, out->gpu_former_mw, &ignored);
        nvml_close(&out->gpu);
    }
    return status;
}

void power_limit_restore(struct power_limit *limit)
{
    struct error ignored;
    uint32_t now_mw;
    if (nvml_limit_mw(&limit->gpu, &now_mw) && now_mw == limit->gpu_set_mw)
        nvml_limit_set(&limit->gpu, limit->gpu_former_mw, &ignored);
    nvml_close(&limit->gpu);
    for (uint32_t i = 0; i < limit->package_count; i++) {
        const struct power_limit_package *package = &limit->packages[i];
        uint64_t now_uw;
        if (energy_number_read(package->fd, &now_uw) && now_uw == package->set_uw)
            limit_write(package->fd, package->former_uw);
        close(package->fd);
    }
    *limit = (struct power_limit){.package_count = 0};
}
