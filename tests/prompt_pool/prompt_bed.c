/* prompt_bed: see the header. */
#include "tests/prompt_pool/prompt_bed.h"

#include "common/random.h"
#include "kvcache/kv_targets.h"
#include "tests/check.h"
#include "tests/transport/loopback.h"
#include "transport/peer_user.h"

#include <stdlib.h>
#include <string.h>

#define LAYERS           4
#define HEADS            2
#define BLOCK_BYTES      64
#define BLOCK_TOKENS     16
#define BLOCKS           40  /* Blocks of the prompt machine. */
#define TARGETS          400 /* Blocks of the token machine. */
#define REQUESTS         24  /* Most requests at a time. */
#define PLACES           4   /* Processes of the token machine with stages. */
#define PATHS            2
#define LAYERWISE_TOKENS 100 /* Unless measured speeds decide. */

static prompt_bed_draw draw;

struct plain {
    bool used, cancelled, moved;
    bool over;        /* The end was reported: PREFILLED or FAILED. */
    bool ready;       /* KV_READY has arrived. */
    bool aborted;     /* KV_ABORTED has arrived. */
    bool finished;    /* The first token ended the request. */
    uint32_t tokens;  /* Number of TOKENS messages. */
    uint32_t arrived; /* Tokens of the latest PROGRESS. */
    struct message_request name;
    struct message_prefill prefill;
    uint32_t prompt[256];
    uint32_t blocks[16];
    uint32_t path;
    bool layerwise;
};

struct bed {
    struct kv_pool *kv;
    struct kv_prefix *prefix;
    struct sched_machine *sched;
    struct transport *transport; /* Transport of the prompt machine. */
    struct transport *target;
    bool staged, measured;
    struct transport *places[PLACES];
    struct prompt_links *links;
    struct kv_targets *kv_targets;
    struct prompt_pool *pool;
    int64_t now_us;
    bool linked;
    struct prompt_bed_counts counts;
    struct plain plain[REQUESTS];
};

static struct bed bed;
static char gateway_mark;

static struct plain *plain_of(const struct message_request *name)
{
    struct plain *plain = &bed.plain[name->id % REQUESTS];
    return plain->used && plain->name.id == name->id ? plain : NULL;
}

/* Computes a key for each block of a prompt: K and V depend on the key. */
static void keys_of(const uint32_t *prompt, uint32_t count, uint64_t *keys)
{
    uint64_t key = 1;
    for (uint32_t i = 0; i < count; i++) {
        key = random_at(key, prompt[i]);
        keys[i / BLOCK_TOKENS] = key;
    }
}

static uint8_t pattern(uint64_t key, uint32_t layer)
{
    return (uint8_t)random_at(key, layer);
}

/* --- the gateway --- */

