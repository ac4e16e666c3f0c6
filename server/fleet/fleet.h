/* fleet: the table of all machines of the cluster, with one record per machine. A machine keeps its
 * index until it is removed. The schedulers, the metrics and the event log identify a machine by
 * this index. server/gateway/, launcher.c and server/serve*.c write the records, and
 * server/metrics/ reads them, all on the gateway's event loop thread. The table starts no processes
 * and makes no connections. */
#ifndef SERVER_FLEET_FLEET_H
#define SERVER_FLEET_FLEET_H

#include "common/status.h"
#include "config/config.h"
#include "host/child.h"
#include "scheduler/rates.h"
#include "server/fleet/machine_bits.h"
#include "transport/message.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct gateway_request; /* See server/gateway/table.h. */
struct gateway_version; /* See server/gateway/internal.h. */
struct transport_peer;  /* See transport/transport.h. */

/* The life of a machine in the cluster:
 *
 *   free ─► serving ◄─────► draining    An operator drains the machine, or ends the drain.
 *           ▲     │             │
 *     kept  │     │ removed     │ removed
 *           │     ▼             │
 *           leaving ◄───────────┘
 *              │
 *              │ no requests are left
 *              ▼
 *           ending ─► free              The process has ended.
 *
 * kept: the removal was reversed (serve_machine_keep). Only local machines reach `ending`; a remote
 * machine goes from leaving to free. The loss of a connection changes no phase. fleet_remove frees
 * a record in any phase. The message LEAVING does not lead to FLEET_LEAVING: a machine that has
 * sent LEAVING drains in its present phase until its connection ends (fleet_connection.wants_end).
 */
enum fleet_phase {
    FLEET_FREE,     /* The record belongs to no machine. */
    FLEET_SERVING,  /* The machine gets requests while it is connected. */
    FLEET_DRAINING, /* The machine finishes its requests and gets no new requests. */
    FLEET_LEAVING,  /* The machine drains, and is removed when it has no requests. */
    FLEET_ENDING,   /* The local machine is being removed; its process was asked to end. */
    FLEET_PHASE_COUNT
};

/* What etcd says about a machine. */
enum fleet_member {
    FLEET_MEMBER_NONE,       /* The config or an operator named it; etcd does not decide. */
    FLEET_MEMBER_REGISTERED, /* The machine has registered itself in etcd. */
    /* The machine is no longer in etcd. It is removed when it has no connection. */
    FLEET_MEMBER_EXPIRED,
};

enum process_state {
    PROCESS_NONE,     /* No process runs, and no process is wanted. */
    PROCESS_DUE,      /* No process runs; a process is started at restart_us. */
    PROCESS_RUNNING,  /* The process starts or runs. */
    PROCESS_ENDING,   /* launcher_machine_stop has asked the process to end. */
    PROCESS_GIVEN_UP, /* The first process ended before it was ready; no other is started. */
};

/* The process of a local machine; launcher.c writes it. */
struct fleet_process {
    enum process_state state;
    pid_t pid;    /* 0 = no process. */
    int pidfd;    /* -1 = no process. */
    int ready_fd; /* Reading end of the pipe for the ready line; -1 = closed. */
    int keys_fd;  /* For child_keys_send; -1 = no keys, or no process. */
    /* The record of the requests in its running batches (host/batch_record.h); -1 = no process. */
    int batches_fd;
    struct child_line ready_line;
    /* Why the process ends, as the process wrote it: a part of `ready_line`; NULL = no reason. */
    const char *failure;
    bool was_ready;     /* A process of the machine was ready. */
    uint64_t starts;    /* Number of processes that were started for the machine so far. */
    int64_t started_us; /* When the process was started. */
    int64_t kill_us;    /* PROCESS_ENDING: when the process is killed. */
    int64_t restart_us; /* PROCESS_DUE: when a process is started. */
    /* Pause from the next end of the process to its restart, if the run is short (launcher.h). */
    int64_t backoff_us;
};

enum connection_state {
    CONNECTION_NONE,    /* There is no connection, and no attempt is planned. */
    CONNECTION_WAITING, /* The next attempt is at retry_us. */
    CONNECTION_TRYING,  /* transport_connect was called. */
    CONNECTION_UP,
};

/* The gateway's connection to a machine; server/gateway/ writes it (connections.h). */
struct fleet_connection {
    enum connection_state state;
    bool broken; /* connections_turn will drop the connection. */
    /* The machine is not used, because its model, its KV settings or its protocol does not fit. */
    bool mismatch;
    bool wants_end;   /* The machine has sent LEAVING: it drains until this connection ends. */
    bool end_granted; /* The gateway has answered LEAVING with SHUTDOWN. */
    char address[LIMIT_ADDRESS_BYTES]; /* Empty = none. */
    struct transport_peer *peer;       /* NULL = no connection and no attempt. */
    int64_t retry_us;                  /* CONNECTION_WAITING: time of the next attempt. */
    int64_t backoff_us;                /* Pause after the next loss or failed attempt. */
    char down_reason[256];             /* Why the machine is not connected; empty = unknown. */
    char logged_reason[256];           /* The `down_reason` of the latest failed attempt. */
};

/* The record of one machine. */
struct fleet_machine {
    uint32_t index;               /* Index in fleet.machines. */
    struct config_machine config; /* The name is empty in a free record. */
    enum fleet_phase phase;       /* fleet_phase_set changes it. */
    enum fleet_member member;     /* fleet_member_set changes it. */
    struct fleet_process process;
    struct fleet_connection connection;

