/* push_meter: measures one link while KV is written to another machine. The owner reports each
 * write, each flush, and the end of each flush.
 *
 * Between layers a link is idle, and the link also carries the writes of other requests. So the
 * time from a request's first write to the end of its flush does not show the link's speed. But
 * each write i before a flush gives a bound: the bytes from write i to the flush have arrived when
 * the flush ends, so
 *
 *     end of the flush - begin of write i >= latency + bytes from write i on / bandwidth.
 *
 * For most writes, the left side is longer, because the link was idle for some time between write i
 * and the end of the flush. For the first write after which the link was never idle, the two sides
 * are about equal. This write gives the highest bandwidth of all writes. Its bytes and its time are
 * one transfer of link_speed.h.
 *
 * The machine's event loop thread owns each meter (prompt_links.c). A meter sends nothing, reads no
 * clock, and knows no requests. */
#ifndef PROMPT_POOL_PUSH_METER_H
#define PROMPT_POOL_PUSH_METER_H

#include "scheduler/link_speed.h"

#include <stdbool.h>

/* Most writes that are remembered. If everything that was written has arrived, a new write forgets
 * all earlier writes. If the memory is full, a new write first forgets every second write. */
#define PUSH_METER_WRITES 32
/* Most flushes that are remembered until they end. If the memory is full, a new flush first forgets
 * the oldest flush. */
#define PUSH_METER_FLUSHES 32

struct push_meter_write {
    int64_t begin_us;      /* Time at which the write began. */
    uint64_t bytes_before; /* Bytes that were written before this write. */
};

struct push_meter_flush {
    uint64_t cookie;       /* Number by which the caller identifies the flush. */
    uint64_t bytes_before; /* Bytes that were written before this flush. */
};

/* All zeros = nothing was written. */
struct push_meter {
    struct link_speed speed;
    uint64_t bytes_written;
    /* The first bytes of bytes_written that are known to have arrived, because a flush after them
     * has ended; after push_meter_disconnected, all of bytes_written. */
    uint64_t bytes_arrived;
    uint32_t write_count;
    uint32_t flush_count;
    struct push_meter_write writes[PUSH_METER_WRITES];
    struct push_meter_flush flushes[PUSH_METER_FLUSHES];
};

/* Records that `bytes` bytes are written now; no effect if `bytes` is 0. */
void push_meter_write(struct push_meter *meter, uint64_t bytes, int64_t now_us);
/* Records that a flush of all writes so far begins. */
void push_meter_flush(struct push_meter *meter, uint64_t cookie);
/* Records that the flush with this cookie and all earlier flushes have ended. Returns true if
 * meter->speed has a new transfer. If the cookie is not known, does nothing and returns false. */
bool push_meter_flushed(struct push_meter *meter, uint64_t cookie, int64_t now_us);
/* Forgets all writes and flushes, because the connection has ended. The measured speed stays. */
void push_meter_disconnected(struct push_meter *meter);

#endif
