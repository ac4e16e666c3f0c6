/* executor: the interface of the part that computes a machine's batches, keeps their KV and writes
 * KV to other machines. There are two executors: local.c has one engine in the machine's own
 * process; pipeline*.c drive stage processes.
 *
 * machine/ calls the operations on the machine's event loop thread; the executor calls struct
 * executor_calls on this thread, too. An executor does not decide what a batch contains
 * (scheduler/machine/ does) or which blocks are free (kvcache/kv_pool.h does). It keeps no
 * requests: block tables, sampling rules and cookies (numbers that stand for requests) go in,
 * tokens come out. */
#ifndef MACHINE_EXECUTOR_EXECUTOR_H
#define MACHINE_EXECUTOR_EXECUTOR_H

#include "kvcache/kv_pool.h"
#include "machine/executor/engine.h"
#include "machine/executor/shape.h"
#include "prompt_pool/prompt_pool.h"
#include "transport/stage_message.h"

struct executor;

/* A batch: the engine's job, and the requests of its sequences. The struct is read during `start`.
 * The memory that the struct points to must stay valid until executor_calls.batch_done. */
struct executor_batch {
    uint32_t slot;                 /* Batch slot, < stage_plan_slot_count. */
    uint32_t path;                 /* The batch's path through the stages; 0 without stages. */
    struct engine_job *job;        /* Receives the results. */
    const uint32_t *request_slots; /* [sequence_count]: slot of each sequence's request. */
    /* [sequence_count]: distinguishes successive requests in the same slot. */
    const kv_owner_id *owners;
    /* [sequence_count]: KV to push; span_count 0 = none. Not read without executor.pushes_kv. */
    const struct prompt_push *pushes;
};

/* A copy of KV between blocks of the machine and a slot of the staging memory (staging.h). */
struct executor_copy {
    uint32_t slot;         /* Slot of the staging memory, < STAGING_SLOTS. */
    uint32_t span_count;   /* At most STAGING_SPANS_MAX. */
    uint32_t window_first; /* In layer groups with a window, earlier spans are not copied. */
    /* The block of span i in layer group g is blocks[g * stride + i]. Read during the call. */
    const kv_block_id *blocks;
    uint32_t stride;
};

struct executor_ops {
    /* Ends all use of the KV memory by this process. The batches in flight have no results. */
    void (*stop)(struct executor *e);
    /* Ends the connections that the executor has made, and kills the stage processes that it has
     * started. Requires that the transport is open. */
    void (*disconnect)(struct executor *e);
    /* Frees the executor. Requires that the transport is closed, because the transport's region can
     * be in the executor's device memory. */
    void (*close)(struct executor *e);

    /* Returns a descriptor; the caller calls `progress` when it is readable. */
    int (*fd)(const struct executor *e);
    /* Handles what has happened since the previous call, and reports it through executor_calls.
     * Returns the time at which the caller must call `progress` again even if fd is not readable;
     * INT64_MAX = no limit. */
    int64_t (*progress)(struct executor *e, int64_t now_us);
    /* Returns true if the device, or all stage processes, can compute; false after a failure. */
    bool (*is_ready)(const struct executor *e);
    /* Returns ST_OK, or an error with the reason why the machine cannot continue. ST_IO: a stage
     * process crashed, perhaps because of a request in a batch. ST_CANCELLED: a stage process was
     * killed. ST_UNREACHABLE: all other reasons. */
    enum status (*failure)(const struct executor *e, struct error *error);
    /* Returns a text for the log, such as "cpu, 4 threads"; valid until `close`. */
    const char *(*describe)(const struct executor *e);

    /* Returns true if `start` may be called now. */
    bool (*can_start)(const struct executor *e);
    /* Begins to compute a batch; executor_calls.batch_done reports its end. Requires can_start. */
    void (*start)(struct executor *e, const struct executor_batch *batch);
    /* Ends the batch in this batch slot early, if that is possible. executor_calls.batch_done
     * follows; engine_job.abandoned says whether the batch has ended early. NULL = an executor that
     * cannot end batches. */
    void (*abandon)(struct executor *e, uint32_t slot);

