/* engine_results: the samples of bench-engine. They are kept, written to a JSON file and read back,
 * so that several runs add up and two versions can be compared. They are printed as tables with
 * goals, medians, ranges, and each sample's share of the limit at its own time. One thread. */
#ifndef BENCH_ENGINE_RESULTS_H
#define BENCH_ENGINE_RESULTS_H

#include "bench/engine_run.h"
#include "bench/roofline.h"
#include "common/status.h"
#include "model/forward/model.h"

#include <stdio.h>

#define ENGINE_SAMPLES_MAX 99

struct engine_sample {
    double tokens_a_second;
    struct roofline roofline; /* Mean of the measurements before and after the sample. */
};

struct engine_results;

enum status engine_results_open(struct engine_results **out);
void engine_results_close(struct engine_results *results); /* NULL is fine */

/* Adds the samples of a file written by engine_results_write. Errors name the file. */
enum status engine_results_read(struct engine_results *results, const char *path,
                                struct error *error);
enum status engine_results_write(const struct engine_results *results, const char *path,
                                 struct error *error);

/* Adds a sample of one case with `threads` threads. ST_NO_RESOURCE: the case has ENGINE_SAMPLES_MAX
 * samples, or there are too many cases. */
enum status engine_results_add(struct engine_results *results, const struct engine_case *c,
                               uint32_t threads, const struct engine_sample *sample);

/* Prints one table for a number of threads. before: adds its medians and the ratio to them; NULL =
 * none. The goals apply to the default model, so they are shown only for a model of the same shape.
 */
void engine_results_print(const struct engine_results *results, const struct engine_results *before,
                          uint32_t threads, const struct model_hyper *hyper, size_t weight_bytes,
                          FILE *file);

/* Prints the machine's limits: median and range over all samples, for each number of threads. */
void engine_results_print_roofline(const struct engine_results *results, const uint32_t *threads,
                                   uint32_t threads_count, FILE *file);

#endif
