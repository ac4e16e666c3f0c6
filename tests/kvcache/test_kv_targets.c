/* Goal: between two machines, each with any tensor parallelism and any stages, every byte of every
 * KV head of every layer of a prompt's blocks reaches each process that needs it, once, whether
 * the ranks of a stage divide the heads or have copies of them; data without a destination is
 * reported, not lost. Method: all processes of both machines over the loopback transport, with
 * source bytes that identify themselves; then processes that do not fit, with the name of what is
 * missing. */
#include "tests/check.h"

#include "common/random.h"
#include "kvcache/kv_targets.h"
#include "tests/transport/loopback.h"

#include <string.h>

#define LAYERS     5
#define BLOCKS     12
#define PATHS      2
#define HEAD_BYTES 40 /* Bytes of a head in one block. */
#define RANKS_MAX  4
#define PLACES_MAX (3 * RANKS_MAX + RANKS_MAX)
#define TARGET     7 /* Number of the target. */
#define COOKIE     99

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, ++draws) % below);
}

struct process {
    char name[LIMIT_NAME_BYTES];
    struct message_stage stage;
    struct kv_arena arena;
    struct transport *transport;
    /* Only for a process of the source. */
    struct kv_targets *targets;
    struct transport_peer *held; /* The first connection that the process made. */
    bool up, down;
    uint32_t flushed;
    enum status flush_status;
    char text[256];
};

struct machine {
    uint32_t count;
    struct process processes[PLACES_MAX];
    struct message_stage stages[PLACES_MAX];
};

static uint32_t heads; /* KV heads of the model. */
static bool copied;    /* Every rank of a stage has all heads. */
static uint32_t source_ranks, target_ranks;
static struct machine source, target;
static kv_block_id source_blocks[BLOCKS], target_blocks[BLOCKS];

static struct kv_arena whole(void)
{
    return (struct kv_arena){.layer_count = LAYERS,
                             .head_count = heads,
                             .head_total = heads,
                             .block_count = BLOCKS,
                             .block_tokens = 16,
                             .block_bytes = (uint64_t)heads * HEAD_BYTES,
                             .layer_stride_bytes = (uint64_t)BLOCKS * heads * HEAD_BYTES};
}

static uint8_t content(uint32_t layer, uint32_t head, uint32_t index, uint32_t byte)
{
    return (uint8_t)random_at((layer * 64ull + head) * 64 + index, byte);
}

/* ---- processes ---- */

static void on_peer_up(void *self, struct transport_peer *peer)
{
    struct process *p = self;
    if (transport_peer_user(peer) == NULL)
        return;
    if (p->held == NULL)
        p->held = peer;
    kv_targets_peer_up(p->targets, peer);
}

static void on_peer_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct process *p = self;
    (void)why;
    if (transport_peer_user(peer) != NULL)
        kv_targets_peer_down(p->targets, peer, text);
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    (void)self, (void)peer, (void)data, (void)bytes;
    CHECK(false);
}

static void on_peer_flushed(void *self, struct transport_peer *peer, uint64_t cookie,
                            enum status status)
{
    struct process *p = self;
    kv_targets_flushed(p->targets, peer, cookie, status);
}

static void on_link(void *self, uint32_t number, bool up, const char *text)
{
    struct process *p = self;
    CHECK(number == TARGET);
    p->up = up;
    p->down = !up;
    snprintf(p->text, sizeof(p->text), "%s", text);
}

static void on_flushed(void *self, uint64_t cookie, enum status status)
{
    struct process *p = self;
    CHECK(cookie == COOKIE);
    p->flushed++;
    p->flush_status = status;
}

static void process_open(struct process *p, const char *machine, uint32_t index,
                         const struct message_stage *stage)
{
    const struct kv_arena all = whole();
    char bound[LIMIT_ADDRESS_BYTES];
    struct error error;
    memset(p, 0, sizeof(*p));
    p->stage = *stage;
    p->arena = kv_arena_slice(&all, stage->first_layer, stage->end_layer, stage->first_head,
                              stage->end_head);
    snprintf(p->name, sizeof(p->name), "%s/%u", machine, index);
    struct transport_options options = {
        .identity = {.role = TRANSPORT_MACHINE,
                     .layer_count = LAYERS,
                     .block_tokens = 16,
                     .block_bytes = all.block_bytes}, /* The model's, not the process's. */
        .events = {on_peer_up, on_peer_down, on_message, on_peer_flushed, NULL},
        .self = p,
        .region_bytes = p->arena.layer_count * p->arena.layer_stride_bytes,
        .block_count = BLOCKS,
        .layer_stride_bytes = p->arena.layer_stride_bytes,
    };
    memcpy(options.identity.name, p->name, sizeof(p->name));
    CHECK(transport_open(&transport_loopback, &options, &p->transport, &error) == ST_OK);
    CHECK(transport_listen(p->transport, p->name, bound, &error) == ST_OK);
}

