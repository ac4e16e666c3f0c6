/* profile_delay: /proc/self/task/N/schedstat has nanoseconds run, nanoseconds waited and slices. */
#include "bench/profile_delay.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

void profile_delay_open(struct profile_delay *d)
{
    d->count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        char path[320];
        if (task->d_name[0] == '.' || d->count == PROFILE_DELAY_THREADS_MAX)
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", task->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0)
            d->files[d->count++] = file;
    }
    if (tasks != NULL)
        closedir(tasks);
}

void profile_delay_close(struct profile_delay *d)
{
    for (int i = 0; i < d->count; i++)
        close(d->files[i]);
    d->count = 0;
}

double profile_delay_us(const struct profile_delay *d)
{
    double sum = 0;
    for (int i = 0; i < d->count; i++) {
        char text[96];
        uint64_t waited_ns = 0;
        ssize_t bytes = pread(d->files[i], text, sizeof(text) - 1, 0);
        if (bytes <= 0)
            continue;
        text[bytes] = 0;
        if (sscanf(text, "%*u %" SCNu64, &waited_ns) == 1)
            sum += (double)waited_ns * 1e-3;
    }
    return sum;
}
