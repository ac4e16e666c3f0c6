/* content_hash: see content_hash.h. */
#include "model/file/content_hash.h"

#include "common/random.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE_BYTES   ((size_t)64 << 10)
#define DIGEST_PIECES 16

/* Loads the pages with one call instead of one page fault per 16 pages; the kernel reads ahead
 * sequentially. If the call fails (kernels before 5.14), page faults load them. */
static void populate(const uint8_t *data, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)data & ~(page - 1);
    (void)madvise((void *)begin, (uintptr_t)data + bytes - begin, MADV_POPULATE_READ);
}

/* Eight independent lanes, so that the multiplications overlap. Each step is a bijection of a
 * lane's state: two inputs of the same length that differ in one word have different states in that
 * lane. */
#define LANES           8
#define LANE_MULTIPLIER 0x9e3779b97f4a7c15u

static uint64_t content_hash(uint64_t seed, const uint8_t *data, size_t bytes)
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

/* Hash of tensor data: all of it if `bytes` is at most bytes_max, otherwise 64 KiB pieces at equal
 * distances, bytes_max in all. */
static uint64_t content_hash_sampled(uint64_t seed, const uint8_t *data, size_t bytes,
                                     size_t bytes_max, bool mapped)
{
    if (bytes <= bytes_max) {
        if (mapped && bytes > 0)
            populate(data, bytes);
        return content_hash(seed, data, bytes);
    }
    size_t pieces = bytes_max / PIECE_BYTES;
    if (pieces < 2)
        return content_hash(seed, data, bytes < PIECE_BYTES ? bytes : PIECE_BYTES);
    /* The last piece ends where the data ends. */
    size_t step = (bytes - PIECE_BYTES) / (pieces - 1);
    for (size_t i = 0; i < pieces; i++)
        seed = content_hash(seed, data + i * step, PIECE_BYTES);
    return seed;
}

void content_hash_add(struct digest *digest, const uint8_t *data, size_t bytes, size_t bytes_max,
                      bool mapped)
{
    uint64_t fast = content_hash_sampled(0, data, bytes, bytes_max, mapped);
    digest_add(digest, &fast, sizeof(fast));
    if (bytes <= DIGEST_PIECES * PIECE_BYTES) {
        digest_add(digest, data, bytes);
        return;
    }
    size_t step = (bytes - PIECE_BYTES) / (DIGEST_PIECES - 1);
    for (size_t i = 0; i < DIGEST_PIECES; i++)
        digest_add(digest, data + i * step, PIECE_BYTES);
}
