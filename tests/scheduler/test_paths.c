/* Goal: requests go to the replicas of each stage according to their speeds, evenly spread, and
 * always in the same way. Method: PipeDream's examples by hand, refused inputs, and random stages:
 * over a cycle every replica has exactly its share, and at no time more than one request more. */
#include "common/random.h"
#include "scheduler/paths.h"
#include "tests/check.h"

#include <stdbool.h>
#include <string.h>

#define STAGES   5
#define REPLICAS 8
#define RUNS     3000

static struct sched_paths paths;
static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

/* "7-1" gives seven paths in turn. */
static void test_seven_one(void)
{
    static const uint32_t equal[] = {5, 5, 5, 5, 5, 5, 5};
    static const uint32_t alone[] = {40};
    const struct sched_paths_stage stages[] = {{7, equal}, {1, alone}};
    CHECK(sched_paths_open(stages, 2, &paths) == ST_OK && paths.path_count == 7);
    for (uint32_t n = 0; n < 21; n++) {
        uint32_t path = sched_paths_next(&paths);
        CHECK(path == n % 7);
        CHECK(sched_paths_replica(&paths, path, 0) == n % 7);
        CHECK(sched_paths_replica(&paths, path, 1) == 0);
    }
    CHECK(sched_paths_open(stages + 1, 1, &paths) == ST_OK && paths.path_count == 1);
    CHECK(sched_paths_next(&paths) == 0 && sched_paths_next(&paths) == 0);
}

/* Equal stages are paired in order. The turns of a fast replica are spread. */
static void test_by_hand(void)
{
    static const uint32_t equal[] = {1, 1, 1, 1};
    static const uint32_t fast[] = {300, 100, 100};
    static const uint32_t want[] = {0, 1, 0, 2, 0};
    const struct sched_paths_stage twos[] = {{2, equal}, {4, equal}, {2, equal}};
    CHECK(sched_paths_open(twos, 3, &paths) == ST_OK && paths.path_count == 4);
    for (uint32_t n = 0; n < 8; n++) {
        uint32_t path = sched_paths_next(&paths);
        CHECK(sched_paths_replica(&paths, path, 0) == n % 2);
        CHECK(sched_paths_replica(&paths, path, 1) == n % 4);
        CHECK(sched_paths_replica(&paths, path, 2) == n % 2);
    }
    const struct sched_paths_stage unequal = {3, fast};
    CHECK(sched_paths_open(&unequal, 1, &paths) == ST_OK && paths.path_count == 3);
    for (uint32_t n = 0; n < 10; n++)
        CHECK(sched_paths_replica(&paths, sched_paths_next(&paths), 0) == want[n % 5]);
}

static void test_refused(void)
{
    static const uint32_t none[] = {1, 0};
    static uint32_t many[LIMIT_STAGE_PROCESSES + 1];
    for (uint32_t i = 0; i <= LIMIT_STAGE_PROCESSES; i++)
        many[i] = 1;
    const struct sched_paths_stage stopped = {2, none};
    const struct sched_paths_stage empty = {0, many};
    const struct sched_paths_stage large = {LIMIT_STAGE_PROCESSES + 1, many};
    const struct sched_paths_stage apart[] = {{7, many}, {3, many}};
    const struct sched_paths_stage together[] = {{6, many}, {3, many}};
    const struct sched_paths_stage long_cycle[] = {{31, many}, {32, many}};
    CHECK(sched_paths_open(&stopped, 0, &paths) == ST_INVALID);
    CHECK(sched_paths_open(&stopped, 1, &paths) == ST_INVALID);
    CHECK(sched_paths_open(&empty, 1, &paths) == ST_INVALID);
    CHECK(sched_paths_open(&large, 1, &paths) == ST_TOO_LARGE);
    CHECK(sched_paths_open(apart, 2, &paths) == ST_TOO_LARGE);
    CHECK(sched_paths_open(long_cycle, 2, &paths) == ST_TOO_LARGE);
    CHECK(sched_paths_open(together, 2, &paths) == ST_OK && paths.path_count == 6);
}

