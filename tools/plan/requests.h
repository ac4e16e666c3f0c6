/* plan_requests: the requests with which every mix of machines is tried, kept in memory. Arrivals
 * have an average rate of one request per second. For another rate, their times are divided by that
 * rate, so all rates use the same random draws. setup.c makes the requests once on the main thread;
 * after that they are constant, and all threads of a search read them. It does not simulate. */
#ifndef TOOLS_PLAN_REQUESTS_H
#define TOOLS_PLAN_REQUESTS_H

#include "tools/simulate/sim_trace.h"

struct plan_requests {
    const char *name;             /* Name of the trace, for errors. It belongs to the caller. */
    struct sim_arrival *arrivals; /* [count]: ascending times. */
    /* Hash ids of the prompts' blocks (sim_trace.h), to which the arrivals point; NULL = none. */
    int64_t *ids;
    uint64_t count;
    /* Arrivals after this time are ignored, at every rate. In seconds of the tried rate. */
    double duration_s;
    /* Highest usable rate: at a higher rate the requests end before duration_s. */
    double rate_max;
    uint64_t hash; /* Hash of all requests. */
};

/* Reads the requests of a trace (a file or a synthetic workload), with their hash ids, and scales
 * their times to one request per second on average. Returns ST_INVALID if a row is wrong, if there
 * are no rows, or if all requests arrive at the same time; ST_NO_MEMORY; or the errors of
 * sim_trace_open. */
enum status plan_requests_read(struct plan_requests *requests, const char *name, uint64_t seed,
                               double duration_s, struct error *error);
/* Draws requests as the simulator of the Splitwise paper makes its traces: Poisson arrivals, and
 * the lengths of a prompt and an answer drawn independently from the rows of a trace. pairs: both
 * lengths come from one row. Draws enough requests for the rate rate_max. Returns ST_INVALID if a
 * row is wrong or there are no rows; ST_NO_MEMORY; or the errors of sim_trace_open. */
enum status plan_requests_draw(struct plan_requests *requests, const char *lengths_name, bool pairs,
                               uint64_t seed, double duration_s, double rate_max,
                               struct error *error);
void plan_requests_done(struct plan_requests *requests); /* Also after an error. */

/* Sets *out to the requests at a rate. *out points to them, so the requests must outlive it. */
void plan_requests_at(const struct plan_requests *requests, double rate_per_s,
                      struct sim_trace *out);
/* Returns how many requests arrive within the duration. */
uint64_t plan_requests_count(const struct plan_requests *requests, double rate_per_s);

#endif
