/* Goal: a device has as many lanes as threads; each step of the lanes runs exactly once, side by
 * side; every setting of the lanes is obeyed. Method: every setting, over numbers of threads and
 * rows; steps that wait for each other end only if they run at the same time.
 * (test_forward_identity checks that lanes do not change the numbers.) */
#include "fixture.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct meeting {
    uint32_t count;
    _Atomic uint32_t taken[8];
    _Atomic uint32_t arrived;
};

static void meet(void *context, uint32_t i)
{
    struct meeting *meeting = context;
    CHECK(i < meeting->count);
    atomic_fetch_add(&meeting->taken[i], 1);
    atomic_fetch_add(&meeting->arrived, 1);
    for (uint32_t tries = 0; atomic_load(&meeting->arrived) < meeting->count; tries++) {
        CHECKF(tries < 60000, "%u of %u lanes", atomic_load(&meeting->arrived), meeting->count);
        usleep(1000);
    }
}

static struct compute *open_with(uint32_t threads, enum compute_lanes when)
{
    const struct compute_options options = {.threads = threads, .lanes = when};
    struct compute *c = NULL;
    struct error error = {""};
    CHECKF(compute_cpu.open(&options, &c, &error) == ST_OK, "%s", error.text);
    return c;
}

static void check_steps(uint32_t threads)
{
    struct compute *c = open_with(threads, COMPUTE_LANES_AUTO);
    CHECK(compute_cpu.lanes->count(c) == threads);
    for (uint32_t round = 0; round < 50; round++) {
        struct meeting meeting = {.count = threads};
        compute_cpu.lanes->run(c, threads, meet, &meeting);
        for (uint32_t i = 0; i < threads; i++)
            CHECK(meeting.taken[i] == 1);
    }
    for (uint32_t i = 0; threads > 1 && i < threads; i++) {
        CHECK(compute_cpu.lanes->lane(c, i) != NULL && compute_cpu.lanes->lane(c, i) != c);
        CHECK(i == 0 || compute_cpu.lanes->lane(c, i) != compute_cpu.lanes->lane(c, i - 1));
    }
    compute_cpu.close(c);
}

static void check_choice(uint32_t threads)
{
    struct compute *c = open_with(threads, COMPUTE_LANES_ALWAYS);
    CHECK(compute_cpu.lanes->pick(c, 1) == threads && compute_cpu.lanes->pick(c, 4096) == threads);
    compute_cpu.close(c);
    c = open_with(threads, COMPUTE_LANES_NEVER);
    CHECK(compute_cpu.lanes->pick(c, 1) == 1 && compute_cpu.lanes->pick(c, 16 * threads) == 1);
    compute_cpu.close(c);
    /* The cores decide, except that few and very many rows never use lanes. */
    c = open_with(threads, COMPUTE_LANES_AUTO);
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t picked = compute_cpu.lanes->pick(c, 16 * threads);
        CHECKF(picked == 1 || picked == threads, "%u lanes of %u threads", picked, threads);
        CHECK(compute_cpu.lanes->pick(c, 2 * threads) == 1);
        CHECK(compute_cpu.lanes->pick(c, 1000 * threads) == 1);
        usleep(5000);
    }
    compute_cpu.close(c);
}

static void check_environment(void)
{
    const struct compute_options options = {.threads = 2};
    struct compute *c = NULL;
    struct error error = {""};
    setenv("CLEAVE_LANES", "always", 1);
    c = open_with(2, COMPUTE_LANES_AUTO);
    CHECK(compute_cpu.lanes->pick(c, 1) == 2);
    compute_cpu.close(c);
    setenv("CLEAVE_LANES", "sometimes", 1);
    CHECK(compute_cpu.open(&options, &c, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "CLEAVE_LANES = \"sometimes\"") != NULL, "%s", error.text);
    unsetenv("CLEAVE_LANES");
}

int main(void)
{
    for (uint32_t threads = 1; threads <= 4; threads++)
        check_steps(threads);
    for (uint32_t threads = 2; threads <= 3; threads++)
        check_choice(threads);
    check_environment();
    return 0;
}