static void targets_open(struct process *p)
{
    const struct kv_targets_options options = {.transport = p->transport,
                                               .arena = p->arena,
                                               .context_spans = BLOCKS,
                                               .link_changed = on_link,
                                               .flushed = on_flushed,
                                               .self = p};
    CHECK(kv_targets_open(&options, &p->targets) == ST_OK);
}

/* Opens stages of random layers with `ranks` processes each. replicas: the last stage has two
 * replicas, one per path. */
static void machine_open(struct machine *m, const char *name, uint32_t ranks, bool replicas)
{
    uint32_t layer = 0;
    m->count = 0;
    for (uint32_t left = 1 + draw(3); left > 0; left--) {
        uint32_t end = left == 1 ? LAYERS : layer + 1 + draw(LAYERS - layer - left + 1);
        uint32_t copies = left == 1 && replicas ? 2 : 1;
        for (uint32_t i = 0; i < copies * ranks; i++) {
            uint32_t rank = i % ranks, few = heads / ranks, more = heads % ranks;
            struct message_stage *stage = &m->stages[m->count];
            *stage = (struct message_stage){
                .paths = copies == 1 ? 3 : 1u << i / ranks, .first_layer = layer, .end_layer = end};
            stage->first_head = rank * few + (rank < more ? rank : more);
            stage->end_head = stage->first_head + few + (rank < more ? 1 : 0);
            if (copied) {
                stage->first_head = 0;
                stage->end_head = heads;
            }
            process_open(&m->processes[m->count], name, m->count, stage);
            memcpy(stage->address, m->processes[m->count].name, LIMIT_NAME_BYTES);
            m->processes[m->count].arena.copy_count = copied ? ranks : 0;
            m->processes[m->count].arena.copy_index = copied ? rank : 0;
            m->count++;
        }
        layer = end;
    }
}

static void machine_close(struct machine *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        kv_targets_close(m->processes[i].targets);
        transport_close(m->processes[i].transport);
    }
}

static void progress(void)
{
    for (uint32_t turn = 0; turn < 8; turn++) {
        for (uint32_t i = 0; i < source.count; i++)
            transport_progress(source.processes[i].transport);
        for (uint32_t i = 0; i < target.count; i++)
            if (target.processes[i].transport != NULL)
                transport_progress(target.processes[i].transport);
    }
}

/* ---- KV ---- */

static void table_fill(kv_block_id *table)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        table[i] = i;
    for (uint32_t swaps = draw(BLOCKS); swaps > 0; swaps--) {
        uint32_t a = draw(BLOCKS), b = draw(BLOCKS);
        kv_block_id kept = table[a];
        table[a] = table[b];
        table[b] = kept;
    }
}

/* Returns the byte of a head in a block of a process that has the head. */
static uint8_t *at(const struct process *p, uint32_t layer, uint32_t head, kv_block_id block)
{
    uint32_t count = p->stage.end_head - p->stage.first_head;
    uint64_t offset = ((uint64_t)(layer - p->stage.first_layer) * BLOCKS + block) * count;
    return (uint8_t *)transport_region(p->transport) +
           (offset + head - p->stage.first_head) * HEAD_BYTES;
}

static void source_fill(void)
{
    for (uint32_t i = 0; i < source.count; i++) {
        const struct process *p = &source.processes[i];
        for (uint32_t layer = p->stage.first_layer; layer < p->stage.end_layer; layer++)
            for (uint32_t head = p->stage.first_head; head < p->stage.end_head; head++)
                for (uint32_t index = 0; index < BLOCKS; index++)
                    for (uint32_t byte = 0; byte < HEAD_BYTES; byte++)
                        at(p, layer, head, source_blocks[index])[byte] =
                            content(layer, head, index, byte);
    }
}

/* Blocks [first, first + count) have arrived, only in the path's processes; all other bytes are
 * 0. */
