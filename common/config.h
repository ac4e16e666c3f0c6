/* config: the one table of keys (key, type, range, default, help) that feeds the parser, the
 * command line,
 * --help and docs/configuration.md; and the struct that everybody reads. A JSON file in, or the
 * built-in embedded default. Unknown keys fail, with the nearest known key; every error names file,
 * line, key, value and what was wanted. */
#ifndef COMMON_CONFIG_H
#define COMMON_CONFIG_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum config_pool { CONFIG_POOL_PROMPT, CONFIG_POOL_TOKEN, CONFIG_POOL_MIXED };

struct config_machine {
    char name[LIMIT_NAME_BYTES];
    enum config_pool pool;
    bool local;                        /* started by `cleave serve` on this computer */
    char address[LIMIT_ADDRESS_BYTES]; /* "host:port" where it listens; empty: any port, local */
    char device[32];                   /* "cpu", "cuda:0" */
    bool fallback;                     /* to the CPU, where that GPU cannot be had */
    bool f8_activations; /* prompts with E4M3 weights, on a GPU that multiplies such */
    char stages[2048]; /* how its layers are split over devices: config_stages reads it; empty: one
                          process computes them all */
    uint32_t tensor_parallel; /* ranks of each of its stages that does not say its own */
    uint32_t threads;         /* 0: as many as this computer has cores */
    uint64_t kv_memory_bytes;
    uint32_t nice; /* how far it steps back behind other processes of its computer */
};

struct config_kv {
    uint32_t block_tokens;
    uint64_t memory_bytes;
    char dtype[8];                       /* "auto", "i16", "f16", "f32" or "i8" */
    uint32_t layerwise_threshold_tokens; /* from here on, layer by layer */
    char transfer[16];                   /* "auto", "layerwise", "one-piece" */
    bool prefix_cache;
    bool prefault;
};

struct config {
    char source[LIMIT_PATH_BYTES]; /* the file it came from, or "embedded" */
    uint32_t threads;             /* of machines that do not say their own; so is kv.memory_bytes */
    char model[LIMIT_PATH_BYTES]; /* a GGUF file: as given, beside the config, or in the cache */
    char profile[LIMIT_PATH_BYTES]; /* of `cleave profile`; empty: none */
    char model_name[64];            /* what /v1/models says; empty: the file's name without .gguf */
    struct {
        char listen[LIMIT_ADDRESS_BYTES];
        uint64_t body_bytes_max;
        uint32_t connections_max;
    } http;
    struct {
        bool allow_insecure;                         /* others may reach HTTP without keys or TLS */
        char api_keys_file[LIMIT_PATH_BYTES];        /* empty: no keys are wanted */
        char tls_certificate_file[LIMIT_PATH_BYTES]; /* empty: plain HTTP */
        char tls_key_file[LIMIT_PATH_BYTES];
        uint32_t drain_ms;
        uint32_t update_ms;       /* a new model's machines must serve by then */
        bool update_memory_check; /* two models at once must fit */
    } server;
    struct {
        bool allow_insecure;             /* others may reach machines without a key */
        char key_file[LIMIT_PATH_BYTES]; /* empty: none */
        char membership[8];              /* "file" or "etcd" */
        char etcd_endpoints[512];
        char etcd_prefix[129];
        uint32_t etcd_lease_s;
    } cluster;
    struct {
        char events_file[LIMIT_PATH_BYTES]; /* empty: none */
    } log;
    struct {
        uint32_t prompt_batch_tokens;
        uint32_t prompt_fill_tokens;
        uint32_t micro_batch_tokens; /* 0: prompt_fill_tokens */
        uint32_t mixed_prompt_tokens;
        uint32_t batch_sequences_max;
        uint32_t growth_tokens;
        uint32_t handover_tokens_min;
        uint32_t growth_reserve_percent;
        uint32_t preemptions_max;
        uint32_t ageing_ms; /* 0: never */
        uint32_t prompt_queue_threshold_tokens;
        uint32_t queue_requests_max;
        uint32_t context_tokens_max; /* 0: the model's */
        char policy[16];             /* "jsq", "prefix", "deadline" */
        bool adaptive_pools;
        uint32_t wait_ms; /* 0: for ever */
        uint32_t cover_ms;
        uint32_t prefix_slack_tokens;
        uint32_t repurpose_window_ms; /* 0: homes stay */
        uint32_t repurpose_interval_ms;
        uint32_t repurpose_gain_percent;
        uint32_t turn_ms; /* 0: no turns */
    } scheduler;
    struct config_kv kv;
    struct {
        char tls[128]; /* UCX_TLS; empty: UCX's choice */
        uint32_t heartbeat_ms;
        uint32_t silence_ms;
        uint32_t connect_ms;
    } transport;
    struct {
        uint32_t ttft_ms;
        uint32_t tbt_ms;
    } slo;
    uint32_t machine_count;
    struct config_machine machines[LIMIT_MACHINES];
};

/* A process that computes a part of a machine's layers, or one of several (ranks) that compute them
 * together, each a slice of every layer. */
