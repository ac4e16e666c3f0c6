/* fabric_link_peer: writes from our device's memory into the memory of a device of another process
 * on this host (CUDA IPC). Our device makes the copies, without UCX and without host memory. See
 * fabric.h.
 *
 * Writes wait in their link and are given to the device in batches: all writes issued before the
 * loop turns to the fabric, up to DEVICE_RUNS_MAX. For example, a layer of a prompt of 2048 tokens
 * whose blocks are scattered is 128 runs: one batch instead of 128 launches.
 *
 * A flush is done when the batches before it are done, which our device reports. The peer need not
 * confirm it. After that, a message may tell the peer that the data is there, because what the peer
 * computes after the message sees the data:
 * - A copy counts as done when the memory that it wrote to has acknowledged the writes. (The event
 *   orders the writes for the whole system, because the host that waits for the event must be able
 *   to rely on it.)
 * - The peer's kernels are launched after the message has arrived, so after the copy. A launch
 *   begins without stale lines in its caches. The cache below them belongs to the memory, so peers'
 *   writes go through it.
 *
 * Late writes: a copy that was given to the device cannot be called back; neither can a put. So:
 * - A side that closes a connection drops the writes that wait and first waits for its copies
 *   (fabric_link_copies_await). When the other side learns of the end, no copy is under way.
 * - A writer that is killed leaves at most UNDER_WAY_BYTES_MAX to its device: some milliseconds of
 *   copying. The same holds for a writer that is stopped or cut off, before it is considered
 *   silent; a writer that continues goes on writing until it reads its socket. Puts have both
 *   problems too, with the same solution: the process that was written to keeps such blocks in
 *   quarantine until the writer says that it has stopped, or for a second after the writer's end of
 *   the connection is closed (ucx_linger.c, token_pool.c), which happens when its copies are done.
 * - The memory of a peer that dies stays allocated until we close it: the driver counts the
 *   processes that have it open. So no other process gets that memory, and our device does not
 *   fail. We close it as soon as the copies to it are done, because the peer's successor may need
 *   the room. */
#include "transport/fabric_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most bytes of one link in the device. Further writes wait in the link, where they can be
 * dropped. */
#define UNDER_WAY_BYTES_MAX ((size_t)64 << 20)

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool fabric_host_read(uint8_t out[FABRIC_HOST_BYTES])
{
    char text[64] = "";
    size_t digits = 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL)
        return false;
    bool good = fgets(text, sizeof(text), file) != NULL;
    fclose(file);
    memset(out, 0, FABRIC_HOST_BYTES);
    for (const char *at = text; good && *at != 0 && *at != '\n'; at++) {
        int digit = digit_of(*at);
        if (*at == '-')
            continue;
        good = digit >= 0 && digits < 2 * (size_t)FABRIC_HOST_BYTES;
        if (good)
            out[digits / 2] = (uint8_t)(out[digits / 2] << 4 | digit);
        digits++;
    }
    good = good && digits == 2 * (size_t)FABRIC_HOST_BYTES;
    if (!good)
        memset(out, 0, FABRIC_HOST_BYTES);
    return good;
}

void fabric_share(struct fabric *fabric)
{
    struct error error = {{0}};
    if (fabric->staging == NULL || fabric->ucx_only)
        return;
    const struct device_memory *device = fabric->staging->device;
    if (device->ops->share == NULL || !fabric->host_known)
        return;
    if (device->ops->share(device->self, fabric->region, fabric->region_bytes, &fabric->handle,
                           &error) != ST_OK) {
        size_t length = strlen(fabric->staged_why);
        fabric->handle.bytes = 0;
        snprintf(fabric->staged_why + length, sizeof(fabric->staged_why) - length, "%s%.60s",
                 length > 0 ? "; not shared: " : "not shared: ", error.text);
        return;
    }
    fabric->address.handle = fabric->handle.data;
    fabric->address.handle_bytes = fabric->handle.bytes;
}