static void target_check(uint32_t path, uint32_t first, uint32_t count)
{
    uint64_t landed = 0;
    for (uint32_t i = 0; i < target.count; i++) {
        const struct process *p = &target.processes[i];
        bool asked = (p->stage.paths >> path & 1) != 0;
        landed += transport_loopback_landed_bytes(p->transport);
        for (uint32_t layer = p->stage.first_layer; layer < p->stage.end_layer; layer++)
            for (uint32_t head = p->stage.first_head; head < p->stage.end_head; head++)
                for (uint32_t index = 0; index < BLOCKS; index++) {
                    bool moved = asked && index >= first && index < first + count;
                    const uint8_t *bytes = at(p, layer, head, target_blocks[index]);
                    for (uint32_t byte = 0; byte < HEAD_BYTES; byte++)
                        CHECKF(bytes[byte] == (moved ? content(layer, head, index, byte) : 0),
                               "%s: layer %u, head %u, block %u", p->name, layer, head, index);
                }
    }
    /* Each byte was written exactly once to each copy. The pool counts the same bytes: a process
     * counts the bytes of its arena's blocks, a head with stages those of all stage processes. */
    const uint64_t once = (uint64_t)count * heads * HEAD_BYTES * LAYERS;
    CHECK(landed == once * (copied ? target_ranks : 1));
    uint64_t counted = 0;
    for (uint32_t i = 0; i < source.count; i++)
        /* Of the replicas, only the one on the request's path pushes. */
        if (source.stages[i].paths & 1)
            counted += count * source.processes[i].arena.block_bytes *
                       source.processes[i].arena.layer_count;
    CHECK(counted == once * (copied ? source_ranks : 1) &&
          once == count * whole().block_bytes * LAYERS);
}

static uint32_t link_all(void)
{
    const struct message_stages stages = {.count = target.count, .stages = target.stages};
    uint32_t up = 0;
    for (uint32_t i = 0; i < source.count; i++) {
        source.processes[i].up = source.processes[i].down = false;
        kv_targets_set(source.processes[i].targets, TARGET, "t0", NULL, &stages);
    }
    progress();
    for (uint32_t i = 0; i < source.count; i++)
        up += source.processes[i].up;
    return up;
}

static enum status write_layer(struct kv_targets *targets, uint32_t number, uint32_t path,
                               uint32_t layer, const kv_block_id *from, const kv_block_id *to,
                               uint32_t first, uint32_t count)
{
    struct kv_push push = {.target = number,
                           .path = path,
                           .source_blocks = from,
                           .target_blocks = to,
                           .first = first,
                           .count = count,
                           .layer = layer};
    enum status status = kv_targets_push(targets, &push, layer + 1);
    CHECK(push.layer == (status == ST_OK ? layer + 1 : layer));
    return status;
}

static void test_move(void)
{
    uint32_t path = draw(PATHS), first = draw(BLOCKS), count = 1 + draw(BLOCKS - first);
    machine_open(&source, "p0", source_ranks, false);
    machine_open(&target, "t0", target_ranks, draw(2) == 0);
    table_fill(source_blocks);
    table_fill(target_blocks);
    source_fill();
    for (uint32_t i = 0; i < source.count; i++)
        targets_open(&source.processes[i]);
    CHECK(link_all() == source.count);
    for (uint32_t i = 0; i < source.count; i++) {
        struct process *p = &source.processes[i];
        uint32_t half = draw(count + 1); /* In two pushes. */
        for (uint32_t push = 0; push < 2; push++)
            for (uint32_t layer = p->stage.first_layer; layer < p->stage.end_layer; layer++)
                CHECK(write_layer(p->targets, TARGET, path, layer, source_blocks, target_blocks,
                                  push == 0 ? first : first + half,
                                  push == 0 ? half : count - half) == ST_OK);
        transport_loopback_hold(p->transport, p->held, true);
        kv_targets_flush(p->targets, TARGET, path, COOKIE);
    }
    progress();
    for (uint32_t i = 0; i < source.count; i++) {
        struct process *p = &source.processes[i];
        bool waits = false; /* One of the process's connections is held; is it on the path? */
        for (uint32_t k = 0; k < target.count; k++)
            waits |=
                strcmp(transport_peer_identity(p->held)->name, target.processes[k].name) == 0 &&
                (target.stages[k].paths >> path & 1) != 0;
        CHECK(p->flushed == (waits ? 0 : 1));
        transport_loopback_hold(p->transport, p->held, false);
    }
    progress();
    for (uint32_t i = 0; i < source.count; i++)
        CHECK(source.processes[i].flushed == 1 && source.processes[i].flush_status == ST_OK);
    target_check(path, first, count);
    machine_close(&source);
    machine_close(&target);
}

