/* Goal: jobs begin in the promised order, each job comes back exactly once, and none runs after it
 * was cancelled. Method: jobs that wait at a gate, so that the test knows which of them run; the
 * order of random jobs against a plain list; many threads with random calls. */
#include "server/http/text_jobs.h"

#include "common/random.h"
#include "tests/check.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define JOBS_MAX   (TEXT_JOBS_QUEUED_MAX + 8)
#define WAIT_STEPS 60000 /* Milliseconds after which a test that hangs ends. */

struct job {
    struct text_job job;
    bool at_gate; /* It ends when the gate is open. */
    atomic_uint runs;
    uint32_t back; /* How often text_jobs_done has returned it. */
};

static struct job all[JOBS_MAX];
static atomic_bool gate_open;
static atomic_uint running, ended;
static uint32_t order[JOBS_MAX]; /* Indices of jobs as they began; for one thread. */

static void run(struct text_job *job)
{
    struct job *j = (struct job *)job;
    running++;
    CHECK(j->runs++ == 0);
    while (j->at_gate && !gate_open)
        usleep(100);
    order[ended++] = (uint32_t)(j - all);
    running--;
}

static struct job *job_set(uint32_t index, uint32_t tenant, bool large, bool at_gate)
{
    struct job *j = &all[index];
    j->job = (struct text_job){.run = run, .tenant = tenant, .is_large = large};
    j->at_gate = at_gate;
    j->runs = 0;
    j->back = 0;
    return j;
}

static struct text_jobs *open_jobs(uint32_t threads)
{
    struct text_jobs *jobs = NULL;
    struct error error;
    gate_open = false;
    running = ended = 0;
    CHECK(text_jobs_open(threads, &jobs, &error) == ST_OK);
    return jobs;
}

static void wait_for(atomic_uint *value, uint32_t want)
{
    for (int i = 0; i < WAIT_STEPS && *value != want; i++)
        usleep(1000);
    CHECKF(*value == want, "%u, want %u", *value, want);
}

/* Takes jobs back until there are none. Returns their number. */
static uint32_t collect(struct text_jobs *jobs)
{
    struct text_job *job;
    uint32_t count = 0;
    for (; (job = text_jobs_done(jobs)) != NULL; count++)
        CHECK(((struct job *)job)->back++ == 0);
    return count;
}

static void collect_wait(struct text_jobs *jobs, uint32_t want)
{
    struct pollfd poll_fd = {text_jobs_fd(jobs), POLLIN, 0};
    while (want > 0) {
        CHECK(poll(&poll_fd, 1, WAIT_STEPS) == 1);
        uint32_t count = collect(jobs);
        CHECK(count <= want);
        want -= count;
    }
    CHECK(poll(&poll_fd, 1, 0) == 0);
}

static void close_jobs(struct text_jobs *jobs, uint32_t want)
{
    text_jobs_stop(jobs);
    CHECK(collect(jobs) == want);
    text_jobs_close(jobs);
}

static void check_bound(void)
{
    struct text_jobs *jobs = open_jobs(1);
    CHECK(text_jobs_add(jobs, &job_set(0, 0, false, true)->job));
    wait_for(&running, 1);
    for (uint32_t i = 1; i <= TEXT_JOBS_QUEUED_MAX; i++)
        CHECK(text_jobs_add(jobs, &job_set(i, i, false, false)->job));
    struct job *more = job_set(TEXT_JOBS_QUEUED_MAX + 1, 7, false, false);
    CHECK(!text_jobs_add(jobs, &more->job));
    CHECK(text_jobs_cancel(jobs, &all[5].job));
    CHECK(text_jobs_add(jobs, &more->job));
    gate_open = true;
    collect_wait(jobs, TEXT_JOBS_QUEUED_MAX + 1);
    CHECK(all[5].runs == 0 && more->runs == 1);
    close_jobs(jobs, 0);
}

/* Which of the jobs `waiting` begins, by the rule of the header, if their tenants were served at
 * `served`. */
static uint32_t plain_next(const bool *waiting, uint32_t count, const uint64_t *served)
{
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++)
        if (waiting[i] &&
            (best == count || served[all[i].job.tenant] < served[all[best].job.tenant]))
            best = i;
    return best;
}

static void check_order(uint64_t seed)
{
    for (uint64_t round = 0; round < 50; round++) {
        struct text_jobs *jobs = open_jobs(1);
        uint64_t draws = round << 32, served[5] = {0};
        bool waiting[64];
        uint32_t count = 1 + random_at(seed, draws++) % 64;
        CHECK(text_jobs_add(jobs, &job_set(JOBS_MAX - 1, 4, false, true)->job));
        wait_for(&running, 1);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t draw = random_at(seed, draws++);
            waiting[i] = true;
            job_set(i, draw % 8 < 5 ? 0 : (uint32_t)(draw >> 8) % 4, draw >> 16 & 1, false);
            CHECK(text_jobs_add(jobs, &all[i].job));
        }
        gate_open = true;
        collect_wait(jobs, count + 1);
        CHECK(order[0] == JOBS_MAX - 1);
        for (uint32_t i = 1; i <= count; i++) {
            uint32_t want = plain_next(waiting, count, served);
            CHECKF(order[i] == want, "round %llu: job %u is number %u, want job %u",
                   (unsigned long long)round, order[i], i, want);
            waiting[want] = false;
            served[all[want].job.tenant] = i;
        }
        close_jobs(jobs, 0);
    }
}

