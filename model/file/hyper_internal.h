/* hyper_internal: the functions with which the files hyper*.c read values of a model's files, and
 * check the values. The functions have no state, run on the thread that calls a function of
 * hyper.h, and read no tensor data. */
#ifndef MODEL_FILE_HYPER_INTERNAL_H
#define MODEL_FILE_HYPER_INTERNAL_H

#include "model/file/family.h"
#include "model/file/hyper.h"
#include "model/file/keys.h"

#define HYPER_HEAD_DIM_MAX 512 /* Most dimensions of a head, without latent attention. */

struct hyper_reader {
    const struct model_file *file; /* The model's files. */
    struct error *error;           /* Receives the errors of all functions. */
};

/* Result of hyper_key_name. */
struct hyper_key_text {
    char text[KEY_NAME_BYTES];
};

/* Returns the name of the key in the file (key_name), for the text of an error. */
struct hyper_key_text hyper_key_name(const struct hyper_reader *r, enum model_key key);

/* hyper_read_u32_range, hyper_read_f32 and hyper_read_f32_positive read the value of one key. If
 * the file does not have the key, they return ST_INVALID if `required`; otherwise *value keeps the
 * default from before the call. They return ST_INVALID if the value or the default is not
 * accepted. */

/* Accepts numbers from min to max. */
enum status hyper_read_u32_range(const struct hyper_reader *r, enum model_key key, bool required,
                                 uint32_t min, uint32_t max, uint32_t *value);
/* Accepts any number. */
enum status hyper_read_f32(const struct hyper_reader *r, enum model_key key, bool required,
                           float *value);
/* Accepts finite numbers above 0. */
enum status hyper_read_f32_positive(const struct hyper_reader *r, enum model_key key, bool required,
                                    float *value);
/* Sets the error "key KEY is "VALUE", supported SUPPORTED", and returns ST_UNSUPPORTED. */
enum status hyper_refuse_text(const struct hyper_reader *r, enum model_key key,
                              struct mapped_text value, const char *supported);

/* The functions below with a parameter h return ST_INVALID or ST_UNSUPPORTED on failure. "Requires"
 * lists the fields of *h that the caller has set before. */

/* Reads rope_dim, rope_freq_base, rope_freq_scale and rope_scaling, and may change context_tokens.
 * Requires context_tokens, head_dim, `latent`, and the default of rope_freq_base. */
enum status hyper_read_rope(const struct hyper_reader *r, const struct family *family,
                            struct model_hyper *h);

/* Reads YaRN's mscale_all_dim; 0 = the file does not have the key. Requires `latent`. */
enum status hyper_read_mscale_all(const struct hyper_reader *r, const struct model_hyper *h,
                                  float *mscale_all_dim_out);

/* Returns how many elements the largest quantisation block of the layers' tensors with this role
 * has; 1 = no such tensor is quantised in blocks, or there is none. */
uint32_t hyper_block_elements(const struct model_file *file, enum model_role role,
                              uint32_t first_layer, uint32_t layer_count);
/* Reads `experts`. experts_allowed: models of this family may have experts. Requires layer_count,
 * ffn, architecture, and the family's defaults in `experts`. */
enum status hyper_read_experts(const struct hyper_reader *r, bool experts_allowed,
                               struct model_hyper *h);
/* Reads head_count, `latent`, kv_head_count and head_dim of a model with latent attention. */
enum status hyper_read_latent(const struct hyper_reader *r, struct model_hyper *h);
/* For a model with latent attention, sets rope_neox. With YaRN and mscale_all_dim, also multiplies
 * attention_scale by the square of YaRN's factor for scores. Does nothing for other models.
 * Requires `latent`, rope_scaling and attention_scale. */
enum status hyper_finish_latent(const struct hyper_reader *r, struct model_hyper *h);
/* Reads `window`, local_freq_base and layer_bits. Requires layer_count, rope_freq_base, zeros in
 * `window` and layer_bits, and the family's default of local_freq_base. */
enum status hyper_read_layers(const struct hyper_reader *r, const struct family *family,
                              struct model_hyper *h);

#endif
