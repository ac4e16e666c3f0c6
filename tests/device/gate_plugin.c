/* gate_plugin: the CPU backend, which a test can stop at a chosen layer of a batch. A config opens
 * it as "cuda:N" while the environment's CLEAVE_CUDA_PLUGIN names this library. So a test of real
 * processes can hold a machine in the middle of a prompt, or between two decode steps, for any
 * time, and does not depend on the right moment.
 *
 * The environment's CLEAVE_GATES names a folder. The process of machine t0 looks there at the start
 * of each layer for the file "t0" (stage process 1 of t0: "t0:1"). Its text is "LAYER ROWS": a
 * batch of at least ROWS rows stops before layer LAYER, counted from the first layer that the
 * process computes. The process then creates the file "t0.held" and waits until the file "t0" is
 * gone or has another text, but at most HOLD_S_MAX. The event loop of the machine runs on
 * meanwhile.
 *
 * CLEAVE_GATE_CRASH_TOKEN: the process aborts when a batch has this token, as a bug that one
 * request meets would make it. CLEAVE_GATE_FAIL_TOKEN: the device fails at this token instead.
 *
 * CLEAVE_GATE_PACE_US: every batch takes at least this many microseconds, so that an answer of N
 * tokens lasts a known least time on a computer of any speed. */
#include "compute/cpu/cpu.h"
#include "compute/plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HOLD_S_MAX     300
#define POLL_US        5000
#define NAME_BYTES_MAX 64

static struct compute_ops gate_ops;
static char gate_path[4096]; /* "" = no gates. */
static char held_path[4200];
static uint32_t pace_us;
static uint32_t crash_token = UINT32_MAX; /* UINT32_MAX = none. */
static uint32_t fail_token = UINT32_MAX;  /* UINT32_MAX = none. */
static atomic_bool has_failed;            /* A batch has had fail_token. */
static _Thread_local uint32_t layer;      /* The next layer of the running batch. */

static void pause_us(uint32_t us)
{
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Reads the gate's text. Returns false if there is no gate. */
static bool gate_read(char text[64])
{
    int fd = open(gate_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t count = read(fd, text, 63);
    close(fd);
    text[count < 0 ? 0 : count] = 0;
    return count > 0;
}

static bool gate_stops(const char *text, uint32_t row_count)
{
    unsigned gate_layer, rows_min;
    return sscanf(text, "%u %u", &gate_layer, &rows_min) == 2 && layer == gate_layer &&
           row_count >= rows_min;
}

static void held_write(const char *text)
{
    int fd = open(held_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        perror(held_path);
    close(fd);
}

static void gate_wait(uint32_t row_count)
{
    char text[64], now[64];
    if (gate_path[0] == 0 || !gate_read(text) || !gate_stops(text, row_count))
        return;
    held_write(text);
    for (uint64_t us = 0; us < HOLD_S_MAX * 1000000ull; us += POLL_US) {
        if (!gate_read(now) || strcmp(now, text) != 0)
            break;
        pause_us(POLL_US);
    }
    unlink(held_path);
}

static bool gate_step_begin(struct compute *c, const struct compute_step *step)
{
    (void)c;
    (void)step;
    layer = 0;
    if (pace_us > 0)
        pause_us(pace_us);
    return false;
}

static void gate_step_end(struct compute *c)
{
    (void)c;
}

static uint32_t gate_padded_rows(const struct compute *c, const struct compute_step *step,
                                 uint32_t rows_max)
{
    (void)c, (void)rows_max;
    return step->batch.row_count;
}

static void gate_prepare(struct compute *c)
{
    (void)c;
}

static bool gate_next_shape(struct compute *c, uint32_t index, uint32_t rows_max,
                            uint32_t tokens_max, uint32_t *rows_out, uint32_t *tokens_out)
{
    (void)c, (void)index, (void)rows_max, (void)tokens_max, (void)rows_out, (void)tokens_out;
    return false;
}

static const struct compute_steps_ops gate_steps = {
    .begin = gate_step_begin,
    .end = gate_step_end,
    .padded_rows = gate_padded_rows,
    .prepare = gate_prepare,
    .next_shape = gate_next_shape,
};

static void gate_layer_begin(struct compute *c, uint32_t row_count)
{
    (void)c;
    gate_wait(row_count);
    layer++;
}

static void gate_embed(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
                       uint32_t count, float *y)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == crash_token)
            abort();
        else if (ids[i] == fail_token)
            atomic_store(&has_failed, true);
    compute_cpu.embed(c, m, ids, count, y);
}

static enum status gate_check(struct compute *c, struct error *error)
{
    return atomic_load(&has_failed) ? error_set(error, ST_IO, "it met token %u", fail_token)
                                    : compute_cpu.check(c, error);
}

static uint32_t token_read(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : UINT32_MAX;
}

/* Returns "t0" for `cleave machine [CONFIG] t0 --OPTION …`, "t0:1" with `--stage 1`. */
static void process_name(char name[NAME_BYTES_MAX])
{
    char line[8192], *words[64] = {NULL};
    int count = 0;
    const char *stage = NULL;
    name[0] = 0;
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t bytes = file != NULL ? fread(line, 1, sizeof(line) - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    line[bytes] = 0;
    for (char *at = line; at < line + bytes && count < 64; at += strlen(at) + 1)
        words[count++] = at;
    for (int i = 0; i + 1 < count; i++)
        if (strcmp(words[i], "--stage") == 0)
            stage = words[i + 1];
    int last = 0; /* Index of the last word before the options. */
    while (last + 1 < count && strncmp(words[last + 1], "--", 2) != 0)
        last++;
    if (last >= 2 && strcmp(words[1], "machine") == 0)
        snprintf(name, NAME_BYTES_MAX, "%s%s%s", words[last], stage != NULL ? ":" : "",
                 stage != NULL ? stage : "");
}

__attribute__((constructor)) static void gate_open(void)
{
    const char *folder = getenv("CLEAVE_GATES"), *pace = getenv("CLEAVE_GATE_PACE_US");
    char name[NAME_BYTES_MAX];
    process_name(name);
    if (folder != NULL && name[0] != 0) {
        snprintf(gate_path, sizeof(gate_path), "%s/%s", folder, name);
        snprintf(held_path, sizeof(held_path), "%s.held", gate_path);
    }
    pace_us = pace != NULL ? (uint32_t)strtoul(pace, NULL, 10) : 0;
    crash_token = token_read("CLEAVE_GATE_CRASH_TOKEN");
    fail_token = token_read("CLEAVE_GATE_FAIL_TOKEN");
    gate_ops = compute_cpu;
    gate_ops.check = gate_check;
    gate_ops.embed = gate_embed;
    gate_ops.steps = &gate_steps;
    gate_ops.layer_begin = gate_layer_begin;
}

__attribute__((visibility("default"))) extern const struct compute_plugin cleave_compute_plugin;
const struct compute_plugin cleave_compute_plugin = {COMPUTE_PLUGIN_ABI, COMPUTE_PLUGIN_OPS_BYTES,
                                                     sizeof(struct compute_options), CLEAVE_VERSION,
                                                     &gate_ops};
