/* turns: see the header. Each party (a machine that has joined) has a bit in two words: `waiting`
 * and `holding`. A process that changes one of them then checks which party may go next (grant):
 * the one that has waited longest, if its threads fit beside those that hold turns. A smaller party
 * never overtakes it. A party sleeps on a futex word of its own. If a process is stopped in the
 * middle of a change, the others notice within TURN_LOST_NS, by the clock. */
#include "host/turns.h"

#include "common/clock.h"
#include "common/cores.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
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
#define CORES_NAMED  64
#define TURNS_MARK   0x5455524eu
#define LOOK_NS      5000000u    /* A sleeping party checks the board by itself after this time. */
#define TURN_LOST_NS 100000000u  /* A turn that lasts longer is taken back. */
#define STEP_OLD_NS  1000000000u /* A machine that has not decoded for so long does not decode. */

struct party {
    _Alignas(64) _Atomic int32_t pid; /* 0 = unused entry. */
    uint32_t threads;
    _Atomic uint32_t called;   /* A futex word. */
    _Atomic uint64_t since_ns; /* Start of its waiting, or of its turn. */
    _Atomic uint64_t cores;    /* Cores of its turn, as bits; 0 = none named. */
    _Atomic uint64_t last;     /* Cores of its last turn. */
    _Atomic int32_t tid;       /* The thread that is put on the turn's core; 0 = none. */
    _Atomic uint64_t placed;   /* Cores that the thread may run on; 0 = all. */
    _Atomic uint64_t step_ns;  /* Time of its latest decode step, when it was at step_at_ns. */
    _Atomic uint64_t step_at_ns;
};

struct board {
    uint32_t mark;
    uint32_t cores;
    uint32_t named; /* Number of cores in `names`: all, or none if there are too many. */
    uint32_t names[CORES_NAMED];        /* The kernel's numbers of the cores. */
    _Alignas(64) _Atomic uint64_t busy; /* Cores of all turns, as bits. */
    _Alignas(64) _Atomic uint64_t waiting;
    _Atomic uint64_t holding;
    struct party parties[PARTIES_MAX];
};

struct turns {
    struct board *board;
    uint32_t index;
    uint64_t bit;
    uint64_t slice_ns;
    uint64_t began_ns;  /* When the turn began. */
    uint64_t batch_ns;  /* When the batch's first turn began. */
    uint64_t waited_ns; /* Time in turns_yield since batch_ns. */
    /* The machine has one thread, and this process may run on all cores of the board. */
    bool placeable;
    pthread_mutex_t batch; /* Held from turns_begin to turns_end. */
};

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

/* ---- cores ---- */

static bool all_fit(struct board *board)
{
    uint32_t threads = 0;
    for (uint32_t i = 0; i < PARTIES_MAX; i++)
        threads += atomic_load(&board->parties[i].pid) != 0 ? board->parties[i].threads : 0;
    return threads <= board->cores;
}

/* Takes as many cores as the party has threads, preferably those of its last turn. Returns 0 if too
 * few are left, for example because a turn was taken back. */
static uint64_t cores_take(struct board *board, struct party *party)
{
    uint64_t all = board->named == 64 ? UINT64_MAX : (1ull << board->named) - 1;
    uint64_t busy = atomic_load(&board->busy), taken;
    do {
        uint64_t left = all & ~busy, last = left & atomic_load(&party->last);
        taken = 0;
        for (uint32_t i = 0; i < party->threads && left != 0; i++) {
            uint64_t from = last != 0 ? last : left;
            taken |= from & -from;
            last &= ~taken;
            left &= ~taken;
        }
        if ((uint32_t)__builtin_popcountll(taken) < party->threads)
            return 0;
    } while (!atomic_compare_exchange_weak(&board->busy, &busy, busy | taken));
    return taken;
}

static void cores_give(struct board *board, struct party *party)
{
    uint64_t cores = atomic_exchange(&party->cores, 0);
    atomic_fetch_and(&board->busy, ~cores);
}

/* Restricts the party's thread to `cores`; 0 = all. The thread may belong to another process, and
 * may have ended. */
static void thread_place(struct board *board, struct party *party, uint64_t cores)
{
    int32_t tid = atomic_load(&party->tid);
    if (tid == 0 || atomic_load(&party->placed) == cores ||
        syscall(SYS_tgkill, atomic_load(&party->pid), tid, 0) != 0)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < board->named; i++)
        if (cores == 0 || (cores & 1ull << i) != 0)
            CPU_SET(board->names[i], &set);
    if (sched_setaffinity(tid, sizeof(set), &set) == 0)
        atomic_store(&party->placed, cores);
}

