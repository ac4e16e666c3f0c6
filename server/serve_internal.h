/* serve_internal: what the files of `cleave serve` share: serve.c starts everything and runs the
 * loop, serve_files.c reads the files that the config names, serve_model.c the model's,
 * serve_reload.c reads them all again, serve_update.c puts one model in the place of another,
 * serve_machines.c adds and takes out machines, serve_members.c does so as etcd says, serve_admin.c
 * is what /admin does, serve_stop.c ends it all in good order. */
#ifndef SERVER_SERVE_INTERNAL_H
#define SERVER_SERVE_INTERNAL_H

#include "common/clock.h"
#include "common/machine_bits.h"
#include "membership/watch.h"
#include "model/model.h"
#include "model/model_file.h"
#include "server/api_keys.h"
#include "server/gateway.h"
#include "server/http.h"
#include "server/http_tls.h"
#include "server/launcher.h"
#include "server/metrics.h"
#include "server/serve.h"
#include "server/served_model.h"
#include "transport/transport.h"

/* What of the config goes with a model. */
struct serve_model_config {
    char model[LIMIT_PATH_BYTES];
    char model_name[64];
    uint32_t context_tokens_max;
    struct config_kv kv;
};

/* One model, and the machines that have it. */
struct serve_version {
    uint32_t number;                  /* 0: there is none */
    struct serve_model_config config; /* its `model` is a path that is right in any directory */
    struct serve_model_config asked;  /* as it was read */
    char name[64];                    /* what /v1/models says */
    uint64_t file_bytes;
    uint64_t metadata_hash;
    uint32_t context_tokens;     /* the model's, or what the config allows of them */
    struct served_model *served; /* a reference */
};

/* What becomes of `other`. */
enum serve_update {
    SERVE_UPDATE_NONE,     /* there is none */
    SERVE_UPDATE_STARTING, /* its machines start: it will take the current one's place */
    SERVE_UPDATE_DRAINING, /* it was the current one: its requests go on to their end */
    SERVE_UPDATE_ENDING,   /* it has no requests: its machines end */
};

struct serve {
    struct serve_options options;
    int argc; /* the command line, for reading the config again */
    char **argv;
    struct config *config; /* what runs: machines keep their indices (config_machine_present) */
    struct config *asked;  /* as it was read; what a reload may not change stays as at the start */
    struct serve_version current; /* of new requests */
    struct serve_version other;
    enum serve_update update;
    int64_t update_us;       /* STARTING, DRAINING: until when it may take */
    int64_t update_ready_us; /* STARTING: since when all is there; -1: it is not */
    int64_t update_begun_us; /* when it entered its state; of NONE: when the last one ended */
    char update_text[384];   /* how the last one went, or why this one fails */
    bool update_failed;      /* a machine of it does not start */
    uint32_t version_last;   /* the highest number yet */
    uint32_t machine_versions[LIMIT_MACHINES]; /* of local ones; 0: remote ones have any */
    bool is_loopback;                          /* config_is_loopback of the config at the start */
    int64_t started_us;
    char bound[LIMIT_ADDRESS_BYTES];
    bool tls;
    int64_t certificate_expires; /* seconds since 1970 */
    bool has_cluster_key;
    uint8_t cluster_key[TRANSPORT_KEY_BYTES];
    int listen_fd;
    int signals;
    int epoll;
    struct model_file *file; /* while it starts */
    struct api_keys *keys;
    struct metrics *metrics;
    struct event_log *events; /* NULL: none */
    struct launcher *launcher;
    struct gateway *gateway;
    struct http *http;
    struct watch *watch; /* NULL: machines are those of the file */
    bool members_told;   /* of the model that an update brings: what did not fit may fit it */
    uint32_t gone_count; /* members whose entries are gone, and whose connections are not */
    struct serve_member {
        bool is;   /* this machine came from etcd */
        bool gone; /* its entry is gone */
    } members[LIMIT_MACHINES];
    int64_t servable_us; /* since when both phases can be served; -1: not yet */
    bool announced;
    int64_t drain_us;             /* until when requests may finish; -1: not draining */
    int64_t stop_us;              /* when the machines are killed; -1: not stopping */
    bool failed;                  /* the exit status */
    struct machine_bits removing; /* machines that are to leave */
    struct machine_bits ending;   /* of those, whose processes have been asked to end */
    bool hurry; /* the loop must not sleep: a later part of a turn gave work to an earlier one */
};

static inline int64_t serve_now_us(void)
{
    return clock_now_us(&clock_system);
}

/* --- serve_files.c --- */

