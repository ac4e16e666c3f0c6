/* doctor_paths: checks UCX, and measures writes between two processes. */
#include "tools/doctor/probe.h"
#include "tools/doctor/report.h"
#include "tools/profile/link.h"

#include <string.h>

#define MEASURE_SECONDS 1.2 /* For both paths. */
/* One of the measured sizes: about a layer's KV of 1400 tokens of the default model, or of 256
 * tokens of an 8B model. */
#define LAYER_BYTES 1048576u

static enum status ucx_check(const void *context, void *out, struct error *error)
{
    (void)context;
    return ucx_probe(out, error);
}

static void no_progress(void *self, const char *what, double done, double seconds)
{
    (void)self, (void)what, (void)done, (void)seconds;
}

static void path_fill(const struct profile_link *link, struct doctor_path *out)
{
    snprintf(out->transport, sizeof(out->transport), "%.7s", link->transport);
    snprintf(out->path, sizeof(out->path), "%.63s", link->path);
    out->bandwidth_bytes_per_s = link->bandwidth_bytes_per_s;
    out->latency_us = link->latency_us;
    for (uint32_t i = 0; i < link->size_count; i++)
        if (link->sizes_bytes[i] == LAYER_BYTES) {
            out->layer_bytes = LAYER_BYTES;
            out->layer_write_us = link->sizes_us[i];
        }
}

static enum status links_check(const void *context, void *out, struct error *error)
{
    static struct profile profile;
    struct doctor_paths *paths = out;
    (void)context;
    const struct profile_link_options options = {
        .host = "this", .quick = true, .seconds = MEASURE_SECONDS, .progress = no_progress};
    enum status status = profile_links_measure(&profile, &options, error);
    for (uint32_t i = 0; i < profile.link_count && i < DOCTOR_PATHS_MAX; i++)
        path_fill(&profile.links[i], &paths->paths[paths->count++]);
    return status;
}

void doctor_paths_check(struct doctor_report *report, int timeout_ms)
{
    struct error error = {""};
    if (probe_run(ucx_check, NULL, timeout_ms, &report->ucx, sizeof(report->ucx), &error) != ST_OK)
        snprintf(report->ucx_why, sizeof(report->ucx_why), "%s", error.text);
    if (probe_run(links_check, NULL, timeout_ms, &report->paths, sizeof(report->paths), &error) !=
        ST_OK)
        snprintf(report->paths_why, sizeof(report->paths_why), "%s", error.text);
}