static void cores_grant(struct board *board, struct party *party)
{
    uint64_t cores = board->named > 0 ? cores_take(board, party) : 0;
    if (cores != 0)
        atomic_store(&party->last, cores);
    /* The party may still have cores, if its turn was taken back while it was granted. */
    atomic_fetch_and(&board->busy, ~atomic_exchange(&party->cores, cores));
    thread_place(board, party, all_fit(board) ? 0 : cores);
}

/* ---- turns ---- */

/* Grants turns, in order, while the next party fits. */
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
        atomic_store(&board->parties[index].since_ns, (uint64_t)clock_system_ns());
        cores_grant(board, &board->parties[index]);
        call(&board->parties[index]);
    }
}

/* Takes back turns that have lasted too long: their processes are stopped, dead or very slow. A
 * process that is alive notices it at its next pause. A process that ended while it gave up its
 * turn, or inside this function, has not granted the turn to another party, so grant is called in
 * any case. */
static void take_back(struct board *board)
{
    uint64_t now = (uint64_t)clock_system_ns(), lost = 0;
    for (uint64_t bits = atomic_load(&board->holding); bits != 0; bits &= bits - 1) {
        uint64_t since = atomic_load(&board->parties[first_of(bits)].since_ns);
        if (now > since && now - since > TURN_LOST_NS)
            lost |= bits & -bits;
    }
    for (uint64_t bits = lost; bits != 0; bits &= bits - 1)
        cores_give(board, &board->parties[first_of(bits)]);
    if (lost != 0) {
        atomic_fetch_and(&board->waiting, ~lost);
        atomic_fetch_and(&board->holding, ~lost);
    }
    grant(board);
}

static void cores_name(struct board *board)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) > CORES_NAMED ||
        (uint32_t)CPU_COUNT(&set) != board->cores)
        return;
    for (uint32_t core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &set))
            board->names[board->named++] = core;
}

/* True if this process may run on exactly the cores of the board. */
static bool cores_are_ours(const struct board *board)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0 || (uint32_t)CPU_COUNT(&set) != board->named)
        return false;
    for (uint32_t i = 0; i < board->named; i++)
        if (!CPU_ISSET(board->names[i], &set))
            return false;
    return true;
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
    cores_name(board);
    munmap(memory, sizeof(struct board));
    *fd_out = fd;
    return ST_OK;
}

/* Takes an unused entry, or that of a process that has ended. */
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

static void turn_end(struct turns *turns)
{
    struct board *board = turns->board;
    cores_give(board, &board->parties[turns->index]);
    atomic_fetch_and(&board->holding, ~turns->bit);
    grant(board);
}

/* Stops asking and ends the turn. */
static void turns_leave(struct turns *turns)
{
    atomic_fetch_and(&turns->board->waiting, ~turns->bit);
    turn_end(turns);
}

enum status turns_open(int fd, uint32_t threads, struct turns **out, struct error *error)
{
    struct turns *turns = calloc(1, sizeof(*turns));
    if (turns == NULL)
        return error_set(error, ST_NO_MEMORY, "turns: out of memory");
    struct stat stat;
    void *memory = MAP_FAILED;
    if (fstat(fd, &stat) == 0)
        memory = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        int failed = errno;
        free(turns);
        return error_set(error, ST_IO, "turns: descriptor %d: %s", fd, strerror(failed));
    }
    turns->board = memory;
    enum status status = ST_OK;
    if (stat.st_size != sizeof(struct board) || turns->board->mark != TURNS_MARK)
        status = error_set(
            error, ST_INVALID,
            "turns: descriptor %d is not the memory that machines share to take turns", fd);
    else if (!place_take(turns->board, &turns->index))
        status = error_set(error, ST_NO_RESOURCE, "turns: more than %u machines", PARTIES_MAX);
    if (status != ST_OK) {
        munmap(memory, sizeof(struct board));
        free(turns);
        return status;
    }
    uint32_t cores = turns->board->cores;
    turns->bit = 1ull << turns->index;
    pthread_mutex_init(&turns->batch, NULL);
    turns->board->parties[turns->index].threads = threads == 0 || threads > cores ? cores : threads;
    turns->placeable =
        turns->board->parties[turns->index].threads == 1 && cores_are_ours(turns->board);
    turns_leave(turns); /* Clears what the previous party of this entry left. */
    atomic_store(&turns->board->parties[turns->index].tid, 0);
    atomic_store(&turns->board->parties[turns->index].placed, 0);
    atomic_store(&turns->board->parties[turns->index].step_at_ns, 0);
    *out = turns;
    return ST_OK;
}

