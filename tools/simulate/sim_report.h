/* sim_report: the results of a simulation: each request as a row of a CSV file, and the sums as a
 * table and as JSON. Memory does not grow with the number of requests: quantiles come from buckets
 * that are 0.2 % wide. Equal simulations write equal bytes. `cleave simulate` and `cleave plan`
 * open one report per simulation. sim_run adds the requests to its report; splitwise_run passes
 * them to its caller, which adds them. One thread at a time may use a report. This part draws
 * nothing (simulate_html.h does) and does not know machines. */
#ifndef TOOLS_SIMULATE_SIM_REPORT_H
#define TOOLS_SIMULATE_SIM_REPORT_H

#include "tools/report/quantiles.h"
#include "tools/report/slo.h"
#include "tools/simulate/sim_trace.h"

#include <stdio.h>

enum sim_outcome { SIM_DONE, SIM_REFUSED, SIM_FAILED, SIM_OUTCOMES };

/* How one request ended. */
struct sim_result {
    const struct sim_arrival *arrival;
    enum sim_outcome outcome;
    /* Time from arrival to first token. ttft_s, tbt_s, e2e_s, queue_s and transfer_s are set only
     * if the request is done. */
    double ttft_s;
    double tbt_s;            /* Mean time between its tokens; 0 = the answer has one token. */
    double e2e_s;            /* Time from its arrival to its end. */
    double queue_s;          /* Time from its arrival until its prompt began. */
    double transfer_s;       /* Time from the first token until the KV was on the token machine. */
    uint32_t prompt_machine; /* Machine of the prompt in the last attempt; UINT32_MAX = none. */
    uint32_t token_machine;  /* Machine for decoding in the last attempt; UINT32_MAX = none. */
    uint32_t preempted;      /* Number of preemptions of the request. */
    uint32_t restarted;      /* Number of restarts after a machine failed. */
    double gap_s;            /* Longest time between two of its tokens so far. */
    /* Tokens of the prompt, and of the answer so far, that were computed in attempts after restarts
     * and preemptions. */
    uint64_t recomputed_tokens;
    /* Tokens of the prompt, and of the answer so far, whose KV the prompt machine had in attempts
     * after restarts and preemptions. */
    uint64_t reused_tokens;
    uint64_t checkpoint_tokens; /* Reused tokens whose KV was in a checkpoint. */
};

struct sim_report {
    FILE *rows; /* NULL = no file. */
    /* Rows have only the four columns that the Splitwise simulator writes, and queue, transfer, gap
     * and pause are not counted. */
    bool four_columns;
    uint64_t outcomes[SIM_OUTCOMES];
    uint64_t prompt_tokens;     /* Sum over the requests that are done. */
    uint64_t output_tokens;     /* Sum over the requests that are done. */
    uint64_t preempted;         /* Preemptions of all requests. */
    uint64_t restarted;         /* Restarts of all requests. */
    uint64_t affected;          /* Requests that were restarted. */
    uint64_t recomputed_tokens; /* Sum over all requests. */
    uint64_t reused_tokens;     /* Sum over all requests. */
    uint64_t checkpoint_tokens; /* Sum over all requests. */
    double last_s;              /* End of the last request that is done. */
    /* The quantiles below are over the requests that are done. */
    struct quantiles ttft;
    struct quantiles tbt;
    struct quantiles e2e;
    struct quantiles queue;
    struct quantiles transfer;
    struct quantiles gap;   /* Longest gap of each answer with more than one token. */
    struct quantiles pause; /* Longest gap of each restarted answer with more than one token. */
    /* Limits of the three slowdowns, which the caller may set after opening, together with
     * slo.reference: requests below all limits are good. 0 = good requests are not counted. */
    double good_below[SLO_MEASURES];
    uint64_t good;  /* Number of good requests. */
    struct slo slo; /* The caller may set slo.reference after opening; NULL = nothing is counted. */
};

/* Begins an empty report. path: the CSV file; NULL = none. four_columns: see struct sim_report.
 * Returns ST_IO if the file cannot be written. */
enum status sim_report_open(struct sim_report *report, const char *path, bool four_columns,
                            struct error *error);
/* Closes the CSV file. path: its name in errors. Returns ST_IO if a row could not be written. */
enum status sim_report_close(struct sim_report *report, const char *path, struct error *error);

/* Adds a request that has ended, and writes its row. */
void sim_report_add(struct sim_report *report, const struct sim_result *result);

/* Prints the sums as a table. Rates are per second from time 0 to last_s. */
void sim_report_print(const struct sim_report *report, FILE *out);
/* Prints the sums as a JSON object without its closing brace, so that the caller can add
 * members. */
void sim_report_json(const struct sim_report *report, FILE *out);

#endif
