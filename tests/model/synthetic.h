/* synthetic: small GGUF models with random weights of any type, for tests that need shapes and
 * types which no file at hand has. Random bits of every quantised block format, scaled so that
 * activations stay near 1. */
#ifndef TESTS_MODEL_SYNTHETIC_H
#define TESTS_MODEL_SYNTHETIC_H

#include "compute/compute.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct synthetic {
    const char *architecture;
    uint32_t layers, hidden, ffn, heads, kv_heads, vocab, context;
    uint32_t head_dim;          /* 0: no key attention.key_length */
    uint32_t rope_dim;          /* 0: no key rope.dimension_count */
    enum compute_type type;     /* of matrices */
    enum compute_type v_type;   /* of attn_v and ffn_down: files mix types there */
    enum compute_type end_type; /* of embedding and vocabulary */
    enum compute_type vector_type;
    bool tied;
    bool biases;
    bool rope_factors;
    const float *rope_factors_are; /* [rope_dim / 2]; NULL: random */
    float rope_factor;             /* 0: no rope.scaling keys; else linear scaling */
    uint64_t seed;
    /* For bad files. NULL or 0: nothing of it. */
    const char *leave_out;    /* a tensor's name */
    const char *reshape;      /* a tensor's name: its last dimension is one too large */
    const char *retype;       /* a tensor's name: its type is Q8_0 */
    const char *extra;        /* a tensor that nobody knows */
    const char *key_left_out; /* a whole key */
    const char *key_changed;  /* a whole key: its value is changed_to or changed_text */
    uint32_t changed_to;
    float changed_float; /* used where the key holds a float */
    const char *changed_text;
};

/* Defaults: llama, 2 layers, hidden 64, 4 heads over 2, F32, tied. */
struct synthetic synthetic_default(void);

/* A GGUF image (free it). */
uint8_t *synthetic_image(const struct synthetic *s, size_t *bytes_out);

#endif
