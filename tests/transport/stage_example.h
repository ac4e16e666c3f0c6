/* stage_example: valid stage messages of every kind, for the test and the fuzz target of
 * stage_message.h. The arrays that they point to are static, so only one message is valid at a
 * time. */
#ifndef TESTS_TRANSPORT_STAGE_EXAMPLE_H
#define TESTS_TRANSPORT_STAGE_EXAMPLE_H

#include "common/random.h"
#include "transport/stage_message.h"

#include <string.h>

/* Random numbers that depend only on the seed. */
struct stage_draw {
    uint64_t seed;
    uint64_t count;
};

static inline uint64_t draw64(struct stage_draw *draws)
{
    return random_at(draws->seed, draws->count++);
}

static inline uint32_t draw(struct stage_draw *draws, uint32_t below)
{
    return (uint32_t)(draw64(draws) % below);
}

static inline void draw_text(struct stage_draw *draws, char *text, size_t capacity)
{
    size_t length = draw(draws, 4) == 0 ? capacity - 1 : draw(draws, (uint32_t)capacity);
    memset(text, 0, capacity);
    for (size_t i = 0; i < length; i++)
        text[i] = (char)(1 + draw(draws, 255));
}

static inline struct message_stages draw_stages(struct stage_draw *draws)
{
    static struct message_stage stages[LIMIT_STAGES];
    uint32_t count = draw(draws, 10) == 0 ? LIMIT_STAGES : draw(draws, 5);
    for (uint32_t i = 0; i < count; i++) {
        memset(&stages[i], 0, sizeof(stages[i]));
        stages[i].paths = draw64(draws);
        stages[i].last_layer = 1 + draw(draws, LIMIT_LAYERS);
        stages[i].first_layer = draw(draws, stages[i].last_layer);
        stages[i].last_head = 1 + draw(draws, LIMIT_HEADS);
        stages[i].first_head = draw(draws, stages[i].last_head);
        draw_text(draws, stages[i].address, sizeof(stages[i].address));
    }
    return (struct message_stages){.count = count, .stages = stages};
}

#define EXAMPLE_SEQUENCES 6
#define EXAMPLE_ROWS      40 /* Most tokens of one sequence. */
#define EXAMPLE_BLOCKS    30 /* Most blocks of one array of one sequence or push. */

struct stage_arrays {
    struct stage_push pushes[EXAMPLE_SEQUENCES];
    struct stage_sample samples[EXAMPLE_SEQUENCES];
    struct stage_sequence sequences[EXAMPLE_SEQUENCES];
    struct stage_score scores[EXAMPLE_SEQUENCES];
    uint32_t tokens[EXAMPLE_SEQUENCES * EXAMPLE_ROWS];
    uint32_t blocks[EXAMPLE_SEQUENCES * EXAMPLE_BLOCKS];
    uint32_t targets[EXAMPLE_SEQUENCES * EXAMPLE_BLOCKS];
    uint32_t score_ids[EXAMPLE_SEQUENCES * EXAMPLE_ROWS];
};

/* Returns the arrays that every job uses; the test changes them. */
static inline struct stage_arrays *stage_arrays(void)
{
    static struct stage_arrays arrays;
    return &arrays;
}

static inline void draw_sequence(struct stage_draw *draws, struct stage_job *job)
{
    struct stage_arrays *a = stage_arrays();
    uint32_t rows = 1 + draw(draws, EXAMPLE_ROWS);
    uint32_t index = job->sequence_count++;
    a->sequences[index] = (struct stage_sequence){
        .table = draw(draws, LIMIT_MACHINE_REQUESTS),
        .row_count = rows,
        .first_position = draw(draws, LIMIT_CONTEXT_TOKENS - rows + 1),
        .known = (uint32_t)draw64(draws),
        .block_count = draw(draws, EXAMPLE_BLOCKS + 1),
    };
    if (draw(draws, 2) == 0) {
        struct stage_sample *sample = &a->samples[job->sample_count++];
        memset(sample, 0, sizeof(*sample));
        sample->seed = draw64(draws);
        sample->temperature = (float)draw(draws, 2000) / 1000;
        sample->top_p = (float)draw(draws, 1001) / 1000;
        sample->min_p = (float)draw(draws, 1001) / 1000;
        sample->top_k = (uint32_t)draw64(draws);
        sample->logprobs = (int32_t)draw(draws, LIMIT_LOGPROBS + 2) - 1;
        sample->row = job->row_count + rows - 1;
        sample->position = (uint32_t)draw64(draws);
        sample->masked_count = draw(draws, 17);
        for (uint32_t i = 0; i < 16; i++)
            sample->masked[i] = (uint32_t)draw64(draws);
    }
    if (draw(draws, 3) == 0) {
        uint32_t count = 1 + draw(draws, rows);
        a->scores[job->score_count++] =
            (struct stage_score){.first_row = job->row_count,
                                 .row_count = count,
                                 .logprobs = (int32_t)draw(draws, LIMIT_LOGPROBS + 2) - 1};
        job->score_row_count += count;
    }
    if (draw(draws, 2) == 0) {
        struct stage_push *push = &a->pushes[job->push_count++];
        memset(push, 0, sizeof(*push));
        push->cookie = draw64(draws);
        push->target = draw(draws, LIMIT_MACHINES);
        push->serial = (uint32_t)draw64(draws);
        push->sequence = index;
        push->first = (uint32_t)draw64(draws);
        push->count = draw(draws, EXAMPLE_BLOCKS + 1);
        push->path = (uint8_t)draw(draws, LIMIT_STAGE_PATHS);
        push->layerwise = (uint8_t)draw(draws, 2);
        push->last = (uint8_t)draw(draws, 2);
        job->target_count += push->count;
    }
    job->row_count += rows;
    job->block_count += a->sequences[index].block_count;
}

