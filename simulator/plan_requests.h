/* plan_requests: the requests that every mix of machines is tried with, in memory, so that any rate
 * comes from the same draws: arrivals at one request a second on average, whose times are divided
 * by the rate. Read or drawn once, then constant: threads share it. */
#ifndef SIMULATOR_PLAN_REQUESTS_H
#define SIMULATOR_PLAN_REQUESTS_H

#include "simulator/sim_trace.h"

struct plan_requests {
    const char *name; /* the caller's */
    struct sim_arrival *arrivals;
    uint64_t count;
    double duration_s; /* arrivals after this do not count, whatever the rate */
    double rate_most;  /* at a higher one they are over before that */
    uint64_t hash;     /* of all of it */
};

/* A trace (file or law), faster or slower. ST_INVALID: a wrong row, or fewer than two times. */
enum status plan_requests_read(struct plan_requests *requests, const char *name, uint64_t seed,
                               double duration_s, struct error *error);
/* As the paper's simulator makes its traces: Poisson arrivals; a prompt's length and an answer's
 * drawn independently from the rows of a trace (pairs: both of one row), enough of them for
 * rate_most. */
enum status plan_requests_draw(struct plan_requests *requests, const char *lengths_name, bool pairs,
                               uint64_t seed, double duration_s, double rate_most,
                               struct error *error);
void plan_requests_done(struct plan_requests *requests);

void plan_requests_at(const struct plan_requests *requests, double rate_per_s,
                      struct sim_trace *out);
/* That come within the duration. */
uint64_t plan_requests_count(const struct plan_requests *requests, double rate_per_s);

#endif
