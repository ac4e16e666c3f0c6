/* fuzz_machine: for any messages from a gateway and from a machine that writes KV, both with the
 * cluster key, a machine continues to run, and after their end all KV blocks are free. Method: two
 * real machines with a tiny model over the loopback transport, which stay between inputs. An input
 * is a list of messages of a second gateway and of a third machine, with fields that may contradict
 * each other; and of writes, lost connections and time. There are few requests, so that several
 * messages concern the same one. */
#include "common/log.h"
#include "machine/state.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "tests/machine/cluster.h"
#include "tests/transport/loopback.h"

#define KV_TOKENS  512
#define REQUESTS   6
#define BLOCKS_MAX 40
#define PROMPT_MAX 200
#define EVENTS_MAX 80
#define VOCABULARY 300
#define NAMES      4

struct party { /* The second gateway, or the third machine. */
    struct transport *transport;
    struct transport_peer *peers[2]; /* Its connections to m0 and m1; NULL = none. */
    bool up[2];
};

/* The blocks of the last RESERVED of each request. */
struct known {
    uint32_t block_count, held_count;
    uint32_t blocks[BLOCKS_MAX];
};

static struct cluster *cluster;
static struct party gateway, writer;
static struct known known[REQUESTS];
static const char *const names[NAMES] = {"m0", "m1", "w2", ""};

/* ---- the two parties ---- */

static uint32_t place_of(const struct transport_peer *peer)
{
    return transport_peer_identity(peer)->name[1] == '1';
}

static void on_up(void *self, struct transport_peer *peer)
{
    struct party *party = self;
    if (peer == party->peers[place_of(peer)])
        party->up[place_of(peer)] = true;
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct party *party = self;
    (void)why, (void)text;
    for (int i = 0; i < 2; i++)
        if (party->peers[i] == peer) {
            party->peers[i] = NULL;
            party->up[i] = false;
        }
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct message message;
    struct error error;
    (void)self, (void)peer;
    CHECKF(message_decode(data, bytes, &message, &error) == ST_OK, "%s", error.text);
    if (message.kind != MESSAGE_RESERVED)
        return;
    struct known *k = &known[message.reserved.request.id % REQUESTS];
    CHECK(message.reserved.block_count <= BLOCKS_MAX);
    *k = (struct known){message.reserved.block_count, message.reserved.held_span_count, {0}};
    memcpy(k->blocks, message.reserved.blocks, k->block_count * sizeof(k->blocks[0]));
}

static void on_flushed(void *self, struct transport_peer *peer, uint64_t cookie, enum status status)
{
    (void)self, (void)peer, (void)cookie, (void)status;
}

static void party_open(struct party *party, const char *name, enum transport_role role)
{
    const struct machine *m = cluster->machines[0];
    char bound[LIMIT_ADDRESS_BYTES];
    struct error error;
    struct transport_options options = {
        .identity = {.role = role, .metadata_hash = machine_metadata_hash(m)},
        .events = {on_up, on_down, on_message, on_flushed, NULL, NULL},
        .self = party};
    if (role == TRANSPORT_MACHINE) {
        options.identity.model_hash = *machine_model_hash(m);
        options.identity.layer_count = m->arena.layer_count;
        options.identity.block_tokens = m->arena.block_tokens;
        options.identity.block_bytes = m->arena.block_bytes;
        snprintf(options.identity.kv_dtype, sizeof(options.identity.kv_dtype), "i16");
        options.region_bytes = 1 << 20;
        options.block_count = 16;
        options.layer_stride_bytes = 1 << 16;
    }
    snprintf(options.identity.name, sizeof(options.identity.name), "%s", name);
    CHECK(transport_open(&transport_loopback, &options, &party->transport, &error) == ST_OK);
    CHECK(transport_listen(party->transport, name, bound, &error) == ST_OK);
}

static void turn(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        cluster_turn(cluster, 0);
        transport_progress(gateway.transport);
        transport_progress(writer.transport);
    }
}

static void party_connect(struct party *party, uint32_t place)
{
    struct error error;
    if (party->peers[place] == NULL)
        (void)transport_connect(party->transport, cluster->addresses[place], NULL,
                                &party->peers[place], &error);
    turn(3);
}

