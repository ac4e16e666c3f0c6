/* config: the configuration. One table of keys (key, type, range, default, help; table.h) drives
 * the parser, the command line, --help and docs/configuration.md. The struct holds the values for
 * all other parts. It is read from a JSON file, or from the built-in default. Unknown keys are
 * errors, which suggest the nearest known key. Every error names file, line, key, value and what
 * was wanted.
 *
 * `cleave serve` (start, reload, admin requests), `cleave machine`, and the commands plan, profile
 * and simulate call it; other parts only read the struct. The functions keep no state: any thread
 * may call them, if no other thread writes the same struct. In the gateway and the machines that is
 * the event loop thread. config watches no file, does not carry out a reload (server/serve_reload.c
 * does), and does not check that devices, models or hosts exist. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "common/limits.h"
#include "common/pool.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One entry of the pools, with the machine's values of the keys of `machines`. */
struct config_machine {
    char name[LIMIT_NAME_BYTES];
    enum pool pool; /* Home pool. */
    bool local;     /* Started by `cleave serve` on this host. */
    /* "host:port" where the machine listens; empty = local, any port. */
    char address[LIMIT_ADDRESS_BYTES];
    char device[32]; /* Such as "cpu" or "cuda:0". */
    bool fallback;   /* Use the CPU if the GPU cannot be used. */
    /* Compute prompts with E4M3 weights on a GPU that multiplies E4M3 values. */
    bool f8_activations;
    /* How the layers are split over devices (see config_stages); empty = one process has all. */
    char stages[2048];
    uint32_t tensor_parallel; /* Ranks of each stage that has no number of its own. */
    uint32_t threads;         /* 0 = one per core of the host. */
    uint64_t kv_memory_bytes;
    /* Priority of the machine's processes: a higher value yields to other processes. */
    uint32_t nice;
};

/* The section `kv`. */
struct config_kv {
    uint32_t block_tokens; /* Tokens of one block. */
    uint64_t memory_bytes; /* Default for machines without their own kv_memory. */
    char dtype[8];         /* "auto", "i16", "f16", "f32" or "i8". */
    /* Prompts of at least this length are transferred layer by layer. */
    uint32_t layerwise_threshold_tokens;
    char transfer[16]; /* "auto", "layerwise" or "one-piece". */
    bool prefix_cache; /* Machines keep the KV of earlier prefixes. */
    bool prefault;     /* KV memory is allocated in the background after the start. */
};

/* The whole configuration. A field is the key of its name (scheduler.wait_ms is scheduler/wait_ms);
 * a unit at the end of a field's name may be missing in the key. config/table.c and
 * docs/configuration.md say what each key does, its range and its default; the comments here only
 * add special values. */
