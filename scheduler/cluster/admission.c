/* cluster_admission: how long a new request may wait for the first batch of its prompt
 * (queue_us_max), and when a refused client should come again.
 *
 * The wait is estimated in requests, not in tokens: prompts are counted that were computed while
 * requests waited in the queue, because the cluster then did as much as it could. This rate
 * includes everything that makes requests wait: prompts, cached prefixes, and KV memory that long
 * answers hold. Until the rate is known, no request is refused on arrival. An estimate can be
 * wrong, so a request is also refused when it has really waited for queue_us_max, and then also the
 * requests at the end of the queue that would wait as long.
 *
 * Each refused request is told the time at which the queue will have room for it, behind the
 * requests that were refused before it. So refused clients come back at the rate at which the
 * cluster serves them, not all at once. From that time on, a place is kept for the request
 * (promises.c): otherwise newcomers would take the places while more requests come than can be
 * served. */
#include "scheduler/cluster/state.h"

#define COMPUTED_MIN  4       /* Fewest prompts from which the rate is taken. */
#define WINDOW_US_MIN 2000000 /* Shortest time over which the rate is measured. */
#define PROMISE_SLACK 8       /* Refused clients are told to come at 8/9 of the rate. */
#define RETRY_US_MIN  1000000
#define RETRY_US_MAX  600000000 /* Clients hardly wait longer than 10 minutes. */

void cluster_admission_wait_begin(struct sched_cluster *sc, uint32_t id)
{
    struct cluster_request *request = &sc->requests[id];
    request->wait_limited = !request->resumed;
    request->waiting_since_us = sc->now_us;
    if (request->wait_limited)
        cluster_list_append(sc, &sc->limited, id);
}

void cluster_admission_wait_end(struct sched_cluster *sc, uint32_t id)
{
    if (sc->requests[id].wait_limited)
        cluster_list_remove(sc, &sc->limited, id);
    sc->requests[id].wait_limited = false;
    sc->requests[id].waited = sc->now_us > sc->requests[id].waiting_since_us;
}

void cluster_admission_time(struct sched_cluster *sc, int64_t now_us)
{
    struct admission *admission = &sc->admission;
    int64_t most =
        sc->options.queue_us_max > WINDOW_US_MIN ? sc->options.queue_us_max : WINDOW_US_MIN;
    if (sc->waiting.count == 0 || now_us <= sc->now_us)
        return;
    admission->busy_us += (double)(now_us - sc->now_us);
    if (admission->busy_us > 2 * admission->measured_us)
        admission->measured_us = admission->busy_us; /* Nothing was computed for a long time. */
    if (admission->busy_us > (double)most && admission->computed >= 2 * COMPUTED_MIN) {
        admission->busy_us /= 2;
        admission->measured_us /= 2;
        admission->computed /= 2;
    }
}

/* The first requests, which did not wait, say how much the idle cluster could take at once, not how
 * much it serves. The measurement begins when they are computed. */
void cluster_admission_computed(struct sched_cluster *sc, const struct cluster_request *request)
{
    struct admission *admission = &sc->admission;
    if (sc->waiting.count == 0)
        return;
    if (request->waited || admission->computed > 0)
        admission->computed++;
    else
        admission->busy_us = 0;
    admission->measured_us = admission->busy_us;
}

uint32_t cluster_admission_overdue(const struct sched_cluster *sc)
{
    return cluster_admission_due_us(sc) <= sc->now_us ? sc->limited.first : REQUEST_NONE;
}

int64_t cluster_admission_due_us(const struct sched_cluster *sc)
{
    if (sc->options.queue_us_max == 0 || sc->limited.first == REQUEST_NONE)
        return INT64_MAX;
    return sc->requests[sc->limited.first].waiting_since_us + sc->options.queue_us_max;
}

/* Returns the requests whose prompts are not computed. */
static uint64_t requests_before(const struct sched_cluster *sc)
{
    uint64_t count = sc->waiting.count;
    for (uint32_t i = 0; i < sc->options.machine_count; i++)
        count += sc->machines[i].prompts_pending;
    return count;
}

bool cluster_admission_late(const struct sched_cluster *sc, bool newcomer)
{
    const struct admission *admission = &sc->admission;
    const double most_us = (double)sc->options.queue_us_max;
    if (sc->options.queue_us_max == 0 || sc->waiting.count == 0 ||
        admission->computed < COMPUTED_MIN)
        return false;
    const double each_us = admission->measured_us / admission->computed;
    const double wait_us = each_us * (double)(requests_before(sc) - 1);
    if (wait_us > most_us)
        return true;
    /* At least half of the queue is there for newcomers, because not every client returns. */
    return newcomer && wait_us > most_us / 2 &&
           wait_us + each_us * (double)cluster_promises_due(sc) > most_us;
}

uint32_t cluster_admission_retry_ms(struct sched_cluster *sc, uint32_t id)
{
    const struct admission *admission = &sc->admission;
    int64_t *promised_us = &sc->admission.promised_us;
    /* With one prompt more than was computed: the one that is computed now. */
    double us = admission->computed < COMPUTED_MIN ? admission->busy_us / (admission->computed + 1)
                                                   : admission->measured_us / admission->computed;
    int64_t each_us = us > RETRY_US_MAX ? RETRY_US_MAX : (int64_t)us;
    /* The queue is full, but not more than full, because requests beyond the limit are refused. */
    int64_t least_us = sc->now_us + (each_us > RETRY_US_MIN ? each_us : RETRY_US_MIN);
    int64_t most_us = sc->now_us + RETRY_US_MAX;
    int64_t at_us = *promised_us < least_us ? least_us : *promised_us;
    if (at_us > most_us)
        at_us = most_us;
    *promised_us = at_us + each_us + each_us / PROMISE_SLACK;
    cluster_promise_add(sc, sc->requests[id].identity, at_us);
    return (uint32_t)((at_us - sc->now_us) / 1000);
}
