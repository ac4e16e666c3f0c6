/* config: reads, checks and writes the configuration of gateways, machines and tools. struct config
 * has the values of all keys. A value comes from a JSON file, from the command line, or from the
 * built-in default. table.h describes the keys.
 *
 * The caller owns the struct; the functions keep no state. Any thread may call them, if no other
 * thread changes the struct during the call. config watches no file and does not carry out a reload
 * (server/serve_reload.c does). A checked config may name devices, hosts or files that do not
 * exist. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "common/limits.h"
#include "common/pool.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Stored in a numeric field if the value of its key is "auto". */
#define CONFIG_AUTO UINT32_MAX
/* scheduler/prompt_queue_threshold_tokens where times are not known: Splitwise's threshold, for
 * H100 machines. */
#define CONFIG_THRESHOLD_TOKENS 8192

/* Most servers in the list of the key kv/tiers/store/servers. */
#define CONFIG_STORE_SERVERS_MAX 16

/* The folder of the models of an installation. */
#define CONFIG_MODELS_FOLDER "/var/lib/cleave/models"

/* One machine of the pools, with its values of the keys below `machines`. */
struct config_machine {
    char name[LIMIT_NAME_BYTES];
    enum pool pool; /* Home pool. */
    bool local;     /* `cleave serve` starts the machine on its own host. */
    /* "host:port" at which the machine listens; empty = a port that the kernel chooses. */
    char address[LIMIT_ADDRESS_BYTES];
    char device[32];   /* Such as "cpu", "cuda:0" or "wait:100+2". */
    bool cpu_fallback; /* Use the CPU if the GPU cannot be used; false = do not start. */
    /* Prompts use E4M3 activations (8-bit floats) if the weights are E4M3 and the GPU multiplies
     * E4M3 values; false = bf16 activations. */
    bool f8_activations;
    /* The value of the key `stages` as JSON text: see config_stages. Empty = one stage has all
     * layers. */
    char stages[2048];
    uint32_t tensor_parallel; /* Ranks of each stage whose entry in `stages` gives no number. */
    uint32_t threads;         /* 0 = one for each core of the host. */
    /* KV memory for all layers together. Each replica of a stage has the whole KV memory of the
     * stage's layers. */
    uint64_t kv_memory_bytes;
    /* Value of UCX_NET_DEVICES for this machine; empty = the value of transport.ucx_devices. */
    char ucx_devices[128];
    uint32_t nice;          /* Unix nice value of the machine's processes. */
    uint32_t power_limit_w; /* Power limit of the GPU or of the host's CPUs; 0 = none. */
};

/* The section `kv`. */
struct config_kv {
    uint32_t block_tokens; /* Tokens of one block. */
    uint64_t memory_bytes; /* Default for machines without their own kv_memory. */
    char dtype[8];         /* "auto", "i16", "f16", "f32" or "i8". */
    /* With transfer "auto": prompts of at least this length send their KV layer by layer.
     * CONFIG_AUTO = the measured speeds of link and machine decide. */
    uint32_t layerwise_threshold_tokens;
    char transfer[16];  /* "auto", "layerwise" or "one-piece". */
    bool prefix_cache;  /* Machines keep the KV of earlier prefixes. */
    char checkpoint[8]; /* When KV of running answers is copied: "off", "idle" or "always". */
    /* Least time between two copies of an answer; 0 = a block is copied as soon as it is full. */
    uint32_t checkpoint_ms;
    bool prefault; /* KV memory is allocated after the start; false = at its first use. */
    struct {
        uint32_t wait_ms;                /* Most time that a prompt waits for stored KV. */
        char key_file[LIMIT_PATH_BYTES]; /* Empty = stored KV is not encrypted. */
        struct {
            uint64_t bytes; /* Size of each machine's memory tier; 0 = no memory tier. */
        } memory;
        struct {
            char path[LIMIT_PATH_BYTES]; /* Folder of the files; empty = no file tier. */
            uint64_t bytes;              /* Size of each machine's file. */
        } file;
        struct {
            char servers[512]; /* Empty = no store. */
            char user[LIMIT_USER_BYTES];
            char password_file[LIMIT_PATH_BYTES]; /* Empty = the servers ask for no password. */
            bool tls;
            char ca_file[LIMIT_PATH_BYTES]; /* Empty = the CAs of the system. */
            uint32_t expire_s;              /* 0 = never. */
            uint32_t deadline_ms;
        } store;
    } tiers;
};

