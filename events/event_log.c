/* event_log: two buffers: the loop fills one while the thread writes the other. */
#include "events/event_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Lines have 100 to 300 bytes, so that the buffer holds what is logged while the disk pauses. */
#define BUFFER_BYTES (1u << 20)
#define GATHER_US    20000 /* Lines are gathered for this time and written together. */
#define CLOSE_S      1

struct event_log {
    int fd;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t filled; /* The buffer is no longer empty, or `closing` is set. */
    pthread_cond_t ended;
    bool closing;
    bool has_ended;
    char *filling;
    size_t bytes; /* Bytes in `filling`. */
    uint64_t lines;
    uint64_t gaps;         /* Lines that `filling` reports as missing. */
    uint64_t dropped_here; /* Lines dropped after the last line in `filling`. */
    char *writing;
    /* Thread only: lines that the file did not take, to be reported before the next one. */
    uint64_t lost;
    bool torn; /* The file ends within a line. */
    struct event_log_counts counts;
};

/* ---- on the thread ---- */

/* Removes the part of a batch that was written, if the log is a regular file. Returns true if
 * nothing of the batch remains. */
static bool take_back(const struct event_log *log, size_t written)
{
    struct stat info;
    return fstat(log->fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size >= (off_t)written &&
           ftruncate(log->fd, info.st_size - (off_t)written) == 0;
}

/* Returns false with errno set; a part may have been written. */
static bool write_all(struct event_log *log, const char *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t wrote = write(log->fd, data + done, bytes - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            int error_number = errno;
            log->torn = log->torn || (done > 0 && !take_back(log, done));
            errno = error_number;
            return false;
        }
        done += (size_t)wrote;
    }
    log->torn = false;
    return true;
}

/* Reports missing lines first, so that a reader knows where they are missing. */
static bool write_after_gap(struct event_log *log, size_t bytes)
{
    char gap[40];
    size_t gap_bytes = 0;
    if (log->torn && !write_all(log, "\n", 1))
        return false;
    if (log->lost > 0)
        gap_bytes = (size_t)snprintf(gap, sizeof(gap), "{\"dropped\":%llu}\n",
                                     (unsigned long long)log->lost);
    if (gap_bytes > 0 && !write_all(log, gap, gap_bytes))
        return false;
    bool good = write_all(log, log->writing, bytes);
    int error_number = errno;
    if (!good && !log->torn)
        (void)take_back(log, gap_bytes); /* The next batch reports the gap again. */
    errno = error_number;
    return good;
}

static void write_batch(struct event_log *log, size_t bytes, uint64_t lines, uint64_t gaps)
{
    bool good = write_after_gap(log, bytes);
    int error_number = errno;
    log->lost = good ? 0 : log->lost + lines + gaps;
    pthread_mutex_lock(&log->mutex);
    if (good) {
        log->counts.written += lines;
    } else {
        log->counts.dropped += lines;
        snprintf(log->counts.drop_reason, sizeof(log->counts.drop_reason), "%s",
                 strerror(error_number));
    }
    pthread_mutex_unlock(&log->mutex);
}

static void *run(void *self)
{
    struct event_log *log = self;
    pthread_mutex_lock(&log->mutex);
    while (!log->closing || log->bytes > 0) {
        if (log->bytes == 0) {
            pthread_cond_wait(&log->filled, &log->mutex);
            continue;
        }
        bool closing = log->closing;
        pthread_mutex_unlock(&log->mutex);
        if (!closing)
            usleep(GATHER_US);
        pthread_mutex_lock(&log->mutex);
        char *full = log->filling;
        size_t bytes = log->bytes;
        uint64_t lines = log->lines;
        uint64_t gaps = log->gaps;
        log->filling = log->writing;
        log->writing = full;
        log->bytes = 0;
        log->lines = log->gaps = 0;
        pthread_mutex_unlock(&log->mutex);
        write_batch(log, bytes, lines, gaps);
        pthread_mutex_lock(&log->mutex);
    }
    log->has_ended = true;
    pthread_cond_signal(&log->ended);
    pthread_mutex_unlock(&log->mutex);
    return NULL;
}

