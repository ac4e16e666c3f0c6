/* meeting: see meeting.h. The memory is a memfd of the rank that creates it. The other ranks open
 * it through /proc while that process lives.
 *
 * Every rank has a counter of the pieces that it has published, and two buffers: piece n is in
 * buffer n mod 2. The buffer may be overwritten with piece n + 2 once all ranks have published
 * piece n + 1, because each rank does that after it has read piece n. So one counter, and one wait
 * per piece, are enough. */
#include "compute/meeting.h"

#include "common/clock.h"
#include "compute/relax.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Ranks have equal shares of a layer: they reach a meeting within this time of each other, or one
 * of them has lost its core. */
#define SPIN_US 50
/* How often a sleeping rank checks whether the rank that it waits for still lives. */
#define LIVENESS_CHECK_MS 20
/* Flag in `joined`, beside the number of ranks that have joined: a rank has given up. */
#define GIVEN_UP 0x80000000u

struct seat {                                 /* State of one rank. */
    _Alignas(128) _Atomic uint32_t published; /* Futex; pieces published so far. */
    _Atomic uint32_t sleepers;                /* Ranks that sleep on `published`. */
    _Atomic uint32_t left;
    _Atomic int32_t process; /* 0 = the rank has not joined yet. */
};

struct shared {
    uint64_t nonce;
    /* Set by the first rank that joins; 0 = none has joined. */
    _Atomic uint32_t ranks;
    _Alignas(128) _Atomic uint32_t joined; /* Futex. */
    struct seat seats[MEETING_RANKS_MAX];
    _Alignas(128) float pieces[MEETING_RANKS_MAX][2][MEETING_PIECE_FLOATS];
};

/* Contents of a group's id. */
struct group_id {
    char magic[8];
    int32_t process;
    int32_t file;
    uint64_t nonce;
};

static const char magic[8] = "meeting";
static_assert(sizeof(struct group_id) <= COMPUTE_GROUP_ID_BYTES, "it fits into an id");

struct meeting {
    int made; /* File of the memory until all ranks have joined; -1 = another rank created it. */
    struct shared *shared;
    uint32_t rank, ranks;
    uint32_t published;
    pid_t maker;
    /* One pidfd per rank, the creator's last; -1 = not opened yet. */
    int watched[MEETING_RANKS_MAX + 1];
    enum status failed;
    struct error error;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint32_t ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &time, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static struct meeting *meeting_new(void)
{
    struct meeting *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return NULL;
    m->made = -1;
    for (uint32_t i = 0; i <= MEETING_RANKS_MAX; i++)
        m->watched[i] = -1;
    return m;
}

enum status meeting_make(struct meeting **m, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                         struct error *error)
{
    struct group_id id = {.process = getpid()};
    assert(*m == NULL);
    struct meeting *made = meeting_new();
    if (made == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a group");
    memcpy(id.magic, magic, sizeof(magic));
    made->made = id.file = memfd_create("cleave-group", MFD_CLOEXEC);
    if (made->made < 0 || ftruncate(made->made, sizeof(struct shared)) != 0 ||
        getrandom(&id.nonce, sizeof(id.nonce), 0) != sizeof(id.nonce) ||
        pwrite(made->made, &id.nonce, sizeof(id.nonce), offsetof(struct shared, nonce)) !=
            sizeof(id.nonce)) {
        enum status status =
            error_set(error, ST_IO, "memory that a group shares: %s", strerror(errno));
        meeting_leave(made);
        return status;
    }
    memset(id_out, 0, COMPUTE_GROUP_ID_BYTES);
    memcpy(id_out, &id, sizeof(id));
    *m = made;
    return ST_OK;
}

/* After a failure the meeting can only be left. */
static enum status fail(struct meeting *m, enum status status, const struct error *error)
{
    m->failed = status;
    if (error != NULL)
        m->error = *error;
    return status;
}

/* ---- which processes live ---- */

static bool process_ended(struct meeting *m, uint32_t index, pid_t process)
{
    int *watched = &m->watched[index];
    if (*watched < 0)
        *watched = (int)syscall(SYS_pidfd_open, process, 0);
    /* Without pidfd_open, a process that has ended but is not waited for yet still counts as alive.
     */
    if (*watched < 0)
        return errno == ESRCH || (kill(process, 0) != 0 && errno == ESRCH);
    struct pollfd look = {.fd = *watched, .events = POLLIN};
    return poll(&look, 1, 0) > 0;
}

/* Whether the rank has left or its process has ended; false also for a rank that has not joined
 * yet. */
static bool is_gone(struct meeting *m, uint32_t rank)
{
    const struct seat *seat = &m->shared->seats[rank];
    const pid_t process = atomic_load(&seat->process);
    return atomic_load(&seat->left) != 0 || (process != 0 && process_ended(m, rank, process));
}

/* Returns true if the creator's process has ended. If it ended before it joined as a rank, no other
 * rank can join. */
static bool maker_gone(struct meeting *m)
{
    return m->maker != getpid() && process_ended(m, MEETING_RANKS_MAX, m->maker);
}

/* ---- joining ---- */

static enum status memory_map(struct meeting *m, const struct group_id *id, struct error *error)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%" PRId32 "/fd/%" PRId32, id->process, id->file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return error_set(error, ST_UNREACHABLE,
                         "the group's memory, of process %" PRId32 ": %s: %s", id->process, path,
                         strerror(errno));
    const bool fits = lseek(file, 0, SEEK_END) == (off_t)sizeof(struct shared);
    void *memory =
        fits ? mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
             : NULL;
    const int failed = errno;
    close(file);
    if (memory == MAP_FAILED)
        return error_set(error, ST_NO_MEMORY, "the group's memory: %s", strerror(failed));
    m->shared = memory;
    m->maker = id->process;
    if (memory != NULL && m->shared->nonce == id->nonce)
        return ST_OK;
    return error_set(error, ST_UNREACHABLE, "process %" PRId32 " has another group", id->process);
}

