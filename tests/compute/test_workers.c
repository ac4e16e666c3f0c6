/* Goal: every item of a job is computed exactly once and is visible when workers_run returns,
 * independent of the threads' timing; idle workers use no CPU. Method: many short jobs of random
 * sizes, with delays that make workers late; several pools at once on the same cores; a job whose
 * items wait for each other, which ends only if every thread takes part; the process's CPU time
 * over an idle quarter second. */
#include "compute/cpu/workers.h"
#include "fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

struct job {
    uint32_t *counts;    /* Not atomic: workers_run must order the accesses. */
    uint32_t delay_item; /* This item sleeps. */
    uint32_t threads;
};

static void count_item(void *context, uint32_t item, uint32_t thread)
{
    struct job *job = context;
    CHECK(thread < job->threads);
    job->counts[item]++;
    if (item == job->delay_item)
        usleep(300);
}

struct meeting {
    _Atomic uint32_t threads_seen;
    uint32_t threads;
};

/* Holds its thread until all threads have arrived. The operating system may delay threads, so only
 * a thread that never arrives is an error. */
static void meet_item(void *context, uint32_t item, uint32_t thread)
{
    struct meeting *meeting = context;
    uint32_t all = (1u << meeting->threads) - 1;
    (void)item;
    atomic_fetch_or(&meeting->threads_seen, 1u << thread);
    for (uint32_t tries = 0; atomic_load(&meeting->threads_seen) != all; tries++) {
        CHECKF(tries < 60000, "threads %x took part of %x", atomic_load(&meeting->threads_seen),
               all);
        usleep(1000);
    }
}

static void check_all_take_part(struct workers *w)
{
    struct meeting meeting = {.threads = workers_threads(w)};
    workers_run(w, meet_item, &meeting, meeting.threads);
    CHECK(atomic_load(&meeting.threads_seen) == (1u << meeting.threads) - 1);
}

static void check_jobs(uint32_t threads, uint64_t seed, uint32_t jobs)
{
    struct workers *w = NULL;
    uint32_t *counts = calloc(5000, sizeof(*counts));
    CHECK(workers_open(threads, &w, NULL) == ST_OK && workers_threads(w) == threads);
    for (uint32_t i = 0; i < jobs; i++) {
        uint64_t bits = random_at(seed, i);
        uint32_t items = bits % 8 == 0 ? (uint32_t)(bits >> 8) % 5000 : (uint32_t)(bits >> 8) % 20;
        struct job job = {.counts = counts, .threads = threads, .delay_item = UINT32_MAX};
        if (bits >> 40 & 1u && items > 0 && i % 16 == 0)
            job.delay_item = (uint32_t)(bits >> 41) % items;
        workers_run(w, count_item, &job, items);
        for (uint32_t k = 0; k < items; k++) {
            CHECKF(counts[k] == 1, "job %u of %u items: item %u ran %u times", i, items, k,
                   counts[k]);
            counts[k] = 0;
        }
        if (i % 256 == 255)
            usleep(200); /* Lets the workers fall asleep. */
    }
    check_all_take_part(w);
    workers_close(w);
    free(counts);
}

static void *pool_main(void *argument)
{
    check_jobs(2, *(uint64_t *)argument, 3000);
    return NULL;
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void check_idle(void)
{
    struct workers *w = NULL;
    uint32_t counts[64] = {0};
    struct job job = {.counts = counts, .threads = 4, .delay_item = UINT32_MAX};
    CHECK(workers_open(4, &w, NULL) == ST_OK);
    workers_run(w, count_item, &job, 64);
    /* A thread that had lost its core spins later. So one quiet window is enough; a thread that
     * never sleeps would leave none. */
    double used = 1;
    for (int i = 0; i < 8 && used >= 0.0025; i++) {
        usleep(5000);
        double begin = cpu_seconds();
        usleep(250000);
        used = cpu_seconds() - begin;
    }
    CHECKF(used < 0.0025, "idle for 250 ms, used %.3f ms of CPU", used * 1e3);
    workers_close(w);
}

static uint32_t threads_left = UINT32_MAX; /* Threads until pthread_create fails. */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *self);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *self);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *self)
{
    if (threads_left == 0)
        return EAGAIN;
    threads_left--;
    return __real_pthread_create(thread, attributes, run, self);
}

/* The host permits no more threads: the error says which thread could not be started. */
static void check_no_thread(void)
{
    struct error error = {""};
    struct workers *none = NULL;
    threads_left = 2;
    CHECK(workers_open(5, &none, &error) == ST_NO_RESOURCE && none == NULL);
    threads_left = UINT32_MAX;
    CHECKF(strncmp(error.text, "cannot start thread 4 of 5: ", 28) == 0, "%s", error.text);
}

int main(void)
{
    uint64_t seed = test_seed(), seeds[3] = {seed + 1, seed + 2, seed + 3};
    struct error error = {""};
    struct workers *none = NULL;
    for (uint32_t threads = 1; threads <= 5; threads++)
        check_jobs(threads, seed + threads, 3000);
    pthread_t pools[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&pools[i], NULL, pool_main, &seeds[i]) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(pools[i], NULL) == 0);
    check_idle();
    check_no_thread();
    workers_close(NULL);
    CHECK(workers_open(0, &none, &error) == ST_INVALID && error.text[0] != 0);
    return 0;
}