static void on_send(void *self, struct transport_peer *peer, const struct message *message)
{
    (void)self;
    if (message->kind == MESSAGE_PROGRESS && (char *)peer == &gateway_mark) {
        const struct plain *plain = plain_of(&message->progress.request);
        CHECK(plain != NULL && plain->tokens == 0 && !plain->over);
        CHECK(message->progress.tokens < plain->prefill.prompt_count);
        return;
    }
    if (message->kind == MESSAGE_KV_READY || message->kind == MESSAGE_KV_ABORTED ||
        message->kind == MESSAGE_PROGRESS) {
        struct message_buffer buffer = {0};
        CHECK(message_encode(message, TRANSPORT_PROTOCOL_VERSION, &buffer) == ST_OK);
        transport_send(bed.transport, peer, buffer.data, buffer.bytes);
        message_buffer_done(&buffer);
        return;
    }
    CHECK((char *)peer == &gateway_mark);
    const struct message_request *name =
        message->kind == MESSAGE_FAILED ? &message->failed.request : &message->prefilled.request;
    struct plain *plain = plain_of(name);
    CHECK(plain != NULL && !plain->over && !plain->cancelled);
    plain->over = true;
    bed.counts.failed_count += message->kind == MESSAGE_FAILED;
    if (message->kind == MESSAGE_FAILED)
        return;
    CHECK(message->kind == MESSAGE_PREFILLED && plain->tokens == 1);
    if (!plain->moved || plain->finished)
        return;
    uint32_t blocks = (plain->prefill.prompt_count + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    uint32_t pushed = blocks - plain->prefill.held_span_count;
    CHECK(message->prefilled.bytes == (uint64_t)pushed * LAYERS * BLOCK_BYTES);
    CHECK(message->prefilled.layerwise == plain->layerwise);
    /* Layers are pushed in order, from the first batch on. */
    const struct message_prefilled *figures = &message->prefilled;
    CHECK(figures->layer_count == (pushed > 0 ? LAYERS : 0));
    for (uint32_t i = 0; i < figures->layer_count; i++)
        CHECK(figures->layer_us[i] >= (i > 0 ? figures->layer_us[i - 1] : 0) &&
              figures->layer_us[i] <= figures->prefill_us + figures->exposed_us);
    bed.counts.held_bytes += (uint64_t)plain->prefill.held_span_count * LAYERS * BLOCK_BYTES;
    bed.counts.layerwise_count += plain->layerwise;
}

static void on_tokens(void *self, struct transport_peer *peer, const struct message_buffer *tokens)
{
    struct message message;
    struct message_token token;
    struct error error;
    (void)self;
    CHECK((char *)peer == &gateway_mark);
    CHECK(message_decode(tokens->data, tokens->bytes, &message, &error) == ST_OK);
    while (message_tokens_next(&message.tokens, &token)) {
        struct plain *plain = plain_of(&(struct message_request){.id = token.request});
        CHECK(plain != NULL && token.index == 0 && !plain->over && !plain->ready);
        CHECK(token.cached_tokens < plain->prefill.prompt_count);
        CHECK(token.cached_tokens == 0 || !plain->prefill.score_prompt);
        bed.counts.cached_tokens += token.cached_tokens;
        plain->tokens++;
        plain->finished = token.finish != FINISH_NONE;
    }
}

/* --- the token machine --- */

/* One process has layer 0, one has layers 1 and 2, and two have layer 3, one for each path. */
static const struct message_stage stages[PLACES] = {
    {.paths = 3, .first_layer = 0, .end_layer = 1, .end_head = HEADS, .address = "t0/0"},
    {.paths = 3, .first_layer = 1, .end_layer = 3, .end_head = HEADS, .address = "t0/1"},
    {.paths = 1, .first_layer = 3, .end_layer = 4, .end_head = HEADS, .address = "t0/2"},
    {.paths = 2, .first_layer = 3, .end_layer = 4, .end_head = HEADS, .address = "t0/3"},
};
static const struct message_stage whole = {.paths = 3, .end_layer = LAYERS, .end_head = HEADS};

/* Returns the place of that layer of a block on the token machine. */
static const uint8_t *block_of(uint32_t path, uint32_t layer, uint32_t block)
{
    if (!bed.staged)
        return (uint8_t *)transport_region(bed.target) + (layer * TARGETS + block) * BLOCK_BYTES;
    uint32_t place = layer == 0 ? 0 : layer < 3 ? 1 : 2 + path;
    uint32_t at = layer - stages[place].first_layer;
    return (uint8_t *)transport_region(bed.places[place]) + (at * TARGETS + block) * BLOCK_BYTES;
}

static void target_up(void *self, struct transport_peer *peer)
{
    struct message_buffer buffer = {0};
    struct message message = {.kind = MESSAGE_STAGES, .stages = {.count = 1, .stages = &whole}};
    (void)self;
    if (bed.staged)
        message.stages = (struct message_stages){.count = PLACES, .stages = stages};
    CHECK(message_encode(&message, TRANSPORT_PROTOCOL_VERSION, &buffer) == ST_OK);
    transport_send(bed.target, peer, buffer.data, buffer.bytes);
    message_buffer_done(&buffer);
}

/* Checks the first `blocks` blocks of the prompt, except those that were held. */
static void content_check(const struct plain *plain, uint32_t blocks)
{
    uint64_t keys[16];
    keys_of(plain->prompt, plain->prefill.prompt_count, keys);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t i = plain->prefill.held_span_count; i < blocks; i++) {
            const uint8_t *block = block_of(plain->path, layer, plain->blocks[i]);
            for (uint32_t byte = 0; byte < BLOCK_BYTES; byte++)
                CHECKF(block[byte] == pattern(keys[i], layer),
                       "request %" PRIu64 " layer %u block %u", plain->name.id, layer, i);
        }
}

