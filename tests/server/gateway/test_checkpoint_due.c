/* Goal: each machine's list has its answers in the order of their times, and equal times in the
 * order of the calls. Method: random operations, and after each one a comparison with a plain table
 * of the times. */
#include "server/gateway/checkpoint_due.h"

#include "common/random.h"
#include "tests/check.h"

#define ANSWERS  40
#define MACHINES 3
#define STEPS    20000

static struct gateway_request requests[ANSWERS];
static struct fleet_machine machines[MACHINES];

/* What the lists must say. */
static struct {
    struct fleet_machine *machine; /* NULL = in no list. */
    int64_t at_us;
    uint32_t step; /* When it was set. */
} model[ANSWERS];

static bool is_before(size_t a, size_t b)
{
    return model[a].at_us < model[b].at_us ||
           (model[a].at_us == model[b].at_us && model[a].step < model[b].step);
}

static void check_list(const struct fleet_machine *machine)
{
    const struct gateway_request *previous = NULL;
    uint32_t count = 0, wanted = 0;
    for (size_t i = 0; i < ANSWERS; i++)
        wanted += model[i].machine == machine;
    for (const struct gateway_request *r = machine->copy_first; r != NULL; r = r->copy_due.next) {
        const size_t i = (size_t)(r - requests);
        CHECK(model[i].machine == machine && r->copy_due.machine == machine);
        CHECK(r->copy_due.at_us == model[i].at_us && r->copy_due.previous == previous);
        CHECK(previous == NULL || is_before((size_t)(previous - requests), i));
        previous = r;
        CHECK(++count <= ANSWERS);
    }
    CHECK(machine->copy_last == previous && count == wanted);
}

int main(void)
{
    const uint64_t seed = test_seed();
    uint64_t draws = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        const size_t i = random_at(seed, draws++) % ANSWERS;
        if (random_at(seed, draws++) % 4 == 0) {
            checkpoint_due_remove(&requests[i]);
            model[i].machine = NULL;
        } else {
            model[i].machine = &machines[random_at(seed, draws++) % MACHINES];
            model[i].at_us = (int64_t)(random_at(seed, draws++) % 30);
            model[i].step = step;
            checkpoint_due_set(&requests[i], model[i].machine, model[i].at_us);
        }
        for (size_t m = 0; m < MACHINES; m++)
            check_list(&machines[m]);
    }
    return 0;
}
