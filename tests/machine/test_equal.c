/* Goal: a request's tokens, log-probabilities and scores are the same bits wherever it ran. Method:
 * three machines in one process, over the loopback transport or (argument "ucx", "ucx-tcp") UCX,
 * and random requests, all at once: prompts of 1 to 700 tokens (long ones in chunks), greedy and
 * sampled, sent layer-wise and in one piece, on two machines or one. Each is compared with the
 * plain loop of reference.c. Then conversations: prompts that begin with the prompt and answer of
 * an earlier request, which a machine has in its prefix cache. The model is a synthetic one, or
 * (second argument) the default one. With the argument "stages" two of the machines have stages,
 * split differently; with "replicas" one of them has two replicas of its first stage. */
#include "tests/check.h"
#include "tests/machine/cluster.h"
#include "tests/transport/loopback.h"

#include "common/random.h"

#include <string.h>

#define REQUESTS       60
#define TURNS          40 /* Further requests, each of which continues an earlier conversation. */
#define REQUESTS_LARGE 4  /* Requests to the default model; few, because the plain loop is slow. */

static uint64_t seed;
static uint64_t draws;
static bool large_model;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, ++draws) % below);
}

static void draw_prompt(uint32_t *prompt, uint32_t count, uint32_t vocab)
{
    for (uint32_t i = 0; i < count; i++)
        prompt[i] = draw(vocab);
}

static struct sampling draw_sampling(uint32_t vocab)
{
    struct sampling sampling = cluster_sampling(1 + draw(40));
    if (draw(2) == 0) {
        sampling.temperature = 0.5f + (float)draw(100) / 50;
        sampling.seed = draw(1u << 30);
        sampling.top_k = draw(2) * draw(100);
        sampling.top_p = draw(2) == 0 ? 1 : 0.9f;
    }
    if (draw(3) == 0) {
        sampling.presence_penalty = (float)draw(41) / 10 - 2;
        sampling.frequency_penalty = (float)draw(41) / 10 - 2;
        sampling.repetition_penalty = 0.5f + (float)draw(10) / 10;
    }
    sampling.logprobs = (int32_t)draw(4) - 1;
    if (draw(2) == 0) { /* Tokens that the answer may contain are stop tokens. */
        sampling.end_count = 16;
        for (uint32_t i = 0; i < 16; i++)
            sampling.end_tokens[i] = draw(vocab);
        sampling.output_tokens_min = draw(2) * draw(20);
    }
    return sampling;
}

static void submit_one(struct cluster *c, uint32_t vocab)
{
    static const uint32_t lengths[] = {1, 2, 15, 16, 17, 31, 64, 100, 128, 129, 300, 700};
    static uint32_t prompt[1024];
    uint32_t count = lengths[draw(sizeof(lengths) / sizeof(lengths[0]))];
    struct sampling sampling = draw_sampling(vocab);
    uint32_t prompt_machine = draw(3);
    uint32_t token_machine = draw(3);
    uint8_t path = (uint8_t)draw(3);
    draw_prompt(prompt, count, vocab);
    if (draw(6) == 0) { /* The request is scored, with no answer or with one token. */
        sampling.output_tokens_max = draw(2);
        sampling.output_tokens_min = 0;
        if (sampling.logprobs < 0)
            sampling.logprobs = 0;
        cluster_submit(c, prompt, count, &sampling, prompt_machine, CLUSTER_NONE, path, true);
        return;
    }
    cluster_submit(c, prompt, count, &sampling, prompt_machine, token_machine, path, false);
}

/* Where the next turn of a conversation runs: both phases on the machine that decoded the last
 * answer; the prompt on the machine that computed the last prompt and the answer elsewhere; or any
 * machines. */
enum turn_kind { TURN_THERE, TURN_APART, TURN_ANY, TURN_KINDS };

static void submit_turn(struct cluster *c, uint32_t vocab, enum turn_kind kind)
{
    static uint32_t prompt[1024];
    const struct cluster_request *before = &c->requests[draw(c->request_count)];
    const struct sampling sampling = draw_sampling(vocab);
    uint32_t count = before->prompt_count;
    memcpy(prompt, before->prompt, count * sizeof(prompt[0]));
    for (uint32_t i = 0; i < before->token_count; i++)
        prompt[count++] = before->tokens[i].id;
    uint32_t more = 1 + draw(60);
    if (!before->done || count + more > 900)
        return;
    draw_prompt(prompt + count, more, vocab);
    uint32_t prompt_machine = draw(3), token_machine = draw(3);
    if (kind == TURN_THERE && before->token_machine != CLUSTER_NONE)
        prompt_machine = token_machine = before->token_machine;
    if (kind == TURN_APART) {
        prompt_machine = before->prompt_machine;
        token_machine = (prompt_machine + 1 + draw(2)) % 3;
    }
    cluster_submit(c, prompt, count + more, &sampling, prompt_machine, token_machine,
                   (uint8_t)draw(3), false);
}