/* ---- on the loop ---- */

static enum status thread_start(struct event_log *log)
{
    sigset_t all, before;
    sigfillset(&all); /* Signals are for the loop thread. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&log->thread, NULL, run, log);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0 ? ST_OK : ST_NO_RESOURCE;
}

static void log_free(struct event_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    free(log->filling);
    free(log->writing);
    free(log);
}

enum status event_log_open(const char *path, struct event_log **out, struct error *error)
{
    struct event_log *log = calloc(1, sizeof(*log));
    if (log == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&log->mutex, NULL);
    pthread_cond_init(&log->filled, NULL);
    pthread_cond_init(&log->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    log->filling = malloc(BUFFER_BYTES);
    log->writing = malloc(BUFFER_BYTES);
    /* Not blocking, so that a FIFO without a reader is an error and not a wait. */
    log->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    enum status status = ST_OK;
    if (log->fd < 0)
        status = error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    else if (log->filling == NULL || log->writing == NULL || thread_start(log) != ST_OK)
        status = error_set(error, ST_NO_MEMORY, "%s: no memory for it", path);
    if (status != ST_OK) {
        log_free(log);
        return status;
    }
    *out = log;
    return ST_OK;
}

void event_log_close(struct event_log *log)
{
    struct timespec until;
    if (log == NULL)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CLOSE_S;
    pthread_mutex_lock(&log->mutex);
    log->closing = true;
    pthread_cond_signal(&log->filled);
    int failed = 0;
    while (!log->has_ended && failed == 0)
        failed = pthread_cond_timedwait(&log->ended, &log->mutex, &until);
    bool ended = log->has_ended;
    pthread_mutex_unlock(&log->mutex);
    if (!ended) { /* The disk hangs, so the memory stays allocated: the thread may still use it. */
        pthread_detach(log->thread);
        return;
    }
    pthread_join(log->thread, NULL);
    log_free(log);
}

bool event_log_same_file(const struct event_log *first, const struct event_log *second)
{
    struct stat one, other;
    return fstat(first->fd, &one) == 0 && fstat(second->fd, &other) == 0 &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static bool append(struct event_log *log, const char *line, size_t bytes)
{
    if (log->bytes + bytes + 1 > BUFFER_BYTES)
        return false;
    memcpy(log->filling + log->bytes, line, bytes);
    log->filling[log->bytes + bytes] = '\n';
    log->bytes += bytes + 1;
    return true;
}

void event_log_add(struct event_log *log, const char *line, size_t line_bytes)
{
    char gap[40];
    pthread_mutex_lock(&log->mutex);
    bool was_empty = log->bytes == 0;
    size_t gap_bytes = (size_t)snprintf(gap, sizeof(gap), "{\"dropped\":%llu}",
                                        (unsigned long long)log->dropped_here);
    bool good = log->bytes + gap_bytes + line_bytes + 2 <= BUFFER_BYTES;
    if (good && log->dropped_here > 0) {
        append(log, gap, gap_bytes);
        log->gaps += log->dropped_here;
        log->dropped_here = 0;
    }
    if (good && append(log, line, line_bytes)) {
        log->lines++;
    } else {
        log->dropped_here++;
        log->counts.dropped++;
        snprintf(log->counts.drop_reason, sizeof(log->counts.drop_reason),
                 "the file takes lines too slowly");
    }
    if (was_empty)
        pthread_cond_signal(&log->filled);
    pthread_mutex_unlock(&log->mutex);
}

struct event_log_counts event_log_counts(struct event_log *log)
{
    pthread_mutex_lock(&log->mutex);
    struct event_log_counts counts = log->counts;
    pthread_mutex_unlock(&log->mutex);
    return counts;
}
