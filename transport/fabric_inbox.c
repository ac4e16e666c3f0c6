/* fabric_inbox: what peers write into our region by active messages and over data connections. See
 * fabric.h.
 *
 * Each inbox has a window of epochs, oldest first. For each epoch, the window has the number of
 * writes that have landed and, after the epoch's mark has arrived, the number of writes to expect.
 * An epoch is reported when the epoch and all earlier epochs are complete. A write with an unknown
 * token belongs to a connection that has ended, and is dropped. */
#include "transport/fabric_internal.h"

#include "common/secret.h"

#include <stdlib.h>
#include <string.h>

#define EXPECT_UNKNOWN UINT32_MAX

struct inbox_epoch {
    uint32_t landed;
    uint32_t expected;
};

struct fabric_inbox {
    struct fabric *fabric;
    struct fabric_inbox *next;
    const struct transport_peer *peer; /* See fabric_inbox_open. */
    uint64_t token;
    struct inbox_epoch *epochs; /* Ring: epoch e is at e % capacity. */
    uint32_t first, count, capacity;
    size_t copying;     /* Messages being copied into the device. */
    bool probed;        /* A probe has arrived that was not reported yet. */
    enum status failed; /* ST_OK = not failed. */
    struct error failure;
};

void fabric_inbox_fail(struct fabric_inbox *inbox, enum status why, const char *text)
{
    if (inbox->failed == ST_OK)
        inbox->failed = error_set(&inbox->failure, why, "%s", text);
}

/* Returns the entry of an epoch and extends the window up to it. Returns NULL if the epoch has
 * passed or is too far ahead, or if memory is short; the latter fails the inbox. */
static struct inbox_epoch *inbox_epoch(struct fabric_inbox *inbox, uint32_t epoch)
{
    uint32_t place = epoch - inbox->first;
    if (place >= FABRIC_EPOCHS_MAX)
        return NULL;
    if (place >= inbox->capacity) {
        uint32_t capacity = inbox->capacity * 2;
        while (capacity <= place)
            capacity *= 2;
        struct inbox_epoch *epochs = calloc(capacity, sizeof(*epochs));
        if (epochs == NULL) {
            fabric_inbox_fail(inbox, ST_NO_MEMORY, "out of memory for the flushes of a peer");
            return NULL;
        }
        for (uint32_t i = 0; i < inbox->count; i++)
            epochs[(inbox->first + i) % capacity] =
                inbox->epochs[(inbox->first + i) % inbox->capacity];
        free(inbox->epochs);
        inbox->epochs = epochs;
        inbox->capacity = capacity;
    }
    for (; inbox->count <= place; inbox->count++)
        inbox->epochs[(inbox->first + inbox->count) % inbox->capacity] =
            (struct inbox_epoch){.expected = EXPECT_UNKNOWN};
    return &inbox->epochs[epoch % inbox->capacity];
}

static void inbox_count(struct fabric_inbox *inbox, uint32_t epoch)
{
    struct inbox_epoch *entry = inbox_epoch(inbox, epoch);
    if (entry == NULL)
        fabric_inbox_fail(inbox, ST_INVALID, "a write of an epoch that has passed");
    else
        entry->landed++;
}

void fabric_inbox_copied(struct fabric_inbox *inbox, const struct fabric_copy *copy)
{
    inbox->copying--;
    if (copy != NULL)
        inbox_count(inbox, copy->epoch);
}

/* Copies a message into the device's region through a slot, because UCX's buffer is valid only
 * during the call. */
static void inbox_stage(struct fabric_inbox *inbox, const struct fabric_piece *piece)
{
    const size_t bytes = piece->bytes;
    struct fabric *fabric = inbox->fabric;
    struct fabric_staging *staging = fabric->staging;
    struct error error;
    struct fabric_copy copy = {.bytes = bytes, .epoch = piece->epoch, .inbox = inbox};
    /* The inbox's peer goes down, perhaps because the device makes no more copies. */
    if (inbox->failed != ST_OK)
        return;
    if (bytes > FABRIC_PIECE_BYTES_MAX) {
        fabric_inbox_fail(inbox, ST_INVALID, "a write larger than a piece");
        return;
    }
    copy.memory = fabric_slot_memory(fabric, &staging->landing, bytes);
    copy.slot = staging->landing;
    if (copy.memory == NULL) {
        fabric_inbox_fail(inbox, ST_NO_MEMORY, "no pinned memory for received KV");
        return;
    }
    memcpy(copy.memory, piece->memory, bytes);
    if (fabric_staging_copy(fabric, HOST_TO_DEVICE, (uint8_t *)fabric->region + piece->offset, copy,
                            &error) != ST_OK) {
        fabric_inbox_fail(inbox, ST_IO, error.text);
        return;
    }
    staging->landing_bytes += bytes;
    inbox->copying++;
}

static struct fabric_inbox *inbox_find(struct fabric *fabric, uint64_t token)
{
    for (struct fabric_inbox *inbox = fabric->inboxes; inbox != NULL; inbox = inbox->next)
        if (inbox->token == token)
            return inbox;
    return NULL;
}

static bool wanted(const struct fabric_inbox *inbox, const struct fabric_piece *piece)
{
    const struct fabric *fabric = inbox->fabric;
    return fabric->write_wanted == NULL ||
           fabric->write_wanted(fabric->self, inbox->peer, &piece->request, piece->offset,
                                piece->bytes);
}

