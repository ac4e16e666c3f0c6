/* stage_state: the structs and functions that the files of a stage process share; other files use
 * stage.h. stage.c: opening, event loop, end. stage_peers.c: connections and messages.
 * stage_writers.c: the peers that write KV. stage_group.c: the group of ranks. stage_jobs.c:
 * batches. Everything runs on the event loop thread of the stage process. */
#ifndef MACHINE_EXECUTOR_STAGE_STATE_H
#define MACHINE_EXECUTOR_STAGE_STATE_H

#include "kvcache/kv_targets.h"
#include "machine/executor/device.h"
#include "machine/executor/refusals.h"
#include "machine/executor/stage.h"
#include "machine/executor/stage_contexts.h"
#include "machine/executor/staging.h"
#include "transport/doomed.h"
#include "transport/peer_user.h"
#include "transport/stage_message.h"

/* SLOT_WAITING: the job has arrived, and waits for its activations or for the engine. SLOT_RUNNING:
 * the engine computes the job. */
enum slot_state { SLOT_EMPTY, SLOT_WAITING, SLOT_RUNNING };

/* A batch slot, with its batch. The batch's activations are in this process's region. */
struct stage_slot {
    enum slot_state state;
    uint64_t arrival_number;     /* Lower = the job arrived earlier. */
    uint64_t activations_serial; /* Serial of the job whose activations have arrived. */
    uint8_t *message;            /* Bytes of the JOB message, which `job` points into. */
    size_t message_capacity;     /* Size of `message`. */
    struct stage_job job;
    struct engine_job engine_job;       /* The job for the engine; uses the arrays below. */
    struct compute_sequence *sequences; /* [sequences_max] */
    struct engine_sample *samples;      /* [sequences_max] */
    struct engine_score *scores;        /* [sequences_max] */
    struct sampled *score_results;      /* [rows_max] */
    struct engine_pooled *pooled;       /* [sequences_max] */
    /* [pooled_sums_capacity], used [job.pooled_count × hidden]. */
    int64_t *pooled_sums;
    size_t pooled_sums_capacity;
};

/* State of the group in which a rank computes. */
enum stage_group_state {
    GROUP_NONE,    /* No group yet, or the stage has one rank. */
    GROUP_MADE,    /* This is rank 0, which has made the group and sent it to the head. */
    GROUP_JOINING, /* The engine joins the group, and waits for the other ranks. */
    GROUP_JOINED,
    GROUP_FAILED, /* The group could not be made or joined. */
};

/* A process of the next stage that gets this process's activations. */
struct stage_next {
    struct peer_user peer_user;  /* The `user` of the connection. */
    uint64_t paths;              /* Bit p: path p goes through both processes. */
    struct transport_peer *peer; /* NULL = the connection has ended. */
    bool connected;              /* The connection is up. */
};

/* A request whose KV this process pushes; indexed by its cookie modulo LIMIT_MACHINE_REQUESTS. */
struct stage_request {
    uint64_t cookie;    /* Number of the request (prompt_push.cookie). */
    enum status status; /* Result of the latest write. After an error, no more writes are made. */
    bool flushing;      /* A flush is pending. */
};

/* A connection over which a process writes KV: the connection is open, or its writes have not
 * ended. */
struct stage_writer_link {
    uint64_t number; /* transport_peer_number of the connection. */
    char name[LIMIT_NAME_BYTES];
    struct transport_peer *peer; /* NULL = the connection has ended. */
};

/* A request that awaits KV of `writer`; id 0 = none. */
struct stage_awaiting {
    uint64_t id;
    uint32_t generation;
    char writer[LIMIT_NAME_BYTES];
};

struct stage {
    struct stage_options options;
    const struct config_machine *config_entry;
    const struct stage_plan_process *process;
    char name[LIMIT_NAME_BYTES];
    struct machine_shape shape;
    struct kv_arena arena;   /* Arena of this process's layers and heads. */
    struct kv_arena staging; /* Layout of the head's staging memory (staging.h). */
    uint32_t slot_count;     /* Number of batch slots. */
    uint64_t slot_bytes;     /* Bytes of a batch slot's activations in the region. */
    struct transport *transport;
    struct device device;
    struct kv_targets *targets;
    int epoll_fd;

