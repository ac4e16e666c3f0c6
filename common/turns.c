/* Every party has a bit in two words: it waits, it holds a turn. Whoever changes one of them looks
 * who may go next (grant): the one that has waited longest, as long as its threads fit beside those
 * that hold turns; it is not overtaken by a smaller one. A party sleeps on a word of its own. What
 * a stopped process left half done, others see within TURN_LOST_NS, by the clock. */
#include "common/turns.h"

#include "common/cores.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PARTIES_MAX  64
#define TURNS_MARK   0x5455524eu
#define LOOK_NS      5000000u   /* a sleeper looks by itself so often */
#define TURN_LOST_NS 100000000u /* a turn that lasts longer counts no more */

struct party {
    _Alignas(64) _Atomic int32_t pid; /* 0: free */
    uint32_t threads;
    _Atomic uint32_t called;   /* futex */
    _Atomic uint64_t since_ns; /* it waits, or holds its turn */
};

struct board {
    uint32_t mark;
    uint32_t cores;
    _Alignas(64) _Atomic uint64_t waiting;
    _Atomic uint64_t holding;
    struct party parties[PARTIES_MAX];
};

struct turns {
    struct board *board;
    uint32_t index;
    uint64_t bit;
    uint64_t slice_ns;
    uint64_t began_ns;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t first_of(uint64_t bits)
{
    return (uint32_t)__builtin_ctzll(bits);
}

static void call(struct party *party)
{
    atomic_fetch_add(&party->called, 1);
    syscall(SYS_futex, &party->called, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static uint32_t threads_of(const struct board *board, uint64_t bits)
{
    uint32_t threads = 0;
    for (; bits != 0; bits &= bits - 1)
        threads += board->parties[first_of(bits)].threads;
    return threads;
}

static uint32_t longest_waiting(struct board *board, uint64_t bits)
{
    uint32_t best = first_of(bits);
    uint64_t best_ns = UINT64_MAX;
    for (; bits != 0; bits &= bits - 1) {
        uint64_t since = atomic_load(&board->parties[first_of(bits)].since_ns);
        if (since < best_ns) {
            best = first_of(bits);
            best_ns = since;
        }
    }
    return best;
}

/* Gives turns to as many as fit, in order. */
static void grant(struct board *board)
{
    for (;;) {
        uint64_t holding = atomic_load(&board->holding);
        uint64_t next = atomic_load(&board->waiting) & ~holding;
        if (next == 0)
            return;
        uint32_t index = longest_waiting(board, next);
        uint32_t threads = board->parties[index].threads;
        if (holding != 0 && threads_of(board, holding) + threads > board->cores)
            return;
        if (!atomic_compare_exchange_strong(&board->holding, &holding, holding | 1ull << index))
            continue;
        atomic_store(&board->parties[index].since_ns, now_ns());
        call(&board->parties[index]);
    }
}

/* Takes turns back that have lasted too long: their processes are stopped, dead or very slow. Those
 * that are alive see it at their next pause. */
static void take_back(struct board *board)
{
    uint64_t now = now_ns(), lost = 0;
    for (uint64_t bits = atomic_load(&board->holding); bits != 0; bits &= bits - 1) {
        uint64_t since = atomic_load(&board->parties[first_of(bits)].since_ns);
        if (now > since && now - since > TURN_LOST_NS)
            lost |= bits & -bits;
    }
    if (lost == 0)
        return;
    atomic_fetch_and(&board->waiting, ~lost);
    atomic_fetch_and(&board->holding, ~lost);
    grant(board);
}

enum status turns_create(int *fd_out, struct error *error)
{
    int fd = memfd_create("turns", MFD_CLOEXEC);
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(struct board)) == 0)
        memory = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        int failed = errno;
        if (fd >= 0)
            close(fd);
        return error_set(error, ST_IO, "turns: shared memory: %s", strerror(failed));
    }
    struct board *board = memory;
    board->mark = TURNS_MARK;
    board->cores = cores_usable();
    munmap(memory, sizeof(struct board));
    *fd_out = fd;
    return ST_OK;
}

