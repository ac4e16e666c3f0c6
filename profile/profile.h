/* profile: the measured times of a model on the devices and links of a cluster, as a struct and as
 * a JSON file (docs/profile.md), and estimates for sizes that were not measured. `cleave profile`
 * writes profiles; other commands and machines with stages read them. The caller owns a profile.
 * The functions keep no state, and any thread may call them. They measure nothing (tools/profile/
 * does), and do not decide how layers are split. Times are in microseconds. */
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
#define PROFILE_SIZES_MAX    16  /* Measured sizes of writes of a link. */
#define PROFILE_CHECKS_MAX   16  /* Checks of a device. */
#define PROFILE_TEXT_BYTES   128 /* Bytes of a description, with its NUL. */

/* Measured times by rows (tokens of a prompt, or sequences of a decode step) and by context (cached
 * tokens of the prompt, or of each sequence). `rows` and `contexts` ascend strictly. `us` does not
 * decrease with rows or with context. */
struct profile_grid {
    uint32_t row_count;     /* 1 to PROFILE_ROWS_MAX. */
    uint32_t context_count; /* 1 to PROFILE_CONTEXTS_MAX. */
    double rows[PROFILE_ROWS_MAX];
    double contexts[PROFILE_CONTEXTS_MAX];
    double us[PROFILE_ROWS_MAX][PROFILE_CONTEXTS_MAX];
    /* How much repeated measurements of a point differ: interquartile range divided by median. The
     * value is the median over all points. 0 = not known. */
    double spread;
};

/* Measured times by rows alone. `rows` ascend strictly. `us` does not decrease. */
struct profile_curve {
    uint32_t row_count; /* 1 to PROFILE_ROWS_MAX. */
    double rows[PROFILE_ROWS_MAX];
    double us[PROFILE_ROWS_MAX];
};

/* Times of one layer. */
struct profile_layer {
    struct profile_grid prompt; /* Rows are tokens of one prompt. */
    struct profile_grid token;  /* Rows are sequences of a decode step. */
};

/* A measured batch of all layers, to check that the profile's times predict the batch's time. */
struct profile_check {
    bool prompt; /* true = `rows` are tokens of a prompt; false = sequences of a decode step. */
    double rows;
    double context;      /* Cached tokens of the prompt, or of each sequence. */
    uint32_t decodes;    /* Decodes in the batch of a prompt; 0 if `prompt` is false. */
    double measured_us;  /* Measured time of the batch. */
    double predicted_us; /* Time that the profile predicts for the batch. */
};

/* Cached tokens of each decode that profile_check.decodes counts. */
#define PROFILE_CHECK_DECODE_CONTEXT 128

/* The routed experts of a model's layers. All zeros = the model has none. */
struct profile_experts {
    uint32_t count;                /* Experts of a layer. */
    uint32_t used;                 /* Experts that a row chooses. */
    uint64_t bytes;                /* Bytes of the weights of one expert. */
    uint32_t row_count;            /* Entries of `rows` and of `chosen`; 0 = not measured. */
    double rows[PROFILE_ROWS_MAX]; /* Rows of a decode step; they ascend strictly. */
    /* chosen[i]: experts of a layer that rows[i] rows chose together, on average over the layers.
     * `chosen` does not decrease. */
    double chosen[PROFILE_ROWS_MAX];
};

/* One device with one number of threads, or several devices of a host that compute layers together
 * as ranks. */
struct profile_device {
    char name[LIMIT_NAME_BYTES];          /* Unique in the profile, such as "cpu-2". */
    char kind[32];                        /* Device kind of the config, such as "cpu". */
    char host[LIMIT_ADDRESS_BYTES];       /* Name of the device's host. */
    char description[PROFILE_TEXT_BYTES]; /* Text for a person, such as the CPU's name. */
    /* Threads of all ranks together, as in the config; 0 = the number cannot be chosen. */
    uint32_t threads;
    uint32_t ranks; /* Processes that compute each layer together; 1 = one process. */
    /* Other devices of this kind that computed on the host during the measurement. */
    uint32_t busy_devices;
    uint64_t memory_bytes; /* Memory of the device, or of the host if the device has none. */
    /* 1 = all layers of the model have equal times; else the model's number of layers. */
    uint32_t layer_count;
    struct profile_layer *layers; /* [layer_count] */
    /* The model's last layer for a prompt, of which only the sampled row is computed completely. */
    struct profile_grid last_layer_prompt;
    struct profile_curve embedding;  /* Reading the embedding matrix, by tokens. */
    struct profile_curve vocabulary; /* Vocabulary matrix and sampling, by sampled rows. */
    double batch_us;                 /* Time of a batch before the device begins to compute. */
    /* Mean power in watts of the GPU, or of all CPU packages of the host, during batches with
     * prompts, and during decode steps; 0 = unknown. */
    double prompt_w, token_w;
    /* Share (0 to 1) of the measurements during which other processes used the cores. */
    double disturbed;
    uint32_t check_count;
    struct profile_check checks[PROFILE_CHECKS_MAX];
};