static void check_cancel(void)
{
    struct text_jobs *jobs = open_jobs(1);
    CHECK(text_jobs_add(jobs, &job_set(0, 0, false, true)->job));
    wait_for(&running, 1);
    for (uint32_t i = 1; i <= 3; i++)
        CHECK(text_jobs_add(jobs, &job_set(i, 0, false, false)->job));
    CHECK(!text_jobs_cancel(jobs, &all[0].job)); /* it runs */
    CHECK(text_jobs_cancel(jobs, &all[3].job));  /* the last of the queue */
    CHECK(text_jobs_cancel(jobs, &all[1].job));
    CHECK(!text_jobs_cancel(jobs, &all[1].job));
    CHECK(text_jobs_add(jobs, &job_set(4, 0, false, false)->job));
    gate_open = true;
    wait_for(&ended, 3);
    CHECK(!text_jobs_cancel(jobs, &all[2].job)); /* it has run */
    collect_wait(jobs, 3);
    CHECK(all[0].back == 1 && all[2].back == 1 && all[4].back == 1);
    CHECK(all[1].runs == 0 && all[3].runs == 0);
    close_jobs(jobs, 0);
}

static void *open_gate(void *self)
{
    (void)self;
    gate_open = true;
    return NULL;
}

/* Jobs that are queued at the stop come back without having run. */
static void check_stop(void)
{
    pthread_t thread;
    struct text_jobs *jobs = open_jobs(2);
    for (uint32_t i = 0; i < 10; i++)
        CHECK(text_jobs_add(jobs, &job_set(i, i, false, true)->job));
    wait_for(&running, 2);
    CHECK(pthread_create(&thread, NULL, open_gate, NULL) == 0);
    text_jobs_stop(jobs);
    pthread_join(thread, NULL);
    CHECK(!text_jobs_add(jobs, &job_set(10, 0, false, false)->job));
    CHECK(collect(jobs) == 10);
    uint32_t runs = 0;
    for (uint32_t i = 0; i < 10; i++)
        runs += all[i].runs;
    CHECK(runs == ended && runs >= 2);
    text_jobs_close(jobs);
    text_jobs_close(NULL);
}

/* Large jobs leave one thread for the others. */
static void check_large(void)
{
    for (uint32_t threads = 1; threads <= 4; threads++) {
        uint32_t large_max = threads > 1 ? threads - 1 : 1;
        struct text_jobs *jobs = open_jobs(threads);
        for (uint32_t i = 0; i < 6; i++)
            CHECK(text_jobs_add(jobs, &job_set(i, i, true, true)->job));
        wait_for(&running, large_max);
        uint32_t small = threads > 1 ? 20 : 0;
        for (uint32_t i = 6; i < 6 + small; i++)
            CHECK(text_jobs_add(jobs, &job_set(i, 0, false, false)->job));
        collect_wait(jobs, small); /* while the gate holds the large ones */
        CHECK(running == large_max);
        gate_open = true;
        collect_wait(jobs, 6);
        close_jobs(jobs, 0);
    }
}

/* Random calls while four threads run: each job comes back once, from text_jobs_cancel or from
 * text_jobs_done. */
static void check_threads(uint64_t seed)
{
    struct text_jobs *jobs = open_jobs(4);
    uint64_t draws = 0;
    uint32_t cancelled = 0, count = JOBS_MAX - 8;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t draw = random_at(seed, draws++);
        job_set(i, (uint32_t)(draw % 3), draw >> 8 & 1, false);
        CHECK(text_jobs_add(jobs, &all[i].job));
        uint32_t other = (uint32_t)(draw >> 16) % (i + 1);
        if (all[other].back == 0 && text_jobs_cancel(jobs, &all[other].job)) {
            CHECK(all[other].runs == 0);
            all[other].back = 1;
            cancelled++;
        }
        if (draw >> 40 & 1)
            (void)collect(jobs);
    }
    wait_for(&ended, count - cancelled);
    text_jobs_stop(jobs);
    (void)collect(jobs);
    for (uint32_t i = 0; i < count; i++)
        CHECK(all[i].back == 1);
    text_jobs_close(jobs);
}

int main(void)
{
    uint64_t seed = test_seed();
    check_bound();
    check_order(seed);
    check_cancel();
    check_stop();
    check_large();
    check_threads(seed);
    return 0;
}
