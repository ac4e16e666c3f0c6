/* Goal: full blocks of prompt and answer stay in the cache when a request ends, the next request
 * finds them, no writer gets them while other requests read them, and they hold the KV of their
 * tokens. Method: the pool alone with a real scheduler, block pool and prefix cache. The test plays
 * gateway, prompt machine and engine, writes a pattern of all tokens so far into the blocks that
 * each of them may write, and checks the blocks that it reads. First cases by hand, then random
 * conversations with every kind of end; once with whole answers reserved, once with answers that
 * grow and are preempted; both also for a model in which half of the layers have a window, and with
 * drafted tokens, of which some are wrong. */
#include "tests/check.h"

#include "common/random.h"
#include "scheduler/drafts.h"
#include "token_pool/token_pool.h"

#include <string.h>

#define BLOCKS_MOST  96
#define BLOCK_TOKENS 16
#define CONTEXT      256
#define TALKS        12 /* Number of conversations; each has one request at a time. */
#define STEPS        100000

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, ++draws) % below);
}

enum stage { STAGE_NONE, STAGE_WAITING, STAGE_RESERVED, STAGE_QUARANTINED, STAGE_DECODING };

struct talk {
    enum stage stage;
    uint64_t salt;
    struct message_request name;
    bool told;
    bool local;
    /* Whether this machine's prompt pool writes for a local prompt. */
    bool writes;
    uint32_t tokens[CONTEXT + 1]; /* The prompt, then the answer. */
    uint32_t prompt_count;
    uint32_t output_max;
    uint32_t count; /* Number of all tokens. */
    uint32_t held;
    uint32_t window_first; /* First span of layers with a window that the writer knows. */
    uint32_t told_count;
    uint32_t arrived;  /* Blocks of `blocks` that PROGRESS reported as complete. */
    uint32_t progress; /* Tokens of the latest PROGRESS that the gateway got. */
    kv_block_id blocks[2 * CONTEXT / BLOCK_TOKENS]; /* Blocks that a writer knows. */
};

static struct kv_pool *kv;
static struct kv_prefix *prefix;
static struct sched_machine *sched;
static struct token_pool *pool;
static struct talk talks[TALKS];
/* One group without a window, or also one with a window. */
static struct layer_groups groups = {.count = 1};
static uint32_t block_count = 48;
static uint64_t window_found;                /* Spans of layers with a window that were found. */
static uint64_t windows_asked, windows_held; /* Calls of token_pool_windows_find; found. */
static uint32_t window_spare;                /* window_spare_tokens. */
static uint32_t draft_tokens;                /* Most drafted tokens of a step. */
static uint64_t drafted_right, drafted_wrong;
static struct sched_drafts drafts;
static uint64_t
    content[BLOCKS_MOST]; /* Key of all tokens up to the last one written into the block. */
static int64_t now_us = 1000;
static char gateway_mark;
static bool random_ends;
static uint32_t calm = 1; /* Requests end early this many times more rarely. */
static uint32_t refused;
static uint64_t preempted;
static uint64_t found_blocks;
static uint64_t found_most; /* Most cached tokens that one prompt found. */

static struct talk *talk_of(uint64_t id)
{
    struct talk *talk = &talks[id % TALKS];
    CHECK(talk->stage != STAGE_NONE && talk->name.id == id);
    return talk;
}

