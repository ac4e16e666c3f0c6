/* push_meter: each write i before a flush gives a bound. The bytes from write i to the flush have
 * arrived when the flush ends, so
 *
 *     end of the flush - begin of write i >= latency + bytes from write i on / bandwidth.
 *
 * For most writes, the left side is longer, because the link was idle between write i and the end
 * of the flush. For the first write after which the link was never idle, both sides are about
 * equal. This write gives the highest bandwidth of all writes. Its bytes and its time are one
 * transfer of link_speed.h.
 *
 * If all written bytes have arrived, a new write forgets all earlier writes. If the memory is full,
 * a new write first forgets every second write. */
#include "prompt_pool/push_meter.h"

#include <string.h>

void push_meter_write(struct push_meter *meter, uint64_t bytes, int64_t now_us)
{
    if (bytes == 0)
        return;
    if (meter->bytes_arrived == meter->bytes_written)
        meter->write_count = 0;
    if (meter->write_count == PUSH_METER_WRITES) {
        meter->write_count /= 2;
        for (uint32_t i = 0; i < meter->write_count; i++)
            meter->writes[i] = meter->writes[2 * i];
    }
    meter->writes[meter->write_count++] =
        (struct push_meter_write){.begin_us = now_us, .bytes_before = meter->bytes_written};
    meter->bytes_written += bytes;
}

/* Forgets the first `count` flushes. */
static void flushes_drop(struct push_meter *meter, uint32_t count)
{
    meter->flush_count -= count;
    memmove(meter->flushes, meter->flushes + count, meter->flush_count * sizeof(meter->flushes[0]));
}

void push_meter_flush(struct push_meter *meter, uint64_t cookie)
{
    if (meter->flush_count == PUSH_METER_FLUSHES)
        flushes_drop(meter, 1);
    meter->flushes[meter->flush_count++] =
        (struct push_meter_flush){.cookie = cookie, .bytes_before = meter->bytes_written};
}

/* Adds the point of the write after which the link was never idle until now. Returns false if there
 * is none. */
static bool point_add(struct push_meter *meter, uint64_t arrived, int64_t now_us)
{
    const double latency_us = link_speed_estimate(&meter->speed).latency_us;
    const struct push_meter_write *best = NULL;
    double best_rate = 0;
    for (uint32_t i = 0; i < meter->write_count && meter->writes[i].bytes_before < arrived; i++) {
        const struct push_meter_write *write = &meter->writes[i];
        double us = (double)(now_us - write->begin_us) - latency_us;
        double rate = (double)(arrived - write->bytes_before) / (us > 1 ? us : 1);
        if (rate <= best_rate || now_us <= write->begin_us)
            continue;
        best = write;
        best_rate = rate;
    }
    if (best == NULL)
        return false;
    link_speed_add(&meter->speed, arrived - best->bytes_before,
                   (uint64_t)(now_us - best->begin_us));
    return true;
}

bool push_meter_flushed(struct push_meter *meter, uint64_t cookie, int64_t now_us)
{
    for (uint32_t i = 0; i < meter->flush_count; i++) {
        if (meter->flushes[i].cookie != cookie)
            continue;
        const uint64_t arrived = meter->flushes[i].bytes_before;
        flushes_drop(meter, i + 1);
        bool more = arrived > meter->bytes_arrived && point_add(meter, arrived, now_us);
        if (arrived > meter->bytes_arrived)
            meter->bytes_arrived = arrived;
        return more;
    }
    return false;
}

void push_meter_disconnected(struct push_meter *meter)
{
    meter->bytes_arrived = meter->bytes_written;
    meter->write_count = meter->flush_count = 0;
}
