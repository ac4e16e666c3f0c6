/* engine_results: the samples of bench-engine, and their tables. Samples are kept in memory,
 * written to a JSON file and read back, so that several runs add up and two releases can be
 * compared. The tables show goals, medians, ranges, and each sample's share of the bound
 * (engine_bound.h) that applied when the sample was taken. bench-engine (engine.c) calls it on its
 * one thread. It measures nothing. */
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
    /* Limits of the computer at the time of the sample: the mean of the measurements before and
     * after. */
    struct roofline roofline;
};

struct engine_results;

/* Opens an empty set of samples. ST_NO_MEMORY. */
enum status engine_results_open(struct engine_results **out);
void engine_results_close(struct engine_results *results); /* NULL is fine */

/* Adds the samples of a file that engine_results_write wrote. Cases that this release does not have
 * are skipped. ST_INVALID, ST_NO_RESOURCE: the error names the file. */
enum status engine_results_read(struct engine_results *results, const char *path,
                                struct error *error);
/* Writes all samples to the file, which is replaced. ST_IO: the error names the file. */
enum status engine_results_write(const struct engine_results *results, const char *path,
                                 struct error *error);

/* Adds a sample of one case that was measured with `threads` threads. Requires that `c` is an
 * element of engine_cases. ST_NO_RESOURCE: the case has ENGINE_SAMPLES_MAX samples, or there are
 * samples for too many pairs of case and number of threads. */
enum status engine_results_add(struct engine_results *results, const struct engine_case *c,
                               uint32_t threads, const struct engine_sample *sample);

/* Prints one table of the samples with `threads` threads. before: older samples, whose medians and
 * ratios are added to the table; NULL = none. hyper, weight_bytes: shape and size of the model, for
 * the bound. The goals apply to the default model, so they are shown only for a model with its
 * shape. */
void engine_results_print(const struct engine_results *results, const struct engine_results *before,
                          uint32_t threads, const struct model_hyper *hyper, size_t weight_bytes,
                          FILE *file);

/* Prints the limits of the computer: median and range over all samples, for each number of threads.
 */
void engine_results_print_roofline(const struct engine_results *results, const uint32_t *threads,
                                   uint32_t threads_count, FILE *file);

#endif
