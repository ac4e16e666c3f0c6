/* fabric: how KV moves: UCX's side of a transport, and copies between devices of one computer. One
 * worker, the region that peers may write, links for writing into peers' regions, and inboxes that
 * account for what peers write into ours. It owns every UCX object. It never calls back: the caller
 * polls after fabric_progress. Connections, frames and time are the caller's (ucx.c). One thread.
 * Included by files of this folder only.
 *
 * A write travels in one of three ways, chosen per link: the first where it can be, of the other
 * two by what UCX has picked:
 * - device to device (fabric_link_peer.c): both regions are devices' of one computer, and ours can
 * open the peer's: a copy on our device, without UCX.
 * - put: straight into the remote memory (shared memory, InfiniBand); ucp_ep_flush tells when it is
 * there.
 * - am: active messages that the receiving fabric copies into its region, for TCP. UCX does not
 * promise their order, so each carries an epoch: the number of flushes issued before it. A flush
 * becomes a mark (epoch, count of its messages) that the caller sends to the peer, whose inbox says
 * when an epoch and all before it have landed.
 *
 * The region may be a device's memory. Where UCX has registered it, puts go straight from and into
 * it; everywhere else its bytes are staged through pinned memory (fabric_staging.c): a write is
 * copied out of the device piece by piece and sent from there, and a message that comes is copied
 * into the device, which is when it counts as landed. */
#ifndef TRANSPORT_FABRIC_H
#define TRANSPORT_FABRIC_H

#include "transport/transport.h"

struct fabric;
struct fabric_link;
struct fabric_inbox;

/* What a region is, for those who write to it. */
enum fabric_memory {
    FABRIC_MEMORY_HOST,
    FABRIC_MEMORY_DEVICE, /* a device's that UCX does not know: by message only */
    FABRIC_MEMORY_CUDA,   /* a device's that UCX has registered */
};

#define FABRIC_HOST_BYTES 16

/* What a peer needs to write to us: goes into the hand-shake. Valid until fabric_close. */
struct fabric_address {
    const void *worker; /* UCX worker address */
    size_t worker_bytes;
    const void *rkey; /* packed */
    size_t rkey_bytes;
    uint64_t region; /* its address in our process */
    enum fabric_memory memory;
    uint64_t region_bytes;
    uint8_t host[FABRIC_HOST_BYTES]; /* this computer, as long as it runs; zeros: not told */
    const void *handle;              /* for devices of this computer to open the region */
    size_t handle_bytes;             /* up to DEVICE_HANDLE_BYTES_MAX; 0: none */
};

struct fabric_mark {
    uint32_t epoch;
    uint32_t count;
};

struct fabric_options {
    uint64_t region_bytes;
    const struct device_memory *device; /* the region's (kept); NULL: the host's */
    uint32_t copy_ms;                   /* a copy of the device's that takes longer has failed */
    bool share;                         /* peers of this computer may open the device's memory */
    const char *ucx_tls;
    const char *ucx_devices;
};

enum status fabric_open(const struct fabric_options *options, struct fabric **out,
                        struct error *error);
void fabric_close(struct fabric *fabric); /* NULL is fine. No link or inbox is used after. */

void *fabric_region(struct fabric *fabric);
const struct fabric_address *fabric_address(const struct fabric *fabric);
void fabric_memory_state(const struct fabric *fabric, struct transport_memory *out);
int fabric_fd(struct fabric *fabric);
/* Another one to wait for, an eventfd that the caller reads: of the region's device; -1: none. */
int fabric_device_fd(struct fabric *fabric);
/* From time to time: copies that take too long. */
void fabric_tick(struct fabric *fabric);
/* Whether something was done; call it until it returns false, then fabric_arm. */
bool fabric_progress(struct fabric *fabric);
/* false: there is more to progress. true: the descriptor will be readable when there is. */
bool fabric_arm(struct fabric *fabric);

/* ---- writing into a peer's region ---- */

/* `token` is the peer's inbox for us. */
enum status fabric_link_open(struct fabric *fabric, const struct fabric_address *peer,
                             uint64_t token, struct fabric_link **out, struct error *error);
/* The link is gone for the caller at once; UCX's part is let go by later progress. NULL is fine. */
void fabric_link_close(struct fabric_link *link);
const char *fabric_link_path(const struct fabric_link *link);
/* Why a peer of this computer with a device is not written device to device; empty: it is, or is
 * none. */
const char *fabric_link_note(const struct fabric_link *link);
/* Before others may hear that the link is gone: what it has given the device is done now, or (a
 * device that does not copy) never is known to; the rest is dropped. NULL is fine. */
void fabric_link_settle(struct fabric_link *link);
/* ST_OK until UCX has reported an error on the link; then a text as well. */
enum status fabric_link_failed(const struct fabric_link *link, struct error *error);

/* Never blocks; errors show in fabric_link_failed. `local` lies in our region. */
void fabric_link_write(struct fabric_link *link, const void *local, size_t bytes,
                       uint64_t remote_offset);
/* True: the caller sends *mark_out to the peer, and calls fabric_link_confirm when the peer's inbox
 * has told that its epoch has landed. */
bool fabric_link_flush(struct fabric_link *link, uint64_t cookie, struct fabric_mark *mark_out);
enum status fabric_link_confirm(struct fabric_link *link,
                                uint32_t epoch); /* ST_INVALID: not expected */
/* Takes the oldest flush, in the order of calls, if it is done (or, with `any`, in any case). */
bool fabric_link_flushed(struct fabric_link *link, bool any, uint64_t *cookie_out);

/* ---- what a peer writes into our region ---- */

enum status fabric_inbox_open(struct fabric *fabric, struct fabric_inbox **out);
void fabric_inbox_close(
    struct fabric_inbox *inbox); /* what still comes for it is dropped. NULL is fine */
/* What has come lands now, or (a device that does not copy) never is known to: after
 * it, and before the next progress, nothing of the inbox lands. */
void fabric_inbox_settle(struct fabric_inbox *inbox);
uint64_t fabric_inbox_token(const struct fabric_inbox *inbox);
enum status fabric_inbox_mark(struct fabric_inbox *inbox, struct fabric_mark mark,
                              struct error *error);
/* Takes the next epoch that has landed whole, if any. */
bool fabric_inbox_landed(struct fabric_inbox *inbox, uint32_t *epoch_out);
/* ST_OK until the peer has written outside of the region or in a wrong epoch. */
enum status fabric_inbox_failed(const struct fabric_inbox *inbox, struct error *error);

#endif