static uint32_t spans_of(uint32_t tokens)
{
    return (tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

static uint32_t first_seen(uint32_t group, uint32_t position)
{
    return layer_groups_windowed(&groups, group)
               ? layer_groups_window_first(&groups, BLOCK_TOKENS, position)
               : 0;
}

/* Returns the key of the first `count` tokens in a group. Conversations with different salts share
 * no blocks, so the key includes the salt. */
static uint64_t key_of(const struct talk *talk, uint32_t group, uint32_t count)
{
    uint64_t key = 1 + talk->salt + 1000 * group;
    for (uint32_t i = 0; i < count; i++)
        key = random_at(key, talk->tokens[i]);
    return key;
}

static void on_send(void *self, struct transport_peer *peer, const struct message *message)
{
    (void)self;
    CHECK((char *)peer == &gateway_mark);
    if (message->kind == MESSAGE_PREEMPTED) { /* The answer continues later, with all its tokens. */
        struct talk *victim = talk_of(message->preempted.request.id);
        CHECK(victim->stage == STAGE_DECODING);
        CHECK(message->preempted.generated == victim->count - victim->prompt_count);
        victim->stage = STAGE_NONE;
        preempted++;
        return;
    }
    if (message->kind == MESSAGE_PROGRESS) {
        struct talk *talk = talk_of(message->progress.request.id);
        CHECK(talk->stage == STAGE_RESERVED && message->progress.tokens > talk->progress);
        talk->progress = message->progress.tokens;
        return;
    }
    if (message->kind == MESSAGE_FAILED) { /* check_progress, check_copies */
        refused++;
        return;
    }
    CHECK(message->kind == MESSAGE_RESERVED);
    const struct message_reserved *reserved = &message->reserved;
    struct talk *talk = talk_of(reserved->request.id);
    CHECK(talk->stage == STAGE_WAITING);
    talk->stage = STAGE_RESERVED;
    talk->held = reserved->held_span_count;
    talk->told_count = reserved->block_count;
    talk->arrived = talk->progress = 0;
    talk->window_first = reserved->window_first;
    CHECK(talk->told_count == layer_groups_blocks_between(
                                  &groups, talk->held, spans_of(talk->count), talk->window_first));
    if (groups.windowed != 0 && !talk->local) {
        const uint32_t least = first_seen(1, talk->count / BLOCK_TOKENS * BLOCK_TOKENS);
        CHECK(talk->window_first >= least && talk->window_first <= spans_of(talk->count));
        window_found += talk->window_first - least;
    }
    CHECK(talk->told || talk->held == 0);
    CHECK(talk->held * BLOCK_TOKENS <= talk->count - (talk->local ? 1 : 0));
    for (uint32_t i = 0; i < talk->told_count; i++) {
        talk->blocks[i] = reserved->blocks[i];
        CHECK(!kv_pool_owns(kv, KV_PREFIX_OWNER, reserved->blocks[i]));
    }
    found_blocks += talk->held;
    found_most = talk->held > found_most ? talk->held : found_most;
}

static void on_send_tokens(void *self, struct transport_peer *peer,
                           const struct message_buffer *tokens)
{
    (void)self, (void)peer, (void)tokens;
}

static void reserve(struct talk *talk)
{
    static uint64_t serial;
    talk->name = (struct message_request){.id = ++serial * TALKS + (uint64_t)(talk - talks),
                                          .generation = 1};
    talk->stage = STAGE_WAITING;
    talk->prompt_count = talk->count;
    struct message_reserve message = {
        .request = talk->name,
        .prompt_tokens = talk->count,
        .prefix_salt = talk->salt,
        .sampling = {.top_p = 1,
                     .seed = (uint64_t)(talk - talks), /* Identifies the conversation of a row. */
                     .logprobs = -1,
                     .output_tokens_max = talk->output_max},
        .prompt_count = talk->told ? talk->count : 0,
        .prefix_cache = true,
        .prompt = talk->tokens,
    };
    snprintf(message.prompt_machine, sizeof(message.prompt_machine), talk->local ? "t0" : "p0");
    token_pool_reserve(pool, (struct transport_peer *)&gateway_mark, &message, now_us);
}

/* Returns the end of the talk's tokens in a span. */
static uint32_t end_of(const struct talk *talk, uint32_t span)
{
    const uint32_t end = (span + 1) * BLOCK_TOKENS;
    return end < talk->count ? end : talk->count;
}

/* The prompt machine, this one or another one, writes all blocks that it knows, and reports
 * them. */
static void deliver(struct talk *talk)
{
    struct token_blocks local = {0};
    const kv_block_id *told = talk->blocks;
    if (talk->local)
        CHECK(token_pool_request_blocks(pool, &talk->name, &local) == ST_OK &&
              local.tables.cached_spans == talk->held);
    for (uint32_t g = 0; g < groups.count; g++) {
        const uint32_t held = talk->held;
        for (uint32_t i = first_seen(g, held * BLOCK_TOKENS); i < held && talk->local; i++)
            CHECK(content[kv_tables_id(&local.tables, g, i)] ==
                  key_of(talk, g, (i + 1) * BLOCK_TOKENS));
        /* Span after span, as a prompt is computed: a later one may take the block of an earlier
         * one. */
        const bool windowed = layer_groups_windowed(&groups, g);
        for (uint32_t i = windowed && !talk->local ? talk->window_first : held;
             i < spans_of(talk->count); i++) {
            const kv_block_id block = talk->local ? kv_tables_id(&local.tables, g, i) : *told++;
            CHECK(!kv_pool_owns(kv, KV_PREFIX_OWNER, block));
            content[block] = key_of(talk, g, end_of(talk, i));
        }
    }
    talk->tokens[talk->count++] = draw(3);
    token_pool_kv_ready(pool,
                        &(struct message_kv_ready){.request = talk->name,
                                                   .prompt_tokens = talk->prompt_count,
                                                   .first_token = talk->tokens[talk->count - 1]},
                        now_us);
    talk->stage = STAGE_DECODING;
}

/* The prompt machine writes one more full block, and reports it. */
static void arrive(struct talk *talk)
{
    uint32_t end = (talk->held + talk->arrived + 1) * BLOCK_TOKENS;
    const struct message_progress progress = {.request = talk->name, .tokens = end};
    if (talk->local || end >= talk->count)
        return;
    content[talk->blocks[talk->arrived++]] = key_of(talk, 0, end);
    token_pool_progress(pool, &progress);
    CHECK(talk->progress == (talk->told ? end : 0));
}

/* A prompt machine that is gone may still write into the blocks that it has not reported. */
static void write_late(const struct talk *talk)
{
    for (uint32_t i = talk->arrived; i < talk->told_count; i++)
        content[talk->blocks[i]] = draw(1000);
}

/* Runs one decode step: reads all blocks so far, and writes the position of the token. `drafted`
 * tokens are computed with it: whatever is in the blocks of only these tokens is overwritten before
 * any row reads. */
static struct talk *row_run(sched_slot slot, uint32_t drafted, struct token_decode *out)
{
    token_pool_decode_begin(pool, slot, now_us, out);
    const struct token_decode row = *out;
    struct talk *talk = &talks[row.sampling->seed];
    uint32_t at = row.position;
    CHECK(talk->stage == STAGE_DECODING && at + 1 == talk->count &&
          row.input_id == talk->tokens[at]);
    for (uint32_t g = 0; g < groups.count; g++) {
        const kv_block_id *blocks = row.blocks + g * row.group_stride;
        for (uint32_t i = at / BLOCK_TOKENS + 1; i <= (at + drafted) / BLOCK_TOKENS; i++) {
            CHECK(!kv_pool_owns(kv, KV_PREFIX_OWNER, blocks[i]));
            content[blocks[i]] = draw(1000);
        }
        for (uint32_t i = first_seen(g, at); i * BLOCK_TOKENS < at; i++) {
            uint32_t end = (i + 1) * BLOCK_TOKENS < at ? (i + 1) * BLOCK_TOKENS : at;
            CHECKF(content[blocks[i]] == key_of(talk, g, end), "block %u of %u tokens", i, at);
        }
        kv_block_id written = blocks[at / BLOCK_TOKENS];
        CHECK(!kv_pool_owns(kv, KV_PREFIX_OWNER, written));
        content[written] = key_of(talk, g, at + 1);
    }
    return talk;
}

/* Draws the tokens of a step, and adds to the talk those that follow right drafts. Returns how many
 * were added. */
static uint32_t tokens_draw(struct talk *talk, const struct token_decode *row, uint32_t count,
                            struct message_token *tokens)
{
    uint32_t taken = 0;
    bool right = true, full = false;
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = (struct message_token){.id = draw(3)};
        if (i + 1 < count && draw(4) != 0)
            tokens[i].id = row->draft[i];
        if (!right || full)
            continue;
        talk->tokens[talk->count++] = tokens[i].id;
        full = talk->count - talk->prompt_count == talk->output_max || talk->count == CONTEXT ||
               (random_ends && draw(30 * calm) == 0);
        tokens[i].finish = full ? FINISH_LENGTH : FINISH_NONE;
        right = i + 1 < count && row->draft[i] == tokens[i].id;
        taken++;
    }
    drafted_right += taken - 1;
    drafted_wrong += count - taken;
    talk->stage = full ? STAGE_NONE : STAGE_DECODING;
    return taken;
}

/* Sets the content of the blocks that a step has written: the last token was only drawn. */
static void step_written(const struct talk *talk, const struct token_decode *row, uint32_t count)
{
    const uint32_t last = (row->position + count - 1) / BLOCK_TOKENS;
    for (uint32_t g = 0; g < groups.count; g++)
        for (uint32_t i = row->position / BLOCK_TOKENS; i <= last; i++) {
            const uint32_t end = (i + 1) * BLOCK_TOKENS, valid = talk->count - 1;
            if (i * BLOCK_TOKENS < valid)
                content[row->blocks[g * row->group_stride + i]] =
                    key_of(talk, g, end < valid ? end : valid);
        }
}

/* Runs a step of every decode. `cancelled` is cancelled while the step runs. */
static void step(struct talk *cancelled)
{
    static struct sched_batch batch;
    static struct token_decode rows[TALKS];
    struct talk *of[TALKS];
    token_pool_answers_grow(pool);
    if (!sched_machine_batch_next(sched, 0, 0, &batch))
        return;
    for (uint32_t i = 0; i < batch.item_count; i++)
        of[i] = row_run(batch.items[i].slot, batch.items[i].token_count - 1, &rows[i]);
    if (cancelled != NULL && cancelled->stage == STAGE_DECODING) {
        token_pool_cancel(pool, &cancelled->name, false, now_us);
        cancelled->stage = STAGE_NONE;
    }
    sched_machine_batch_done(sched, batch.index);
    sched_drafts_step_add(&drafts.steps, batch.row_count, 1000);
    for (uint32_t i = 0; i < batch.item_count; i++) {
        struct message_token tokens[1 + LIMIT_DRAFT_TOKENS] = {{.id = draw(3)}};
        const uint32_t count = batch.items[i].token_count;
        uint32_t taken = 1;
        if (of[i]->stage == STAGE_DECODING) {
            taken = tokens_draw(of[i], &rows[i], count, tokens);
            step_written(of[i], &rows[i], count);
        }
        CHECK(token_pool_decode_done(pool, batch.items[i].slot, tokens, NULL, count, now_us) ==
              taken);
    }
    token_pool_tokens_send(pool);
}

static bool on_local_writes(void *self, const struct message_request *request)
{
    (void)self;
    for (uint32_t i = 0; i < TALKS; i++)
        if (talks[i].name.id == request->id && talks[i].name.generation == request->generation)
            return talks[i].writes;
    return false;
}

static void give_up(struct talk *talk)
{
    bool writer = talk->stage == STAGE_RESERVED && draw(2) == 0;
    talk->writes = writer;
    if (talk->stage == STAGE_QUARANTINED)
        token_pool_kv_aborted(pool, &talk->name, now_us);
    else
        token_pool_cancel(pool, &talk->name, writer, now_us);
    talk->stage = writer ? STAGE_QUARANTINED : STAGE_NONE;
    if (writer && !talk->local)
        write_late(talk);
}

static void check_all(void)
{
    struct error error;
    CHECKF(kv_pool_check(kv, &error) && kv_prefix_check(prefix, &error), "%s", error.text);
}

static void open_all(uint32_t preemptions_max)
{
    const struct sched_machine_options sched_options = {.slot_count = 128,
                                                        .prompt_batch_tokens = 64,
                                                        .mixed_prompt_tokens = 64,
                                                        .batch_sequences_max = TALKS};
    CHECK(kv_pool_open(block_count, &kv) == ST_OK &&
          kv_prefix_open(kv, &groups, BLOCK_TOKENS, &prefix) == ST_OK &&
          sched_machine_open(&sched_options, &sched) == ST_OK);
    const struct token_pool_options options = {
        .name = "t0",
        .sched = sched,
        .kv = kv,
        .prefix = prefix,
        .memory = {.block_count = block_count,
                   .block_tokens = BLOCK_TOKENS,
                   .groups = groups,
                   .chunk_tokens = 48,
                   .context_tokens = CONTEXT,
                   .window_spare_tokens = window_spare,
                   .draft_tokens = draft_tokens,
                   .first_slot = 64,
                   .slot_count = 64,
                   .growth_tokens = 1,
                   .preemptions_max = preemptions_max},
        .vocab = 1000,
        .drafts = &drafts,
        .calls = {on_send, on_send_tokens, on_local_writes},
    };
    CHECK(token_pool_open(&options, &pool) == ST_OK);
    token_pool_writer_up(pool, (struct token_link){.number = 1}, "p0", NULL);
}

static void close_all(void)
{
    check_all();
    token_pool_close(pool);
    CHECK(kv_pool_available(kv) == block_count);
    sched_machine_close(sched);
    kv_prefix_close(prefix);
    kv_pool_close(kv);
}

/* Begins a request of `count` tokens, the first `same` of which are those of `from`. */
static struct talk *begin(uint32_t index, const struct talk *from, uint32_t same, uint32_t count)
{
    struct talk *talk = &talks[index];
    for (uint32_t i = 0; i < count; i++)
        talk->tokens[i] = i < same ? from->tokens[i] : 100 + draw(800);
    talk->count = count;
    talk->told = true;
    talk->output_max = 200;
    reserve(talk);
    token_pool_waiting_grant(pool, now_us);
    return talk;
}

static void check_turns(void)
{
    open_all(0);
    struct talk *first = begin(0, &talks[1], 0, 40);
    CHECK(first->stage == STAGE_RESERVED && first->held == 0 && first->told_count == 3);
    deliver(first);
    CHECK(kv_pool_state_count(kv, KV_CACHED) == 0 && kv_pool_state_count(kv, KV_LIVE) == 15);

    /* Another request finds the prompt's blocks while the first one runs. Its writer is told only
     * of its other blocks. */
    struct talk *beside = begin(1, first, 40, 40);
    CHECK(beside->held == 2 && beside->told_count == 1);
    CHECK(kv_pool_state_count(kv, KV_LIVE) == 15 && kv_pool_state_count(kv, KV_RESERVED) == 13);
    token_pool_cancel(pool, &beside->name, true, now_us);
    CHECK(kv_pool_state_count(kv, KV_QUARANTINED) == 13 && kv_pool_state_count(kv, KV_LIVE) == 15);
    token_pool_kv_aborted(pool, &beside->name, now_us);
    beside->stage = STAGE_NONE;

    /* 40 tokens of the prompt and 24 of the answer: the last token is known, but its K and V are
     * not computed. */
    while (first->count < 65)
        step(NULL);
    token_pool_cancel(pool, &first->name, false, now_us);
    first->stage = STAGE_NONE;
    CHECK(kv_pool_state_count(kv, KV_CACHED) == 4 && kv_pool_available(kv) == block_count);
    struct talk *second = begin(2, first, 65, 90);
    CHECK(second->held == 4 && second->told_count == 2);
    give_up(second);
    if (second->stage == STAGE_QUARANTINED)
        give_up(second);

    /* If a prompt of whole blocks is computed here, one block must be computed. */
    second = begin(2, first, 64, 64);
    CHECK(second->held == 4 && second->told_count == 0);
    token_pool_cancel(pool, &second->name, false, now_us);
    second->stage = STAGE_NONE;
    second->local = true;
    second = begin(2, first, 64, 64);
    CHECK(second->held == 3 && second->told_count == 1);
    deliver(second);
    token_pool_cancel(pool, &second->name, false, now_us);
    second->stage = STAGE_NONE;

    /* A request whose tokens are unknown finds nothing in the cache, and leaves nothing. */
    talks[3].local = false;
    talks[3] = (struct talk){.count = 64, .output_max = 20};
    memcpy(talks[3].tokens, first->tokens, 64 * sizeof(uint32_t));
    reserve(&talks[3]);
    token_pool_waiting_grant(pool, now_us);
    CHECK(talks[3].held == 0 && talks[3].told_count == 4);
    deliver(&talks[3]);
    uint32_t cached = kv_pool_state_count(kv, KV_CACHED);
    token_pool_cancel(pool, &talks[3].name, false, now_us);
    talks[3].stage = STAGE_NONE;
    CHECK(kv_pool_state_count(kv, KV_CACHED) == cached && kv_pool_available(kv) == block_count);
    close_all();
}

/* What had arrived of a prompt is found when its prompt machine is gone; the rest is not. */
static void check_progress(void)
{
    static struct talk talk, again;
    struct message_stats stats = {0};
    open_all(0);
    talk = *begin(0, &talks[1], 0, 100);
    CHECK(talk.held == 0 && talk.told_count == 7);
    arrive(&talks[0]);
    arrive(&talks[0]);
    /* Another request has computed and left the first two blocks meanwhile: those here are
     * spare. */
    struct talk *other = begin(1, &talks[0], 33, 40);
    deliver(other);
    token_pool_cancel(pool, &other->name, false, now_us);
    other->stage = STAGE_NONE;
    arrive(&talks[0]);
    token_pool_writer_down(pool, (struct token_link){.number = 1}, false, "killed", now_us);
    talks[0].stage = STAGE_QUARANTINED;
    write_late(&talks[0]);
    /* Of 16 blocks of prompt and longest answer, one is kept, and two are free again. */
    CHECK(kv_pool_state_count(kv, KV_QUARANTINED) == 13 && kv_pool_state_count(kv, KV_CACHED) == 3);
    check_all();
    token_pool_writer_up(pool, (struct token_link){.number = 2}, "p0", NULL);
    again = *begin(2, &talks[0], 100, 100);
    CHECK(again.held == 3 && again.told_count == 4);
    deliver(&talks[2]);
    while (talks[2].count < 110)
        step(NULL);
    token_pool_stats_add(pool, &stats);
    CHECK(stats.kept_tokens == 48);
    give_up(&talks[2]);
    token_pool_kv_aborted(pool, &talks[0].name, now_us);
    close_all();
}

/* Sends RESERVE of a copy of the first `count` tokens of a conversation. */
static void reserve_copy(struct talk *talk, const struct talk *from, uint32_t count, bool windows)
{
    static uint64_t serial = 1u << 20;
    if (talk != from)
        memcpy(talk->tokens, from->tokens, count * sizeof(uint32_t));
    talk->name = (struct message_request){.id = ++serial * TALKS + (uint64_t)(talk - talks)};
    talk->stage = STAGE_WAITING;
    talk->count = talk->prompt_count = count;
    talk->salt = from->salt;
    talk->told = true;
    talk->local = false;
    const struct message_reserve message = {
        .request = talk->name,
        .prompt_machine = "p0",
        .prompt_tokens = count,
        .prompt_count = count,
        .prefix_salt = talk->salt,
        .prefix_cache = true,
        .copy = true,
        .copy_windows = windows,
        .sampling = {.top_p = 1, .logprobs = -1, .output_tokens_max = 1},
        .prompt = talk->tokens,
    };
    token_pool_reserve(pool, (struct transport_peer *)&gateway_mark, &message, now_us);
}

/* The copy's KV arrives. */
static void deliver_copy(struct talk *talk)
{
    const kv_block_id *told = talk->blocks;
    for (uint32_t g = 0; g < groups.count; g++)
        for (uint32_t i = layer_groups_windowed(&groups, g) ? talk->window_first : talk->held;
             i < spans_of(talk->count); i++)
            content[*told++] = key_of(talk, g, (i + 1) * BLOCK_TOKENS);
    CHECK(told == talk->blocks + talk->told_count);
    token_pool_kv_ready(
        pool,
        &(struct message_kv_ready){.request = talk->name, .prompt_tokens = talk->prompt_count},
        now_us);
    talk->stage = STAGE_NONE;
}

/* A copy adds only the blocks that are not there, is found by requests, and holds nothing; it is
 * refused while memory is short, and gives its blocks back when it is given up. */
static void check_copies(void)
{
    open_all(0);
    for (uint32_t i = 0; i < CONTEXT; i++)
        talks[0].tokens[i] = 100 + draw(800);
    talks[0].salt = 7;
    reserve_copy(&talks[1], &talks[0], 48, false);
    CHECK(talks[1].stage == STAGE_RESERVED && talks[1].held == 0 && talks[1].told_count == 3);
    CHECK(kv_pool_state_count(kv, KV_RESERVED) == 3);
    deliver_copy(&talks[1]);
    CHECK(kv_pool_state_count(kv, KV_CACHED) == 3 && kv_pool_available(kv) == block_count);
    reserve_copy(&talks[1], &talks[0], 96, false);
    CHECK(talks[1].held == 3 && talks[1].told_count == 3);
    token_pool_cancel(pool, &talks[1].name, true, now_us); /* While it is written. */
    CHECK(kv_pool_state_count(kv, KV_QUARANTINED) == 3);
    token_pool_kv_aborted(pool, &talks[1].name, now_us);
    CHECK(kv_pool_state_count(kv, KV_CACHED) == 3 && kv_pool_available(kv) == block_count);
    reserve_copy(&talks[1], &talks[0], 48, false); /* Nothing is missing: it ends at once. */
    CHECK(talks[1].held == 3 && talks[1].told_count == 0 && token_pool_count(pool) == 0);
    talks[1].stage = STAGE_NONE;
    reserve_copy(&talks[1], &talks[0], 96, false);
    deliver_copy(&talks[1]);

    /* The request resumes here: it finds the copy. */
    struct talk *again = &talks[2];
    memcpy(again->tokens, talks[0].tokens, 100 * sizeof(uint32_t));
    again->salt = 7;
    again->count = 100;
    again->told = true;
    again->local = true;
    again->output_max = 100;
    reserve(again);
    token_pool_waiting_grant(pool, now_us);
    CHECK(again->stage == STAGE_RESERVED && again->held == 6 && again->told_count == 1);
    deliver(again);
    step(NULL);
    CHECK(again->stage == STAGE_DECODING);

    /* More than half of the blocks are in use: another copy would leave too little. */
    begin(3, &talks[0], 0, 200);
    refused = 0;
    reserve_copy(&talks[1], &talks[0], 160, false);
    CHECK(refused == 1 && kv_pool_state_count(kv, KV_RESERVED) > 0);
    talks[1].stage = STAGE_NONE;
    again->local = false;
    check_all();
    close_all();
}

/* Returns how many tokens of a conversation a request that is computed here finds. */
static uint32_t found_of(const struct talk *from, uint32_t count)
{
    struct talk *talk = &talks[2];
    memcpy(talk->tokens, from->tokens, count * sizeof(uint32_t));
    talk->salt = from->salt;
    talk->count = count;
    talk->told = talk->local = true;
    talk->writes = false;
    talk->output_max = 10;
    reserve(talk);
    token_pool_waiting_grant(pool, now_us);
    CHECK(talk->stage == STAGE_RESERVED);
    const uint32_t found = talk->held * BLOCK_TOKENS;
    deliver(talk); /* Checks what it reads. */
    token_pool_cancel(pool, &talk->name, false, now_us);
    talk->stage = STAGE_NONE;
    return found;
}

/* With windows, a copy has the blocks of its last window, and those of a later copy that an earlier
 * one had are not sent again. A part of a copy has none; a request finds nothing with it. */
static void check_window_copies(void)
{
    open_all(0);
    memset(talks, 0, sizeof(talks));
    for (uint32_t i = 0; i < CONTEXT; i++)
        talks[0].tokens[i] = 100 + draw(800);
    talks[0].salt = 7;
    const uint32_t seen = 6 - first_seen(1, 96);
    reserve_copy(&talks[1], &talks[0], 96, false);
    CHECK(talks[1].held == 0 && talks[1].window_first == 6 && talks[1].told_count == 6);
    CHECK(kv_pool_state_count(kv, KV_RESERVED) == 6);
    deliver_copy(&talks[1]);
    CHECK(kv_pool_state_count(kv, KV_CACHED) == 6 && kv_pool_available(kv) == block_count);
    CHECK(seen == 3);
    reserve_copy(&talks[1], &talks[0], 96, true);
    CHECK(talks[1].held == 6 && talks[1].told_count == seen);
    deliver_copy(&talks[1]);
    CHECK(kv_pool_state_count(kv, KV_CACHED) == 6 + seen && kv_pool_available(kv) == block_count);
    reserve_copy(&talks[1], &talks[0], 112, true);
    CHECK(talks[1].held == 6 && talks[1].window_first == 6 && talks[1].told_count == 2);
    token_pool_cancel(pool, &talks[1].name, true, now_us); /* While it is written. */
    token_pool_kv_aborted(pool, &talks[1].name, now_us);
    CHECK(kv_pool_state_count(kv, KV_CACHED) == 6 + seen && kv_pool_available(kv) == block_count);
    talks[1].stage = STAGE_NONE;
    CHECK(found_of(&talks[0], 110) == 96);
    reserve_copy(&talks[1], &talks[0], 112, true);
    deliver_copy(&talks[1]);
    CHECK(found_of(&talks[0], 120) == 112);
    check_all();
    close_all();

    open_all(0);
    reserve_copy(&talks[1], &talks[0], 96, false);
    deliver_copy(&talks[1]);
    CHECK(found_of(&talks[0], 110) == 0);
    close_all();
}

/* What a copy would read of an answer in layers with a window is the KV of these spans, unless the
 * pool says that the answer has used the blocks again. */
static void check_windows_find(const struct talk *talk)
{
    kv_block_id ids[2 * CONTEXT / BLOCK_TOKENS];
    struct kv_tables out = {.ids = ids, .stride = CONTEXT / BLOCK_TOKENS};
    const uint32_t full = (talk->count - 1) / BLOCK_TOKENS;
    const uint32_t end = full > 0 ? full - draw(full < 3 ? full : 3) : 0;
    const uint32_t first = first_seen(1, end * BLOCK_TOKENS);
    const bool found = token_pool_windows_find(pool, &talk->name, first, end, &out);
    CHECK(!token_pool_windows_find(pool, &talk->name, first, full + 1, NULL));
    CHECK(found == token_pool_windows_find(pool, &talk->name, first, end, NULL));
    for (uint32_t i = first; i < end && found; i++)
        CHECK(content[kv_tables_id(&out, 1, i)] == key_of(talk, 1, (i + 1) * BLOCK_TOKENS));
    windows_asked++;
    windows_held += found ? 1 : 0;
}

/* Begins the next request of a conversation. Most continue it, some begin a new one. */
static void talk_on(struct talk *talk)
{
    uint32_t more = 1 + draw(30);
    if (talk->count + more > CONTEXT - 10 || draw(8) == 0)
        talk->count = draw(2) * draw(talk->count / 2 + 1);
    /* Few different tokens, so that conversations are sometimes equal by chance. */
    for (uint32_t i = 0; i < more; i++)
        talk->tokens[talk->count++] = draw(8) == 0 ? draw(3) : 1;
    talk->salt = (uint64_t)(talk - talks) % 2 * 77;
    talk->told = draw(8) != 0;
    talk->local = draw(3) == 0;
    talk->writes = draw(2) == 0;
    talk->output_max = 2 + draw(60 * (calm > 1 ? 3 : 1));
    reserve(talk);
}

static void random_event(void)
{
    struct talk *talk = &talks[draw(TALKS)];
    uint32_t event = draw(10);
    if (event == 0 && draw(20 * calm) == 0) {
        token_pool_gateway_gone(pool, (struct transport_peer *)&gateway_mark, now_us);
        for (uint32_t i = 0; i < TALKS; i++)
            talks[i].stage =
                talks[i].stage == STAGE_QUARANTINED ||
                        (talks[i].stage == STAGE_RESERVED && (!talks[i].local || talks[i].writes))
                    ? STAGE_QUARANTINED
                    : STAGE_NONE;
    } else if (event < 3) {
        if (talk->stage == STAGE_NONE)
            talk_on(talk);
        else if (draw(4 * calm) == 0)
            give_up(talk);
    } else if (event < 5 && talk->stage == STAGE_RESERVED) {
        if (draw(2) == 0)
            arrive(talk);
        else
            deliver(talk);
    } else {
        step(draw(20 * calm) == 0 ? talk : NULL);
    }
    token_pool_waiting_grant(pool, now_us);
    if (groups.windowed != 0 && talk->stage == STAGE_DECODING)
        check_windows_find(talk);
}

static void check_random(uint32_t preemptions_max)
{
    uint32_t waiting = 0;
    memset(talks, 0, sizeof(talks));
    open_all(preemptions_max);
    preempted = 0;
    calm = preemptions_max > 0 ? 20 : 1;
    found_blocks = found_most = 0;
    random_ends = true;
    for (uint32_t i = 0; i < STEPS; i++) {
        random_event();
        for (uint32_t j = 0; j < TALKS; j++)
            waiting += talks[j].stage == STAGE_WAITING;
        if (i % 500 == 0)
            check_all();
    }
    printf("%u events: %llu blocks were found, of one prompt up to %llu; requests that waited for "
           "memory: %u; %llu were preempted\n",
           STEPS, (unsigned long long)found_blocks, (unsigned long long)found_most, waiting,
           (unsigned long long)preempted);
    const uint64_t rarer = draft_tokens > 0 ? 5 : 1; /* Answers are shorter-lived. */
    CHECK((preempted * rarer > (groups.windowed != 0 ? 10 : 100)) == (preemptions_max > 0));
    CHECK(found_blocks * rarer > (calm > 1 ? 20 : 200) && found_most > 4 && waiting > STEPS / 100);
    close_all();
}

int main(void)
{
    seed = test_seed();
    check_turns();
    check_progress();
    check_copies();
    check_random(0);
    check_random(3);
    /* A request may have more window blocks of the cache than it reads later, so 68 blocks are as
     * short as 48 without windows. */
    groups = (struct layer_groups){.count = 2, .windowed = 2, .window_tokens = 40};
    block_count = 68;
    check_window_copies();
    check_random(0);
    const uint64_t held = windows_held, asked = windows_asked;
    window_spare = 2 * BLOCK_TOKENS;
    check_random(3);
    printf("windows that can be copied: %llu of %llu; with spare blocks %llu of %llu\n",
           (unsigned long long)held, (unsigned long long)asked,
           (unsigned long long)(windows_held - held), (unsigned long long)(windows_asked - asked));
    CHECK(held > 0 && held < asked &&
          (windows_held - held) * asked > held * (windows_asked - asked));
    CHECKF(window_found > 10, "%llu spans with windows were found",
           (unsigned long long)window_found);
    draft_tokens = LIMIT_DRAFT_TOKENS;
    check_random(3);
    window_spare = 0;
    check_random(0);
    groups = (struct layer_groups){.count = 1};
    check_random(3);
    printf("drafted tokens: %llu right, %llu wrong\n", (unsigned long long)drafted_right,
           (unsigned long long)drafted_wrong);
    CHECK(drafted_right > 1000 && drafted_wrong > 1000);
    return 0;
}
