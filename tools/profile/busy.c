/* profile_busy: see the header. */
#include "tools/profile/busy.h"

#include "common/parent.h"
#include "tools/profile/step.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Work of the processes: a prompt chunk of medium length, or decode steps. */
#define PROMPT_TOKENS  128
#define PROMPT_CONTEXT 256
#define STEP_SEQUENCES 16
#define STEP_CONTEXT   384

/* Never returns. The process is killed, or ends with the measuring process. */
static void child_run(const struct model_file *file, const char *device, uint32_t threads,
                      const _Atomic bool *decode, int ready)
{
    const struct profile_step_options options = {
        .file = file,
        .device = device,
        .threads = threads,
        .rows_max = PROMPT_TOKENS,
        .sequences_max = STEP_SEQUENCES,
        .prompt_tokens_max = PROMPT_TOKENS + PROMPT_CONTEXT,
        .decode_tokens_max = STEP_SEQUENCES * (STEP_CONTEXT + 1),
    };
    struct profile_step *step;
    struct profile_step_times times;
    struct error error;
    if (profile_step_open(&options, &step, &error) != ST_OK) {
        fprintf(stderr, "cleave profile: --beside: %s\n", error.text);
        _exit(1);
    }
    if (write(ready, "", 1) != 1)
        _exit(1);
    close(ready); /* The pipe ends when all processes have reported or died. */
    for (;;) {
        if (atomic_load(decode))
            profile_step_token(step, STEP_SEQUENCES, STEP_CONTEXT, &times);
        else
            profile_step_prompt(step, PROMPT_TOKENS, PROMPT_CONTEXT, 0, &times);
    }
}

enum status profile_busy_start(const struct model_file *file, const char *device, uint32_t threads,
                               uint32_t count, struct profile_busy *out, struct error *error)
{
    int pipes[2];
    char byte;
    *out = (struct profile_busy){.count = 0};
    if (count == 0)
        return ST_OK;
    void *shared =
        mmap(NULL, sizeof(*out->decode), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return error_set(error, ST_NO_MEMORY, "--beside: %s", strerror(errno));
    out->decode = shared;
    if (pipe(pipes) != 0)
        return error_set(error, ST_IO, "--beside: %s", strerror(errno));
    for (uint32_t i = 0; i < count && i < PROFILE_BUSY_MAX; i++) {
        pid_t parent = getpid();
        pid_t pid = fork();
        if (pid == 0) {
            parent_end_signal_set(SIGKILL, parent);
            close(pipes[0]);
            child_run(file, device, threads, out->decode, pipes[1]);
        }
        if (pid > 0)
            out->pids[out->count++] = pid;
    }
    close(pipes[1]);
    uint32_t ready = 0;
    while (ready < count && read(pipes[0], &byte, 1) == 1)
        ready++;
    close(pipes[0]);
    return ready == count ? ST_OK
                          : error_set(error, ST_NO_RESOURCE, "--beside: %u of %u processes started",
                                      ready, count);
}

static void processes_signal(const struct profile_busy *busy, int signal)
{
    for (uint32_t i = 0; i < busy->count; i++)
        kill(busy->pids[i], signal);
}

void profile_busy_pause(const struct profile_busy *busy)
{
    processes_signal(busy, SIGSTOP);
}

void profile_busy_resume(const struct profile_busy *busy, bool decode)
{
    if (busy->decode != NULL)
        atomic_store(busy->decode, decode);
    processes_signal(busy, SIGCONT);
}

void profile_busy_stop(struct profile_busy *busy)
{
    for (uint32_t i = 0; i < busy->count; i++) {
        kill(busy->pids[i], SIGKILL);
        waitpid(busy->pids[i], NULL, 0);
    }
    if (busy->decode != NULL)
        munmap((void *)busy->decode, sizeof(*busy->decode));
    *busy = (struct profile_busy){.count = 0};
}
