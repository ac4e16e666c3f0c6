/* reference: the plain loop whose results every placement must have. It has its own compute device,
 * model and KV. */
#include "machine/answer.h"
#include "model/file/model_file.h"
#include "model/forward/model.h"
#include "tests/check.h"
#include "tests/machine/cluster.h"

#include <stdlib.h>
#include <string.h>

struct reference {
    struct compute *compute;
    struct model *model;
    struct forward *forward;
    struct model_kv kv;
    uint32_t context;
    uint32_t *blocks;
    float *scratch;
};

#define BLOCK_TOKENS 16
#define ROWS_MAX     4096

struct reference *reference_open(const char *path)
{
    struct reference *r = calloc(1, sizeof(*r));
    struct model_file *file;
    struct error error;
    const struct compute_options compute_options = {.threads = 1};
    CHECK(r != NULL && model_file_open(path, &file, &error) == ST_OK);
    CHECK(compute_cpu.open(&compute_options, &r->compute, &error) == ST_OK);
    const struct model_options options = {.ops = &compute_cpu, .compute = r->compute};
    CHECKF(model_open(file, &options, &r->model, &error) == ST_OK, "%s", error.text);
    model_file_close(file);
    const struct model_hyper *hyper = model_hyper_get(r->model);
    r->context = hyper->context_tokens < ROWS_MAX ? hyper->context_tokens : ROWS_MAX;
    CHECKF(forward_open(r->model, r->context, 1, &r->forward, &error) == ST_OK, "%s", error.text);
    size_t block_bytes =
        compute_kv_block_bytes(BLOCK_TOKENS, hyper->kv_head_count, hyper->head_dim, COMPUTE_KV_I16);
    uint32_t count = r->context / BLOCK_TOKENS + 1;
    r->kv = (struct model_kv){.layer_stride_bytes = count * block_bytes,
                              .block_bytes = block_bytes,
                              .block_tokens = BLOCK_TOKENS,
                              .dtype = COMPUTE_KV_I16};
    CHECK(posix_memalign(&r->kv.base, 4096, hyper->layer_count * count * block_bytes) == 0);
    memset(r->kv.base, 0, hyper->layer_count * count * block_bytes);
    r->blocks = malloc(count * sizeof(r->blocks[0]));
    for (uint32_t i = 0; i < count; i++)
        r->blocks[i] = i;
    r->scratch = malloc(2 * (size_t)hyper->vocab * sizeof(float));
    return r;
}

void reference_close(struct reference *r)
{
    forward_close(r->forward);
    model_close(r->model);
    compute_cpu.close(r->compute);
    free(r->kv.base);
    free(r->blocks);
    free(r->scratch);
    free(r);
}

uint32_t reference_vocab(const struct reference *r)
{
    return model_hyper_get(r->model)->vocab;
}

/* Runs rows at positions [first, first + count). Returns the last row's logits. */
static const float *reference_run(struct reference *r, const uint32_t *ids, uint32_t first,
                                  uint32_t count, bool all_rows)
{
    const struct compute_sequence sequence = {
        .row_count = count, .first_position = first, .blocks = r->blocks};
    const uint32_t last = count - 1;
    const struct forward_batch batch = {
        .token_ids = ids,
        .batch = {.row_count = count, .sequence_count = 1, .sequences = &sequence},
        .logits_rows = &last,
        .logits_count = 1,
        .all_rows = all_rows,
    };
    const float *logits;
    forward_run(r->forward, &batch, &r->kv, &logits);
    return logits;
}

/* Writes the logits with the request's penalties, counted for each id of the vocabulary. */
static void penalise(const struct cluster_request *request, const struct message_token *tokens,
                     uint32_t count, const float *logits, uint32_t vocab, float *row)
{
    const struct sampling *s = &request->sampling;
    for (uint32_t id = 0; id < vocab; id++) {
        uint32_t times = 0, before = 0;
        for (uint32_t i = 0; i < request->prompt_count; i++)
            before += request->prompt[i] == id;
        for (uint32_t i = 0; i < count; i++)
            times += tokens[i].id == id;
        row[id] = logits[id];
        if (before + times > 0 && s->repetition_penalty > 0)
            row[id] =
                row[id] > 0 ? row[id] / s->repetition_penalty : row[id] * s->repetition_penalty;
        if (times > 0)
            row[id] -= s->frequency_penalty * (float)times + s->presence_penalty;
    }
}

