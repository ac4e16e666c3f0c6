/* machine_draft: the draft model of a machine whose own process computes: a device of its own, with
 * the draft model's weights, engine and KV memory. The draft layer of the machine's model is such a
 * draft model, too, which also reads final vectors (token_pool/draft_finals.h). The draft model and
 * the machine's model compute in turn: between two steps, the draft model computes one job for each
 * token of the longest draft. token_pool/token_drafts.c decides what a job computes. */
#include "machine/state.h"

#include "machine/answer.h"
#include "machine/executor/device.h"

#include "common/log.h"
#include "model/file/model_file.h"
#include "token_pool/token_drafts.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Rows for catching up, beside a step: at most as many as take the time of a step, but between
 * these numbers. */
#define CATCH_UP_ROWS_MIN 16
#define CATCH_UP_ROWS_MAX 256
/* Rows for catching up until their time is known, and while the machine has no step to compute. */
#define CATCH_UP_ROWS 64
#define ROW_WEIGHT    (1.0 / 8) /* Weight of a job in the mean time of a row. */

struct machine_draft {
    struct machine_shape shape; /* Of the draft model; only what a device needs. */
    struct kv_arena arena;
    struct device device;
    const struct device_memory *memory; /* Memory that has the KV; NULL = host memory. */
    void *kv;
    struct token_draft_job wanted; /* The job that runs. */
    struct engine_job job;         /* The same for the engine; uses the arrays below. */
    uint32_t *token_ids;           /* [rows_max] */
    float *finals;       /* [rows_max × final_floats]: final vectors of the rows' tokens. */
    float *drawn_finals; /* [sequences_max × final_floats]: final vectors of each item's token. */
    struct compute_sequence *sequences; /* [sequences_max] */
    struct engine_sample *samples;      /* [sequences_max] */
    uint32_t *ids;                      /* [sequences_max] */
    /* [sequences_max × mask_words]: masks of samples whose answers have a constraint. */
    uint32_t *masks;
    uint32_t mask_words;
    /* Copies of the rules and tokens that samples read. */
    uint32_t *words;
    size_t word_count, word_capacity;
    bool running;   /* The engine has the job. */
    bool caught_up; /* The rows for catching up before the machine's next step are computed. */
    double row_us;  /* Mean time of a row in jobs that only catch up; 0 = not known. */
};

static enum status region_create(void *self, const struct device_memory *memory, void **kv_out,
                                 struct error *error)
{
    struct machine_draft *d = self;
    const uint64_t bytes = kv_arena_bytes(&d->arena);
    enum status status = ST_OK;
    void *kv = NULL;
    if (memory != NULL)
        status = memory->ops->allocate(memory->self, bytes, &kv, error);
    else if ((kv = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) == MAP_FAILED)
        status = error_set(error, ST_NO_MEMORY, "no memory for KV: %s", strerror(errno));
    if (status != ST_OK)
        return status;
    d->memory = memory;
    d->kv = *kv_out = kv;
    return ST_OK;
}

static enum status draft_device_open(struct machine *m, struct machine_draft *d,
                                     struct error *error)
{
    struct model_file *file;
    enum status status = draft_shape_file_open(m->options.config, NULL, &file, error);
    if (status != ST_OK)
        return status;
    const struct device_options options = {
        .process_name = m->config_entry->name,
        .machine = m->config_entry,
        .name = m->config_entry->device,
        .fallback = m->config_entry->cpu_fallback,
        .ops = m->options.compute,
        .threads = m->config_entry->threads,
        .shape = &d->shape,
        .arena = &d->arena,
        .draft_layer = m->options.config->scheduler.draft_layer,
        .file = file,
        .kv_region_create = region_create,
        .self = d,
        .turns = m->options.turns,
    };
    status = device_open(&options, &d->device, error);
    if (status != ST_OK)
        error_prefix(error, "%s", config_draft_key(m->options.config));
    model_file_close(file);
    return status;
}

