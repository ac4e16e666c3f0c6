/* serve_internal: struct serve, which owns the parts of the process `cleave serve`, and the
 * functions that the files server/serve*.c share. Everything runs on the main thread, which is the
 * gateway's event loop thread. These files route no requests (server/gateway/ does) and answer no
 * clients (server/http/ does). */
#ifndef SERVER_SERVE_INTERNAL_H
#define SERVER_SERVE_INTERNAL_H

#include "common/clock.h"
#include "host/notify.h"
#include "membership/watch.h"
#include "model/file/hyper.h"
#include "model/file/model_file.h"
#include "server/api/keys.h"
#include "server/api/served_model.h"
#include "server/fleet/fleet.h"
#include "server/fleet/launcher.h"
#include "server/gateway/gateway.h"
#include "server/http/http.h"
#include "server/http/tls.h"
#include "server/metrics/metrics.h"
#include "server/serve.h"
#include "transport/transport.h"

#include <sys/resource.h>

/* The values of the config that belong to a model. */
struct serve_model_config {
    char model[LIMIT_PATH_BYTES];
    char model_name[64];
    char chat_template_file[LIMIT_PATH_BYTES];
    char tool_parser[12];
    char reasoning_parser[12];
    uint32_t context_tokens_max;
    struct config_kv kv;
};

/* A served model. */
struct serve_version {
    uint32_t number;                      /* 0 = none. */
    struct serve_model_config config;     /* The values in effect; `model` is an absolute path. */
    struct serve_model_config from_file;  /* The values as read from file and options. */
    char name[64];                        /* Name in /v1/models. */
    char template_path[LIMIT_PATH_BYTES]; /* Path of chat_template_file; empty = none. */
    struct config_model_bytes file_bytes; /* Sizes of the model's and the draft model's files. */
    uint64_t metadata_hash;               /* model_file_metadata_hash of the model. */
    uint32_t context_tokens;              /* The model's context or, if less, the config's limit. */
    struct layer_groups groups;
    struct served_model *served; /* Tokenizer and chat template; a reference. NULL = not read. */
};

/* State of a model update. "The other version" is serve.other_version. */
enum serve_update {
    SERVE_UPDATE_NONE,     /* There is no other version. */
    SERVE_UPDATE_STARTING, /* The other version is new. Its machines start. */
    SERVE_UPDATE_DRAINING, /* The other version was the current one. Its requests continue. */
    SERVE_UPDATE_ENDING,   /* The other version gets no requests. Its machines end. */
};

struct serve {
    struct serve_options options;
    int argc; /* The command line, for a reload. */
    char **argv;
    /* The running config. Once the fleet is open, the config has no machines. */
    struct config *config;
    /* The config as read from file and options, except values that a reload cannot change. */
    struct config *file_config;
    struct serve_version current;       /* Version of new requests. */
    struct serve_version other_version; /* The new or the earlier version; number 0 = none. */
    enum serve_update update;           /* State of the model update. */
    int64_t update_deadline_us;         /* Latest end of STARTING or DRAINING. */
    int64_t update_ready_us; /* STARTING: since when the other version is ready; -1 = not ready. */
    int64_t update_begun_us; /* When `update` changed last. */
    char update_text[640];   /* How the latest update ended, or why the present update fails. */
    bool update_failed;      /* A machine of the new version does not start. */
    uint32_t version_last;   /* The highest version number so far. */
    bool is_loopback;        /* config_is_loopback of the config at the start. */
    int64_t started_us;
    char http_address[LIMIT_ADDRESS_BYTES]; /* Address on which HTTP listens. */
    bool tls;                               /* HTTP is served over TLS. */
    int64_t keys_expiry_at_us;              /* When the expiry of API keys is checked next. */
    int64_t certificate_expires; /* End of the TLS certificate, Unix time; 0 = no certificate. */
    struct secret_keys cluster_keys;   /* count 0 = no key. */
    int listen_fd;                     /* The HTTP socket, until http_open; -1 = none. */
    int admin_fd;                      /* http/admin_socket, until http_open; 0 or -1 = none. */
    char admin_path[LIMIT_PATH_BYTES]; /* Path of http/admin_socket; empty = none. */
    struct notify notify;              /* The service manager. */
    int signal_fd;                     /* signalfd for the signals of serve_signals_turn. */
    int epoll_fd;                      /* Holds the descriptors that the loop waits for. */
    struct model_file *file;           /* Open during the start only. */
    struct api_keys *keys;
    struct metrics *metrics;
    struct event_log *events; /* NULL = none. */
    struct ledger *ledger;    /* NULL = none. */
    struct spans *spans;      /* NULL = none. */
    struct event_log *access; /* The file of the access log; NULL = none. */
    struct fleet *fleet;
    struct launcher *launcher;
    struct gateway *gateway;
    struct http *http;
    struct watch *watch; /* Watches the machines in etcd; NULL = cluster/membership is not etcd. */
    bool members_checked_again; /* watch_report_again was called for the present update. */
    struct text dump_requests, dump_events;  /* Lines that serve_dump.c writes to the log. */
    size_t dump_requests_at, dump_events_at; /* Bytes of the two texts that were written. */
    int64_t servable_us;       /* When the gateway was ready for the first time; -1 = not yet. */
    bool announced;            /* The line that says that the server is ready was printed. */
    int64_t drain_deadline_us; /* When running requests are ended; -1 = no drain. */
    int64_t refusal_us;        /* When new requests are refused; -1 = refused now, or no drain. */
    int64_t stop_deadline_us;  /* When the machines are killed; -1 = the server does not stop. */
    bool failed;               /* The server stops with the exit status 1. */
    struct error failure;      /* Why `failed` is true. */
    bool work_pending;         /* The event loop must not sleep before the next iteration. */
};

