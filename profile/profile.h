/* profile: the measured times of a model on the devices and links of a cluster, as a struct and as
 * a JSON file (docs/profile.md), and estimates for sizes that were not measured. `cleave profile`
 * writes profiles. Commands (tools/) and machines with stages (machine/executor/) read them. Any
 * thread may read a loaded profile. This part measures nothing (tools/profile/ does), and does not
 * decide how layers are split. Times are in microseconds. */
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
 * tokens of the prompt, or of each sequence). `rows` and `contexts` ascend strictly. More rows or
 * more context never have a smaller `us`. */
struct profile_grid {
    uint32_t row_count;     /* 1 to PROFILE_ROWS_MAX. */
    uint32_t context_count; /* 1 to PROFILE_CONTEXTS_MAX. */
    double rows[PROFILE_ROWS_MAX];
    double contexts[PROFILE_CONTEXTS_MAX];
    double us[PROFILE_ROWS_MAX][PROFILE_CONTEXTS_MAX];
    /* How much repeated measurements of a point differ: interquartile range / median. The median
     * over all points. */
    double spread;
};

/* Measured times by rows alone. `rows` ascend strictly. More rows never have a smaller `us`. */
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

/* A batch that was measured as a whole, to check what is estimated from measured parts. */
struct profile_check {
    bool prompt; /* true = `rows` are tokens of a prompt; false = sequences of a decode step. */
    double rows;
    double context;     /* Cached tokens of the prompt, or of each sequence. */
    uint32_t decodes;   /* With `prompt`: decodes in the batch, too. */
    double measured_us; /* Measured time of the whole batch. */
    double sum_us;      /* Time that profile_stage_us gives for the batch. */
};

/* Cached tokens of each of the `decodes` of a check. */
#define PROFILE_CHECK_DECODE_CONTEXT 128

/* The routed experts of a model's layers. All zeros = the model has none. */
struct profile_experts {
    uint32_t count;     /* Experts of a layer. */
    uint32_t used;      /* Experts of a layer that a row chooses. */
    uint64_t bytes;     /* Bytes of the weights of one expert. */
    uint32_t row_count; /* Number of measurements in `rows` and `chosen`; 0 = not measured. */
    double rows[PROFILE_ROWS_MAX]; /* Rows of a decode step; they ascend strictly. */
    /* Number of experts of a layer that the rows chose together, the mean over the layers; does not
     * descend. */
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
    uint32_t ranks; /* Number of ranks; 1 = one process computes whole layers. */
    /* Number of other devices of this kind that computed on the host during the measurement. */
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
    double bandwidth_bytes_per_s;  /* Of many large writes. */
    double latency_us;   /* Time of a small write, until the writer knows of its arrival. */
    uint32_t size_count; /* Number of measurements in sizes_bytes and sizes_us. */
    double sizes_bytes[PROFILE_SIZES_MAX]; /* Sizes of writes, in ascending order. */
    double sizes_us[PROFILE_SIZES_MAX];    /* Time until the writer knows of the arrival. */
};

/* A whole profile. */
struct profile {
    struct {
        char name[64];          /* Name of the model. */
        uint64_t metadata_hash; /* model_file_metadata_hash; 0 = unknown. */
        uint32_t layer_count;
        uint32_t hidden;                           /* Size of the hidden state of a token. */
        uint32_t vocab;                            /* Tokens of the vocabulary. */
        uint64_t layer_weight_bytes[LIMIT_LAYERS]; /* By layer. */
        uint64_t embedding_bytes;                  /* Of the embedding matrix. */
        uint64_t vocabulary_bytes;   /* Of the vocabulary matrix and the final norm. */
        double vocabulary_layers;    /* Weights of the vocabulary matrix / those of a layer. */
        bool tied;                   /* The embedding matrix is also the vocabulary matrix. */
        uint64_t kv_bytes_per_token; /* KV of one token in one layer. */
        bool kv_copied;              /* Each rank of a stage has the whole KV (latent attention). */
        struct layer_groups groups;  /* Without `latent`. */
        struct profile_experts experts;
        uint64_t boundary_bytes_per_token; /* Activations that one stage sends to the next. */
    } model;
    uint32_t device_count;
    struct profile_device devices[PROFILE_DEVICES_MAX];
    uint32_t link_count;
    struct profile_link links[PROFILE_LINKS_MAX];
};

/* Reads and checks the profile in a file. The caller frees *out with profile_close. Returns
 * ST_INVALID if the file cannot be read, is no JSON or has a wrong value, or ST_NO_MEMORY. The
 * error names the file. */
enum status profile_load(const char *path, struct profile **out, struct error *error);
/* Reads and checks the profile in `text`, as profile_load does. Errors name `name` as the file. */
enum status profile_parse(const char *text, size_t bytes, const char *name, struct profile **out,
                          struct error *error);
/* Frees the profile and the layers of its devices. NULL is fine. */
void profile_close(struct profile *p);

/* Writes the profile as JSON that profile_parse reads. Numbers are rounded. Returns ST_IO on
 * failure. */
