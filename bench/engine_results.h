/* engine_results: the samples of bench-engine, in memory and in a JSON file, and the tables that
 * are printed from them. The file lets several runs add samples to one set, and lets two releases
 * be compared. The tables show goals, medians, ranges, and how close each sample is to the bound
 * (engine_bound.h) that held when the sample was measured. bench-engine (engine.c) calls the
 * functions on its main thread. This part measures nothing. */
#ifndef BENCH_ENGINE_RESULTS_H
#define BENCH_ENGINE_RESULTS_H

#include "bench/engine_run.h"
#include "bench/roofline.h"
#include "common/status.h"
#include "model/forward/model.h"

#include <stdio.h>

#define ENGINE_SAMPLES_MAX 99 /* Most samples of a case with one number of threads. */

struct engine_sample {
    double tokens_a_second;
    struct roofline roofline; /* Limits of the computer at the time of the sample. */
};

struct engine_results;

/* Opens an empty set of samples. Returns ST_NO_MEMORY on failure. */
enum status engine_results_open(struct engine_results **out);
void engine_results_close(struct engine_results *results); /* NULL is fine */

/* Adds the samples of a file that engine_results_write wrote. Cases that this release does not have
 * are skipped. Returns ST_INVALID if the file cannot be read or has no list of samples, and
 * ST_NO_RESOURCE if engine_results_add returns ST_NO_RESOURCE; the error names the file. Samples
 * that were added before the error stay. */
enum status engine_results_read(struct engine_results *results, const char *path,
                                struct error *error);
/* Writes all samples to the file, and replaces its content. Returns ST_IO on failure. */
enum status engine_results_write(const struct engine_results *results, const char *path,
                                 struct error *error);

/* Adds a sample of one case that was measured with `threads` threads. Requires that `c` is an
 * element of engine_cases. Returns ST_NO_RESOURCE if the case has ENGINE_SAMPLES_MAX samples with
 * this number of threads, or if the set already has 64 pairs of a case and a number of threads. */
enum status engine_results_add(struct engine_results *results, const struct engine_case *c,
                               uint32_t threads, const struct engine_sample *sample);

/* Prints one table of the samples with `threads` threads. before: samples of an earlier release to
 * compare with; NULL = none. hyper, weight_bytes: shape and size of the model, for the bound. Goals
 * are printed only if the model has the shape of the default model. */
void engine_results_print(const struct engine_results *results, const struct engine_results *before,
                          uint32_t threads, const struct model_hyper *hyper, size_t weight_bytes,
                          FILE *file);

/* Prints a table of the computer's limits (struct roofline): median and range over all samples, for
 * each number of threads in `threads` [threads_count]. */
void engine_results_print_roofline(const struct engine_results *results, const uint32_t *threads,
                                   uint32_t threads_count, FILE *file);

#endif
