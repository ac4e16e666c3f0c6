/* machine_targets: KV on its way to and from other machines. Connects prompt_links (which token
 * machines are connected), the executor (which of their processes holds which layers), and the
 * request tables. */
#include "machine/state.h"

#include "common/log.h"

#include <string.h>

void machine_link_send(void *self, const struct message_link *link)
{
    struct machine *m = self;
    struct message message = {.kind = MESSAGE_LINK, .link = *link};
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        if (m->gateways[i].peer != NULL)
            machine_send(m, m->gateways[i].peer, &message);
}

void machine_link_report(void *self, const struct message_link *link)
{
    log_info("link to %s is %s: %s", link->name, link->up ? "up" : "down", link->text);
    machine_link_send(self, link);
}

void machine_link_measured(void *self, const struct message_link *link)
{
    struct machine *m = self;
    const char *why;
    uint32_t target;
    if (prompt_links_find(m->links, link->name, &target, &why) != NULL) {
        const struct sched_layerwise speeds = prompt_pool_layerwise(m->prompt_pool, target);
        log_debug("link to %s: %llu bytes/s after %u us, mean error %u %%; layer by layer pays for "
                  "prompts of %u tokens or more",
                  link->name, (unsigned long long)link->bytes_per_s, link->latency_us,
                  link->error_percent, sched_layerwise_tokens(&speeds));
    }
    machine_link_send(m, link);
}

void machine_link_lost(void *self, struct transport_peer *peer, const char *text)
{
    struct machine *m = self;
    prompt_pool_target_down(m->prompt_pool, peer, text, m->now_us);
}

void machine_target_prepare(void *self, uint32_t target, const struct message_peer *machine,
                            struct transport_peer *peer, const struct message_stages *stages)
{
    struct machine *m = self;
    m->executor->ops->target_set(m->executor, target, machine, peer, stages);
}

void machine_target_drop(void *self, uint32_t target)
{
    struct machine *m = self;
    m->executor->ops->target_drop(m->executor, target);
}

void machine_target_link(void *self, uint32_t target, bool up, const char *text)
{
    struct machine *m = self;
    m->event_count++;
    prompt_links_target_prepared(m->links, target, up, text, m->now_us);
}

void machine_target_flushed(void *self, uint64_t cookie, enum status status)
{
    struct machine *m = self;
    m->event_count++;
    m->stats_changed = true;
    prompt_pool_flushed(m->prompt_pool, cookie, status, m->now_us);
}

void machine_target_writer(void *self, uint32_t stage, const struct stage_writer *writer)
{
    struct machine *m = self;
    const struct token_link link = {.process = 1 + stage, .number = writer->number};
    m->event_count++;
    m->stats_changed = true;
    switch ((enum stage_writer_event)writer->event) {
    case STAGE_WRITER_UP:
        token_pool_writer_up(m->token_pool, link, writer->name, NULL);
        return;
    case STAGE_WRITER_DOWN:
    case STAGE_WRITER_LINGERS:
        token_pool_writer_down(m->token_pool, link, writer->event == STAGE_WRITER_LINGERS,
                               writer->text, m->now_us);
        return;
    case STAGE_WRITER_ENDED:
    case STAGE_WRITER_EVENTS:
        token_pool_writes_ended(m->token_pool, link, m->now_us);
        return;
    }
}

void machine_target_await(void *self, const struct token_await *await, bool has_ended)
{
    struct machine *m = self;
    struct stage_await message = {
        .cookie = await->owner,
        .request = await->request.id,
        .generation = await->request.generation,
        .table = (uint32_t)await->slot,
        .ends = has_ended,
        .block_count = await->block_count,
        .blocks = await->blocks,
    };
    memcpy(message.writer, await->writer, sizeof(message.writer));
    m->sends_queued = true;
    m->executor->ops->kv_await(m->executor, await->path, &message);
}

void machine_target_awaited(void *self, uint64_t cookie)
{
    struct machine *m = self;
    m->event_count++;
    token_pool_await_known(m->token_pool, cookie);
}

enum status machine_target_push(void *self, struct kv_push *push, uint32_t layer_end)
{
    struct machine *m = self;
    return m->executor->ops->target_push(m->executor, push, layer_end);
}

enum status machine_target_copy(void *self, uint32_t own_path, const struct kv_push *push,
                                uint64_t cookie)
{
    struct machine *m = self;
    return m->executor->ops->target_copy(m->executor, own_path, push, cookie);
}

void machine_target_flush(void *self, uint32_t own_path, uint32_t target, uint32_t path,
                          uint64_t cookie, bool requested)
{
    struct machine *m = self;
    m->executor->ops->target_flush(m->executor, own_path, target, path, cookie, requested);
}

void machine_layout_send(struct machine *m, struct transport_peer *writer)
{
    struct message message = {.kind = MESSAGE_STAGES};
    m->executor->ops->layout(m->executor, &message.stages);
    machine_send(m, writer, &message);
}