/* The whole configuration. Nearly every field has the name of its key: scheduler.wait_ms is the
 * value of the key scheduler/wait_ms. docs/configuration.md says what each key does, also with the
 * value "auto" (CONFIG_AUTO). The comments here give other special values. */
struct config {
    /* Path of the config file, or the source_name of config_parse; "embedded" = built-in default. A
     * key `source` in the file replaces this text. */
    char source[LIMIT_PATH_BYTES];
    /* Warning about keys that were given by their old names, for a log; empty = none. Not a key. */
    char renamed_warning[256];
    uint32_t threads; /* Default for machines without their own value; 0 = one for each core. */
    char model[LIMIT_PATH_BYTES];              /* A GGUF file or a folder: see config_model_path. */
    char chat_template_file[LIMIT_PATH_BYTES]; /* Empty = the model's own chat template. */
    char adapters[4096];                       /* Low-rank adapters: see config_adapter_at. */
    char tool_parser[12];                      /* Form of tool calls in answers, or "auto". */
    char reasoning_parser[12];                 /* Form of reasoning in answers, or "auto". */
    char profile[LIMIT_PATH_BYTES]; /* A file written by `cleave profile`; empty = none. */
    char model_name[64];            /* Empty = the name of the model's file or folder. */
    struct {
        char listen[LIMIT_ADDRESS_BYTES];
        char admin_socket[101]; /* Empty = none. */
        /* Page at GET / for trying the server: "auto" (on if `listen` is a loopback address), "on"
         * or "off". */
        char page[8];
        char web_origins[512]; /* Empty = none; "*" = all. */
        uint64_t body_bytes_max;
        uint64_t bodies_bytes_max;
        uint64_t answers_bytes_max;
        uint32_t connections_max;
        uint32_t connections_per_address_max;
        uint32_t headers_ms;
        uint32_t bytes_per_second_min;
        uint32_t ping_ms; /* 0 = no pings in streams without events. */
        uint32_t text_threads;
    } http;
    struct {
        bool allow_insecure;            /* Other hosts may use HTTP without API keys or TLS. */
        char prefix_cache_scope[8];     /* "all", "key" or "group". */
        char embeddings[8];             /* "auto", "off", "last" or "mean". */
        char sampling_defaults[8];      /* "model" or "none". */
        char control_tokens_in_text[8]; /* "allow", "prompts" or "as_text". */
        bool chat_template_in_requests;
        char api_keys_file[LIMIT_PATH_BYTES];        /* Empty = no API keys are required. */
        char tls_certificate_file[LIMIT_PATH_BYTES]; /* Empty = plain HTTP. */
        char tls_key_file[LIMIT_PATH_BYTES];
        uint32_t drain_ms;
        uint32_t drain_notice_ms;
        uint32_t update_ms;
        bool update_memory_check;
    } server;
    struct {
        bool allow_insecure;             /* Other hosts may reach machines without a cluster key. */
        char key_file[LIMIT_PATH_BYTES]; /* Empty = no cluster key. */
        char membership[8];              /* "file" or "etcd". */
        char etcd_endpoints[512];
        char etcd_prefix[129];
        uint32_t etcd_lease_s;
        char etcd_user[LIMIT_USER_BYTES]; /* Empty = etcd asks for no user. */
        char etcd_password_file[LIMIT_PATH_BYTES];
        char etcd_ca_file[LIMIT_PATH_BYTES];          /* Empty = the CAs of the system. */
        char etcd_certificate_file[LIMIT_PATH_BYTES]; /* Empty = no client certificate. */
        char etcd_key_file[LIMIT_PATH_BYTES];
        bool core_dumps;
        bool sandbox;
    } cluster;
    struct {
        char level[8];                      /* "debug", "info", "warn" or "error". */
        char format[8];                     /* "text" or "json". */
        char events_file[LIMIT_PATH_BYTES]; /* Empty = no event log. */
        char access_file[LIMIT_PATH_BYTES]; /* Empty = no access log; "-" = standard error. */
        char ledger_file[LIMIT_PATH_BYTES]; /* Empty = no usage ledger. */
        uint32_t slow_s;                    /* 0 = slow requests are not logged. */
        uint32_t requests_kept;
        char otlp_endpoint[LIMIT_PATH_BYTES]; /* URL; empty = none. */
    } log;
    struct {
        uint32_t prompt_batch_tokens;
        uint32_t prompt_fill_tokens; /* Or CONFIG_AUTO. */
        /* 0 = the best by the profile, or prompt_fill_tokens if there is no profile. */
        uint32_t micro_batch_tokens;
        uint32_t mixed_prompt_tokens; /* Or CONFIG_AUTO. */
        uint32_t batch_sequences_max;
        uint32_t speculative_tokens; /* 0 = no drafts. */
        bool speculative_always;
        char draft_model[LIMIT_PATH_BYTES]; /* Empty = no draft model. */
        bool draft_layer;                   /* The model's draft layer is the draft model. */
        uint32_t growth_tokens;
        uint32_t handover_tokens_min;
        uint32_t growth_reserve_percent;
        uint32_t preemptions_max;
        uint32_t ageing_ms;                     /* 0 = no ageing. */
        uint32_t prompt_queue_threshold_tokens; /* Or CONFIG_AUTO. */
        uint32_t prompt_queue_threshold_ms;     /* 0 = none; or CONFIG_AUTO. */
        uint32_t machine_pending_ms;            /* 0 = no bound; or CONFIG_AUTO. */
        uint32_t queue_requests_max;
        uint32_t queue_ms;           /* 0 = no limit. */
        uint32_t crashes_max;        /* 0 = no limit. */
        uint32_t context_tokens_max; /* 0 = the model's limit. */
        char policy[16];             /* "jsq", "prefix" or "deadline". */
        char placement[8];           /* "auto" or "split". */
        bool adaptive_pools;
        bool compare_time; /* false = machines are compared by tokens, not by time. */
        /* Longest time without a machine that can take the request; 0 = no limit. */
        uint32_t wait_ms;
        uint32_t takeover_delay_ms;
        uint32_t prefix_slack_tokens;
        uint32_t repurpose_window_ms; /* 0 = home pools do not change. */
        uint32_t repurpose_interval_ms;
        uint32_t repurpose_gain_percent;
        uint32_t turn_ms; /* 0 = no turns; or CONFIG_AUTO. */
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
        uint32_t link_ms; /* Time limit of UCX's first message over RDMA. */
    } transport;
    struct {
        uint32_t ttft_ms;
        uint32_t tbt_ms;
    } slo;
    uint32_t machine_count;
    struct config_machine machines[LIMIT_MACHINES]; /* Machines of all pools, local or not. */
};