struct config {
    char source[LIMIT_PATH_BYTES]; /* File that the config was read from, or "embedded". */
    /* Warning about keys that were given by their old names, in words for a log; empty = none. Not
     * a key: configs are compared and written without it. */
    char renamed[256];
    uint32_t threads; /* Default for machines without their own value; 0 = one per core. */
    char model[LIMIT_PATH_BYTES];   /* A GGUF file or a folder: see config_model_path. */
    char profile[LIMIT_PATH_BYTES]; /* A file written by `cleave profile`; empty = none. */
    /* Name in /v1/models; empty = name of the file, without .gguf, or folder. */
    char model_name[64];
    struct {
        char listen[LIMIT_ADDRESS_BYTES];
        char admin_socket[101]; /* Empty = none. */
        uint64_t body_bytes_max;
        uint64_t bodies_bytes_max;
        uint64_t answers_bytes_max;
        uint32_t connections_max;
        uint32_t connections_per_address_max;
        uint32_t headers_ms;
        uint32_t bytes_per_second_min;
    } http;
    struct {
        bool allow_insecure;            /* Other hosts may use HTTP without API keys or TLS. */
        char prefix_cache_scope[8];     /* "all", "key" or "group". */
        char control_tokens_in_text[8]; /* "allow", "prompts" or "as_text". */
        char api_keys_file[LIMIT_PATH_BYTES];        /* Empty = no API keys are required. */
        char tls_certificate_file[LIMIT_PATH_BYTES]; /* Empty = plain HTTP. */
        char tls_key_file[LIMIT_PATH_BYTES];
        uint32_t drain_ms;
        uint32_t update_ms;       /* Time within which the machines of a new model must serve. */
        bool update_memory_check; /* Require memory for both models during an update. */
    } server;
    struct {
        bool allow_insecure;             /* Other hosts may reach machines without a cluster key. */
        char key_file[LIMIT_PATH_BYTES]; /* Empty = no cluster key. */
        char membership[8];              /* "file" or "etcd". */
        char etcd_endpoints[512];
        char etcd_prefix[129];
        uint32_t etcd_lease_s;
        bool core_dumps;
    } cluster;
    struct {
        char events_file[LIMIT_PATH_BYTES]; /* Empty = no event log. */
    } log;
    struct {
        uint32_t prompt_batch_tokens;
        uint32_t prompt_fill_tokens;
        uint32_t micro_batch_tokens; /* 0 = prompt_fill_tokens. */
        uint32_t mixed_prompt_tokens;
        uint32_t batch_sequences_max;
        uint32_t growth_tokens;
        uint32_t handover_tokens_min;
        uint32_t growth_reserve_percent;
        uint32_t preemptions_max;
        uint32_t ageing_ms; /* 0 = no ageing. */
        uint32_t prompt_queue_threshold_tokens;
        uint32_t queue_requests_max;
        uint32_t context_tokens_max; /* 0 = the model's limit. */
        char policy[16];             /* "jsq", "prefix" or "deadline". */
        bool adaptive_pools;
        uint32_t wait_ms; /* 0 = unlimited. */
        uint32_t cover_ms;
        uint32_t prefix_slack_tokens;
        uint32_t repurpose_window_ms; /* 0 = home pools do not change. */
        uint32_t repurpose_interval_ms;
        uint32_t repurpose_gain_percent;
        uint32_t turn_ms; /* 0 = no turns. */
    } scheduler;
    struct config_kv kv;
    struct {
        char ucx_transports[128]; /* UCX_TLS; empty = shared memory and RDMA hardware. */
        char ucx_devices[128];    /* UCX_NET_DEVICES; empty = the active RDMA devices. */
        uint32_t data_connections;
        uint64_t data_window_bytes;
        uint32_t heartbeat_ms;
        uint32_t silence_ms;
        uint32_t connect_ms;
    } transport;
    struct {
        uint32_t ttft_ms;
        uint32_t tbt_ms;
    } slo;
    uint32_t machine_count;
    struct config_machine machines[LIMIT_MACHINES]; /* Of all pools, local or not. */
};

/* One stage process of a machine: it computes a part of the machine's layers, alone or as one of
 * several ranks, each of which computes a slice of every layer. */
struct config_stage {
    uint32_t entry; /* Index in the config's list of stages, the same for all ranks of a stage. */
    uint32_t rank;  /* From 0. */
    uint32_t ranks; /* 1 = no other ranks. */
    char device[32];
    uint32_t threads; /* 0 = a share of the host's cores. */
    /* Where the process listens on another host; empty = local, a child of its machine. */
    char address[LIMIT_ADDRESS_BYTES];
    /* The stage has the layers [first_layer, last_layer); 0, 0 = the config does not say. */
    uint32_t first_layer;
    uint32_t last_layer;
    uint32_t speed; /* Share of the requests that a replica gets. */
};

/* All stage processes of a machine. */
struct config_stages {
    uint32_t count; /* 0 = the machine has no stages. */
    /* In the order of layers, with the replicas of a layer together, and the ranks of a replica
     * together. */
    struct config_stage stages[LIMIT_STAGES];
};

/* Stores the stage processes of a machine. Requires a checked config. */
void config_stages(const struct config_machine *machine, struct config_stages *out);

/* What a local machine uses of this host. */
struct config_share {
    uint32_t processes; /* Its own process and its local stage processes. */
    /* Number of copies of the model's layers (weights and KV) that these processes hold: less than
     * 1 if some stages are on other hosts, more than 1 with replicas. Each rank holds a part of its
     * stage. */
    double copies;
};

void config_machine_share(const struct config_machine *machine, struct config_share *out);

/* Returns how K and V are stored, such as "i16": kv.dtype, where "auto" is replaced by what suits
 * the machines ("f16" if all of them use GPUs, else "i16"). */
const char *config_kv_dtype(const struct config *config);