void fabric_inbox_write(struct fabric_inbox *inbox, const struct fabric_piece *piece)
{
    struct fabric *fabric = inbox->fabric;
    if (piece->bytes > fabric->region_bytes ||
        piece->offset > fabric->region_bytes - piece->bytes) {
        fabric_inbox_fail(inbox, ST_INVALID, "a write outside of the region");
        return;
    }
    bool drop = piece->bytes == 0 || !wanted(inbox, piece);
    if (!drop && fabric->staging != NULL) {
        inbox_stage(inbox, piece);
        return;
    }
    if (!drop)
        memcpy((uint8_t *)fabric->region + piece->offset, piece->memory, piece->bytes);
    inbox_count(inbox, piece->epoch);
}

bool fabric_inboxes_full(const struct fabric *fabric)
{
    return fabric->staging != NULL && fabric_staging_full(fabric);
}

static ucs_status_t on_write(void *arg, const void *raw_header, size_t header_length, void *data,
                             size_t length, const ucp_am_recv_param_t *param)
{
    struct fabric *fabric = arg;
    struct fabric_write_header header;
    if (header_length != sizeof(header))
        return UCS_OK;
    memcpy(&header, raw_header, sizeof(header)); /* The header may be unaligned. */
    struct fabric_inbox *inbox = inbox_find(fabric, header.token);
    if (inbox == NULL)
        return UCS_OK;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        fabric_inbox_fail(inbox, ST_INVALID, "a write by rendezvous");
        return UCS_OK;
    }
    const struct fabric_piece piece = {
        .request = {.id = header.request_id, .generation = header.request_generation},
        .offset = header.offset,
        .epoch = header.epoch,
        .memory = data,
        .bytes = length,
    };
    fabric_inbox_write(inbox, &piece);
    return UCS_OK;
}

static ucs_status_t on_probe(void *arg, const void *header, size_t header_length, void *data,
                             size_t length, const ucp_am_recv_param_t *param)
{
    uint64_t token;
    (void)data, (void)length, (void)param;
    if (header_length != sizeof(token))
        return UCS_OK;
    memcpy(&token, header, sizeof(token));
    struct fabric_inbox *inbox = inbox_find(arg, token);
    if (inbox != NULL)
        inbox->probed = true;
    return UCS_OK;
}

bool fabric_inbox_probed(struct fabric_inbox *inbox)
{
    bool probed = inbox->probed;
    inbox->probed = false;
    return probed;
}

static bool handler_set(struct fabric *fabric, unsigned id, ucp_am_recv_callback_t call)
{
    const ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = id,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = call,
        .arg = fabric,
    };
    return ucp_worker_set_am_recv_handler(fabric->worker, &param) == UCS_OK;
}

enum status fabric_inboxes_start(struct fabric *fabric)
{
    bool good = handler_set(fabric, FABRIC_AM_WRITE, on_write) &&
                handler_set(fabric, FABRIC_AM_PROBE, on_probe);
    return good ? ST_OK : ST_IO;
}

enum status fabric_inbox_open(struct fabric *fabric, const struct transport_peer *peer,
                              struct fabric_inbox **out)
{
    struct fabric_inbox *inbox = calloc(1, sizeof(*inbox));
    if (inbox == NULL)
        return ST_NO_MEMORY;
    inbox->capacity = 16;
    inbox->epochs = calloc(inbox->capacity, sizeof(*inbox->epochs));
    if (inbox->epochs == NULL) {
        free(inbox);
        return ST_NO_MEMORY;
    }
    inbox->fabric = fabric;
    inbox->peer = peer;
    /* Random, so that a peer cannot guess another peer's token. */
    secret_random(&inbox->token, sizeof(inbox->token));
    inbox->next = fabric->inboxes;
    fabric->inboxes = inbox;
    *out = inbox;
    return ST_OK;
}

void fabric_inbox_copies_await(struct fabric_inbox *inbox)
{
    if (inbox == NULL)
        return;
    if (inbox->copying > 0)
        fabric_staging_settle(inbox->fabric, &inbox->copying);
    fabric_staging_forget(inbox->fabric, NULL, inbox);
    inbox->copying = 0;
}

void fabric_inbox_close(struct fabric_inbox *inbox)
{
    if (inbox == NULL)
        return;
    fabric_inbox_copies_await(inbox);
    struct fabric_inbox **at = &inbox->fabric->inboxes;
    while (*at != inbox)
        at = &(*at)->next;
    *at = inbox->next;
    free(inbox->epochs);
    free(inbox);
}

uint64_t fabric_inbox_token(const struct fabric_inbox *inbox)
{
    return inbox->token;
}

enum status fabric_inbox_epoch_mark(struct fabric_inbox *inbox, struct fabric_mark mark,
                                    struct error *error)
{
    struct inbox_epoch *entry = inbox_epoch(inbox, mark.epoch);
    if (entry == NULL && inbox->failed != ST_OK)
        return fabric_inbox_failed(inbox, error);
    if (entry == NULL || entry->expected != EXPECT_UNKNOWN || mark.count == EXPECT_UNKNOWN)
        return error_set(error, ST_INVALID, "a flush of epoch %u: want %u or later", mark.epoch,
                         inbox->first);
    entry->expected = mark.count;
    return ST_OK;
}

bool fabric_inbox_landed(struct fabric_inbox *inbox, uint32_t *epoch_out)
{
    const struct inbox_epoch *entry = &inbox->epochs[inbox->first % inbox->capacity];
    if (inbox->count == 0 || entry->expected != entry->landed)
        return false;
    *epoch_out = inbox->first;
    inbox->first++;
    inbox->count--;
    return true;
}

enum status fabric_inbox_failed(const struct fabric_inbox *inbox, struct error *error)
{
    if (inbox->failed == ST_OK)
        return ST_OK;
    return error_set(error, inbox->failed, "%s", inbox->failure.text);
}