    /* Stores the load of each stage process. Returns the number of stage processes; 0 = none. */
    uint32_t (*process_loads)(const struct executor *e,
                              struct message_load out[LIMIT_STAGE_PROCESSES]);
    /* Stores addresses and layers of the processes that hold the KV, for machines that write KV.
     * Requires is_ready. The arrays of *out are valid until `close`. */
    void (*layout)(const struct executor *e, struct message_stages *out);

    /* Gives the number `target` to a machine, as kv_targets_set does, in every process that holds
     * KV. `peer` is this process's connection to the machine. executor_calls.target_changed reports
     * whether the machine can be written to. */
    void (*target_set)(struct executor *e, uint32_t target, const struct message_peer *machine,
                       struct transport_peer *peer, const struct message_stages *stages);
    /* Drops a target, as kv_targets_drop does, in every process that holds KV. */
    void (*target_drop)(struct executor *e, uint32_t target);
    /* See kv_targets_push. NULL for an executor with pushes_kv. */
    enum status (*target_push)(struct executor *e, struct kv_push *push, uint32_t layer_end);
    /* Makes the stage processes write KV of all layers that they already have; push->layer is not
     * used. The caller calls target_flush afterwards, with this own_path and cookie. Returns
     * ST_TOO_LARGE if the blocks do not fit one message, or ST_NO_MEMORY. NULL for an executor
     * without pushes_kv, which has target_push instead. */
    enum status (*target_copy)(struct executor *e, uint32_t own_path, const struct kv_push *push,
                               uint64_t cookie);
    /* Requests a flush: executor_calls.target_flushed reports when the KV that was written for
     * `cookie` to the target has arrived. own_path: the request's path through this machine. path:
     * its path through the target. requested: a push with prompt_push.is_last has already requested
     * the flush from the stage processes. */
    void (*target_flush)(struct executor *e, uint32_t own_path, uint32_t target, uint32_t path,
                         uint64_t cookie, bool requested);

    /* Reports to the stage processes of the path that a request awaits KV of another machine;
     * executor_calls.kv_await_known follows. With await->ends, reports that the request no longer
     * awaits KV. The processes use these reports to check writes into their memory. NULL = an
     * executor whose caller checks writes. */
    void (*kv_await)(struct executor *e, uint32_t path, const struct stage_await *await);
    /* Begins to copy KV of all layers and heads from the stage processes, or from the GPU, into a
     * slot of the staging memory (staging.h). executor_calls.kv_copied reports the end. Until then
     * nothing else may use the slot and the blocks. Requires staging memory (executor.staging),
     * is_ready, and that no copy of the slot is under way. */
    void (*kv_fetch)(struct executor *e, const struct executor_copy *copy);
    /* Begins a copy in the opposite direction of kv_fetch: from the slot. */
    void (*kv_deliver)(struct executor *e, const struct executor_copy *copy);
    /* Gives new cluster keys to the stage processes that the executor has started. NULL = an
     * executor without stage processes. */
    void (*keys_set)(struct executor *e, const struct secret_keys *keys);
    /* Sends the level of the log (enum log_level) to the stage processes that the executor has
     * started and whose addresses it knows. NULL = an executor without stage processes. */
    void (*log_level_send)(struct executor *e, int level);

    /* Takes the event transport_events.peer_up of a peer that the executor has connected to. */
    void (*peer_up)(struct executor *e, struct transport_peer *peer);
    /* Takes the event peer_down of a peer that the executor has connected to. */
    void (*peer_down)(struct executor *e, struct transport_peer *peer, const char *text,
                      int64_t now_us);
    /* Takes a message of a peer of kind PEER_STAGE. NULL = an executor without stage processes. */
    void (*peer_message)(struct executor *e, struct transport_peer *peer, const uint8_t *data,
                         size_t bytes);
    /* Takes the event transport_events.flushed of any peer. */
    void (*peer_flushed)(struct executor *e, struct transport_peer *peer, uint64_t cookie,
                         enum status status);
};

