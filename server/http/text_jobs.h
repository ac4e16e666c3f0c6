/* text_jobs: threads for work on the texts of requests (JSON, chat templates, tokens), so that a
 * large body does not hold up the event loop. The loop thread makes every call; the threads run the
 * jobs. It does not know what a job does: text_work.c does. Of the queued jobs, the first one of the
 * tenant that was served longest ago begins, so that one tenant's jobs delay another's only by the
 * jobs that run. With two threads or more, one of them takes no large jobs, and the others have a
 * higher nice value, so that large jobs do not hold up small ones. The caller owns the memory of
 * jobs, of which at most TEXT_JOBS_QUEUED_MAX are queued. */
#ifndef SERVER_HTTP_TEXT_JOBS_H
#define SERVER_HTTP_TEXT_JOBS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define TEXT_JOBS_QUEUED_MAX 4096

struct text_job {
    void (*run)(struct text_job *job); /* Called on one of the threads. */
    uint32_t tenant;                   /* Jobs of one number belong to one tenant. */
    bool large;                        /* It may take long. */
    struct text_job *next;             /* Private. */
};

struct text_jobs;

/* threads: 1 or more. */
enum status text_jobs_open(uint32_t threads, struct text_jobs **out, struct error *error);
/* Waits until the jobs that run have ended, and ends the threads. Queued jobs are not run. The
 * caller then collects all jobs with text_jobs_done, and calls text_jobs_close. */
void text_jobs_stop(struct text_jobs *jobs);
void text_jobs_close(struct text_jobs *jobs); /* Requires text_jobs_stop. NULL is fine. */

/* Returns a descriptor that is readable while text_jobs_done may return a job. */
int text_jobs_fd(const struct text_jobs *jobs);
/* Queues a job. Returns false if TEXT_JOBS_QUEUED_MAX are queued. The caller keeps the memory, which must stay
 * until text_jobs_done has returned the job, or text_jobs_cancel true. */
bool text_jobs_add(struct text_jobs *jobs, struct text_job *job);
/* Takes a job out of the queue. Returns false if it runs or has run: text_jobs_done returns it. */
bool text_jobs_cancel(struct text_jobs *jobs, struct text_job *job);
/* Returns a job that has run, or that was queued when text_jobs_stop was called; NULL = none. */
struct text_job *text_jobs_done(struct text_jobs *jobs);

#endif
