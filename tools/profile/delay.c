/* profile_delay: see the header. /proc/self/task/N/schedstat has nanoseconds run, nanoseconds
 * waited and the number of slices. */
#include "tools/profile/delay.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void profile_delay_open(struct profile_delay *d)
{
    d->count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        char path[320];
        if (task->d_name[0] == '.' || atoi(task->d_name) == gettid() ||
            d->count == PROFILE_DELAY_THREADS_MAX)
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

static bool times_read(int file, uint64_t *ran_ns, uint64_t *waited_ns)
{
    char text[96];
    ssize_t bytes = pread(file, text, sizeof(text) - 1, 0);
    if (bytes <= 0)
        return false;
    text[bytes] = 0;
    return sscanf(text, "%" SCNu64 " %" SCNu64, ran_ns, waited_ns) == 2;
}

double profile_delay_us(const struct profile_delay *d)
{
    double sum = 0;
    for (int i = 0; i < d->count; i++) {
        uint64_t ran_ns, waited_ns;
        if (times_read(d->files[i], &ran_ns, &waited_ns))
            sum += (double)waited_ns * 1e-3;
    }
    return sum;
}

void profile_delay_begin(struct profile_delay *d)
{
    for (int i = 0; i < d->count; i++) {
        uint64_t waited_ns;
        if (!times_read(d->files[i], &d->ran_ns[i], &waited_ns))
            d->ran_ns[i] = 0;
    }
}

double profile_delay_idle_us(const struct profile_delay *d, double us)
{
    double sum = 0;
    for (int i = 0; i < d->count; i++) {
        uint64_t ran_ns, waited_ns;
        if (!times_read(d->files[i], &ran_ns, &waited_ns))
            continue;
        double ran_us = (double)(ran_ns - d->ran_ns[i]) * 1e-3;
        sum += ran_us < us ? us - ran_us : 0;
    }
    return sum;
}
