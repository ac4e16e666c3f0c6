/* config_table: the table of keys and the functions that the files of config/ share. Each value is
 * checked as JSON (text of the command line is converted to JSON first), so there is one way to
 * check it. No other folder includes this header (others use config.h). No state and no locks: a
 * function may run on any thread, if no other thread uses the same struct config. It opens no files
 * and never logs. */
#ifndef CONFIG_TABLE_H
#define CONFIG_TABLE_H

#include "config/config.h"

#include <jansson.h>

/* Size of a key's path, such as "machines/NAME/kv_memory", with its NUL. */
#define CONFIG_KEY_BYTES 192

enum config_type {
    CONFIG_STRING,  /* Text of `minimum` to `maximum` bytes. */
    CONFIG_ADDRESS, /* HOST:PORT with a port of at least `minimum`. */
    CONFIG_CHOICE,  /* One of `choices`. */
    CONFIG_WHOLE,   /* uint32_t from `minimum` to `maximum`, a multiple of `step`. */
    CONFIG_BYTES,   /* uint64_t: 1048576 or "1MiB". */
    CONFIG_BOOL,
    CONFIG_DEVICE, /* "cpu", or a kind with options after a colon. */
    CONFIG_STAGES, /* A number of local stages, or a list; see stages.c. */
    CONFIG_POOL,   /* A number of local machines, or a list of names; see machines.c. */
};

/* One line of the table: a key and everything that is known of it. */
struct config_key {
    const char *path; /* Such as "kv/dtype", or "machines/NAME/threads" for every machine. */
    enum config_type type;
    /* Offset in struct config or struct config_machine. For CONFIG_POOL: an enum pool. */
    size_t offset;
    uint64_t minimum;
    uint64_t maximum;
    uint32_t step;       /* 0 = any value. */
    const char *choices; /* Separated by spaces: "f16 f32". */
    /* Default as the command line would give it; NULL = see default_words. */
    const char *default_text;
    const char *default_words; /* Describes the default if default_text is NULL. */
    const char *help;
    enum config_reload reload; /* 0 = CONFIG_RELOAD_NEVER. */
    /* Path that the key had in an earlier release, still accepted with a warning; NULL = none. */
    const char *old_path;
};

/* The table, in the order of docs/configuration.md. */
extern const struct config_key config_keys[];
extern const size_t config_key_count;

/* What is wrong with which key. The caller puts file and line, or an option, before it. */
struct config_fault {
    char path[CONFIG_KEY_BYTES];
    char text[320]; /* Follows the path: ` = "16k": want …`. */
};

/* Fill in a fault. Its text is the formatted one; in config_fault_value, ` = VALUE: ` (the value as
 * JSON) stands before that. Both return false, so that a check can `return config_fault_set(…)`. */
bool config_fault_set(struct config_fault *fault, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool config_fault_value(struct config_fault *fault, const char *path, const json_t *value,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Writes the whole message: "cleave.json:12: /kv/dtype = …". line 0 = no line. Returns
 * ST_INVALID. */
enum status config_fault_error(const struct config_fault *fault, const char *place, unsigned line,
                               struct error *error);

/* Turns an error into one line, because a key or text that it quotes may contain line feeds.
 * Returns `status`. */
enum status config_error_line(struct error *error, enum status status);

/* --- table.c --- */
/* Returns the key of a path (a machine's name matches NAME), or NULL. */
const struct config_key *config_key_find(const char *path);
/* True if the key is below `machines/NAME`. */
bool config_key_of_machine(const struct config_key *key);
void config_section_of(const char *path, char out[CONFIG_KEY_BYTES]); /* "kv" for "kv/dtype". */
bool config_section_known(const char *path); /* True if a key lies below the path. */
/* Finds the key or section that a misspelled path may mean. Returns false if there is none. */
bool config_key_nearest(const char *path, char out[CONFIG_KEY_BYTES]);

/* --- value.c --- */
/* Checks `value` and stores it in the key's field of *base (a struct config or struct
 * config_machine). Returns false with *fault set on an error. */
bool config_value_set(const struct config_key *key, void *base, const char *path,
                      const json_t *value, struct config_fault *fault);
/* Returns the field as JSON (a new reference), or NULL if it is not set and need not be written. */
json_t *config_value_get(const struct config_key *key, const void *base);
/* Converts text of the command line to JSON (a new reference). Returns NULL if there is no memory
 * or the text is not UTF-8. */
json_t *config_value_from_text(const struct config_key *key, const char *text);
/* Describes the values that a key accepts: "a whole number from 8 to 256". */
void config_value_want(const struct config_key *key, char *out, size_t bytes);

/* --- machines.c --- */
/* Replaces the machines of `pool` by those in `value`. Machines that keep their names keep their
 * settings. */
bool config_pool_set(struct config *config, enum pool pool, const json_t *value,
                     struct config_fault *fault);
/* Sets a key of a machine. Setting its address also makes it not local. */
bool config_machine_set(struct config_machine *machine, const struct config_key *key,
                        const char *path, const json_t *value, struct config_fault *fault);
/* Checks the machines together, and each one's stages: addresses are present and unique; and both
 * phases have a machine, unless machines register in etcd. */
bool config_machines_check(const struct config *config, struct config_fault *fault);

/* --- stages.c --- */
/* Checks the value of the key `stages` and stores it in the machine as text. */
bool config_stages_set(struct config_machine *machine, const char *path, const json_t *value,
                       struct config_fault *fault);
/* Checks a machine's keys together, after all have been read. */
bool config_stages_check(const struct config_machine *machine, struct config_fault *fault);
/* True if no stage is on another host. */
bool config_stages_loopback(const struct config_machine *machine);
/* Returns the stages as a JSON list (a new reference); NULL = no stages. */
json_t *config_stages_json(const struct config_machine *machine);

/* --- locate.c --- */
/* Returns the line (from 1) of the key `path` in valid JSON text, or of the deepest part of the
 * path that exists. */
unsigned config_locate(const char *text, size_t bytes, const char *path);

#endif
