/* Goal: partition_even finds the split that its header promises, with ties. Method: every split of
 * thousands of random small models is tried (small whole costs, so that ties are common; extras;
 * equal and unequal devices), then cases that can be checked by eye, and refused inputs. */
#include "common/limits.h"
#include "common/random.h"
#include "scheduler/partition_even.h"
#include "tests/check.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define RUNS       5000
#define LAYERS_MAX 10

struct model {
    double layers[LAYERS_MAX];
    double first;
    double last;
    double speeds[LAYERS_MAX];
    const double *speed; /* NULL = equal speeds. */
    uint32_t layer_count;
    uint32_t stage_count;
};

struct split {
    uint32_t ends[LAYERS_MAX];
    double slowest;
    double squares;
};

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static void weigh(const struct model *m, struct split *split)
{
    split->slowest = 0;
    split->squares = 0;
    for (uint32_t s = 0; s < m->stage_count; s++) {
        double time = (s == 0 ? m->first : 0) + (s + 1 == m->stage_count ? m->last : 0);
        for (uint32_t i = s > 0 ? split->ends[s - 1] : 0; i < split->ends[s]; i++)
            time += m->layers[i];
        time /= m->speed != NULL ? m->speed[s] : 1;
        split->slowest = fmax(split->slowest, time);
        split->squares += time * time;
    }
}

/* Returns < 0 if a is less, 0 if both are equal up to rounding. */
static int compare(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(a, b) ? 0 : a < b ? -1 : 1;
}

static bool better(const struct model *m, const struct split *a, const struct split *b)
{
    int slowest = compare(a->slowest, b->slowest);
    int squares = compare(a->squares, b->squares);
    if (slowest != 0 || squares != 0)
        return slowest != 0 ? slowest < 0 : squares < 0;
    for (uint32_t s = 0; s < m->stage_count; s++)
        if (a->ends[s] != b->ends[s])
            return a->ends[s] > b->ends[s];
    return false;
}

static void try_all(const struct model *m, uint32_t stage, struct split *split, struct split *best)
{
    uint32_t first = stage > 0 ? split->ends[stage - 1] : 0;
    if (stage + 1 == m->stage_count) {
        split->ends[stage] = m->layer_count;
        weigh(m, split);
        if (best->slowest < 0 || better(m, split, best))
            *best = *split;
        return;
    }
    for (uint32_t end = first + 1; end < m->layer_count; end++) {
        split->ends[stage] = end;
        if (m->layer_count - end >= m->stage_count - 1 - stage)
            try_all(m, stage + 1, split, best);
    }
}

static void random_model(struct model *m)
{
    memset(m, 0, sizeof(*m));
    m->layer_count = 1 + draw(LAYERS_MAX);
    m->stage_count = 1 + draw(m->layer_count);
    uint32_t costs = draw(2) == 0 ? 3 : 1000;
    for (uint32_t i = 0; i < m->layer_count; i++)
        m->layers[i] = 0.1 * draw(costs);
    m->first = draw(2) == 0 ? 0 : 0.1 * draw(costs);
    m->last = draw(2) == 0 ? 0 : 0.1 * draw(2 * costs);
    for (uint32_t s = 0; s < m->stage_count; s++)
        m->speeds[s] = 1 + draw(3);
    m->speed = draw(2) == 0 ? NULL : m->speeds;
}

static void against_all_splits(void)
{
    for (int run = 0; run < RUNS; run++) {
        struct model m;
        random_model(&m);
        struct split best = {.slowest = -1};
        struct split split;
        try_all(&m, 0, &split, &best);
        struct split got = {.slowest = -1};
        CHECK(partition_even(m.layers, m.layer_count, m.first, m.last, m.speed, m.stage_count,
                             got.ends, NULL) == ST_OK);
        for (uint32_t s = 0; s < m.stage_count; s++)
            CHECKF(got.ends[s] == best.ends[s],
                   "run %d, %u layers, %u stages: stage %u ends at %u, want %u", run, m.layer_count,
                   m.stage_count, s, got.ends[s], best.ends[s]);
    }
}

static void want(const double *speeds, uint32_t stages, double last, const uint32_t *ends)
{
    double layers[30];
    uint32_t got[30];
    for (int i = 0; i < 30; i++)
        layers[i] = 0.1; /* No sum of these numbers is exact. */
    CHECK(partition_even(layers, 30, 0, last, speeds, stages, got, NULL) == ST_OK);
    for (uint32_t s = 0; s < stages; s++)
        CHECKF(got[s] == ends[s], "stage %u ends at %u, want %u", s, got[s], ends[s]);
}

static void by_eye(void)
{
    want(NULL, 1, 0, (const uint32_t[]){30});
    want(NULL, 4, 0, (const uint32_t[]){8, 16, 23, 30});
    want(NULL, 5, 0, (const uint32_t[]){6, 12, 18, 24, 30});
    /* The vocabulary costs as much as six layers. */
    want(NULL, 2, 0.6, (const uint32_t[]){18, 30});
    want((const double[]){1, 2}, 2, 0, (const uint32_t[]){10, 30});
    /* The vocabulary alone is the bottleneck: the last stage has one layer, the others are even. */
    want(NULL, 3, 100, (const uint32_t[]){15, 29, 30});
}

static void refused(const double *layers, uint32_t count, double last, const double *speeds,
                    uint32_t stages, const char *text)
{
    uint32_t ends[4] = {99, 99, 99, 99};
    struct error error = {0};
    CHECK(partition_even(layers, count, 0, last, speeds, stages, ends, &error) == ST_INVALID);
    CHECKF(strstr(error.text, text) != NULL, "\"%s\"", error.text);
    CHECK(ends[0] == 99);
}

static void refusals(void)
{
    const double layers[3] = {1, 1, 1};
    refused(layers, 0, 0, NULL, 1, "0 layers");
    refused(layers, LIMIT_LAYERS + 1, 0, NULL, 1, "257 layers");
    refused(layers, 3, 0, NULL, 4, "4 stages for 3 layers");
    refused(layers, 3, 0, NULL, 0, "0 stages for 3 layers");
    refused((const double[]){1, NAN, 1}, 3, 0, NULL, 2, "layer 1 costs nan");
    refused((const double[]){1, 1, -2}, 3, 0, NULL, 2, "layer 2 costs -2");
    refused(layers, 3, -1, NULL, 2, "after the last -1");
    refused(layers, 3, 0, (const double[]){1, 0}, 2, "stage 1 has speed 0");
    refused((const double[]){1, 1e200, 1}, 3, 0, NULL, 2, "takes 1e+200");
}

static void largest(void)
{
    static double layers[LIMIT_LAYERS];
    static uint32_t ends[LIMIT_LAYERS];
    for (uint32_t stages = 1; stages <= LIMIT_LAYERS; stages += 51) {
        for (int i = 0; i < LIMIT_LAYERS; i++)
            layers[i] = 1;
        CHECK(partition_even(layers, LIMIT_LAYERS, 0, 0, NULL, stages, ends, NULL) == ST_OK);
        for (uint32_t s = 0; s < stages; s++) {
            uint32_t run = ends[s] - (s > 0 ? ends[s - 1] : 0);
            CHECK(run == LIMIT_LAYERS / stages + (s < LIMIT_LAYERS % stages));
        }
    }
}

int main(void)
{
    seed = test_seed();
    by_eye();
    refusals();
    largest();
    against_all_splits();
    return 0;
}
