/* ledger: see the header. Entries go through three states: FREE -> OPEN (on the loop) -> ENDED (on
 * the loop) -> FREE (on the thread, when the line is in the file). Each line is one write, so after
 * a kill at most the last line of the file belongs to an entry that is still ENDED. */
#include "events/ledger.h"

#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC      "cleave ledger 1"
#define HEAD_BYTES 4096
#define CLOSE_S    1
#define RETRY_S    1
#define TAIL_BYTES 4096 /* Longer than any line. */

enum { ENTRY_FREE, ENTRY_OPEN, ENTRY_ENDED };

struct head {
    char magic[16];
    uint64_t entry_bytes;
    uint64_t entries;
    uint64_t next_number;
};

struct ledger {
    char path[LIMIT_PATH_BYTES];
    int fd; /* The ledger; thread only, except in ledger_file_use, which holds `writing`. */
    int open_fd;
    struct head *head;
    struct ledger_entry *entries;
    pthread_t thread;
    pthread_mutex_t writing; /* Held while a line is written. */
    pthread_mutex_t mutex;   /* Guards everything below. */
    pthread_cond_t changed;
    pthread_cond_t ended_cond;
    bool closing;
    bool has_ended;
    uint32_t free_slots[LEDGER_SLOTS];
    uint32_t free_count;
    uint32_t ended[LEDGER_SLOTS]; /* A ring of entries to be written. */
    uint32_t ended_first;
    uint32_t ended_count;
    struct ledger_counts counts;
};

_Static_assert(sizeof(struct ledger_entry) == 528, "the file's entries have a fixed size");

static int64_t unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- lines ---- */

static void time_add(struct text *out, const char *name, int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm utc;
    if (ms <= 0 || gmtime_r(&seconds, &utc) == NULL)
        return;
    text_format_add(out, ",\"%s\":\"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\"", name,
                    utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                    utc.tm_sec, (int)(ms % 1000));
}

static void member_add(struct text *out, const char *name, const char *value, size_t capacity)
{
    size_t bytes = strnlen(value, capacity);
    if (bytes == 0)
        return;
    text_format_add(out, ",\"%s\":", name);
    text_add_json_string(out, value, bytes);
}

static void line_write(const struct ledger_entry *entry, struct text *out)
{
    text_format_add(out, "{\"number\":%llu", (unsigned long long)entry->number);
    time_add(out, "began", entry->began_unix_ms);
    time_add(out, "ended", entry->ended_unix_ms);
    member_add(out, "request", entry->request_id, sizeof(entry->request_id));
    member_add(out, "answer", entry->answer_id, sizeof(entry->answer_id));
    member_add(out, "key", entry->key_name, sizeof(entry->key_name));
    member_add(out, "model", entry->model, sizeof(entry->model));
    text_format_add(out, ",\"status\":%u", entry->status);
    member_add(out, "finish", entry->finish, sizeof(entry->finish));
    text_format_add(out, ",\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"answer_tokens\":%llu}\n",
                    (unsigned long long)entry->prompt_tokens,
                    (unsigned long long)entry->cached_tokens,
                    (unsigned long long)entry->answer_tokens);
}

/* Writes the data whole or not at all. Returns false with errno set. Sets *torn_out if the file
 * ends within a line now. */
static bool append(int fd, const char *data, size_t bytes, bool *torn_out)
{
    struct stat info;
    ssize_t wrote;
    do
        wrote = write(fd, data, bytes);
    while (wrote < 0 && errno == EINTR);
    if (wrote == (ssize_t)bytes)
        return true;
    int failed = wrote < 0 ? errno : ENOSPC;
    if (wrote > 0 && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < wrote ||
                      ftruncate(fd, info.st_size - wrote) != 0))
        *torn_out = true;
    errno = failed;
    return false;
}

/* ---- on the thread ---- */

