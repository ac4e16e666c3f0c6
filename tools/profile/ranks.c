/* profile_ranks: see the header. Orders go through sockets, so that a rank without work sleeps. */
#include "tools/profile/ranks.h"

#include "common/parent.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_US     1000
#define CHECK_TURNS 1024 /* Turns of a waiting rank 0 between two checks that the others live. */

struct profile_ranks_board {
    atomic_uint taken;  /* Ranks that have taken the current order. */
    atomic_uint loaded; /* Ranks whose weights are in `bytes`. */
    atomic_bool made;   /* `id` is set. */
    uint8_t id[COMPUTE_GROUP_ID_BYTES];
    _Atomic uint64_t bytes[LIMIT_LAYERS + 2];
};

static void child_run(const struct profile_ranks *ranks, uint32_t rank, int order_socket,
                      pid_t parent, void (*run)(void *self, struct profile_ranks *ranks),
                      void *self)
{
    struct profile_ranks own = {
        .rank = rank, .count = ranks->count, .board = ranks->board, .order_socket = order_socket};
    parent_end_signal_set(SIGKILL, parent);
    for (uint32_t i = 1; i < rank; i++)
        close(ranks->order_sockets[i]);
    run(self, &own);
    _exit(1);
}

enum status profile_ranks_start(uint32_t count,
                                void (*run)(void *self, struct profile_ranks *ranks), void *self,
                                struct profile_ranks *out, struct error *error)
{
    *out = (struct profile_ranks){.count = count};
    if (count <= 1)
        return ST_OK;
    void *shared =
        mmap(NULL, sizeof(*out->board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return error_set(error, ST_NO_MEMORY, "--ranks: %s", strerror(errno));
    out->board = shared;
    for (uint32_t rank = 1; rank < count; rank++) {
        int ends[2];
        const pid_t parent = getpid();
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
            return error_set(error, ST_IO, "--ranks: %s", strerror(errno));
        const pid_t pid = fork();
        if (pid == 0) {
            close(ends[1]);
            child_run(out, rank, ends[0], parent, run, self);
        }
        close(ends[0]);
        out->order_sockets[rank] = ends[1];
        out->pids[rank] = pid > 0 ? pid : 0;
        if (pid < 0)
            return error_set(error, ST_IO, "--ranks: %s", strerror(errno));
    }
    return ST_OK;
}

void profile_ranks_stop(struct profile_ranks *ranks)
{
    for (uint32_t rank = 1; rank < ranks->count; rank++) {
        if (ranks->pids[rank] > 0) {
            kill(ranks->pids[rank], SIGKILL);
            waitpid(ranks->pids[rank], NULL, 0);
        }
        if (ranks->order_sockets[rank] > 0)
            close(ranks->order_sockets[rank]);
    }
    if (ranks->board != NULL)
        munmap(ranks->board, sizeof(*ranks->board));
    *ranks = (struct profile_ranks){.count = 0};
}

/* A rank that has ended is waited for only here: its number is gone afterwards. */
static enum status ranks_check(struct profile_ranks *ranks, struct error *error)
{
    for (uint32_t rank = 1; rank < ranks->count; rank++) {
        if (ranks->pids[rank] > 0 && waitpid(ranks->pids[rank], NULL, WNOHANG) == 0)
            continue;
        ranks->pids[rank] = 0;
        return error_set(error, ST_UNREACHABLE, "rank %u of %u has ended", rank, ranks->count);
    }
    return ST_OK;
}

enum status profile_ranks_order(struct profile_ranks *ranks, const struct profile_order *order,
                                struct error *error)
{
    const uint32_t others = ranks->count > 1 ? ranks->count - 1 : 0;
    if (others == 0)
        return ST_OK;
    atomic_store(&ranks->board->taken, 0);
    for (uint32_t rank = 1; rank < ranks->count; rank++)
        if (send(ranks->order_sockets[rank], order, sizeof(*order), MSG_NOSIGNAL) !=
            (ssize_t)sizeof(*order))
            return error_set(error, ST_UNREACHABLE, "rank %u of %u has ended: %s", rank,
                             ranks->count, strerror(errno));
    enum status status = ST_OK;
    for (uint32_t turn = 1; status == ST_OK && atomic_load(&ranks->board->taken) < others; turn++) {
        if (turn % CHECK_TURNS == 0)
            status = ranks_check(ranks, error);
        sched_yield();
    }
    return status;
}

void profile_ranks_order_take(struct profile_ranks *ranks, struct profile_order *order)
{
    if (read(ranks->order_socket, order, sizeof(*order)) != (ssize_t)sizeof(*order))
        _exit(0);
    atomic_fetch_add(&ranks->board->taken, 1);
}

void profile_ranks_weights_add(struct profile_ranks *ranks, const uint64_t *bytes,
                               uint32_t size_count)
{
    for (uint32_t i = 0; i < size_count; i++)
        atomic_fetch_add(&ranks->board->bytes[i], bytes[i]);
    atomic_fetch_add(&ranks->board->loaded, 1);
}

enum status profile_ranks_weights_sum(struct profile_ranks *ranks, uint64_t *bytes,
                                      uint32_t size_count, struct error *error)
{
    enum status status = ST_OK;
    while (atomic_load(&ranks->board->loaded) + 1 < ranks->count && status == ST_OK) {
        status = ranks_check(ranks, error);
        usleep(WAIT_US);
    }
    for (uint32_t i = 0; i < size_count && status == ST_OK; i++)
        bytes[i] += atomic_load(&ranks->board->bytes[i]);
    return status;
}

void profile_ranks_id_set(struct profile_ranks *ranks, const uint8_t id[COMPUTE_GROUP_ID_BYTES])
{
    memcpy(ranks->board->id, id, sizeof(ranks->board->id));
    atomic_store(&ranks->board->made, true);
}

void profile_ranks_id_get(struct profile_ranks *ranks, uint8_t id_out[COMPUTE_GROUP_ID_BYTES])
{
    while (!atomic_load(&ranks->board->made))
        usleep(WAIT_US);
    memcpy(id_out, ranks->board->id, sizeof(ranks->board->id));
}
