/* Goal: the processes that compute beside a measurement all run when it begins and are all gone
 * when it ends; a missing process is an error, not an endless wait. Method: the waiting backend on
 * a small synthetic model; one process more than the maximum stands for one that never reports. */
#include "tests/check.h"
#include "tests/model/forward/synthetic.h"
#include "tools/profile/busy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEVICE       "wait:200000+1" /* So slow that the processes' start-up does not matter. */
#define TEST_LIMIT_S 300

/* missing 0 = all requested processes report. */
static void check_start(const struct model_file *file, uint32_t count, uint32_t missing)
{
    struct profile_busy beside;
    struct error error = {""};
    char wanted[64];
    enum status status = profile_busy_start(file, DEVICE, 1, count + missing, &beside, &error);
    snprintf(wanted, sizeof(wanted), "%u of %u processes", count, count + missing);
    CHECKF(status == (missing > 0 ? ST_NO_RESOURCE : ST_OK), "%s", error.text);
    CHECKF(missing == 0 || strstr(error.text, wanted) != NULL, "%s", error.text);
    CHECK(beside.count == count);
    profile_busy_pause(&beside);
    profile_busy_resume(&beside, true);
    profile_busy_stop(&beside);
    CHECK(waitpid(-1, NULL, 0) < 0 && errno == ECHILD);
}

int main(void)
{
    alarm(TEST_LIMIT_S);
    struct synthetic s = synthetic_default();
    uint8_t *image;
    struct model_file *file = synthetic_open(&s, "small", &image);
    check_start(file, 0, 0);
    check_start(file, 3, 0);
    check_start(file, PROFILE_BUSY_MAX, 1);
    model_file_close(file);
    free(image);
    return 0;
}
