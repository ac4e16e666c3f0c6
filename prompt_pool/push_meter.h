/* push_meter: measures one link while KV is written to another machine. The owner reports each
 * write, each flush, and the end of each flush.
 *
 * Times in which the link was idle do not count: for each flush, the meter finds the first write
 * after which the link was never idle, and records the bytes and the time from this write on as one
 * transfer of link_speed.h.
 *
 * The machine's event loop thread owns each meter (prompt_links.c). A meter sends nothing, reads no
 * clock, and knows no requests. */
#ifndef PROMPT_POOL_PUSH_METER_H
#define PROMPT_POOL_PUSH_METER_H

#include "scheduler/link_speed.h"

#include <stdbool.h>

/* Most writes that are remembered. If a further write is reported, every second remembered write is
 * dropped to make room. */
#define PUSH_METER_WRITES 32
/* Most flushes that are remembered until they end. One flush more replaces the oldest flush. */
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
    /* Number of bytes that are known to have arrived: the bytes written before the latest flush
     * that has ended. push_meter_disconnected sets the number to bytes_written. */
    uint64_t bytes_arrived;
    uint32_t write_count;
    uint32_t flush_count;
    struct push_meter_write writes[PUSH_METER_WRITES];
    struct push_meter_flush flushes[PUSH_METER_FLUSHES];
};

/* Records that `bytes` bytes are written now; no effect if `bytes` is 0. */
void push_meter_write(struct push_meter *meter, uint64_t bytes, int64_t now_us);
/* Records that a flush of all earlier writes begins. */
void push_meter_flush(struct push_meter *meter, uint64_t cookie);
/* Records that the flush with this cookie and all earlier flushes have ended. Returns true if
 * meter->speed has a new transfer. If the cookie is not known, does nothing and returns false. */
bool push_meter_flushed(struct push_meter *meter, uint64_t cookie, int64_t now_us);
/* Call it when the connection has ended. Forgets all writes and flushes; keeps the speed. */
void push_meter_disconnected(struct push_meter *meter);

#endif
