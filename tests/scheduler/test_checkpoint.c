/* Goal: the copies of an answer are an interval apart (kv/checkpoint_ms), and those of answers that
 * begin together are spread over half an interval. Method: the times of many numbers, compared with
 * the bounds; the widest gap between neighbours. */
#include "scheduler/checkpoint.h"

#include "tests/check.h"

#include <stdlib.h>

#define ANSWERS 64
#define NOW     7000000

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* 64 numbers in a row from any number on: neighbours are at most 3 times as far apart as if the
 * times were equally spaced. */
static void first_copies_are_spread(uint64_t from, uint32_t interval_ms)
{
    int64_t times[ANSWERS];
    const int64_t half_us = interval_ms * 500ll;
    for (uint32_t i = 0; i < ANSWERS; i++) {
        times[i] = sched_checkpoint_first_us(NOW, interval_ms, from + i) - NOW;
        CHECKF(times[i] >= half_us && times[i] <= 2 * half_us, "%lld us", (long long)times[i]);
    }
    qsort(times, ANSWERS, sizeof(times[0]), compare_times);
    for (uint32_t i = 1; i < ANSWERS; i++)
        CHECKF(times[i] - times[i - 1] <= 3 * half_us / ANSWERS, "a gap of %lld us",
               (long long)(times[i] - times[i - 1]));
}

int main(void)
{
    first_copies_are_spread(0, 500);
    first_copies_are_spread(1000000, 500);
    first_copies_are_spread(UINT32_MAX - 5ull, 3600000);
    CHECK(sched_checkpoint_first_us(NOW, 0, 12345) == NOW);
    CHECK(sched_checkpoint_next_us(NOW, 500, false) == NOW + 500000);
    CHECK(sched_checkpoint_next_us(NOW, 3600000, false) == NOW + 3600000000ll);
    CHECK(sched_checkpoint_next_us(NOW, 500, true) == NOW);
    CHECK(sched_checkpoint_next_us(NOW, 0, false) == NOW);
    CHECK(sched_checkpoint_tokens(100, 1, 16) == 96 && sched_checkpoint_tokens(96, 1, 16) == 96 &&
          sched_checkpoint_tokens(95, 1, 16) == 80);
    CHECK(sched_checkpoint_is_useful(96, 80, 17, 16));
    CHECK(!sched_checkpoint_is_useful(96, 96, 17, 16) &&
          !sched_checkpoint_is_useful(96, 80, 16, 16));
    return 0;
}