static inline void draw_numbers(struct stage_draw *draws, uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = (uint32_t)draw64(draws);
}

static inline struct stage_job draw_job(struct stage_draw *draws)
{
    struct stage_arrays *a = stage_arrays();
    struct stage_job job = {
        .serial = draw64(draws),
        .slot = (uint32_t)draw64(draws),
        .path = draw(draws, LIMIT_STAGE_PATHS),
        .turn_us = (uint32_t)draw64(draws),
        .pushes = a->pushes,
        .samples = a->samples,
        .sequences = a->sequences,
        .scores = a->scores,
        .tokens = a->tokens,
        .blocks = a->blocks,
        .targets = a->targets,
        .score_ids = a->score_ids,
    };
    for (uint32_t left = 1 + draw(draws, EXAMPLE_SEQUENCES); left > 0; left--)
        draw_sequence(draws, &job);
    job.token_count = draw(draws, 2) * job.row_count;
    draw_numbers(draws, a->tokens, job.token_count);
    draw_numbers(draws, a->blocks, job.block_count);
    draw_numbers(draws, a->targets, job.target_count);
    draw_numbers(draws, a->score_ids, job.score_row_count);
    return job;
}

static inline struct stage_done draw_done(struct stage_draw *draws)
{
    static struct sampled results[EXAMPLE_ROWS];
    struct stage_done done = {
        .serial = draw64(draws), .result_count = draw(draws, EXAMPLE_ROWS + 1), .results = results};
    memset(results, 0, sizeof(results));
    for (uint32_t i = 0; i < done.result_count; i++) {
        results[i].id = (uint32_t)draw64(draws);
        results[i].logprob = -(float)draw(draws, 1000) / 100;
        results[i].top_count = draw(draws, LIMIT_LOGPROBS + 1);
        for (uint32_t k = 0; k < results[i].top_count; k++) {
            results[i].top_ids[k] = (uint32_t)draw64(draws);
            results[i].top_logprobs[k] = -(float)draw(draws, 1000) / 100;
        }
    }
    return done;
}

static inline struct stage_open draw_open(struct stage_draw *draws)
{
    const uint32_t ranks = 1 + draw(draws, LIMIT_RANKS);
    return (struct stage_open){
        .stage = draw(draws, LIMIT_STAGES),
        .first_layer = (uint32_t)draw64(draws),
        .last_layer = (uint32_t)draw64(draws),
        .block_count = (uint32_t)draw64(draws),
        .rows_max = 1 + draw(draws, LIMIT_BATCH_TOKENS),
        .slots = 1 + draw(draws, LIMIT_BATCHES_IN_FLIGHT),
        .context_blocks = 1 + draw(draws, LIMIT_CONTEXT_TOKENS),
        .rank = draw(draws, ranks),
        .ranks = ranks,
        .next = draw_stages(draws),
    };
}

static inline void draw_told(struct stage_draw *draws, struct stage_message *message)
{
    switch (message->kind) {
    case STAGE_STATE:
        message->state.ready = draw(draws, 2);
        draw_text(draws, message->state.text, sizeof(message->state.text));
        break;
    case STAGE_TARGET_LINK:
        message->target_link.target = draw(draws, LIMIT_MACHINES);
        message->target_link.serial = (uint32_t)draw64(draws);
        message->target_link.up = draw(draws, 2);
        draw_text(draws, message->target_link.text, sizeof(message->target_link.text));
        break;
    case STAGE_WRITER:
        message->writer.up = draw(draws, 2);
        draw_text(draws, message->writer.name, sizeof(message->writer.name));
        draw_text(draws, message->writer.text, sizeof(message->writer.text));
        break;
    case STAGE_FLUSHED:
        message->flushed =
            (struct stage_flushed){.cookie = draw64(draws), .status = (int32_t)draw64(draws)};
        break;
    default:
        for (size_t i = 0; i < sizeof(message->load) / sizeof(uint64_t); i++)
            ((uint64_t *)&message->load)[i] = draw64(draws);
    }
}

/* Makes a message. Unused bytes are 0, so that equal messages have equal bytes. */
static inline void stage_example(struct stage_draw *draws, enum stage_message_kind kind,
                                 struct stage_message *out)
{
    memset(out, 0, sizeof(*out));
    out->kind = kind;
    switch (kind) {
    case STAGE_OPEN:
        out->open = draw_open(draws);
        break;
    case STAGE_GROUP:
        draw_text(draws, out->group.device, sizeof(out->group.device));
        for (uint32_t i = 0; i < STAGE_GROUP_ID_BYTES; i++)
            out->group.id[i] = (uint8_t)draw(draws, 256);
        break;
    case STAGE_JOB:
        out->job = draw_job(draws);
        break;
    case STAGE_ACTIVATIONS:
        out->activations.serial = draw64(draws);
        out->activations.slot = draw(draws, LIMIT_BATCHES_IN_FLIGHT);
        break;
    case STAGE_DONE:
        out->done = draw_done(draws);
        break;
    case STAGE_TARGET:
        out->target.target = draw(draws, LIMIT_MACHINES);
        out->target.serial = (uint32_t)draw64(draws);
        draw_text(draws, out->target.name, sizeof(out->target.name));
        out->target.stages = draw_stages(draws);
        break;
    case STAGE_FLUSH:
        out->flush.cookie = draw64(draws);
        out->flush.target = draw(draws, LIMIT_MACHINES);
        out->flush.path = draw(draws, LIMIT_STAGE_PATHS);
        break;
    default:
        draw_told(draws, out);
    }
}

#endif
