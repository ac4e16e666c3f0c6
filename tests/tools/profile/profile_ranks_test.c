/* Goal: the ranks of a measured device get each order of rank 0 once and in order, their weights
 * are added up, all of them get the group's id, none is left behind, and the end of one rank is an
 * error, not an endless wait. Method: processes that add up the numbers of their orders and end
 * when they are told to. */
#include "tests/check.h"
#include "tools/profile/ranks.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS        5
#define ORDERS       200
#define END_ROWS     4000000000u /* The rank with the order's context as its number ends. */
#define TEST_LIMIT_S 300

struct seen { /* Shared by all processes. */
    atomic_ullong sums[RANKS];
    atomic_uint orders[RANKS];
    uint8_t ids[RANKS][COMPUTE_GROUP_ID_BYTES];
};

static void rank_run(void *self, struct profile_ranks *ranks)
{
    struct seen *seen = self;
    struct profile_order order;
    const uint64_t bytes[] = {ranks->rank, 100};
    profile_ranks_weights_add(ranks, bytes, 2);
    profile_ranks_id_get(ranks, seen->ids[ranks->rank]);
    for (;;) {
        profile_ranks_order_take(ranks, &order);
        if (order.rows == END_ROWS && order.context == ranks->rank)
            _exit(3);
        /* The order of orders counts. */
        atomic_store(&seen->sums[ranks->rank],
                     atomic_load(&seen->sums[ranks->rank]) * 31 + order.rows);
        atomic_fetch_add(&seen->orders[ranks->rank], 1);
    }
}

static void all_orders_arrive(struct seen *seen)
{
    struct profile_ranks ranks;
    struct error error = {""};
    uint8_t id[COMPUTE_GROUP_ID_BYTES];
    uint64_t bytes[] = {1000, 100};
    unsigned long long sum = 0;
    CHECKF(profile_ranks_start(RANKS, rank_run, seen, &ranks, &error) == ST_OK, "%s", error.text);
    CHECKF(profile_ranks_weights_sum(&ranks, bytes, 2, &error) == ST_OK, "%s", error.text);
    CHECK(bytes[0] == 1000 + 1 + 2 + 3 + 4 && bytes[1] == RANKS * 100);
    memset(id, 0x5a, sizeof(id));
    profile_ranks_id_set(&ranks, id);
    for (uint32_t i = 0; i < ORDERS; i++) {
        const struct profile_order order = {.kind = PROFILE_TOKEN, .rows = i};
        CHECKF(profile_ranks_order(&ranks, &order, &error) == ST_OK, "%s", error.text);
        sum = sum * 31 + i;
    }
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        while (atomic_load(&seen->orders[rank]) < ORDERS)
            usleep(1000);
        CHECK(atomic_load(&seen->sums[rank]) == sum);
        CHECK(memcmp(seen->ids[rank], id, sizeof(id)) == 0);
    }
    profile_ranks_stop(&ranks);
    CHECK(waitpid(-1, NULL, 0) < 0 && errno == ECHILD);
}

/* The rank ends when it has taken its order, so one of the next orders fails. */
static void one_ends(struct seen *seen)
{
    struct profile_ranks ranks;
    struct error error = {""};
    const uint8_t id[COMPUTE_GROUP_ID_BYTES] = {0};
    const struct profile_order end = {.kind = PROFILE_TOKEN, .rows = END_ROWS, .context = 2};
    const struct profile_order next = {.kind = PROFILE_TOKEN, .rows = 1};
    CHECKF(profile_ranks_start(RANKS, rank_run, seen, &ranks, &error) == ST_OK, "%s", error.text);
    profile_ranks_id_set(&ranks, id);
    enum status status = profile_ranks_order(&ranks, &end, &error);
    while (status == ST_OK)
        status = profile_ranks_order(&ranks, &next, &error);
    CHECK(status == ST_UNREACHABLE);
    CHECKF(strstr(error.text, "rank 2 of 5 has ended") != NULL, "%s", error.text);
    profile_ranks_stop(&ranks);
    CHECK(waitpid(-1, NULL, 0) < 0 && errno == ECHILD);
}

static void one_rank(void)
{
    struct profile_ranks ranks;
    struct error error;
    const struct profile_order order = {.kind = PROFILE_TOKEN};
    CHECK(profile_ranks_start(1, rank_run, NULL, &ranks, &error) == ST_OK);
    CHECK(profile_ranks_order(&ranks, &order, &error) == ST_OK);
    profile_ranks_stop(&ranks);
    CHECK(waitpid(-1, NULL, 0) < 0 && errno == ECHILD);
}

int main(void)
{
    alarm(TEST_LIMIT_S);
    struct seen *seen =
        mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(seen != MAP_FAILED);
    all_orders_arrive(seen);
    one_ends(seen);
    one_rank();
    munmap(seen, sizeof(*seen));
    return 0;
}
