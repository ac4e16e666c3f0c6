/* fleet: the table of all machines of the cluster, with one record per machine. A machine keeps its
 * index until it is removed. The schedulers, the metrics and the event log identify a machine by
 * this index. The table only stores and finds records: server/gateway/ connects to the machines and
 * removes them, launcher.c runs the processes of local machines, server/serve*.c open the table and
 * add machines, and server/metrics/ only reads. All run on the gateway's event loop thread. */
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
 *   free ─► serving ◄─► draining      an operator drains it, or ends the drain
 *             ▲ │          │
 *             │ ▼          │
 *           leaving ◄──────┘
 *              │
 *              ▼
 *           ending ─► free
 *
 * A machine stays in its phase when its connection is lost. fleet_remove frees a record in any
 * phase. A machine that has sent the message LEAVING (`wants_end`) drains in any phase, until its
 * connection ends. */
enum fleet_phase {
    FLEET_FREE,     /* The record belongs to no machine. */
    FLEET_SERVING,  /* The machine gets requests while it is connected. */
    FLEET_DRAINING, /* The machine finishes its requests and gets no new requests. */
    FLEET_LEAVING,  /* The machine drains, and is removed when it has no requests. */
    FLEET_ENDING,   /* The machine is being removed, and its process was asked to end. */
    FLEET_PHASE_COUNT
};

/* What etcd says about a machine. */
enum fleet_member {
    FLEET_MEMBER_NONE,       /* The config or an operator named it; etcd does not decide. */
    FLEET_MEMBER_REGISTERED, /* The machine is registered in etcd. */
    FLEET_MEMBER_EXPIRED,    /* The machine was registered in etcd, and its entry is gone. */
};

enum process_state {
    PROCESS_NONE,     /* No process runs, and no process is wanted. */
    PROCESS_DUE,      /* No process runs; a process is started at restart_us. */
    PROCESS_RUNNING,  /* The process starts or runs. */
    PROCESS_ENDING,   /* The process was asked to end, and is killed at kill_us. */
    PROCESS_GIVEN_UP, /* The process ended before it was ever ready, and is not started again. */
};

/* The process of a local machine; launcher.c writes it. */
struct fleet_process {
    enum process_state state;
    pid_t pid;    /* 0 = no process. */
    int pidfd;    /* -1 = no process. */
    int ready_fd; /* Reading end of the pipe for the ready line; -1 = read, or no process. */
    int keys_fd;  /* For child_keys_send; -1 = no keys, or no process. */
    /* The record of the requests in its running batches (host/batch_record.h); -1 = no process. */
    int batches_fd;
    struct child_line ready_line;
    /* Why the process ends, as the process wrote it: a part of `ready_line`; NULL = no reason. */
    const char *failure;
    bool was_ready;     /* This process or an earlier process of the machine was ready. */
    uint64_t starts;    /* Number of processes that were started for the machine so far. */
    int64_t started_us; /* When the process was started. */
    int64_t kill_us;    /* PROCESS_ENDING: when the process is killed. */
    int64_t restart_us; /* PROCESS_DUE: when a process is started. */
    int64_t backoff_us; /* Pause between the next end of the process and the restart. */
};

enum connection_state {
    CONNECTION_NONE,    /* There is no address. */
    CONNECTION_WAITING, /* The next attempt is at retry_us. */
    CONNECTION_TRYING,  /* transport_connect was called. */
    CONNECTION_UP,
};

/* The gateway's connection to a machine; server/gateway/ writes it (connections.h). */
struct fleet_connection {
    enum connection_state state;
    /* A send failed, or the machine broke the protocol: the next iteration drops the connection. */
    bool broken;
    /* The latest attempt failed because the machine has another model, other KV settings or another
     * protocol. */
    bool mismatch;
    bool wants_end; /* The machine has sent LEAVING: it drains until this connection ends. */
    /* SHUTDOWN was sent, because this gateway no longer has requests on the machine. */
    bool end_granted;
    char address[LIMIT_ADDRESS_BYTES]; /* Empty = none. */
    struct transport_peer *peer;       /* NULL = no connection and no attempt. */
    int64_t retry_us;                  /* CONNECTION_WAITING: time of the next attempt. */
    int64_t backoff_us;                /* Pause after the next loss or failed attempt. */
    char down_reason[256];             /* Why the machine is not connected. */
    /* The text `down_reason` that was logged last, so that the same reason is logged only once. */
    char logged_reason[256];
};

/* The record of one machine. */
struct fleet_machine {
    uint32_t index;               /* Index in fleet.machines. */
    struct config_machine config; /* The name is empty in a free record. */
    enum fleet_phase phase;       /* fleet_phase_set changes it. */
    enum fleet_member member;     /* fleet_member_set changes it. */
    struct fleet_process process;
    struct fleet_connection connection;