struct config_stage {
    uint32_t entry; /* in the config's list of stages: that of all its ranks */
    uint32_t rank;
    uint32_t ranks; /* 1: it is alone */
    char device[32];
    uint32_t threads;                  /* as of a machine; 0: its share of its computer's cores */
    char address[LIMIT_ADDRESS_BYTES]; /* where it listens on another computer; empty: it is local,
                                          a child of its machine */
    uint32_t first_layer;              /* its layers [first, last); 0, 0: not said */
    uint32_t last_layer;
    uint32_t speed; /* of replicas, their shares of requests */
};

struct config_stages {
    uint32_t count;                           /* 0: none, the machine computes by itself */
    struct config_stage stages[LIMIT_STAGES]; /* in the order of layers, replicas in a row, and the
                                                 ranks of each */
};

/* The stages of a machine of a config that was checked. */
void config_stages(const struct config_machine *machine, struct config_stages *out);

/* What a local machine takes of this computer: its own process and those of its stages that it
 * starts, and how many times these hold the model's layers, weights and KV alike: less than 1 if
 * stages are elsewhere, more if there are replicas. Ranks have a part of their stage's each. */
struct config_share {
    uint32_t processes;
    double copies;
};

void config_machine_share(const struct config_machine *machine, struct config_share *out);

/* How K and V are stored, "i16" or another: kv.dtype, or what "auto" means for its machines. */
const char *config_kv_dtype(const struct config *config);

/* "prompt", "token" or "mixed". */
const char *config_pool_name(enum config_pool pool);

/* The embedded default: one prompt machine "prompt-0" and one token machine "token-0", both local.
 */
void config_default(struct config *out);

/* Reads a file, or `text` (whose name in errors is `name`). *out is written only on success. */
enum status config_load(const char *path, struct config *out, struct error *error);
enum status config_parse(const char *text, size_t bytes, const char *name, struct config *out,
                         struct error *error);

/* Sets one key of the table from text, as the command line does: "http/listen" = "127.0.0.1:9000",
 * "pools/prompt" = "2". Errors begin with `place` ("--listen"). */
enum status config_set(struct config *config, const char *place, const char *key, const char *value,
                       struct error *error);

/* Checks what no single key shows (both phases are served, addresses are there): config_load and
 * config_parse have done it, after the last config_set it is the caller's turn. Errors begin with
 * `place`. */
enum status config_check(const struct config *config, const char *place, struct error *error);

/* Finds the model's file: `config->model` as given, relative to the config file, then in
 * $XDG_CACHE_HOME/cleave or ~/.cache/cleave. ST_NOT_FOUND names every place that was looked at. */
enum status config_model_path(const struct config *config, char out[LIMIT_PATH_BYTES],
                              struct error *error);

/* The path of a file that the config names: as given if absolute, else beside the config file (or
 * in the current directory, if the config is no file). ST_TOO_LARGE: it is longer than a path. */
enum status config_file_path(const struct config *config, const char *file,
                             char out[LIMIT_PATH_BYTES], struct error *error);

/* True for "HOST:PORT" that only this computer can reach, as far as the text alone tells: 127.*,
 * [::1] and localhost. */
bool config_address_is_loopback(const char *address);

/* Every machine is local and listens where only this computer reaches it. */
bool config_is_loopback(const struct config *config);

/* Machines register themselves, and gateways find them. */
bool config_has_etcd(const struct config *config);

/* A running config keeps each machine at its index: where one was taken out, there is a hole until
 * another one takes it. A config that was read has none. */
static inline bool config_machine_present(const struct config *config, uint32_t machine)
{
    return machine < config->machine_count && config->machines[machine].name[0] != 0;
}

/* Reads one machine from a JSON object, {"name": …, "pool": …} and the keys of `machines`; what it
 * does not say comes from the defaults of `config`. Errors begin with `place`. */
enum status config_machine_parse(const char *text, size_t bytes, const char *place,
                                 const struct config *config, struct config_machine *out,
                                 struct error *error);

/* What reading a changed config again does with a key. */
enum config_reload {
    CONFIG_RELOAD_NEVER,    /* nothing: it counts from the next start on */
    CONFIG_RELOAD_YES,      /* it counts at once */
    CONFIG_RELOAD_MACHINES, /* it counts for machines that are started from then on */
};

struct config_change {
    char path[192];
    enum config_reload how;
    char from[80]; /* the values, as JSON, perhaps cut */
    char to[80];
};

typedef void (*config_change_call)(void *self, const struct config_change *change);

/* Calls `each` for every key that differs, but for pools and machines. */
void config_diff(const struct config *now, const struct config *next, config_change_call each,
                 void *self);
/* The same for the keys of two entries of one machine; its pool is not compared. */
void config_machine_diff(const struct config_machine *now, const struct config_machine *next,
                         config_change_call each, void *self);
/* Takes over what config_diff reports and a reload may change. */
void config_adopt(struct config *now, const struct config *next);

/* The index of the machine of that name, or -1. */
int config_machine_find(const struct config *config, const char *name);

/* Writes the whole config as JSON that config_parse reads back to the same (children get it on a
 * descriptor). */
enum status config_write(const struct config *config, FILE *file);

/* The table of keys, as the page docs/configuration.md has it (markdown), and as `--help` has it.
 */
void config_print_reference(FILE *file);
void config_print_help(FILE *file);

#endif