    struct transport_peer *head; /* NULL = none. */
    bool opened;     /* The head has sent an OPEN that agrees with this process's config. */
    bool ready_sent; /* A STATE with ready = true was sent to this head. */
    /* Number of ended connections of heads over which writes may still arrive. */
    uint32_t heads_lingering;
    enum stage_group_state group_state;
    uint32_t next_count; /* Entries of `next_processes` in use. */
    struct stage_next next_processes[LIMIT_STAGE_PROCESSES];
    uint32_t target_serials[LIMIT_MACHINES]; /* Serial of the latest TARGET, by target. */
    uint32_t writer_count, writer_capacity;
    struct stage_writer_link *writers; /* [writer_capacity], of which writer_count are in use. */
    /* [LIMIT_MACHINE_REQUESTS], indexed by `table` of struct stage_await. */
    struct stage_awaiting *awaiting;
    /* [block_count]: 1 + the index in `awaiting` of the request that awaits KV in the block; 0 =
     * none. */
    uint16_t *block_awaiting;
    struct doomed doomed; /* Peers to disconnect at the end of the iteration. */
    struct refusals refusals;

    uint64_t job_count;       /* Jobs received. */
    struct stage_slot *slots; /* [slot_count] */
    /* The slot that the engine computes; NULL = idle. */
    struct stage_slot *running;
    bool running_abandoned; /* The head that sent `running` is gone. */
    /* Block tables of each request: [layer groups][machine_shape_context_spans]; NULL = not used
     * yet. */
    uint32_t *tables[LIMIT_MACHINE_REQUESTS];
    uint32_t table_counts[LIMIT_MACHINE_REQUESTS]; /* By request: spans whose ids are known. */
    struct stage_contexts *contexts;               /* NULL = none yet. */
    struct stage_contexts *abandoned_contexts;     /* Contexts of an abandoned job; NULL = none. */
    /* Layer-wise pushes: the running job's layers before this layer are pushed. */
    uint32_t pushed_layers;
    struct stage_request *requests;    /* [LIMIT_MACHINE_REQUESTS] */
    struct sampled *results;           /* [sequences_max + rows_max]: results of a DONE. */
    struct message_buffer send_buffer; /* Encoding buffer for the message being sent. */

    /* Current time, read at the start of each round. An iteration (stage_turn) has up to 8. */
    int64_t now_us;
    uint32_t event_count; /* Events in this round. */
    bool sends_queued;    /* Messages or writes were queued in this round. */
    bool load_changed;    /* `load` has changed since it was sent. */
    int64_t load_due_us;  /* Earliest time to send `load`. */
    struct message_process load;
    int64_t running_since_us; /* When `running` was started. */
    bool stopping;
};

/* A function stage_NAME_take handles the message NAME of a peer. If it returns a status, a wrong
 * message is ST_INVALID, and the caller disconnects the peer after any error. */

/* stage_peers.c */
struct transport_events stage_transport_events(void); /* Returns the functions for the transport. */
/* Encodes and queues a message; sends nothing if `peer` is NULL. If the message cannot be queued,
 * the peer is put into `doomed`. */
void stage_send(struct stage *s, struct transport_peer *peer, const struct stage_message *message);
/* Disconnects the peers in `doomed`. Must not be called from callbacks of the transport. */
void stage_peers_drop(struct stage *s);
/* Sends TARGET_LINK to the head; a callback of kv_targets. */
void stage_target_link(void *self, uint32_t target, bool up, const char *text);
/* Sends a STATE with ready = true if this process is ready and has not sent it to this head. */
void stage_ready_report(struct stage *s);
/* Sends STATE to the head. ready: this process is ready; false = it cannot work for the head, and
 * `text` says why. */
void stage_state_send(struct stage *s, bool ready, const char *text);

