/* config_table: the table of keys and what config_*.c share. A value comes in as JSON (the command
 * line's text is turned into JSON first), so there is one way to check it. Nobody outside of
 * common/config_*.c includes this. */
#ifndef COMMON_CONFIG_TABLE_H
#define COMMON_CONFIG_TABLE_H

#include "common/config.h"

#include <jansson.h>

#define CONFIG_KEY_BYTES 192 /* a key's path, "machines/NAME/kv_memory", with its NUL */

enum config_type {
    CONFIG_STRING,  /* minimum..maximum bytes long */
    CONFIG_ADDRESS, /* HOST:PORT, the port from `minimum` on */
    CONFIG_CHOICE,  /* one of `choices` */
    CONFIG_WHOLE,   /* uint32_t from minimum to maximum, a multiple of `step` */
    CONFIG_BYTES,   /* uint64_t: 1048576 or "1MiB" */
    CONFIG_BOOL,
    CONFIG_DEVICE, /* "cpu", or a kind with options behind a colon */
    CONFIG_STAGES, /* a number of local stages, or a list; see config_stages.c */
    CONFIG_POOL,   /* a number of local machines, or a list of names; see config_machines.c */
};

struct config_key {
    const char *path; /* "kv/dtype"; "machines/NAME/threads" for each machine */
    enum config_type type;
    size_t
        offset; /* in struct config, or in struct config_machine; the enum config_pool of a pool */
    uint64_t minimum;
    uint64_t maximum;
    uint32_t step;             /* 0: any */
    const char *choices;       /* "f16 f32" */
    const char *default_text;  /* as the command line would say it; NULL: see default_words */
    const char *default_words; /* for people, where the default is not one value */
    const char *help;
    enum config_reload reload;
};

extern const struct config_key config_keys[];
extern const size_t config_key_count;

/* What is wrong, and at which key; the caller knows what to put before it (file and line, or an
 * option). */
struct config_fault {
    char path[CONFIG_KEY_BYTES];
    char text[320]; /* goes right after the path: ` = "16k": want …` */
};

/* Both return false, so that a check can `return config_fault_set(…)`. */
bool config_fault_set(struct config_fault *fault, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool config_fault_value(struct config_fault *fault, const char *path, const json_t *value,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The whole message: "cleave.json:12: /kv/dtype = …". `line` 0: no line. Returns ST_INVALID. */
enum status config_fault_error(const struct config_fault *fault, const char *place, unsigned line,
                               struct error *error);

/* An error is one line, though a key or a piece of the text that it quotes may hold a line feed. */
enum status config_error_line(struct error *error, enum status status);

/* --- config_table.c --- */
/* The key of that path (a machine's name stands for NAME), or NULL. */
const struct config_key *config_key_find(const char *path);
bool config_key_of_machine(const struct config_key *key);
void config_section_of(const char *path, char out[CONFIG_KEY_BYTES]); /* "kv/dtype": "kv" */
bool config_section_known(const char *path);                          /* some key lies below it */
/* The key or section that the path may have meant, or false. */
bool config_key_nearest(const char *path, char out[CONFIG_KEY_BYTES]);

/* --- config_value.c --- */
/* Checks `value` and stores it in the field of *base (a struct config, or a struct config_machine).
 */
bool config_value_set(const struct config_key *key, void *base, const char *path,
                      const json_t *value, struct config_fault *fault);
/* The field as JSON (a new reference); NULL: not set, so not written. */
json_t *config_value_get(const struct config_key *key, const void *base);
/* Text of the command line as JSON (a new reference; NULL: no memory, or not UTF-8). */
json_t *config_value_from_text(const struct config_key *key, const char *text);
/* "a whole number from 8 to 256". */
void config_value_want(const struct config_key *key, char *out, size_t bytes);

/* --- config_machines.c --- */
/* Makes `pool` consist of what `value` says. Machines that keep their names keep their settings. */
bool config_pool_set(struct config *config, enum config_pool pool, const json_t *value,
                     struct config_fault *fault);
/* Sets a key of a machine, or a default that machines share. */
bool config_machine_set(struct config_machine *machine, const struct config_key *key,
                        const char *path, const json_t *value, struct config_fault *fault);
bool config_machines_check(const struct config *config, struct config_fault *fault);

/* --- config_stages.c --- */
bool config_stages_set(struct config_machine *machine, const char *path, const json_t *value,
                       struct config_fault *fault);
/* Of a machine whose keys are all read: what only they say together. */
bool config_stages_check(const struct config_machine *machine, struct config_fault *fault);
bool config_stages_loopback(const struct config_machine *machine); /* none is elsewhere */
json_t *config_stages_json(const struct config_machine *machine);  /* NULL: none */

/* --- config_locate.c --- */
/* The line (from 1) of the key `path` in valid JSON text; of the deepest part of it that is there.
 */
unsigned config_locate(const char *text, size_t bytes, const char *path);

#endif
