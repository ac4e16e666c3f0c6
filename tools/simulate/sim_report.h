/* sim_report: the results of a simulation: a row of a CSV file for each request, and sums over the
 * requests as a table and as JSON. Memory does not grow with the number of requests. `cleave
 * simulate` and `cleave plan` own the struct, which one thread at a time may use. sim_run adds the
 * requests; splitwise_run does not: its caller adds them. This part draws no pictures. */
#ifndef TOOLS_SIMULATE_SIM_REPORT_H
#define TOOLS_SIMULATE_SIM_REPORT_H

#include "tools/report/quantiles.h"
#include "tools/report/slo.h"
#include "tools/simulate/sim_trace.h"

#include <stdio.h>

enum sim_outcome { SIM_DONE, SIM_REFUSED, SIM_FAILED, SIM_OUTCOMES };

/* How one request ended. The times ttft_s to transfer_s are set only if the request is done. */
struct sim_result {
    const struct sim_arrival *arrival;
    enum sim_outcome outcome;
    double ttft_s;           /* Time from arrival to first token. */
    double tbt_s;            /* Mean time between tokens; 0 = the answer has one token. */
    double e2e_s;            /* Time from arrival to end. */
    double queue_s;          /* Time from arrival until the prompt began. */
    double transfer_s;       /* Last attempt: from its first token until all KV has arrived. */
    uint32_t prompt_machine; /* Machine of the prompt in the last attempt; UINT32_MAX = none. */
    uint32_t token_machine;  /* Machine for decoding in the last attempt; UINT32_MAX = none. */
    uint32_t preempted;      /* Preemptions, and reservations that were given up. */
    uint32_t restarted;      /* Number of restarts after a machine failed. */
    double gap_s;            /* Longest time between two consecutive tokens of the answer. */
    /* Tokens of prompt and earlier answer, computed in attempts after a restart or preemption. */
    uint64_t recomputed_tokens;
    /* Tokens whose KV the prompt machine had, in attempts after a restart or preemption. */
    uint64_t reused_tokens;
    uint64_t checkpoint_tokens; /* Reused tokens whose KV was in a checkpoint. */
};

/* The fields of type struct quantiles are over requests that are done. */
struct sim_report {
    FILE *rows; /* The CSV file; NULL = none. */
    /* True: rows have only the four columns that the Splitwise simulator writes, and the fields
     * queue, transfer, gap and pause stay empty. */
    bool splitwise_format;
    uint64_t outcomes[SIM_OUTCOMES]; /* Requests with each outcome. */
    uint64_t prompt_tokens;          /* Sum over the requests that are done. */
    uint64_t output_tokens;          /* Sum over the requests that are done. */
    uint64_t preempted;              /* Preemptions of all requests. */
    uint64_t restarted;              /* Restarts of all requests. */
    uint64_t affected;               /* Requests that were restarted. */
    uint64_t recomputed_tokens;      /* Sum over all requests. */
    uint64_t reused_tokens;          /* Sum over all requests. */
    uint64_t checkpoint_tokens;      /* Sum over all requests. */
    double last_s;                   /* End of the last request that is done. */
    struct quantiles ttft;           /* TTFT. */
    struct quantiles tbt;            /* TBT of answers with more than one token. */
    struct quantiles e2e;            /* E2E. */
    struct quantiles queue;          /* sim_result.queue_s. */
    struct quantiles transfer;       /* sim_result.transfer_s of requests on two machines. */
    struct quantiles gap;            /* Longest gaps of answers with more than one token. */
    struct quantiles pause; /* Longest gaps of restarted answers with more than one token. */
    /* Limits of the slowdowns of TTFT, TBT and E2E, which the caller may set after opening. Without
     * a limit of TTFT (0), or without slo.reference, `good` stays 0. */
    double good_below[SLO_MEASURES];
    uint64_t good; /* Requests that are done, with all three slowdowns below good_below. */
    /* Slowdowns of the requests that are done. The caller may set slo.reference after opening; NULL
     * = no slowdowns. */
    struct slo slo;
};

/* Begins an empty report. path: the CSV file; NULL = none. splitwise_format: see struct sim_report.
 * Returns ST_IO if the file cannot be written. */
enum status sim_report_open(struct sim_report *report, const char *path, bool splitwise_format,
                            struct error *error);
/* Closes the CSV file. path: its name in errors. Returns ST_IO if a row could not be written. */
enum status sim_report_close(struct sim_report *report, const char *path, struct error *error);

/* Adds a request that has ended, and writes its row. */
void sim_report_add(struct sim_report *report, const struct sim_result *result);

/* Prints the sums as a table. Rates are per second from time 0 to last_s. */
void sim_report_print(const struct sim_report *report, FILE *out);
/* Prints the sums as a JSON object without the closing brace, so that the caller can add
 * members. */
void sim_report_json(const struct sim_report *report, FILE *out);

#endif
