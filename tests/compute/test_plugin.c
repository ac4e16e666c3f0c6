/* Goal: each reason why a GPU cannot be opened has its own line that says what to do, and the CPU
 * replaces the GPU only where that is wanted. Method: opens devices with CLEAVE_CUDA_PLUGIN
 * pointing to nothing, to a text file, to a library that is not a plugin, to a plugin of another
 * version, to the emulated one (tests/gpu/emulator) without a driver, without devices and with one,
 * and to the real one, which must report a missing driver. Each case runs in its own process,
 * because an opened plugin stays loaded. Arguments: the plugin of another version, the emulated
 * one, the real one (may be missing). */
#include "compute/compute.h"
#include "tests/check.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* plugin "" = no plugin is named, and none is in the places that are searched. */
static void expect(const char *plugin, const char *device, const char *wanted)
{
    printf("%s on %s\n", device, plugin);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) {
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return;
    }
    const struct compute_options options = {.threads = 1};
    const struct compute_ops *ops = NULL;
    struct compute *compute = NULL;
    struct error instead, error;
    CHECK(setenv("CLEAVE_CUDA_PLUGIN", plugin, 1) == 0);
    CHECK(compute_device_open(device, false, &options, &ops, &compute, &instead, &error) != ST_OK);
    CHECK(compute == NULL && ops == NULL && instead.text[0] == 0);
    CHECKF(strstr(error.text, wanted) != NULL, "\"%s\" in \"%s\"", wanted, error.text);
    CHECK(compute_device_open(device, true, &options, &ops, &compute, &instead, &error) == ST_OK);
    CHECK(ops == &compute_cpu && compute != NULL);
    CHECKF(strstr(instead.text, wanted) != NULL, "\"%s\" in \"%s\"", wanted, instead.text);
    CHECK(strchr(instead.text, '\n') == NULL);
    printf("    %s\n", instead.text);
    ops->close(compute);
    exit(0);
}

static void expect_device(const char *plugin, const char *device, const char *described)
{
    const struct compute_options options = {.threads = 1};
    const struct compute_ops *ops = NULL;
    struct compute *compute = NULL;
    struct error instead, error = {.text = ""};
    CHECK(setenv("CLEAVE_CUDA_PLUGIN", plugin, 1) == 0);
    enum status status =
        compute_device_open(device, false, &options, &ops, &compute, &instead, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    CHECK(strcmp(ops->name, "cuda") == 0 && instead.text[0] == 0);
    printf("    %s\n", ops->describe(compute));
    CHECK(strstr(ops->describe(compute), described) != NULL);
    ops->close(compute);
}

static void check_names(void)
{
    static const char *const wrong[] = {"cuda:",     "cuda:x", "cuda:-1", "cuda:1 ",
                                        "cuda:1234", "cudax",  "CUDA:0",  "gpu"};
    const struct compute_options options = {.threads = 1};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const struct compute_ops *ops = NULL;
        struct compute *compute = NULL;
        struct error instead, error;
        CHECK(compute_device_open(wrong[i], true, &options, &ops, &compute, &instead, &error) ==
              ST_INVALID);
        CHECKF(strstr(error.text, "want \"cpu\", \"cuda:N\"") != NULL, "%s", error.text);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc >= 3);
    const char *other = argv[1], *emulated = argv[2], *real = argc > 3 ? argv[3] : NULL;
    check_names();
    expect("", "cuda:0", "device cuda:0: no plugin: libcleave-cuda.so is neither beside");
    expect("/nowhere/plugin.so", "cuda", "no plugin: CLEAVE_CUDA_PLUGIN names /nowhere/plugin.so");
    expect("/etc/passwd", "cuda:0", "the plugin cannot be loaded: /etc/passwd");
    expect("libm.so.6", "cuda:0", "no plugin: CLEAVE_CUDA_PLUGIN names libm.so.6");
    expect(other, "cuda:0", "is of another version: interface ");
    CHECK(setenv("CUDA_EMULATED_DRIVER", "none", 1) == 0);
    expect(emulated, "cuda:0", "no driver");
    CHECK(unsetenv("CUDA_EMULATED_DRIVER") == 0 && setenv("CUDA_EMULATED_DEVICES", "0", 1) == 0);
    expect(emulated, "cuda:0", "no device");
    CHECK(setenv("CUDA_EMULATED_DEVICES", "2", 1) == 0);
    expect(emulated, "cuda:2", "this computer has 2 devices, cuda:0 to cuda:1");
    if (real != NULL && access("/dev/nvidiactl", F_OK) != 0)
        expect(real, "cuda:0", "no driver");
    expect_device(emulated, "cuda:1", "capability");
    return 0;
}