static inline int64_t serve_now_us(void)
{
    return clock_now_us(&clock_system);
}

/* --- serve.c --- */

/* Returns how many open files a gateway with this number of machines needs, not counting HTTP
 * clients. */
rlim_t serve_files_of(uint32_t machine_count);

/* --- serve_files.c --- */

/* The next four functions read or open a file that the config names. Result NULL = the config names
 * no such file, or the access log goes to stderr ("-"). */
enum status serve_keys_read(const struct config *config, struct api_key_set **set_out,
                            struct error *error);
enum status serve_certificate_read(const struct config *config, struct http_certificate **out,
                                   struct error *error);
enum status serve_events_open(const struct config *config, struct event_log **out,
                              struct error *error);
enum status serve_access_open(const struct config *config, struct event_log **out,
                              struct error *error);
/* Opens s->spans, if the config names log/otlp_endpoint. */
enum status serve_spans_open(struct serve *s, struct error *error);
/* Opens s->ledger, if the config names log/ledger_file, and calls serve_keys_restore. */
enum status serve_ledger_open(struct serve *s, struct error *error);
/* Replaces s->access by `log`, and closes the earlier file. Takes over `log`; NULL = no file. */
void serve_access_use(struct serve *s, struct event_log *log);
/* Sets level and format of the log by the config and the command line. Sends a changed level to
 * local machines. */
void serve_log_configure(const struct serve *s);
/* Listens at http/admin_socket (s->admin_fd, s->admin_path), if the config names it. */
enum status serve_admin_socket_open(struct serve *s, struct error *error);
/* Removes the file of http/admin_socket. */
void serve_admin_socket_remove(struct serve *s);
/* Sets s->cluster_keys to the keys of cluster/key_file. Without such a file: to a random key, if
 * only this host can reach the machines and etcd is not used; otherwise to no key. */
enum status serve_cluster_keys_find(struct serve *s, struct error *error);
/* Reads cluster/key_file again. out->count 0 = there is no file, or the keys have not changed. */
enum status serve_cluster_keys_read(const struct serve *s, struct secret_keys *out,
                                    struct error *error);

/* --- serve_keys.c --- */

/* Passes the time to the API keys, and logs keys that are nearer to their expiry than when they
 * were logged last (api_keys_expiry_report). */
void serve_keys_expiry_log(struct serve *s);
/* Passes the time and this gateway's share of the limits to the API keys. Once a minute, logs what
 * serve_keys_expiry_log logs. */
void serve_keys_turn(struct serve *s, int64_t now_us);
/* Passes the time to the API keys. If a key has a limit of a day, counts the ledger's answers of
 * the present day; waits up to a second until the ledger has the answers of a killed process. */
void serve_keys_restore(struct serve *s, const char *ledger_path);

/* --- serve_model.c --- */

/* Copies the values that belong to a model out of a config. */
void serve_model_config_get(const struct config *config, struct serve_model_config *out);
/* Copies the values that belong to a model into a config. */
void serve_model_config_put(const struct serve_model_config *from, struct config *config);
/* Stores the absolute path of the model file or folder. */
enum status serve_model_path(const struct config *config, char out[LIMIT_PATH_BYTES],
                             struct error *error);
/* Opens the model that the config names and fills *out, except `served` and file_bytes.draft. The
 * caller closes *file_out. */
enum status serve_version_open(const struct config *config, uint32_t number,
                               struct serve_version *out, struct model_file **file_out,
                               struct error *error);
/* Checks the draft model or draft layer that machines of this host use, if any. A draft model must
 * have the tokens of the model `file`; stores the size of its files in version->file_bytes.draft.
 * machine_index: see serve_check_machine_files. The text of an error begins with the config key. */
enum status serve_version_draft_check(const struct config *config, int machine_index,
                                      struct model_file *file, struct serve_version *version,
                                      struct error *error);
/* Does what serve_version_draft_check does, but the text of an error does not name the key. */
enum status serve_version_draft_read(const struct config *config, int machine_index,
                                     struct model_file *file, struct serve_version *version,
                                     struct error *error);
/* Sets version->served: reads the tokenizer and the chat template. file: the version's model. */
enum status serve_version_text_read(struct serve_version *version, struct model_file *file,
                                    struct error *error);