static void target_message(void *self, struct transport_peer *peer, const uint8_t *data,
                           size_t bytes)
{
    struct message message;
    struct error error;
    (void)self, (void)peer;
    CHECK(message_decode(data, bytes, &message, &error) == ST_OK);
    if (message.kind == MESSAGE_KV_ABORTED) {
        struct plain *plain = plain_of(&message.kv_aborted);
        bed.counts.aborted_count++;
        CHECK(plain == NULL || (!plain->ready && !plain->aborted));
        if (plain != NULL)
            plain->aborted = true;
        return;
    }
    if (message.kind == MESSAGE_PROGRESS) {
        struct plain *plain = plain_of(&message.progress.request);
        bed.counts.progress_count++;
        if (plain == NULL)
            return;
        CHECK(!plain->ready && plain->moved && plain->layerwise);
        CHECK(message.progress.tokens > plain->arrived &&
              message.progress.tokens < plain->prefill.prompt_count);
        plain->arrived = message.progress.tokens;
        content_check(plain, plain->arrived / BLOCK_TOKENS);
        return;
    }
    CHECK(message.kind == MESSAGE_KV_READY);
    struct plain *plain = plain_of(&message.kv_ready.request);
    bed.counts.ready_count++;
    if (plain == NULL)
        return;
    CHECK(!plain->ready && !plain->aborted && plain->moved && !plain->finished);
    CHECK(plain->path < PATHS);
    plain->ready = true;
    content_check(plain, (plain->prefill.prompt_count + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
}

static void place_up(void *self, struct transport_peer *peer)
{
    (void)self, (void)peer;
}

static void target_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    (void)self, (void)peer, (void)why, (void)text;
}

/* --- the machine --- */

static bool is_link(struct transport_peer *peer)
{
    return peer_kind_of(peer) == PEER_LINK;
}

static void pool_up(void *self, struct transport_peer *peer)
{
    (void)self;
    if (is_link(peer))
        prompt_links_peer_up(bed.links, peer, bed.now_us);
    else
        kv_targets_peer_up(bed.kv_targets, peer);
}

static void pool_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    (void)self, (void)why;
    if (is_link(peer))
        prompt_links_peer_down(bed.links, peer, text, bed.now_us);
    else
        kv_targets_peer_down(bed.kv_targets, peer, text);
}

static void pool_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct message message;
    struct error error;
    (void)self;
    CHECK(message_decode(data, bytes, &message, &error) == ST_OK);
    CHECK(message.kind == MESSAGE_STAGES && is_link(peer));
    prompt_links_stages_take(bed.links, peer, &message.stages, bed.now_us);
}

static void no_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    (void)self, (void)peer, (void)data, (void)bytes;
    CHECK(false);
}

static void pool_flushed(void *self, struct transport_peer *peer, uint64_t cookie,
                         enum status status)
{
    (void)self;
    kv_targets_flushed(bed.kv_targets, peer, cookie, status);
}

static void on_prepare(void *self, uint32_t target, const struct message_peer *machine,
                       struct transport_peer *peer, const struct message_stages *places)
{
    (void)self;
    kv_targets_set(bed.kv_targets, target, machine->name, peer, places);
}

static void on_drop(void *self, uint32_t target)
{
    (void)self;
    kv_targets_drop(bed.kv_targets, target);
}

static void on_target(void *self, uint32_t target, bool up, const char *text)
{
    (void)self;
    prompt_links_target_prepared(bed.links, target, up, text, bed.now_us);
}

