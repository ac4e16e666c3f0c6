/* text_jobs: see the header. */
#include "server/http/text_jobs.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* Added to the nice value of threads that take large jobs, if another thread takes only small ones:
 * the event loop, machines on this host and small jobs go first. */
#define LARGE_NICE 5

#define TENANTS 512 /* Tenants whose numbers are equal modulo this share a place. */

struct text_jobs {
    pthread_mutex_t lock;
    /* A job was added, or the threads shall end: for the threads that take all jobs, and for the
     * one that takes small jobs only. */
    pthread_cond_t added, added_small;
    bool small_waits; /* The thread for small jobs waits, and was not woken yet. */
    struct text_job *queue, **queue_end;
    uint32_t queued;
    struct text_job *done;
    uint64_t served[TENANTS]; /* Number of the job of the tenant that began last; 0 = none. */
    uint64_t begun;           /* Jobs begun. */
    bool stopping;
    bool fd_ready; /* `fd` is readable. */
    int fd;
    uint32_t thread_count;
    pthread_t threads[];
};

/* Takes the first job of the tenant that was served longest ago; NULL = none. Requires the lock. */
static struct text_job *queue_take(struct text_jobs *jobs, bool small_only)
{
    struct text_job **best = NULL;
    for (struct text_job **at = &jobs->queue; *at != NULL; at = &(*at)->next) {
        bool fits = !small_only || !(*at)->is_large;
        if (fits && (best == NULL || jobs->served[(*at)->tenant % TENANTS] <
                                         jobs->served[(*best)->tenant % TENANTS]))
            best = at;
    }
    if (best == NULL)
        return NULL;
    struct text_job *job = *best;
    *best = job->next;
    if (job->next == NULL)
        jobs->queue_end = best;
    jobs->queued--;
    jobs->served[job->tenant % TENANTS] = ++jobs->begun;
    return job;
}

/* Waits for a job that the thread may take. Requires the lock. */
static void job_wait(struct text_jobs *jobs, bool small_only)
{
    jobs->small_waits = jobs->small_waits || small_only;
    pthread_cond_wait(small_only ? &jobs->added_small : &jobs->added, &jobs->lock);
    jobs->small_waits = jobs->small_waits && !small_only;
}

static void jobs_run(struct text_jobs *jobs, bool small_only)
{
    pthread_mutex_lock(&jobs->lock);
    while (!jobs->stopping) {
        struct text_job *job = queue_take(jobs, small_only);
        if (job == NULL) {
            job_wait(jobs, small_only);
            continue;
        }
        pthread_mutex_unlock(&jobs->lock);
        job->run(job);
        pthread_mutex_lock(&jobs->lock);
        job->next = jobs->done;
        jobs->done = job;
        if (!jobs->fd_ready)
            (void)eventfd_write(jobs->fd, 1);
        jobs->fd_ready = true;
    }
    pthread_mutex_unlock(&jobs->lock);
}

static void *thread_main(void *jobs)
{
    jobs_run(jobs, false);
    return NULL;
}

static void *thread_main_large(void *jobs)
{
    pid_t thread = gettid();
    /* This fails if the value is the highest one. */
    (void)setpriority(PRIO_PROCESS, (id_t)thread,
                      getpriority(PRIO_PROCESS, (id_t)thread) + LARGE_NICE);
    jobs_run(jobs, false);
    return NULL;
}

static void *thread_main_small(void *jobs)
{
    jobs_run(jobs, true);
    return NULL;
}

enum status text_jobs_open(uint32_t thread_count, struct text_jobs **out, struct error *error)
{
    struct text_jobs *jobs = calloc(1, sizeof(*jobs) + thread_count * sizeof(jobs->threads[0]));
    if (jobs == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    jobs->queue_end = &jobs->queue;
    pthread_mutex_init(&jobs->lock, NULL);
    pthread_cond_init(&jobs->added, NULL);
    pthread_cond_init(&jobs->added_small, NULL);
    int failed = 0;
    jobs->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (jobs->fd < 0)
        failed = errno;
    while (failed == 0 && jobs->thread_count < thread_count) {
        void *(*run)(void *) = thread_count == 1         ? thread_main
                               : jobs->thread_count == 0 ? thread_main_small
                                                         : thread_main_large;
        failed = pthread_create(&jobs->threads[jobs->thread_count], NULL, run, jobs);
        jobs->thread_count += failed == 0;
    }
    if (failed != 0) {
        text_jobs_stop(jobs);
        text_jobs_close(jobs);
        return error_set(error, ST_NO_RESOURCE, "no thread for the texts of requests: %s",
                         strerror(failed));
    }
    *out = jobs;
    return ST_OK;
}

void text_jobs_stop(struct text_jobs *jobs)
{
    pthread_mutex_lock(&jobs->lock);
    jobs->stopping = true;
    pthread_cond_broadcast(&jobs->added);
    pthread_cond_broadcast(&jobs->added_small);
    pthread_mutex_unlock(&jobs->lock);
    for (uint32_t i = 0; i < jobs->thread_count; i++)
        pthread_join(jobs->threads[i], NULL);
    *jobs->queue_end = jobs->done;
    jobs->done = jobs->queue;
    jobs->queue = NULL;
    jobs->queue_end = &jobs->queue;
    jobs->queued = 0;
}

void text_jobs_close(struct text_jobs *jobs)
{
    if (jobs == NULL)
        return;
    pthread_cond_destroy(&jobs->added);
    pthread_cond_destroy(&jobs->added_small);
    pthread_mutex_destroy(&jobs->lock);
    if (jobs->fd >= 0)
        close(jobs->fd);
    free(jobs);
}

int text_jobs_fd(const struct text_jobs *jobs)
{
    return jobs->fd;
}

bool text_jobs_add(struct text_jobs *jobs, struct text_job *job)
{
    pthread_mutex_lock(&jobs->lock);
    bool fits = jobs->queued < TEXT_JOBS_QUEUED_MAX && !jobs->stopping;
    if (fits) {
        job->next = NULL;
        *jobs->queue_end = job;
        jobs->queue_end = &job->next;
        jobs->queued++;
        bool small = !job->is_large && jobs->small_waits;
        jobs->small_waits = jobs->small_waits && !small;
        pthread_cond_signal(small ? &jobs->added_small : &jobs->added);
    }
    pthread_mutex_unlock(&jobs->lock);
    return fits;
}

bool text_jobs_cancel(struct text_jobs *jobs, struct text_job *job)
{
    pthread_mutex_lock(&jobs->lock);
    struct text_job **at = &jobs->queue;
    while (*at != NULL && *at != job)
        at = &(*at)->next;
    bool found = *at != NULL;
    if (found) {
        *at = job->next;
        if (job->next == NULL)
            jobs->queue_end = at;
        jobs->queued--;
    }
    pthread_mutex_unlock(&jobs->lock);
    return found;
}

struct text_job *text_jobs_done(struct text_jobs *jobs)
{
    eventfd_t ignored;
    pthread_mutex_lock(&jobs->lock);
    struct text_job *job = jobs->done;
    if (job != NULL)
        jobs->done = job->next;
    else if (jobs->fd_ready)
        (void)eventfd_read(jobs->fd, &ignored);
    jobs->fd_ready = jobs->fd_ready && job != NULL;
    pthread_mutex_unlock(&jobs->lock);
    return job;
}