/* stage_writers.c: which peers write KV, and what they may write. */
enum status stage_writers_open(struct stage *s);
void stage_writers_close(struct stage *s);
/* Called when a writer has connected: records the writer and reports this to the head (WRITER). */
void stage_writer_up(struct stage *s, struct transport_peer *peer);
/* Called when a writer's connection has ended: reports this to the head (WRITER). */
void stage_writer_down(struct stage *s, struct transport_peer *peer, const char *text);
/* Called when the writes of an ended connection have ended (transport_events.writes_ended): forgets
 * a writer and reports this to the head (WRITER), or ends the wait of stage_head_writes_await. */
void stage_writes_ended(struct stage *s, uint64_t peer_number);
/* Called when the head is gone: disconnects all writers, and forgets which requests await KV. */
void stage_writers_drop(struct stage *s);
/* Called when a head has opened this process: reports the writers to the head. */
void stage_writers_report(struct stage *s);
/* Handles AWAIT: records a request that awaits KV and answers AWAITED, or forgets the request. */
enum status stage_await_take(struct stage *s, const struct stage_await *await, struct error *error);
/* Returns true if this process accepts a write (transport_events.write_wanted). Accepted are:
 * - from the stage before: activations;
 * - from the head: KV that its tiers have loaded;
 * - from another machine: KV of a request, if AWAIT has named this machine as the writer of the
 *   request and the write's blocks as blocks of the request. */
bool stage_write_wanted(const struct stage *s, const struct transport_peer *peer,
                        const struct transport_request *request, uint64_t offset, uint64_t bytes);

/* Called when the head's connection has ended. Until the head's writes of loaded KV have ended,
 * this process is not ready for another head. */
void stage_head_writes_await(struct stage *s, struct transport_peer *head);

/* stage_group.c */
bool stage_is_rank(const struct stage *s); /* Returns true if the stage has several ranks. */
/* Called when the head has sent OPEN: rank 0 of several makes the group. */
void stage_group_make(struct stage *s);
/* Handles GROUP: begins to join the group. A device of another kind than rank 0's is reported to
 * the head. Returns ST_INVALID if the stage has no ranks, or does not wait for GROUP. */
enum status stage_group_take(struct stage *s, const struct stage_group *group, struct error *error);
/* Called when the engine has joined, or has failed to join. */
void stage_group_progress(struct stage *s);
/* Called when the head is gone: a process with a group stops, because it cannot join another. */
void stage_group_head_gone(struct stage *s);

/* stage_jobs.c */
enum status stage_jobs_open(struct stage *s);
void stage_jobs_close(struct stage *s);
/* Handles the message JOB in `data`, which is copied. */
enum status stage_job_take(struct stage *s, const uint8_t *data, size_t bytes, struct error *error);
enum status stage_activations_take(struct stage *s, const struct stage_activations *activations,
                                   struct error *error);
/* Handles COPY: writes KV of this process's layers. A failed write is reported with the flush. */
enum status stage_copy_take(struct stage *s, const struct stage_copy *copy, struct error *error);
void stage_flush_take(struct stage *s, const struct stage_flush *flush);
/* Handles FETCH: begins to write this process's part of some blocks into the head's staging memory.
 */
enum status stage_fetch_take(struct stage *s, const struct stage_fetch *fetch, struct error *error);
/* Called when the flush of fetched KV has ended: sends FETCHED. slot: a slot of the staging memory.
 */
void stage_fetched(struct stage *s, uint32_t slot, enum status status);
/* Handles the progress of the engine's job: pushes computed layers, and finishes the batch. */
void stage_jobs_progress(struct stage *s, struct engine_progress progress);
void stage_jobs_start(struct stage *s); /* Starts the next batch if the engine is idle. */
/* Called when the head is gone: forgets all batches and tables. */
void stage_jobs_forget(struct stage *s);
/* Called when a flush of activations to the next stage has ended: sends ACTIVATIONS. The cookie
 * contains serial and slot. */
void stage_activations_sent(struct stage *s, struct transport_peer *peer, uint64_t cookie,
                            enum status status);
/* Called when a flush of a request's KV has ended; a callback of kv_targets. */
void stage_flushed(void *self, uint64_t cookie, enum status status);

#endif