static void on_target_flushed(void *self, uint64_t cookie, enum status status)
{
    (void)self;
    prompt_pool_flushed(bed.pool, cookie, status, bed.now_us);
}

static enum status on_push(void *self, struct kv_push *push, uint32_t layer_end)
{
    (void)self;
    return kv_targets_push(bed.kv_targets, push, layer_end);
}

static void on_flush(void *self, uint32_t own_path, uint32_t target, uint32_t path, uint64_t cookie,
                     bool stages_flush)
{
    (void)self, (void)own_path, (void)stages_flush;
    kv_targets_flush(bed.kv_targets, target, path, cookie);
}

static void on_report(void *self, const struct message_link *link)
{
    (void)self;
    bed.linked = link->up;
}

static void on_measured(void *self, const struct message_link *link)
{
    (void)self;
    CHECK(link->bytes_per_s > 0);
}

static void on_lost(void *self, struct transport_peer *peer, const char *text)
{
    (void)self;
    prompt_pool_target_down(bed.pool, peer, text, bed.now_us);
}

static struct transport *open_transport(const char *name, uint32_t layers, uint32_t blocks,
                                        struct transport_events events)
{
    struct transport *t;
    char bound[LIMIT_ADDRESS_BYTES];
    struct error error;
    struct transport_options options = {
        .identity = {.role = TRANSPORT_MACHINE,
                     .layer_count = LAYERS,
                     .block_tokens = BLOCK_TOKENS,
                     .block_bytes = BLOCK_BYTES},
        .events = events,
        .region_bytes = (uint64_t)layers * blocks * BLOCK_BYTES,
        .block_count = blocks,
        .layer_stride_bytes = (uint64_t)blocks * BLOCK_BYTES,
    };
    snprintf(options.identity.name, LIMIT_NAME_BYTES, "%s", name);
    CHECK(transport_open(&transport_loopback, &options, &t, &error) == ST_OK);
    CHECK(transport_listen(t, name, bound, &error) == ST_OK);
    return t;
}

static void progress(void)
{
    prompt_links_turn(bed.links, bed.now_us);
    transport_progress(bed.transport);
    transport_progress(bed.target);
    for (uint32_t i = 0; i < PLACES; i++)
        if (bed.places[i] != NULL)
            transport_progress(bed.places[i]);
}

static const struct kv_arena arena = {.layer_count = LAYERS,
                                      .head_count = HEADS,
                                      .head_total = HEADS,
                                      .block_count = BLOCKS,
                                      .block_tokens = BLOCK_TOKENS,
                                      .block_bytes = BLOCK_BYTES,
                                      .layer_stride_bytes = BLOCKS * BLOCK_BYTES};

static void open_machines(bool staged)
{
    bed.staged = staged;
    bed.transport = open_transport("p0", LAYERS, BLOCKS,
                                   (struct transport_events){pool_up, pool_down, pool_message,
                                                             pool_flushed, NULL, NULL, NULL});
    bed.target = open_transport("t0", staged ? 0 : LAYERS, TARGETS,
                                (struct transport_events){target_up, target_down, target_message,
                                                          pool_flushed, NULL, NULL, NULL});
    for (uint32_t i = 0; i < PLACES && staged; i++)
        bed.places[i] =
            open_transport(stages[i].address, stages[i].end_layer - stages[i].first_layer, TARGETS,
                           (struct transport_events){place_up, target_down, no_message,
                                                     pool_flushed, NULL, NULL, NULL});
}

