/* Goal: machines that need all cores compute one at a time, and each gets its turn; machines that
 * fit on the cores together compute together; no machine waits for a stopped or dead one. Method:
 * processes record in shared memory when their turn began. An overlap is a failure unless the other
 * turn had lasted so long that it may have been taken back. */
#include "host/turns.c" /* The last tests leave its shared memory as a process that died would. */
#include "tests/check.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES    4
#define TURNS_EACH   400
#define LONG_TURN_NS 50000000u /* Half of the time that turns.c allows. */
#define TEST_LIMIT_S 60

struct shared {
    _Atomic uint64_t began_ns[PROCESSES]; /* 0 = not in its turn. */
    _Atomic int core[PROCESSES];          /* Core of its turn; -1 = none. */
    _Atomic uint32_t joined, finished;
    _Atomic uint32_t overlaps;
    _Atomic uint32_t together; /* Most machines that were in their turns at a time. */
    _Atomic bool go;
};

static struct shared *shared;
static int board;

static void begin_test(void)
{
    struct error error;
    memset(shared, 0, sizeof(*shared));
    CHECK(turns_create(&board, &error) == ST_OK);
}

static struct turns *join(uint32_t threads)
{
    struct turns *turns;
    struct error error;
    CHECKF(turns_open(board, threads, &turns, &error) == ST_OK, "%s", error.text);
    return turns;
}

static void enter(uint32_t self)
{
    uint32_t inside = 1;
    uint64_t now = (uint64_t)clock_system_ns();
    for (uint32_t i = 0; i < PROCESSES; i++) {
        uint64_t began = atomic_load(&shared->began_ns[i]);
        if (i == self || began == 0)
            continue;
        inside++;
        if (now < began + LONG_TURN_NS)
            atomic_fetch_add(&shared->overlaps, 1);
    }
    uint32_t most = atomic_load(&shared->together);
    while (most < inside && !atomic_compare_exchange_weak(&shared->together, &most, inside))
        ;
    atomic_store(&shared->began_ns[self], (uint64_t)clock_system_ns());
}

static void leave(uint32_t self)
{
    atomic_store(&shared->began_ns[self], 0);
}

/* Acts as a machine: jobs of a few layers, with a pause after each. */
static void compute(uint32_t self, uint32_t threads)
{
    struct turns *turns = join(threads);
    while (!atomic_load(&shared->go))
        sched_yield();
    for (uint32_t i = 0; i < TURNS_EACH; i++) {
        turns_begin(turns, 50);
        enter(self);
        for (uint32_t layer = 0; layer < 4; layer++) {
            for (uint64_t until = (uint64_t)clock_system_ns() + 20000;
                 (uint64_t)clock_system_ns() < until;)
                ;
            leave(self);
            turns_yield(turns);
            enter(self);
        }
        leave(self);
        turns_end(turns);
    }
    turns_close(turns);
}

static pid_t start(uint32_t self, uint32_t threads)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid != 0)
        return pid;
    alarm(TEST_LIMIT_S);
    compute(self, threads);
    _exit(0);
}

static void run(uint32_t count, uint32_t threads)
{
    pid_t pids[PROCESSES];
    for (uint32_t i = 0; i < count; i++)
        pids[i] = start(i, threads);
    atomic_store(&shared->go, true);
    for (uint32_t i = 0; i < count; i++) {
        int status;
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECKF(status == 0, "process %u: status %x", i, status);
    }
}

static void test_one_at_a_time(void)
{
    begin_test();
    run(PROCESSES, 0);
    CHECKF(atomic_load(&shared->overlaps) == 0, "%u", atomic_load(&shared->overlaps));
    close(board);
}

/* A machine that is alone on the cores is not delayed, and gets its next turn at once. */
static void test_alone(void)
{
    begin_test();
    run(1, 0);
    CHECK(atomic_load(&shared->together) == 1);
    close(board);
}

static void test_small_ones_together(void)
{
    begin_test();
    struct turns *first = join(1), *second = join(1), *whole = join(0);
    turns_begin(first, 50);
    if (cores_usable() > 1)
        turns_begin(second, 50); /* Returns while the first machine has its own turn. */
    turns_end(second);
    turns_end(first);
    turns_begin(whole, 50);
    turns_end(whole);
    turns_close(first);
    turns_close(second);
    turns_close(whole);
    close(board);
}

/* A machine that has its turn gets the signal `end` (SIGSTOP, SIGKILL). The next machine gets its
 * turn all the same, and a stopped machine that continues takes its place in the order again. */