/* Writes the line of an entry. Returns false, with the reason in `why`, if that failed. */
static bool entry_write(struct ledger *l, const struct ledger_entry *entry, bool *torn,
                        char why[128])
{
    struct text line = {0};
    line_write(entry, &line);
    pthread_mutex_lock(&l->writing);
    bool good = !line.broken && (!*torn || append(l->fd, "\n", 1, torn));
    if (good) {
        *torn = false;
        good = append(l->fd, line.data, line.bytes, torn);
    }
    if (!good)
        snprintf(why, 128, "%s", line.broken ? "out of memory" : strerror(errno));
    pthread_mutex_unlock(&l->writing);
    text_done(&line);
    return good;
}

static void wait_a_second(struct ledger *l)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += RETRY_S;
    while (!l->closing && pthread_cond_timedwait(&l->changed, &l->mutex, &until) == 0) {
    }
}

static void *run(void *self)
{
    struct ledger *l = self;
    bool torn = false;
    char why[128] = "";
    pthread_mutex_lock(&l->mutex);
    while (!l->closing || l->ended_count > 0) {
        if (l->ended_count == 0) {
            pthread_cond_wait(&l->changed, &l->mutex);
            continue;
        }
        uint32_t slot = l->ended[l->ended_first];
        pthread_mutex_unlock(&l->mutex);
        bool good = entry_write(l, &l->entries[slot], &torn, why);
        pthread_mutex_lock(&l->mutex);
        snprintf(l->counts.failure, sizeof(l->counts.failure), "%s", good ? "" : why);
        if (!good) {
            if (l->closing)
                break; /* The next process writes them. */
            wait_a_second(l);
            continue;
        }
        l->entries[slot].state = ENTRY_FREE;
        l->ended_first = (l->ended_first + 1) % LEDGER_SLOTS;
        l->ended_count--;
        l->free_slots[l->free_count++] = slot;
        l->counts.written++;
    }
    l->has_ended = true;
    pthread_cond_signal(&l->ended_cond);
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* ---- opening ---- */

static enum status lines_file_open(const char *path, int *fd_out, struct error *error)
{
    /* Not blocking, so that a FIFO without a reader is an error and not a wait. */
    *fd_out = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    return *fd_out >= 0 ? ST_OK : error_set(error, ST_IO, "%s: %s", path, strerror(errno));
}

/* Finds how the file ends: *torn_out = bytes of an incomplete last line, *number_out = the number
 * of the last complete line (0 = none). */
static void tail_read(int fd, uint64_t *torn_out, uint64_t *number_out)
{
    char tail[TAIL_BYTES + 1];
    struct stat info;
    *torn_out = *number_out = 0;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0)
        return;
    off_t from = info.st_size > TAIL_BYTES ? info.st_size - TAIL_BYTES : 0;
    ssize_t got = pread(fd, tail, TAIL_BYTES, from);
    if (got <= 0)
        return;
    ssize_t end = got;
    while (end > 0 && tail[end - 1] != '\n')
        end--;
    *torn_out = (uint64_t)(got - end);
    ssize_t begin = end > 0 ? end - 1 : 0;
    while (begin > 0 && tail[begin - 1] != '\n')
        begin--;
    tail[end] = 0;
    unsigned long long number = 0;
    if (sscanf(tail + begin, "{\"number\":%llu,", &number) == 1)
        *number_out = number;
}

/* Ends a torn last line, so that the next line begins at its own beginning. */
static enum status torn_mark(struct ledger *l, struct error *error)
{
    char mark[48];
    bool torn;
    int bytes = snprintf(mark, sizeof(mark), "\n{\"torn\":%llu}\n",
                         (unsigned long long)l->counts.torn_bytes);
    if (l->counts.torn_bytes == 0 || append(l->fd, mark, (size_t)bytes, &torn))
        return ST_OK;
    return error_set(error, ST_IO, "%s: %s", l->path, strerror(errno));
}

