/* serve_internal: the structs and functions that the files of `cleave serve` share. serve.c: start
 * and loop. serve_options.c: the command line. serve_check.c: checks without a start.
 * serve_files.c: files that the config names. serve_keys.c: API keys as time passes.
 * serve_model.c: the model file. serve_reload.c: reads these files again. serve_update.c: replaces
 * one model by another. serve_machines.c: adds and removes machines. serve_members.c: adds and
 * removes the machines that etcd reports. serve_admin.c: /admin. serve_dump.c: SIGUSR1.
 * serve_stop.c: the orderly end. Only these files include this header. Everything runs on the main
 * thread, which is the gateway's loop thread. These files route no requests (server/gateway/) and
 * answer no clients (server/http/). */
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

/* A model and its machines. */
struct serve_version {
    uint32_t number;                      /* 0 = none. */
    struct serve_model_config config;     /* As from_file, but `model` is an absolute path. */
    struct serve_model_config from_file;  /* The values as the config has them. */
    char name[64];                        /* Name in /v1/models. */
    char template_path[LIMIT_PATH_BYTES]; /* Path of chat_template_file; empty = none. */
    struct config_model_bytes file_bytes; /* Of the model, and of its draft model. */
    uint64_t metadata_hash;
    uint32_t context_tokens; /* The model's context, or the config's limit if that is less. */
    struct layer_groups groups;
    struct served_model *served; /* The version holds a reference. */
};

/* State of the version `other_version`. */
enum serve_update {
    SERVE_UPDATE_NONE,     /* There is no other version. */
    SERVE_UPDATE_STARTING, /* Its machines start; it will replace the current version. */
    SERVE_UPDATE_DRAINING, /* It was the current version; its requests continue until they end. */
    SERVE_UPDATE_ENDING,   /* It has no requests; its machines end. */
};

struct serve {
    struct serve_options options;
    int argc; /* The command line, for a reload. */
    char **argv;
    /* The running config. Once the fleet is open, the config has no machines. */
    struct config *config;
    /* The config as the file had it at the latest reload, except that values that a reload cannot
     * change stay as at the start. */
    struct config *file_config;
    struct serve_version current;       /* Version of new requests. */
    struct serve_version other_version; /* The new version, or the one before; number 0 = none. */
    enum serve_update update;           /* State of `other_version`. */
    /* STARTING, DRAINING: time at which the state ends at the latest. */
    int64_t update_deadline_us;
    int64_t update_ready_us; /* STARTING: when everything became ready; -1 = it is not ready. */
    /* When the update entered its present state; for NONE, when the latest update ended. */
    int64_t update_begun_us;
    char update_text[640]; /* How the latest update ended, or why the present one fails. */
    bool update_failed;    /* A machine of the new version does not start. */
    uint32_t version_last; /* The highest version number so far. */
    bool is_loopback;      /* config_is_loopback of the config at the start. */
    int64_t started_us;
    char http_address[LIMIT_ADDRESS_BYTES]; /* Address on which HTTP listens. */
    bool tls;                               /* HTTP is served over TLS. */
    int64_t keys_expiry_at_us;              /* When the expiry of API keys is checked next. */
    int64_t certificate_expires;     /* When the certificate expires, in seconds since 1970. */
    struct secret_keys cluster_keys; /* count 0 = no key. */
    int listen_fd;
    int admin_fd; /* 0 = none. */
    char admin_path[LIMIT_PATH_BYTES];
    struct notify notify;    /* The service manager. */
    int signal_fd;           /* signalfd for the signals of serve_signals_turn. */
    int epoll_fd;            /* Holds the descriptors that the loop waits for. */
    struct model_file *file; /* Open during the start only. */
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
    /* The machines in etcd were reported again for the present update (watch_report_again), because
     * a machine that did not fit the old model may fit the new one. */
    bool members_checked_again;
    /* Lines that serve_dump.c is writing to the log, and the bytes that are written. */
    struct text dump_requests, dump_events;
    size_t dump_requests_at, dump_events_at;
    int64_t servable_us; /* When both phases could be served for the first time; -1 = not yet. */
    bool announced;      /* The line that says that the server is ready was printed. */
    /* Time at which requests that still run are ended; -1 = the server does not drain. */
    int64_t drain_deadline_us;
    /* Time from which new requests are refused because the server drains; -1 = they are refused
     * already, or the server does not drain. */
    int64_t refusal_us;
    int64_t stop_deadline_us; /* Time at which the machines are killed; -1 = not stopping. */
    bool failed;              /* The exit status will be 1. */
    struct error failure;     /* Why `failed` is true. */
    /* The loop must not sleep, because a later part of the iteration gave work to an earlier
     * part. */
    bool work_pending;
};