static void party_leave(struct party *party, uint32_t place)
{
    if (party->peers[place] != NULL)
        transport_disconnect(party->transport, party->peers[place]);
    party->peers[place] = NULL;
    party->up[place] = false;
    turn(3);
}

static void say(struct party *party, uint32_t place, const struct message *message)
{
    static struct message_buffer buffer;
    if (party->up[place] && message_encode(message, TRANSPORT_PROTOCOL_VERSION, &buffer) == ST_OK)
        (void)transport_send(party->transport, party->peers[place], buffer.data, buffer.bytes);
}

/* ---- messages ---- */

static struct message_request request_choose(struct fuzz_input *in)
{
    uint8_t choice = fuzz_byte(in);
    return (struct message_request){.id = choice % REQUESTS, .generation = choice / 64 % 2u};
}

static struct sampling sampling_choose(struct fuzz_input *in)
{
    uint8_t choice = fuzz_byte(in);
    struct sampling sampling = cluster_sampling(choice % 8u);
    if (choice >= 128)
        sampling.temperature = 0.5f;
    if (choice % 32 >= 24)
        sampling.logprobs = choice % 8;
    if (choice == 250)
        sampling.output_tokens_max = UINT32_MAX;
    if (choice == 251)
        sampling.output_tokens_max = 2000;
    if (choice % 32 == 9) {
        sampling.end_count = 1;
        sampling.end_tokens[0] = choice;
        sampling.output_tokens_min = choice / 32u;
    }
    return sampling;
}

/* Returns one of a few prompts with common beginnings. Some have tokens that the vocabulary
 * lacks. */
static const uint32_t *prompt_choose(struct fuzz_input *in, uint32_t *count_out)
{
    static uint32_t prompt[PROMPT_MAX];
    uint8_t choice = fuzz_byte(in);
    for (uint32_t i = 0; i < PROMPT_MAX; i++)
        prompt[i] = i < 40 ? 7 : choice;
    if (choice == 255)
        prompt[3] = VOCABULARY;
    *count_out = fuzz_byte(in) % PROMPT_MAX;
    return prompt;
}

/* Returns the tokens of the full blocks of a prompt; at least 1. */
static uint32_t full_blocks(uint32_t tokens)
{
    return tokens >= 16 ? tokens / 16 * 16 : 1;
}

static void say_reserve(uint32_t place, struct fuzz_input *in)
{
    struct message message = {.kind = MESSAGE_RESERVE};
    struct message_reserve *reserve = &message.reserve;
    uint8_t flags = fuzz_byte(in);
    reserve->request = request_choose(in);
    reserve->sampling = sampling_choose(in);
    reserve->prompt = prompt_choose(in, &reserve->prompt_tokens);
    reserve->copy = flags % 8 == 1;
    reserve->copy_windows = flags % 32 == 1;
    reserve->prefix_cache = flags % 2 != 0;
    if (reserve->copy && flags % 16 == 1)
        reserve->prompt_tokens = full_blocks(reserve->prompt_tokens);
    reserve->prompt_count = flags % 4 == 0 ? 0 : reserve->prompt_tokens;
    if (flags == 255)
        reserve->prompt_tokens = 5000;
    reserve->rank.priority = (int8_t)flags;
    snprintf(reserve->prompt_machine, LIMIT_NAME_BYTES, "%s", names[flags / 4 % NAMES]);
    say(&gateway, place, &message);
}

static void say_prefill(uint32_t place, struct fuzz_input *in)
{
    static uint32_t any_blocks[BLOCKS_MAX];
    struct message message = {.kind = MESSAGE_PREFILL};
    struct message_prefill *prefill = &message.prefill;
    uint8_t flags = fuzz_byte(in), more = fuzz_byte(in);
    prefill->request = request_choose(in);
    prefill->sampling = sampling_choose(in);
    prefill->prompt = prompt_choose(in, &prefill->prompt_count);
    const struct known *k = &known[prefill->request.id];
    prefill->held_span_count = k->held_count;
    prefill->block_count = k->block_count;
    prefill->blocks = k->blocks;
    if (more >= 192) {
        for (uint32_t i = 0; i < BLOCKS_MAX; i++)
            any_blocks[i] = i * (more % 8u);
        prefill->blocks = any_blocks;
        prefill->block_count = more % BLOCKS_MAX;
        prefill->held_span_count = more / 4 % 4u;
    }
    prefill->copied_generation = more % 16 == 3 ? 1 + prefill->request.generation : 0;
    if (prefill->copied_generation > 0 && flags % 2 == 0)
        prefill->prompt_count = full_blocks(prefill->prompt_count);
    prefill->score_prompt = flags >> 2 & 1;
    prefill->transfer_mode = flags >> 3 & 1 ? TRANSFER_LAYERWISE : TRANSFER_AUTO;
    prefill->path = flags >= 240 ? 1 : 0;
    snprintf(prefill->token_machine, LIMIT_NAME_BYTES, "%s", names[flags % NAMES]);
    say(&gateway, place, &message);
}

