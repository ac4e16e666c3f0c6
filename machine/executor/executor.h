/* executor: the interface of the part that computes a machine's batches, keeps their KV and writes
 * KV to token machines. There are two executors: local.c has one engine in the machine's own
 * process; pipeline*.c drive stage processes. The callers use the table of operations and do not
 * know which executor they have.
 *
 * The files of machine/ make every call on the machine's event loop thread; the executor calls
 * struct executor_calls back on the same thread. An executor does not decide what a batch contains
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

/* A batch: the engine's job, and the request of each of its sequences. The struct is read during
 * `start`; the memory that it points to stays valid until executor_calls.batch_done. */
struct executor_batch {
    uint32_t slot;                 /* Batch slot, < stage_plan_slot_count. */
    uint32_t path;                 /* The batch's path through the stages; 0 without stages. */
    struct engine_job *job;        /* Its samples and scores receive the results. */
    const uint32_t *request_slots; /* [sequence_count]: slot of each sequence's request. */
    /* [sequence_count]: distinguishes successive requests in the same slot. */
    const kv_owner_id *owners;
    /* [sequence_count]: KV to push, for an executor with pushes_kv; span_count 0 = none. */
    const struct prompt_push *pushes;
};

/* A copy of KV between blocks of the machine and a slot of the staging memory (staging.h). */
struct executor_copy {
    uint32_t slot;         /* Slot of the staging memory, < STAGING_SLOTS. */
    uint32_t span_count;   /* At most STAGING_SPANS_MAX. */
    uint32_t window_first; /* First span that is copied in layer groups with a window. */
    /* The block of span i in layer group g is blocks[g * stride + i]. Read during the call. */
    const kv_block_id *blocks;
    uint32_t stride;
};

struct executor_ops {
    /* Ends all use of the KV memory by this process. The batches in flight have no results. */
    void (*stop)(struct executor *e);
    /* Ends the connections that the executor has made, and kills the stage processes that the
     * executor has started. Requires that the transport is still open. */
    void (*disconnect)(struct executor *e);
    /* Frees the executor. Requires that the transport is closed, because the transport's region can
     * be in the executor's device memory. */
    void (*close)(struct executor *e);

    /* Returns a descriptor; the caller calls `progress` when it is readable. */
    int (*fd)(const struct executor *e);
    /* Handles what has happened since the previous call, and reports it through executor_calls.
     * (Stage processes also report by messages, which peer_message handles.) Returns when the
     * caller must call `progress` again at the latest, even if fd is not readable; INT64_MAX = no
     * limit. */
    int64_t (*progress)(struct executor *e, int64_t now_us);
    /* Returns true when the device, or all stage processes, are ready to compute. Returns false
     * after a failure. */
    bool (*is_ready)(const struct executor *e);
    /* Returns ST_OK, or an error with the reason why the machine cannot continue. ST_IO: a stage
     * process crashed, perhaps because of a request in a batch. ST_CANCELLED: a stage process was
     * killed from outside. ST_UNREACHABLE: all other reasons. */
    enum status (*failure)(const struct executor *e, struct error *error);
    /* Returns a text for the log, such as "cpu, 4 threads"; valid until `close`. */
    const char *(*describe)(const struct executor *e);

    /* Returns true if `start` may be called now. */
    bool (*can_start)(const struct executor *e);
    /* Begins to compute a batch; executor_calls.batch_done reports its end. Requires can_start. */
    void (*start)(struct executor *e, const struct executor_batch *batch);
    /* Ends the batch in this batch slot early, if that is possible, because its results are not
     * wanted. executor_calls.batch_done follows; engine_job.abandoned says whether the batch has
     * ended early. NULL = batches always run to their end. */
    void (*abandon)(struct executor *e, uint32_t slot);

    /* Stores the load of each stage process. Returns the number of stage processes; 0 = none. */
    uint32_t (*process_loads)(const struct executor *e,
                              struct message_load out[LIMIT_STAGE_PROCESSES]);
    /* Stores addresses and layers of the processes that hold the KV, for machines that write KV.
     * Requires is_ready. *out is valid until `close`. */
    void (*layout)(const struct executor *e, struct message_stages *out);

    /* target_set and target_drop: as kv_targets_set and kv_targets_drop, in every process that
     * holds KV. `peer` is this process's connection to the target `machine`. After target_set,
     * executor_calls.target_changed reports whether the target can be written to. */
    void (*target_set)(struct executor *e, uint32_t target, const struct message_peer *machine,
                       struct transport_peer *peer, const struct message_stages *stages);
    void (*target_drop)(struct executor *e, uint32_t target);
    /* As kv_targets_push. NULL for an executor with pushes_kv. */
    enum status (*target_push)(struct executor *e, struct kv_push *push, uint32_t layer_end);
    /* Makes the stage processes write KV that they already have, in all layers; push->layer is not
     * used. NULL for an executor without pushes_kv, which has target_push instead. own_path,
     * cookie: as for target_flush; the caller calls target_flush afterwards. Returns ST_TOO_LARGE
     * if the blocks do not fit one message, or ST_NO_MEMORY. */
    enum status (*target_copy)(struct executor *e, uint32_t own_path, const struct kv_push *push,
                               uint64_t cookie);
    /* Requests a flush: executor_calls.target_flushed reports when the KV that was written for
     * `cookie` to the target has arrived. own_path: the request's path through this machine. path:
     * the request's path through the target. requested: the executor pushes KV itself, and the
     * request's last push has requested the flush already. */
    void (*target_flush)(struct executor *e, uint32_t own_path, uint32_t target, uint32_t path,
                         uint64_t cookie, bool requested);