static inline int64_t serve_now_us(void)
{
    return clock_now_us(&clock_system);
}

/* --- serve.c --- */

/* Returns the largest number of descriptors that a gateway with `machines` machines needs, without
 * those of clients. */
rlim_t serve_files_of(uint32_t machines);

/* --- serve_files.c --- */

/* Read and check, or open, a file that the config names, and store the result; NULL = the config
 * names no such file. They change nothing else. */
enum status serve_keys_read(const struct config *config, struct api_key_set **set_out,
                            struct error *error);
enum status serve_certificate_read(const struct config *config, struct http_certificate **out,
                                   struct error *error);
enum status serve_events_open(const struct config *config, struct event_log **out,
                              struct error *error);
enum status serve_access_open(const struct config *config, struct event_log **out,
                              struct error *error);
/* Open s->spans and s->ledger, if the config names them. serve_ledger_open also calls
 * serve_keys_restore. */
enum status serve_spans_open(struct serve *s, struct error *error);
enum status serve_ledger_open(struct serve *s, struct error *error);
/* Replaces the file of the access log (NULL = none), and closes the one before. */
void serve_access_use(struct serve *s, struct event_log *log);
/* Sets level and format of the log, as the config and the command line say. Sends the level to
 * local machines if it has changed. */
void serve_log_configure(const struct serve *s);
/* Listens at http/admin_socket, if the config names one. */
enum status serve_admin_socket_open(struct serve *s, struct error *error);
/* Removes the file of the socket, which http_close closes. */
void serve_admin_socket_remove(struct serve *s);
/* Sets s->cluster_keys: the keys of cluster/key_file. Without such a file: a random key, which only
 * local machines get, if only this host can reach the machines and etcd is not used; else no
 * key. */
enum status serve_cluster_keys_find(struct serve *s, struct error *error);
/* Reads cluster/key_file again. out->count 0 = the config names no file, or the keys are as
 * before. */
enum status serve_cluster_keys_read(const struct serve *s, struct secret_keys *out,
                                    struct error *error);

/* --- serve_keys.c --- */

/* Passes the time to the API keys, and logs those that expire soon or have expired, each state
 * once. */
void serve_keys_expiry_log(struct serve *s);
/* Passes the time and this gateway's share of the limits to the API keys. Once a minute it also
 * logs keys as serve_keys_expiry_log does. */
void serve_keys_turn(struct serve *s, int64_t now_us);
/* Counts the answers of the present day that earlier processes have written into the ledger, if a
 * key has a limit of a day. Waits up to a second for answers that a kill has cut. */
void serve_keys_restore(struct serve *s, const char *ledger_path);

/* --- serve_model.c --- */

/* Copy the parts of the config that belong to a model, out of a config and into a config. */
void serve_model_config_get(const struct config *config, struct serve_model_config *out);
void serve_model_config_put(const struct serve_model_config *from, struct config *config);
/* Stores the absolute path of the model file or folder. */
enum status serve_model_path(const struct config *config, char out[LIMIT_PATH_BYTES],
                             struct error *error);
/* Opens the model file that the config names and reads its metadata, but neither tokenizer nor chat
 * template. The caller closes *file_out. */
enum status serve_version_open(const struct config *config, uint32_t number,
                               struct serve_version *out, struct model_file **file_out,
                               struct error *error);
/* Checks that the draft model's files can be opened and have the tokens of the model `file`, and
 * adds their size to the version, if a machine of this host has a draft model. machine_index: see
 * serve_check_machine_files. Errors do not name the key. */
enum status serve_version_draft_check(const struct config *config, int machine_index,
                                      struct model_file *file, struct serve_version *version,
                                      struct error *error);
/* Reads the tokenizer and the chat template of the version's model. */
enum status serve_version_text_read(struct serve_version *version, struct model_file *file,
                                    struct error *error);
void serve_version_done(struct serve_version *version);

/* --- serve_machines.c --- */

/* Adds a machine with a new name. A local machine is started, with the model of this version; the
 * gateway connects to a remote machine. Returns NULL, with *error, if there are LIMIT_MACHINES
 * machines, including machines that are leaving. */