    /* server/gateway/ writes the fields below. fleet.c sets the first value of `home`, and
     * server/serve.c the first value of fixed_version. */

    /* Model version of a local machine; 0 = the model that the machine reports decides. */
    uint32_t fixed_version;
    struct gateway_version *version; /* Model version; changes only while it is not connected. */
    enum pool home;                  /* Home pool. */
    uint64_t home_serial; /* Number of the latest change of `home`; 0 = the pool of the config. */
    enum pool pool;       /* Current pool, while the machine is connected. */
    uint64_t kv_tokens;   /* Longest context that its KV memory holds; 0 = not known. */
    int64_t down_us;      /* When its latest connection ended; 0 = no connection has ended. */
    struct sched_rates rates;     /* Measured speed. */
    struct message_stats stats;   /* Latest STATS of this connection; all zeros = none. */
    struct message_about about;   /* Latest ABOUT; empty texts = none. */
    struct message_others others; /* Latest OTHERS of this connection; others.gateways 0 = none. */
    bool another_leads;           /* `others` names another gateway as the leader. */
    struct machine_bits links;    /* Machines that it can write KV to. */
    /* List of the machine's running answers whose KV will be copied (checkpoint_due.h). */
    struct gateway_request *copy_first;
    struct gateway_request *copy_last;
    uint32_t copies_sending; /* Copies and pulls (checkpoints.h) for which the machine sends KV. */
    uint32_t crashes;        /* Crashes of its local process (gateway_machine_crashed). */
    char crash_reason[160];  /* Text of the latest crash; empty = none. */
    /* "PEER: WHY" of the latest failure of a link from this machine; empty = none. Cleared when a
     * link from this machine comes up, and when the machine's connection ends. */
    char link_down_reason[320];
};

struct fleet {
    uint32_t count; /* Number of records up to the last record that was ever in use. */
    uint32_t phase_counts[FLEET_PHASE_COUNT]; /* Machines in each phase, except FLEET_FREE. */
    uint32_t wants_end_count;                 /* Machines with connection.wants_end set. */
    uint32_t expired_count;                   /* Machines with FLEET_MEMBER_EXPIRED. */
    struct fleet_machine machines[LIMIT_MACHINES];
};

/* Opens a fleet with the config's machines, in their order, in the phase FLEET_SERVING. Sets
 * config->machine_count to 0. Returns ST_NO_MEMORY on failure. */
enum status fleet_open(struct config *config, struct fleet **out);
void fleet_close(struct fleet *f); /* NULL is fine. */

/* Returns the machine with the next higher index. machine NULL = return the first machine. Returns
 * NULL if no machine has a higher index. `machine` may have been removed since it was returned. */
struct fleet_machine *fleet_next(const struct fleet *f, const struct fleet_machine *machine);
/* Returns the machine with this name; NULL = none. */
struct fleet_machine *fleet_find(const struct fleet *f, const char *name);

/* Adds a machine in the phase FLEET_SERVING. Requires that no machine has the name. Returns NULL if
 * there are LIMIT_MACHINES machines, including machines that are leaving. */
struct fleet_machine *fleet_add(struct fleet *f, const struct config_machine *config);
/* Clears the record. Requires that the machine has no process and no connection. */
void fleet_remove(struct fleet *f, struct fleet_machine *machine);

/* Changes the phase of a machine along an arrow of the drawing above; no effect if the phases are
 * equal. Not for FLEET_FREE: see fleet_add and fleet_remove. */
void fleet_phase_set(struct fleet *f, struct fleet_machine *machine, enum fleet_phase phase);
/* wants_end true = LEAVING has arrived; false = the connection has ended. Clears end_granted. */
void fleet_wants_end_set(struct fleet *f, struct fleet_machine *machine, bool wants_end);
/* Records what etcd says about the machine. */
void fleet_member_set(struct fleet *f, struct fleet_machine *machine, enum fleet_member member);

/* Writes the machines' configs into *out, each at its index; free records become empty entries. */
void fleet_config_write(const struct fleet *f, struct config *out);

/* Returns the name of the machine; "" for a free record, "?" for an index that was not used yet. */
static inline const char *fleet_name(const struct fleet *f, uint32_t index)
{
    return index < f->count ? f->machines[index].config.name : "?";
}

static inline bool fleet_machine_present(const struct fleet_machine *machine)
{
    return machine->phase != FLEET_FREE;
}

/* Returns true if the machine gets no new requests because it drains, leaves or wants to end. */
static inline bool fleet_machine_draining(const struct fleet_machine *machine)
{
    return machine->phase >= FLEET_DRAINING || machine->connection.wants_end;
}

static inline bool fleet_any_leaving(const struct fleet *f)
{
    return f->phase_counts[FLEET_LEAVING] > 0 || f->phase_counts[FLEET_ENDING] > 0;
}

static inline bool fleet_any_draining(const struct fleet *f)
{
    return f->phase_counts[FLEET_DRAINING] > 0 || f->wants_end_count > 0 || fleet_any_leaving(f);
}

/* Returns the number of machines. */
static inline uint32_t fleet_present_count(const struct fleet *f)
{
    uint32_t count = 0;
    for (int phase = FLEET_SERVING; phase < FLEET_PHASE_COUNT; phase++)
        count += f->phase_counts[phase];
    return count;
}

/* Returns true if the machine is being removed. */
static inline bool fleet_machine_leaving(const struct fleet_machine *machine)
{
    return machine->phase >= FLEET_LEAVING;
}

static inline bool fleet_machine_up(const struct fleet_machine *machine)
{
    return machine->connection.state == CONNECTION_UP;
}

#endif
