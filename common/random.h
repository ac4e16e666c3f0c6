/* random: random numbers that are computed from a key and a counter: equal keys and counters give
 * equal numbers on all hosts. Any folder may call the functions, on any thread; they keep no
 * state. They are not for secrets (secret_random is). */
#ifndef COMMON_RANDOM_H
#define COMMON_RANDOM_H

#include <stdint.h>

/* Returns the number that one step of the generator SplitMix64 (Steele et al., OOPSLA 2014) gives
 * from state x. Different x give different results. */
static inline uint64_t random_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Returns 64 random bits for this key and counter. */
static inline uint64_t random_at(uint64_t key, uint64_t counter)
{
    return random_mix(random_mix(key) ^ random_mix(counter ^ 0x6a09e667f3bcc909u));
}

/* Returns a uniform random number in [0, 1), a multiple of 2^-24, which a float holds exactly. */
static inline float random_unit_at(uint64_t key, uint64_t counter)
{
    return (float)(random_at(key, counter) >> 40) * 0x1p-24f;
}

#endif
