/* doctor_host: processor, memory and limits, from the kernel. */
#include "common/cores.h"
#include "common/memory.h"
#include "compute/compute.h"
#include "tools/doctor/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool file_read(const char *path, char *out, size_t capacity)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t bytes = fread(out, 1, capacity - 1, file);
    out[bytes] = 0;
    fclose(file);
    return bytes > 0;
}

static uint64_t number_read(const char *path)
{
    char text[64];
    return file_read(path, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

/* Reads the word in brackets of "always [madvise] never". */
static void choice_read(const char *path, char *out, size_t capacity)
{
    char text[256];
    if (!file_read(path, text, sizeof(text)))
        return;
    const char *begin = strchr(text, '[');
    const char *end = begin != NULL ? strchr(begin, ']') : NULL;
    if (end != NULL)
        snprintf(out, capacity, "%.*s", (int)(end - begin - 1), begin + 1);
}

/* Returns the value of "name : value" in cpuinfo. */
static const char *line_value(char *text, const char *name)
{
    char *line = strstr(text, name);
    char *colon = line != NULL ? strchr(line, ':') : NULL;
    char *end = colon != NULL ? strchr(colon, '\n') : NULL;
    if (end == NULL)
        return NULL;
    *end = 0;
    return colon + 1 + strspn(colon + 1, " \t");
}

static void features_read(const char *flags, struct doctor_host *out)
{
    static const char *const wanted[] = {"avx2",     "fma",         "f16c",
                                         "avx512f",  "avx512bw",    "avx512vl",
                                         "avx512dq", "avx512_vnni", "avx512_bf16"};
    char word[24];
    size_t at = 0;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        size_t length = strlen(wanted[i]);
        bool found = false;
        for (const char *flag = flags; *flag != 0 && !found;) {
            size_t bytes = strcspn(flag, " ");
            found = bytes == length && memcmp(flag, wanted[i], length) == 0;
            flag += bytes + strspn(flag + bytes, " ");
        }
        snprintf(word, sizeof(word), "%s%s", at > 0 ? " " : "", wanted[i]);
        if (found && at + strlen(word) < sizeof(out->features))
            at += (size_t)snprintf(out->features + at, sizeof(out->features) - at, "%s", word);
    }
}

static void processor_read(struct doctor_host *out)
{
    static char text[16384]; /* Room for the first processor's part. */
    if (!file_read("/proc/cpuinfo", text, sizeof(text)))
        return;
    char *flags_at = strstr(text, "flags");
    const char *model = line_value(text, "model name");
    if (model != NULL)
        snprintf(out->processor, sizeof(out->processor), "%s", model);
    const char *flags = flags_at != NULL ? line_value(flags_at, "flags") : NULL;
    if (flags != NULL)
        features_read(flags, out);
}

static void compute_check(struct doctor_host *out)
{
    const struct compute_options options = {.threads = 1};
    struct compute *compute;
    struct error error;
    if (compute_cpu.open(&options, &compute, &error) != ST_OK) {
        snprintf(out->compute_why, sizeof(out->compute_why), "%.150s", error.text);
        return;
    }
    const char *text = compute_cpu.describe(compute);
    snprintf(out->compute, sizeof(out->compute), "%.*s", (int)strcspn(text, ","), text);
    compute_cpu.close(compute);
}

void doctor_host_check(struct doctor_host *out)
{
    struct rlimit limit;
    struct statvfs shm;
    *out = (struct doctor_host){.cores_usable = cores_usable()};
    processor_read(out);
    compute_check(out);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    out->cores_online = online > 0 ? (uint32_t)online : 0;
    out->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    (void)memory_available("", &out->available_bytes);
    choice_read("/sys/kernel/mm/transparent_hugepage/enabled", out->huge_pages,
                sizeof(out->huge_pages));
    choice_read("/sys/kernel/mm/transparent_hugepage/shmem_enabled", out->huge_pages_shared,
                sizeof(out->huge_pages_shared));
    out->shmmax_bytes = number_read("/proc/sys/kernel/shmmax");
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t pages = number_read("/proc/sys/kernel/shmall");
    out->shmall_bytes = pages > UINT64_MAX / page ? UINT64_MAX : pages * page;
    out->shmmni = number_read("/proc/sys/kernel/shmmni");
    if (statvfs("/dev/shm", &shm) == 0)
        out->dev_shm_bytes = (uint64_t)shm.f_blocks * shm.f_frsize;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        out->memlock_bytes = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}