/* Times of writes of KV and activations between two hosts, or within one host (from == to). */
struct profile_link {
    char from[LIMIT_ADDRESS_BYTES];
    char to[LIMIT_ADDRESS_BYTES];
    char transport[32];            /* Such as "shm" or "tcp". */
    char path[PROFILE_TEXT_BYTES]; /* Text for a person, such as "ucx put over posix". */
    double bandwidth_bytes_per_s;  /* Bandwidth of many large writes. */
    double latency_us;   /* Time of a small write, until the writer knows of its arrival. */
    uint32_t size_count; /* Number of measurements in sizes_bytes and sizes_us. */
    double sizes_bytes[PROFILE_SIZES_MAX]; /* Sizes of writes, in ascending order. */
    /* sizes_us[i]: time of a write of sizes_bytes[i], until the writer knows of its arrival. */
    double sizes_us[PROFILE_SIZES_MAX];
};

/* A whole profile. */
struct profile {
    struct {
        char name[64];          /* Name of the model. */
        uint64_t metadata_hash; /* model_file_metadata_hash; 0 = unknown. */
        uint32_t layer_count;
        uint32_t hidden;                           /* Size of the hidden state of a token. */
        uint32_t vocab;                            /* Tokens of the vocabulary. */
        uint64_t layer_weight_bytes[LIMIT_LAYERS]; /* Bytes of the weights of each layer. */
        uint64_t embedding_bytes;                  /* Bytes of the embedding matrix. */
        uint64_t vocabulary_bytes;   /* Bytes of the vocabulary matrix and the final norm. */
        double vocabulary_layers;    /* Weights of the vocabulary matrix / weights of a layer. */
        bool tied;                   /* The embedding matrix is also the vocabulary matrix. */
        uint64_t kv_bytes_per_token; /* KV of one token in one layer. */
        bool kv_copied; /* Each rank of a stage has the KV of all heads (latent attention). */
        struct layer_groups groups; /* The model's layer groups. */
        struct profile_experts experts;
        uint64_t boundary_bytes_per_token; /* Activations that one stage sends to the next. */
    } model;
    uint32_t device_count;
    struct profile_device devices[PROFILE_DEVICES_MAX];
    uint32_t link_count;
    struct profile_link links[PROFILE_LINKS_MAX];
};

/* Reads and checks a profile. The caller frees *out with profile_close. ST_IO: the file
 * cannot be read. ST_INVALID: the file is no JSON or has a wrong value. ST_NO_MEMORY: memory runs
 * out. Errors name the file. */
enum status profile_load(const char *path, struct profile **out, struct error *error);
/* Does what profile_load does, for a profile in memory. name: name of the file in errors. */
enum status profile_parse(const char *text, size_t bytes, const char *name, struct profile **out,
                          struct error *error);
/* Frees the profile and the layers of its devices. NULL is fine. */
void profile_close(struct profile *p);

/* Writes the profile as JSON that profile_parse reads. Numbers are rounded. Returns ST_IO on
 * failure. */
enum status profile_write(const struct profile *p, FILE *file, struct error *error);

/* Returns the device with this kind, number of threads and ranks on this host (host "" = any host);
 * of several devices, the device with the lowest busy_devices. NULL = none. */
const struct profile_device *profile_device_find_on(const struct profile *p, const char *kind,
                                                    uint32_t threads, uint32_t ranks,
                                                    const char *host);
/* Returns the device for a config with `threads` threads; 0 = the config names no number. The first
 * of these that exists: the result of profile_device_find_on; a device whose number of threads
 * cannot be chosen; if `threads` is 0, the device with the most threads. NULL = none. */
const struct profile_device *profile_device_find_default(const struct profile *p, const char *kind,
                                                         uint32_t threads, uint32_t ranks,
                                                         const char *host);
/* Returns the measurement of `ranks` ranks, each with the threads of `device`, of the kind and on
 * the host of `device`. NULL = not measured. Requires that `device` has one rank. */
const struct profile_device *profile_device_find_ranks(const struct profile *p,
                                                       const struct profile_device *device,
                                                       uint32_t ranks);
/* Returns the measurement with the kind, host, threads and ranks of `device` that has the lowest
 * busy_devices above 0. NULL = none. */