/* What the config names, checked; NULL where it names none. Nothing changes. */
enum status serve_keys_read(const struct config *config, struct api_key_set **set_out,
                            struct error *error);
enum status serve_certificate_read(const struct config *config, struct http_certificate **out,
                                   struct error *error);
enum status serve_events_open(const struct config *config, struct event_log **out,
                              struct error *error);
/* Machines that only this computer reaches prove a key that nobody else can know; others have it
 * from a file.
 */
enum status serve_cluster_key_find(struct serve *s, struct error *error);

/* --- serve_model.c --- */

void serve_model_get(const struct config *config, struct serve_model_config *out);
void serve_model_put(const struct serve_model_config *from, struct config *config);
/* The model's file, by a path that is right in any directory. */
enum status serve_model_path(const struct config *config, char out[LIMIT_PATH_BYTES],
                             struct error *error);
/* Reads the file that the config names, but no texts yet. The caller closes *file_out. */
enum status serve_version_open(const struct config *config, uint32_t number,
                               struct serve_version *out, struct model_file **file_out,
                               struct error *error);
/* Its tokenizer and chat template. */
enum status serve_version_text(struct serve_version *version, struct model_file *file,
                               struct error *error);
void serve_version_done(struct serve_version *version);

/* --- serve_machines.c --- */

/* Adds a machine whose name is new, and starts it (a local one, with that version's model) or
 * connects to it. ST_NO_RESOURCE: there are LIMIT_MACHINES, those that are leaving included. */
enum status serve_machine_add(struct serve *s, const struct config_machine *machine,
                              uint32_t version, struct error *error);
/* It gets nothing new; when its requests have ended it ends (a local one) or is forgotten. */
void serve_machine_remove(struct serve *s, uint32_t machine);
/* Takes serve_machine_remove back. False: its process is ending already. */
bool serve_machine_keep(struct serve *s, uint32_t machine);
void serve_machine_pool(struct serve *s, uint32_t machine, enum config_pool pool);
bool serve_machine_leaving(const struct serve *s, uint32_t machine);
/* Goes on with those that leave. */
void serve_machines_turn(struct serve *s);

/* --- serve_members.c --- */

/* Finds the machines that register themselves in etcd, if the config says so. */
enum status serve_members_open(struct serve *s, struct error *error);
void serve_members_close(struct serve *s);
int serve_members_turn(struct serve *s); /* ms until the next one, or -1 */

/* --- serve_reload.c --- */

/* Reads and checks everything again, then changes what has changed. An error: nothing has. *answer
 * is a JSON object. */
enum status serve_reload(struct serve *s, struct text *answer, struct error *error);

/* --- serve_update.c --- */

/* What a reload has to do with models. */
enum serve_update_plan {
    SERVE_PLAN_NONE,  /* the model stays */
    SERVE_PLAN_KEEP,  /* an update is under way to the model that it names: machines stay */
    SERVE_PLAN_BEGIN, /* to another model: *version_out has it */
    SERVE_PLAN_BACK,  /* to the one before, which is still there */
};

/* What a config that was read asks for; it is changed: its local machines get the names that they
 * have in their version. Nothing else changes; an error says why it cannot be done. */
enum status serve_update_plan(struct serve *s, struct config *next,
                              enum serve_update_plan *plan_out, struct serve_version *version_out,
                              struct error *error);
/* Begins what was planned: the version is taken over; its machines are serve_reload's to start. */
enum status serve_update_begin(struct serve *s, struct serve_version *version, struct error *error);
/* Goes back to the model before: a new one that starts ends, one that drains serves again. */
void serve_update_back(struct serve *s);
/* True: the machine, which cannot start, is of a new model; the update will be given up. */
bool serve_update_failed(struct serve *s, uint32_t machine, const char *why);
/* Goes on with it. Returns the milliseconds until it wants to look again, or -1. */
int serve_update_turn(struct serve *s);
/* The name of a local machine in a version, of the name in the config file. */
enum status serve_update_name(uint32_t version, char name[LIMIT_NAME_BYTES], struct error *error);
/* Members of a JSON object, with a comma before them. */
void serve_update_state(const struct serve *s, struct text *out);

/* --- serve_admin.c --- */

/* What /admin does. */
struct http_admin serve_admin(struct serve *s);

/* --- serve_stop.c --- */

/* SIGTERM and SIGINT: the first lets requests finish, the second does not, the third kills. */
void serve_signals_turn(struct serve *s);
/* True when everything has ended. */
bool serve_stop_turn(struct serve *s, int *timeout_ms);

#endif