    /* server/gateway/ writes the fields below; server/serve.c sets `fixed_version` at the start. */

    /* Model version of a local machine; 0 = the model that the machine reports decides. */
    uint32_t fixed_version;
    /* Version of its latest connection, or of its next connection. */
    struct gateway_version *version;
    enum pool home; /* Home pool, from the config, an operator, the scheduler or another gateway. */
    /* Number of the latest change of `home`, by which gateways find the latest change; 0 = the pool
     * of the config. */
    uint64_t home_serial;
    enum pool pool; /* Current pool. */
    /* Tokens of the longest context that its KV memory holds, as of its latest connection. */
    uint64_t kv_tokens;
    int64_t down_us; /* When its latest connection ended; 0 = no connection has ended. */
    struct sched_rates rates;
    struct message_stats stats;   /* Latest STATS; all zero = not received yet. */
    struct message_about about;   /* Latest ABOUT; empty texts = not received yet. */
    struct message_others others; /* Latest OTHERS; gateways = 0: not received yet. */
    /* Another gateway that is connected to the machine decides about home pools. */
    bool another_leads;
    struct machine_bits links; /* Machines that it can write KV to. */
    /* First and last of its running answers, by the time of the next copy of their KV
     * (checkpoint_due.h). */
    struct gateway_request *copy_first;
    struct gateway_request *copy_last;
    uint32_t copies_sent;   /* Copies and pulls (checkpoints.h) that the machine is sending now. */
    uint32_t crashes;       /* Crashes of its local process (gateway_machine_crashed). */
    char crash_reason[160]; /* Text of the latest crash; empty = none. */
    /* The latest link from the machine that failed, and why; empty = none, or forgotten since. */
    char link_reason[320];
};

struct fleet {
    uint32_t count; /* Number of records up to the last record that was ever in use. */
    /* Number of machines in each phase; the entry of FLEET_FREE is not used. */
    uint32_t phase_counts[FLEET_PHASE_COUNT];
    uint32_t wants_end_count; /* Machines with connection.wants_end set (fleet_wants_end_set). */
    uint32_t expired_count;   /* Machines in FLEET_MEMBER_EXPIRED. */
    struct fleet_machine machines[LIMIT_MACHINES];
};

/* Opens a fleet with the config's machines, in their order, and sets config->machine_count to 0.
 * Returns ST_NO_MEMORY on failure. */
enum status fleet_open(struct config *config, struct fleet **out);
void fleet_close(struct fleet *f); /* NULL is fine. */

/* Returns the machine after `machine` in the order of indices; machine NULL: the first machine.
 * Returns NULL if there is no further machine. The caller may remove `machine` before the next
 * call. */
struct fleet_machine *fleet_next(const struct fleet *f, const struct fleet_machine *machine);
/* Returns the machine with this name; NULL = none. */
struct fleet_machine *fleet_find(const struct fleet *f, const char *name);

/* Adds a machine in the phase FLEET_SERVING, in the first free record. Requires that no
 * machine has the name. Returns NULL if there are LIMIT_MACHINES machines, including machines that
 * are leaving. */
struct fleet_machine *fleet_add(struct fleet *f, const struct config_machine *config);
/* Clears the record. Requires that the machine has no process and no connection. */
void fleet_remove(struct fleet *f, struct fleet_machine *machine);

/* Changes the phase of a machine. Requires that the new phase is the present phase, or that the
 * drawing above has an arrow from the present phase to the new phase. Requires that neither phase
 * is `free` (fleet_add and fleet_remove make these changes). */
void fleet_phase_set(struct fleet *f, struct fleet_machine *machine, enum fleet_phase phase);
/* Records that the machine wants to end (LEAVING has arrived), or, with wants_end = false, that its
 * connection has ended. */
void fleet_wants_end_set(struct fleet *f, struct fleet_machine *machine, bool wants_end);
/* Records what etcd says about the machine. */
void fleet_member_set(struct fleet *f, struct fleet_machine *machine, enum fleet_member member);

/* Writes the machines into a config, each at its index; free records become empty entries. */
void fleet_config_write(const struct fleet *f, struct config *out);

/* Returns the name of the machine; "?" for an index that was never in use, "" for a free record. */
static inline const char *fleet_name(const struct fleet *f, uint32_t index)
{
    return index < f->count ? f->machines[index].config.name : "?";
}

static inline bool fleet_machine_present(const struct fleet_machine *machine)
{
    return machine->phase != FLEET_FREE;
}

/* Returns true if the machine gets no new requests because it drains or leaves. */
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

/* Returns true if the machine will be removed. */
static inline bool fleet_machine_leaving(const struct fleet_machine *machine)
{
    return machine->phase >= FLEET_LEAVING;
}

static inline bool fleet_machine_up(const struct fleet_machine *machine)
{
    return machine->connection.state == CONNECTION_UP;
}

#endif
