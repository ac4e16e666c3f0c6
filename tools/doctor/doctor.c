/* doctor: runs the checks, judges and writes the report. */
#include "tools/doctor/doctor.h"

#include "common/clock.h"
#include "common/options.h"
#include "tools/doctor/report.h"

#include <string.h>

/* Time limit of one check, in seconds. All checks take a few seconds unless one hangs, or unless
 * this computer has little time for them. */
#define TIMEOUT_S     "5"
#define TIMEOUT_S_MAX 3600

struct arguments {
    bool json;
    uint64_t timeout_s;
};

static const struct option_entry entries[] = {
    {.name = "json",
     .type = OPTION_FLAG,
     .offset = offsetof(struct arguments, json),
     .help = "print the report as JSON"},
    {.name = "timeout-s",
     .value_name = "N",
     .type = OPTION_WHOLE,
     .offset = offsetof(struct arguments, timeout_s),
     .low = 1,
     .high = TIMEOUT_S_MAX,
     .default_value = TIMEOUT_S,
     .help = "time limit of each check, in seconds"},
};

static const struct option_table table = {
    .command = "doctor",
    .usage = "[--json] [--timeout-s N]",
    .about =
        "Shows what this computer has for cleave. The exit status says whether it can serve: 0 "
        "or 1.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0])};

static void judge(struct doctor_report *report)
{
    const struct doctor_host *host = &report->host;
    bool shared = false;
    for (uint32_t i = 0; i < report->paths.count; i++)
        shared = shared || strcmp(report->paths.paths[i].transport, "shm") == 0;
    if (!shared && report->paths.count > 0)
        snprintf(report->region_why, sizeof(report->region_why),
                 "KV between machines of this computer goes over TCP: %s",
                 host->shmmni == 0 ? "no System V segment can be made (kernel.shmmni is 0)"
                                   : "UCX found no shared memory that both processes can map");
    if (host->compute[0] == 0 && report->gpus.count == 0)
        snprintf(report->why_not, sizeof(report->why_not), "nothing computes: %s",
                 host->compute_why);
    else if (report->paths.count == 0)
        snprintf(report->why_not, sizeof(report->why_not), "KV could not be sent: %s",
                 report->paths_why);
    report->can_serve = report->why_not[0] == 0;
}

int doctor_main(int argc, char **argv)
{
    static struct doctor_report report;
    struct arguments arguments = {.json = false};
    int exit_status = options_start(&table, argc, argv, &arguments);
    if (exit_status >= 0)
        return exit_status;
    int64_t begin_us = clock_now_us(&clock_system);
    doctor_host_check(&report.host);
    int timeout_ms = (int)arguments.timeout_s * 1000;
    doctor_paths_check(&report, timeout_ms);
    doctor_gpus_check(&report, timeout_ms);
    doctor_copies_check(&report, timeout_ms);
    report.checks_s = (double)(clock_now_us(&clock_system) - begin_us) * 1e-6;
    judge(&report);
    if (!arguments.json)
        doctor_text_write(&report, stdout);
    else if (!doctor_json_write(&report, stdout))
        return 1;
    return report.can_serve ? 0 : 1;
}