    /* Reports to the stage processes of the path that a request now awaits KV of another machine
     * (executor_calls.kv_await_known follows) or, if await->ends is set, no longer awaits KV. The
     * processes need these reports to check each write into their memory. NULL = the caller checks
     * writes itself. */
    void (*kv_await)(struct executor *e, uint32_t path, const struct stage_await *await);
    /* Begins to copy KV of all layers and heads from the stage processes, or from the GPU, into a
     * slot of the staging memory (staging.h). executor_calls.kv_copied reports the end; until then
     * the slot and the blocks must not be used otherwise. Requires staging memory
     * (executor.staging), is_ready, and that no copy of the slot is under way. */
    void (*kv_fetch)(struct executor *e, const struct executor_copy *copy);
    /* Does what kv_fetch does, but copies from the slot to the stage processes or the GPU. */
    void (*kv_deliver)(struct executor *e, const struct executor_copy *copy);
    /* Gives new cluster keys to the stage processes that the executor has started; NULL = an
     * executor without stage processes. */
    void (*keys_set)(struct executor *e, const struct secret_keys *keys);
    /* Sends the level of the log (enum log_level) to the stage processes that this process has
     * started. NULL = there are none. */
    void (*log_level_send)(struct executor *e, int level);

    /* The machine passes these events of the transport on. peer_up and peer_down: for the peers
     * that the executor has connected to. peer_message: for peers of kind PEER_STAGE; NULL = the
     * executor has no such peers. peer_flushed: for all peers. */
    void (*peer_up)(struct executor *e, struct transport_peer *peer);
    void (*peer_down)(struct executor *e, struct transport_peer *peer, const char *text,
                      int64_t now_us);
    void (*peer_message)(struct executor *e, struct transport_peer *peer, const uint8_t *data,
                         size_t bytes);
    void (*peer_flushed)(struct executor *e, struct transport_peer *peer, uint64_t cookie,
                         enum status status);
};

/* First member of every executor. */
struct executor {
    const struct executor_ops *ops;
    /* true: the executor pushes KV itself, as the batches say (executor_batch.pushes). false: the
     * caller pushes KV with target_push, when executor_calls.layers_computed reports that layers
     * are computed. */
    bool pushes_kv;
    /* The machine's device is the CPU, because the GPU of its config cannot be used. */
    bool fell_back;
    /* `start` only queues messages: the caller lets the transport send them before other work. */
    bool queues_messages;
    /* Layout of the staging memory; block_count 0 = there is none, because there are no tiers,
     * because tiers can use the KV memory itself, or because stages have replicas. */
    struct kv_arena staging;
    /* The staging memory. With stage processes, it is the region of the transport. */
    uint8_t *staging_memory;
};

/* Functions that the executor needs from its machine. */
struct executor_calls {
    /* Opens the machine's transport with a region of region_bytes in the memory of `device` (NULL =
     * host memory). Called once, while the executor is opened. The caller owns the transport. */
    enum status (*transport_open)(void *self, uint64_t region_bytes,
                                  const struct device_memory *device, struct transport **out,
                                  struct error *error);
    /* The batch in that batch slot has ended, and its job has the results (none if
     * engine_job.abandoned is set). */
    void (*batch_done)(void *self, uint32_t slot);
    /* K and V of the running batch are stored in the first `layers` layers
     * (engine_job.report_layers). Never called by an executor with pushes_kv. */
    void (*layers_computed)(void *self, uint32_t layers);
    /* The flush that target_flush has requested for this cookie has ended. */
    void (*target_flushed)(void *self, uint64_t cookie, enum status status);
    /* up = true: the KV of all layers can now be written to the target. up = false: the KV cannot
     * be written, or can no longer be written; `text` says why. */
    void (*target_changed)(void *self, uint32_t target, bool up, const char *text);
    /* A process that writes KV has connected to this machine's stage process `stage`, or its
     * connection or its writes have ended (writer->event). Only an executor with stage processes
     * calls this function. */
    void (*writer_changed)(void *self, uint32_t stage, const struct stage_writer *writer);
    /* All processes of the path know the request that executor_ops.kv_await named, so they accept
     * writes of its KV. cookie: stage_await.cookie. */
    void (*kv_await_known)(void *self, uint64_t cookie);
    /* The copy of this slot (executor_ops.kv_fetch, kv_deliver) has ended. With any status except
     * ST_OK it is unknown which bytes were copied. */
    void (*kv_copied)(void *self, uint32_t slot, enum status status);
};

struct executor_options {
    const struct config *config;               /* Not owned; must outlive the executor. */
    const struct config_machine *config_entry; /* Not owned; must outlive the executor. */
    const struct machine_shape *shape;         /* Not owned; must outlive the executor. */
    const struct model_file *file;             /* Read during the call. */
    const struct compute_ops *compute;         /* Backend; NULL = as the entry's device says. */
    struct turns *turns; /* Turns on the host's cores. Not owned; NULL = none. */
    /* For stage processes that the executor starts: */
    const struct secret_keys *cluster_keys; /* Read during the call; NULL = none. */
    int turns_fd;                           /* Descriptor of the turns' shared memory; -1 = none. */
    const char *log_level;                  /* Not owned; NULL = the default. */
    struct executor_calls calls;
    void *self; /* First argument of the calls. */
};

/* Opens an executor in the machine's own process. *out is set also after an error, unless there was
 * no memory for the executor; the caller then stops, disconnects and closes the executor. */
enum status executor_local_open(const struct executor_options *options, struct executor **out,
                                struct error *error);
/* Opens the executor of a machine with stages. It starts the stage processes without an address in
 * the config, and connects to all stage processes of the machine. *out is set also after an error,
 * as by executor_local_open. */
enum status executor_pipeline_open(const struct executor_options *options, struct executor **out,
                                   struct error *error);

#endif
