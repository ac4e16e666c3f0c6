/* memory: see the header. It reads control groups of version 2 (memory.max, memory.current) and
 * version 1 (limit_in_bytes, usage_in_bytes). The limit of each group from this process's group up
 * to the root counts. In a container the group's path may not exist; then the root of the mount is
 * the group. */
#include "common/memory.h"

#include "common/limits.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads the number after `key` in a file of lines "key number"; key "" = the first word of the
 * file. */
static bool number_read(const char *path, const char *key, uint64_t *out)
{
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "r");
    size_t length = strlen(key);
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL)
        found = strncmp(line, key, length) == 0 &&
                sscanf(line + length, length > 0 ? "%*[ :]%" SCNu64 : "%" SCNu64, out) == 1;
    if (file != NULL)
        fclose(file);
    return found;
}

struct group_files {
    const char *controller; /* Its name in /proc/self/cgroup. */
    const char *mount;
    const char *limit;
    const char *usage;
    const char *inactive; /* Key of memory.stat for page cache that the kernel reclaims first. */
};

static const struct group_files versions[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file"},
};

static void group_bound(const struct group_files *files, const char *root, const char *group,
                        uint64_t *bytes)
{
    char path[LIMIT_PATH_BYTES];
    uint64_t limit;
    uint64_t usage;
    uint64_t inactive;
    snprintf(path, sizeof(path), "%s%s%s/%s", root, files->mount, group, files->limit);
    if (!number_read(path, "", &limit)) /* The limit is "max", or there is no such group. */
        return;
    snprintf(path, sizeof(path), "%s%s%s/%s", root, files->mount, group, files->usage);
    if (!number_read(path, "", &usage))
        return;
    snprintf(path, sizeof(path), "%s%s%s/memory.stat", root, files->mount, group);
    if (number_read(path, files->inactive, &inactive))
        usage -= inactive < usage ? inactive : usage;
    uint64_t left = usage < limit ? limit - usage : 0;
    *bytes = left < *bytes ? left : *bytes;
}

/* Applies the limits of the group in `line`: "0::/a/b" or "5:cpu,memory:/a/b". */
static void groups_bound(const char *root, char *line, uint64_t *bytes)
{
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL)
        return;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    bool first = controllers[1] == 0;
    const struct group_files *files = &versions[first ? 0 : 1];
    if (!first && strstr(controllers + 1, files->controller) == NULL)
        return;
    for (;;) { /* The group, its parents, the root. */
        char *end = strrchr(group, '/');
        if (end != NULL && end[1] == 0)
            *end = 0;
        group_bound(files, root, group, bytes);
        end = strrchr(group, '/');
        if (end == NULL)
            return;
        *end = 0;
    }
}

enum status memory_available(const char *root, uint64_t *bytes_out)
{
    char path[LIMIT_PATH_BYTES];
    char line[LIMIT_PATH_BYTES];
    uint64_t kib;
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (!number_read(path, "MemAvailable", &kib))
        return ST_NOT_FOUND;
    uint64_t bytes = kib * 1024;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        groups_bound(root, line, &bytes);
    if (file != NULL)
        fclose(file);
    *bytes_out = bytes;
    return ST_OK;
}

uint64_t memory_resident(void)
{
    unsigned long total, resident;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return 0;
    int fields = fscanf(file, "%lu %lu", &total, &resident);
    fclose(file);
    return fields == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