static void say_other(uint32_t place, struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    struct message message = {.kind = MESSAGE_PEER};
    if (what % 4 == 0) {
        snprintf(message.peer.name, LIMIT_NAME_BYTES, "%s", names[what / 4 % 3]);
        snprintf(message.peer.address, LIMIT_ADDRESS_BYTES, "%s", names[what / 16 % NAMES]);
    } else if (what % 4 == 1) {
        message.kind = MESSAGE_ROLE;
        message.role = (struct message_role){
            .serial = what / 64, .pool = what / 4 % 3u, .home = what / 16 % 3u};
    } else {
        message.kind = MESSAGE_CANCEL;
        message.cancel = (struct message_cancel){request_choose(in), what >= 128, {0}};
    }
    say(&gateway, place, &message);
}

static void say_written(uint32_t place, struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    struct message message = {.kind = MESSAGE_KV_ABORTED};
    message.kv_aborted = request_choose(in);
    if (what % 2 != 0) {
        message.kind = MESSAGE_KV_READY;
        message.kv_ready = (struct message_kv_ready){
            message.kv_aborted, 1u + fuzz_byte(in) % PROMPT_MAX, what == 255 ? VOCABULARY : what};
    } else if (what % 4 == 0) {
        message.kind = MESSAGE_PROGRESS;
        message.progress = (struct message_progress){.request = message.kv_aborted,
                                                     .tokens = 1u + fuzz_byte(in) % PROMPT_MAX};
    }
    say(&writer, place, &message);
}

static void write_kv(uint32_t place, struct fuzz_input *in)
{
    struct message_request name = request_choose(in);
    uint8_t what = fuzz_byte(in);
    const struct kv_arena *arena = &cluster->machines[place]->arena;
    const struct transport_request request = {name.id, name.generation};
    uint64_t block = what < 128 ? known[name.id].blocks[what % BLOCKS_MAX] : what;
    uint64_t offset = what / 64 * arena->layer_stride_bytes + block * arena->block_bytes;
    if (!writer.up[place])
        return;
    (void)transport_write_for(writer.transport, writer.peers[place],
                              transport_region(writer.transport), arena->block_bytes, offset,
                              &request);
    transport_flush(writer.transport, writer.peers[place], what);
}

static void event(struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    uint32_t place = what / 16 % 2;
    switch (what % 16) {
    case 0:
    case 1:
    case 2:
        say_reserve(place, in);
        break;
    case 3:
    case 4:
    case 5:
        say_prefill(place, in);
        break;
    case 6:
    case 7:
        say_other(place, in);
        break;
    case 8:
    case 9:
        say_written(place, in);
        break;
    case 10:
        write_kv(place, in);
        break;
    case 11:
        cluster_clock_skip(cluster, (int64_t)1 << what / 16 * 2);
        break;
    case 12:
        party_leave(what >= 128 ? &gateway : &writer, place);
        break;
    case 13:
        party_connect(what >= 128 ? &gateway : &writer, place);
        break;
    case 14:
        return; /* The next message arrives with the last one. */
    default:
        break;
    }
    turn(what >= 128 ? 6 : 2);
}

static void cluster_start(void)
{
    const struct cluster_options options = {.transport = &transport_loopback,
                                            .model = cluster_synthetic_model(),
                                            .machine_count = 2,
                                            .kv_tokens = {KV_TOKENS, KV_TOKENS},
                                            .pools = {POOL_MIXED, POOL_MIXED},
                                            .prompt_batch_tokens = 64,
                                            .threads = 1};
    log_open("fuzz", LOG_ERROR);
    cluster = cluster_open(&options);
    cluster_clock_stop(cluster, true);
    party_open(&gateway, "g1", TRANSPORT_GATEWAY);
    party_open(&writer, "w2", TRANSPORT_MACHINE);
}

