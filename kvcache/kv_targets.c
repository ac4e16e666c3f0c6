/* kv_targets: a target has one entry for each of its processes that holds some of our layers and
 * heads. Each of our heads of each of our layers must be in exactly one process of each path,
 * unless ranks have copies. This is checked before any connection is made, so that no KV is lost or
 * written twice. If a rank of ours has no copy to write, it still connects to one process of each
 * stage, so that it has a connection to flush. */
#include "kvcache/kv_targets.h"

#include "transport/peer_user.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One process of a target. */
struct target_process {
    struct peer_user user; /* The `user` of its connection. */
    uint32_t target;
    struct message_stage stage;
    struct kv_arena arena; /* Layout of its region, set when the whole target is up. */
    struct transport_peer *peer;
    bool ours;   /* kv_targets made the connection; false: it is the caller's connection. */
    bool writes; /* This process writes its KV; false: another rank of ours does. */
    bool up;     /* Connected, and its name is right. */
};

struct target {
    char name[LIMIT_NAME_BYTES];
    uint64_t paths;
    uint32_t count; /* 0 = unknown target. */
    struct target_process *processes;
    bool up;
};

/* A requested flush. It is reported when all processes of its path have reported theirs. */
struct flush {
    uint64_t cookie;
    uint32_t target;
    uint32_t left; /* Number of processes that have not reported yet. */
    enum status status;
};

