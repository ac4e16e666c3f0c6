/* Goal: a config's device names its backend, and a wrong device gives one error that names the
 * value and the valid ones; every backend has each function of its tables. Method: a table of
 * texts; GPUs are opened without a plugin; copies of the CPU's tables with one function missing. */
#include "compute/plugin.h"

#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

static void check_good(const char *device, const struct compute_ops *wanted, int64_t layer_ns,
                       int64_t row_ns)
{
    const struct compute_ops *ops = NULL;
    struct compute_options options = {.threads = 7};
    struct error error = {""};
    CHECKF(compute_device_find(device, &ops, &options, &error) == ST_OK, "%s", error.text);
    CHECKF(ops == wanted, "%s", device);
    CHECKF(options.wait_layer_ns == layer_ns && options.wait_row_ns == row_ns,
           "%s: %" PRId64 " and %" PRId64, device, options.wait_layer_ns, options.wait_row_ns);
    CHECK(options.threads == 7);
}

static void check_bad(const char *device)
{
    const struct compute_ops *ops = NULL;
    struct compute_options options = {.threads = 7};
    struct error error = {""};
    char value[64];
    CHECKF(compute_device_find(device, &ops, &options, &error) == ST_INVALID, "%s", device);
    CHECK(ops == NULL && options.wait_layer_ns == 0 && options.wait_row_ns == 0);
    snprintf(value, sizeof(value), "device = \"%s\"", device);
    CHECKF(strstr(error.text, value) != NULL && strstr(error.text, "wait:2000+10") != NULL, "%s",
           error.text);
}

/* The message names the GPU's number, though no GPU exists. */
static void check_absent(const char *device, uint32_t number)
{
    const struct compute_ops *ops = NULL;
    struct compute_options options = {.threads = 7};
    struct error error = {""};
    CHECKF(compute_device_find(device, &ops, &options, &error) == ST_NOT_FOUND, "%s", device);
    CHECK(ops == NULL && options.device == number && options.threads == 7);
    CHECKF(strstr(error.text, device) != NULL && strstr(error.text, "no-such-plugin") != NULL, "%s",
           error.text);
}

static void check_complete(void)
{
    struct compute_ops ops = compute_cpu;
    struct compute_group_ops group = *ops.group;
    CHECK(compute_ops_complete(&compute_cpu) && compute_ops_complete(&compute_wait));
    CHECK(ops.steps == NULL && ops.sampling == NULL);
    ops.lanes = NULL;
    ops.group = &group;
    CHECK(compute_ops_complete(&ops));
    group.gather = NULL;
    CHECK(!compute_ops_complete(&ops));
    ops.group = NULL;
    CHECK(compute_ops_complete(&ops));
    ops.norm_add = NULL; /* The last function of the table. */
    CHECK(!compute_ops_complete(&ops));
}

int main(void)
{
    static const char *const bad[] = {
        "",          "CPU",       "cpu ",       "cuda:",      "cuda0",      "cuda:x",
        "cuda:-1",   "cuda:1000", "cuda:0 ",    "CUDA:0",     "wait",       "wait:",
        "wait:1",    "wait:1+",   "wait:+1",    "wait:1+2+3", "wait:1+2 ",  "wait: 1+2",
        "wait:-1+2", "wait:1+-2", "wait:1e3+2", "wait:0x1+2", "wait:inf+2", "wait:nan+2",
        "wait:1.+2", "wait:.5+2", "wait:1,5+2", "wait:1+2us", "wait:1 + 2", "wait:10000001+0",
    };
    check_complete();
    check_good("cpu", &compute_cpu, 0, 0);
    check_good("wait:2000+10", &compute_wait, 2000000, 10000);
    check_good("wait:0+0", &compute_wait, 0, 0);
    check_good("wait:0.5+0.0625", &compute_wait, 500, 63);
    check_good("wait:10000000+12.25", &compute_wait, 10000000000, 12250);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        check_bad(bad[i]);
    setenv("CLEAVE_CUDA_PLUGIN", "/no-such-plugin.so", 1);
    check_absent("cuda", 0);
    check_absent("cuda:0", 0);
    check_absent("cuda:12", 12);
    return 0;
}