/* Draws the answer's token `count` as machines do. */
static void reference_draw(struct reference *r, const struct cluster_request *request,
                           const struct message_token *tokens, uint32_t count, const float *logits,
                           struct engine_sample *sample)
{
    uint32_t vocab = reference_vocab(r), position = request->prompt_count + count;
    struct sampling unscored = request->sampling;
    float *row = malloc(vocab * sizeof(*row));
    CHECK(row != NULL);
    answer_sample_fill(&request->sampling, vocab, count, 0, position, sample);
    penalise(request, tokens, count, logits, vocab, row);
    unscored.logprobs = -1;
    sampler_draw(&unscored, row, vocab, position, sample->choice.masked,
                 sample->choice.masked_count, r->scratch, &sample->result);
    if (request->sampling.logprobs >= 0)
        sampler_score(logits, vocab, sample->result.id, request->sampling.logprobs,
                      &sample->result);
    free(row);
}

uint32_t reference_answer(struct reference *r, const struct cluster_request *request,
                          struct message_token **tokens_out, struct message_token **scores_out)
{
    uint32_t vocab = reference_vocab(r);
    uint32_t room = r->context - request->prompt_count;
    uint32_t limit =
        request->sampling.output_tokens_max < room ? request->sampling.output_tokens_max : room;
    struct message_token *tokens = calloc(limit + 1, sizeof(*tokens));
    struct message_token *scores = calloc(request->prompt_count, sizeof(*scores));
    const float *logits =
        reference_run(r, request->prompt, 0, request->prompt_count, request->score);
    uint32_t count = 0;
    while (count < limit) {
        struct engine_sample sample;
        uint32_t position = request->prompt_count + count;
        reference_draw(r, request, tokens, count, logits, &sample);
        answer_token_fill(&request->sampling, limit, count, &sample.result, &tokens[count]);
        if (tokens[count++].finish != FINISH_NONE)
            break;
        if (request->score && count == 1)
            /* A scored request has at most one answer token: forward_logits needs the prompt's
             * batch. */
            break;
        logits = reference_run(r, &tokens[count - 1].id, position, 1, false);
    }
    for (uint32_t row = 0; request->score && row + 1 < request->prompt_count; row++) {
        struct sampled sampled;
        forward_logits(r->forward, &row, 1, &logits);
        sampler_score(logits, vocab, request->prompt[row + 1], request->sampling.logprobs,
                      &sampled);
        answer_score_fill(row + 1, &sampled, &scores[row]);
        scores[row].id = request->prompt[row + 1];
    }
    *tokens_out = tokens;
    *scores_out = scores;
    return count;
}

static void token_check(uint64_t request, const struct message_token *have,
                        const struct message_token *want)
{
    CHECKF(have->id == want->id && have->index == want->index && have->finish == want->finish,
           "request %" PRIu64 " token %u is %u (finish %u), want %u (finish %u)", request,
           want->index, have->id, have->finish, want->id, want->finish);
    CHECK(have->has_logprob == want->has_logprob && have->top_count == want->top_count);
    CHECKF(have->logprob == want->logprob, "request %" PRIu64 " token %u logprob %.9g, want %.9g",
           request, want->index, (double)have->logprob, (double)want->logprob);
    for (uint32_t i = 0; i < want->top_count; i++)
        CHECK(have->top_ids[i] == want->top_ids[i] &&
              have->top_logprobs[i] == want->top_logprobs[i]);
}

void reference_check(struct reference *r, const struct cluster_request *request)
{
    struct message_token *tokens, *scores;
    uint32_t count = reference_answer(r, request, &tokens, &scores);
    uint64_t id = request->attempt.id;
    CHECKF(!request->failed, "request %" PRIu64 " failed: %s", id, request->failed_text);
    CHECKF(request->token_count == count, "request %" PRIu64 ": %u tokens, want %u", id,
           request->token_count, count);
    for (uint32_t i = 0; i < count; i++)
        token_check(id, &request->tokens[i], &tokens[i]);
    CHECK(request->score_count == (request->score ? request->prompt_count - 1 : 0));
    for (uint32_t i = 0; i < request->score_count; i++)
        token_check(id, &request->scores[i], &scores[i]);
    free(tokens);
    free(scores);
}
