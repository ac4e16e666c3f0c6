/* scarce_memory: an allocator that fails after a number of allocations, for tests that give it to
 * jansson (json_set_alloc_funcs). A test sets scarce_allocations_left and then calls what allocates,
 * on one thread. The header owns nothing; `free` releases the memory. */
#ifndef TESTS_SCARCE_MEMORY_H
#define TESTS_SCARCE_MEMORY_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

static size_t scarce_allocations_left; /* Allocations until all further ones fail. */

static inline void *scarce_malloc(size_t bytes)
{
    if (scarce_allocations_left == 0) {
        errno = ENOMEM; /* As malloc does. */
        return NULL;
    }
    scarce_allocations_left--;
    return malloc(bytes);
}

#endif
