/* engine_run: runs the engine alone (model/ and compute/), without machines, transport and
 * sampling. It runs one case at a time: a prompt of a given length, or a number of streams that
 * decode at a given depth. It opens one engine for each number of threads; all engines use one KV
 * cache. bench-engine (engine.c) calls it on one thread, which waits while the engine's threads
 * compute. It only measures: engine_bound.h and engine_results.h interpret the figures. */
#ifndef BENCH_ENGINE_RUN_H
#define BENCH_ENGINE_RUN_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

/* A case that decodes is repeated in runs of this many decode steps. In step i of a run, each
 * stream has depth + i cached tokens. */
#define ENGINE_DECODE_STEPS 32

struct engine_case {
    const char *name; /* Name in tables and in --only, such as "1 stream, depth 1024". */
    uint32_t prompt;  /* Tokens of the prompt; 0 = the case decodes. */
    uint32_t streams; /* Streams that decode together; 0 = the case is a prompt. */
    uint32_t depth;   /* Cached tokens of each stream before the first decode step. */
    /* Goals in tokens/s for the default model: goal_one with one thread, goal_two with two threads.
     * 0 = no goal. */
    double goal_one;
    double goal_two;
};

/* All cases, in the order in which they are measured and printed. */
extern const struct engine_case engine_cases[];
extern const size_t engine_case_count;

struct engine_run;
struct model_hyper;

/* Opens an engine for each of the threads_count (1 to 8) entries of `threads`, which are numbers of
 * threads, and fills the KV cache by computing a prompt of random tokens. Errors: ST_INVALID,
 * ST_NO_MEMORY, and those of the model file; the error text says what failed. */
enum status engine_run_open(const char *model, const uint32_t *threads, uint32_t threads_count,
                            struct engine_run **out, struct error *error);
void engine_run_close(struct engine_run *run); /* NULL is fine */

/* Returns the tokens per second of `c` on the engine with threads[index] threads. Repeats the case
 * for at least 0.25 s. */
double engine_run_measure(struct engine_run *run, uint32_t index, const struct engine_case *c);

/* Return the model's shape, the bytes of its weights in memory, and the CPU backend's description
 * of engine `index`. The pointers are valid until the run is closed. */
const struct model_hyper *engine_run_hyper(const struct engine_run *run);
size_t engine_run_weight_bytes(const struct engine_run *run);
const char *engine_run_describe(const struct engine_run *run, uint32_t index);

#endif
