/* profile: the measured times of a model on the devices and links of a cluster, as a struct and as
 * a JSON file (docs/profile.md), and estimates for sizes that were not measured. `cleave profile`
 * writes profiles; the commands that plan, partition or simulate and the processes of a machine
 * with stages read them. This part measures nothing (tools/profile/ does), and does not decide how
 * layers are split. A loaded profile does not change, so any thread may read it. Times are in
 * microseconds. */
#ifndef PROFILE_PROFILE_H
#define PROFILE_PROFILE_H

#include "common/layer_groups.h"
#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PROFILE_VERSION      1   /* Version of the file format. */
#define PROFILE_ROWS_MAX     32  /* Rows of a grid or curve. */
#define PROFILE_CONTEXTS_MAX 16  /* Contexts of a grid. */
#define PROFILE_DEVICES_MAX  64  /* Devices of a profile. */
#define PROFILE_LINKS_MAX    256 /* Links of a profile. */
#define PROFILE_SIZES_MAX    16  /* Sizes of writes of a link. */
#define PROFILE_CHECKS_MAX   16  /* Checks of a device. */
#define PROFILE_TEXT_BYTES   128 /* A description, with its NUL. */

/* Measured times by rows (tokens of a prompt, or sequences of a decode step) and by context (cached
 * tokens of the prompt, or of each sequence). `rows` and `contexts` ascend strictly. `us` does not
 * decrease along either. */
struct profile_grid {
    uint32_t row_count;     /* 1 to PROFILE_ROWS_MAX. */
    uint32_t context_count; /* 1 to PROFILE_CONTEXTS_MAX. */
    double rows[PROFILE_ROWS_MAX];
    double contexts[PROFILE_CONTEXTS_MAX];
    double us[PROFILE_ROWS_MAX][PROFILE_CONTEXTS_MAX];
    /* How much repeated measurements differ: the median, over all points, of a point's
     * interquartile range divided by its median. */
    double spread;
};

/* Measured times by rows alone. `rows` ascend strictly; `us` does not decrease. */
struct profile_curve {
    uint32_t row_count;
    double rows[PROFILE_ROWS_MAX];
    double us[PROFILE_ROWS_MAX];
};

/* Times of one layer. */
struct profile_layer {
    struct profile_grid prompt; /* Rows are tokens of one prompt. */
    struct profile_grid token;  /* Rows are sequences of a decode step. */
};

/* A whole batch, to check that a sum of the profile's times predicts the time of a batch. */
struct profile_check {
    bool prompt; /* `rows` are tokens of a prompt; else sequences of a decode step. */
    double rows;
    double context;
    double measured_us;
    double sum_us; /* Sum of the measured times of the batch's parts. */
};

/* The routed experts of a model's layers. All zeros = the model has none. */
struct profile_experts {
    uint32_t count; /* Experts of a layer. */
    uint32_t used;  /* Experts that a row chooses. */
    uint64_t bytes; /* Weights of one expert. */
    /* Experts of a layer that the rows of a decode step chose together, on average over the layers.
     * `rows` ascend strictly; `chosen` does not decrease. */
    uint32_t row_count; /* 0 = not measured. */
    double rows[PROFILE_ROWS_MAX];
    double chosen[PROFILE_ROWS_MAX];
};

/* One device with one number of threads, or several devices of a host that compute each layer
 * together (ranks, tensor parallelism). */
struct profile_device {
    char name[LIMIT_NAME_BYTES];          /* Unique in the profile, such as "cpu-2". */
    char kind[32];                        /* Device kind of the config, such as "cpu". */
    char host[LIMIT_ADDRESS_BYTES];       /* Devices with the same text are on the same host. */
    char description[PROFILE_TEXT_BYTES]; /* Text for a person, such as the CPU's name. */
    /* Threads of all ranks together, as in the config; 0 = the number cannot be chosen. */
    uint32_t threads;
    uint32_t ranks; /* Processes that compute each layer together; 1 = one computes whole layers. */
    /* Number of other devices of the same kind that computed on the host meanwhile. */
    uint32_t busy_devices;
    uint64_t memory_bytes; /* Memory of the device, or of the host if the device has none. */
    /* 1 = all layers of the model have equal times; else the model's number of layers. */
    uint32_t layer_count;
    struct profile_layer *layers; /* layer_count entries. */
    /* The model's last layer in a prompt. There, only the sampled row is computed completely. */
    struct profile_grid last_layer_prompt;
    struct profile_curve embedding;  /* The embedding, by tokens. */
    struct profile_curve vocabulary; /* Vocabulary and sampling, by sampled rows. */
    double batch_us;                 /* Time of each batch before the device begins to compute. */
    double disturbed; /* Share of the measurements during which other processes used the cores. */
    uint32_t check_count;
    struct profile_check checks[PROFILE_CHECKS_MAX];
};

/* Times of writes of KV and activations between two hosts, or within one host (from == to). */
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
        uint32_t hidden; /* Size of the hidden state of a token. */
        uint32_t vocab;  /* Tokens of the vocabulary. */
        uint64_t layer_weight_bytes[LIMIT_LAYERS];
        uint64_t embedding_bytes;
        uint64_t vocabulary_bytes;   /* Vocabulary matrix and final norm. */
        bool tied;                   /* The embedding is also the vocabulary matrix. */
        uint64_t kv_bytes_per_token; /* For one layer. */
        bool kv_copied; /* Each rank of a machine has the KV of all heads (latent attention). */
        struct layer_groups groups; /* Which layers have a window. */
        struct profile_experts experts;
        uint64_t boundary_bytes_per_token; /* Activations that one stage sends to the next. */
    } model;
    uint32_t device_count;
    struct profile_device devices[PROFILE_DEVICES_MAX];
    uint32_t link_count;
    struct profile_link links[PROFILE_LINKS_MAX];
};

