/* hyper_internal: the functions that the files hyper*.c share: each reads and checks one value of a
 * model's file, or a group of values. They do not know the names of keys (keys.h does). They run on
 * the thread that calls model_hyper_read; no state. */
#ifndef MODEL_FILE_HYPER_INTERNAL_H
#define MODEL_FILE_HYPER_INTERNAL_H

#include "model/file/family.h"
#include "model/file/hyper.h"
#include "model/file/keys.h"

#define HYPER_HEAD_DIM_MAX 512

/* The file that is read, and where errors are written. */
struct hyper_reader {
    const struct model_file *file;
    struct error *error;
};

/* The name of a key in the file. */
struct hyper_key_name {
    char text[KEY_NAME_BYTES];
};

/* Returns the name of the key in the file, for errors. */
struct hyper_key_name hyper_key_name(const struct hyper_reader *r, enum model_key key);

/* The functions read one value. A missing key is ST_INVALID if `required`; otherwise *value keeps
 * its default. hyper_u32_in accepts numbers from min to max, also as the default. */
enum status hyper_u32_in(const struct hyper_reader *r, enum model_key key, bool required,
                         uint32_t min, uint32_t max, uint32_t *value);
enum status hyper_f32(const struct hyper_reader *r, enum model_key key, bool required,
                      float *value);
/* Accepts a finite number above 0, also as the default. */
enum status hyper_f32_positive(const struct hyper_reader *r, enum model_key key, bool required,
                               float *value);
/* Returns ST_UNSUPPORTED; the error names the key, its value and what is supported. */
enum status hyper_refuse_text(const struct hyper_reader *r, enum model_key key,
                              struct mapped_text value, const char *supported);

/* The functions below read groups of values. They return ST_INVALID or ST_UNSUPPORTED, with the
 * key, as model_hyper_read does. */

/* Reads the values of the rotary embedding: rope_dim, rope_freq_base, rope_freq_scale and
 * rope_scaling. The scaling may change h->context_tokens. */
enum status hyper_read_rope(const struct hyper_reader *r, const struct family *family,
                            struct model_hyper *h);

/* Reads YaRN's mscale_all_dim; 0 = none. Requires h->latent: GGUF files of models with latent
 * attention store a tenth of the number. */
enum status hyper_read_yarn_all(const struct hyper_reader *r, const struct model_hyper *h,
                                float *all_out);

/* Reads the values of the experts. h->experts has the family's defaults. `allowed`: models of this
 * family may have experts. */
enum status hyper_read_experts(const struct hyper_reader *r, bool allowed, struct model_hyper *h);
/* Reads head_count and `latent` of a model with latent attention, and derives kv_head_count and
 * head_dim. */
enum status hyper_read_latent(const struct hyper_reader *r, struct model_hyper *h);
/* Changes rope_dim, rope_neox and attention_scale of a model with latent attention, whose other
 * values have been read; does nothing for other models. */
enum status hyper_finish_latent(const struct hyper_reader *r, struct model_hyper *h);
/* Reads window, local_freq_base and layer_bits. Requires layer_count and rope_freq_base. */
enum status hyper_read_layers(const struct hyper_reader *r, const struct family *family,
                              struct model_hyper *h);

#endif
