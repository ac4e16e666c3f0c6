/* Goal: all of the memory, and no other memory, is soon resident; data written meanwhile is kept;
 * stopping early works. Method: shared memory like the KV cache's, and mincore. */
#include "common/memory.h"
#include "common/prefault.h"
#include "tests/check.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PIECES 5
#define WAIT_S 20

static uint64_t page;

static uint64_t pages_there(unsigned char *memory, uint64_t bytes)
{
    static unsigned char there[65536];
    uint64_t pages = bytes / page, count = 0;
    CHECK(pages <= sizeof(there) && mincore(memory, bytes, there) == 0);
    for (uint64_t i = 0; i < pages; i++)
        count += there[i] & 1;
    return count;
}

static unsigned char *shared(uint64_t bytes)
{
    unsigned char *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && pages_there(memory, bytes) == 0);
    return memory;
}

static void all_of_it(uint64_t stride)
{
    struct prefault *p;
    struct error error;
    uint64_t bytes = PIECES * stride, behind = 8 * page;
    unsigned char *memory = shared((bytes + behind + page - 1) / page * page);
    uint64_t want = (bytes + page - 1) / page, there = 0;
    CHECKF(prefault_start(memory, stride, PIECES, &p, &error) == ST_OK, "%s", error.text);
    for (uint64_t i = 0; i < bytes; i += 3 * page)
        memory[i] = (unsigned char)(i / page + 1);
    for (int i = 0; i < WAIT_S * 1000 && there < want; i++) {
        usleep(1000);
        there = pages_there(memory, want * page);
    }
    CHECKF(there == want, "%lu of %lu pages", (unsigned long)there, (unsigned long)want);
    CHECK(pages_there(memory + want * page, behind) == 0);
    prefault_stop(p);
    for (uint64_t i = 0; i < bytes; i++)
        CHECK(memory[i] == (i % (3 * page) == 0 ? (unsigned char)(i / page + 1) : 0));
    CHECK(munmap(memory, (bytes + behind + page - 1) / page * page) == 0);
}

static void stopped(uint64_t stride)
{
    struct prefault *p;
    struct error error;
    unsigned char *memory = shared(PIECES * stride);
    CHECK(prefault_start(memory, stride, PIECES, &p, &error) == ST_OK);
    prefault_stop(p);
    uint64_t there = pages_there(memory, PIECES * stride);
    usleep(20000);
    CHECK(pages_there(memory, PIECES * stride) == there);
    CHECK(munmap(memory, PIECES * stride) == 0);
    prefault_stop(NULL);
}

int main(void)
{
    page = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char *probe = shared(page);
    if (madvise(probe, page, 23) != 0 && errno == EINVAL)
        test_skip("this kernel has no MADV_POPULATE_WRITE");
    uint64_t available, all = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
    if (memory_available("", &available) != ST_OK || available < all / 4 + (256 << 20))
        test_skip("too little memory is left: nothing would be taken");
    all_of_it(3 << 20);
    all_of_it((2 << 20) + 3 * page);
    all_of_it((1 << 20) + 1000); /* Pieces that do not begin at a page boundary. */
    all_of_it(100);
    stopped(32 << 20);
    return 0;
}
