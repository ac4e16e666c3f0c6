/* Goal: the results from a device's samples are right: medians of undisturbed samples, separate
 * layers where layers differ, extrapolated cells, times that never decrease, and sums of parts that
 * equal the whole. Method: samples of a made-up device whose times are a formula with noise of both
 * signs; some samples waited for cores. */
#include "tools/profile/points.h"

#include "common/random.h"
#include "tests/check.h"

#include <math.h>

#define LAYERS 5

static uint64_t seed, drawn;

static double layer_us(uint32_t layer, bool alike, bool prompt, double rows, double context)
{
    if (prompt && layer == LAYERS - 1)
        return 3 + 0.5 * rows;
    return (alike ? 1 : 1 + layer) * (20 + 2 * rows + 0.001 * rows * context);
}

static double last_us(double rows)
{
    return 100 + 5 * rows;
}

/* Makes a sample whose times are `factor` times the formula's. waited: this share of each part was
 * spent waiting for a core. */
static struct profile_step_times sample(const struct profile_point *point, bool alike,
                                        double factor, double waited)
{
    /* Decodes beside a prompt are rows like its own, and read their own contexts. */
    const double rows = point->rows + point->decodes;
    const double context = point->rows / rows * (point->context + point->rows / 2.0) -
                           point->decodes / 2.0 - point->rows / 2.0;
    const double reads = 0.001 * point->decodes * PROFILE_CHECK_DECODE_CONTEXT;
    struct profile_step_times times = {.batch.us = 7, .embedding.us = 0.1 * rows};
    times.vocabulary.us = last_us(point->prompt ? 1 + point->decodes : point->rows);
    for (uint32_t i = 0; i < LAYERS; i++)
        times.layers[i].us =
            layer_us(i, alike, point->prompt, rows, context) + reads * (alike ? 1 : 1 + i);
    struct profile_part_time *parts[LAYERS + 3] = {&times.batch, &times.embedding,
                                                   &times.vocabulary};
    for (uint32_t i = 0; i < LAYERS; i++)
        parts[3 + i] = &times.layers[i];
    for (uint32_t i = 0; i < LAYERS + 3; i++) {
        parts[i]->us *= factor;
        parts[i]->waited_us = parts[i]->idle_us = parts[i]->us * waited;
        times.whole.us += parts[i]->us;
        times.whole.waited_us += parts[i]->waited_us;
        times.whole.idle_us += parts[i]->idle_us;
    }
    return times;
}

/* Adds five samples, two above the formula's times and two below, and then some outliers. */
static void samples_add(struct profile_point *point, bool alike)
{
    static const double factors[] = {1.02, 0.97, 1, 1.1, 0.99};
    for (int i = 0; i < 5; i++)
        point->samples[point->sample_count++] = sample(point, alike, factors[i], 0);
    for (uint64_t i = random_at(seed, drawn++) % 4; i > 0; i--)
        point->samples[point->sample_count++] = sample(point, alike, 1.5, 0.3);
}

static void conclude(bool alike, struct profile *p, struct profile_plan *plan)
{
    struct profile_device *d = &p->devices[0];
    CHECK(profile_plan_open(8192, 32768, PROFILE_PLAN_CPU, plan) == ST_OK);
    for (uint32_t i = 0; i < plan->point_count; i++)
        samples_add(&plan->points[i], alike);
    p->model.layer_count = LAYERS;
    p->device_count = 1;
    d->layer_count = alike ? 1 : LAYERS;
    d->layers = calloc(d->layer_count, sizeof(*d->layers));
    CHECK(d->layers != NULL);
    CHECK(profile_points_conclude(plan, p, d) == ST_OK);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-3 * fmax(1, fabs(b));
}

static void check_grid(const struct profile_grid *g, uint32_t layer, bool alike, bool prompt)
{
    for (uint32_t i = 0; i < g->row_count; i++)
        for (uint32_t c = 0; c < g->context_count; c++)
            CHECKF(near(g->us[i][c], layer_us(layer, alike, prompt, g->rows[i], g->contexts[c])),
                   "layer %u, %g rows after %g: %g", layer, g->rows[i], g->contexts[c],
                   g->us[i][c]);
}

