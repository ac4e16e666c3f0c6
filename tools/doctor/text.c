/* doctor_text: the report as text. */
#include "tools/doctor/report.h"

#include <inttypes.h>
#include <string.h>

/* E.g. "1.5 GiB" or "no limit". */
static const char *bytes_text(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    if (bytes >= (uint64_t)1 << 60) {
        snprintf(out, 32, "no limit");
        return out;
    }
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    snprintf(out, 32, value == (double)(uint64_t)value ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return out;
}

static const char *or_unknown(const char *text)
{
    return text[0] != 0 ? text : "not known";
}

static void host_write(const struct doctor_host *host, FILE *out)
{
    char a[32], b[32];
    fprintf(out, "processor   %s: %s\n", or_unknown(host->processor),
            host->features[0] != 0 ? host->features : "no vector instructions that cleave uses");
    if (host->compute[0] != 0)
        fprintf(out, "computes    with %s\n", host->compute);
    else
        fprintf(out, "computes    not: %s\n", host->compute_why);
    fprintf(out, "cores       %u, %u of them for this process\n", host->cores_online,
            host->cores_usable);
    fprintf(out, "memory      %s, %s available; huge pages: %s, of shared segments: %s\n",
            bytes_text(host->memory_bytes, a), bytes_text(host->available_bytes, b),
            or_unknown(host->huge_pages), or_unknown(host->huge_pages_shared));
    if (host->shmmni == 0)
        fprintf(out, "kv region   no System V segments can be made\n");
    else
        fprintf(out, "kv region   a System V segment: largest %s, all together %s\n",
                bytes_text(host->shmmax_bytes, a), bytes_text(host->shmall_bytes, b));
    if (host->dev_shm_bytes > 0)
        fprintf(out, "            /dev/shm, which is not needed: %s",
                bytes_text(host->dev_shm_bytes, a));
    else
        fprintf(out, "            no /dev/shm, which is not needed");
    fprintf(out, "; memory that may be locked: %s\n", bytes_text(host->memlock_bytes, b));
}

static void ucx_write(const struct doctor_report *report, FILE *out)
{
    const struct ucx_probe *ucx = &report->ucx;
    if (report->ucx_why[0] != 0) {
        fprintf(out, "ucx         %s does not start: %s\n", ucx->version, report->ucx_why);
        return;
    }
    fprintf(out, "ucx         %s:", ucx->version);
    for (uint32_t i = 0; i < ucx->resource_count; i++)
        fprintf(out, " %s", ucx->resources[i]);
    fprintf(out, "\n            memory of: %s%s\n", ucx->memory_types,
            ucx->cuda ? "" : "; without CUDA memory: KV of a GPU is staged to other computers");
}

static void paths_write(const struct doctor_report *report, FILE *out)
{
    for (uint32_t i = 0; i < report->paths.count; i++) {
        const struct doctor_path *path = &report->paths.paths[i];
        fprintf(out, "path %-6s %s: %.2f GB/s; a layer of %u KiB in %.0f us, 64 bytes in %.0f us\n",
                path->transport, path->path, path->bandwidth_bytes_per_s * 1e-9,
                path->layer_bytes >> 10, path->layer_write_us, path->latency_us);
    }
    if (report->paths_why[0] != 0)
        fprintf(out, "path        %s\n", report->paths_why);
    if (report->region_why[0] != 0)
        fprintf(out, "            %s\n", report->region_why);
}

static void copies_write(const struct doctor_report *report, FILE *out)
{
    for (uint32_t i = 0; i < report->copy_count; i++) {
        const struct doctor_copy *copy = &report->copies[i];
        const char *to = i == 0 ? "another process on it" : copy->to;
        if (copy->failure[0] != 0) {
            fprintf(out, "            %s to %s: %s\n", copy->from, to, copy->failure);
            continue;
        }
        fprintf(out,
                "            %s to %s: %s: %.2f GB/s, a layer of %.0f KiB in blocks in %.0f us\n",
                copy->from, to, copy->path, copy->bandwidth_bytes_per_s * 1e-9,
                (double)copy->layer_bytes / 1024, copy->layer_write_us);
        if (copy->note[0] != 0)
            fprintf(out, "            not from device to device: %s\n", copy->note);
    }
}

static void gpus_write(const struct doctor_report *report, FILE *out)
{
    const struct doctor_gpus *gpus = &report->gpus;
    char a[32], b[32];
    for (uint32_t i = 0; i < gpus->count; i++) {
        const struct doctor_gpu *gpu = &gpus->gpus[i];
        fprintf(out, "gpu         %s: %s, %s of %s free\n", gpu->device, gpu->description,
                bytes_text(gpu->free_bytes, a), bytes_text(gpu->total_bytes, b));
        fprintf(out, "            its KV travels %s%s%s\n", transport_memory_way_name(gpu->way),
                gpu->way_note[0] != 0 ? ": " : "", gpu->way_note);
    }
    copies_write(report, out);
    if (gpus->count == 0)
        fprintf(out, "gpu         none: %s\n", gpus->end_why);
    else if (gpus->end_why[0] != 0)
        fprintf(out, "            no more were found: %s\n", gpus->end_why);
}

void doctor_text_write(const struct doctor_report *report, FILE *out)
{
    host_write(&report->host, out);
    gpus_write(report, out);
    ucx_write(report, out);
    paths_write(report, out);
    if (report->can_serve)
        fprintf(out, "can serve   yes (looked for %.1f s)\n", report->checks_s);
    else
        fprintf(out, "can serve   no: %s\n", report->why_not);
}