/* One stage process of a machine. */
struct config_stage {
    /* Index of the process's entry (a stage or replica) in the key `stages`. */
    uint32_t list_index;
    uint32_t rank;    /* Number of this rank, from 0. */
    uint32_t ranks;   /* Number of ranks of the stage or replica; 1 = no other ranks. */
    char device[32];  /* Device of this process, as in struct config_machine. */
    uint32_t threads; /* Threads of this process; 0 = the cores of its host divided by `ranks`. */
    /* "host:port" of a process on another host; empty = a child process of the head. */
    char address[LIMIT_ADDRESS_BYTES];
    uint32_t first_layer; /* First layer of the stage. */
    uint32_t end_layer;   /* Layer after the last layer; 0 = the config gives no layers. */
    uint32_t speed;       /* Relative speed of a replica among the replicas; 100 = normal. */
};

/* All stage processes of a machine. */
struct config_stages {
    uint32_t count; /* 0 = the machine has no stages. */
    /* In the order of layers. The replicas of a stage follow each other, and so do the ranks of a
     * replica. */
    struct config_stage stages[LIMIT_STAGE_PROCESSES];
};

/* Returns true if the machine has stage processes (stages or ranks). */
static inline bool config_has_stages(const struct config_machine *machine)
{
    return machine->stages[0] != 0 || machine->tensor_parallel > 1;
}

/* Stores the stage processes of a machine. Needs a config that config_check has accepted. */
void config_stages(const struct config_machine *machine, struct config_stages *out);

/* The share of this host that a local machine uses. */
struct config_host_share {
    uint32_t processes; /* The machine's own process and its local stage processes. */
    /* Number of copies of the model's layers (weights and KV) that these processes hold: 0.5 if
     * half of the layers are on another host, 2 if each stage has two local replicas. */
    double model_copies;
};

/* Stores which share of this host a local machine uses. Needs a config that config_check has
 * accepted. */
void config_machine_share(const struct config_machine *machine, struct config_host_share *out);

