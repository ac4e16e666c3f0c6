/* kv_targets: a target is a list of places, one for each process that has layers of ours. */
#include "prompt_pool/kv_targets.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A process of a target. */
struct place {
    enum kv_user user; /* KV_USER_PLACE: transports hand us back by this */
    uint32_t target;
    struct message_stage stage;
    struct transport_peer *peer;
    bool ours; /* the connection is: else it is that of the machine itself */
    bool up;
};

struct target {
    char name[LIMIT_NAME_BYTES];
    uint32_t count; /* 0: not known */
    struct place *places;
    bool up;
};

/* A flush that was asked for, and is reported once all its places have been. */
struct flush {
    uint64_t cookie;
    uint32_t target;
    uint32_t left;
    enum status status;
};

struct kv_targets {
    struct kv_targets_options options;
    struct kv_run *runs; /* [context_blocks] */
    struct target targets[LIMIT_MACHINES];
    uint32_t flush_count;
    uint32_t flush_capacity;
    struct flush *flushes;
};

enum status kv_targets_open(const struct kv_targets_options *options, struct kv_targets **out)
{
    struct kv_targets *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return ST_NO_MEMORY;
    t->options = *options;
    t->runs = calloc(options->context_blocks, sizeof(t->runs[0]));
    t->flush_capacity = LIMIT_MACHINE_REQUESTS; /* each request has one on its way at most */
    t->flushes = calloc(t->flush_capacity, sizeof(t->flushes[0]));
    if (t->runs == NULL || t->flushes == NULL) {
        kv_targets_close(t);
        return ST_NO_MEMORY;
    }
    *out = t;
    return ST_OK;
}

void kv_targets_drop(struct kv_targets *t, uint32_t target)
{
    struct target *entry = &t->targets[target];
    for (uint32_t i = 0; i < entry->count; i++)
        if (entry->places[i].ours && entry->places[i].peer != NULL)
            transport_disconnect(t->options.transport, entry->places[i].peer);
    free(entry->places);
    *entry = (struct target){.count = 0};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->flush_count; i++)
        if (t->flushes[i].target != target)
            t->flushes[kept++] = t->flushes[i];
    t->flush_count = kept;
}

void kv_targets_close(struct kv_targets *t)
{
    if (t == NULL)
        return;
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++)
        kv_targets_drop(t, i);
    free(t->flushes);
    free(t->runs);
    free(t);
}

static void fail(struct kv_targets *t, uint32_t target, const char *text)
{
    kv_targets_drop(t, target);
    t->options.link(t->options.self, target, false, text);
}

static bool overlaps(const struct kv_targets *t, const struct message_stage *stage)
{
    const struct kv_arena *arena = &t->options.arena;
    return stage->paths != 0 && stage->first_layer < arena->first_layer + arena->layer_count &&
           stage->last_layer > arena->first_layer;
}

/* The region holds the layers that it is said to. */
static bool region_good(const struct kv_targets *t, const struct place *place)
{
    const struct transport_region_info *region = transport_peer_region(place->peer);
    const struct message_stage *stage = &place->stage;
    uint64_t layers = stage->last_layer - stage->first_layer;
    return region->block_count > 0 && (layers - 1) * region->layer_stride_bytes +
                                              region->block_count * t->options.arena.block_bytes <=
                                          region->bytes;
}

/* Tells, once all places are up. */
static void look(struct kv_targets *t, uint32_t target)
{
    struct target *entry = &t->targets[target];
    char text[256];
    for (uint32_t i = 0; i < entry->count; i++)
        if (!entry->places[i].up)
            return;
    for (uint32_t i = 0; i < entry->count; i++) {
        const struct place *place = &entry->places[i];
        if (region_good(t, place))
            continue;
        snprintf(text, sizeof(text), "%s has a region of %llu bytes, too small for layers %u to %u",
                 transport_peer_identity(place->peer)->name,
                 (unsigned long long)transport_peer_region(place->peer)->bytes,
                 place->stage.first_layer, place->stage.last_layer - 1);
        fail(t, target, text);
        return;
    }
    entry->up = true;
    snprintf(text, sizeof(text), "%s", transport_peer_path(entry->places[0].peer));
    t->options.link(t->options.self, target, true, text);
}

/* False: it has failed, and said so. */
static bool place_connect(struct kv_targets *t, struct place *place, struct transport_peer *peer)
{
    struct error error;
    if (place->stage.address[0] == 0 && peer != NULL) {
        place->peer = peer;
        place->up = true;
        return true;
    }
    place->ours = true;
    if (transport_connect(t->options.transport, place->stage.address, place, &place->peer,
                          &error) >= 0)
        return true;
    place->peer = NULL;
    fail(t, place->target, error.text);
    return false;
}