struct kv_targets {
    struct kv_targets_options options;
    struct kv_run *runs; /* Room for context_spans runs. */
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
    t->runs = calloc(options->context_spans, sizeof(t->runs[0]));
    t->flush_capacity = 2 * LIMIT_MACHINE_REQUESTS; /* Each request has at most two. */
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
        if (entry->processes[i].ours && entry->processes[i].peer != NULL)
            transport_disconnect(t->options.transport, entry->processes[i].peer);
    free(entry->processes);
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

static void target_fail(struct kv_targets *t, uint32_t target, const char *text)
{
    kv_targets_drop(t, target);
    t->options.link_changed(t->options.self, target, false, text);
}

static bool has_layer(const struct message_stage *stage, uint32_t path, uint32_t layer)
{
    return (stage->paths >> path & 1) != 0 && layer >= stage->first_layer &&
           layer < stage->end_layer;
}

static bool overlaps(const struct kv_targets *t, const struct message_stage *stage)
{
    const struct kv_arena *arena = &t->options.arena;
    return stage->paths != 0 && stage->first_layer < arena->first_layer + arena->layer_count &&
           stage->end_layer > arena->first_layer &&
           stage->first_head < arena->head_first + arena->head_count &&
           stage->end_head > arena->head_first;
}

/* Numbers the ranks of the target's stages that hold copies: the processes with the same layers and
 * paths as process `i`. Stores how many they are, and returns the number of process `i`. */
static uint32_t copy_number(const struct message_stages *stages, uint32_t i, uint32_t *copies_out)
{
    const struct message_stage *stage = &stages->stages[i];
    uint32_t number = 0, copies = 0;
    for (uint32_t j = 0; j < stages->count; j++) {
        const struct message_stage *other = &stages->stages[j];
        if (other->paths != stage->paths || other->first_layer != stage->first_layer ||
            other->end_layer != stage->end_layer)
            continue;
        number += j < i ? 1 : 0;
        copies++;
    }
    *copies_out = copies;
    return number;
}

/* Returns true if we connect to process `i` of the target. *writes_out: we write to it. */
static bool process_wanted(const struct kv_targets *t, const struct message_stages *stages,
                           uint32_t i, bool *writes_out)
{
    const struct kv_arena *own = &t->options.arena;
    *writes_out = true;
    if (!overlaps(t, &stages->stages[i]))
        return false;
    if (own->copy_count <= 1)
        return true;
    uint32_t copies;
    const uint32_t number = copy_number(stages, i, &copies);
    *writes_out = number % own->copy_count == own->copy_index;
    return *writes_out || (own->copy_index >= copies && number == own->copy_index % copies);
}

/* Checks that each of our heads of `layer` is in exactly one process of `path`, or in any number of
 * copies. */
static enum status layer_check(const struct kv_arena *arena, const struct message_stages *stages,
                               uint32_t path, uint32_t layer, struct error *error)
{
    for (uint32_t head = arena->head_first; head < arena->head_first + arena->head_count; head++) {
        uint32_t found = 0;
        for (uint32_t i = 0; i < stages->count; i++) {
            const struct message_stage *stage = &stages->stages[i];
            if (has_layer(stage, path, layer) && head >= stage->first_head &&
                head < stage->end_head)
                found++;
        }
        if (found != 1 && (found == 0 || arena->copy_count == 0))
            return error_set(error, ST_MISMATCH, "KV head %u of layer %u on path %u is at %s", head,
                             layer, path, found == 0 ? "none of them" : "more than one of them");
    }
    return ST_OK;
}

static enum status stages_check(const struct kv_arena *arena, const struct message_stages *stages,
                                uint64_t *paths_out, struct error *error)
{
    uint64_t paths = 0;
    enum status status = ST_OK;
    for (uint32_t i = 0; i < stages->count; i++) {
        paths |= stages->stages[i].paths;
        if (stages->stages[i].end_head > arena->head_total)
            return error_set(error, ST_MISMATCH, "KV head %u, the model has %u",
                             stages->stages[i].end_head - 1, arena->head_total);
    }
    for (uint32_t path = 0; path < LIMIT_STAGE_PATHS && status == ST_OK; path++)
        for (uint32_t i = 0; i < arena->layer_count && status == ST_OK && (paths >> path & 1); i++)
            status = layer_check(arena, stages, path, arena->first_layer + i, error);
    *paths_out = paths;
    return status;
}

/* Sets the layout of the process's region. Returns false if the region is too small for what the
 * process claims to hold. */
static bool process_arena_set(const struct kv_targets *t, struct target_process *process)
{
    const struct transport_region_info *region = transport_peer_region(process->peer);
    const struct message_stage *stage = &process->stage;
    const struct kv_arena *own = &t->options.arena;
    struct kv_arena *arena = &process->arena;
    *arena = (struct kv_arena){
        .first_layer = stage->first_layer,
        .layer_count = stage->end_layer - stage->first_layer,
        .head_first = stage->first_head,
        .head_count = stage->end_head - stage->first_head,
        .groups = own->groups, /* They follow from the model, as block_tokens does. */
        .head_total = own->head_total,
        .block_count = region->block_count,
        /* Equal on both sides: the hand-shake has compared it. */
        .block_tokens = own->block_tokens,
        .block_bytes = (stage->end_head - stage->first_head) * kv_arena_head_bytes(own),
        .layer_stride_bytes = region->layer_stride_bytes,
    };
    if (arena->block_count == 0 || arena->block_count > region->bytes / arena->block_bytes)
        return false;
    uint64_t row_bytes = arena->block_count * arena->block_bytes;
    uint32_t others = kv_arena_rows(arena) - 1;
    return others == 0 || (region->layer_stride_bytes >= row_bytes &&
                           region->layer_stride_bytes <= (region->bytes - row_bytes) / others);
}

/* If all processes are up: checks their regions and reports the target as up. */
static void target_up_check(struct kv_targets *t, uint32_t target)
{
    struct target *entry = &t->targets[target];
    char text[256];
    for (uint32_t i = 0; i < entry->count; i++)
        if (!entry->processes[i].up)
            return;
    for (uint32_t i = 0; i < entry->count; i++) {
        struct target_process *process = &entry->processes[i];
        if (process_arena_set(t, process))
            continue;
        snprintf(text, sizeof(text),
                 "%s has a region of %llu bytes, too small for layers %u to %u, KV heads %u to %u",
                 transport_peer_identity(process->peer)->name,
                 (unsigned long long)transport_peer_region(process->peer)->bytes,
                 process->stage.first_layer, process->stage.end_layer - 1,
                 process->stage.first_head, process->stage.end_head - 1);
        target_fail(t, target, text);
        return;
    }
    entry->up = true;
    snprintf(text, sizeof(text), "%s", transport_peer_path(entry->processes[0].peer));
    t->options.link_changed(t->options.self, target, true, text);
}

/* Returns false if the connection has failed; the failure is then already reported. */
static bool process_connect(struct kv_targets *t, struct target_process *process,
                            struct transport_peer *peer)
{
    struct error error;
    if (process->stage.address[0] == 0 && peer != NULL) {
        process->peer = peer;
        process->up = true;
        return true;
    }
    process->ours = true;
    if (transport_connect(t->options.transport, process->stage.address, &process->user,
                          &process->peer, &error) >= 0)
        return true;
    process->peer = NULL;
    target_fail(t, process->target, error.text);
    return false;
}

void kv_targets_set(struct kv_targets *t, uint32_t target, const char *name,
                    struct transport_peer *peer, const struct message_stages *stages)
{
    char text[256];
    struct error error;
    assert(target < LIMIT_MACHINES);
    kv_targets_drop(t, target);
    struct target *entry = &t->targets[target];
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    if (stages_check(&t->options.arena, stages, &entry->paths, &error) != ST_OK) {
        snprintf(text, sizeof(text), "the processes of %s do not fit ours: %.180s", name,
                 error.text);
        target_fail(t, target, text);
        return;
    }
    entry->processes = calloc(stages->count, sizeof(entry->processes[0]));
    if (entry->processes == NULL) {
        target_fail(t, target, "out of memory");
        return;
    }
    for (uint32_t i = 0; i < stages->count; i++) {
        bool writes;
        if (process_wanted(t, stages, i, &writes))
            entry->processes[entry->count++] = (struct target_process){
                .target = target, .stage = stages->stages[i], .writes = writes};
    }
    for (uint32_t i = 0; i < entry->count; i++)
        entry->processes[i].user = (struct peer_user){PEER_TARGET, &entry->processes[i]};
    if (entry->count == 0) {
        target_fail(t, target, "it has no path");
        return;
    }
    for (uint32_t i = 0; i < entry->count; i++)
        if (!process_connect(t, &entry->processes[i], peer))
            return;
    target_up_check(t, target);
}

bool kv_targets_up(const struct kv_targets *t, uint32_t target, uint32_t path)
{
    return t->targets[target].up && (t->targets[target].paths >> path & 1) != 0;
}

/* Writes the part of the push's layer that the process holds. */
static enum status process_write(struct kv_targets *t, const struct target_process *process,
                                 const struct kv_push *push)
{
    struct transport *transport = t->options.transport;
    const struct layer_groups *groups = &t->options.arena.groups;
    const uint32_t group = layer_groups_group_of(groups, push->layer);
    const bool windowed = layer_groups_windowed(groups, group);
    const uint32_t end = push->first + push->count;
    const uint32_t group_first = windowed ? push->window_first : push->full_first;
    const uint32_t first = group_first > push->first ? group_first : push->first;
    const kv_block_id *source = push->source_blocks + (size_t)group * push->source_stride;
    const kv_block_id *target = push->target_blocks + (size_t)group * push->target_stride;
    /* The block exists on the machine, but not in this process. */
    for (uint32_t i = first; i < end; i++)
        if (target[i] >= process->arena.block_count)
            return ST_INVALID;
    if (first >= end)
        return ST_OK;
    uint32_t runs = kv_transfer_plan(&t->options.arena, source, &process->arena, target,
                                     push->layer, first, end - first, t->runs);
    const uint8_t *base = transport_region(transport);
    enum status status = ST_OK;
    for (uint32_t i = 0; i < runs && status >= 0; i++)
        status = transport_write_for(transport, process->peer, base + t->runs[i].source_offset,
                                     t->runs[i].bytes, t->runs[i].target_offset, &push->request);
    return status;
}

static enum status layer_write(struct kv_targets *t, const struct kv_push *push)
{
    const struct target *entry = &t->targets[push->target];
    enum status status = ST_OK;
    for (uint32_t i = 0; i < entry->count && status >= 0; i++)
        if (entry->processes[i].writes &&
            has_layer(&entry->processes[i].stage, push->path, push->layer))
            status = process_write(t, &entry->processes[i], push);
    return status;
}

enum status kv_targets_push(struct kv_targets *t, struct kv_push *push, uint32_t layer_end)
{
    enum status status = ST_OK;
    assert(push->count <= t->options.context_spans); /* There are at most `count` runs. */
    if (!kv_targets_up(t, push->target, push->path))
        return ST_UNREACHABLE;
    while (push->layer < layer_end && status >= 0) {
        status = layer_write(t, push);
        push->layer += status >= 0 ? 1 : 0;
    }
    return status;
}

void kv_targets_flush(struct kv_targets *t, uint32_t target, uint32_t path, uint64_t cookie)
{
    const struct target *entry = &t->targets[target];
    struct transport_peer *peers[LIMIT_STAGE_PROCESSES];
    struct flush flush = {.cookie = cookie, .target = target};
    assert(kv_targets_up(t, target, path) && t->flush_count < t->flush_capacity);
    for (uint32_t i = 0; i < entry->count; i++)
        if ((entry->processes[i].stage.paths >> path & 1) != 0)
            peers[flush.left++] = entry->processes[i].peer;
    t->flushes[t->flush_count++] = flush;
    for (uint32_t i = 0; i < flush.left; i++)
        transport_flush(t->options.transport, peers[i], cookie);
}

void kv_targets_flushed(struct kv_targets *t, const struct transport_peer *peer, uint64_t cookie,
                        enum status status)
{
    (void)peer; /* Each process of a target reports a cookie once. */
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
    struct target_process *process = peer_object_of(peer);
    const struct target *entry = &t->targets[process->target];
    const char *name = transport_peer_identity(peer)->name;
    size_t length = strlen(entry->name);
    char text[256];
    /* The machine itself, or a stage process of it: "t0" or "t0/1". */
    if (strncmp(name, entry->name, length) != 0 || (name[length] != 0 && name[length] != '/')) {
        snprintf(text, sizeof(text), "%.100s is machine \"%s\", want \"%s\"",
                 process->stage.address, name, entry->name);
        target_fail(t, process->target, text);
        return;
    }
    process->up = true;
    target_up_check(t, process->target);
}

void kv_targets_peer_down(struct kv_targets *t, struct transport_peer *peer, const char *text)
{
    struct target_process *process = peer_object_of(peer);
    char copy[256];
    snprintf(copy, sizeof(copy), "%.255s", text);
    process->peer = NULL;
    target_fail(t, process->target, copy);
}