static void test_lost_holder(int end)
{
    begin_test();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(TEST_LIMIT_S);
        struct turns *turns = join(0);
        turns_begin(turns, 50);
        enter(0);
        while (!atomic_load(&shared->go))
            usleep(1000);
        leave(0);
        turns_yield(turns); /* Its turn has been taken back. */
        turns_end(turns);
        _exit(0);
    }
    struct turns *turns = join(0);
    while (atomic_load(&shared->began_ns[0]) == 0)
        usleep(1000);
    kill(pid, end);
    turns_begin(turns, 50);
    turns_yield(turns);
    turns_end(turns);
    atomic_store(&shared->go, true);
    kill(pid, SIGCONT);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(end == SIGKILL ? WIFSIGNALED(status) : status == 0);
    turns_begin(turns, 50); /* For any state that the other machine has left. */
    turns_end(turns);
    turns_close(turns);
    close(board);
}

/* Places of dead processes are used again, those of living processes never. */
static void test_places(void)
{
    struct turns *held[64], *more;
    struct error error;
    begin_test();
    for (uint32_t i = 0; i < 100; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            turns_begin(join(0), 50);
            _exit(0); /* The process ends in its turn. */
        }
        CHECK(waitpid(pid, NULL, 0) == pid);
    }
    for (uint32_t i = 0; i < 64; i++)
        held[i] = join(1);
    CHECK(turns_open(board, 1, &more, &error) == ST_NO_RESOURCE);
    for (uint32_t i = 0; i < 64; i++)
        turns_close(held[i]);
    turns_close(join(1));
    close(board);
}

/* Returns the core on which a machine with one thread may run in its turn, and checks that the
 * thread is there. */
static int placed_on(void)
{
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof(set), &set) == 0);
    if (CPU_COUNT(&set) != 1)
        return -1;
    int core = sched_getcpu();
    CHECK(CPU_ISSET(core, &set));
    return core;
}

static void all_reach(_Atomic uint32_t *count)
{
    atomic_fetch_add(count, 1);
    while (atomic_load(count) < PROCESSES)
        usleep(200);
}

/* There are more machines of one thread than cores. Those that compute are on different cores, and
 * each core is handed over to the next machine. When all machines fit again, each may use any
 * core. */
static void compute_placed(uint32_t self)
{
    struct turns *turns = join(1);
    all_reach(&shared->joined);
    for (uint32_t i = 0; i < TURNS_EACH; i++) {
        turns_request(turns);
        turns_begin(turns, 50);
        int core = placed_on();
        CHECK(core >= 0 || i == 0); /* Before the first turn, the thread was not known. */
        atomic_store(&shared->core[self], core);
        enter(self);
        for (uint64_t until = (uint64_t)clock_system_ns() + 60000;
             (uint64_t)clock_system_ns() < until;)
            ;
        for (uint32_t other = 0; other < PROCESSES && core >= 0; other++)
            if (other != self && atomic_load(&shared->core[other]) == core)
                atomic_fetch_add(&shared->overlaps, 1);
        leave(self);
        atomic_store(&shared->core[self], -1);
        turns_end(turns);
    }
    all_reach(&shared->finished); /* Keeps the number of machines too large until the end. */
    turns_close(turns);
}

static void test_placed(void)
{
    begin_test();
    pid_t pids[PROCESSES];
    struct turns *idle[64 - PROCESSES];
    uint32_t idle_count = cores_usable() < PROCESSES ? 0 : cores_usable();
    if (idle_count > 64 - PROCESSES)
        return; /* turns.c does not name that many cores. */
    for (uint32_t i = 0; i < idle_count; i++)
        idle[i] = join(1);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        atomic_store(&shared->core[i], -1);
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] != 0)
            continue;
        alarm(TEST_LIMIT_S);
        compute_placed(i);
        _exit(0);
    }
    for (uint32_t i = 0; i < PROCESSES; i++) {
        int status;
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECKF(status == 0, "process %u: status %x", i, status);
    }
    /* One turn in a thousand may overlap: the operating system may delay a machine for longer than
     * a turn may last. */
    CHECKF(atomic_load(&shared->overlaps) <= PROCESSES * TURNS_EACH / 1000, "%u",
           atomic_load(&shared->overlaps));
    for (uint32_t i = 0; i < idle_count; i++)
        turns_close(idle[i]);
    struct turns *alone = join(1);
    turns_begin(alone, 50);
    CHECK(cores_usable() == 1 || placed_on() < 0);
    turns_end(alone);
    turns_close(alone);
    close(board);
}

/* Another thread may request a turn, also before the current turn is over. Two requests have the
 * effect of one. A turn that was requested but never begun ends with the process that requested
 * it. */
