/* Goal: the ranks of a group on one host compute the same sums to the bit, in the order of ranks,
 * for any number of values, and norms of rows that they share. A rank that dies, leaves or never
 * joins ends the other ranks' waits with an error that names it. Waiting ranks sleep, and nothing
 * is left behind. Method: two to five processes with a CPU device each, compared with sums
 * computed by hand from numbers whose sum depends on the order. */
#include "tests/check.h"

#include "common/clock.h"
#include "common/random.h"
#include "compute/compute.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS_MAX 5
#define JOIN_MS   5000
#define COUNT_MAX 200003

/* Memory that the processes of a test share. */
struct board {
    _Atomic int made; /* The id has been written. */
    uint8_t id[COMPUTE_GROUP_ID_BYTES];
    _Atomic int reached[RANKS_MAX];
};

static struct board *board;
static const struct compute_ops *ops = &compute_cpu;
static uint64_t seed;

typedef void (*rank_fn)(struct compute *c, uint32_t rank, uint32_t ranks);

static struct compute *device_open(uint32_t threads)
{
    const struct compute_options options = {.threads = threads};
    struct error error = {0};
    struct compute *c;
    CHECKF(ops->open(&options, &c, &error) == ST_OK, "%s", error.text);
    return c;
}

/* Rank 0 makes the id; the other ranks wait for it. */
static void id_make(struct compute *c, uint32_t rank)
{
    struct error error = {0};
    if (rank == 0) {
        CHECKF(ops->group->id_make(c, board->id, &error) == ST_OK, "%s", error.text);
        board->made = 1;
    }
    while (board->made == 0)
        usleep(200);
}

static enum status join(struct compute *c, uint32_t rank, uint32_t ranks, uint32_t timeout_ms,
                        struct error *error)
{
    id_make(c, rank);
    return ops->group->join(c, board->id, rank, ranks, timeout_ms, error);
}

static void joined(struct compute *c, uint32_t rank, uint32_t ranks)
{
    struct error error = {0};
    CHECKF(join(c, rank, ranks, JOIN_MS, &error) == ST_OK, "rank %u: %s", rank, error.text);
}

static uint32_t names_of(const char *folder, const char *begin)
{
    uint32_t count = 0;
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += strncmp(entry->d_name, begin, strlen(begin)) == 0;
    closedir(dir);
    return count;
}

static void rank_main(rank_fn fn, uint32_t rank, uint32_t ranks)
{
    const uint32_t files = names_of("/proc/self/fd", "");
    struct compute *c = device_open(1 + rank % 2);
    fn(c, rank, ranks);
    ops->close(c);
    CHECK(names_of("/proc/self/fd", "") == files);
    _exit(0);
}

/* Runs one process per rank. `killed` must end by a signal, the others without an error. Returns
 * how long it took. */
static void run(rank_fn fn, uint32_t ranks, uint32_t present, int killed)
{
    pid_t processes[RANKS_MAX];
    memset(board, 0, sizeof(*board));
    fflush(stdout);
    for (uint32_t rank = 0; rank < present; rank++) {
        processes[rank] = fork();
        CHECK(processes[rank] >= 0);
        if (processes[rank] == 0)
            rank_main(fn, rank, ranks);
    }
    for (uint32_t rank = 0; rank < present; rank++) {
        int status;
        CHECK(waitpid(processes[rank], &status, 0) == processes[rank]);
        if ((int)rank == killed)
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %u of %u", rank, ranks);
    }
}

/* ---- sums ---- */

/* Numbers of very different magnitudes: their sum depends on the order. */
static float number(uint32_t rank, uint64_t i)
{
    const uint64_t bits = random_at(seed + rank, i);
    return ldexpf((float)(int32_t)(bits >> 32), (int)(bits % 30) - 45);
}

static float sum_by_hand(uint32_t ranks, uint64_t i)
{
    float sum = number(0, i);
    for (uint32_t rank = 1; rank < ranks; rank++)
        sum += number(rank, i);
    return sum;
}