void kv_targets_set(struct kv_targets *t, uint32_t target, const char *name,
                    struct transport_peer *peer, const struct message_stages *stages)
{
    assert(target < LIMIT_MACHINES);
    kv_targets_drop(t, target);
    struct target *entry = &t->targets[target];
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    entry->places = calloc(stages->count, sizeof(entry->places[0]));
    if (entry->places == NULL) {
        fail(t, target, "out of memory");
        return;
    }
    for (uint32_t i = 0; i < stages->count; i++)
        if (overlaps(t, &stages->stages[i]))
            entry->places[entry->count++] =
                (struct place){.user = KV_USER_PLACE, .target = target, .stage = stages->stages[i]};
    if (entry->count == 0) {
        fail(t, target, "it has none of our layers");
        return;
    }
    for (uint32_t i = 0; i < entry->count; i++)
        if (!place_connect(t, &entry->places[i], peer))
            return;
    look(t, target);
}

bool kv_targets_up(const struct kv_targets *t, uint32_t target)
{
    return t->targets[target].up;
}

/* The place that holds `layer` of `path`, or NULL. */
static struct place *place_of(const struct target *entry, uint32_t path, uint32_t layer)
{
    for (uint32_t i = 0; i < entry->count; i++) {
        struct place *place = &entry->places[i];
        if ((place->stage.paths >> path & 1) != 0 && layer >= place->stage.first_layer &&
            layer < place->stage.last_layer)
            return place;
    }
    return NULL;
}

enum status kv_targets_write(struct kv_targets *t, uint32_t target, uint32_t path, uint32_t layer,
                             const kv_block_id *source, const kv_block_id *blocks, uint32_t first,
                             uint32_t count)
{
    const struct kv_targets_options *options = &t->options;
    const struct target *entry = &t->targets[target];
    const struct place *place = place_of(entry, path, layer);
    if (!entry->up || place == NULL)
        return ST_UNREACHABLE;
    const struct transport_region_info *region = transport_peer_region(place->peer);
    const struct kv_arena arena = {
        .first_layer = place->stage.first_layer,
        .layer_count = place->stage.last_layer - place->stage.first_layer,
        .block_count = region->block_count,
        .block_tokens = options->arena.block_tokens, /* the hand-shake has compared these two */
        .block_bytes = options->arena.block_bytes,
        .layer_stride_bytes = region->layer_stride_bytes,
    };
    uint32_t runs =
        kv_transfer_plan(&options->arena, source, &arena, blocks, layer, first, count, t->runs);
    const uint8_t *base = transport_region(options->transport);
    enum status status = ST_OK;
    for (uint32_t i = 0; i < runs && status >= 0; i++)
        status = transport_write(options->transport, place->peer, base + t->runs[i].source_offset,
                                 t->runs[i].bytes, t->runs[i].target_offset);
    return status;
}

void kv_targets_flush(struct kv_targets *t, uint32_t target, uint32_t path, uint64_t cookie)
{
    const struct target *entry = &t->targets[target];
    struct transport_peer *peers[LIMIT_STAGES];
    struct flush flush = {.cookie = cookie, .target = target};
    for (uint32_t i = 0; i < entry->count; i++)
        if ((entry->places[i].stage.paths >> path & 1) != 0)
            peers[flush.left++] = entry->places[i].peer;
    assert(entry->up && flush.left > 0 && t->flush_count < t->flush_capacity);
    t->flushes[t->flush_count++] = flush;
    for (uint32_t i = 0; i < flush.left; i++)
        transport_flush(t->options.transport, peers[i], cookie);
}

void kv_targets_flushed(struct kv_targets *t, const struct transport_peer *peer, uint64_t cookie,
                        enum status status)
{
    (void)peer; /* each place of a target reports a cookie once */
    for (uint32_t i = 0; i < t->flush_count; i++) {
        struct flush *flush = &t->flushes[i];
        if (flush->cookie != cookie)
            continue;
        if (status != ST_OK)
            flush->status = status;
        if (--flush->left > 0)
            return;
        status = flush->status;
        *flush = t->flushes[--t->flush_count];
        t->options.flushed(t->options.self, cookie, status);
        return;
    }
}

void kv_targets_peer_up(struct kv_targets *t, struct transport_peer *peer)
{
    struct place *place = transport_peer_user(peer);
    const struct target *entry = &t->targets[place->target];
    const char *name = transport_peer_identity(peer)->name;
    size_t length = strlen(entry->name);
    char text[256];
    /* The machine itself, or a stage of it: "t0", "t0/1". */
    if (strncmp(name, entry->name, length) != 0 || (name[length] != 0 && name[length] != '/')) {
        snprintf(text, sizeof(text), "%.100s is machine \"%s\", want \"%s\"", place->stage.address,
                 name, entry->name);
        fail(t, place->target, text);
        return;
    }
    place->up = true;
    look(t, place->target);
}

void kv_targets_peer_down(struct kv_targets *t, struct transport_peer *peer, const char *text)
{
    struct place *place = transport_peer_user(peer);
    char copy[256];
    snprintf(copy, sizeof(copy), "%.255s", text);
    place->peer = NULL;
    fail(t, place->target, copy);
}
