/* scarce_memory: an allocator that fails after a number of allocations, for tests that give it to
 * jansson (json_set_alloc_funcs). A test sets scarce_allocations_left and then calls what allocates,
 * on one thread. The header owns nothing; `free` releases the memory. */
#ifndef TESTS_SCARCE_MEMORY_H
#define TESTS_SCARCE_MEMORY_H

#include "common/status.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static size_t scarce_allocations_left; /* Allocations until the next one fails. */
static bool scarce_once; /* true: only this one fails, false: also all that follow it. */

static inline void *scarce_malloc(size_t bytes)
{
    if (scarce_allocations_left == 0) {
        scarce_allocations_left = scarce_once ? SIZE_MAX : 0;
        errno = ENOMEM; /* As malloc does. */
        return NULL;
    }
    scarce_allocations_left--;
    return malloc(bytes);
}

/* Calls `read` with memory for 0, 1, 2 … allocations of jansson, until it returns another status
 * than ST_NO_MEMORY. Returns that status. *count_out: calls that had too little memory. */
static inline enum status scarce_calls(enum status (*read)(struct error *error),
                                       uint32_t *count_out, struct error *error)
{
    enum status status;
    json_set_alloc_funcs(scarce_malloc, free);
    *count_out = 0;
    while (scarce_allocations_left = *count_out, (status = read(error)) == ST_NO_MEMORY)
        ++*count_out;
    json_set_alloc_funcs(malloc, free);
    return status;
}

#endif