/* Checks that cached blocks were neither sent nor computed again. */
static void check_turns(struct cluster *c, uint32_t vocab)
{
    uint32_t first = c->request_count;
    uint64_t held = 0;
    uint64_t local = 0;
    uint64_t cached = 0;
    for (uint32_t i = 0; i < TURNS; i++) {
        submit_turn(c, vocab, (enum turn_kind)(i % TURN_KINDS));
        if (draw(3) == 0)
            cluster_finish(c);
    }
    cluster_finish(c);
    for (uint32_t i = first; i < c->request_count; i++) {
        const struct cluster_request *request = &c->requests[i];
        bool alone = request->prompt_machine == request->token_machine;
        held += request->held_count;
        local += alone ? request->tokens[0].cached_tokens : 0;
        cached += alone ? 0 : request->tokens[0].cached_tokens;
    }
    printf("turns: %" PRIu64 " blocks not sent, %" PRIu64 " tokens not computed where they are "
           "decoded, %" PRIu64 " elsewhere\n",
           held, local, cached);
    CHECK(held > 0 && local > 0 && cached > 0);
    for (uint32_t i = 0; i < c->options.machine_count; i++) {
        for (uint32_t turn = 0;
             turn < 500 && !cluster_prefixes_match(c, i, &c->reported_prefixes[i]); turn++)
            cluster_turn(c, 5);
        CHECK(cluster_prefixes_match(c, i, &c->reported_prefixes[i]) &&
              c->reported_prefixes[i].count > 2);
        CHECK(c->reported_prefixes[i].whole_reports == 1);
    }
}

/* A few requests to the default model, with each way of moving KV at least once. */
static void submit_large(struct cluster *c, uint32_t vocab, uint32_t number)
{
    static uint32_t prompt[200];
    struct sampling sampling = draw_sampling(vocab);
    uint32_t count = 20 + draw(80);
    if (sampling.output_tokens_max < 2) /* An answer of one token needs no KV on another machine. */
        sampling.output_tokens_max = 2;
    draw_prompt(prompt, count, vocab);
    cluster_submit(c, prompt, count, &sampling, 0, 1 + number % 2,
                   number % 4 < 2 ? TRANSFER_LAYERWISE : TRANSFER_ONE_PIECE, false);
}

static void check_figures(const struct cluster *c)
{
    uint32_t layerwise = 0;
    uint32_t one_piece = 0;
    for (uint32_t i = 0; i < c->request_count; i++) {
        const struct cluster_request *request = &c->requests[i];
        const struct message_prefilled *figures = &request->figures;
        bool moved = request->held_count == 0 && request->token_machine != CLUSTER_NONE &&
                     request->token_machine != request->prompt_machine &&
                     request->tokens[0].finish == FINISH_NONE;
        if (!moved) {
            continue;
        }
        CHECK(figures->bytes > 0 && figures->layers == (large_model ? 30 : 3));
        bool expected = request->transfer_mode == TRANSFER_LAYERWISE ||
                        (request->transfer_mode == TRANSFER_AUTO && request->prompt_count >= 64);
        CHECK(figures->layerwise == expected);
        layerwise += figures->layerwise;
        one_piece += !figures->layerwise;
    }
    printf("%u requests layer-wise, %u in one piece\n", layerwise, one_piece);
    CHECK(layerwise > 0 && one_piece > 0);
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    seed = test_seed();
    bool ucx = argc > 1 && strncmp(argv[1], "ucx", 3) == 0;
    large_model = argc > 2 && strcmp(argv[2], "default-model") == 0;
    const char *model = large_model ? test_model_path() : cluster_synthetic_model();
    const struct cluster_options options = {
        .transport = ucx ? &transport_ucx : &transport_loopback,
        .tls = ucx && strcmp(argv[1], "ucx-tcp") == 0 ? "tcp" : NULL,
        .model = model,
        .machine_count = 3,
        .kv_tokens = {8192, 8192, 8192},
        .pools = {POOL_MIXED, POOL_MIXED, POOL_MIXED},
        .prompt_batch_tokens = 256,
        .threads = 1,
        .stages = {cluster_stages(which, 0), cluster_stages(which, 1)},
    };
    struct reference *reference = reference_open(model);
    struct cluster *c = cluster_open(&options);
    for (uint32_t i = 0; i < (large_model ? REQUESTS_LARGE : REQUESTS); i++) {
        if (large_model)
            submit_large(c, reference_vocab(reference), i);
        else
            submit_one(c, reference_vocab(reference));
        for (uint32_t turns = draw(20); turns > 0; turns--)
            cluster_turn(c, (int)draw(2));
    }
    cluster_finish(c);
    /* A machine with replicas has no prefix cache. */
    if (!large_model && strcmp(which, "replicas") != 0)
        check_turns(c, reference_vocab(reference));
    printf("links: %s\n", c->link_text);
    for (uint32_t i = 0; i < c->request_count; i++)
        reference_check(reference, &c->requests[i]);
    check_figures(c);
    cluster_wait_free(c, 0);
    cluster_close(c);
    reference_close(reference);
    return 0;
}