const struct profile_device *profile_device_find_busy(const struct profile *p,
                                                      const struct profile_device *device);
/* Returns the link between two hosts, in either direction, with the highest bandwidth; NULL = none.
 * transport NULL = any transport. */
const struct profile_link *profile_link_find(const struct profile *p, const char *from,
                                             const char *to, const char *transport);

/* Returns the time for these rows and this context: interpolated between the measured points, and
 * extrapolated beyond them. Fewer rows than those of the first point take the time of the first
 * point. */
double profile_grid_us(const struct profile_grid *grid, double rows, double context);
/* Does what profile_grid_us does, for a curve. */
double profile_curve_us(const struct profile_curve *curve, double rows);

/* Returns the time of the layers [first, last) for a batch of `tokens` tokens of one prompt after
 * `context` cached tokens, with one sampled row. Embedding matrix and vocabulary matrix are not
 * included. */
double profile_prompt_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                         uint32_t last, double tokens, double context);
/* Returns the time of the layers [first, last) for a decode step of `batch` sequences. context:
 * cached tokens of a sequence, on average. Embedding matrix and vocabulary matrix are not
 * included. */
double profile_token_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                        uint32_t last, double batch, double context);
/* Returns the `context` with which profile_prompt_us gives the time of a batch of `count` prompts.
 * Prompt i has tokens[i] tokens in the batch, after contexts[i] cached tokens. A single prompt with
 * all tokens and this context has the attention work of the batch. The result may be negative. */
double profile_batch_context(const uint32_t *tokens, const uint32_t *contexts, uint32_t count);

/* The rows of a batch. */
struct profile_work {
    uint32_t prompt_tokens;  /* Tokens of all prompts in the batch. */
    double prompt_context;   /* Result of profile_batch_context. */
    uint32_t prompts_ending; /* Prompts that end in the batch; for each, a token is sampled. */
    uint32_t decodes;        /* Rows of decodes; for each, one token is sampled. */
    double decode_context;   /* Cached tokens of a decode, on average. */
};

/* Returns the time of a stage of the layers [first, last) for a batch; 0 = the batch has no rows.
 * In a batch with prompts and decodes, a decode costs as much as one more row of a prompt, plus the
 * attention to its cached tokens. */
double profile_stage_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                        uint32_t last, const struct profile_work *work);
/* Returns the time of a stage for a batch of prompts: the sum of batch_us, profile_prompt_us, the
 * embedding matrix in the first stage, and the vocabulary matrix in the last stage if `sampled` is
 * above 0. sampled: number of prompts for which a token is sampled. */
double profile_stage_prompt_us(const struct profile *p, const struct profile_device *d,
                               uint32_t first, uint32_t last, double tokens, double context,
                               double sampled);
/* Returns the time of a stage for a decode step: the sum of batch_us, profile_token_us, the
 * embedding matrix in the first stage, and the vocabulary matrix in the last stage. */
double profile_stage_token_us(const struct profile *p, const struct profile_device *d,
                              uint32_t first, uint32_t last, double batch, double context);

/* Returns the bytes of a block divided by its tokens: kv_bytes_per_token times the number of layer
 * rows in the KV memory (layer_groups_layer_rows). */
uint64_t profile_kv_block_token_bytes(const struct profile *p);
/* Returns the number of the model's layers that have a window. */
uint32_t profile_windowed_layers(const struct profile *p);

/* Returns the bytes that a stage with all layers holds once, although embedding_bytes and
 * vocabulary_bytes both count them: the matrix of tied weights. 0 = the weights are not tied. */
uint64_t profile_tied_bytes(const struct profile *p);
/* Returns the bytes of the weights of a stage of the layers [first, last). Tied weights count once
 * in a stage that has all layers. */
uint64_t profile_stage_weight_bytes(const struct profile *p, uint32_t first, uint32_t last);

/* Returns the number of experts of a layer that `rows` rows choose together, estimated from the
 * measured numbers; without measurements, profile_experts_expected. Requires a model with
 * experts. */
double profile_experts_chosen(const struct profile *p, double rows);
/* Returns the number of experts of a layer that `rows` rows choose together if each row chooses its
 * experts at random. Requires a model with experts. */
double profile_experts_expected(const struct profile *p, double rows);
/* Returns the bytes of a layer's weights that `rows` rows read, with only the chosen experts. */
double profile_layer_read_bytes(const struct profile *p, uint32_t layer, double rows);

/* Returns the time of one write of `bytes` bytes: latency_us plus the bytes divided by the
 * bandwidth. */
double profile_link_us(const struct profile_link *link, double bytes);

#endif