void turns_close(struct turns *turns)
{
    if (turns == NULL)
        return;
    turns_leave(turns);
    atomic_store(&turns->board->parties[turns->index].pid, 0);
    munmap(turns->board, sizeof(struct board));
    pthread_mutex_destroy(&turns->batch);
    free(turns);
}

void turns_request(struct turns *turns)
{
    if (turns == NULL)
        return;
    struct board *board = turns->board;
    atomic_store(&board->parties[turns->index].since_ns, (uint64_t)clock_system_ns());
    atomic_fetch_or(&board->waiting, turns->bit);
    grant(board);
}

/* Waits for the turn that was asked for. */
static void turn_await(struct turns *turns)
{
    struct board *board = turns->board;
    struct party *self = &board->parties[turns->index];
    for (;;) {
        uint32_t called = atomic_load(&self->called);
        if ((atomic_load(&board->holding) & turns->bit) != 0)
            break;
        const struct timespec look = {.tv_nsec = LOOK_NS};
        syscall(SYS_futex, &self->called, FUTEX_WAIT, called, &look, NULL, 0);
        /* The request may have been taken back together with a turn. */
        atomic_fetch_or(&board->waiting, turns->bit);
        take_back(board);
    }
    atomic_fetch_and(&board->waiting, ~turns->bit);
    turns->began_ns = (uint64_t)clock_system_ns();
    atomic_store(&self->since_ns, turns->began_ns);
}

void turns_begin(struct turns *turns, uint32_t slice_us)
{
    if (turns == NULL)
        return;
    struct board *board = turns->board;
    struct party *self = &board->parties[turns->index];
    pthread_mutex_lock(&turns->batch);
    uint64_t known = atomic_load(&board->waiting) | atomic_load(&board->holding);
    turns->slice_ns = slice_us * 1000ull;
    if (turns->placeable && atomic_load(&self->tid) != (int32_t)gettid()) {
        atomic_store(&self->tid, (int32_t)gettid());
        atomic_store(&self->placed, UINT64_MAX); /* Where this thread may run is not known. */
    }
    if ((known & turns->bit) == 0)
        turns_request(turns);
    turn_await(turns);
    turns->batch_ns = turns->began_ns;
    turns->waited_ns = 0;
}

uint64_t turns_used_us(const struct turns *turns)
{
    if (turns == NULL)
        return 0;
    uint64_t passed = (uint64_t)clock_system_ns() - turns->batch_ns;
    return passed > turns->waited_ns ? (passed - turns->waited_ns) / 1000 : 0;
}

void turns_step_us_set(struct turns *turns, uint32_t step_us)
{
    if (turns == NULL)
        return;
    struct party *self = &turns->board->parties[turns->index];
    atomic_store(&self->step_ns, step_us * 1000ull);
    atomic_store(&self->step_at_ns, (uint64_t)clock_system_ns());
}

uint64_t turns_other_steps_us(const struct turns *turns)
{
    uint64_t sum_ns = 0;
    if (turns == NULL)
        return 0;
    uint64_t now = (uint64_t)clock_system_ns();
    for (uint32_t i = 0; i < PARTIES_MAX; i++) {
        struct party *party = &turns->board->parties[i];
        uint64_t at = atomic_load(&party->step_at_ns);
        if (i != turns->index && atomic_load(&party->pid) != 0 && at != 0 &&
            (at > now || now - at < STEP_OLD_NS))
            sum_ns += atomic_load(&party->step_ns);
    }
    return sum_ns / 1000;
}

void turns_yield(struct turns *turns)
{
    if (turns == NULL)
        return;
    struct board *board = turns->board;
    uint64_t holding = atomic_load_explicit(&board->holding, memory_order_relaxed);
    uint64_t waiting = atomic_load_explicit(&board->waiting, memory_order_relaxed) & ~holding;
    bool ours = (holding & turns->bit) != 0;
    if (ours && (waiting == 0 || (uint64_t)clock_system_ns() - turns->began_ns < turns->slice_ns))
        return;
    uint64_t from_ns = (uint64_t)clock_system_ns();
    turn_end(turns);
    turns_request(turns);
    turn_await(turns);
    turns->waited_ns += turns->began_ns - from_ns;
}

void turns_end(struct turns *turns)
{
    if (turns == NULL)
        return;
    turn_end(turns);
    pthread_mutex_unlock(&turns->batch);
}