/* Frees what the version owns; its number becomes 0. */
void serve_version_done(struct serve_version *version);

/* --- serve_machines.c --- */

/* Adds a machine with a new name. A local machine is started with the model of this version; the
 * gateway connects to a remote machine. Returns NULL, with *error, if there are LIMIT_MACHINES
 * machines, including machines that are leaving. */
struct fleet_machine *serve_machine_add(struct serve *s, const struct config_machine *config,
                                        uint32_t version, struct error *error);
/* Begins to remove a machine: the machine drains. When its requests have ended, a local machine is
 * stopped, and a remote machine is forgotten. */
void serve_machine_remove(struct serve *s, struct fleet_machine *machine);
/* Reverses serve_machine_remove: the machine serves again. Returns false in FLEET_ENDING. */
bool serve_machine_keep(struct serve *s, struct fleet_machine *machine);
/* Continues the removal of machines. */
void serve_machines_turn(struct serve *s);

/* --- serve_members.c --- */

/* Begins to watch the machines that register themselves in etcd, if the config names etcd. */
enum status serve_members_open(struct serve *s, struct error *error);
/* Makes the paths of etcd's files absolute in the config of a local machine. */
void serve_members_prepare(const struct serve *s, struct config *config);
void serve_members_close(struct serve *s);
/* Handles changes of the machines in etcd, and removes expired machines without a connection.
 * Returns the milliseconds until the next call; -1 = none. */
int serve_members_turn(struct serve *s);

/* --- serve_reload.c --- */

/* Reads and checks the config and its files again, then applies the changes. Appends a JSON object
 * to *answer that says what has changed. After an error nothing has changed. is_dry_run: nothing
 * changes, and the answer says what would change. actor: for the audit lines about the changes. */
enum status serve_reload(struct serve *s, bool is_dry_run, const struct audit_actor *actor,
                         struct text *answer, struct error *error);

/* --- serve_update.c --- */

/* What a reload does with the model. */
enum serve_update_plan {
    SERVE_PLAN_NONE,  /* No update: the model stays. */
    SERVE_PLAN_KEEP,  /* An update to the named model continues; machines do not change. */
    SERVE_PLAN_BEGIN, /* Begin an update to another model, which is in *version_out. */
    SERVE_PLAN_BACK,  /* Go back to the model before the update. */
};

/* Decides what the config *next means for the model, and gives the local machines in *next the
 * names of their version. Changes nothing in *s. Returns an error if the change is impossible. */
enum status serve_update_plan(struct serve *s, struct config *next,
                              enum serve_update_plan *plan_out, struct serve_version *version_out,
                              struct error *error);
/* Begins an update to *version, which it takes over on success. The caller adds machines with
 * serve_machine_add. The update is given up if the version is not ready after `update_ms`. */
enum status serve_update_begin(struct serve *s, struct serve_version *version, uint32_t update_ms,
                               struct error *error);
/* Goes back to the model before the update: a version that starts is ended; a version that drains
 * serves again. */
void serve_update_back(struct serve *s);
/* Handles a machine that cannot start. Returns false if the machine does not belong to the other
 * version. Otherwise an update in SERVE_UPDATE_STARTING is given up. */
bool serve_update_machine_failed(struct serve *s, const struct fleet_machine *machine,
                                 const char *reason);
/* Continues the update. Returns the milliseconds until the next call; -1 = none. */
int serve_update_turn(struct serve *s);
/* Changes the name of a local machine in the config to its name in a version: NAME.VERSION, or NAME
 * for version 1. Returns ST_TOO_LARGE if the name is too long. */
enum status serve_update_machine_name(uint32_t version, char name[LIMIT_NAME_BYTES],
                                      struct error *error);
/* Appends the members `versions` and `update` of a JSON object, with a leading comma. */
void serve_update_state_write(const struct serve *s, struct text *out);

/* --- serve_admin.c --- */

/* Returns the functions that carry out the requests to /admin. */
struct http_admin serve_admin_actions(struct serve *s);
/* Returns the HTTP status for the status of an administrator's action. */
unsigned serve_admin_status(enum status status);

/* --- serve_dump.c --- */

/* Begins to write the latest requests and decisions to the log. */
void serve_dump_begin(struct serve *s);
/* Writes some of the lines. Returns the milliseconds until the next call; -1 = none. */
int serve_dump_turn(struct serve *s);
void serve_dump_end(struct serve *s); /* Frees what is left. */

/* --- serve_stop.c --- */

/* Handles signals. SIGTERM and SIGINT begin the drain; during the drain they begin the stop; during
 * the stop they kill the machines. SIGHUP calls serve_reload, unless the drain or the stop has
 * begun. SIGUSR1 calls serve_dump_begin. */
void serve_signals_turn(struct serve *s);
/* Continues the drain or the stop; begins the stop if s->failed. Lowers *timeout_ms to the time
 * until the next step. Returns true when the stop has begun and all local machines have ended. */
bool serve_stop_turn(struct serve *s, int *timeout_ms);

#endif