static void check_sums(struct compute *c, uint32_t rank, uint32_t ranks)
{
    static const size_t counts[] = {1, 7, 576, 16383, 16384, 65536, 65537, COUNT_MAX};
    float *y = malloc(COUNT_MAX * sizeof(float)), *x = malloc(COUNT_MAX * sizeof(float));
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        const size_t count = counts[k];
        for (size_t i = 0; i < count; i++)
            y[i] = number(rank, i), x[i] = number(RANKS_MAX, i);
        ops->group->sum_add(c, count, y, x);
        for (size_t i = 0; i < count; i++)
            y[i] = number(rank, i);
        ops->group->sum(c, count, y);
        for (size_t i = 0; i < count; i++) {
            const float sum = sum_by_hand(ranks, i);
            const float added = number(RANKS_MAX, i) + sum;
            CHECKF(memcmp(&y[i], &sum, sizeof(sum)) == 0, "[%zu] %a, want %a", i, (double)y[i],
                   (double)sum);
            CHECKF(memcmp(&x[i], &added, sizeof(added)) == 0, "[%zu] of %zu: %a, want %a", i, count,
                   (double)x[i], (double)added);
        }
    }
    free(x);
    free(y);
}

static void check_gather(struct compute *c, uint32_t rank, uint32_t ranks, uint32_t rows,
                         uint32_t cols)
{
    uint32_t counts[RANKS_MAX] = {0}, all_cols = 0, at = 0;
    for (uint32_t i = 0; i < ranks; i++)
        all_cols += counts[i] = cols + 3 * (ranks - i);
    const size_t own = (size_t)rows * counts[rank], total = (size_t)rows * all_cols;
    float *part = calloc(own, sizeof(float));
    float *all = rank == 0 ? malloc(total * sizeof(float)) : NULL;
    for (size_t i = 0; i < own; i++)
        part[i] = number(rank, i);
    ops->group->gather(c, rows, part, counts, all);
    for (uint32_t r = 0; r < ranks && rank == 0; at += counts[r++])
        for (uint32_t row = 0; row < rows; row++)
            for (uint32_t col = 0; col < counts[r]; col++)
                CHECK(all[(size_t)row * all_cols + at + col] ==
                      number(r, (uint64_t)row * counts[r] + col));
    free(all);
    free(part);
}

/* Column `col` of the row's columns on rank `rank`. */
static float norm_number(uint32_t rank, uint32_t row, uint32_t col)
{
    return (float)(random_at(seed + 100 + rank, (uint64_t)row * 1000 + col) % 2001) / 1000 - 1;
}

static uint32_t norm_cols(uint32_t rank, uint32_t i)
{
    return 5 + 16 * i + 3 * rank;
}

static void check_norm_row(const float *x, uint32_t rank, uint32_t ranks, uint32_t i, uint32_t row)
{
    double sum = 0, cols = 0;
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t col = 0; col < norm_cols(r, i); col++, cols++)
            sum += pow((double)norm_number(r, row, col), 2);
    for (uint32_t col = 0; col < norm_cols(rank, i); col++) {
        const double want = (double)norm_number(rank, row, col) / sqrt(sum / cols + 1e-3) * 2;
        CHECKF(fabs((double)x[col] - want) < 1e-5, "row %u, column %u of rank %u: %g, want %g", row,
               col, rank, (double)x[col], want);
    }
}

