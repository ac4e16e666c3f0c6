/* Goal: stored KV is loaded where that is faster than computing, and an unknown or old time never
 * keeps a tier from being measured. Method: tables of measured times and expected decisions. */
#include "scheduler/tier_loads.h"
#include "tests/check.h"

#define S 1000000

int main(void)
{
    struct sched_tier_loads loads = {0};
    CHECK(!sched_tier_loads_win(&loads, 100, 0, 0));
    CHECK(sched_tier_loads_win(&loads, 100, 16, 0)); /* nothing is known */
    /* 10 ms, and 20 us for each token. */
    sched_tier_loads_add(&loads, 1000, 30000, 1 * S);
    sched_tier_loads_add(&loads, 100, 12000, 2 * S);
    CHECK(sched_tier_loads_win(&loads, 0, 16, 3 * S)); /* the time to compute is not known */
    CHECK(!sched_tier_loads_win(&loads, 100, 100, 3 * S));
    CHECK(sched_tier_loads_win(&loads, 100, 200, 3 * S));
    CHECK(!sched_tier_loads_win(&loads, 19, 100000, 3 * S)); /* computing is always faster */
    CHECK(sched_tier_loads_win(&loads, 19, 100000, 2 * S + SCHED_TIER_LOADS_OLD_US + 1));
    /* Newer loads count more: the tier has become slow, and then fast again. */
    for (int i = 0; i < 30; i++)
        sched_tier_loads_add(&loads, 1000, 900000, (3 + i) * S);
    CHECK(!sched_tier_loads_win(&loads, 100, 1000, 33 * S));
    for (int i = 0; i < 30; i++)
        sched_tier_loads_add(&loads, 1000, 1000, (33 + i) * S);
    CHECK(sched_tier_loads_win(&loads, 100, 1000, 63 * S));
    sched_tier_loads_add(&loads, 0, 1, 70 * S); /* nothing was loaded */
    CHECK(loads.latest_us == 62 * S);
    printf("ok\n");
    return 0;
}
