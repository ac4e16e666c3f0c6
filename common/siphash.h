/* siphash: SipHash-2-4 (Aumasson and Bernstein, 2012), a hash with a key. With a secret key, an
 * author of data cannot choose data with equal hashes; with a known key, the hash is a checksum.
 * The hash depends on the byte order of the processor. Any folder may call siphash, on any thread;
 * it keeps no state and makes no keys. common/digest.h has digests without a key. */
#ifndef COMMON_SIPHASH_H
#define COMMON_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t siphash_rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

/* One round on the state `v`. */
static inline void siphash_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = siphash_rotate(v[1], 13) ^ v[0];
    v[3] = siphash_rotate(v[3], 16) ^ v[2];
    v[0] = siphash_rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = siphash_rotate(v[1], 17) ^ v[2];
    v[3] = siphash_rotate(v[3], 21) ^ v[0];
    v[2] = siphash_rotate(v[2], 32);
}

/* Adds `word`, eight bytes of the data, to the state `v`. */
static inline void siphash_absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    siphash_round(v);
    siphash_round(v);
    v[0] ^= word;
}

/* Returns the hash of the data with this key. */
static inline uint64_t siphash(const uint64_t key[2], const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                     key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    uint64_t last = (uint64_t)bytes << 56;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        siphash_absorb(v, word);
    }
    for (size_t i = 0; i < bytes; i++)
        last |= (uint64_t)at[i] << 8 * i;
    siphash_absorb(v, last);
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        siphash_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
