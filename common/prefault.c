/* prefault: see the header. */
#include "common/prefault.h"

#include "common/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes of a piece that are populated by one call, which takes about 50 us. During the call the
 * kernel holds its lock on the address space. For this reason the thread has the priority of its
 * process: if it waited for a core while it held the lock, it would delay every thread that maps
 * memory. */
#define STEP_BYTES ((uint64_t)256 << 10)

#ifndef MADV_POPULATE_WRITE /* Linux 5.14. */
#define MADV_POPULATE_WRITE 23
#endif

struct prefault {
    pthread_t thread;
    unsigned char *base;
    uint64_t stride_bytes;
    uint64_t page_bytes;
    uint32_t count;
    atomic_bool stop;
};

static bool memory_is_short(const struct prefault *p)
{
    uint64_t available;
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * p->page_bytes;
    return memory_available("", &available) != ST_OK || available < all / 4;
}

/* Returns false if the kernel cannot do it. */
static bool populate(const struct prefault *p, uint64_t begin, uint64_t end)
{
    begin = begin / p->page_bytes * p->page_bytes;
    return madvise(p->base + begin, end - begin, MADV_POPULATE_WRITE) == 0 || errno == EINTR ||
           errno == EAGAIN;
}

static void *prefault_main(void *self)
{
    struct prefault *p = self;
    pthread_setname_np(pthread_self(), "prefault");
    for (uint64_t at = 0; at < p->stride_bytes; at += STEP_BYTES) {
        uint64_t left = p->stride_bytes - at, bytes = left < STEP_BYTES ? left : STEP_BYTES;
        if (memory_is_short(p))
            return NULL;
        for (uint32_t i = 0; i < p->count; i++) {
            uint64_t begin = i * p->stride_bytes + at;
            if (atomic_load(&p->stop) || !populate(p, begin, begin + bytes))
                return NULL;
        }
    }
    return NULL;
}

enum status prefault_start(void *base, uint64_t stride_bytes, uint32_t count, struct prefault **out,
                           struct error *error)
{
    struct prefault *p = calloc(1, sizeof(*p));
    *out = NULL;
    if (p == NULL)
        return error_set(error, ST_NO_MEMORY, "prefault: out of memory");
    *p = (struct prefault){.base = base,
                           .stride_bytes = stride_bytes,
                           .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE),
                           .count = count};
    int failed = pthread_create(&p->thread, NULL, prefault_main, p);
    if (failed != 0) {
        free(p);
        return error_set(error, ST_NO_RESOURCE, "prefault: no thread: %s", strerror(failed));
    }
    *out = p;
    return ST_OK;
}

void prefault_stop(struct prefault *p)
{
    if (p == NULL)
        return;
    atomic_store(&p->stop, true);
    pthread_join(p->thread, NULL);
    free(p);
}
