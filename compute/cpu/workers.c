/* workers: see workers.h. A job is published by a new generation number. A share is one 64-bit
 * word, (generation, next, end), and an item is taken by compare-and-swap, so a worker that wakes
 * late can never take an item of a later job with an earlier job's function: it reads function and
 * context first, and they cannot change before the last item of their generation is done. The
 * caller waits for items, never for threads. */
#include "compute/cpu/workers.h"

#include "common/clock.h"
#include "compute/relax.h"

#include <assert.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Between the matrices of a decode step there are a few microseconds at most. A machine's next step
 * comes later than this and is worth a wake-up. */
#define SPIN_US 30

struct share {
    _Alignas(64) _Atomic uint64_t word; /* generation << 32 | next << 16 | end. */
};

struct worker {
    struct workers *owner;
    pthread_t thread;
    uint32_t index;
};

struct workers {
    uint32_t threads;
    uint32_t started;
    _Alignas(64) _Atomic uint32_t generation; /* Futex; workers sleep on it. */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    _Atomic(workers_fn) fn;
    _Atomic(void *) context;
    _Atomic uint32_t items;
    _Alignas(64) _Atomic uint32_t pending; /* Futex; the caller sleeps on it. */
    _Atomic uint32_t caller_sleeps;
    struct share shares[WORKERS_THREADS_MAX];
    struct worker workers[WORKERS_THREADS_MAX];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* Spins until *word differs from `value` or the time is up. */
static bool spin_while(_Atomic uint32_t *word, uint32_t value)
{
    uint64_t deadline = (uint64_t)clock_system_ns() + SPIN_US * 1000u;
    do {
        for (uint32_t i = 0; i < 32; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value)
                return true;
            cpu_relax();
        }
    } while ((uint64_t)clock_system_ns() < deadline);
    return false;
}

static bool share_take(struct share *share, uint32_t generation, uint32_t *item)
{
    uint64_t word = atomic_load_explicit(&share->word, memory_order_relaxed);
    for (;;) {
        uint32_t next = word >> 16 & 0xffffu, end = word & 0xffffu;
        if ((uint32_t)(word >> 32) != generation || next >= end)
            return false;
        if (atomic_compare_exchange_weak_explicit(&share->word, &word, word + (1u << 16),
                                                  memory_order_acq_rel, memory_order_relaxed)) {
            *item = next;
            return true;
        }
    }
}

/* First item of thread i's share. Shares hold offsets from it, which fit in 16 bits. */
static uint32_t share_base(uint32_t items, uint32_t threads, uint32_t i)
{
    return (uint32_t)((uint64_t)items * i / threads);
}

static void work(struct workers *w, uint32_t generation, uint32_t thread)
{
    uint32_t items = atomic_load_explicit(&w->items, memory_order_relaxed);
    workers_fn fn = atomic_load_explicit(&w->fn, memory_order_relaxed);
    void *context = atomic_load_explicit(&w->context, memory_order_relaxed);
    uint32_t done = 0;
    for (uint32_t k = 0; k < w->threads; k++) {
        uint32_t i = (thread + k) % w->threads, offset;
        while (share_take(&w->shares[i], generation, &offset)) {
            fn(context, share_base(items, w->threads, i) + offset, thread);
            done++;
        }
    }
    if (done == 0)
        return;
    if (atomic_fetch_sub(&w->pending, done) == done && atomic_load(&w->caller_sleeps) != 0)
        futex_wake(&w->pending, 1);
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct workers *w = self->owner;
    uint32_t seen = 0;
    for (;;) {
        if (!spin_while(&w->generation, seen)) {
            atomic_fetch_add(&w->sleepers, 1);
            while (atomic_load(&w->generation) == seen)
                futex_wait(&w->generation, seen);
            atomic_fetch_sub(&w->sleepers, 1);
        }
        seen = atomic_load_explicit(&w->generation, memory_order_acquire);
        if (atomic_load_explicit(&w->stop, memory_order_relaxed))
            return NULL;
        work(w, seen, self->index);
    }
}

uint32_t workers_share(const struct workers *w, uint32_t items, uint32_t thread)
{
    return share_base(items, w->threads, thread);
}

void workers_run(struct workers *w, workers_fn fn, void *context, uint32_t items)
{
    assert(items <= 65535u * w->threads);
    if (w->threads == 1 || items <= 1) {
        for (uint32_t i = 0; i < items; i++)
            fn(context, i, 0);
        return;
    }
    uint32_t generation = atomic_load_explicit(&w->generation, memory_order_relaxed) + 1;
    atomic_store_explicit(&w->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&w->context, context, memory_order_relaxed);
    atomic_store_explicit(&w->items, items, memory_order_relaxed);
    atomic_store_explicit(&w->pending, items, memory_order_relaxed);
    for (uint32_t i = 0; i < w->threads; i++) {
        uint32_t count = share_base(items, w->threads, i + 1) - share_base(items, w->threads, i);
        atomic_store_explicit(&w->shares[i].word, (uint64_t)generation << 32 | count,
                              memory_order_release);
    }
    /* Before reading sleepers; both are sequentially consistent. */
    atomic_store(&w->generation, generation);
    if (atomic_load(&w->sleepers) != 0)
        futex_wake(&w->generation, (int)w->threads);
    work(w, generation, 0);

    uint32_t left;
    while ((left = atomic_load_explicit(&w->pending, memory_order_acquire)) != 0) {
        if (spin_while(&w->pending, left))
            continue;
        atomic_store(&w->caller_sleeps, 1);
        if (atomic_load(&w->pending) == left)
            futex_wait(&w->pending, left);
        atomic_store(&w->caller_sleeps, 0);
    }
}

enum status workers_open(uint32_t threads, struct workers **out, struct error *error)
{
    if (threads == 0 || threads > WORKERS_THREADS_MAX)
        return error_set(error, ST_INVALID, "threads = %u: want 1 to %u", threads,
                         WORKERS_THREADS_MAX);
    struct workers *w = aligned_alloc(64, sizeof(*w));
    if (w == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for %u threads", threads);
    memset(w, 0, sizeof(*w));
    w->threads = threads;
    for (w->started = 1; w->started < threads; w->started++) {
        struct worker *worker = &w->workers[w->started];
        worker->owner = w;
        worker->index = w->started;
        int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (failed != 0) {
            (void)error_set(error, ST_NO_RESOURCE, "cannot start thread %u of %u: %s",
                            worker->index + 1, threads, strerror(failed));
            workers_close(w);
            return ST_NO_RESOURCE;
        }
    }
    *out = w;
    return ST_OK;
}

void workers_close(struct workers *w)
{
    if (w == NULL)
        return;
    atomic_store(&w->stop, true);
    atomic_fetch_add(&w->generation, 1);
    futex_wake(&w->generation, WORKERS_THREADS_MAX);
    for (uint32_t i = 1; i < w->started; i++)
        pthread_join(w->workers[i].thread, NULL);
    free(w);
}

uint32_t workers_threads(const struct workers *w)
{
    return w->threads;
}
