/* stage_plan: how a machine's layers are divided over stage processes (stages, replicas and ranks):
 * as the config says, else evenly by the layers' costs. The head and each stage process compute the
 * plan from config and model (shape.c, while the process starts), and compare it (message OPEN).
 * After that the plan is read-only: any thread may call the other functions. It starts no processes
 * and knows no addresses. */
#ifndef MACHINE_EXECUTOR_STAGE_PLAN_H
#define MACHINE_EXECUTOR_STAGE_PLAN_H

#include "config/config.h"
#include "model/forward/model.h"
#include "model/forward/shard.h"
#include "scheduler/paths.h"

struct stage_place { /* One stage process. The ranks of a stage are neighbours in the plan. */
    struct config_stage config;
    uint32_t stage; /* Index of the stage. */
    uint32_t replica;
    struct model_shard shard; /* Its slice of the layers: rank and ranks. */
    uint32_t first_layer;     /* First layer. */
    uint32_t last_layer;
    uint64_t paths; /* Bit p: path p goes through it. */
};

struct stage_plan {
    uint32_t place_count; /* Stage processes; 0 = no stages, the machine's own process computes. */
    uint32_t stage_count;
    uint32_t batches_in_flight;  /* Per path; at most stage_count of them have decodes. */
    uint32_t micro_batch_tokens; /* Best size by the profile; 0 = no profile. */
    struct stage_place places[LIMIT_STAGES];
    struct sched_paths paths; /* Without stages: one path. */
};

/* ST_INVALID, ST_TOO_LARGE: the config does not fit the model; the error names machine and value.
 */
enum status stage_plan_make(const struct config *config, const struct config_machine *entry,
                            const struct model_hyper *hyper, uint64_t metadata_hash,
                            struct stage_plan *out, struct error *error);

/* Bit i: stage process i is on the path. */
uint64_t stage_plan_places(const struct stage_plan *plan, uint32_t path);
/* True if stage process `from` sends its activations to stage process `to`, on the paths that both
 * share. Activations are whole on every rank, so rank j of a stage gets them from rank j mod T of
 * the stage before, which has T ranks. */
bool stage_plan_gives(const struct stage_plan *plan, uint32_t from, uint32_t to);
/* Bit i is set if stage process i sends its activations to no process on this path. Such a process
 * must report DONE, because no later stage's work proves that it is done. The process that samples
 * is among them. */
uint64_t stage_plan_enders(const struct stage_plan *plan, uint32_t path);
bool stage_plan_samples(const struct stage_plan *plan, uint32_t place);
uint32_t stage_plan_slots(const struct stage_plan *plan); /* Batches in flight, over all paths. */
/* Name of a stage process: "t0/1" for machine t0 and place 1. */
void stage_name(const char *machine, uint32_t place, char out[LIMIT_NAME_BYTES]);

/* For logs: "layers 0 to 14", "layers 0 to 14 (rank 1 of 2)". */
#define STAGE_PLACE_TEXT_BYTES 64
void stage_place_text(const struct stage_place *place, char out[STAGE_PLACE_TEXT_BYTES]);

#endif