/* Normalises two arrays of rows, all at once and row by row: the bits are equal. */
static void check_norms(struct compute *c, uint32_t rank, uint32_t ranks, uint32_t rows)
{
    struct compute_group_norm norms[2], alone[2];
    float weights[64];
    for (uint32_t i = 0; i < 64; i++)
        weights[i] = 2;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t cols = norm_cols(rank, i);
        norms[i] = (struct compute_group_norm){
            .weight = weights, .cols = cols, .x = malloc((size_t)rows * cols * sizeof(float))};
        alone[i] = norms[i];
        alone[i].x = malloc(cols * sizeof(float));
        for (uint32_t r = 0; r < ranks; r++)
            norms[i].cols_all += norm_cols(r, i);
        alone[i].cols_all = norms[i].cols_all;
        for (uint32_t row = 0; row < rows; row++)
            for (uint32_t col = 0; col < cols; col++)
                norms[i].x[(size_t)row * cols + col] = norm_number(rank, row, col);
    }
    ops->group->norm(c, norms, 2, 1e-3f, rows);
    for (uint32_t row = 0; row < rows; row += 1 + rows / 7) {
        for (uint32_t i = 0; i < 2; i++)
            for (uint32_t col = 0; col < norms[i].cols; col++)
                alone[i].x[col] = norm_number(rank, row, col);
        ops->group->norm(c, alone, 2, 1e-3f, 1);
        for (uint32_t i = 0; i < 2; i++) {
            const float *x = norms[i].x + (size_t)row * norms[i].cols;
            check_norm_row(x, rank, ranks, i, row);
            CHECK(memcmp(x, alone[i].x, norms[i].cols * sizeof(float)) == 0);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        free(norms[i].x);
        free(alone[i].x);
    }
}

static void test_sums(struct compute *c, uint32_t rank, uint32_t ranks)
{
    struct error error = {0};
    joined(c, rank, ranks);
    check_sums(c, rank, ranks);
    check_norms(c, rank, ranks, 1);
    check_norms(c, rank, ranks, 9);
    check_norms(c, rank, ranks, 33333); /* More sums than one exchange takes. */
    check_gather(c, rank, ranks, 1, 1);
    check_gather(c, rank, ranks, 9, 33);
    check_gather(c, rank, ranks, 3, 50001);
    CHECK(ops->check(c, &error) == ST_OK);
}

/* ---- what goes wrong ---- */

static void await_failure(struct compute *c, const char *said)
{
    struct error error = {0}, again = {0};
    float y[64] = {0};
    const int64_t begun_ns = clock_system_ns();
    while (ops->check(c, &error) == ST_OK) {
        ops->group->sum(c, 64, y);
        CHECK(clock_system_ns() - begun_ns < 5000000000);
    }
    CHECKF(strstr(error.text, said) != NULL, "\"%s\" lacks \"%s\"", error.text, said);
    ops->group->sum(c, 64, y); /* After the failure, the call returns at once every time. */
    CHECK(ops->check(c, &again) != ST_OK && strcmp(error.text, again.text) == 0);
}

static void test_killed(struct compute *c, uint32_t rank, uint32_t ranks)
{
    float y[64] = {0};
    joined(c, rank, ranks);
    for (uint32_t i = 0; i < 100; i++)
        ops->group->sum(c, 64, y);
    if (rank == 1) {
        usleep(60000); /* By then the other ranks sleep. */
        raise(SIGKILL);
    }
    await_failure(c, "rank 1 of the group, process");
    board->reached[rank] = 1; /* The rank that fails second would name a rank that left earlier. */
    for (uint32_t i = 0; i < ranks; i++)
        while (i != 1 && board->reached[i] == 0)
            usleep(200);
}

static void test_left(struct compute *c, uint32_t rank, uint32_t ranks)
{
    joined(c, rank, ranks);
    if (rank == 0)
        await_failure(c, "rank 1 of the group");
}

static void test_late(struct compute *c, uint32_t rank, uint32_t ranks)
{
    struct rusage before, after;
    float y[2] = {1, (float)rank};
    joined(c, rank, ranks);
    ops->group->sum(c, 2, y);
    if (rank == 1)
        usleep(150000);
    getrusage(RUSAGE_SELF, &before);
    const int64_t begun_ns = clock_system_ns();
    ops->group->sum(c, 2, y);
    getrusage(RUSAGE_SELF, &after);
    CHECK(y[0] == 4 && y[1] == 2);
    if (rank == 1)
        return;
    const int64_t used_us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 +
                            after.ru_utime.tv_usec - before.ru_utime.tv_usec;
    CHECK(clock_system_ns() - begun_ns > 50000000);
    CHECKF(used_us < 30000, "%lld us of the core while it waited", (long long)used_us);
}

