/* plan_requests: the requests with which every mix of machines is tried. The struct owns the
 * requests, in memory, with one arrival per second on average. For another rate, the times of
 * arrival are divided by the rate. `cleave plan` makes the requests once on the main thread; after
 * that the struct is constant, and all threads of a search read it. This part does not simulate. */
#ifndef TOOLS_PLAN_REQUESTS_H
#define TOOLS_PLAN_REQUESTS_H

#include "tools/simulate/sim_trace.h"

struct plan_requests {
    const char *name;             /* Name of the trace; belongs to the caller. */
    struct sim_arrival *arrivals; /* [count]: ascending times, at one request per second. */
    /* Hash ids of the prompts' blocks (sim_trace.h), to which `arrivals` point; NULL = none. */
    int64_t *ids;
    uint64_t count;
    /* At every rate, requests that arrive at or after this time are left out. */
    double duration_s;
    /* Highest rate in requests per second: there may be too few requests for a higher rate. */
    double rate_max;
    uint64_t hash; /* Hash of the times, lengths and hash ids of all requests. */
};

/* Reads the requests of a trace (a file or a synthetic workload), with their hash ids, and scales
 * their times to one request per second on average. seed: for a synthetic workload. ST_INVALID: a
 * row is wrong, there are no rows, or all requests arrive at the same time. ST_NO_MEMORY. Other
 * errors are those of sim_trace_open and sim_trace_next. */
enum status plan_requests_read(struct plan_requests *requests, const char *name, uint64_t seed,
                               double duration_s, struct error *error);
/* Draws requests as the simulator of the Splitwise paper makes its traces: with Poisson arrivals,
 * and with lengths from the rows of a trace. pairs: true = prompt and answer have the lengths of
 * one row; false = their rows are drawn independently. Draws enough requests for the rate rate_max.
 * The requests have no hash ids. ST_INVALID: a row is wrong, or there are no rows. ST_NO_MEMORY.
 * Other errors are those of sim_trace_open and sim_trace_next. */
enum status plan_requests_draw(struct plan_requests *requests, const char *lengths_name, bool pairs,
                               uint64_t seed, double duration_s, double rate_max,
                               struct error *error);
void plan_requests_done(struct plan_requests *requests); /* Also allowed after an error. */

/* Sets *out to the requests at a rate. *requests must outlive *out, which needs no close. */
void plan_requests_at(const struct plan_requests *requests, double rate_per_s,
                      struct sim_trace *out);
/* Returns how many requests arrive before duration_s at the rate. */
uint64_t plan_requests_count(const struct plan_requests *requests, double rate_per_s);

#endif
