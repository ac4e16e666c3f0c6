/* energy: see the header. The folder has a folder for each package, `intel-rapl:0`, `intel-rapl:1`,
 * …, whose file `name` begins with "package". Other folders would count the same energy again: those
 * of parts of packages and of the whole board, and `intel-rapl-mmio:0`, another driver's meter of
 * package 0. */
#include "host/energy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOMAIN       "intel-rapl:"
#define PACKAGE_NAME "package"

/* Reads the first bytes of a file as text. Returns false if there are none. */
static bool read_text(int fd, char *text, size_t capacity)
{
    ssize_t bytes = fd >= 0 ? pread(fd, text, capacity - 1, 0) : -1;
    text[bytes > 0 ? bytes : 0] = 0;
    return bytes > 0;
}

bool energy_number_read(int fd, uint64_t *out)
{
    char text[32], *end;
    errno = 0;
    bool found = read_text(fd, text, sizeof(text)) && text[0] >= '0' && text[0] <= '9';
    if (found) {
        *out = strtoull(text, &end, 10);
        found = errno == 0 && (*end == '\n' || *end == 0);
    }
    if (!found && errno == 0)
        errno = EINVAL;
    return found;
}

static int open_file(const char *folder, const char *package, const char *file)
{
    char path[300];
    int length = snprintf(path, sizeof(path), "%s/%s/%s", folder, package, file);
    if (length < 0 || (size_t)length >= sizeof(path))
        return -1;
    return open(path, O_RDONLY | O_CLOEXEC);
}

static bool is_package(const char *folder, const char *domain)
{
    char name[32];
    int fd = open_file(folder, domain, "name");
    bool found =
        read_text(fd, name, sizeof(name)) && strncmp(name, PACKAGE_NAME, strlen(PACKAGE_NAME)) == 0;
    if (fd >= 0)
        close(fd);
    return found;
}

uint32_t energy_packages(const char *folder, char names[ENERGY_PACKAGES_MAX][ENERGY_NAME_BYTES])
{
    DIR *all = opendir(folder);
    if (all == NULL)
        return 0;
    uint32_t count = 0;
    bool good = true;
    for (const struct dirent *entry; good && (entry = readdir(all)) != NULL;) {
        if (strncmp(entry->d_name, DOMAIN, strlen(DOMAIN)) != 0 ||
            !is_package(folder, entry->d_name))
            continue;
        good = count < ENERGY_PACKAGES_MAX && strlen(entry->d_name) < ENERGY_NAME_BYTES;
        if (good)
            strcpy(names[count++], entry->d_name);
    }
    closedir(all);
    return good ? count : 0;
}

/* Returns false if the meter cannot be read. */
static bool package_open(const char *folder, const char *name, struct energy_package *out)
{
    int range = open_file(folder, name, "max_energy_range_uj");
    bool good = energy_number_read(range, &out->greatest_uj);
    if (range >= 0)
        close(range);
    if (!good)
        return false;
    out->fd = open_file(folder, name, "energy_uj");
    if (energy_number_read(out->fd, &out->latest_uj) && out->latest_uj <= out->greatest_uj)
        return true;
    if (out->fd >= 0)
        close(out->fd);
    return false;
}

void energy_open(const char *folder, struct energy *out)
{
    char names[ENERGY_PACKAGES_MAX][ENERGY_NAME_BYTES];
    uint32_t count = energy_packages(folder, names);
    *out = (struct energy){.package_count = 0};
    for (uint32_t i = 0; i < count; i++) {
        if (!package_open(folder, names[i], &out->packages[i])) {
            energy_close(out);
            return;
        }
        out->package_count++;
    }
}

void energy_open_gpu(const char *device, struct energy *out)
{
    struct error ignored;
    *out = (struct energy){.package_count = 0};
    if (nvml_open(device, &out->gpu, &ignored) != ST_OK ||
        !nvml_energy_uj(&out->gpu, &out->gpu_latest_uj))
        energy_close(out);
}

bool energy_known(const struct energy *e)
{
    return e->package_count > 0 || e->gpu.device != NULL;
}

uint64_t energy_used_uj(struct energy *e)
{
    uint64_t gpu_uj;
    if (nvml_energy_uj(&e->gpu, &gpu_uj)) {
        e->used_uj += gpu_uj > e->gpu_latest_uj ? gpu_uj - e->gpu_latest_uj : 0;
        e->gpu_latest_uj = gpu_uj;
    }
    for (uint32_t i = 0; i < e->package_count; i++) {
        struct energy_package *package = &e->packages[i];
        uint64_t now_uj;
        if (!energy_number_read(package->fd, &now_uj) || now_uj > package->greatest_uj)
            continue;
        e->used_uj += now_uj - package->latest_uj;
        if (now_uj < package->latest_uj)
            e->used_uj += package->greatest_uj;
        package->latest_uj = now_uj;
    }
    return e->used_uj;
}

void energy_close(struct energy *e)
{
    for (uint32_t i = 0; i < e->package_count; i++)
        close(e->packages[i].fd);
    nvml_close(&e->gpu);
    *e = (struct energy){.package_count = 0};
}
