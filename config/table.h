/* config_table: the table of keys, and the functions that the files of config/ share. Other folders
 * use config.h instead. The functions keep no state and open no files. Any thread may call them, if
 * no other thread changes the struct config during the call. */
#ifndef CONFIG_TABLE_H
#define CONFIG_TABLE_H

#include "config/config.h"

#include <jansson.h>

/* Size of a key's path, such as "machines/NAME/kv_memory", with its NUL. */
#define CONFIG_KEY_BYTES 192

enum config_type {
    CONFIG_STRING,  /* Text of `minimum` to `maximum` bytes. */
    CONFIG_ADDRESS, /* HOST:PORT with a port of at least `minimum`. */
    CONFIG_CHOICE,  /* One of `choices`; each has at most `maximum` bytes. */
    CONFIG_WHOLE,   /* uint32_t from `minimum` to `maximum`, a multiple of `step`. */
    CONFIG_BYTES,   /* uint64_t from `minimum` to `maximum`: 1048576 or "1MiB". */
    CONFIG_BOOL,
    CONFIG_DEVICE, /* Text: "cpu", a GPU (common/device_name.h) or "wait:" with options. */
    CONFIG_STAGES, /* A number of local stages, or a list; see stages.c. */
    CONFIG_POOL,   /* A number of local machines, or a list of names; see machines.c. */
};

/* One row of the table. */
struct config_key {
    const char *path; /* Such as "kv/dtype", or "machines/NAME/threads" for every machine. */
    enum config_type type;
    /* Offset of the key's field in struct config, or in struct config_machine for a key of
     * machines. CONFIG_POOL, which has no field: the value of enum pool. */
    size_t offset;
    uint64_t minimum;    /* See enum config_type. */
    uint64_t maximum;    /* See enum config_type. */
    uint32_t step;       /* CONFIG_WHOLE: 0 = any value in the range. */
    bool accepts_auto;   /* CONFIG_WHOLE: also accepts "auto", which is stored as CONFIG_AUTO. */
    const char *choices; /* CONFIG_CHOICE: separated by spaces: "f16 f32". */
    /* Default as text of a command line; NULL = see default_words. */
    const char *default_text;
    const char *default_words; /* Describes the default if default_text is NULL. */
    const char *help;          /* What the key does, for --help and docs/configuration.md. */
    enum config_reload reload;
    /* Path that the key had in an earlier release, still accepted with a warning; NULL = none. */
    const char *old_path;
};

/* The table, in the order of docs/configuration.md. */
extern const struct config_key config_keys[];
extern const size_t config_key_count;

/* What is wrong with a config. */
struct config_fault {
    char path[CONFIG_KEY_BYTES]; /* Path of the key. */
    char message_end[320]; /* The part of the error message after the path: ` = "16k": want …`. */
    enum status status;    /* ST_INVALID, or ST_NO_MEMORY (config_fault_no_memory). */
};

/* Sets the fault's path, and formats its message_end as printf does. Returns false, so that a check
 * can end with `return config_fault_set(…)`. */
