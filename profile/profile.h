/* profile: what `cleave profile` has measured of a model on the devices and links of a cluster: one
 * JSON file (docs/profile.md), and estimated times between the measured points. `cleave profile`
 * writes it; `cleave partition`, `plan` and `simulate`, and the processes of a machine with stages
 * (machine/executor/stage_costs.c), read it. It measures nothing (tools/profile/ does), and does
 * not decide how layers are split. A struct profile is read-only once loaded: any thread may use
 * it. Times are in microseconds. */
#ifndef PROFILE_PROFILE_H
#define PROFILE_PROFILE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PROFILE_VERSION 1
/* Most points of a grid or curve along the tokens of a prompt, or the sequences of a decode step.
 */
#define PROFILE_ROWS_MAX     32
#define PROFILE_CONTEXTS_MAX 16
#define PROFILE_DEVICES_MAX  64
#define PROFILE_LINKS_MAX    256
#define PROFILE_SIZES_MAX    16
#define PROFILE_CHECKS_MAX   16
#define PROFILE_TEXT_BYTES   128

/* A measured time by rows (tokens of a prompt, or sequences of a decode step) and by context
 * (cached tokens of each). `rows` and `contexts` ascend strictly. Along both, the time never falls.
 */
struct profile_grid {
    uint32_t row_count;     /* 1 to PROFILE_ROWS_MAX. */
    uint32_t context_count; /* 1 to PROFILE_CONTEXTS_MAX. */
    double rows[PROFILE_ROWS_MAX];
    double contexts[PROFILE_CONTEXTS_MAX];
    double us[PROFILE_ROWS_MAX][PROFILE_CONTEXTS_MAX];
    /* How much repeated measurements differ: the median, over the grid's points, of the distance of
     * a point's quartiles divided by its median. */
    double spread;
};

/* A measured time by rows alone; the rules of a grid hold. */
struct profile_curve {
    uint32_t row_count;
    double rows[PROFILE_ROWS_MAX];
    double us[PROFILE_ROWS_MAX];
};

/* Times of one layer. */
struct profile_layer {
    /* By tokens of one prompt and by its cached tokens. */
    struct profile_grid prompt;
    struct profile_grid token; /* By sequences of a decode step and by the cached tokens of each. */
};

/* A whole batch: its measured time, and the time that the profile's parts add up to. */
struct profile_check {
    bool prompt; /* `rows` are tokens of a prompt; else sequences of a decode step. */
    double rows;
    double context;
    double measured_us;
    double sum_us; /* Sum of the measured times of the batch's parts. */
};

/* One device, with one number of threads. */
struct profile_device {
    char name[LIMIT_NAME_BYTES];          /* Unique in the profile, such as "cpu-2". */
    char kind[32];                        /* Device kind of the config, such as "cpu". */
    char host[LIMIT_ADDRESS_BYTES];       /* Devices with the same text share a host. */
    char description[PROFILE_TEXT_BYTES]; /* For people. */
    uint32_t threads;                     /* 0 = the device has no choice of threads. */
    /* Number of devices of the same kind that computed on the host at the same time. */
    uint32_t beside;
    uint64_t memory_bytes;
    /* 1 = all layers of the model are alike; else the model's number of layers. */
    uint32_t layer_count;
    struct profile_layer *layers; /* layer_count entries. */
    /* The model's last layer in a prompt, where only the sampled row goes through the whole
     * layer. */
    struct profile_grid last_layer_prompt;
    struct profile_curve first; /* The embedding, by tokens. */
    struct profile_curve last;  /* Vocabulary and sampling, by sampled rows. */
    double batch_us;            /* Time that each batch takes before the device begins. */
    double disturbed; /* Share of the measurements during which other processes used the cores. */
    uint32_t check_count;
    struct profile_check checks[PROFILE_CHECKS_MAX];
};

/* Times of writes of KV and activations between two hosts; from == to: within one host. */
struct profile_link {
    char from[LIMIT_ADDRESS_BYTES];
    char to[LIMIT_ADDRESS_BYTES];
    char transport[32];            /* Such as "shm" or "tcp". */
    char path[PROFILE_TEXT_BYTES]; /* UCX's name, such as "ucx put over posix". */
    double bandwidth_bytes_per_s;  /* For many large writes. */
    double latency_us;             /* For a small write, until it is known to have arrived. */
    uint32_t size_count;
    double sizes_bytes[PROFILE_SIZES_MAX]; /* Ascending. */
    /* For one write of that size, until it is known to have arrived. */
    double sizes_us[PROFILE_SIZES_MAX];
};