/* ---- what does not fit ---- */

/* Opens a source with all of the model or a part of it, and a target with the given stages. */
static void pair_open(const struct message_stage *from, const struct message_stage *to,
                      uint32_t count)
{
    source.count = 1;
    source.stages[0] = *from;
    process_open(&source.processes[0], "p0", 0, from);
    targets_open(&source.processes[0]);
    target.count = count;
    for (uint32_t i = 0; i < count; i++) {
        process_open(&target.processes[i], "t0", i, &to[i]);
        target.stages[i] = to[i];
        snprintf(target.stages[i].address, LIMIT_ADDRESS_BYTES, "t0/%u", i);
    }
}

static void refuse(const struct message_stage *from, const struct message_stage *to, uint32_t count,
                   const char *text)
{
    const struct process *p = &source.processes[0];
    pair_open(from, to, count);
    CHECK(link_all() == 0 && p->down && !kv_targets_up(p->targets, TARGET, 0));
    CHECKF(strcmp(p->text, text) == 0, "\"%s\"", p->text);
    machine_close(&source);
    machine_close(&target);
}

static void test_refused(void)
{
    struct message_stage all = {.paths = 3, .end_layer = LAYERS, .end_head = 3};
    struct message_stage upper = {
        .paths = 3, .first_layer = 2, .end_layer = LAYERS, .first_head = 1, .end_head = 3};
    struct message_stage to[3] = {{.paths = 3, .end_layer = LAYERS, .end_head = 2},
                                  {.paths = 1, .end_layer = LAYERS},
                                  {.paths = 2, .end_layer = 4}};
    heads = 3;
    to[1].first_head = to[2].first_head = 2;
    to[1].end_head = to[2].end_head = 3;
    refuse(
        &all, to, 3,
        "the processes of t0 do not fit ours: KV head 2 of layer 4 on path 1 is at none of them");
    refuse(
        &upper, to, 1,
        "the processes of t0 do not fit ours: KV head 2 of layer 2 on path 0 is at none of them");
    to[2].end_layer = LAYERS;
    to[2].first_head = 1;
    refuse(
        &all, to, 3,
        "the processes of t0 do not fit ours: KV head 1 of layer 0 on path 1 is at more than one "
        "of them");
    to[2].first_head = 2;
    to[0].paths = to[1].paths = to[2].paths = 0;
    refuse(&all, to, 3, "it has no path");

    /* The target has the layers and heads that this process writes; other processes write the
     * rest. */
    struct message_stage lower = {.paths = 1, .end_layer = 2, .end_head = 3};
    pair_open(&lower, &lower, 1);
    CHECK(link_all() == 1);
    machine_close(&source);
    machine_close(&target);

    /* The target claims more heads than the model has, for a region with three heads. */
    pair_open(&all, &all, 1);
    target.stages[0].end_head = 4;
    CHECK(link_all() == 0);
    CHECKF(strcmp(source.processes[0].text,
                  "the processes of t0 do not fit ours: KV head 3, the model has 3") == 0,
           "\"%s\"", source.processes[0].text);
    machine_close(&source);
    machine_close(&target);
}

