/* Goal: `cleave plan` takes as many clusters as its limit allows, and names the limit if they are
 * more. Method: sixteen values of --fixed, each with 32 or 33 clusters, of which "paper" makes
 * six; the arguments are read, and nothing is simulated. */
#include "tools/plan/setup.h"

#include "tests/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIXED_COUNT 16

static char lengths_path[] = "/tmp/test_plan_clusters.XXXXXX";

/* Reads the setup of four times "paper" and `single` clusters of one kind. */
static enum status setup_read(int single, struct plan_setup *setup, struct error *error)
{
    static const char *const files[] = {"a100", "h100", "h100-capped"};
    static char texts[2 * FIXED_COUNT][1024];
    static struct plan_options options;
    const char *source = getenv("CLEAVE_SOURCE");
    char *argv[64] = {"plan"};
    int argc = 1, used = 0;
    CHECK(source != NULL);
    snprintf(texts[used], sizeof(texts[0]), "--table=%s/tests/data/splitwise/perf_model.csv",
             source);
    argv[argc++] = texts[used++];
    snprintf(texts[used], sizeof(texts[0]), "--lengths=%s", lengths_path);
    argv[argc++] = texts[used++];
    for (int i = 0; i < 3; i++) {
        snprintf(texts[used], sizeof(texts[0]), "--hardware=%s/deploy/hardware/%s.json", source,
                 files[i]);
        argv[argc++] = texts[used++];
    }
    for (int i = 1; i <= FIXED_COUNT; i++) {
        snprintf(texts[used], sizeof(texts[0]), "--fixed=machines=%d", i);
        argv[argc++] = texts[used++];
    }
    for (int i = 0; i < 4; i++)
        argv[argc++] = "--clusters=paper";
    for (int i = 0; i < single; i++)
        argv[argc++] = "--clusters=h100";
    memset(&options, 0, sizeof(options));
    CHECKF(options_read(&plan_options_table, argc, argv, &options, error) == ST_OK, "%s",
           error->text);
    return plan_setup_read(&options, setup, error);
}

int main(void)
{
    static struct plan_setup setup;
    struct error error = {""};
    int fd = mkstemp(lengths_path);
    CHECK(fd >= 0);
    CHECK(dprintf(fd, "arrival_timestamp,prompt_size,token_size\n") > 0);
    for (int i = 0; i < 100; i++)
        CHECK(dprintf(fd, "%d,50,10\n", i) > 0);
    CHECK(close(fd) == 0);
    CHECKF(setup_read(8, &setup, &error) == ST_OK, "%s", error.text);
    CHECKF(setup.cell_count == PLAN_CELLS_MAX, "%u clusters", setup.cell_count);
    plan_setup_done(&setup);
    CHECK(setup_read(9, &setup, &error) == ST_TOO_LARGE);
    CHECKF(strcmp(error.text,
                  "more than 512 clusters: each cluster counts once for each --fixed") == 0,
           "%s", error.text);
    plan_setup_done(&setup);
    CHECK(unlink(lengths_path) == 0);
    return 0;
}