static enum status seat_take(struct meeting *m, struct error *error)
{
    uint32_t ranks = 0;
    int32_t other = 0;
    if (!atomic_compare_exchange_strong(&m->shared->ranks, &ranks, m->ranks) && ranks != m->ranks)
        return error_set(error, ST_MISMATCH,
                         "rank %" PRIu32 " of a group of %" PRIu32
                         " ranks: other ranks say that there are %" PRIu32,
                         m->rank, m->ranks, ranks);
    if (!atomic_compare_exchange_strong(&m->shared->seats[m->rank].process, &other, getpid()))
        return error_set(error, ST_MISMATCH,
                         "rank %" PRIu32 " of the group is process %" PRId32 " already", m->rank,
                         other);
    atomic_fetch_add(&m->shared->joined, 1);
    futex_wake(&m->shared->joined);
    return ST_OK;
}

static enum status missing_ranks_error(const struct meeting *m, uint32_t timeout_ms,
                                       struct error *error)
{
    char missing[80] = "";
    for (uint32_t i = 0, used = 0; i < m->ranks && used < sizeof(missing) - 8; i++)
        if (atomic_load(&m->shared->seats[i].process) == 0)
            used += (uint32_t)snprintf(missing + used, sizeof(missing) - used, "%s%" PRIu32,
                                       used > 0 ? ", " : "", i);
    return error_set(error, ST_TIMED_OUT,
                     "of the group's %" PRIu32 " ranks these have not joined within %" PRIu32
                     " ms: %s",
                     m->ranks, timeout_ms, missing);
}

static enum status await_all(struct meeting *m, uint32_t timeout_ms, struct error *error)
{
    const int64_t deadline_ns = clock_system_ns() + (int64_t)timeout_ms * 1000000;
    for (;;) {
        const uint32_t joined = atomic_load(&m->shared->joined);
        if (joined == m->ranks)
            return ST_OK;
        if ((joined & GIVEN_UP) != 0)
            return error_set(error, ST_UNREACHABLE, "another rank of the group has given up");
        for (uint32_t i = 0; i < m->ranks; i++)
            if (i != m->rank && is_gone(m, i))
                return error_set(error, ST_UNREACHABLE,
                                 "rank %" PRIu32 " of the group, process %" PRId32 ", has ended", i,
                                 atomic_load(&m->shared->seats[i].process));
        if (maker_gone(m))
            return error_set(error, ST_UNREACHABLE,
                             "process %" PRId32 ", which made the group, has ended", m->maker);
        if (clock_system_ns() >= deadline_ns)
            return missing_ranks_error(m, timeout_ms, error);
        futex_wait(&m->shared->joined, joined, LIVENESS_CHECK_MS);
    }
}

