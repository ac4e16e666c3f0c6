/* ranks: see the header. */
#include "tests/model/forward/ranks.h"

#include "tests/check.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUPS_MAX 64
#define RANKS_MAX  16
#define JOIN_MS    30000

struct ranks_board {
    _Atomic uint32_t made; /* ids that are there */
    uint8_t ids[GROUPS_MAX][COMPUTE_GROUP_ID_BYTES];
};

void ranks_run(uint32_t ranks, void (*fn)(struct ranks *r, void *context), void *context)
{
    pid_t processes[RANKS_MAX] = {0};
    struct ranks r = {.ranks = ranks};
    CHECK(ranks <= RANKS_MAX);
    r.board =
        mmap(NULL, sizeof(*r.board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(r.board != MAP_FAILED);
    fflush(stdout);
    for (r.rank = 0; r.rank < ranks; r.rank++) {
        processes[r.rank] = fork();
        CHECK(processes[r.rank] >= 0);
        if (processes[r.rank] == 0) {
            fn(&r, context);
            exit(0);
        }
    }
    for (uint32_t i = 0; i < ranks; i++) {
        int status;
        CHECK(waitpid(processes[i], &status, 0) == processes[i]);
        CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %u of %u: status %x", i, ranks,
               (unsigned)status);
    }
    munmap(r.board, sizeof(*r.board));
}

void ranks_join(struct ranks *r, const struct compute_ops *ops, struct compute *c)
{
    struct error error = {0};
    const uint32_t number = r->joined++;
    CHECK(number < GROUPS_MAX);
    uint8_t *id = r->board->ids[number];
    if (r->rank == 0) {
        CHECKF(ops->group->id_make(c, id, &error) == ST_OK, "%s", error.text);
        atomic_store(&r->board->made, number + 1);
    }
    while (atomic_load(&r->board->made) <= number)
        usleep(200);
    CHECKF(ops->group->join(c, id, r->rank, r->ranks, JOIN_MS, &error) == ST_OK, "rank %u: %s",
           r->rank, error.text);
}