/* machine_draft_close frees what was allocated, also after an error. */
static enum status draft_open(struct machine *m, struct machine_draft *d, struct error *error)
{
    const struct machine_shape *shape = &m->shape;
    d->shape.hyper = shape->draft.hyper;
    d->shape.context_tokens = shape->draft.context_tokens;
    d->shape.kv_dtype = shape->kv_dtype;
    d->shape.sequences_max = shape->sequences_max;
    d->shape.rows_max = CATCH_UP_ROWS_MAX + 2 * shape->sequences_max;
    if (d->shape.rows_max > LIMIT_BATCH_TOKENS)
        d->shape.rows_max = LIMIT_BATCH_TOKENS;
    d->arena = draft_shape_arena(&shape->draft, m->arena.block_tokens, m->arena.block_count);
    d->token_ids = calloc(d->shape.rows_max, sizeof(d->token_ids[0]));
    d->sequences = calloc(shape->sequences_max, sizeof(d->sequences[0]));
    d->samples = calloc(shape->sequences_max, sizeof(d->samples[0]));
    d->ids = calloc(shape->sequences_max, sizeof(d->ids[0]));
    d->mask_words = GRAMMAR_MASK_WORDS(shape->hyper.vocab);
    d->masks = calloc(shape->sequences_max, d->mask_words * sizeof(d->masks[0]));
    const size_t finals = machine_draft_final_floats(m) * sizeof(float);
    if (finals > 0) {
        d->finals = calloc(d->shape.rows_max, finals);
        d->drawn_finals = calloc(shape->sequences_max, finals);
    }
    if ((finals > 0 && (d->finals == NULL || d->drawn_finals == NULL)) || d->token_ids == NULL ||
        d->sequences == NULL || d->samples == NULL || d->ids == NULL || d->masks == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory",
                         config_draft_key(m->options.config));
    return draft_device_open(m, d, error);
}

/* Returns why a machine of a config with a draft model has none. */
static const char *unused_reason(const struct machine *m)
{
    if (m->options.config->scheduler.speculative_tokens == 0)
        return "scheduler/speculative_tokens, the most tokens of a draft, is 0";
    if (m->shape.plan.process_count > 0)
        return "machines with stages or ranks draft tokens from the context only";
    return "machines with a GPU draft tokens from the context only";
}

