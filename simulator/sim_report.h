/* sim_report: what became of each request, as rows of a CSV file, and all of them together, as a
 * table and as JSON. Memory does not grow with the number of requests: quantiles come from counts
 * in buckets that are 0.2 % wide. Same simulation, same bytes. */
#ifndef SIMULATOR_SIM_REPORT_H
#define SIMULATOR_SIM_REPORT_H

#include "simulator/quantiles.h"
#include "simulator/sim_trace.h"
#include "simulator/slo.h"

#include <stdio.h>

enum sim_outcome { SIM_DONE, SIM_REFUSED, SIM_FAILED, SIM_OUTCOMES };

struct sim_result {
    const struct sim_arrival *arrival;
    enum sim_outcome outcome;
    double ttft_s; /* these five: of one that is done */
    double tbt_s;
    double e2e_s;
    double queue_s;          /* until its prompt began */
    double transfer_s;       /* from the first token until its KV was where it is decoded */
    uint32_t prompt_machine; /* the last ones; UINT32_MAX: none */
    uint32_t token_machine;
    uint32_t preempted; /* so often */
    uint32_t restarted; /* after a machine's failure */
};

struct sim_report {
    FILE *rows; /* NULL: no file is wanted */
    bool brief; /* rows have the reference's four columns */
    uint64_t outcomes[SIM_OUTCOMES];
    uint64_t prompt_tokens; /* of those that are done */
    uint64_t output_tokens;
    uint64_t preempted;
    uint64_t restarted;
    double last_s; /* of ends */
    struct quantiles ttft;
    struct quantiles tbt;
    struct quantiles e2e;
    struct quantiles queue;
    struct quantiles transfer;
    struct slo slo; /* counts if it has a reference: set it after opening */
};

enum status sim_report_open(struct sim_report *report, const char *path, bool brief,
                            struct error *error);
/* ST_IO: a row could not be written. */
enum status sim_report_close(struct sim_report *report, const char *path, struct error *error);

void sim_report_add(struct sim_report *report, const struct sim_result *result);

/* The seconds of all of it: from time 0 to the last end. */
void sim_report_print(const struct sim_report *report, FILE *out);
void sim_report_json(const struct sim_report *report, FILE *out);

#endif
