/* profile: what `cleave profile` measured of a model on the devices and links of a cluster, as one
 * JSON file (docs/profile.md), and the times between the measured points. Who plans (partitioner,
 * simulator) reads it. It measures nothing and knows no stages or machines. A struct profile is
 * read-only once it is there; any thread. Times are microseconds. */
#ifndef COMMON_PROFILE_H
#define COMMON_PROFILE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PROFILE_VERSION      1
#define PROFILE_ROWS_MAX     32 /* points of a grid or curve: tokens of a prompt or a batch's size */
#define PROFILE_CONTEXTS_MAX 16
#define PROFILE_DEVICES_MAX  64
#define PROFILE_LINKS_MAX    256
#define PROFILE_SIZES_MAX    16
#define PROFILE_CHECKS_MAX   16
#define PROFILE_TEXT_BYTES   128

/* Time by rows and context. Both ascend strictly; time falls along neither. */
struct profile_grid {
    uint32_t row_count;     /* 1 … PROFILE_ROWS_MAX */
    uint32_t context_count; /* 1 … PROFILE_CONTEXTS_MAX */
    double rows[PROFILE_ROWS_MAX];
    double contexts[PROFILE_CONTEXTS_MAX];
    double us[PROFILE_ROWS_MAX][PROFILE_CONTEXTS_MAX];
    double
        spread; /* of a measurement: the median over its points of (quartiles' distance / median) */
};

/* Time by rows alone; as a grid. */
struct profile_curve {
    uint32_t row_count;
    double rows[PROFILE_ROWS_MAX];
    double us[PROFILE_ROWS_MAX];
};

struct profile_layer {
    struct profile_grid
        prompt; /* tokens of one prompt, over the tokens that its cache has already */
    struct profile_grid token; /* sequences that get a token each, over each one's cached tokens */
};

/* A whole step, measured as one and put together from the parts. */
struct profile_check {
    bool prompt; /* rows are a prompt's tokens, else sequences */
    double rows;
    double context;
    double measured_us;
    double sum_us;
};

struct profile_device {
    char name[LIMIT_NAME_BYTES];          /* unique in the profile, such as "cpu-2" */
    char kind[32];                        /* a config's device: "cpu" */
    char host[LIMIT_ADDRESS_BYTES];       /* devices with the same one share a computer */
    char description[PROFILE_TEXT_BYTES]; /* for people */
    uint32_t threads;                     /* 0: they are no choice here */
    uint32_t beside; /* so many more such devices of the host computed meanwhile */
    uint64_t memory_bytes;
    uint32_t layer_count;         /* 1: all layers of the model are alike; else the model's */
    struct profile_layer *layers; /* [layer_count] */
    struct profile_grid last_layer_prompt; /* the model's last layer in a prompt: only the row that
                                              is sampled goes all the way through it */
    struct profile_curve first;            /* embedding, by rows */
    struct profile_curve last;             /* final norm, vocabulary, sampling, by sampled rows */
    double batch_us;                       /* of each batch besides: until the device has begun */
    double disturbed; /* share of the measurements in which others had the cores */
    uint32_t check_count;
    struct profile_check checks[PROFILE_CHECKS_MAX];
};

/* Writes of KV and activations. Either end is a host of devices; the same host twice: inside it. */
struct profile_link {
    char from[LIMIT_ADDRESS_BYTES];
    char to[LIMIT_ADDRESS_BYTES];
    char transport[32];            /* "shm", "tcp", … */
    char path[PROFILE_TEXT_BYTES]; /* as UCX names it, "ucx put over posix" */
    double bandwidth_bytes_per_s;  /* of many large writes */
    double latency_us;             /* of a small one, until it is known to be there */
    uint32_t size_count;
    double sizes_bytes[PROFILE_SIZES_MAX]; /* ascending */
    double sizes_us[PROFILE_SIZES_MAX];    /* of one write of that size, until it is known */
};

struct profile {
    struct {
        char name[64];
        uint64_t metadata_hash; /* model_file_metadata_hash; 0: unknown */
        uint32_t layer_count;
        uint32_t hidden;
        uint32_t vocab;
        uint64_t layer_weight_bytes[LIMIT_LAYERS];
        uint64_t embedding_bytes;
        uint64_t vocabulary_bytes; /* projection and final norm; of tied weights the embedding's */
        bool tied;                 /* who has the first and the last layer holds them once */
        uint64_t kv_bytes_per_token; /* of one layer */
        uint64_t boundary_bytes_per_token;
    } model;
    uint32_t device_count;
    struct profile_device devices[PROFILE_DEVICES_MAX];
    uint32_t link_count;
    struct profile_link links[PROFILE_LINKS_MAX];
};

/* Reads and checks all of it. An error names file, key, value and what was wanted. */
enum status profile_load(const char *path, struct profile **out, struct error *error);
enum status profile_parse(const char *text, size_t bytes, const char *name, struct profile **out,
                          struct error *error);
void profile_close(struct profile *p); /* NULL is fine; frees the layers of its devices */

/* As JSON that profile_parse reads back to the same. */
enum status profile_write(const struct profile *p, FILE *file, struct error *error);

/* NULL: there is none. kind and threads as a machine's device and threads; if there are several,
 * the one with the fewest beside it. */
const struct profile_device *profile_device_find(const struct profile *p, const char *kind,
                                                 uint32_t threads);
/* The same device, measured while others computed beside it (the fewest, but at least one). NULL:
 * there is none. */
const struct profile_device *profile_device_beside(const struct profile *p,
                                                   const struct profile_device *device);
/* Of either direction; transport NULL: the fastest. NULL: there is none. */
const struct profile_link *profile_link_find(const struct profile *p, const char *from,
                                             const char *to, const char *transport);

/* Bilinear between the points. Beyond the last ones it goes on with the last slopes; fewer rows
 * than the first point's take as long as those; less context takes less by the first slope, down to
 * 0. It never falls when rows grow or, from the first point on, the context. */
double profile_grid_us(const struct profile_grid *grid, double rows, double context);
double profile_curve_us(const struct profile_curve *curve, double rows);

/* Layers [first, last) of the model, without what surrounds them.
 *
 * prompt: `tokens` in one batch, whose cache holds `context` tokens already; the last layer as of a
 * prompt of which one row is sampled. A batch of several prompts of n_i tokens over c_i counts as
 * one of T = sum n_i over profile_batch_context: the same number of multiplications. That may be
 * below 0, but not below -T / 2.
 * token: a decode step of `batch` sequences whose mean number of cached tokens is `context`
 * (attention's time goes by their sum). */
double profile_prompt_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                         uint32_t last, double tokens, double context);
double profile_token_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                        uint32_t last, double batch, double context);
double profile_batch_context(const uint32_t *tokens, const uint32_t *contexts, uint32_t count);

/* The same with all that a stage of these layers does in a batch: batch_us, with layer 0 the
 * embedding, with the last layer the vocabulary (of `sampled` prompts; every sequence of a step).
 */
double profile_stage_prompt_us(const struct profile *p, const struct profile_device *d,
                               uint32_t first, uint32_t last, double tokens, double context,
                               double sampled);
double profile_stage_token_us(const struct profile *p, const struct profile_device *d,
                              uint32_t first, uint32_t last, double batch, double context);

/* Weights of a stage of layers [first, last), tied ones once. */
uint64_t profile_stage_weight_bytes(const struct profile *p, uint32_t first, uint32_t last);

/* latency_us and the time of the bytes. */
double profile_link_us(const struct profile_link *link, double bytes);

#endif