/* Only two of three ranks join. */
static void test_missing(struct compute *c, uint32_t rank, uint32_t ranks)
{
    struct error error = {0};
    enum status status = join(c, rank, ranks, 100, &error);
    CHECK(status == ST_TIMED_OUT || status == ST_UNREACHABLE);
    CHECKF(strstr(error.text, "have not joined within 100 ms: 2") != NULL ||
               strstr(error.text, "has given up") != NULL ||
               strstr(error.text, "has ended") != NULL,
           "%s", error.text);
    CHECK(ops->check(c, &error) != ST_OK);
}

static void refused(uint32_t rank, uint32_t ranks, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                    enum status want, const char *said)
{
    struct error error = {0};
    struct compute *c = device_open(1);
    const int64_t begun_ns = clock_system_ns();
    CHECK(ops->group->join(c, id, rank, ranks, 60000, &error) == want);
    CHECKF(strstr(error.text, said) != NULL, "\"%s\" lacks \"%s\"", error.text, said);
    CHECK(clock_system_ns() - begun_ns < 10000000000);
    ops->close(c);
}

/* Ranks that do not agree; and a rank that joins after another rank has given up, and must not wait
 * for its own time limit. */
static void test_refused(struct compute *c, uint32_t rank, uint32_t ranks)
{
    struct error error = {0};
    uint8_t id[COMPUTE_GROUP_ID_BYTES];
    id_make(c, rank);
    if (rank == 0)
        CHECK(ops->group->join(c, board->id, 0, ranks, 10, &error) == ST_TIMED_OUT);
    board->reached[rank] = 1;
    while (board->reached[1 - rank] == 0)
        usleep(200);
    if (rank == 1) {
        memset(id, 0, sizeof(id));
        refused(1, 2, id, ST_INVALID, "the id is not that of a group");
        memcpy(id, board->id, sizeof(id));
        id[16] ^= 1; /* Changes the id's random number. */
        refused(1, 2, id, ST_UNREACHABLE, "has another group");
        refused(2, 2, board->id, ST_INVALID, "rank 2 of a group of 2");
        refused(2, 3, board->id, ST_MISMATCH, "other ranks say that there are 2");
        refused(0, 2, board->id, ST_MISMATCH, "rank 0 of the group is process");
        refused(1, 2, board->id, ST_UNREACHABLE, "has given up");
        board->reached[1] = 2;
    }
    while (board->reached[1] != 2)
        usleep(200);
}

static useconds_t dies_after_us;

/* A rank dies before the other rank joins, or while it waits. */
static void test_died_before(struct compute *c, uint32_t rank, uint32_t ranks)
{
    struct error error = {0};
    id_make(c, rank);
    if (rank == 0) {
        usleep(dies_after_us);
        raise(SIGKILL);
    }
    CHECK(ops->group->join(c, board->id, rank, ranks, JOIN_MS, &error) == ST_UNREACHABLE);
    CHECKF(strstr(error.text, "process") != NULL, "%s", error.text);
}

int main(void)
{
    seed = test_seed();
    const uint32_t names = names_of("/dev/shm", "");
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    for (uint32_t ranks = 2; ranks <= RANKS_MAX; ranks++)
        run(test_sums, ranks, ranks, -1);
    run(test_killed, 3, 3, 1);
    run(test_left, 2, 2, -1);
    run(test_late, 2, 2, -1);
    run(test_missing, 3, 2, -1);
    run(test_refused, 2, 2, -1);
    run(test_died_before, 2, 2, 0);
    dies_after_us = 50000;
    run(test_died_before, 2, 2, 0);
    CHECK(names_of("/dev/shm", "cleave") == 0);
    printf("names in /dev/shm: %u before, %u after\n", names, names_of("/dev/shm", ""));
    return 0;
}
