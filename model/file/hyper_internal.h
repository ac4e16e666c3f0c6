/* hyper_internal: functions that hyper.c, hyper_rope.c, hyper_experts.c, hyper_latent.c and
 * hyper_layers.c share. Most of them read one value of a model's file, or a group of values. They
 * run on the thread that calls model_hyper_read; no state. keys.h finds the values of keys; no
 * tensor data is read. */
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

/* The three functions read one value. If the key is missing, they return ST_INVALID if `required`;
 * otherwise *value keeps its default. The result of hyper_read_u32_range must be from min to max;
 * this holds for the default, too. */
enum status hyper_read_u32_range(const struct hyper_reader *r, enum model_key key, bool required,
                                 uint32_t min, uint32_t max, uint32_t *value);
/* Accepts any number. */
enum status hyper_f32(const struct hyper_reader *r, enum model_key key, bool required,
                      float *value);
/* Accepts a finite number above 0; the default must be one, too. */
enum status hyper_f32_positive(const struct hyper_reader *r, enum model_key key, bool required,
                               float *value);
/* Reads nothing. Returns ST_UNSUPPORTED; the error names the key, `value` and `supported`. */
enum status hyper_refuse_text(const struct hyper_reader *r, enum model_key key,
                              struct mapped_text value, const char *supported);

/* The functions below read groups of values. They return ST_INVALID or ST_UNSUPPORTED; the error
 * names the key. */

/* Reads the values of the rotary embedding: rope_dim, rope_freq_base, rope_freq_scale and
 * rope_scaling. The scaling may change h->context_tokens. With proportional scaling, rope_dim
 * becomes head_dim. Requires context_tokens, head_dim, latent, and the default of
 * rope_freq_base. */
enum status hyper_read_rope(const struct hyper_reader *r, const struct family *family,
                            struct model_hyper *h);

/* Reads YaRN's mscale_all_dim; 0 = none. Requires h->latent: GGUF files of models with latent
 * attention store a tenth of the number. */
enum status hyper_read_mscale_all(const struct hyper_reader *r, const struct model_hyper *h,
                                  float *mscale_all_dim_out);

/* Reads the values of the experts. experts_allowed = models of this family may have experts.
 * Requires layer_count, ffn, architecture, and the family's defaults in h->experts. */
enum status hyper_read_experts(const struct hyper_reader *r, bool experts_allowed,
                               struct model_hyper *h);
/* Reads head_count and `latent` of a model with latent attention, and derives kv_head_count and
 * head_dim. */
enum status hyper_read_latent(const struct hyper_reader *r, struct model_hyper *h);
/* Changes rope_dim, rope_neox and attention_scale of a model with latent attention; does nothing
 * for other models. Requires latent, rope_scaling and attention_scale. */
enum status hyper_finish_latent(const struct hyper_reader *r, struct model_hyper *h);
/* Reads window, local_freq_base and layer_bits. Requires layer_count, rope_freq_base, and the
 * family's default of local_freq_base. */
enum status hyper_read_layers(const struct hyper_reader *r, const struct family *family,
                              struct model_hyper *h);

#endif
