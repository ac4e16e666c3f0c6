/* stage_plan: how a machine's layers are split over processes (its stages, replicas of these, and
 * ranks that compute one together): from the config where it says, else evenly by what the layers
 * cost. The machine's own process and each stage make it by themselves from config and model, and
 * compare (OPEN). */
#ifndef MACHINE_STAGE_PLAN_H
#define MACHINE_STAGE_PLAN_H

#include "common/config.h"
#include "model/model.h"
#include "model/shard.h"
#include "scheduler/paths.h"

struct stage_place { /* one process; the ranks of a stage are neighbours */
    struct config_stage config;
    uint32_t stage; /* which run of layers */
    uint32_t replica;
    struct model_shard shard; /* its slice of them: rank and ranks */
    uint32_t first_layer;     /* [first, last) */
    uint32_t last_layer;
    uint64_t paths; /* bit p: path p goes through it */
};

struct stage_plan {
    uint32_t place_count; /* 0: no stages, the machine's own process computes */
    uint32_t stage_count;
    uint32_t batches_in_flight;  /* of one path; with decodes: stage_count */
    uint32_t micro_batch_tokens; /* best by the profile; 0: there is none */
    struct stage_place places[LIMIT_STAGES];
    struct sched_paths paths;
};

/* ST_INVALID, ST_TOO_LARGE: the config does not fit the model; the text names machine and value. */
enum status stage_plan_make(const struct config *config, const struct config_machine *entry,
                            const struct model_hyper *hyper, uint64_t metadata_hash,
                            struct stage_plan *out, struct error *error);

/* The place of that stage on that path: of rank 0, which the others follow. */
uint32_t stage_plan_place(const struct stage_plan *plan, uint32_t stage, uint32_t path);
uint64_t stage_plan_places(const struct stage_plan *plan, uint32_t path); /* bit i: place i */
/* Whether place `from` gives its activations to place `to`, on the paths of both: they are whole on
 * every rank, so rank j of a stage has them from rank j mod T of the T before it. */
bool stage_plan_gives(const struct stage_plan *plan, uint32_t from, uint32_t to);
/* Bit i: place i tells when it is done with a batch of that path, for nobody else's work shows it.
 * The first of the last stage's ranks is among them: it samples. */
uint64_t stage_plan_enders(const struct stage_plan *plan, uint32_t path);
bool stage_plan_samples(const struct stage_plan *plan, uint32_t place);
uint32_t stage_plan_slots(const struct stage_plan *plan); /* batches in flight, over all paths */
/* "t0/1", of machine t0's place 1. */
void stage_name(const char *machine, uint32_t place, char out[LIMIT_NAME_BYTES]);

/* "layers 0 to 14", "layers 0 to 14 (rank 1 of 2)", for logs. */
#define STAGE_PLACE_TEXT_BYTES 64
void stage_place_text(const struct stage_place *place, char out[STAGE_PLACE_TEXT_BYTES]);

#endif