void prompt_bed_open(bool staged, bool measured, prompt_bed_draw choose)
{
    memset(&bed, 0, sizeof(bed));
    draw = choose;
    const struct sched_machine_options sched = {.slot_count = 64,
                                                .prompt_batch_tokens = 64,
                                                .mixed_prompt_tokens = 64,
                                                .batch_sequences_max = 8};
    CHECK(kv_pool_open(BLOCKS, &bed.kv) == ST_OK &&
          kv_prefix_open(bed.kv, &(struct layer_groups){0}, BLOCK_TOKENS, &bed.prefix) == ST_OK &&
          sched_machine_open(&sched, &bed.sched) == ST_OK);
    open_machines(staged);
    const struct prompt_links_options links = {
        .name = "p0",
        .transport = bed.transport,
        .link_changed = on_report,
        .link_asked = on_report,
        .link_measured = on_measured,
        .peer_lost = on_lost,
        .target_prepare = on_prepare,
        .target_drop = on_drop,
    };
    const struct kv_targets_options targets = {
        .transport = bed.transport,
        .arena = arena,
        .context_spans = 512 / BLOCK_TOKENS,
        .link_changed = on_target,
        .flushed = on_target_flushed,
    };
    CHECK(prompt_links_open(&links, &bed.links) == ST_OK);
    CHECK(kv_targets_open(&targets, &bed.kv_targets) == ST_OK);
    const struct prompt_pool_options options = {
        .name = "p0",
        .sched = bed.sched,
        .kv = bed.kv,
        .prefix = bed.prefix,
        .arena = arena,
        .blocks_max = BLOCKS,
        .links = bed.links,
        .slot_count = 64,
        .vocab = 1000,
        .context_tokens = 512,
        .layerwise_threshold_tokens = measured ? UINT32_MAX : LAYERWISE_TOKENS,
        .calls = {.send = on_send, .send_tokens = on_tokens, .push = on_push, .flush = on_flush},
    };
    CHECK(prompt_pool_open(&options, &bed.pool) == ST_OK);
    bed.measured = measured;
    const struct message_peer peer = {.name = "t0", .address = "t0"};
    CHECK(prompt_links_peer_set(bed.links, 0, &peer, 0) == ST_OK);
    for (int i = 0; i < 8; i++)
        progress();
    CHECK(bed.linked);
}

static uint64_t next_id;

/* Submits a request. Each running request has 16 target blocks of its own, slightly shuffled so
 * that runs are short. */
static void submit(uint32_t index)
{
    struct plain *plain = &bed.plain[index];
    if (plain->used && !plain->over && !plain->cancelled)
        return;
    next_id += REQUESTS;
    *plain = (struct plain){.used = true, .name = {.id = next_id + index, .generation = 1}};
    uint32_t count = 1 + draw(256);
    /* From token `fork` on, the prompt is unlike any other. */
    uint32_t family = draw(4), fork = draw(512);
    for (uint32_t i = 0; i < count; i++)
        plain->prompt[i] = i < fork ? family : (uint32_t)(random_at(plain->name.id, i) % 1000);
    for (uint32_t i = 0; i < 16; i++)
        plain->blocks[i] = index * 16 + i;
    uint32_t a = draw(16), b = draw(16), kept = plain->blocks[a];
    plain->blocks[a] = plain->blocks[b];
    plain->blocks[b] = kept;
    plain->moved = draw(8) != 0;
    plain->path = draw(100) == 0 ? PATHS : draw(PATHS); /* PATHS is the first invalid path. */
    plain->prefill = (struct message_prefill){
        .request = plain->name,
        .path = (uint8_t)plain->path,
        .score_prompt = draw(16) == 0,
        .transfer_mode = (uint8_t)draw(3),
        .sampling = {.top_p = 1, .logprobs = -1, .output_tokens_max = 10, .seed = plain->name.id},
        .held_span_count = draw(2) * draw(count / BLOCK_TOKENS + 1),
        .prompt_count = count,
        .prompt = plain->prompt,
    };
    plain->prefill.blocks = plain->blocks + plain->prefill.held_span_count;
    plain->prefill.block_count = 16 - plain->prefill.held_span_count;
    if (plain->moved)
        memcpy(plain->prefill.token_machine, "t0", 3);
    plain->layerwise = plain->prefill.transfer_mode == TRANSFER_LAYERWISE ||
                       (plain->prefill.transfer_mode == TRANSFER_AUTO && !bed.measured &&
                        count >= LAYERWISE_TOKENS);
    prompt_pool_prefill(bed.pool, (struct transport_peer *)&gateway_mark, &plain->prefill,
                        bed.now_us, bed.now_us);
}