/* First member of every executor. */
struct executor {
    const struct executor_ops *ops;
    /* The executor pushes KV as executor_batch.pushes says; false = the caller pushes KV with
     * target_push. */
    bool pushes_kv;
    bool fell_back; /* The CPU computes, because the GPU of the config cannot be used. */
    /* `start` only queues messages: the caller lets the transport send them before other work. */
    bool queues_messages;
    struct kv_arena staging; /* Layout of the staging memory; block_count 0 = there is none. */
    uint8_t *staging_memory;
};

/* Functions that the executor needs from its machine. */
struct executor_calls {
    /* Opens the machine's transport with a region of region_bytes in the memory of `device` (NULL =
     * host memory), while the executor is opened. The machine owns the transport. */
    enum status (*transport_open)(void *self, uint64_t region_bytes,
                                  const struct device_memory *device, struct transport **out,
                                  struct error *error);
    /* The batch in this batch slot has ended. Its job has the results, unless engine_job.abandoned
     * is set. */
    void (*batch_done)(void *self, uint32_t slot);
    /* K and V of the running batch are stored in the first `layers` layers
     * (engine_job.report_layers). Only from an executor without pushes_kv. */
    void (*layers_computed)(void *self, uint32_t layers);
    /* The flush that target_flush has requested for this cookie has ended. */
    void (*target_flushed)(void *self, uint64_t cookie, enum status status);
    /* up: KV can now be written to the target; false = KV cannot, or can no longer, be written, for
     * the reason in `text`. */
    void (*target_changed)(void *self, uint32_t target, bool up, const char *text);
    /* A process that writes KV has connected to this machine's stage process `stage`, or its
     * connection or its writes have ended (writer->event). */
    void (*writer_changed)(void *self, uint32_t stage, const struct stage_writer *writer);
    /* All processes of the path accept writes of KV for this request (executor_ops.kv_await).
     * cookie: stage_await.cookie. */
    void (*kv_await_known)(void *self, uint64_t cookie);
    /* The copy of this slot (executor_ops.kv_fetch, kv_deliver) has ended. After an error it is
     * unknown which bytes were copied. */
    void (*kv_copied)(void *self, uint32_t slot, enum status status);
};

struct executor_options {
    const struct config *config;               /* Not owned; must outlive the executor. */
    const struct config_machine *config_entry; /* Not owned; must outlive the executor. */
    const struct machine_shape *shape;         /* Not owned; must outlive the executor. */
    const struct model_file *file;             /* Read during the call. */
    const struct compute_ops *compute;         /* Backend; NULL = as the entry's device says. */
    struct turns *turns; /* Turns on the host's cores. Not owned; NULL = none. */
    /* Keys for the stage processes that the executor starts. Read during the call; NULL = none. */
    const struct secret_keys *cluster_keys;
    /* For the stage processes: the descriptor of the turns' shared memory; -1 = none. */
    int turns_fd;
    const char *log_level; /* For the stage processes. Not owned; NULL = the default. */
    struct executor_calls calls;
    void *self; /* First argument of the calls. */
};

/* Opens an executor in the machine's own process. After an error, *out is either unchanged or a
 * half-open executor, which the caller stops, disconnects and closes. */
enum status executor_local_open(const struct executor_options *options, struct executor **out,
                                struct error *error);
/* Opens the executor of a machine with stages. Starts the stage processes without an address in the
 * config; `progress` then connects to all stage processes of the machine. After an error, *out is
 * as after an error of executor_local_open. */
enum status executor_pipeline_open(const struct executor_options *options, struct executor **out,
                                   struct error *error);

#endif
