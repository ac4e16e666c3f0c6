/* hyper_internal: what hyper.c and hyper_rope.c share. Nobody else includes it. */
#ifndef MODEL_HYPER_INTERNAL_H
#define MODEL_HYPER_INTERNAL_H

#include "model/keys.h"
#include "model/model.h"

/* What is read, and where errors go. */
struct hyper_reader {
    const struct model_file *file;
    struct error *error;
};

/* A key as the file calls it. */
struct hyper_shown {
    char text[KEY_NAME_BYTES];
};

struct hyper_shown hyper_shown(const struct hyper_reader *r, enum model_key key);

/* An optional key leaves *value at its default. */
enum status hyper_u32(const struct hyper_reader *r, enum model_key key, bool required,
                      uint32_t *value);
enum status hyper_u32_in(const struct hyper_reader *r, enum model_key key, bool required,
                         uint32_t min, uint32_t max, uint32_t *value);
enum status hyper_f32(const struct hyper_reader *r, enum model_key key, bool required,
                      float *value);
/* A finite number above 0. */
enum status hyper_above_0(const struct hyper_reader *r, enum model_key key, bool required,
                          float *value);
/* ST_UNSUPPORTED that says so of the key's text, with what is supported. */
enum status hyper_refuse_text(const struct hyper_reader *r, enum model_key key,
                              struct mapped_text value, const char *supported);

/* Rotary embedding; rope_dim and all that begins with rope_ or local_. */
enum status hyper_read_rope(const struct hyper_reader *r, struct model_hyper *h);

#endif