static bool all_free(const struct machine *m)
{
    return prompt_pool_count(m->prompt_pool) == 0 && token_pool_count(m->token_pool) == 0 &&
           kv_pool_available(m->kv) == kv_pool_block_count(m->kv);
}

/* Ends every request. Time passes while no batch is computed. */
static void settle(void)
{
    const struct machine *a = cluster->machines[0], *b = cluster->machines[1];
    const int64_t until_us = clock_now_us(&clock_system) + 60000000;
    while (!all_free(a) || !all_free(b)) {
        bool computes = machine_batch_in_flight(a) || machine_batch_in_flight(b);
        CHECKF(clock_now_us(&clock_system) < until_us, "%u and %u requests do not end",
               prompt_pool_count(a->prompt_pool) + token_pool_count(a->token_pool),
               prompt_pool_count(b->prompt_pool) + token_pool_count(b->token_pool));
        cluster_turn(cluster, computes ? 5 : 0);
        if (!computes)
            cluster_clock_skip(cluster, 500000);
    }
}

/* Takes back what an input has said about machines, so that inputs do not depend on each other. */
static void peers_restore(void)
{
    for (uint32_t place = 0; place < 2; place++) {
        party_connect(&gateway, place);
        for (uint32_t i = 0; i < 3; i++) {
            struct message message = {.kind = MESSAGE_PEER};
            snprintf(message.peer.name, LIMIT_NAME_BYTES, "%s", names[i]);
            if (i < 2)
                memcpy(message.peer.address, cluster->addresses[i], LIMIT_ADDRESS_BYTES);
            say(&gateway, place, &message);
        }
        turn(3);
        party_leave(&gateway, place);
    }
    turn(3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct error error;
    if (cluster == NULL)
        cluster_start();
    memset(known, 0, sizeof(known));
    for (uint32_t i = 0; i < 2; i++) {
        party_connect(&gateway, i);
        party_connect(&writer, i);
    }
    for (int i = 0; i < EVENTS_MAX && in.size > 0; i++)
        event(&in);
    for (uint32_t i = 0; i < 2; i++) {
        party_leave(&gateway, i);
        party_leave(&writer, i);
    }
    settle();
    for (uint32_t i = 0; i < 2; i++) {
        const struct machine *m = cluster->machines[i];
        CHECKF(machine_kv_check(m, &error), "m%u: %s", i, error.text);
    }
    peers_restore();
    return 0;
}

/* A request from one machine to the other; one that the third machine writes; one without a token
 * machine; random events. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const uint8_t pair[] = {
        0x86, 4,    0x86, 20,   0x90, 1, 0,
        5,    9,    60,                      /* PEER to both; RESERVE at m1, prompt at m0 */
        0x83, 1,    0,    0,    5,    9, 60, /* PREFILL at m0, tokens at m1 */
        0x8f, 0x8f, 0x8f, 0x8f, 0x86, 2, 0}; /* CANCEL */
    static const uint8_t written[] = {0x90, 9, 1,  4,    9,    30,   0x9a, 1, 0, 0x9a, 1, 1, 0x98,
                                      1,    1, 29, 0x8f, 0x9c, 0x9d, 0x90, 9, 1, 4,    9, 30};
    static const uint8_t alone[] = {0x83, 7, 0, 2, 1, 9, 99, 0x8f, 0x83, 3, 0, 3, 0, 8, 50, 0x8f};
    static const struct {
        const uint8_t *bytes;
        size_t count;
    } lives[] = {{pair, sizeof(pair)}, {written, sizeof(written)}, {alone, sizeof(alone)}};
    if (index < 3) {
        memcpy(buffer, lives[index].bytes, lives[index].count);
        return lives[index].count;
    }
    size_t bytes = 64u << index % 4;
    if (index >= 12 || bytes > capacity)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = (uint8_t)((index * 2654435761u + i * 40503u) >> (i % 3 * 5 + 3));
    return bytes;
}