/* Opens and maps the file of the open answers. */
static enum status entries_open(struct ledger *l, struct error *error)
{
    static const struct head fresh = {.magic = MAGIC,
                                      .entry_bytes = sizeof(struct ledger_entry),
                                      .entries = LEDGER_SLOTS,
                                      .next_number = 1};
    const size_t bytes = HEAD_BYTES + LEDGER_SLOTS * sizeof(struct ledger_entry);
    char path[LIMIT_PATH_BYTES + 8];
    struct stat info;
    snprintf(path, sizeof(path), "%s.open", l->path);
    l->open_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->open_fd < 0)
        return error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    if (flock(l->open_fd, LOCK_EX | LOCK_NB) != 0)
        return error_set(error, ST_NO_RESOURCE, "%s: another process writes this ledger", l->path);
    bool known = fstat(l->open_fd, &info) == 0 && S_ISREG(info.st_mode);
    if (!known || (info.st_size != 0 && info.st_size != (off_t)bytes))
        return error_set(error, ST_INVALID, "%s: this is no file of open answers: move it away",
                         path);
    /* The blocks are allocated now, because a full disk must not be noticed by a signal later. */
    int failed = posix_fallocate(l->open_fd, 0, (off_t)bytes);
    if (failed != 0)
        return error_set(error, ST_IO, "%s: %s", path, strerror(failed));
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, l->open_fd, 0);
    if (map == MAP_FAILED)
        return error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    l->head = map;
    l->entries = (struct ledger_entry *)(void *)((char *)map + HEAD_BYTES);
    if (info.st_size == 0 || l->head->magic[0] == 0)
        *l->head = fresh; /* Or a process was killed before it wrote the head. */
    if (memcmp(l->head->magic, fresh.magic, sizeof(fresh.magic)) == 0 &&
        l->head->entry_bytes == fresh.entry_bytes && l->head->entries == fresh.entries)
        return ST_OK;
    return error_set(error, ST_INVALID, "%s: the open answers of another release: move it away",
                     path);
}

static const struct ledger_entry *compared; /* qsort has no context; ledger_open is called once. */

static int by_number(const void *a, const void *b)
{
    uint64_t left = compared[*(const uint32_t *)a].number;
    uint64_t right = compared[*(const uint32_t *)b].number;
    return left < right ? -1 : left > right;
}

/* Divides the slots into free ones and those of an earlier process whose lines are not written yet.
 * last: number of the answer in the file's last line. */
static void entries_take(struct ledger *l, uint64_t last)
{
    for (uint32_t i = LEDGER_SLOTS; i-- > 0;) {
        struct ledger_entry *entry = &l->entries[i];
        if (entry->state == ENTRY_OPEN) {
            entry->ended_unix_ms = 0;
            snprintf(entry->finish, sizeof(entry->finish), "killed");
            entry->state = ENTRY_ENDED;
        }
        if (entry->number >= l->head->next_number)
            l->head->next_number = entry->number + 1;
        if (entry->state == ENTRY_ENDED && entry->number != last) {
            l->ended[l->ended_count++] = i;
        } else {
            entry->state = ENTRY_FREE;
            l->free_slots[l->free_count++] = i;
        }
    }
    compared = l->entries;
    qsort(l->ended, l->ended_count, sizeof(l->ended[0]), by_number);
    l->counts.left_by_earlier = l->ended_count;
}

static void ledger_free(struct ledger *l)
{
    if (l->head != NULL)
        munmap(l->head, HEAD_BYTES + LEDGER_SLOTS * sizeof(struct ledger_entry));
    if (l->open_fd >= 0)
        close(l->open_fd);
    if (l->fd >= 0)
        close(l->fd);
    free(l);
}