/* Read and check a profile, from a file or from text that errors call `name`. The caller frees *out
 * with profile_close. Return ST_INVALID if the file cannot be read, is no JSON or has a wrong value
 * (the error names the file, and for a wrong value the key and the value), or ST_NO_MEMORY. */
enum status profile_load(const char *path, struct profile **out, struct error *error);
enum status profile_parse(const char *text, size_t bytes, const char *name, struct profile **out,
                          struct error *error);
/* Frees the profile and the layers of its devices. NULL is fine. */
void profile_close(struct profile *p);

/* Writes the profile as JSON that profile_parse reads. Numbers are rounded to nine digits. Returns
 * ST_IO on failure. */
enum status profile_write(const struct profile *p, FILE *file, struct error *error);

/* Returns the device of one rank with this kind and number of threads, and the lowest busy_devices
 * if there are several; NULL = none. */
const struct profile_device *profile_device_find(const struct profile *p, const char *kind,
                                                 uint32_t threads);
/* As profile_device_find, of the devices with `ranks` ranks of one host; host empty = of any
 * host. */
const struct profile_device *profile_device_find_on(const struct profile *p, const char *kind,
                                                    uint32_t threads, uint32_t ranks,
                                                    const char *host);
/* Returns the device that is `ranks` such devices together: of the same kind, host and threads of
 * each rank. NULL = not measured. Requires a device of one rank. */
const struct profile_device *profile_device_find_ranks(const struct profile *p,
                                                       const struct profile_device *device,
                                                       uint32_t ranks);
/* Returns the measurement of this device beside other busy devices, with the lowest busy_devices ≥
 * 1; NULL = none. */
const struct profile_device *profile_device_find_busy(const struct profile *p,
                                                      const struct profile_device *device);
/* Returns the link between two hosts, in either direction, with the highest bandwidth; NULL = none.
 * transport NULL = any transport. */
const struct profile_link *profile_link_find(const struct profile *p, const char *from,
                                             const char *to, const char *transport);

/* Return a time in microseconds: interpolated between the measured points, and extrapolated
 * linearly beyond the last point of rows or context. Fewer rows than the first point take the time
 * of the first point. A context below the first point is extrapolated, down to a time of 0. */
double profile_grid_us(const struct profile_grid *grid, double rows, double context);
double profile_curve_us(const struct profile_curve *curve, double rows);

/* Returns the time of the layers [first, last) of the model, without embedding and vocabulary, for
 * a batch of `tokens` tokens of one prompt after `context` cached tokens. One row is sampled. */
double profile_prompt_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                         uint32_t last, double tokens, double context);
/* Returns the time of the layers [first, last) for a decode step of `batch` sequences, with
 * `context` cached tokens of each on average. With experts, the time between two measured batches
 * grows like the number of chosen experts. */
double profile_token_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                        uint32_t last, double batch, double context);
/* Returns a context for profile_prompt_us, with which one prompt stands for a batch of several
 * prompts: it has as many tokens and as much attention work as the batch. The result may be
 * negative. Prompt i has tokens[i] tokens in the batch, after contexts[i] cached ones. */
double profile_batch_context(const uint32_t *tokens, const uint32_t *contexts, uint32_t count);

/* Return the time of a stage of the layers [first, last) for a batch: batch_us and its layers, the
 * embedding if layer 0 is among them, and the vocabulary if the last layer is (for `sampled`
 * prompts, or for every sequence of the decode step). */
double profile_stage_prompt_us(const struct profile *p, const struct profile_device *d,
                               uint32_t first, uint32_t last, double tokens, double context,
                               double sampled);
double profile_stage_token_us(const struct profile *p, const struct profile_device *d,
                              uint32_t first, uint32_t last, double batch, double context);

/* Returns the bytes of KV memory of one token in one block: kv_bytes_per_token for each row of the
 * model's layers (layer_groups_rows). */
uint64_t profile_kv_block_token_bytes(const struct profile *p);
/* Returns the number of the model's layers that have a window. */
uint32_t profile_windowed_layers(const struct profile *p);

/* Returns the bytes of the weights of a stage of the layers [first, last). If one stage has both
 * the first and the last layer, tied weights count once. */
uint64_t profile_stage_weight_bytes(const struct profile *p, uint32_t first, uint32_t last);

/* Return the number of experts of a layer that `rows` rows of a batch choose together: as it was
 * measured, or expected if each row chooses its experts at random (uniform routing).
 * profile_experts_chosen returns the expected number if nothing was measured. Beyond the last
 * measured rows, its result grows as the expected number does. Require a model with experts. */
double profile_experts_chosen(const struct profile *p, double rows);
double profile_experts_expected(const struct profile *p, double rows);
/* Returns the bytes of a layer's weights that a batch of `rows` rows reads: of the experts, only
 * those that are chosen. */
double profile_layer_read_bytes(const struct profile *p, uint32_t layer, double rows);

/* Returns the time of one write: latency_us plus the time of the bytes at the link's bandwidth. */
double profile_link_us(const struct profile_link *link, double bytes);

#endif