bool fabric_link_import(struct fabric_link *link, const struct fabric_address *peer)
{
    struct fabric *fabric = link->fabric;
    struct device_handle handle = {.bytes = (uint32_t)peer->handle_bytes};
    struct error error = {{0}};
    void *memory;
    if (fabric->handle.bytes == 0 || peer->handle_bytes == 0 ||
        peer->handle_bytes > sizeof(handle.data) ||
        memcmp(peer->host, fabric->address.host, FABRIC_HOST_BYTES) != 0)
        return false;
    memcpy(handle.data, peer->handle, peer->handle_bytes);
    const struct device_memory *device = fabric->staging->device;
    struct fabric_import *import = calloc(1, sizeof(*import));
    enum status status = ST_NO_MEMORY;
    if (import != NULL)
        status = device->ops->open_peer(device->self, &handle, peer->region_bytes, &memory, &error);
    if (status != ST_OK) {
        free(import);
        snprintf(link->indirect_reason, sizeof(link->indirect_reason),
                 "%s cannot open its memory: %.80s", device->name,
                 status == ST_NO_MEMORY ? "out of memory" : error.text);
        return false;
    }
    import->memory = memory;
    import->peer_socket = -1;
    link->import = import;
    link->direct = link->staged = true;
    snprintf(link->way_text, sizeof(link->way_text), "%s ipc",
             device->is_cuda ? "cuda" : device->name);
    return true;
}

/* Gives the waiting writes, up to the next flush, to the device as one copy. Returns false if the
 * link has failed. */
static bool batch_begin(struct fabric_link *link)
{
    static struct device_run runs[DEVICE_RUNS_MAX];
    struct fabric_copy copy = {.link = link};
    struct staged_write *write;
    uint32_t count = 0;
    while (count < DEVICE_RUNS_MAX && copy.bytes < UNDER_WAY_BYTES_MAX &&
           (write = fabric_link_staged_first(link)) != NULL && !write->is_flush) {
        runs[count++] = (struct device_run){
            .from = write->local,
            .to = link->import->memory + write->offset,
            .bytes = write->bytes,
        };
        copy.bytes += write->bytes;
        fabric_link_staged_remove(link);
    }
    enum status status = fabric_staging_copy_runs(
        link->fabric, runs, count, copy, &link->import->last_copy_number, &link->device_failure);
    if (status != ST_OK) {
        link->device_failed = status;
        return false;
    }
    link->copying_bytes += copy.bytes;
    return true;
}

bool fabric_link_peer_pump(struct fabric_link *link)
{
    struct staged_write *write;
    bool did = false;
    while ((write = fabric_link_staged_first(link)) != NULL) {
        if (write->is_flush) {
            struct link_flush *flush = &link->flushes[write->number % link->flush_capacity];
            flush->after_copy = link->import->last_copy_number;
            flush->done = link->copying_bytes == 0;
            fabric_link_staged_remove(link);
        } else if (link->copying_bytes >= UNDER_WAY_BYTES_MAX) {
            return did;
        } else if (!batch_begin(link)) {
            return true;
        }
        did = true;
    }
    return did;
}

void fabric_link_peer_copied(struct fabric_link *link, const struct fabric_copy *copy)
{
    for (uint64_t n = link->flush_first; n < link->flush_first + link->flush_count; n++) {
        struct link_flush *flush = &link->flushes[n % link->flush_capacity];
        if (flush->done)
            continue;
        if (flush->after_copy == 0 || flush->after_copy > copy->number)
            return;
        flush->done = true;
    }
}

void fabric_link_copies_await(struct fabric_link *link)
{
    if (link == NULL || link->import == NULL)
        return;
    link->waiting_count = 0;
    if (link->copying_bytes > 0)
        fabric_staging_settle(link->fabric, &link->copying_bytes);
}

bool fabric_link_import_release(struct fabric_link *link, int peer_socket)
{
    if (link->import == NULL)
        return false;
    struct fabric_staging *staging = link->fabric->staging;
    link->import->peer_socket = peer_socket;
    link->import->next = staging->closing;
    staging->closing = link->import;
    link->import = NULL;
    fabric_imports_reap(link->fabric, false);
    return true;
}

void fabric_imports_reap(struct fabric *fabric, bool all)
{
    struct fabric_staging *staging = fabric->staging;
    const struct fabric_copies *copies = &staging->copies[DEVICE_TO_PEER];
    struct fabric_import **at = &staging->closing;
    while (*at != NULL) {
        struct fabric_import *import = *at;
        if (!all && fabric_copies_oldest(copies) <= import->last_copy_number) {
            at = &import->next;
            continue;
        }
        *at = import->next;
        staging->device->ops->close_peer(staging->device->self, import->memory);
        fabric_writes_end(import->peer_socket);
        free(import);
    }
}