/* Sets the built-in default: a prompt machine "prompt-0" and a token machine "token-0", both
 * local. */
void config_default(struct config *out);

/* Read a file or a text, whose name in errors is `name`. *out is written only on success. */
enum status config_load(const char *path, struct config *out, struct error *error);
enum status config_parse(const char *text, size_t bytes, const char *name, struct config *out,
                         struct error *error);

/* Sets one key from text, as the command line gives it: "http/listen" = "127.0.0.1:9000",
 * "pools/prompt" = "2". Errors begin with `place` ("--listen"). */
enum status config_set(struct config *config, const char *place, const char *key, const char *value,
                       struct error *error);

/* Sets one key from the text "KEY=VALUE" of the option --set. */
enum status config_set_pair(struct config *config, const char *text, struct error *error);

/* Checks what no single key shows, such as that machines serve both phases and that addresses are
 * present. config_load and config_parse call it; after the last config_set the caller must. Errors
 * begin with `place`. */
enum status config_check(const struct config *config, const char *place, struct error *error);

/* Finds the model's file or folder: config->model as given, relative to the config file, then in
 * $XDG_CACHE_HOME/cleave or ~/.cache/cleave. The text of ST_NOT_FOUND names every place that was
 * tried. */
enum status config_model_path(const struct config *config, char out[LIMIT_PATH_BYTES],
                              struct error *error);

/* Returns the path of a file that the config names: as given if absolute, else relative to the
 * config file's folder (to the current directory if the config is not a file). Returns ST_TOO_LARGE
 * if the path is too long. */
enum status config_file_path(const struct config *config, const char *file,
                             char out[LIMIT_PATH_BYTES], struct error *error);

/* True for a "HOST:PORT" that only this host can reach, as far as the text shows: 127.*, [::1] and
 * localhost. */
bool config_address_is_loopback(const char *address);

/* True if every machine is local and listens where only this host can reach it. */
bool config_is_loopback(const struct config *config);

/* True if machines register themselves in etcd, where gateways find them. */
bool config_has_etcd(const struct config *config);

/* Returns whether the entry holds a machine. In a running config, each machine keeps its index; a
 * removed machine leaves an empty entry until another machine takes the entry. A config that was
 * just read has no empty entries. */
static inline bool config_machine_present(const struct config *config, uint32_t machine)
{
    return machine < config->machine_count && config->machines[machine].name[0] != 0;
}

/* Reads one machine from a JSON object, {"name": …, "pool": …} and the keys of `machines`. Values
 * that are missing come from the defaults in `config`. Errors begin with `place`. */
enum status config_machine_parse(const char *text, size_t bytes, const char *place,
                                 const struct config *config, struct config_machine *out,
                                 struct error *error);

/* What a reload of a changed config does with a key. */
enum config_reload {
    CONFIG_RELOAD_NEVER,    /* Nothing: the value counts from the next start on. */
    CONFIG_RELOAD_YES,      /* The value counts at once. */
    CONFIG_RELOAD_MACHINES, /* The value counts for machines that are started later. */
};

/* A key whose values in two configs differ. */
struct config_change {
    char path[192];         /* The key, such as "kv/memory". */
    enum config_reload how; /* What a reload does with the key. */
    char from[80];          /* Old value as JSON, possibly truncated. */
    char to[80];            /* New value as JSON, possibly truncated. */
};

typedef void (*config_change_call)(void *self, const struct config_change *change);

/* Calls `each` for every key that differs, except pools and machines. */
void config_diff(const struct config *now, const struct config *next, config_change_call each,
                 void *self);
/* Calls `each` for every key that differs between two entries of one machine, except its pool. */
void config_machine_diff(const struct config_machine *now, const struct config_machine *next,
                         config_change_call each, void *self);
/* Copies the values that a reload may change from `next` to `now`, except pools and machines. */
void config_adopt(struct config *now, const struct config *next);

/* Returns the index of the machine with that name; -1 = none. */
int config_machine_find(const struct config *config, const char *name);

/* Writes the config as JSON that config_parse reads back unchanged. Child processes get it through
 * a descriptor. */
enum status config_write(const struct config *config, FILE *file);

/* Print the table of keys to `file`: as markdown for docs/configuration.md, and as text for
 * `--help`. */
void config_print_reference(FILE *file);
void config_print_help(FILE *file);

#endif