static void test_asked(void)
{
    begin_test();
    struct turns *first = join(0), *second = join(0);
    turns_request(first);
    turns_request(first);
    turns_begin(first, 50);
    turns_request(first); /* The next turn. */
    turns_request(second);
    turns_end(first);
    turns_begin(second, 50);
    turns_end(second);
    turns_begin(first, 50);
    turns_request(second);
    turns_close(second);
    turns_end(first);
    turns_begin(first, 50);
    turns_end(first);
    turns_close(first);
    turns_request(NULL);
    close(board);
}

/* A process died after it had given up its turn, and before it had passed the turn to a waiting
 * process. */
static void test_half_given(void)
{
    begin_test();
    struct turns *dead = join(0), *next = join(0);
    turns_begin(dead, 50);
    turns_request(next);
    atomic_fetch_and(&dead->board->holding, ~dead->bit);
    turns_begin(next, 50);
    turns_end(next);
    turns_close(dead);
    turns_close(next);
    close(board);
}

/* A turn was taken back while it was given up: its cores are free after the next turn. */
static void test_cores_kept(void)
{
    begin_test();
    struct turns *turns = join(1);
    struct board *words = turns->board;
    if (words->named > 0) {
        cores_grant(words, &words->parties[turns->index]);
        CHECK(__builtin_popcountll(atomic_load(&words->busy)) == 1);
        turns_begin(turns, 50);
        CHECK(__builtin_popcountll(atomic_load(&words->busy)) == (words->named > 1 ? 1 : 0));
        turns_end(turns);
        CHECK(atomic_load(&words->busy) == 0);
    }
    turns_close(turns);
    close(board);
}

static void test_bad(void)
{
    struct turns *turns;
    struct error error;
    int pipes[2];
    CHECK(turns_open(-1, 1, &turns, &error) == ST_IO);
    CHECK(pipe(pipes) == 0);
    CHECK(turns_open(pipes[0], 1, &turns, &error) == ST_IO);
    int other = memfd_create("other", 0);
    CHECK(other >= 0 && ftruncate(other, 64) == 0);
    CHECK(turns_open(other, 1, &turns, &error) == ST_INVALID);
    turns_begin(NULL, 50);
    turns_yield(NULL);
    turns_end(NULL);
    turns_close(NULL);
}

/* Steps of other machines are known to each other while those machines decode; the time of a batch
 * does not contain waits for turns. */
static void test_times(void)
{
    begin_test();
    struct turns *a = join(0), *b = join(0), *c = join(0);
    CHECK(turns_other_steps_us(a) == 0 && turns_other_steps_us(NULL) == 0);
    turns_step_us_set(a, 3000);
    turns_step_us_set(b, 500);
    turns_step_us_set(NULL, 7);
    CHECK(turns_other_steps_us(a) == 500 && turns_other_steps_us(b) == 3000 &&
          turns_other_steps_us(c) == 3500);
    /* As if the latest step had been long ago. */
    atomic_fetch_sub(&a->board->parties[a->index].step_at_ns, STEP_OLD_NS);
    CHECK(turns_other_steps_us(c) == 500);
    turns_close(b);
    CHECK(turns_other_steps_us(c) == 0);
    b = join(0); /* It gets the entry of the one before, but not its steps. */
    CHECK(turns_other_steps_us(c) == 0);
    turns_begin(a, 0);
    turns_request(c);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) { /* c has its turn for 30 ms, which is time that a waits. */
        while ((atomic_load(&c->board->holding) & c->bit) == 0)
            usleep(100);
        usleep(30000);
        turns_end(c);
        _exit(0);
    }
    uint64_t from = (uint64_t)clock_system_ns();
    turns_yield(a);
    uint64_t passed_us = ((uint64_t)clock_system_ns() - from) / 1000;
    CHECK(passed_us >= 30000);
    CHECKF(turns_used_us(a) < passed_us, "%llu of %llu", (unsigned long long)turns_used_us(a),
           (unsigned long long)passed_us);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    turns_end(a);
    CHECK(turns_used_us(NULL) == 0);
    turns_close(a);
    turns_close(b);
    turns_close(c);
}

int main(void)
{
    alarm(TEST_LIMIT_S);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    test_one_at_a_time();
    test_alone();
    test_small_ones_together();
    test_lost_holder(SIGSTOP);
    test_lost_holder(SIGKILL);
    test_places();
    test_placed();
    test_asked();
    test_half_given();
    test_cores_kept();
    test_times();
    test_bad();
    return 0;
}