/* A free place, or that of a process that is no more. */
static bool place_take(struct board *board, uint32_t *index_out)
{
    for (uint32_t i = 0; i < PARTIES_MAX; i++) {
        int32_t pid = atomic_load(&board->parties[i].pid);
        if (pid != 0 && (kill(pid, 0) == 0 || errno != ESRCH))
            continue;
        if (!atomic_compare_exchange_strong(&board->parties[i].pid, &pid, (int32_t)getpid()))
            continue;
        *index_out = i;
        return true;
    }
    return false;
}

enum status turns_open(int fd, uint32_t threads, struct turns **out, struct error *error)
{
    struct turns *turns = calloc(1, sizeof(*turns));
    if (turns == NULL)
        return error_set(error, ST_NO_MEMORY, "turns: out of memory");
    struct stat stat;
    void *memory = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED || fstat(fd, &stat) != 0) {
        free(turns);
        return error_set(error, ST_IO, "turns: descriptor %d: %s", fd, strerror(errno));
    }
    turns->board = memory;
    enum status status = ST_OK;
    if (stat.st_size != sizeof(struct board) || turns->board->mark != TURNS_MARK)
        status = error_set(error, ST_INVALID, "turns: descriptor %d is something else", fd);
    else if (!place_take(turns->board, &turns->index))
        status = error_set(error, ST_NO_RESOURCE, "turns: more than %u machines", PARTIES_MAX);
    if (status != ST_OK) {
        munmap(memory, sizeof(struct board));
        free(turns);
        return status;
    }
    uint32_t cores = turns->board->cores;
    turns->bit = 1ull << turns->index;
    turns->board->parties[turns->index].threads = threads == 0 || threads > cores ? cores : threads;
    turns_end(turns); /* of whoever had the place before */
    *out = turns;
    return ST_OK;
}

void turns_close(struct turns *turns)
{
    if (turns == NULL)
        return;
    turns_end(turns);
    atomic_store(&turns->board->parties[turns->index].pid, 0);
    munmap(turns->board, sizeof(struct board));
    free(turns);
}

/* Waits for its turn. */
static void turn_take(struct turns *turns)
{
    struct board *board = turns->board;
    struct party *self = &board->parties[turns->index];
    atomic_store(&self->since_ns, now_ns());
    atomic_fetch_or(&board->waiting, turns->bit);
    grant(board);
    for (;;) {
        uint32_t called = atomic_load(&self->called);
        if ((atomic_load(&board->holding) & turns->bit) != 0)
            break;
        const struct timespec look = {.tv_nsec = LOOK_NS};
        syscall(SYS_futex, &self->called, FUTEX_WAIT, called, &look, NULL, 0);
        atomic_fetch_or(&board->waiting, turns->bit); /* it may have been taken back */
        take_back(board);
    }
    atomic_fetch_and(&board->waiting, ~turns->bit);
    turns->began_ns = now_ns();
    atomic_store(&self->since_ns, turns->began_ns);
}

void turns_begin(struct turns *turns, uint32_t slice_us)
{
    if (turns == NULL)
        return;
    turns->slice_ns = slice_us * 1000ull;
    turn_take(turns);
}

void turns_pause(struct turns *turns)
{
    if (turns == NULL)
        return;
    struct board *board = turns->board;
    uint64_t holding = atomic_load_explicit(&board->holding, memory_order_relaxed);
    uint64_t waiting = atomic_load_explicit(&board->waiting, memory_order_relaxed) & ~holding;
    bool ours = (holding & turns->bit) != 0;
    if (ours && (waiting == 0 || now_ns() - turns->began_ns < turns->slice_ns))
        return;
    turns_end(turns);
    turn_take(turns);
}

void turns_end(struct turns *turns)
{
    if (turns == NULL)
        return;
    struct board *board = turns->board;
    atomic_fetch_and(&board->waiting, ~turns->bit);
    atomic_fetch_and(&board->holding, ~turns->bit);
    grant(board);
}
