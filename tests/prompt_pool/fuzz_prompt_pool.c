/* fuzz_prompt_pool: for any behaviour of gateway, scheduler, link and clock, in any order, the KV
 * of each prompt arrives complete and once, no block is used again before its writes have landed,
 * and nothing is left behind. Method: an input is the list of all choices of the bed of
 * prompt_bed.h. After its end, fixed pseudo-random choices end every request. */
#include "common/random.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "tests/prompt_pool/prompt_bed.h"

#define STEPS_MAX 400

static struct fuzz_input input;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return input.size > 0 ? fuzz_below(&input, below) : (uint32_t)(random_at(1, ++draws) % below);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct prompt_bed_counts counts;
    struct message_stats stats = {0};
    input = (struct fuzz_input){data, size};
    draws = 0;
    bool staged = fuzz_below(&input, 2) != 0;
    prompt_bed_open(staged, fuzz_below(&input, 2) != 0, draw);
    for (int i = 0; i < STEPS_MAX && input.size > 0; i++) {
        prompt_bed_step();
        prompt_bed_check();
    }
    prompt_bed_finish(&counts, &stats);
    return 0;
}

/* Random choices, for a token machine without and with stages. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    size_t bytes = 256u << index % 4;
    if (index >= 16 || bytes > capacity)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = (uint8_t)random_at(index, i);
    buffer[0] = (uint8_t)index;
    return bytes;
}
