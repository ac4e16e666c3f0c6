/* content_hash: see the header. */
#include "model/content_hash.h"

#include "common/random.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)64 << 10)

/* One call instead of a page fault for every 16 pages; the kernel reads ahead as for a sequential
 * reader. What it cannot do (a kernel before 5.14), the faults do. */
static void populate(const uint8_t *data, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)data & ~(page - 1);
    (void)madvise((void *)begin, (uintptr_t)data + bytes - begin, MADV_POPULATE_READ);
}

/* Eight independent lanes, so that the multiplications overlap. Each step is a bijection of the
 * lane's state: two inputs of one length that differ in one word never collide in their lane. */
#define LANES           8
#define LANE_MULTIPLIER 0x9e3779b97f4a7c15u

uint64_t content_hash(uint64_t seed, const uint8_t *data, size_t bytes)
{
    uint64_t lanes[LANES];
    uint64_t words[LANES];
    for (unsigned i = 0; i < LANES; i++)
        lanes[i] = random_at(seed, i);
    size_t at = 0;
    for (; at + sizeof(words) <= bytes; at += sizeof(words)) {
        memcpy(words, data + at, sizeof(words));
        for (unsigned i = 0; i < LANES; i++) {
            uint64_t x = (lanes[i] ^ words[i]) * LANE_MULTIPLIER;
            lanes[i] = x << 31 | x >> 33;
        }
    }
    if (at < bytes) {
        memset(words, 0, sizeof(words));
        memcpy(words, data + at, bytes - at);
        for (unsigned i = 0; i < LANES; i++)
            lanes[i] = random_mix(lanes[i] ^ words[i]);
    }
    uint64_t hash = random_mix(seed ^ bytes);
    for (unsigned i = 0; i < LANES; i++)
        hash = random_mix(hash ^ lanes[i]);
    return hash;
}

uint64_t content_hash_sampled(uint64_t seed, const uint8_t *data, size_t bytes, size_t bytes_max,
                              bool mapped)
{
    if (bytes <= bytes_max) {
        if (mapped && bytes > 0)
            populate(data, bytes);
        return content_hash(seed, data, bytes);
    }
    size_t pieces = bytes_max / PIECE_BYTES;
    if (pieces < 2)
        return content_hash(seed, data, bytes < PIECE_BYTES ? bytes : PIECE_BYTES);
    size_t step = (bytes - PIECE_BYTES) / (pieces - 1); /* the last piece ends with the data */
    for (size_t i = 0; i < pieces; i++)
        seed = content_hash(seed, data + i * step, PIECE_BYTES);
    return seed;
}
