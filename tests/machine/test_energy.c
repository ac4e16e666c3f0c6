/* Goal: a machine reports the energy of its computer to the gateway, also while it has no work, so
 * that the meters are read before they begin anew. Method: a folder of our own in place of Linux's
 * powercap folder; the machine's clock is set forward. */
#include "machine/state.h"
#include "tests/check.h"
#include "tests/machine/cluster.h"
#include "tests/transport/loopback.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/cleave-test-energy-XXXXXX";

static void path_of(const char *file, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/intel-rapl:0%s%s", folder, file[0] != 0 ? "/" : "", file);
}

static void file_write(const char *file, const char *text)
{
    char path[PATH_MAX];
    path_of(file, path);
    FILE *out = fopen(path, "w");
    CHECK(out != NULL && fputs(text, out) >= 0 && fclose(out) == 0);
}

/* Lets `us` microseconds pass for the machine, and returns the energy that it reported last. */
static uint64_t reported_after(struct cluster *c, int64_t us)
{
    cluster_clock_skip(c, us);
    for (int turn = 0; turn < 100; turn++)
        cluster_turn(c, 1);
    return c->stats[0].energy_uj;
}

int main(void)
{
    static const char *const files[] = {"name", "max_energy_range_uj", "energy_uj", ""};
    const struct cluster_options options = {
        .transport = &transport_loopback,
        .model = cluster_synthetic_model(),
        .machine_count = 1,
        .kv_tokens = {320},
        .pools = {POOL_PROMPT},
        .prompt_batch_tokens = 256,
        .threads = 1,
    };
    const struct sampling sampling = cluster_sampling(1);
    uint32_t prompt[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    char path[PATH_MAX];
    CHECK(mkdtemp(folder) != NULL);
    path_of("", path);
    CHECK(mkdir(path, 0700) == 0);
    file_write("name", "package-0\n");
    file_write("max_energy_range_uj", "1000000\n");
    file_write("energy_uj", "999000\n");

    struct cluster *c = cluster_open(&options);
    cluster_clock_stop(c, true);
    struct energy *energy = &c->machines[0]->energy;
    energy_close(energy); /* This computer's, if it has meters. */
    CHECK(reported_after(c, 20000000) == 0);
    energy_open(folder, energy);
    CHECK(energy->package_count == 1);

    file_write("energy_uj", "999700\n");
    (void)cluster_submit(c, prompt, 8, &sampling, 0, 0, TRANSFER_AUTO, false);
    cluster_clock_stop(c, false);
    cluster_finish(c);
    cluster_clock_stop(c, true);
    CHECK(reported_after(c, 200000) == 700);

    /* Without work. The meter has begun anew. */
    file_write("energy_uj", "300\n");
    CHECK(reported_after(c, 9000000) == 700);
    CHECK(reported_after(c, 2000000) == 1300);
    cluster_clock_stop(c, false);
    cluster_close(c);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        path_of(files[i], path);
        CHECK(remove(path) == 0);
    }
    CHECK(rmdir(folder) == 0);
    return 0;
}
