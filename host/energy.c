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

static bool read_number(int fd, uint64_t *out)
{
    char text[32], *end;
    if (!read_text(fd, text, sizeof(text)) || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && (*end == '\n' || *end == 0);
}

static int open_file(int folder, const char *domain, const char *file)
{
    char path[300];
    int length = snprintf(path, sizeof(path), "%s/%s", domain, file);
    if (length < 0 || (size_t)length >= sizeof(path))
        return -1;
    return openat(folder, path, O_RDONLY | O_CLOEXEC);
}

static bool is_package(int folder, const char *domain)
{
    char name[32];
    int fd = open_file(folder, domain, "name");
    bool found =
        read_text(fd, name, sizeof(name)) && strncmp(name, PACKAGE_NAME, strlen(PACKAGE_NAME)) == 0;
    if (fd >= 0)
        close(fd);
    return found;
}

/* Returns false if the meter cannot be read. */
static bool package_open(int folder, const char *domain, struct energy_package *out)
{
    int range = open_file(folder, domain, "max_energy_range_uj");
    bool good = read_number(range, &out->greatest_uj);
    if (range >= 0)
        close(range);
    if (!good)
        return false;
    out->fd = open_file(folder, domain, "energy_uj");
    if (read_number(out->fd, &out->latest_uj) && out->latest_uj <= out->greatest_uj)
        return true;
    if (out->fd >= 0)
        close(out->fd);
    return false;
}

void energy_open(const char *folder, struct energy *out)
{
    *out = (struct energy){.package_count = 0};
    DIR *all = opendir(folder);
    if (all == NULL)
        return;
    bool good = true;
    for (const struct dirent *entry; good && (entry = readdir(all)) != NULL;) {
        if (strncmp(entry->d_name, DOMAIN, strlen(DOMAIN)) != 0 ||
            !is_package(dirfd(all), entry->d_name))
            continue;
        good = out->package_count < ENERGY_PACKAGES_MAX &&
               package_open(dirfd(all), entry->d_name, &out->packages[out->package_count]);
        out->package_count += good ? 1 : 0;
    }
    closedir(all);
    if (!good)
        energy_close(out);
}

uint64_t energy_used_uj(struct energy *e)
{
    for (uint32_t i = 0; i < e->package_count; i++) {
        struct energy_package *package = &e->packages[i];
        uint64_t now_uj;
        if (!read_number(package->fd, &now_uj) || now_uj > package->greatest_uj)
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
    *e = (struct energy){.package_count = 0};
}
