/* stage_plan: divides a machine's layers over its stage processes (stages, replicas and ranks), as
 * the config says, or evenly by the layers' costs (stage_costs.h). The head and the stage processes
 * compute the plan from config and model while they start; a stage process compares its part with
 * the head's (message OPEN). The caller owns the plan, which is read-only after stage_plan_make.
 * machine/ calls the functions on the event loop thread of the process. This part owns nothing,
 * starts no processes and makes no connections. */
#ifndef MACHINE_EXECUTOR_STAGE_PLAN_H
#define MACHINE_EXECUTOR_STAGE_PLAN_H

#include "config/config.h"
#include "model/forward/model.h"
#include "model/forward/shard.h"
#include "scheduler/paths.h"

/* One stage process. The ranks of a stage or replica follow each other in the plan. */
struct stage_plan_process {
    struct config_stage config;
    uint32_t stage;           /* Index of the stage. */
    uint32_t replica;         /* Index of the replica in the stage. */
    struct model_shard shard; /* The rank, and the slice of the layers that the rank computes. */
    uint32_t first_layer;     /* First layer that the process computes. */
    uint32_t end_layer;       /* Layer after the last layer that the process computes. */
    uint64_t paths;           /* Bit p: path p goes through the process. */
};

struct stage_plan {
    uint32_t process_count;      /* 0 = no stages: the machine's own process computes. */
    uint32_t stage_count;        /* 0 = no stages. */
    uint32_t batches_in_flight;  /* Most batches in flight on each path; 1 without stages. */
    uint32_t micro_batch_tokens; /* See struct stage_costs. */
    struct stage_plan_process processes[LIMIT_STAGE_PROCESSES];
    struct sched_paths paths; /* Without stages: one path. */
};

/* Makes the plan. metadata_hash: of the model file. An error means that the config does not fit the
 * model, or that its profile cannot be used; the error names the key or the file. */
enum status stage_plan_make(const struct config *config, const struct config_machine *entry,
                            const struct model_hyper *hyper, uint64_t metadata_hash,
                            struct stage_plan *out, struct error *error);

/* Returns the stage processes on the path: bit i = stage process i. */
uint64_t stage_plan_processes(const struct stage_plan *plan, uint32_t path);
/* Returns true if stage process `from` sends its activations to stage process `to`, on paths that
 * go through `from` and `to`. If a stage has T ranks, rank j of the next stage gets its activations
 * from rank j mod T. */
bool stage_plan_sends(const struct stage_plan *plan, uint32_t from, uint32_t to);
/* Returns the stage processes on the path that send their activations to no process of the path,
 * and so must report DONE: bit i = stage process i. */
uint64_t stage_plan_done_senders(const struct stage_plan *plan, uint32_t path);
/* Returns true if the process samples tokens: rank 0 of the last stage, in each replica. */
bool stage_plan_samples(const struct stage_plan *plan, uint32_t process);
/* Returns the number of batch slots: the most batches in flight on all paths together. */
uint32_t stage_plan_slot_count(const struct stage_plan *plan);
/* Writes the name of a stage process: "t0/1" for stage process 1 of machine t0. A machine's name of
 * more than 28 bytes is cut. */
void stage_name(const char *machine, uint32_t process, char out[LIMIT_NAME_BYTES]);

/* Writes a text for logs: "layers 0 to 14", "layers 0 to 14 (rank 1 of 2)". */
#define STAGE_PLAN_PROCESS_TEXT_BYTES 64
void stage_plan_process_text(const struct stage_plan_process *process,
                             char out[STAGE_PLAN_PROCESS_TEXT_BYTES]);

#endif