/* Measured speeds: shares are as exact as steps of 1/60 allow, and every replica gets work. */
static void test_rounded(void)
{
    static const uint32_t measured[] = {103217, 98651, 1};
    static const uint32_t equal[] = {7, 7};
    uint32_t turns[3] = {0};
    const struct sched_paths_stage stages[] = {{3, measured}, {2, equal}};
    CHECK(sched_paths_open(stages, 2, &paths) == ST_OK && paths.cycle_count == 60);
    for (uint32_t n = 0; n < 60; n++)
        turns[sched_paths_replica(&paths, sched_paths_next(&paths), 0)]++;
    CHECKF(turns[0] == 30 && turns[1] == 29 && turns[2] == 1, "%u %u %u", turns[0], turns[1],
           turns[2]);
}

static void check_stage(const struct sched_paths_stage *stage, uint32_t index)
{
    uint64_t sum = 0;
    uint64_t turns[REPLICAS] = {0};
    for (uint32_t i = 0; i < stage->replica_count; i++)
        sum += stage->speeds[i];
    for (uint64_t n = 1; n <= paths.cycle_count; n++) {
        uint32_t replica = sched_paths_replica(&paths, sched_paths_next(&paths), index);
        CHECK(replica < stage->replica_count);
        turns[replica]++;
        /* turns ≤ n · speed / sum + 1 */
        CHECKF(turns[replica] * sum <= n * stage->speeds[replica] + sum,
               "replica %u of stage %u has %" PRIu64 " of %" PRIu64, replica, index, turns[replica],
               n);
    }
    for (uint32_t i = 0; i < stage->replica_count; i++)
        CHECK(turns[i] * sum == (uint64_t)paths.cycle_count * stage->speeds[i]);
}

/* Small numbers make the shares exact; the unit of speed does not matter. */
static bool test_random(void)
{
    uint32_t speeds[STAGES][REPLICAS];
    struct sched_paths_stage stages[STAGES];
    uint32_t count = 1 + draw(STAGES);
    uint32_t unit = 1 + draw(1000);
    for (uint32_t s = 0; s < count; s++) {
        uint32_t kinds = 1 + draw(3);
        stages[s] = (struct sched_paths_stage){1 + draw(draw(2) == 0 ? REPLICAS : 2), speeds[s]};
        for (uint32_t i = 0; i < stages[s].replica_count; i++)
            speeds[s][i] = (1 + draw(kinds)) * unit;
    }
    enum status status = sched_paths_open(stages, count, &paths);
    CHECK(status == ST_OK || status == ST_TOO_LARGE);
    if (status != ST_OK)
        return false;
    struct sched_paths again;
    CHECK(sched_paths_open(stages, count, &again) == ST_OK);
    CHECK(memcmp(&again, &paths, sizeof(paths)) == 0);
    bool seen[LIMIT_STAGE_PATHS] = {false};
    uint32_t distinct = 0;
    for (uint32_t n = 0; n < paths.cycle_count; n++) {
        uint32_t path = sched_paths_next(&paths);
        CHECK(path < paths.path_count && (seen[path] || path == distinct));
        distinct += seen[path] ? 0 : 1;
        seen[path] = true;
    }
    CHECK(distinct == paths.path_count && paths.next_position == 0);
    for (uint32_t s = 0; s < count; s++)
        check_stage(&stages[s], s);
    return true;
}

int main(void)
{
    uint32_t opened = 0;
    seed = test_seed();
    test_seven_one();
    test_by_hand();
    test_refused();
    test_rounded();
    for (uint32_t run = 0; run < RUNS; run++)
        opened += test_random() ? 1 : 0;
    printf("%u of %u could be opened\n", opened, RUNS);
    CHECK(opened > RUNS / 4);
    return 0;
}