static bool thread_start(struct ledger *l)
{
    sigset_t all, before;
    sigfillset(&all); /* Signals are for the loop thread. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&l->thread, NULL, run, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0;
}

enum status ledger_open(const char *path, struct ledger **out, struct error *error)
{
    struct ledger *l = calloc(1, sizeof(*l));
    pthread_condattr_t monotonic;
    uint64_t last;
    if (l == NULL || strlen(path) >= sizeof(l->path)) {
        free(l);
        return error_set(error, ST_NO_MEMORY, "%s: out of memory, or too long", path);
    }
    snprintf(l->path, sizeof(l->path), "%s", path);
    l->fd = l->open_fd = -1;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->mutex, NULL);
    pthread_mutex_init(&l->writing, NULL);
    pthread_cond_init(&l->changed, &monotonic);
    pthread_cond_init(&l->ended_cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
    enum status status = entries_open(l, error);
    if (status == ST_OK)
        status = lines_file_open(path, &l->fd, error);
    if (status == ST_OK) {
        tail_read(l->fd, &l->counts.torn_bytes, &last);
        status = torn_mark(l, error);
    }
    if (status == ST_OK) {
        entries_take(l, last);
        if (!thread_start(l))
            status = error_set(error, ST_NO_MEMORY, "%s: no thread for it", path);
    }
    if (status != ST_OK) {
        ledger_free(l);
        return status;
    }
    *out = l;
    return ST_OK;
}

enum status ledger_file_open(const struct ledger *l, int *fd_out, struct error *error)
{
    return lines_file_open(l->path, fd_out, error);
}

void ledger_file_use(struct ledger *l, int fd)
{
    pthread_mutex_lock(&l->writing);
    close(l->fd);
    l->fd = fd;
    pthread_mutex_unlock(&l->writing);
}

void ledger_close(struct ledger *l)
{
    struct timespec until;
    if (l == NULL)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CLOSE_S;
    pthread_mutex_lock(&l->mutex);
    l->closing = true;
    pthread_cond_signal(&l->changed);
    int failed = 0;
    while (!l->has_ended && failed == 0)
        failed = pthread_cond_timedwait(&l->ended_cond, &l->mutex, &until);
    bool ended = l->has_ended;
    pthread_mutex_unlock(&l->mutex);
    if (!ended) { /* The disk hangs, so the memory stays: the thread may still use it. */
        pthread_detach(l->thread);
        return;
    }
    pthread_join(l->thread, NULL);
    ledger_free(l);
}

/* ---- on the loop ---- */

struct ledger_entry *ledger_begin(struct ledger *l, const char *request_id, const char *answer_id,
                                  const char *key_name, const char *model)
{
    pthread_mutex_lock(&l->mutex);
    bool full = l->free_count == 0;
    l->counts.without_entry += full;
    uint32_t slot = full ? 0 : l->free_slots[--l->free_count];
    pthread_mutex_unlock(&l->mutex);
    if (full)
        return NULL;
    struct ledger_entry *entry = &l->entries[slot];
    *entry = (struct ledger_entry){.number = l->head->next_number++, .began_unix_ms = unix_ms()};
    snprintf(entry->request_id, sizeof(entry->request_id), "%s", request_id);
    snprintf(entry->answer_id, sizeof(entry->answer_id), "%s", answer_id);
    snprintf(entry->key_name, sizeof(entry->key_name), "%s", key_name);
    snprintf(entry->model, sizeof(entry->model), "%s", model);
    atomic_signal_fence(memory_order_seq_cst); /* A kill leaves what was stored before. */
    entry->state = ENTRY_OPEN;
    return entry;
}

void ledger_end(struct ledger *l, struct ledger_entry *entry, unsigned http_status,
                const char *finish)
{
    if (entry == NULL)
        return;
    entry->status = http_status;
    entry->ended_unix_ms = unix_ms();
    snprintf(entry->finish, sizeof(entry->finish), "%s", finish);
    atomic_signal_fence(memory_order_seq_cst);
    entry->state = ENTRY_ENDED;
    pthread_mutex_lock(&l->mutex);
    uint32_t slot = (uint32_t)(entry - l->entries);
    l->ended[(l->ended_first + l->ended_count++) % LEDGER_SLOTS] = slot;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->mutex);
}

void ledger_drop(struct ledger *l, struct ledger_entry *entry)
{
    if (entry == NULL)
        return;
    entry->state = ENTRY_FREE;
    pthread_mutex_lock(&l->mutex);
    l->free_slots[l->free_count++] = (uint32_t)(entry - l->entries);
    pthread_mutex_unlock(&l->mutex);
}

struct ledger_counts ledger_counts(struct ledger *l)
{
    pthread_mutex_lock(&l->mutex);
    struct ledger_counts counts = l->counts;
    counts.waiting = l->ended_count;
    pthread_mutex_unlock(&l->mutex);
    return counts;
}
