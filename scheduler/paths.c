/* paths: see the header. */
#include "scheduler/paths.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

/* The unit of rounded shares. 60 is divisible by 2 to 6, so a stage with rounded shares has a short
 * common cycle with stages of a few equal replicas. */
#define PARTS 60

/* The shares of all replicas, stage after stage. */
struct shares {
    uint32_t stage_count;
    uint32_t first[LIMIT_STAGE_PROCESSES + 1]; /* First replica of each stage, and the end. */
    uint64_t parts[LIMIT_STAGE_PROCESSES];     /* Share of each replica. */
    /* Sum of each stage's shares: the length of its cycle. */
    uint64_t sums[LIMIT_STAGE_PROCESSES];
};

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Divides the stage's shares by their common divisor. */
static void reduce(struct shares *shares, uint32_t stage)
{
    uint64_t divisor = 0;
    for (uint32_t i = shares->first[stage]; i < shares->first[stage + 1]; i++)
        divisor = common_divisor(divisor, shares->parts[i]);
    shares->sums[stage] = 0;
    for (uint32_t i = shares->first[stage]; i < shares->first[stage + 1]; i++) {
        shares->parts[i] /= divisor;
        shares->sums[stage] += shares->parts[i];
    }
}

static enum status shares_read(const struct sched_paths_stage *stages, uint32_t stage_count,
                               struct shares *out)
{
    uint32_t count = 0;
    if (stage_count == 0)
        return ST_INVALID;
    if (stage_count > LIMIT_STAGE_PROCESSES)
        return ST_TOO_LARGE;
    out->stage_count = stage_count;
    for (uint32_t s = 0; s < stage_count; s++) {
        out->first[s] = count;
        if (stages[s].replica_count == 0)
            return ST_INVALID;
        if (stages[s].replica_count > LIMIT_STAGE_PROCESSES - count)
            return ST_TOO_LARGE;
        for (uint32_t i = 0; i < stages[s].replica_count; i++) {
            if (stages[s].speeds[i] == 0)
                return ST_INVALID;
            out->parts[count++] = stages[s].speeds[i];
        }
        out->first[s + 1] = count;
        reduce(out, s);
    }
    return ST_OK;
}

/* Requests after which all stages are at their beginning again; 0 = more than SCHED_PATHS_CYCLE. */
static uint32_t cycle_length(const struct shares *shares)
{
    uint64_t length = 1;
    for (uint32_t s = 0; s < shares->stage_count; s++) {
        uint64_t sum = shares->sums[s];
        if (sum > SCHED_PATHS_CYCLE)
            return 0;
        length *= sum / common_divisor(length, sum);
        if (length > SCHED_PATHS_CYCLE)
            return 0;
    }
    return (uint32_t)length;
}

/* Rounds the shares of a stage to PARTS parts, at least one per replica. Parts left over go to the
 * replicas that lost most by rounding down; missing parts are taken from the replicas with the
 * most. */
static void round_stage(struct shares *shares, uint32_t stage)
{
    uint32_t first = shares->first[stage];
    uint32_t end = shares->first[stage + 1];
    uint64_t sum = shares->sums[stage];
    uint64_t rest[LIMIT_STAGE_PROCESSES];
    int64_t left = PARTS;
    /* equal shares need no rounding; more than PARTS replicas make too many paths anyway */
    if (sum == end - first || end - first > PARTS)
        return;
    for (uint32_t i = first; i < end; i++) {
        uint64_t scaled = shares->parts[i] * PARTS;
        bool none = scaled < sum;
        shares->parts[i] = none ? 1 : scaled / sum;
        rest[i] = none ? 0 : scaled % sum;
        left -= (int64_t)shares->parts[i];
    }
    for (; left != 0; left += left > 0 ? -1 : 1) {
        uint32_t found = first;
        for (uint32_t i = first + 1; i < end; i++)
            if (left > 0 ? rest[i] > rest[found] : shares->parts[i] > shares->parts[found])
                found = i;
        rest[found] = 0;
        shares->parts[found] += left > 0 ? 1 : UINT64_MAX;
    }
    reduce(shares, stage);
}

/* A step of smooth weighted round robin: every replica gets its share as credit; the replica with
 * the most credit is chosen and pays the sum. No replica is ever a whole turn ahead. */
static uint8_t stage_next(const struct shares *shares, uint32_t stage, int64_t *credits)
{
    uint32_t first = shares->first[stage];
    uint32_t found = first;
    for (uint32_t i = first; i < shares->first[stage + 1]; i++) {
        credits[i] += (int64_t)shares->parts[i];
        found = credits[i] > credits[found] ? i : found;
    }
    credits[found] -= (int64_t)shares->sums[stage];
    return (uint8_t)(found - first);
}

/* Finds or adds the path with these replicas. Returns false if there are LIMIT_STAGE_PATHS already.
 */
static bool path_find(struct sched_paths *paths, const uint8_t *replicas, uint8_t *path_out)
{
    uint32_t path = 0;
    while (path < paths->path_count &&
           memcmp(paths->replicas[path], replicas, paths->stage_count) != 0)
        path++;
    if (path == LIMIT_STAGE_PATHS)
        return false;
    if (path == paths->path_count)
        memcpy(paths->replicas[paths->path_count++], replicas, paths->stage_count);
    *path_out = (uint8_t)path;
    return true;
}

enum status sched_paths_open(const struct sched_paths_stage *stages, uint32_t stage_count,
                             struct sched_paths *out)
{
    struct shares shares;
    int64_t credits[LIMIT_STAGE_PROCESSES] = {0};
    uint8_t replicas[LIMIT_STAGE_PROCESSES];
    enum status status = shares_read(stages, stage_count, &shares);
    if (status != ST_OK)
        return status;
    uint32_t length = cycle_length(&shares);
    for (uint32_t s = 0; s < stage_count && length == 0; s++)
        round_stage(&shares, s);
    length = length > 0 ? length : cycle_length(&shares);
    if (length == 0)
        return ST_TOO_LARGE; /* Even the stages with equal speeds make too many paths. */
    *out = (struct sched_paths){.stage_count = stage_count, .cycle_count = length};
    for (uint32_t n = 0; n < length; n++) {
        for (uint32_t s = 0; s < stage_count; s++)
            replicas[s] = stage_next(&shares, s, credits);
        if (!path_find(out, replicas, &out->cycle[n]))
            return ST_TOO_LARGE;
    }
    return ST_OK;
}

uint32_t sched_paths_replica(const struct sched_paths *paths, uint32_t path, uint32_t stage)
{
    assert(path < paths->path_count && stage < paths->stage_count);
    return paths->replicas[path][stage];
}

uint32_t sched_paths_next(struct sched_paths *paths)
{
    uint32_t path = paths->cycle[paths->next_position];
    paths->next_position = (paths->next_position + 1) % paths->cycle_count;
    return path;
}
