/* reference: simulates the cases of a directory of reference results with the policy
 * splitwise-compat, and compares the times of each request. The directory has cases.json and
 * perf_model.csv, and for each case NAME the reference's results (NAME.csv) and a trace in
 * traces/. `cleave simulate --reference` calls this part on the main thread. This part keeps no
 * state and prints nothing. The simulator of the Splitwise paper made the reference results. */
#ifndef TOOLS_SIMULATE_SPLITWISE_REFERENCE_H
#define TOOLS_SIMULATE_SPLITWISE_REFERENCE_H

#include "tools/simulate/splitwise/splitwise.h"

/* Largest difference of two times that count as equal. */
#define REFERENCE_TOLERANCE_S 1e-9

/* The comparison of one case. */
struct reference_result {
    const char *name;         /* Name of the case. */
    uint64_t requests;        /* Requests in the reference's results. */
    uint64_t missing;         /* Requests that only the reference or only the simulation has. */
    double ttft_difference_s; /* Largest difference of TTFT. */
    double tbt_difference_s;  /* Largest difference of TBT. */
    double e2e_difference_s;  /* Largest difference of E2E. */
    double wall_s; /* Wall-clock time of the simulation, without reading the reference's results. */
    /* slo_met and reference_slo_met can be compared: the case says whether the reference met the
     * SLO, and perf_model.csv has the times of the SLO's idle machine. */
    bool slo_known;
    bool slo_met;           /* This simulation meets the SLO. */
    bool reference_slo_met; /* The reference met the SLO. */
    /* First argument of the case that this simulator does not support; NULL = none. */
    const char *unsupported_argument;
    bool same; /* No request is missing, and no difference exceeds the tolerance. */
    struct splitwise_totals totals; /* Totals of this simulation. */
};

typedef void (*reference_case_call)(void *self, const struct reference_result *result);

/* Runs the cases in order, and calls `each` after each case; *result is valid during the call.
 * Differences are no error. The first error ends the run. */
enum status reference_run(const char *directory, reference_case_call each, void *self,
                          struct error *error);

#endif