static void cancel(uint32_t index)
{
    struct plain *plain = &bed.plain[index];
    if (!plain->used || plain->over || plain->cancelled)
        return;
    plain->cancelled = true;
    prompt_pool_cancel(bed.pool, &plain->name);
}

/* Plays the engine: writes K and V of one layer of one chunk into the chunk's blocks, and reads the
 * blocks before. */
static void compute_layer(const struct sched_batch_item *item, const struct prompt_chunk *chunk,
                          uint32_t layer)
{
    uint64_t keys[16];
    uint8_t *region = transport_region(bed.transport);
    uint32_t end = chunk->first_token + item->token_count;
    uint32_t first = chunk->first_token / BLOCK_TOKENS;
    keys_of(chunk->token_ids - chunk->first_token, end, keys);
    for (uint32_t i = 0; i <= (end - 1) / BLOCK_TOKENS; i++) {
        uint8_t *block = region + (layer * BLOCKS + chunk->blocks[i]) * BLOCK_BYTES;
        if (i >= first)
            memset(block, pattern(keys[i], layer), BLOCK_BYTES);
        CHECKF(block[0] == pattern(keys[i], layer), "layer %u, block %u of a prompt is not its own",
               layer, i);
    }
}

static uint32_t computed_entries(sched_slot slot)
{
    uint32_t entries = 0;
    for (uint32_t i = 0; i < bed.pool->computed_count; i++)
        entries += bed.pool->computed[i] == slot;
    return entries;
}

static void check_states(void)
{
    uint32_t holders = 0;
    for (sched_slot slot = 0; slot < 64; slot++) {
        const struct prompt_request *request = prompt_request_of(bed.pool, slot);
        enum prompt_request_state state = request->state;
        bool in_batch = sched_machine_in_batch(bed.sched, slot);
        bool flushes = state == PROMPT_FLUSHING || state == PROMPT_STOPPED_FLUSHING;
        bool computes = state == PROMPT_COMPUTING || state == PROMPT_STOPPED_IN_BATCH;
        CHECK(sched_slots_used(bed.pool->slots, slot) == (state != PROMPT_FREE));
        CHECK(!in_batch || computes);
        CHECK(in_batch || state != PROMPT_STOPPED_IN_BATCH);
        CHECK(computed_entries(slot) == (state == PROMPT_COMPUTED));
        CHECK(!flushes || request->writes_pending);
        CHECK(!request->writes_pending || request->target != NULL);
        CHECK(!request->writes_pending || state >= PROMPT_COMPUTING);
        CHECK(request->reader.spans == 0 || state == PROMPT_FREE || state > PROMPT_QUEUED);
        holders += prompt_request_has_blocks(request);
        bed.counts.states_seen[state]++;
    }
    CHECK(holders == prompt_pool_holder_count(bed.pool));
}

static void break_link(void)
{
    const char *why;
    uint32_t target;
    struct transport_peer *peer = prompt_links_find(bed.links, "t0", &target, &why);
    if (peer != NULL)
        transport_loopback_drop(bed.transport, peer);
}

