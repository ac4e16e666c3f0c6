/* Goal: stored KV is loaded where that is faster than computing, and an unknown or old time never
 * keeps a tier from being measured. Method: tables of measured times and expected decisions. */
#include "scheduler/tier_loads.h"
#include "tests/check.h"

#include <math.h>

#define S 1000000

int main(void)
{
    struct sched_tier_loads loads = {0};
    double fixed_us, token_us;
    CHECK(sched_tier_loads_least(&loads, 100, 0) == 1); /* nothing is known */
    sched_tier_loads_line(&loads, 0, &fixed_us, &token_us);
    CHECK(fixed_us == 0 && token_us == 0);
    /* 10 ms, and 20 us for each token: as long as computing 125 tokens of 100 us. */
    sched_tier_loads_add(&loads, 1000, 30000, 1 * S);
    sched_tier_loads_add(&loads, 100, 12000, 2 * S);
    sched_tier_loads_line(&loads, 3 * S, &fixed_us, &token_us);
    CHECK(fabs(fixed_us - 10000) < 1 && fabs(token_us - 20) < 0.01);
    CHECK(sched_tier_loads_least(&loads, 0, 3 * S) == 1); /* the time to compute is not known */
    const uint32_t least = sched_tier_loads_least(&loads, 100, 3 * S);
    CHECKF(least == 125 || least == 126, "%u", least);
    CHECK(sched_tier_loads_least(&loads, 200, 3 * S) < 60);
    CHECK(sched_tier_loads_least(&loads, 19, 3 * S) == SCHED_TIER_LOADS_NEVER);
    CHECK(sched_tier_loads_least(&loads, 20.000001, 3 * S) == SCHED_TIER_LOADS_NEVER);
    CHECK(sched_tier_loads_least(&loads, 19, 2 * S + SCHED_TIER_LOADS_OLD_US + 1) == 1);
    /* Newer loads count more: the tier has become slow, and then fast again. */
    for (int i = 0; i < 30; i++)
        sched_tier_loads_add(&loads, 1000, 900000, (3 + i) * S);
    CHECK(sched_tier_loads_least(&loads, 100, 33 * S) > 1000);
    for (int i = 0; i < 30; i++)
        sched_tier_loads_add(&loads, 1000, 1000, (33 + i) * S);
    CHECK(sched_tier_loads_least(&loads, 100, 63 * S) <= 1000);
    sched_tier_loads_add(&loads, 0, 1, 70 * S); /* nothing was loaded */
    CHECK(loads.latest_us == 62 * S);
    printf("ok\n");
    return 0;
}
