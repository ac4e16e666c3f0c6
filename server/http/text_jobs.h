/* text_jobs: owns the text threads and the queue of their jobs. A job works on the text of a
 * request (JSON, chat templates, tokens), so that a large body does not delay the event loop.
 * server/http/ calls the functions on the gateway's event loop thread. The caller owns the memory
 * of jobs. The part does not know what a job does.
 *
 * A *tenant* is an API key; all requests without a key are one tenant. A thread takes the oldest
 * job of the tenant whose last job began longest ago. With two threads or more, one thread takes no
 * large jobs, so that large jobs do not delay small jobs. */
#ifndef SERVER_HTTP_TEXT_JOBS_H
#define SERVER_HTTP_TEXT_JOBS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define TEXT_JOBS_QUEUED_MAX 4096 /* Most queued jobs. */

/* A job. The caller sets all fields except `next`. */
struct text_job {
    void (*run)(struct text_job *job); /* Does the job; called on a text thread. */
    uint32_t tenant; /* Number of the tenant; numbers that are equal modulo 512 are one tenant. */
    bool is_large;   /* The job may take long. */
    struct text_job *next; /* Used by text_jobs.c only. */
};

struct text_jobs;

/* Starts `thread_count` threads, ≥ 1. On failure returns ST_NO_MEMORY or ST_NO_RESOURCE, with the
 * reason in *error. */
enum status text_jobs_open(uint32_t thread_count, struct text_jobs **out, struct error *error);
/* Waits until the running jobs have ended, and ends the threads. Queued jobs are not run, but
 * text_jobs_done returns them. */
void text_jobs_stop(struct text_jobs *jobs);
void text_jobs_close(struct text_jobs *jobs); /* Requires text_jobs_stop. NULL is fine. */

/* Returns a descriptor for epoll, readable when text_jobs_done has a job that has run. */
int text_jobs_fd(const struct text_jobs *jobs);
/* Queues a job, whose memory must stay valid until text_jobs_done has returned the job or
 * text_jobs_cancel has returned true. Returns false if TEXT_JOBS_QUEUED_MAX jobs are queued, or
 * after text_jobs_stop. */
bool text_jobs_add(struct text_jobs *jobs, struct text_job *job);
/* Removes a job that text_jobs_done has not returned. Returns false if the job has left the queue;
 * text_jobs_done will then return the job. */
bool text_jobs_cancel(struct text_jobs *jobs, struct text_job *job);
/* Returns a job that has run, or that was queued when text_jobs_stop was called; NULL = none. */
struct text_job *text_jobs_done(struct text_jobs *jobs);

#endif