/* A whole profile. */
struct profile {
    struct {
        char name[64];
        uint64_t metadata_hash; /* model_file_metadata_hash; 0 = unknown. */
        uint32_t layer_count;
        uint32_t hidden;
        uint32_t vocab;
        uint64_t layer_weight_bytes[LIMIT_LAYERS];
        uint64_t embedding_bytes;
        /* Projection and final norm; with tied weights, the embedding's bytes. */
        uint64_t vocabulary_bytes;
        /* A process with both the first and the last layer holds the tied weights once. */
        bool tied;
        uint64_t kv_bytes_per_token;       /* For one layer. */
        uint64_t boundary_bytes_per_token; /* Activations that one stage sends to the next. */
    } model;
    uint32_t device_count;
    struct profile_device devices[PROFILE_DEVICES_MAX];
    uint32_t link_count;
    struct profile_link links[PROFILE_LINKS_MAX];
};

/* Read and check a whole profile, from a file or from text whose name in errors is `name`. The
 * caller closes *out. Errors name file, key, value and what was wanted. */
enum status profile_load(const char *path, struct profile **out, struct error *error);
enum status profile_parse(const char *text, size_t bytes, const char *name, struct profile **out,
                          struct error *error);
/* Frees the profile and the layers of its devices. NULL is fine. */
void profile_close(struct profile *p);

/* Writes JSON that profile_parse reads back unchanged. */
enum status profile_write(const struct profile *p, FILE *file, struct error *error);

/* Finds a device by kind and threads, which are those of a machine in the config. If there are
 * several, returns the one with the lowest `beside`. Returns NULL if there is none. */
const struct profile_device *profile_device_find(const struct profile *p, const char *kind,
                                                 uint32_t threads);
/* Returns the same device, measured while other devices computed on the host (the lowest `beside`
 * of at least 1), or NULL. */
const struct profile_device *profile_device_beside(const struct profile *p,
                                                   const struct profile_device *device);
/* Finds a link, in either direction. transport NULL = the fastest link. Returns NULL if there is
 * none. */
const struct profile_link *profile_link_find(const struct profile *p, const char *from,
                                             const char *to, const char *transport);

/* Time between the measured points, interpolated bilinearly. Beyond the last points, the last
 * slopes continue. Fewer rows than the first point take as long as the first point. Less context
 * than the first point takes less time by the first slope, down to 0. The time never falls when the
 * rows grow, nor when the context grows from its first point on. */
double profile_grid_us(const struct profile_grid *grid, double rows, double context);
double profile_curve_us(const struct profile_curve *curve, double rows);

/* Time of the layers [first, last) of the model, without embedding and vocabulary.
 * - Prompt: a batch of `tokens` of one prompt whose cache already holds `context` tokens. The last
 *   layer counts as in a prompt of which one row is sampled. A batch of several prompts, of n_i
 *   tokens with c_i cached ones, counts as one prompt of T = sum of n_i tokens with context
 *   profile_batch_context, which gives the same number of multiplications. That context may be
 *   negative, but not below -T / 2.
 * - Token: a decode step of `batch` sequences with an average of `context` cached tokens. (The time
 *   of attention depends on their sum.) */
double profile_prompt_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                         uint32_t last, double tokens, double context);
double profile_token_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                        uint32_t last, double batch, double context);
double profile_batch_context(const uint32_t *tokens, const uint32_t *contexts, uint32_t count);

/* Time of everything that a stage of the layers [first, last) does in a batch: its layers (see
 * above), batch_us, the embedding with layer 0, and the vocabulary with the last layer (for
 * `sampled` prompts; for every sequence of a decode step). */
double profile_stage_prompt_us(const struct profile *p, const struct profile_device *d,
                               uint32_t first, uint32_t last, double tokens, double context,
                               double sampled);
double profile_stage_token_us(const struct profile *p, const struct profile_device *d,
                              uint32_t first, uint32_t last, double batch, double context);

/* Bytes of the weights of a stage of layers [first, last). Tied weights count once. */
uint64_t profile_stage_weight_bytes(const struct profile *p, uint32_t first, uint32_t last);

/* Returns the time of one write: latency_us plus the time of the bytes at the link's bandwidth. */
double profile_link_us(const struct profile_link *link, double bytes);

#endif