static void check_device(bool alike)
{
    struct profile *p = calloc(1, sizeof(*p));
    struct profile_plan plan;
    CHECK(p != NULL);
    conclude(alike, p, &plan);
    const struct profile_device *d = &p->devices[0];
    for (uint32_t i = 0; i < d->layer_count; i++) {
        if (i < LAYERS - 1)
            check_grid(&d->layers[i].prompt, i, alike, true);
        check_grid(&d->layers[i].token, i, alike, false);
    }
    check_grid(&d->last_layer_prompt, LAYERS - 1, alike, true);
    /* Some cells have extrapolated values above these. */
    for (uint32_t i = 0; i < plan.point_count; i++)
        CHECK(plan.points[i].rows < 1024 || plan.points[i].context < 4096);
    CHECK(near(profile_curve_us(&d->vocabulary, 16), last_us(16)));
    CHECK(near(profile_curve_us(&d->embedding, 96), 9.6) && near(d->batch_us, 7));
    CHECK(d->disturbed >= 0 && d->disturbed < 0.5);
    CHECK(d->check_count >= 10 && d->check_count <= PROFILE_CHECKS_MAX);
    for (uint32_t i = 0; i < d->check_count; i++)
        CHECKF(near(d->checks[i].predicted_us, d->checks[i].measured_us),
               "%g rows after %g: %g, and in parts %g", d->checks[i].rows, d->checks[i].context,
               d->checks[i].measured_us, d->checks[i].predicted_us);
    CHECK(near(d->layers[0].token.spread, 0.03)); /* Samples from 0.99 to 1.02 times the formula. */
    profile_plan_done(&plan);
    profile_close(p);
}

/* All samples are disturbed: the three least disturbed ones are used. Times that decrease are
 * replaced by their mean. */
static void check_bad_samples(void)
{
    struct profile *p = calloc(1, sizeof(*p));
    struct profile_plan plan;
    CHECK(p != NULL);
    CHECK(profile_plan_open(512, 1024, PROFILE_PLAN_QUICK, &plan) == ST_OK);
    for (uint32_t i = 0; i < plan.point_count; i++) {
        for (int k = 0; k < 9; k++) {
            bool falls = plan.points[i].prompt && plan.points[i].rows == 16;
            plan.points[i].samples[plan.points[i].sample_count++] = sample(
                &plan.points[i], true, (falls ? 0.2 : 1) * (k < 3 ? 1 : 2), k < 3 ? 0.1 : 0.5);
        }
    }
    p->model.layer_count = LAYERS;
    p->device_count = 1;
    struct profile_device *d = &p->devices[0];
    d->layer_count = 1;
    d->layers = calloc(1, sizeof(*d->layers));
    CHECK(d->layers != NULL);
    CHECK(profile_points_conclude(&plan, p, d) == ST_OK);
    CHECK(d->disturbed == 1);
    const struct profile_grid *g = &d->layers[0].prompt;
    CHECK(g->row_count == 3 && g->rows[1] == 16);
    double one = layer_us(0, true, true, 1, 0), sixteen = 0.2 * layer_us(0, true, true, 16, 0);
    CHECK(sixteen < one && near(g->us[0][0], (one + sixteen) / 2) && g->us[1][0] == g->us[0][0]);
    CHECK(near(g->us[2][0], layer_us(0, true, true, 64, 0)));
    check_grid(&d->layers[0].token, 0, true, false);
    profile_plan_done(&plan);
    profile_close(p);
}

/* For any context of the model and any memory, a plan exists and respects both. */
static void check_plans(void)
{
    static const uint32_t contexts[] = {1, 2, 17, 512, 4096, 131072},
                          memories[] = {0, 5, 1000, 32768};
    for (size_t i = 0; i < sizeof(contexts) / sizeof(contexts[0]); i++)
        for (size_t k = 0; k < sizeof(memories) / sizeof(memories[0]); k++)
            for (int kind = PROFILE_PLAN_CPU; kind <= PROFILE_PLAN_QUICK; kind++) {
                struct profile_plan plan;
                CHECK(profile_plan_open(contexts[i], memories[k], (enum profile_plan_kind)kind,
                                        &plan) == ST_OK);
                CHECK(plan.token_count > 0 && plan.prompt_context_count > 0);
                CHECK(plan.batch_count > 0 && plan.token_context_count > 0);
                for (uint32_t n = 0; n < plan.point_count; n++) {
                    const struct profile_point *point = &plan.points[n];
                    CHECK((point->prompt ? point->rows : 1) + point->context <= contexts[i]);
                    CHECK(point->prompt || point->rows * point->context <= memories[k]);
                    CHECK(profile_point_weight(point) > 0);
                }
                profile_plan_done(&plan);
            }
}

int main(void)
{
    seed = test_seed();
    check_device(true);
    check_device(false);
    check_bad_samples();
    check_plans();
    return 0;
}
