/* Goal: a stage process refuses a GROUP that it does not wait for, and its group stays as it is.
 *
 * Method: stage_group_take with a stage that has no transport: without ranks, and in each state of
 * the group of a rank except the one that waits for GROUP. */
#include "machine/executor/stage_state.h"
#include "tests/check.h"

#include <string.h>

static struct stage_plan_process process;
static struct stage stage = {.process = &process};

static void check_refused(enum stage_group_state state, const char *wanted)
{
    static const struct stage_group group = {.device = "cpu"};
    struct error error = {0};
    stage.group_state = state;
    CHECK(stage_group_take(&stage, &group, &error) == ST_INVALID);
    CHECKF(strstr(error.text, wanted) != NULL, "%s", error.text);
    CHECK(stage.group_state == state);
}

int main(void)
{
    process.shard.rank_count = 1;
    check_refused(GROUP_NONE, "not divided into ranks");
    process.shard.rank_count = 2;
    for (uint32_t rank = 0; rank < 2; rank++) {
        process.shard.rank = rank;
        for (enum stage_group_state state = GROUP_NONE; state <= GROUP_FAILED; state++)
            if (state != (rank == 0 ? GROUP_MADE : GROUP_NONE))
                check_refused(state, "comes twice");
    }
    return 0;
}
