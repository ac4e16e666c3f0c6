/* machine_targets: KV on its way to other machines. Connects prompt_links (which token machines are
 * connected), kv_targets or the pipeline (which process holds which layers), and the prompt_pool.
 */
#include "machine/state.h"

#include "common/log.h"

void machine_link_report(void *self, const struct message_link *link)
{
    struct machine *m = self;
    struct message message = {.kind = MESSAGE_LINK, .link = *link};
    log_info("link to %s is %s: %s", link->name, link->up ? "up" : "down", link->text);
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        if (m->gateways[i].peer != NULL)
            machine_send(m, m->gateways[i].peer, &message);
}

void machine_link_lost(void *self, struct transport_peer *peer, const char *text)
{
    struct machine *m = self;
    prompt_pool_target_down(m->prompts, peer, text, m->now_us);
}

void machine_target_prepare(void *self, uint32_t target, const struct message_peer *machine,
                            struct transport_peer *peer, const struct message_stages *stages)
{
    struct machine *m = self;
    if (m->pipeline != NULL)
        pipeline_target_set(m->pipeline, target, machine, stages);
    else
        kv_targets_set(m->targets, target, machine->name, peer, stages);
}

void machine_target_drop(void *self, uint32_t target)
{
    struct machine *m = self;
    if (m->pipeline != NULL)
        pipeline_target_drop(m->pipeline, target);
    else
        kv_targets_drop(m->targets, target);
}

void machine_target_link(void *self, uint32_t target, bool up, const char *text)
{
    struct machine *m = self;
    m->events++;
    prompt_links_prepared(m->links, target, up, text, m->now_us);
}

void machine_target_flushed(void *self, uint64_t cookie, enum status status)
{
    struct machine *m = self;
    prompt_pool_flushed(m->prompts, cookie, status, m->now_us);
}

enum status machine_target_write(void *self, uint32_t target, uint32_t path, uint32_t layer,
                                 const kv_block_id *source, const kv_block_id *blocks,
                                 uint32_t first, uint32_t count)
{
    struct machine *m = self;
    return kv_targets_write(m->targets, target, path, layer, source, blocks, first, count);
}

void machine_target_flush(void *self, uint32_t own_path, uint32_t target, uint32_t path,
                          uint64_t cookie, bool asked)
{
    struct machine *m = self;
    if (m->pipeline != NULL)
        pipeline_flush(m->pipeline, own_path, target, path, cookie, asked);
    else
        kv_targets_flush(m->targets, target, path, cookie);
}

/* Sends a writer the addresses of this machine's layers. */
void machine_stages_tell(struct machine *m, struct transport_peer *writer)
{
    const struct message_stage whole = {
        .paths = UINT64_MAX, .last_layer = m->arena.layer_count, .last_head = m->arena.head_total};
    struct message message = {.kind = MESSAGE_STAGES, .stages = {.count = 1, .stages = &whole}};
    if (m->pipeline != NULL)
        pipeline_stages(m->pipeline, &message.stages);
    machine_send(m, writer, &message);
}