/* Returns true if the machine drafts tokens with a draft model or a draft layer. Needs a config
 * that config_check has accepted. */
bool config_machine_drafts(const struct config *config, const struct config_machine *machine);

/* Sizes of models' files. */
struct config_model_bytes {
    uint64_t model; /* 0 = unknown. */
    uint64_t draft; /* 0 = no draft model, or the draft layer, whose bytes `model` contains. */
};

/* Memory of this host that machines take. */
struct config_host_memory {
    /* Weights, and other memory of the processes that is not KV. */
    uint64_t weights_and_process_bytes;
    uint64_t kv_bytes;
};

/* Adds the memory that a local machine takes on this host to *sum. Needs a config that config_check
 * has accepted. */
void config_machine_memory_add(const struct config *config, const struct config_machine *machine,
                               const struct config_model_bytes *files,
                               struct config_host_memory *sum);

/* Returns the number format of KV: the value of kv.dtype. If the value is "auto", returns "f16" if
 * all machines compute on GPUs only, otherwise (also without machines) "i16". Needs a config that
 * config_check has accepted. */
const char *config_kv_dtype(const struct config *config);

/* Sets the built-in default: a prompt machine "prompt-0" and a token machine "token-0", both
 * local. */
void config_default(struct config *out);

/* Reads and checks a JSON file, which may have comments as in C. An unknown key is an error, except
 * "$schema". *out is written only on success. Returns ST_NOT_FOUND or ST_IO if the file cannot be
 * read, ST_TOO_LARGE above 1 MiB, ST_NO_MEMORY, or ST_INVALID: the error then names the file, the
 * line, and the key if there is one. */
enum status config_load(const char *path, struct config *out, struct error *error);
/* Reads and checks the text of a config file. Errors name source_name as the file. Returns as
 * config_load does. */
enum status config_parse(const char *text, size_t text_bytes, const char *source_name,
                         struct config *out, struct error *error);

/* Receives the text of one mistake, which is valid during the call. */
typedef void (*config_mistake_call)(void *self, const char *text);

/* Reads a file as config_load does, but goes on after a mistake, and calls on_mistake for every
 * mistake found. After a mistake, the key with the mistake, or the object around this key, is
 * ignored. After a mistake below `pools`, all of `pools` and `machines` is ignored. Further
 * mistakes in an ignored object are not found. Returns true, and stores *out, if the rest of the
 * file is a valid config. */
bool config_load_all(const char *path, config_mistake_call on_mistake, void *self,
                     struct config *out);

/* Sets one key to a value from a command line, for example the key "pools/prompt" to "2". A new
 * value of `threads` or `kv/memory` also replaces the old value in machines that have the old
 * value. Returns ST_INVALID or ST_NO_MEMORY on failure; *config is then unchanged. Errors begin
 * with `source` ("--listen"). The caller must check the config after the last change
 * (config_check). */
enum status config_set(struct config *config, const char *source, const char *key,
                       const char *value, struct error *error);

/* Calls config_set for the text KEY=VALUE of the option --set. */
enum status config_set_pair(struct config *config, const char *key_and_value, struct error *error);

/* Checks the keys together, for example that transport.silence_ms is at least two heartbeats.
 * config_load and config_parse contain these checks. Returns ST_INVALID on failure; the error
 * begins with `source`. */
enum status config_check(const struct config *config, const char *source, struct error *error);

/* Finds the model: a regular file, or a folder with config.json. A relative path is searched in the
 * current directory, in the folder of the config file, in $XDG_CACHE_HOME/cleave (or in
 * ~/.cache/cleave if the variable is not set or empty), and then in CONFIG_MODELS_FOLDER. Returns
 * ST_NOT_FOUND if there is no model; the error names the searched places. */
enum status config_model_path(const struct config *config, char out[LIMIT_PATH_BYTES],
                              struct error *error);
/* Returns the key that sets the draft model or draft layer, for errors; NULL = neither is set. */
const char *config_draft_key(const struct config *config);
/* Finds the file or folder of the draft model, as config_model_path finds the model. For a draft
 * layer, finds the model. Requires that config_draft_key is not NULL. */
enum status config_draft_path(const struct config *config, char out[LIMIT_PATH_BYTES],
                              struct error *error);

/* Stores the path of a file that the config names. An absolute path is unchanged. To a relative
 * path, adds the folder of config->source at the front, unless config->source has no folder.
 * Returns ST_TOO_LARGE if the path is too long. */
