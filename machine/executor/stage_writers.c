/* stage_writers: the machines that write KV into a stage process: their connections, which the head
 * must know (token_pool_writer_up), and the blocks into which each may write. The head says which
 * request awaits KV in which blocks; a write by message is taken only if it agrees. */
#include "machine/executor/stage_state.h"

#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status stage_writers_open(struct stage *s)
{
    s->awaiting = calloc(LIMIT_MACHINE_REQUESTS, sizeof(s->awaiting[0]));
    s->block_awaiting = calloc(s->arena.block_count, sizeof(s->block_awaiting[0]));
    return s->awaiting != NULL && s->block_awaiting != NULL ? ST_OK : ST_NO_MEMORY;
}

void stage_writers_close(struct stage *s)
{
    free(s->writers);
    free(s->awaiting);
    free(s->block_awaiting);
}

/* ---- connections ---- */

static void event_send(struct stage *s, const struct stage_writer_link *link,
                       enum stage_writer_event event, const char *text)
{
    struct stage_message message = {.kind = STAGE_WRITER,
                                    .writer = {.number = link->number, .event = event}};
    memcpy(message.writer.name, link->name, sizeof(message.writer.name));
    snprintf(message.writer.text, sizeof(message.writer.text), "%.255s", text);
    if (s->opened)
        stage_send(s, s->head, &message);
}

static struct stage_writer_link *link_add(struct stage *s)
{
    if (s->writer_count == s->writer_capacity) {
        uint32_t capacity = s->writer_capacity > 0 ? 2 * s->writer_capacity : 64;
        struct stage_writer_link *writers = realloc(s->writers, capacity * sizeof(writers[0]));
        if (writers == NULL)
            return NULL;
        s->writers = writers;
        s->writer_capacity = capacity;
    }
    return &s->writers[s->writer_count++];
}

static struct stage_writer_link *link_find(struct stage *s, uint64_t number)
{
    for (uint32_t i = 0; i < s->writer_count; i++)
        if (s->writers[i].number == number)
            return &s->writers[i];
    return NULL;
}

void stage_writer_up(struct stage *s, struct transport_peer *peer)
{
    struct stage_writer_link *link = link_add(s);
    if (link == NULL) { /* Writes that no record names must not outlive this process. */
        log_error("stage %s: no memory for a writer", s->name);
        s->stopping = true;
        return;
    }
    *link = (struct stage_writer_link){.number = transport_peer_number(peer), .peer = peer};
    snprintf(link->name, sizeof(link->name), "%s", transport_peer_identity(peer)->name);
    event_send(s, link, STAGE_WRITER_UP, "");
}

void stage_writer_down(struct stage *s, struct transport_peer *peer, const char *text)
{
    struct stage_writer_link *link = link_find(s, transport_peer_number(peer));
    bool lingers = transport_writes_await(s->transport, peer);
    if (link == NULL)
        return;
    event_send(s, link, lingers ? STAGE_WRITER_LINGERS : STAGE_WRITER_DOWN, text);
    link->peer = NULL;
    if (!lingers)
        *link = s->writers[--s->writer_count];
}

void stage_writes_ended(struct stage *s, uint64_t peer_number)
{
    struct stage_writer_link *link = link_find(s, peer_number);
    if (link == NULL) { /* A head's. */
        s->heads_lingering -= s->heads_lingering > 0 ? 1 : 0;
        return;
    }
    event_send(s, link, STAGE_WRITER_ENDED, "");
    *link = s->writers[--s->writer_count];
}

void stage_head_writes_await(struct stage *s, struct transport_peer *head)
{
    if (transport_writes_await(s->transport, head))
        s->heads_lingering++;
}

void stage_writers_drop(struct stage *s)
{
    for (uint32_t i = s->writer_count; i-- > 0;) {
        struct transport_peer *peer = s->writers[i].peer;
        if (peer == NULL)
            continue;
        stage_writer_down(s, peer, "the head of this stage is gone");
        transport_disconnect(s->transport, peer);
    }
    memset(s->awaiting, 0, LIMIT_MACHINE_REQUESTS * sizeof(s->awaiting[0]));
    memset(s->block_awaiting, 0, s->arena.block_count * sizeof(s->block_awaiting[0]));
}

void stage_writers_report(struct stage *s)
{
    for (uint32_t i = 0; i < s->writer_count; i++) {
        const struct stage_writer_link *link = &s->writers[i];
        event_send(s, link, STAGE_WRITER_UP, "");
        if (link->peer == NULL)
            event_send(s, link, STAGE_WRITER_LINGERS, "its writes have not ended");
    }
}

/* ---- writes ---- */

enum status stage_await_take(struct stage *s, const struct stage_await *await, struct error *error)
{
    for (uint32_t i = 0; i < await->block_count; i++)
        if (await->blocks[i] >= s->arena.block_count)
            return error_set(error, ST_INVALID, "AWAIT: block %u, there are %u", await->blocks[i],
                             s->arena.block_count);
    struct stage_awaiting *awaiting = &s->awaiting[await->table];
    *awaiting = (struct stage_awaiting){.id = 0};
    if (await->ends == 0) {
        awaiting->id = await->request;
        awaiting->generation = await->generation;
        memcpy(awaiting->writer, await->writer, sizeof(awaiting->writer));
    }
    const uint16_t owner = await->ends == 0 ? (uint16_t)(1 + await->table) : 0;
    for (uint32_t i = 0; i < await->block_count; i++)
        s->block_awaiting[await->blocks[i]] = owner;
    if (await->ends != 0)
        return ST_OK;
    const struct stage_message answer = {.kind = STAGE_AWAITED,
                                         .awaited = {.cookie = await->cookie}};
    stage_send(s, s->head, &answer);
    return ST_OK;
}

/* True if the blocks await KV of the request, which this peer writes. */
static bool kv_wanted(const struct stage *s, const struct transport_peer *peer,
                      const struct transport_request *request, uint64_t first, uint64_t count)
{
    if (count == 0 || first >= s->arena.block_count || count > s->arena.block_count - first)
        return false;
    const uint16_t owner = s->block_awaiting[first];
    for (uint64_t i = first; i < first + count; i++)
        if (s->block_awaiting[i] != owner || owner == 0)
            return false;
    const struct stage_awaiting *awaiting = &s->awaiting[owner - 1];
    const char *name = transport_peer_identity(peer)->name;
    size_t length = strcspn(name, "/");
    return request->id != 0 && awaiting->id == request->id &&
           awaiting->generation == request->generation && strlen(awaiting->writer) == length &&
           memcmp(awaiting->writer, name, length) == 0;
}

bool stage_write_wanted(const struct stage *s, const struct transport_peer *peer,
                        const struct transport_request *request, uint64_t offset, uint64_t bytes)
{
    const uint64_t kv_bytes = kv_arena_bytes(&s->arena);
    uint64_t first, count;
    bool wanted;
    if (peer_kind_of(peer) == PEER_STAGE_PREVIOUS)
        wanted = request->id == 0 && offset >= kv_bytes;
    else if (peer == s->head)
        wanted = request->id == 0 && kv_arena_blocks(&s->arena, offset, bytes, &first, &count);
    else
        wanted = kv_arena_blocks(&s->arena, offset, bytes, &first, &count) &&
                 kv_wanted(s, peer, request, first, count);
    if (!wanted)
        log_debug("drops an unwanted write of %llu bytes of request %llx.%u",
                  (unsigned long long)bytes, (unsigned long long)request->id, request->generation);
    return wanted;
}
