/* reference: runs the cases of a directory of reference results (cases.json; for each case its
 * trace under traces/ and its results beside it; perf_model.csv) in policy splitwise-compat, and
 * compares request by request. Names of cases and traces are the directory's. It prints nothing. */
#ifndef SIMULATOR_REFERENCE_H
#define SIMULATOR_REFERENCE_H

#include "simulator/splitwise.h"

/* The largest difference that counts as none. */
#define REFERENCE_TOLERANCE_S 1e-9

struct reference_result {
    const char *name;
    uint64_t requests; /* of the reference's results */
    uint64_t missing;  /* of these, the simulation has none; or it has one more */
    double ttft_s;     /* the largest differences */
    double tbt_s;
    double e2e_s;
    double wall_s; /* that the simulation took, without reading what it is compared with */
    bool slo_met;  /* the paper's SLO, by this simulation … */
    bool slo_said; /* … and the case says whether it was: */
    bool slo_met_there;
    const char *left_out; /* an argument of the case that means nothing here; or NULL */
    bool same;            /* nothing is missing, and no difference is over the tolerance */
    struct splitwise_totals totals;
};

typedef void (*reference_case_call)(void *self, const struct reference_result *result);

/* Calls `each` after each case. Errors name the file, and what is wrong in it. */
enum status reference_run(const char *directory, reference_case_call each, void *self,
                          struct error *error);

#endif
