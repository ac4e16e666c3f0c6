/* Goal: the available memory is the minimum of what the kernel and each control group leave.
 * Method: folders that look like /proc and /sys, for both versions of control groups. */
#include "common/memory.h"
#include "tests/check.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/cleave-memory-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        (void)mkdir(path, 0700);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static uint64_t left(void)
{
    uint64_t bytes = 0;
    CHECK(memory_available(root, &bytes) == ST_OK);
    return bytes;
}

int main(void)
{
    uint64_t bytes = 7;
    CHECK(mkdtemp(root) != NULL);
    CHECK(memory_available(root, &bytes) == ST_NOT_FOUND && bytes == 7);
    put("proc/meminfo", "MemTotal:       9000 kB\nMemFree:   1 kB\nMemAvailable:    4000 kB\n");
    CHECK(left() == 4000 * 1024);
    put("proc/self/cgroup", "0::/a/b\n");
    CHECK(left() == 4000 * 1024); /* There is no such group here. */
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/b/memory.current", "100000\n");
    CHECK(left() == 4000 * 1024);
    put("sys/fs/cgroup/a/memory.max", "1000000\n");
    put("sys/fs/cgroup/a/memory.current", "600000\n");
    CHECK(left() == 400000);
    put("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 50000\n");
    CHECK(left() == 450000);
    put("sys/fs/cgroup/a/b/memory.max", "120000\n");
    CHECK(left() == 20000);
    put("sys/fs/cgroup/a/b/memory.max", "90000\n"); /* Less than the group already uses. */
    CHECK(left() == 0);
    put("proc/self/cgroup", "3:cpuset:/x\n5:cpu,memory:/docker/1\n");
    CHECK(left() == 4000 * 1024);
    /* The mount itself is the group. */
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "200000\n");
    put("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 20000\n");
    CHECK(left() == 120000);
    CHECK(memory_available("", &bytes) == ST_OK && bytes > 0);
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", root);
    CHECK(system(command) == 0);
    return 0;
}