enum status machine_draft_open(struct machine *m, struct error *error)
{
    const struct config *config = m->options.config;
    const char *key = config_draft_key(config);
    if (!config_machine_drafts(config, m->config_entry)) {
        if (key != NULL &&
            (config->scheduler.speculative_tokens == 0 || m->config_entry->pool != POOL_PROMPT))
            log_warn("machine %s does not use %s: %s", m->config_entry->name, key,
                     unused_reason(m));
        return ST_OK;
    }
    m->draft = calloc(1, sizeof(*m->draft));
    if (m->draft == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", key);
    enum status status = draft_open(m, m->draft, error);
    if (status == ST_OK)
        log_info("machine %s drafts tokens with %s%s: %zu MiB of weights, %llu MiB "
                 "of its kv_memory",
                 m->config_entry->name, config->scheduler.draft_layer ? "the draft layer of " : "",
                 m->shape.draft.hyper.name, model_weight_bytes(m->draft->device.model) >> 20,
                 (unsigned long long)(kv_arena_bytes(&m->draft->arena) >> 20));
    return status;
}

void machine_draft_stop(struct machine *m)
{
    if (m->draft != NULL)
        device_stop(&m->draft->device);
}

void machine_draft_close(struct machine *m)
{
    struct machine_draft *d = m->draft;
    if (d == NULL)
        return;
    device_stop(&d->device);
    if (d->memory != NULL)
        d->memory->ops->free(d->memory->self, d->kv);
    else if (d->kv != NULL)
        munmap(d->kv, kv_arena_bytes(&d->arena));
    device_close(&d->device);
    free(d->token_ids);
    free(d->finals);
    free(d->drawn_finals);
    free(d->sequences);
    free(d->samples);
    free(d->ids);
    free(d->masks);
    free(d->words);
    free(d);
    m->draft = NULL;
}

uint32_t machine_draft_final_floats(const struct machine *m)
{
    return m->draft != NULL && m->options.config->scheduler.draft_layer ? m->shape.hyper.hidden : 0;
}

struct token_draft_model machine_draft_sizes(const struct machine *m)
{
    const struct machine_draft *d = m->draft;
    if (d == NULL)
        return (struct token_draft_model){0};
    return (struct token_draft_model){
        .vocab = d->shape.hyper.vocab,
        .context_tokens = d->shape.context_tokens,
        .block_count = d->arena.block_count,
        .block_tokens = d->arena.block_tokens,
        .rows_max = d->shape.rows_max,
        .step_rows = d->shape.sequences_max,
        .final_floats = machine_draft_final_floats(m),
    };
}

int machine_draft_fd(const struct machine *m)
{
    return m->draft != NULL ? engine_fd(m->draft->device.engine) : -1;
}

/* Copies `count` words, because the request may end while the job runs. Requires room. */
static const uint32_t *words_copy(struct machine_draft *d, const uint32_t *words, uint32_t count)
{
    uint32_t *to = d->words + d->word_count;
    if (count > 0)
        memcpy(to, words, count * sizeof(*to));
    d->word_count += count;
    return to;
}

/* Makes room for the copies of all items. Returns false if memory is short. */
static bool words_reserve(struct machine_draft *d)
{
    size_t needed = 0;
    for (uint32_t i = 0; i < d->wanted.item_count; i++)
        needed += d->wanted.items[i].context.rule_count + d->wanted.items[i].context.token_count;
    d->word_count = 0;
    if (needed <= d->word_capacity)
        return true;
    uint32_t *words = realloc(d->words, 2 * needed * sizeof(*words));
    if (words == NULL)
        return false;
    d->words = words;
    d->word_capacity = 2 * needed;
    return true;
}

/* Sets the tokens that the sample may give after the drafted tokens, if its answer has a constraint
 * whose mask can be made. */
static void sample_constrain(struct machine_draft *d, const struct token_draft_item *item,
                             struct engine_sample *sample)
{
    const uint32_t *mask;
    struct error error;
    bool good = item->answer != NULL;
    uint32_t *own = d->masks + (size_t)(sample - d->samples) * d->mask_words;
    for (uint32_t i = 0; good && i < item->drafted_count; i++)
        good = grammar_answer_draft_add(item->answer, item->drafted[i]);
    if (good && grammar_answer_mask(item->answer, item->sampling->end_tokens,
                                    item->sampling->end_count, &mask, &error) == ST_OK) {
        memcpy(own, mask, d->mask_words * sizeof(*own));
        sample->allowed = own;
    }
    if (item->answer != NULL)
        grammar_answer_draft_drop(item->answer);
}

/* Adds what the sample of the answer's own token depends on: rules, earlier tokens, the constraint.
 * It only makes the two tokens equal more often, so it can be left out. */
static void sample_rules_add(const struct machine *m, struct machine_draft *d,
                             const struct token_draft_item *item, struct engine_sample *sample)
{
    if (m->shape.hyper.vocab != d->shape.hyper.vocab)
        return;
    sample->context = item->context;
    sample->context.rules = words_copy(d, item->context.rules, item->context.rule_count);
    sample->context.tokens = words_copy(d, item->context.tokens, item->context.token_count);
    sample_constrain(d, item, sample);
}

static void item_fill(const struct machine *m, struct machine_draft *d, uint32_t index,
                      uint32_t row, bool rules)
{
    const struct token_draft_item *item = &d->wanted.items[index];
    const size_t floats = machine_draft_final_floats(m);
    if (floats > 0)
        memcpy(d->finals + row * floats, item->finals, item->row_count * floats * sizeof(float));
    memcpy(d->token_ids + row, item->tokens, item->row_count * sizeof(uint32_t));
    d->sequences[index] = (struct compute_sequence){
        .first_row = row,
        .row_count = item->row_count,
        .first_position = item->kv_position,
        .blocks = item->blocks,
    };
    if (item->sampling == NULL)
        return;
    struct engine_sample *sample = &d->samples[d->job.sample_count++];
    answer_sample_fill(item->sampling, d->shape.hyper.vocab, item->answer_index,
                       row + item->row_count - 1, item->position + item->row_count, sample);
    sample->choice.sampling.logprobs = -1;
    sample->final = floats > 0 ? d->drawn_finals + index * floats : NULL;
    if (rules)
        sample_rules_add(m, d, item, sample);
}

static void job_start(struct machine *m)
{
    struct machine_draft *d = m->draft;
    uint32_t row = 0;
    d->job = (struct engine_job){
        .token_ids = d->token_ids,
        .finals = d->finals,
        .batch = {.row_count = d->wanted.row_count,
                  .sequence_count = d->wanted.item_count,
                  .sequences = d->sequences},
        .samples = d->samples,
        .turn_us = machine_turn_us(m, false),
    };
    const bool rules = words_reserve(d);
    for (uint32_t i = 0; i < d->wanted.item_count; i++) {
        item_fill(m, d, i, row, rules);
        row += d->wanted.items[i].row_count;
    }
    d->caught_up |= d->wanted.catch_up_rows > 0;
    d->running = true;
    engine_start(d->device.engine, &d->job);
}

static uint32_t catch_up_rows(const struct machine_draft *d, const struct machine *m, bool decodes)
{
    double rows = CATCH_UP_ROWS;
    if (d->caught_up)
        return 0;
    if (decodes && d->row_us > 0 && m->pace.step_us > 0)
        rows = m->pace.step_us / d->row_us;
    return rows < CATCH_UP_ROWS_MIN   ? CATCH_UP_ROWS_MIN
           : rows > CATCH_UP_ROWS_MAX ? CATCH_UP_ROWS_MAX
                                      : (uint32_t)rows;
}

bool machine_draft_turn(struct machine *m)
{
    struct machine_draft *d = m->draft;
    struct sched_machine_load load;
    if (d == NULL || d->running)
        return d != NULL;
    /* A step beside a prompt checks no drafts, and the prompt should not wait. */
    sched_machine_load(m->sched, &load);
    if (load.prompt_tokens_open > 0 || m->stopping)
        return false;
    const uint32_t rows = catch_up_rows(d, m, load.decodes_running > 0);
    if (!token_pool_drafts_next(m->token_pool, rows, &d->wanted))
        return false;
    job_start(m);
    return true;
}

void machine_draft_catch_up_allow(struct machine *m)
{
    if (m->draft != NULL)
        m->draft->caught_up = false;
}

static void times_add(struct machine *m, const struct machine_draft *d)
{
    const struct token_draft_job *wanted = &d->wanted;
    const double row_us = (double)d->job.used_us / wanted->row_count;
    if (wanted->catch_up_rows == 0)
        sched_drafts_step_add(&m->drafts.model, wanted->item_count, d->job.used_us);
    else if (wanted->catch_up_rows == wanted->row_count)
        m->draft->row_us += (d->row_us > 0 ? ROW_WEIGHT : 1) * (row_us - d->row_us);
}

void machine_draft_progress(struct machine *m)
{
    struct machine_draft *d = m->draft;
    uint32_t sample = 0;
    if (d == NULL || !d->running || !engine_poll(d->device.engine).done)
        return;
    d->running = false;
    times_add(m, d);
    for (uint32_t i = 0; i < d->wanted.item_count; i++)
        d->ids[i] = d->wanted.items[i].sampling != NULL ? d->samples[sample++].result.id : 0;
    token_pool_drafts_done(m->token_pool, &d->wanted, d->ids, d->drawn_finals);
}
