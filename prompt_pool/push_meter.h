/* push_meter: measures one link while KV is written to another machine. The owner reports each
 * write, each flush, and the end of each flush.
 *
 * Between layers a link is idle, and the writes of other requests come in between. So the time from
 * a request's first write to its flush says little. But each write i before a flush gives a bound:
 * the bytes written from write i to the flush have arrived when the flush ends, so
 *
 *     end of the flush - begin of write i >= latency + bytes from write i on / bandwidth.
 *
 * The two sides are equal for the write after which the link was never idle. This is the write with
 * the highest bandwidth; its bytes and time are one point of link_speed.h.
 *
 * The machine's event loop thread owns each meter (prompt_links.c). A meter sends nothing, reads no
 * clock, and knows no requests. */
#ifndef PROMPT_POOL_PUSH_METER_H
#define PROMPT_POOL_PUSH_METER_H

#include "scheduler/link_speed.h"

#include <stdbool.h>

/* Most writes that are remembered since the link was idle. When there is one more, every second
 * write is forgotten. */
#define PUSH_METER_WRITES 32
/* Most flushes that have not ended. When there is one more, the oldest flush is forgotten. */
#define PUSH_METER_FLUSHES 32

struct push_meter_write {
    int64_t begin_us;
    uint64_t bytes_before; /* Bytes that were written before this write. */
};

struct push_meter_flush {
    uint64_t cookie;
    uint64_t bytes_before; /* Bytes that were written before this flush. */
};

/* All zeros = nothing was written. */
struct push_meter {
    struct link_speed speed;
    uint64_t bytes_written;
    /* The part of bytes_written that is known to have arrived, because a later flush has ended;
     * after push_meter_disconnected all of bytes_written. */
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
 * meter->speed has a new point. If the cookie is not known, does nothing and returns false. */
bool push_meter_flushed(struct push_meter *meter, uint64_t cookie, int64_t now_us);
/* Forgets all writes and flushes, because the connection has ended. */
void push_meter_disconnected(struct push_meter *meter);

#endif