enum status meeting_join(struct meeting **m, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                         uint32_t rank, uint32_t ranks, uint32_t timeout_ms, struct error *error)
{
    struct group_id parts;
    memcpy(&parts, id, sizeof(parts));
    if (memcmp(parts.magic, magic, sizeof(magic)) != 0)
        return error_set(error, ST_INVALID, "the id is not that of a group on one host");
    if (rank >= ranks || ranks > MEETING_RANKS_MAX)
        return error_set(error, ST_INVALID,
                         "rank %" PRIu32 " of a group of %" PRIu32 ", want up to %d", rank, ranks,
                         MEETING_RANKS_MAX);
    if (*m == NULL && (*m = meeting_new()) == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a group");
    struct meeting *joined = *m;
    assert(joined->shared == NULL); /* Once only. */
    joined->rank = rank;
    joined->ranks = ranks;
    enum status status = memory_map(joined, &parts, error);
    if (status == ST_OK)
        status = seat_take(joined, error);
    if (status != ST_OK)
        return fail(joined, status, error);
    status = await_all(joined, timeout_ms, error);
    if (status != ST_OK) {
        atomic_fetch_or(&joined->shared->joined, GIVEN_UP);
        futex_wake(&joined->shared->joined);
        return fail(joined, status, error);
    }
    if (joined->made >= 0)
        close(joined->made); /* All ranks have opened it. */
    joined->made = -1;
    return ST_OK;
}

static void leaving_announce(struct meeting *m)
{
    struct seat *own = &m->shared->seats[m->rank];
    if (atomic_load(&own->process) != getpid())
        return; /* The seat belongs to another process. */
    atomic_store(&own->left, 1);
    futex_wake(&own->published);
}

void meeting_leave(struct meeting *m)
{
    if (m == NULL)
        return;
    if (m->shared != NULL) {
        leaving_announce(m);
        munmap(m->shared, sizeof(struct shared));
    }
    for (uint32_t i = 0; i <= MEETING_RANKS_MAX; i++)
        if (m->watched[i] >= 0)
            close(m->watched[i]);
    if (m->made >= 0)
        close(m->made);
    free(m);
}

/* ---- meeting ---- */

uint32_t meeting_rank(const struct meeting *m)
{
    return m->rank;
}

uint32_t meeting_ranks(const struct meeting *m)
{
    return m->ranks;
}

float *meeting_own_piece(const struct meeting *m)
{
    return m->shared->pieces[m->rank][m->published % 2];
}

const float *meeting_piece(const struct meeting *m, uint32_t rank)
{
    return m->shared->pieces[rank][(m->published - 1) % 2];
}

static bool has_published(const struct seat *seat, uint32_t number)
{
    return (int32_t)(atomic_load_explicit(&seat->published, memory_order_acquire) - number) >= 0;
}

static bool spin(const struct seat *seat, uint32_t number)
{
    const int64_t deadline_ns = clock_system_ns() + SPIN_US * 1000;
    do {
        for (uint32_t i = 0; i < 32; i++) {
            if (has_published(seat, number))
                return true;
            cpu_relax();
        }
    } while (clock_system_ns() < deadline_ns);
    return false;
}

static void await(struct meeting *m, uint32_t rank)
{
    struct seat *seat = &m->shared->seats[rank];
    if (spin(seat, m->published))
        return;
    for (;;) {
        /* Checked first, so that a piece that was published before the end still counts. */
        const bool gone = is_gone(m, rank);
        if (has_published(seat, m->published))
            return;
        if (gone)
            break;
        atomic_fetch_add(&seat->sleepers, 1);
        uint32_t published = atomic_load(&seat->published);
        if ((int32_t)(published - m->published) < 0)
            futex_wait(&seat->published, published, LIVENESS_CHECK_MS);
        atomic_fetch_sub(&seat->sleepers, 1);
    }
    struct error error;
    enum status status = error_set(&error, ST_UNREACHABLE,
                                   "rank %" PRIu32 " of the group, process %" PRId32 ", has ended",
                                   rank, atomic_load(&seat->process));
    fail(m, status, &error);
    leaving_announce(m);
}

bool meeting_exchange(struct meeting *m)
{
    struct seat *own = &m->shared->seats[m->rank];
    if (m->failed != ST_OK)
        return false;
    m->published++;
    /* Before reading sleepers; both are sequentially consistent. */
    atomic_store(&own->published, m->published);
    if (atomic_load(&own->sleepers) != 0)
        futex_wake(&own->published);
    for (uint32_t i = 0; i < m->ranks && m->failed == ST_OK; i++)
        if (i != m->rank)
            await(m, i);
    return m->failed == ST_OK;
}

enum status meeting_check(const struct meeting *m, struct error *error)
{
    if (m == NULL || m->failed == ST_OK)
        return ST_OK;
    if (error != NULL)
        *error = m->error;
    return m->failed;
}