/* Follows the decision of scheduler/layerwise.h about a prompt whose first chunk begins. */
static void layerwise_expect(const struct prompt_chunk *chunk)
{
    struct plain *plain = &bed.plain[chunk->request % REQUESTS];
    const struct message_prefill *prefill = &plain->prefill;
    if (!bed.measured || !plain->moved || prefill->transfer_mode != TRANSFER_AUTO)
        return;
    const struct sched_layerwise speeds = prompt_pool_layerwise(bed.pool, 0);
    uint32_t spans = (prefill->prompt_count + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    plain->layerwise =
        sched_layerwise_pays(&speeds, (spans - prefill->held_span_count) * BLOCK_TOKENS,
                             prefill->prompt_count - chunk->first_token);
    CHECK(chunk->layerwise == plain->layerwise);
    bed.counts.decided_count[plain->layerwise] += speeds.send_token_us > 0;
}

static void run_batch(void)
{
    static struct sched_batch batch;
    struct prompt_chunk chunks[8];
    prompt_pool_prefixes_enter(bed.pool, 0, 64);
    bool any = sched_machine_batch_next(bed.sched, 0, kv_pool_available(bed.kv), &batch);
    prompt_pool_prefixes_leave(bed.pool);
    if (!any)
        return;
    prompt_pool_token_us_set(bed.pool, draw(4) * 0.2);
    for (uint32_t i = 0; i < batch.item_count; i++) {
        prompt_pool_chunk_begin(bed.pool, &batch.items[i], bed.now_us, &chunks[i]);
        if (batch.items[i].is_first_chunk)
            layerwise_expect(&chunks[i]);
    }
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t i = 0; i < batch.item_count; i++)
            compute_layer(&batch.items[i], &chunks[i], layer);
        if (draw(2) == 0)
            prompt_pool_layers_done(bed.pool, layer + 1, bed.now_us);
        if (draw(4) == 0)
            cancel(draw(REQUESTS));
        if (draw(4) == 0)
            progress();
        check_states();
    }
    sched_machine_batch_done(bed.sched, batch.index);
    for (uint32_t i = 0; i < batch.item_count; i++) {
        struct message_token token = {.id = 3, .finish = draw(10) == 0 ? FINISH_STOP : FINISH_NONE};
        prompt_pool_chunk_done(bed.pool, &batch.items[i], chunks[i].samples_token ? &token : NULL,
                               bed.now_us);
    }
    if (draw(4) == 0) /* Messages that arrived meanwhile. */
        cancel(draw(REQUESTS));
    if (draw(2000) == 0)
        break_link();
    if (draw(4) == 0)
        progress();
    check_states();
    prompt_pool_results_send(bed.pool, bed.now_us);
}

static void hold_link(bool hold)
{
    const char *why;
    uint32_t target;
    struct transport_peer *peer = prompt_links_find(bed.links, "t0", &target, &why);
    if (peer != NULL)
        transport_loopback_hold(bed.transport, peer, hold);
}

static void drain(void)
{
    hold_link(false);
    for (uint32_t turns = 0; prompt_pool_count(bed.pool) > 0; turns++) {
        CHECKF(turns < 10000, "%u requests never end", prompt_pool_count(bed.pool));
        run_batch();
        progress();
        bed.now_us += 1000;
    }
}

void prompt_bed_step(void)
{
    bed.now_us += draw(1000);
    uint32_t event = draw(1000);
    if (event < 300)
        submit(draw(REQUESTS));
    else if (event < 330)
        cancel(draw(REQUESTS));
    else if (event < 600)
        progress();
    else if (event < 640)
        hold_link(event < 620);
    else if (event < 642)
        break_link();
    else
        run_batch();
    check_states();
    CHECK((prompt_pool_holder_count(bed.pool) == 0) == (kv_pool_available(bed.kv) == BLOCKS));
}

void prompt_bed_check(void)
{
    struct error error;
    CHECKF(kv_pool_check(bed.kv, &error) && kv_prefix_check(bed.prefix, &error), "%s", error.text);
}

void prompt_bed_finish(struct prompt_bed_counts *counts_out, struct message_stats *stats_out)
{
    drain();
    for (int i = 0; i < 4; i++)
        progress();
    prompt_bed_check();
    CHECK(kv_pool_available(bed.kv) == BLOCKS);
    *counts_out = bed.counts;
    prompt_pool_stats_add(bed.pool, stats_out);
    prompt_pool_close(bed.pool);
    prompt_links_close(bed.links);
    kv_targets_close(bed.kv_targets);
    transport_close(bed.transport);
    transport_close(bed.target);
    for (uint32_t i = 0; i < PLACES && bed.staged; i++)
        transport_close(bed.places[i]);
    sched_machine_close(bed.sched);
    kv_prefix_close(bed.prefix);
    kv_pool_close(bed.kv);
}
