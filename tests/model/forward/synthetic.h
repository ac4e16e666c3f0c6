/* synthetic: small GGUF models with random weights of any type, for tests of shapes and types for
 * which no file is available. Blocks of every quantised format are random bits, scaled so that
 * activations stay near 1. Tests call it on their main thread; the functions have no state, and the
 * same struct gives the same bytes. It writes no file: a test that needs one writes the image. */
#ifndef TESTS_MODEL_FORWARD_SYNTHETIC_H
#define TESTS_MODEL_FORWARD_SYNTHETIC_H

#include "compute/compute.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_file;

struct synthetic {
    const char *architecture;
    uint32_t layers, hidden, ffn, heads, kv_heads, vocab, context;
    uint32_t head_dim; /* 0 = no key attention.key_length. */
    uint32_t rope_dim; /* 0 = no key rope.dimension_count. */
    uint32_t window;   /* 0 = no key attention.sliding_window, except Gemma: the context. */
    float attention_cap, logits_cap; /* 0 = no keys. */
    /* Latent attention (architecture deepseek2). head_dim is the dimensions of a query, of which
     * rope_dim are rotated. */
    uint32_t latent_rank;   /* Rank of keys and values; 0 = no latent attention. */
    uint32_t latent_q_rank; /* Rank of the queries; 0 = the queries have full rank. */
    uint32_t latent_value;  /* Dimensions of a value. */
    bool latent_apart;      /* Keys and values are made by two tensors, as in newer GGUF files. */
    enum compute_type type; /* Type of the matrices. */
    /* Type of attn_v and ffn_down, which real files often store differently. */
    enum compute_type v_type;
    enum compute_type end_type;    /* Type of the embedding and the vocabulary. */
    enum compute_type vector_type; /* Type of norms and biases. */
    bool tied;                     /* True: the embedding is also the vocabulary. */
    bool biases;                   /* True: q, k and v have biases. */
    bool joined; /* True: one tensor has q, k and v, and ffn_up has gate and up, as in phi3. */
    bool rope_factors;             /* True: the model has rope factors. */
    const float *rope_factors_are; /* [rope_dim / 2]; NULL = random. */
    float rope_factor;             /* Linear scaling; 0 = no rope.scaling keys. */
    /* Experts in all layers except the first dense_layers; 0 = none. */
    uint32_t experts, experts_used, expert_ffn, shared_ffn, dense_layers;
    bool sigmoid;                               /* Routing as in DeepSeek-V3, with a choice bias. */
    uint32_t expert_groups, expert_groups_used; /* 0 = no such keys. */
    uint32_t draft_layers; /* Draft layers after the others; they have experts, if any has. */
    bool draft_shares; /* Draft layers have no embedding, last norm and vocabulary of their own. */
    uint64_t seed;
    /* The fields below make wrong files; NULL or 0 = no change. */
    const char *leave_out;    /* Name of a tensor to leave out. */
    const char *reshape;      /* Name of a tensor whose last dimension is one too large. */
    const char *retype;       /* Name of a tensor whose type is Q8_0. */
    const char *extra;        /* Name of an additional unknown tensor. */
    const char *key_left_out; /* A whole key to leave out. */
    const char *key_changed;  /* A whole key whose value is changed_to or changed_text. */
    uint32_t changed_to;
    float changed_float; /* Used if the key holds a float. */
    const char *changed_text;
};

/* Returns the defaults: llama, 2 layers, hidden 64, 4 heads with 2 KV heads, F32, tied. */
struct synthetic synthetic_default(void);
/* Returns the defaults with latent attention (deepseek2): heads of 40 dimensions, of which 8 are
 * rotated, rank 64, values of 32 dimensions. */
struct synthetic synthetic_latent(void);

/* Returns a GGUF image, which the caller frees. */
uint8_t *synthetic_image(const struct synthetic *s, size_t *bytes_out);

/* Opens the image from memory, as a file of the name `what`. The caller closes the file, then frees
 * the image. An image that cannot be opened ends the test. */
struct model_file *synthetic_open(const struct synthetic *s, const char *what, uint8_t **image_out);

/* Stores `count` random tokens of the vocabulary, which depend only on the seed of the model. */
void synthetic_tokens(const struct synthetic *s, uint32_t count, uint32_t *ids_out);

#endif