bool config_fault_set(struct config_fault *fault, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets a fault that says that there is no memory. Returns false. */
bool config_fault_no_memory(struct config_fault *fault, const char *path);
/* Sets the fault's path, and ` = VALUE: TEXT` as its message_end: the value as JSON, cut to 80
 * bytes, and a text formatted as printf does. Returns false. */
bool config_fault_value(struct config_fault *fault, const char *path, const json_t *value,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Stores a fault's whole message: "cleave.json:12: /kv/dtype = …". source: the file, or an option
 * such as "--set". line: 0 = none. Returns fault->status. */
enum status config_fault_error(const struct config_fault *fault, const char *source, unsigned line,
                               struct error *error);

/* --- table.c --- */
/* Returns the key with this path or old_path; NULL = none. `path` has a machine's name for NAME. */
const struct config_key *config_key_find(const char *path);
/* Returns true if the key's path begins with "machines/NAME/". */
bool config_key_of_machine(const struct config_key *key);
/* Stores the section of a key's path: "kv/tiers" for "kv/tiers/wait_ms", "machines" for every key
 * of a machine, and the path itself for a key without a section. */
void config_section_of(const char *path, char section_out[CONFIG_KEY_BYTES]);
/* Returns true if a key lies below the path. `path` has NAME as config_key.path has it: "machines"
 * and "machines/NAME" are known, but "machines/p0" is not. */
bool config_section_known(const char *path);
/* Stores the path of the key or section that a misspelled path may mean. Returns false if no path
 * is similar. */
bool config_key_nearest(const char *path, char nearest_out[CONFIG_KEY_BYTES]);

/* --- value.c --- */
/* Checks `value` and stores it in the key's field of *base: a struct config, or a struct
 * config_machine for a key of machines (or a struct of stages.c). Returns false, with *fault set
 * for `path`, if the value is wrong. The key's type must not be CONFIG_POOL. */
bool config_value_set(const struct config_key *key, void *base, const char *path,
                      const json_t *value, struct config_fault *fault);
/* Returns true if the key has no value in *base (see config_value_set): the field is empty and the
 * key accepts no empty text, a machine has no stages, or the key is a CONFIG_POOL. */
bool config_value_absent(const struct config_key *key, const void *base);
/* Returns the key's value in *base as JSON, a new reference. NULL = there is no value
 * (config_value_absent), or no memory. */
json_t *config_value_get(const struct config_key *key, const void *base);
/* Converts text of the command line to JSON (a new reference). Returns NULL if there is no memory
 * or the text is not UTF-8. The caller checks the value (config_value_set). */
json_t *config_value_from_text(const struct config_key *key, const char *text);
/* Writes which values a key accepts, such as "a whole number from 8 to 256". */
void config_value_describe(const struct config_key *key, char *out, size_t out_bytes);

/* --- machines.c --- */
/* Replaces the machines of `pool` by the machines in `value`, and sorts all machines by pool. A
 * machine in `value` that was in this pool before keeps its settings. Returns false, with *fault
 * set, if the value is wrong, and the config is then incomplete; or if memory is short, and the
 * config is then unchanged. */
bool config_pool_set(struct config *config, enum pool pool, const json_t *value,
                     struct config_fault *fault);
/* Sets a key of a machine, as config_value_set does. A new address also sets machine->local to
 * false: set the key `local` after the address. */
bool config_machine_set(struct config_machine *machine, const struct config_key *key,
                        const char *path, const json_t *value, struct config_fault *fault);
/* Checks that machines on other hosts have addresses, that addresses are unique, and that stages
 * are right (config_stages_check). Without etcd, also checks that both phases have a machine. */
bool config_machines_check(const struct config *config, struct config_fault *fault);

/* --- stages.c --- */
/* Checks the value of the key `stages` and stores the value in machine->stages. */
bool config_stages_set(struct config_machine *machine, const char *path, const json_t *value,
                       struct config_fault *fault);
/* Checks a machine's stages together with the machine's other keys, which must be set. */
bool config_stages_check(const struct config_machine *machine, struct config_fault *fault);
/* Returns true if no stage has an address that other hosts can reach. Requires that
 * config_stages_check has accepted the machine. */
bool config_stages_loopback(const struct config_machine *machine);
/* Returns the value of the key `stages`, a number or a list, as a new reference. NULL = no value,
 * or no memory. */
json_t *config_stages_json(const struct config_machine *machine);

/* --- adapters.c --- */
/* Checks the key `adapters`: its form, the number of adapters, and that names are unique. */
bool config_adapters_check(const struct config *config, struct config_fault *fault);

/* --- comments.c --- */
/* Replaces comments (as in C) by blanks, so that the lines and columns of the other text do not
 * change. Returns false if a comment has no end; *line_out is then the line (from 1) in which the
 * comment begins. */
bool config_comments_blank(char *text, size_t text_bytes, unsigned *line_out);

/* --- locate.c --- */
/* Returns the line (from 1) of the key `path` in valid JSON text, or of the deepest part of the
 * path that exists; 1 if no part exists. */
unsigned config_locate(const char *text, size_t text_bytes, const char *path);

#endif