/* Regions that cannot hold what their process claims to have. */
static void test_regions(void)
{
    struct message_stage all = {.paths = 1, .end_layer = LAYERS, .end_head = 3};
    struct message_stage part = {.paths = 1, .end_layer = LAYERS, .end_head = 2};
    heads = 3;
    pair_open(&all, &part, 1); /* The region has two heads; the process claims three. */
    target.stages[0].end_head = 3;
    CHECK(link_all() == 0);
    CHECKF(strstr(source.processes[0].text, "t0/0 has a region of ") != NULL &&
               strstr(source.processes[0].text, "layers 0 to 4, KV heads 0 to 2") != NULL,
           "\"%s\"", source.processes[0].text);
    machine_close(&source);
    machine_close(&target);

    const uint64_t bytes = (uint64_t)LAYERS * BLOCKS * 3 * HEAD_BYTES, layer = bytes / LAYERS;
    const struct {
        uint32_t blocks;
        uint64_t stride;
        bool good;
    } regions[] = {
        {BLOCKS, layer, true},        {0, layer, false},
        {BLOCKS + 1, layer, false},   /* The last layer would end behind the region. */
        {UINT32_MAX, layer, false},   /* All layers would. */
        {BLOCKS, layer - 1, false},   /* Layers overlap. */
        {BLOCKS, 0, false},           /* All layers are in one place. */
        {BLOCKS, layer + 1, false},   /* The last layer ends one byte behind the region. */
        {BLOCKS, UINT64_MAX, false},  /* The sum wraps around. */
        {BLOCKS, 1ull << 62, false},  /* Four times this is 0. */
        {BLOCKS - 1, layer, true},    /* A gap between layers. */
        {1, layer + layer / 5, true}, /* Gaps between layers. */
    };
    for (size_t i = 0; i < sizeof(regions) / sizeof(regions[0]); i++) {
        pair_open(&all, &all, 1);
        struct transport *t;
        char bound[LIMIT_ADDRESS_BYTES];
        struct error error;
        struct transport_options options = {
            .identity = {.name = "t0/9",
                         .role = TRANSPORT_MACHINE,
                         .layer_count = LAYERS,
                         .block_tokens = 16,
                         .block_bytes = 3 * HEAD_BYTES},
            .events = {on_peer_up, on_peer_down, on_message, on_peer_flushed, NULL},
            .self = &target.processes[0],
            .region_bytes = bytes,
            .block_count = regions[i].blocks,
            .layer_stride_bytes = regions[i].stride,
        };
        CHECK(transport_open(&transport_loopback, &options, &t, &error) == ST_OK);
        CHECK(transport_listen(t, "t0/9", bound, &error) == ST_OK);
        memcpy(target.stages[0].address, "t0/9", 5);
        link_all();
        for (uint32_t turn = 0; turn < 4; turn++) {
            transport_progress(t);
            progress();
        }
        CHECKF(source.processes[0].up == regions[i].good, "%zu: %s", i, source.processes[0].text);
        CHECKF(source.processes[0].down != regions[i].good, "%zu: %s", i, source.processes[0].text);
        if (regions[i].good) { /* A block that only the machine has, not this process. */
            kv_block_id from = 0, to = regions[i].blocks;
            struct kv_targets *targets = source.processes[0].targets;
            CHECK(write_layer(targets, TARGET, 0, 0, &from, &to, 0, 1) == ST_INVALID);
            to--;
            CHECK(write_layer(targets, TARGET, 0, LAYERS - 1, &from, &to, 0, 1) == ST_OK);
            CHECK(write_layer(targets, TARGET, 1, 0, &from, &to, 0, 1) == ST_UNREACHABLE);
            CHECK(kv_targets_up(targets, TARGET, 0) && !kv_targets_up(targets, TARGET, 1));
        }
        machine_close(&source);
        machine_close(&target);
        transport_close(t);
    }
}

/* If one rank of a target dies, the target is down for each process that writes to that rank, and
 * for no other process. */
static void test_death(uint32_t rank)
{
    heads = 3;
    machine_open(&source, "p0", 2, false);
    machine_open(&target, "t0", 3, false);
    for (uint32_t i = 0; i < source.count; i++)
        targets_open(&source.processes[i]);
    CHECK(link_all() == source.count);
    /* The rank of that head in the stage of layer 4. */
    struct process *dead = &target.processes[target.count - 3 + rank];
    transport_close(dead->transport);
    dead->transport = NULL;
    progress();
    for (uint32_t i = 0; i < source.count; i++) {
        const struct process *p = &source.processes[i];
        bool wrote = p->stage.end_layer > dead->stage.first_layer && p->stage.first_head <= rank &&
                     rank < p->stage.end_head;
        CHECKF(p->down == wrote, "%s", p->name);
        CHECK(kv_targets_up(p->targets, TARGET, 0) == !wrote);
    }
    machine_close(&source);
    machine_close(&target);
}

int main(void)
{
    static const uint32_t models[] = {3, 4, 5, 8, 9};
    seed = test_seed();
    for (uint32_t round = 0; round < 4; round++)
        for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++)
            for (uint32_t ranks = 0; ranks < RANKS_MAX * RANKS_MAX; ranks++) {
                heads = models[m]; /* One of the models has 3 heads over 2 ranks. */
                source_ranks = 1 + ranks / RANKS_MAX;
                target_ranks = 1 + ranks % RANKS_MAX;
                if (source_ranks <= heads && target_ranks <= heads)
                    test_move();
                heads = 1;
                copied = true;
                test_move();
                copied = false;
            }
    test_refused();
    test_regions();
    for (uint32_t rank = 0; rank < 3; rank++)
        test_death(rank);
    return 0;
}
