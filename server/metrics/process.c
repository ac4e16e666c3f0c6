/* metrics_process: the gateway's own process under the names that Prometheus' client libraries use,
 * and its event loop. /proc is read for each page; a figure that cannot be read is not shown. */
#include "common/memory.h"
#include "server/metrics/internal.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Returns the number of open files of this process; -1 = not known. */
static double files_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        return -1;
    int count = -1; /* The folder itself is open too. */
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL)
        count += entry->d_name[0] != '.' ? 1 : 0;
    closedir(folder);
    return count;
}

static double files_most(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (double)limit.rlim_cur : -1;
}

double metrics_process_files(void)
{
    double open = files_open(), most = files_most();
    return open > 0 && most > 0 ? open / most : 0;
}

static double processor_s(void)
{
    struct timespec used;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0
               ? (double)used.tv_sec + (double)used.tv_nsec * 1e-9
               : -1;
}

/* Reads field 22 of /proc/self/stat, the start in ticks since the boot. The name in field 2 may
 * contain spaces and parentheses. Returns the Unix time; -1 = not known. */
static double start_s(void)
{
    char line[1024];
    unsigned long long ticks = 0;
    struct timespec now, up;
    FILE *file = fopen("/proc/self/stat", "re");
    if (file == NULL)
        return -1;
    bool read = fgets(line, sizeof(line), file) != NULL;
    fclose(file);
    const char *at = read ? strrchr(line, ')') : NULL;
    if (at == NULL ||
        sscanf(at + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
               "%*d %llu",
               &ticks) != 1 ||
        clock_gettime(CLOCK_REALTIME, &now) != 0 || clock_gettime(CLOCK_BOOTTIME, &up) != 0)
        return -1;
    double boot_s = (double)(now.tv_sec - up.tv_sec) + (double)(now.tv_nsec - up.tv_nsec) * 1e-9;
    return floor((boot_s + (double)ticks / (double)sysconf(_SC_CLK_TCK)) * 100) / 100;
}

static void figure(struct text *out, const char *name, const char *type, const char *help,
                   double value)
{
    if (value < 0)
        return;
    metrics_family(out, name, type, help);
    text_string_add(out, name);
    metrics_value_add(out, value);
}

static void iterations_render(struct text *out, const struct metrics *m)
{
    const struct histogram *h = &m->iterations;
    const char *name = "cleave_event_loop_seconds";
    uint64_t below = 0;
    metrics_family(
        out, name, "histogram",
        "Time of an event loop iteration of the gateway, without sleep: an event's longest wait.");
    for (uint32_t bucket = 0; bucket < h->bound_count; bucket++) {
        char bound[32];
        metrics_bound_write(h->bounds[bucket], bound);
        below += h->counts[bucket];
        text_format_add(out, "%s_bucket{le=\"%s\"}", name, bound);
        metrics_value_add(out, (double)below);
    }
    text_format_add(out, "%s_bucket{le=\"+Inf\"}", name);
    metrics_value_add(out, (double)h->total);
    text_format_add(out, "%s_sum", name);
    metrics_value_add(out, h->sum);
    text_format_add(out, "%s_count", name);
    metrics_value_add(out, (double)h->total);
}

void metrics_process_render(struct text *out, const struct metrics *m)
{
    iterations_render(out, m);
    figure(out, "process_cpu_seconds_total", "counter", "Processor time of the gateway.",
           processor_s());
    figure(out, "process_resident_memory_bytes", "gauge", "Resident memory of the gateway.",
           (double)memory_resident());
    figure(out, "process_open_fds", "gauge", "Open file descriptors of the gateway.", files_open());
    figure(out, "process_max_fds", "gauge", "Limit of open file descriptors of the gateway.",
           files_most());
    figure(out, "process_start_time_seconds", "gauge", "Start of the gateway, in Unix time.",
           start_s());
}