enum status profile_write(const struct profile *p, FILE *file, struct error *error);

/* Returns the device of one rank with this kind and number of threads, on any host; of several
 * devices, the device with the lowest busy_devices. NULL = none. */
const struct profile_device *profile_device_find(const struct profile *p, const char *kind,
                                                 uint32_t threads);
/* Returns the device as profile_device_find does, among devices with `ranks` ranks on this host;
 * host "" = any host. */
const struct profile_device *profile_device_find_on(const struct profile *p, const char *kind,
                                                    uint32_t threads, uint32_t ranks,
                                                    const char *host);
/* Returns the device for `threads` threads of a config, as profile_device_find_on does. If there is
 * none, returns the device whose number of threads cannot be chosen, or for threads 0 (the config
 * names no number) the device with the most threads. NULL = none. */
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

/* These functions return the time for this number of rows (and this context): interpolated between
 * the measured points, and extrapolated linearly beyond them, to at least 0. Fewer rows than those
 * of the first point take the time of the first point. */
double profile_grid_us(const struct profile_grid *grid, double rows, double context);
double profile_curve_us(const struct profile_curve *curve, double rows);

/* Returns the time of the layers [first, last) of the model for a batch of `tokens` tokens of one
 * prompt after `context` cached tokens, with one sampled row. Does not include the embedding matrix
 * and the vocabulary matrix. `context` may be negative (profile_batch_context). */
double profile_prompt_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                         uint32_t last, double tokens, double context);
/* Returns the time of the layers [first, last) for a decode step of `batch` sequences, which have
 * `context` cached tokens each on average. If the model has experts, the time between two measured
 * points grows like the number of experts that the rows choose. */
double profile_token_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                        uint32_t last, double batch, double context);
/* Returns the `context` with which profile_prompt_us gives the time of a batch of several prompts,
 * for the sum of their tokens. Prompt i has tokens[i] tokens in the batch, after contexts[i] cached
 * tokens. The result may be negative. */
double profile_batch_context(const uint32_t *tokens, const uint32_t *contexts, uint32_t count);

/* The rows of a batch. */
struct profile_work {
    uint32_t prompt_tokens;  /* Sum over all prompts of the batch. */
    double prompt_context;   /* Result of profile_batch_context. */
    uint32_t prompts_ending; /* Prompts that end in the batch, so that a token is sampled. */
    uint32_t decodes;        /* Decodes of the batch; each computes one token. */
    double decode_context;   /* Cached tokens of a decode, the mean over the decodes. */
};

/* Returns the time of a stage of the layers [first, last) for a batch; 0 without rows. A batch of
 * prompts alone takes profile_stage_prompt_us, a batch of decodes alone profile_stage_token_us. In
 * a batch of prompts and decodes, a decode counts as one more row of the prompts, and adds the
 * attention to its context, as in a decode step. */
double profile_stage_us(const struct profile *p, const struct profile_device *d, uint32_t first,
                        uint32_t last, const struct profile_work *work);
/* Returns the time of a stage of the layers [first, last) for a batch: the sum of batch_us, of
 * profile_prompt_us, of the embedding matrix in the first stage, and of the vocabulary matrix for
 * `sampled` prompts (0 = none) in the last stage. */
double profile_stage_prompt_us(const struct profile *p, const struct profile_device *d,
                               uint32_t first, uint32_t last, double tokens, double context,
                               double sampled);
/* Returns the time of a stage of the layers [first, last) for a decode step: the sum of batch_us,
 * of profile_token_us, of the embedding matrix in the first stage, and of the vocabulary matrix for
 * all sequences in the last stage. */
double profile_stage_token_us(const struct profile *p, const struct profile_device *d,
                              uint32_t first, uint32_t last, double batch, double context);

/* Returns the bytes of KV memory of one token in one block: kv_bytes_per_token for each layer row
 * (layer_groups_rows). */
uint64_t profile_kv_block_token_bytes(const struct profile *p);
/* Returns the number of the model's layers that have a window. */
uint32_t profile_windowed_layers(const struct profile *p);

/* Returns the bytes of the weights of a stage of the layers [first, last). If one stage has both
 * the first and the last layer, tied weights count once. */
uint64_t profile_stage_weight_bytes(const struct profile *p, uint32_t first, uint32_t last);

/* Returns the number of experts of a layer that `rows` rows of a batch choose together: from the
 * measurements, or profile_experts_expected if there are none. Requires a model with experts. */
double profile_experts_chosen(const struct profile *p, double rows);
/* Returns the expected number of experts of a layer that `rows` rows choose together, if the choice
 * is random. Requires a model with experts. */
double profile_experts_expected(const struct profile *p, double rows);
/* Returns the bytes of a layer's weights that a batch of `rows` rows reads. Of the experts, the
 * batch reads only those that its rows choose. */
double profile_layer_read_bytes(const struct profile *p, uint32_t layer, double rows);

/* Returns the time of one write of `bytes` bytes: latency_us plus the bytes divided by the
 * bandwidth. */
double profile_link_us(const struct profile_link *link, double bytes);

#endif