struct fleet_machine *serve_machine_add(struct serve *s, const struct config_machine *config,
                                        uint32_t version, struct error *error);
/* Begins to remove a machine: it drains. When its requests have ended, a local machine is stopped,
 * and a remote machine is forgotten. */
void serve_machine_remove(struct serve *s, struct fleet_machine *machine);
/* Reverses serve_machine_remove: the machine serves again. Returns false if it is already
 * ending. */
bool serve_machine_keep(struct serve *s, struct fleet_machine *machine);
/* Continues the removal of leaving machines. */
void serve_machines_turn(struct serve *s);

/* --- serve_members.c --- */

/* Begins to watch the machines that register themselves in etcd, if the config says so. */
enum status serve_members_open(struct serve *s, struct error *error);
/* Makes the paths of etcd's files absolute in the config of a local machine. */
void serve_members_prepare(const struct serve *s, struct config *config);
void serve_members_close(struct serve *s);
/* Handles changes of the machines in etcd. Returns the milliseconds until the next call; -1 =
 * none. */
int serve_members_turn(struct serve *s);

/* --- serve_reload.c --- */

/* Reads and checks the config and its files again, then applies the changes. dry: nothing changes,
 * and the answer says what would change. On an error nothing has changed. *answer receives a JSON
 * object. The audit log names `actor` for each key and machine that was added, removed or changed,
 * and for a model update. */
enum status serve_reload(struct serve *s, bool dry, const struct audit_actor *actor,
                         struct text *answer, struct error *error);

/* --- serve_update.c --- */

/* What a reload does with the model. */
enum serve_update_plan {
    SERVE_PLAN_NONE,  /* The model stays. */
    SERVE_PLAN_KEEP,  /* An update to the named model is in progress: the machines stay. */
    SERVE_PLAN_BEGIN, /* Begin an update to another model, which is in *version_out. */
    SERVE_PLAN_BACK,  /* Go back to the earlier model, which is still open. */
};

/* Decides what a new config means for the model. Gives the local machines in *next the names of
 * their version; changes nothing else. An error says why the change is impossible. */
enum status serve_update_plan(struct serve *s, struct config *next,
                              enum serve_update_plan *plan_out, struct serve_version *version_out,
                              struct error *error);
/* Begins the planned update and takes over *version. serve_reload starts its machines. The update
 * is given up after `update_ms`. */
enum status serve_update_begin(struct serve *s, struct serve_version *version, uint32_t update_ms,
                               struct error *error);
/* Goes back to the earlier model. A new version that is starting is ended; an old version that is
 * draining serves again. */
void serve_update_back(struct serve *s);
/* Handles a machine that cannot start. Returns true if it belongs to the other version; a starting
 * update is then given up. */
bool serve_update_machine_failed(struct serve *s, const struct fleet_machine *machine,
                                 const char *reason);
/* Continues the update. Returns the milliseconds until the next call; -1 = none. */
int serve_update_turn(struct serve *s);
/* Changes the name of a local machine in the config file to its name in a version: NAME.VERSION;
 * unchanged for version 1. */
enum status serve_update_machine_name(uint32_t version, char name[LIMIT_NAME_BYTES],
                                      struct error *error);
/* Appends members of a JSON object, with a leading comma. */
void serve_update_state_write(const struct serve *s, struct text *out);

/* --- serve_admin.c --- */

/* The actions of /admin. */
struct http_admin serve_admin_actions(struct serve *s);
/* Returns the HTTP status that answers an act of an administrator. */
unsigned serve_admin_status(enum status status);

/* --- serve_dump.c --- */

/* Begins to write the latest requests and decisions to the log. */
void serve_dump_begin(struct serve *s);
/* Writes some of the lines. Returns the milliseconds until the next call; -1 = none. */
int serve_dump_turn(struct serve *s);
void serve_dump_end(struct serve *s); /* Frees what is left. */

/* --- serve_stop.c --- */

/* Handles signals. SIGTERM and SIGINT: the first lets requests finish, the second stops now, the
 * third kills the machines. SIGHUP calls serve_reload, SIGUSR1 serve_dump_begin. */
void serve_signals_turn(struct serve *s);
/* Continues the drain or the stop, and lowers *timeout_ms to the time until the next step. Returns
 * true when the stop has begun and all machines that this process has started have ended. */
bool serve_stop_turn(struct serve *s, int *timeout_ms);

#endif
