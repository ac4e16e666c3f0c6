/* fuzz_input: reads the choices of a fuzz target from the bytes of its input, from front to back.
 * Targets that turn the input into a list of operations use it, on the main thread. When the input
 * is used up, every choice is 0. Only fuzz_copy allocates memory. It checks nothing. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct fuzz_input {
    const uint8_t *data; /* The bytes that were not read yet. */
    size_t size;
};

static inline uint8_t fuzz_byte(struct fuzz_input *in)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}

/* Returns a number below `below`, which is at least 1. Uses one byte up to 256, else four. */
static inline uint32_t fuzz_below(struct fuzz_input *in, uint32_t below)
{
    uint32_t number = fuzz_byte(in);
    for (int i = 0; i < 3 && below > 256; i++)
        number = number << 8 | fuzz_byte(in);
    return number % below;
}

/* Returns the next bytes and their number: at most `most`, and at most what is left. */
static inline const uint8_t *fuzz_bytes(struct fuzz_input *in, size_t most, size_t *count_out)
{
    const uint8_t *at = in->data;
    *count_out = most < in->size ? most : in->size;
    in->data += *count_out;
    in->size -= *count_out;
    return at;
}

/* Returns a copy of the bytes in memory of exactly their size, so that ASan detects a read beyond
 * the end. The caller frees the copy. */
static inline void *fuzz_copy(const void *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy == NULL)
        abort();
    for (size_t i = 0; i < bytes; i++)
        copy[i] = ((const uint8_t *)data)[i];
    return copy;
}

/* Copies the text `index` of a table to the buffer, as fuzz_seed does. */
static inline size_t fuzz_seed_text(const char *const *texts, size_t count, unsigned index,
                                    uint8_t *buffer, size_t capacity)
{
    if (index >= count || strlen(texts[index]) > capacity)
        return 0;
    memcpy(buffer, texts[index], strlen(texts[index]));
    return strlen(texts[index]);
}

#endif
