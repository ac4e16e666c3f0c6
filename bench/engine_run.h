/* engine_run: the engine alone (model/ over compute/), without machines, transport or sampling,
 * made to run one case at a time: a prompt of some length, or decoding so many streams at some
 * depth. One engine per number of threads, all over one KV memory. It measures and keeps nothing;
 * what the figures mean is engine_bound.h's and engine_table.h's. One thread calls it. */
#ifndef BENCH_ENGINE_RUN_H
#define BENCH_ENGINE_RUN_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define ENGINE_DECODE_STEPS 32 /* of one pass: the case's depth up to that plus this */

struct engine_case {
    const char *name;
    uint32_t prompt; /* tokens of the prompt, 0: decoding */
    uint32_t streams;
    uint32_t depth;
    double goal_one; /* tokens/s wanted of the default model with one thread; 0: no goal */
    double goal_two;
};

extern const struct engine_case engine_cases[];
extern const size_t engine_case_count;

struct engine_run;
struct model_hyper;

/* Opens the model once for each number of threads and fills the caches with real tokens. */
enum status engine_run_open(const char *model, const uint32_t *threads, uint32_t threads_count,
                            struct engine_run **out, struct error *error);
void engine_run_close(struct engine_run *run); /* NULL is fine */

/* Tokens per second of `c` with threads[index]; passes repeat until it has taken long enough. */
double engine_run_measure(struct engine_run *run, uint32_t index, const struct engine_case *c);

const struct model_hyper *engine_run_hyper(const struct engine_run *run);
size_t engine_run_weight_bytes(const struct engine_run *run);
const char *engine_run_describe(const struct engine_run *run, uint32_t index);

#endif