enum status config_file_path(const struct config *config, const char *file,
                             char out[LIMIT_PATH_BYTES], struct error *error);

/* A low-rank adapter of the model. */
struct config_adapter {
    char name[64];               /* The name by which requests choose the adapter. */
    char path[LIMIT_PATH_BYTES]; /* The adapter's folder (see config_file_path). */
};

/* Stores adapter `index` (from 0) of the key `adapters`. Returns false if there is no such adapter.
 * Needs a config that config_check has accepted. */
bool config_adapter_at(const struct config *config, uint32_t index, struct config_adapter *out);

/* Returns true if the host of "HOST:PORT" is 127.*, [::1] or localhost. */
bool config_address_is_loopback(const char *address);

/* Returns true if every machine of the config is local, and other hosts cannot reach the addresses
 * of machines and stages. Needs a config that config_check has accepted. */
bool config_is_loopback(const struct config *config);

/* Stores the next HOST:PORT of a list, whose separators are commas or blanks, and moves *at behind
 * this address. Returns false at the end of the list. An address that is too long is cut. */
bool config_address_next(const char **at, char out[LIMIT_ADDRESS_BYTES]);

/* Returns true if machines register themselves in etcd, where gateways find them. */
bool config_has_etcd(const struct config *config);

/* Returns true if machines have a tier: kv/tiers/ gives memory, a file path or servers. */
bool config_has_tiers(const struct config *config);

/* Returns true if the entry `machine` of config->machines holds a machine. In the config of a
 * running gateway, a machine keeps its index, so a removed machine leaves an empty entry. A config
 * that was just read has no empty entries. */
static inline bool config_machine_present(const struct config *config, uint32_t machine)
{
    return machine < config->machine_count && config->machines[machine].name[0] != 0;
}

/* Reads one machine from a JSON object with the members "name", "pool" and keys of `machines`.
 * *config gives the defaults of threads and kv_memory. Returns ST_INVALID on failure; the error
 * begins with `source`, and *out is unchanged. The caller adds the machine to a config and must
 * check this config (config_check). */
enum status config_machine_parse(const char *text, size_t text_bytes, const char *source,
                                 const struct config *config, struct config_machine *out,
                                 struct error *error);

/* When a changed value of a key takes effect after a reload. */
enum config_reload {
    /* At the next start of the gateway, or with a model update (docs/configuration.md). */
    CONFIG_RELOAD_NEVER,
    CONFIG_RELOAD_YES,      /* At once. */
    CONFIG_RELOAD_MACHINES, /* For machines that are started after the reload. */
};

/* A key whose values in two configs differ. */
struct config_change {
    char path[192]; /* The key, such as "kv/memory". */
    enum config_reload reload;
    char old_value[80]; /* JSON, possibly truncated; "none" = no value. */
    char new_value[80]; /* JSON, possibly truncated; "none" = no value. */
};

/* Receives one change; *change is valid during the call. */
typedef void (*config_change_call)(void *self, const struct config_change *change);

/* Calls on_change for every key whose values differ, except `source` and the keys below `pools` and
 * `machines`. */
void config_diff(const struct config *now, const struct config *next, config_change_call on_change,
                 void *self);
/* Calls on_change for every key of a machine whose values differ. `now` and `next` are one machine
 * in two configs. The pools are not compared. */
void config_machine_diff(const struct config_machine *now, const struct config_machine *next,
                         config_change_call on_change, void *self);
/* Copies the keys that a reload can change (not CONFIG_RELOAD_NEVER) from `next` to `now`, except
 * the keys below `pools` and `machines`. */
void config_reload_copy(struct config *now, const struct config *next);

/* Returns the index of the machine with this name; -1 = none. */
int config_machine_find(const struct config *config, const char *name);

/* Writes all keys as JSON, which config_parse can read. Leaves out renamed_warning and empty
 * entries of `machines`. Returns ST_IO or ST_NO_MEMORY on failure. */
enum status config_write(const struct config *config, FILE *file);

/* Prints docs/configuration.md, which contains the table of keys. */
void config_print_reference(FILE *file);
/* Prints the table of keys as text for `--help`. */
void config_print_help(FILE *file);
/* Prints the table as a JSON Schema (draft 7) of config files. Returns false on failure. */
bool config_print_schema(FILE *file);

#endif
