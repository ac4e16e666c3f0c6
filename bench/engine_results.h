/* engine_results: the samples of bench-engine's cases: kept, written to a JSON file and read back,
 * so that several runs add up and two versions can be compared, and printed as tables with goals,
 * medians, ranges and each sample's part of the bound of its own moments. One thread. */
#ifndef BENCH_ENGINE_RESULTS_H
#define BENCH_ENGINE_RESULTS_H

#include "bench/engine_run.h"
#include "bench/roofline.h"
#include "common/status.h"
#include "model/model.h"

#include <stdio.h>

#define ENGINE_SAMPLES_MAX 99

struct engine_sample {
    double tokens_a_second;
    struct roofline roofline; /* the mean of before and after */
};

struct engine_results;

enum status engine_results_open(struct engine_results **out);
void engine_results_close(struct engine_results *results); /* NULL is fine */

/* Adds the samples of a file that engine_results_write wrote. Error text names the file. */
enum status engine_results_read(struct engine_results *results, const char *path,
                                struct error *error);
enum status engine_results_write(const struct engine_results *results, const char *path,
                                 struct error *error);

/* Of one case with so many threads. ST_NO_RESOURCE: there are ENGINE_SAMPLES_MAX of it. */
enum status engine_results_add(struct engine_results *results, const struct engine_case *c,
                               uint32_t threads, const struct engine_sample *sample);

/* One table for a number of threads; `before` adds its medians and the ratio to them, NULL: none.
 * Goals are the default model's: they are shown for a model of its shape only. */
void engine_results_print(const struct engine_results *results, const struct engine_results *before,
                          uint32_t threads, const struct model_hyper *hyper, size_t weight_bytes,
                          FILE *file);

/* What the machine could do: medians and ranges over all samples with each number of threads. */
void engine_results_print_roofline(const struct engine_results *results, const uint32_t *threads,
                                   uint32_t threads_count, FILE *file);

#endif
