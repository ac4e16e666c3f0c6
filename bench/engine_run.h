/* engine_run: measures the forward pass (model/ and compute/) without machines and transport. Some
 * cases also sample tokens, on the calling thread only. A case is a prompt of a given length, or a
 * number of streams that decode at a given depth. The part opens one engine for each number of
 * threads; all engines use one KV cache. bench-engine (engine.c) calls the functions on its main
 * thread, which computes together with the engine's threads. engine_bound.h and engine_results.h,
 * not this part, interpret the figures. */
#ifndef BENCH_ENGINE_RUN_H
#define BENCH_ENGINE_RUN_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

/* Decode steps of one run of a case. In step i of a run, each stream has depth_tokens + i cached
 * tokens. */
#define ENGINE_DECODE_STEPS 32

/* How a case that decodes chooses its next tokens. */
enum engine_sampling {
    ENGINE_UNSAMPLED, /* No sampling: only logits are computed. */
    ENGINE_SAMPLED,   /* Temperature and top_p. */
    ENGINE_PENALISED, /* Temperature, top_p, and three penalties over the cached tokens. */
};

struct engine_case {
    const char *name;       /* Name in tables and in --only, such as "1 stream, depth 1024". */
    uint32_t prompt_tokens; /* Tokens of the prompt; 0 = the case decodes. */
    uint32_t streams;       /* Streams that decode together; 0 = the case is a prompt. */
    uint32_t depth_tokens;  /* Cached tokens of each stream before the first decode step. */
    enum engine_sampling sampling;
    /* Goals in tokens/s for the default model; 0 = no goal. */
    double goal_one_thread;  /* With one thread. */
    double goal_two_threads; /* With two threads. */
};

/* All cases, in the order in which they are measured and printed. */
extern const struct engine_case engine_cases[];
extern const size_t engine_case_count;

struct engine_run;
struct model_hyper;

/* Loads the model at the path `model`. Opens an engine for each number of threads in `threads`
 * [threads_count], which has 1 to 8 elements. Fills the KV cache with K and V of a prompt of random
 * tokens. Returns ST_INVALID for another threads_count, ST_NO_MEMORY, or an error of the model file
 * or the CPU backend. */
enum status engine_run_open(const char *model, const uint32_t *threads, uint32_t threads_count,
                            struct engine_run **out, struct error *error);
void engine_run_close(struct engine_run *run); /* NULL is fine */

/* Repeats the case `c` for at least 0.25 s on the engine with threads[index] threads. Returns the
 * tokens per second. */
double engine_run_measure(struct engine_run *run, uint32_t index, const struct engine_case *c);

/* Return the model's shape, the bytes of its weights in memory, and the CPU backend's description
 * of engine `index`. The pointers are valid until the run is closed. */
const struct model_hyper *engine_run_hyper(const struct engine_run *run);
size_t engine_run_weight_bytes(const struct engine_run *run);
const char *engine_run_describe(const struct engine_run *run, uint32_t index);

#endif
