/* Goal: a profile has the mean power of the CPUs if there is a meter, and none if there is no meter.
 * Method: the CPU backend on a small synthetic model; a thread writes the file of a meter in a
 * folder in the form of Linux's powercap folder, at 40 W. On a busy computer the thread runs late, so
 * one measurement of many must be right; with a wrong unit none is. */
#include "tests/check.h"
#include "tests/model/forward/synthetic.h"
#include "tools/profile/device.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WATTS 40
#define TRIES 50

static char folder[] = "/tmp/cleave-test-power-XXXXXX";
static char package[64];
static atomic_bool ended;

static void file_write(const char *name, const char *text)
{
    char path[100];
    snprintf(path, sizeof(path), "%s/%s", package, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Numbers of constant length are written in place, so that no reader sees an empty file. */
static void *meter(void *self)
{
    int fd = *(int *)self;
    while (!atomic_load(&ended)) {
        struct timespec now;
        char text[40];
        clock_gettime(CLOCK_MONOTONIC, &now);
        int bytes = snprintf(
            text, sizeof(text), "%018llu\n",
            (unsigned long long)(((double)now.tv_sec + 1e-9 * (double)now.tv_nsec) * WATTS * 1e6));
        CHECK(pwrite(fd, text, (size_t)bytes, 0) == bytes);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return NULL;
}

static void progress(void *self, const char *what, double share, double seconds)
{
    (void)self, (void)what, (void)share, (void)seconds;
}

static void measure(struct model_file *file, const char *energy_folder, struct profile *out)
{
    struct error error = {""};
    const struct profile_device_options options = {.file = file,
                                                   .device = "cpu",
                                                   .host = "a",
                                                   .threads = 1,
                                                   .ranks = 1,
                                                   .budget_seconds = 0.1,
                                                   .quick = true,
                                                   .energy_folder = energy_folder,
                                                   .progress = progress};
    CHECKF(profile_device_measure(&options, out, &error) == ST_OK, "%s", error.text);
    CHECK(out->device_count == 1);
}

static bool power_near(double watts)
{
    return watts > WATTS / 2.0 && watts < WATTS * 2.0;
}

static bool power_found(struct model_file *file)
{
    struct profile *p = calloc(1, sizeof(*p));
    CHECK(p != NULL);
    measure(file, folder, p);
    bool found = power_near(p->devices[0].prompt_w) && power_near(p->devices[0].token_w);
    profile_close(p);
    return found;
}

int main(void)
{
    char meter_path[100];
    struct synthetic s = synthetic_default();
    uint8_t *image;
    struct model_file *file = synthetic_open(&s, "small", &image);
    CHECK(mkdtemp(folder) != NULL);
    struct profile *none = calloc(1, sizeof(*none));
    CHECK(none != NULL);
    measure(file, folder, none);
    CHECK(none->devices[0].prompt_w == 0 && none->devices[0].token_w == 0);

    snprintf(package, sizeof(package), "%s/intel-rapl:0", folder);
    CHECK(mkdir(package, 0700) == 0);
    file_write("name", "package-0\n");
    file_write("max_energy_range_uj", "999999999999999999\n");
    file_write("energy_uj", "000000000000000000\n");
    snprintf(meter_path, sizeof(meter_path), "%s/energy_uj", package);
    int meter_fd = open(meter_path, O_WRONLY);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, meter, &meter_fd) == 0);
    uint32_t tries = 1;
    while (!power_found(file) && tries < TRIES)
        tries++;
    CHECKF(tries < TRIES, "no power near %d W in %d measurements", WATTS, TRIES);
    atomic_store(&ended, true);
    CHECK(pthread_join(thread, NULL) == 0 && close(meter_fd) == 0);

    static const char *const files[] = {"name", "max_energy_range_uj", "energy_uj"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(meter_path, sizeof(meter_path), "%s/%s", package, files[i]);
        CHECK(unlink(meter_path) == 0);
    }
    CHECK(rmdir(package) == 0 && rmdir(folder) == 0);
    profile_close(none);
    model_file_close(file);
    free(image);
    return 0;
}
