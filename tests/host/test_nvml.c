/* Goal: the energy and the power limit of a GPU are those of the GPU that CUDA numbers as the config
 * says, or unknown. Method: fake_nvml.c is loaded in place of the driver's library. */
#include "host/power_limit.h"
#include "tests/check.h"
#include "tests/host/fake_nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static struct fake_gpu *gpus;
static int *fails;

static void environment(const char *visible, const char *order)
{
    CHECK(visible != NULL ? setenv("CUDA_VISIBLE_DEVICES", visible, 1) == 0
                          : unsetenv("CUDA_VISIBLE_DEVICES") == 0);
    CHECK(order != NULL ? setenv("CUDA_DEVICE_ORDER", order, 1) == 0
                        : unsetenv("CUDA_DEVICE_ORDER") == 0);
}

/* Checks that `device` is gpus[want]; -1 = it must not be found. */
static void check_found(const char *device, int want)
{
    struct energy e;
    energy_open_gpu(device, &e);
    CHECKF(energy_known(&e) == (want >= 0), "%s", device);
    CHECK(energy_used_uj(&e) == 0);
    if (want >= 0) {
        gpus[want].energy_mj += 30;
        gpus[1 - want].energy_mj += 7;
        CHECKF(energy_used_uj(&e) == 30000, "%s", device);
        gpus[want].energy_mj = 10; /* The driver was loaded again. */
        CHECK(energy_used_uj(&e) == 30000);
        gpus[want].energy_mj = 15;
        CHECK(energy_used_uj(&e) == 35000);
        *fails = 1;
        CHECK(energy_used_uj(&e) == 35000);
        *fails = 0;
    }
    energy_close(&e);
    CHECK(!energy_known(&e));
}

static void test_numbers(void)
{
    environment(NULL, NULL);
    check_found("cuda:0", 0);
    check_found("cuda:1", 1);
    check_found("cuda:2", -1);
    check_found("cpu", -1);
    environment("1,0", NULL);
    check_found("cuda", 1);
    check_found("cuda:1", 0);
    environment("1", NULL);
    check_found("cuda:1", -1);
    environment("GPU-bbbb,GPU-cccc", NULL);
    check_found("cuda:0", 1);
    check_found("cuda:1", -1);
    environment("", NULL);
    check_found("cuda:0", -1);
    *fails = 1;
    environment(NULL, NULL);
    check_found("cuda:0", -1);
    *fails = 0;
}

/* CUDA numbers the fastest GPU first, the driver by place. */
static void test_gpus_that_differ(void)
{
    struct nvml n;
    struct error error;
    gpus[1].name = "H100";
    environment(NULL, NULL);
    CHECK(nvml_open("cuda:0", &n, &error) == ST_UNSUPPORTED);
    CHECKF(strstr(error.text, "CUDA_DEVICE_ORDER") != NULL, "%s", error.text);
    nvml_close(&n);
    environment(NULL, "PCI_BUS_ID");
    check_found("cuda:1", 1);
    environment("GPU-bbbb", NULL);
    check_found("cuda:0", 1);
    gpus[1].name = "H200";
}

static void test_limit(void)
{
    struct power_limit limit;
    struct error error;
    environment(NULL, NULL);
    CHECKF(power_limit_set_gpu("cuda:1", 350, &limit, &error) == ST_OK, "%s", error.text);
    CHECK(gpus[1].limit_mw == 350000 && gpus[0].limit_mw == 700000);
    power_limit_restore(&limit);
    CHECK(gpus[1].limit_mw == 700000);
    CHECK(power_limit_set_gpu("cuda:1", 350, &limit, &error) == ST_OK);
    gpus[1].limit_mw = 500000; /* An operator. */
    power_limit_restore(&limit);
    CHECK(gpus[1].limit_mw == 500000);
    CHECK(power_limit_set_gpu("cuda:0", 100, &limit, &error) == ST_IO);
    CHECKF(strstr(error.text, "Invalid Argument") != NULL, "%s", error.text);
    power_limit_restore(&limit);
    CHECK(gpus[0].limit_mw == 700000);
    CHECK(power_limit_set_gpu("cuda:7", 300, &limit, &error) == ST_NOT_FOUND);
    power_limit_restore(&limit);
}

int main(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECKF(library != NULL, "%s", dlerror());
    gpus = dlsym(library, "fake_gpus");
    fails = dlsym(library, "fake_fails");
    CHECK(gpus != NULL && fails != NULL);
    test_numbers();
    test_gpus_that_differ();
    test_limit();
    dlclose(library);
    return 0;
}
