/* engine_run: the engine alone (model/ and compute/), without machines, transport and sampling. It
 * runs one case at a time: a prompt of some length, or decoding a number of streams at some depth.
 * There is an engine for each number of threads; all use one KV memory. The benchmark bench-engine
 * (engine.c) calls it, on one thread. It only measures: engine_bound.h and engine_results.h
 * interpret the figures. */
#ifndef BENCH_ENGINE_RUN_H
#define BENCH_ENGINE_RUN_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

/* Decode steps of one pass. Step i runs at the case's depth + i. */
#define ENGINE_DECODE_STEPS 32

struct engine_case {
    const char *name;
    uint32_t prompt;  /* Tokens of the prompt; 0 = decoding. */
    uint32_t streams; /* Sequences that are decoded together. */
    uint32_t depth;   /* Cached tokens of each stream. */
    /* Goal for the default model with one thread, in tokens/s (goal_two: two threads); 0 = no goal.
     */
    double goal_one;
    double goal_two;
};

extern const struct engine_case engine_cases[];
extern const size_t engine_case_count;

struct engine_run;
struct model_hyper;

/* Opens the model once for each number of threads, and fills the KV cache by computing
 * a prompt of random tokens. */
enum status engine_run_open(const char *model, const uint32_t *threads, uint32_t threads_count,
                            struct engine_run **out, struct error *error);
void engine_run_close(struct engine_run *run); /* NULL is fine */

/* Returns the tokens per second of `c` with threads[index]. Passes repeat for at least 0.25 s. */
double engine_run_measure(struct engine_run *run, uint32_t index, const struct engine_case *c);

const struct model_hyper *engine_run_hyper(const struct engine_run *run);
size_t engine_run_weight_bytes(const struct engine_run *run);
const char *engine_run_describe(const struct engine_run *run, uint32_t index);

#endif
