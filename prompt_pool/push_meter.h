/* push_meter: measures one link while KV is written to another machine. It is told each write, each
 * flush, and when a flush has ended.
 *
 * Between layers a link is idle, and the writes of other requests come in between. So the time from
 * a request's first write to its flush says little. The meter uses that every write i that a flush
 * covers gives a bound: the bytes from this write on took at most the time from the write to the end
 * of the flush,
 *
 *     end - begin(i) >= latency + bytes(from i on) / bandwidth,
 *
 * and that the bound is exact for the write after which the link was never idle. This is the write
 * with the highest bandwidth; its bytes and time are one point of link_speed.h.
 *
 * The machine's event loop thread owns each meter (prompt_links.c). A meter sends nothing, reads no
 * clock, and knows no requests. */
#ifndef PROMPT_POOL_PUSH_METER_H
#define PROMPT_POOL_PUSH_METER_H

#include "scheduler/link_speed.h"

#include <stdbool.h>

/* Writes that are remembered since the link was idle. With more, every second one is forgotten. */
#define PUSH_METER_WRITES 32
/* Flushes that have not ended. With more, the oldest one is forgotten. */
#define PUSH_METER_FLUSHES 32

struct push_meter_write {
    int64_t at_us;
    uint64_t before; /* Bytes that were written before it. */
};

struct push_meter_flush {
    uint64_t cookie;
    uint64_t written; /* Bytes that were written before it. */
};

/* All zeros = nothing was written. */
struct push_meter {
    struct link_speed speed;
    uint64_t written; /* Bytes. */
    uint64_t arrived; /* Of these bytes: those of which a flush says that they have arrived. */
    uint32_t write_count;
    uint32_t flush_count;
    struct push_meter_write writes[PUSH_METER_WRITES];
    struct push_meter_flush flushes[PUSH_METER_FLUSHES];
};

/* Records that `bytes` bytes are written now. */
void push_meter_write(struct push_meter *meter, uint64_t bytes, int64_t now_us);
/* Records that a flush of all writes so far begins. */
void push_meter_flush(struct push_meter *meter, uint64_t cookie);
/* Records that the flush with this cookie has ended, and with it all flushes before. Returns true
 * if meter->speed has got a new point. */
bool push_meter_flushed(struct push_meter *meter, uint64_t cookie, int64_t now_us);
/* Forgets the writes that have not arrived, because the connection has ended. */
void push_meter_stop(struct push_meter *meter);

#endif
