/* Goal: `cleave machine` as a process: it reports when it is ready, ends cleanly on request, never
 * outlives its parent, and sleeps when idle; an operator's mistake gives exit status 1 (2 if an
 * option is wrong) and one line that names what is wrong; a machine computes on the device of its
 * entry. Method: runs the binary (argument 1) with the synthetic model, and reads its standard
 * error and its CPU time. */
#include "tests/check.h"
#include "tests/machine/cluster.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *cleave;
static char model_set[LIMIT_PATH_BYTES];
static bool parent_ends_early; /* A machine starts with a ready pipe that no process reads. */

struct process {
    pid_t pid;
    int ready;  /* Reads what the machine writes to --ready-fd. */
    int errors; /* Reads the machine's standard error. */
};

/* extra: NULL-terminated arguments after CONFIG and NAME. */
static struct process start(const char *config, const char *name, const char *const *extra)
{
    int ready[2], errors[2];
    CHECK(pipe(ready) == 0 && pipe(errors) == 0);
    if (parent_ends_early) {
        close(ready[0]);
        ready[0] = -1;
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char fd[16];
        const char *argv[32] = {cleave,       "machine", config,  name,
                                "--ready-fd", fd,        "--set", model_set};
        int count = 8;
        snprintf(fd, sizeof(fd), "%d", ready[1]);
        for (int i = 0; extra != NULL && extra[i] != NULL; i++)
            argv[count++] = extra[i];
        dup2(errors[1], STDERR_FILENO);
        if (ready[0] >= 0)
            close(ready[0]);
        close(errors[0]);
        execv(cleave, (char *const *)argv);
        _exit(127);
    }
    close(ready[1]);
    close(errors[1]);
    return (struct process){.pid = pid, .ready = ready[0], .errors = errors[0]};
}

/* Waits until the machine is ready, and reads the address that it serves at. */
static void wait_ready(const struct process *process, char address[LIMIT_ADDRESS_BYTES])
{
    char line[LIMIT_ADDRESS_BYTES + 16] = "";
    struct pollfd fd = {.fd = process->ready, .events = POLLIN};
    CHECK(poll(&fd, 1, 60000) == 1);
    ssize_t got = read(process->ready, line, sizeof(line) - 1);
    CHECKF(got > 6 && strncmp(line, "ready ", 6) == 0 && line[got - 1] == '\n', "it said \"%s\"",
           line);
    line[got - 1] = 0;
    snprintf(address, LIMIT_ADDRESS_BYTES, "%.*s", LIMIT_ADDRESS_BYTES - 1, line + 6);
    printf("ready at %s\n", address);
}

static void read_all(int fd, char *text, size_t capacity)
{
    size_t used = 0;
    for (ssize_t got;
         used + 1 < capacity && (got = read(fd, text + used, capacity - used - 1)) > 0;)
        used += (size_t)got;
    text[used] = 0;
}

static int wait_exit(struct process *process)
{
    int status;
    CHECK(waitpid(process->pid, &status, 0) == process->pid);
    if (process->ready >= 0)
        close(process->ready);
    close(process->errors);
    CHECKF(WIFEXITED(status), "it died of signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* Exit status 2 if an option is wrong and 1 otherwise, and one line that names both. */
static void check_mistake(const char *config, const char *name, const char *const *extra,
                          const char *part1, const char *part2)
{
    char text[4096];
    struct process process = start(config, name, extra);
    read_all(process.errors, text, sizeof(text));
    int code = wait_exit(&process);
    printf("%s", text);
    CHECKF(code == (strstr(text, "--help") != NULL ? 2 : 1), "exit code %d", code);
    CHECKF(strstr(text, part1) != NULL && strstr(text, part2) != NULL, "want \"%s\" and \"%s\"",
           part1, part2);
    const char *line = strstr(text, "cleave machine: "); /* Earlier log lines are not the error. */
    CHECK(line != NULL && strchr(line, '\n') == line + strlen(line) - 1);
}

static long cpu_ticks(pid_t pid)
{
    char path[64], text[1024] = "";
    long user = 0, kernel = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    CHECK(sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld",
                 &user, &kernel) == 2);
    return user + kernel;
}

/* The machine uses less than 1 % of a core. Remaining work of its start may fall in the first
 * window. */
static void check_idle(pid_t pid)
{
    long limit = 3 * sysconf(_SC_CLK_TCK) / 100, ticks = limit + 1;
    for (int i = 0; i < 3 && ticks > limit; i++) {
        usleep(200000);
        long before = cpu_ticks(pid);
        usleep(3000000);
        ticks = cpu_ticks(pid) - before;
        printf("idle for 3 s: %.2f %% of a core\n",
               (double)ticks * 100 / (double)sysconf(_SC_CLK_TCK) / 3);
    }
    CHECK(ticks <= limit);
}

static void check_life(void)
{
    char address[LIMIT_ADDRESS_BYTES], text[8192];
    struct process process = start("embedded", "token-0", NULL);
    wait_ready(&process, address);
    check_idle(process.pid);

    const char *const same[] = {"--listen", address, NULL};
    check_mistake("embedded", "prompt-0", same, address, "in use");

    CHECK(kill(process.pid, SIGTERM) == 0);
    read_all(process.errors, text, sizeof(text));
    int code = wait_exit(&process);
    CHECKF(code == 0, "exit code %d: %s", code, text);
    CHECK(strstr(text, "stops") != NULL && strstr(text, "error") == NULL);
}

/* A machine whose parent has ended before the machine listens says why it ends. */
static void check_early_orphan(void)
{
    parent_ends_early = true;
    check_mistake("embedded", "prompt-0", NULL, "the process that started this one", "has ended");
    check_mistake("embedded", "prompt-9", NULL, "prompt-9", "embedded");
    parent_ends_early = false;
}

/* A parent that is killed cannot inform its child; the kernel does. */
static void check_orphan(void)
{
    int report[2];
    char address[LIMIT_ADDRESS_BYTES];
    CHECK(pipe(report) == 0);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid_t parent = fork();
    CHECK(parent >= 0);
    if (parent == 0) {
        struct process process = start("embedded", "prompt-0", NULL);
        wait_ready(&process, address);
        CHECK(write(report[1], &process.pid, sizeof(process.pid)) == sizeof(process.pid));
        pause();
    }
    pid_t child;
    int status;
    CHECK(read(report[0], &child, sizeof(child)) == sizeof(child));
    CHECK(kill(parent, SIGKILL) == 0 && waitpid(parent, &status, 0) == parent);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Writes a config file whose machine w computes on `device`. `more` has more keys of its entry. */
static void write_device_config(const char *path, const char *device, const char *more)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file,
            "{\"pools\": {\"mixed\": [\"w\"]}, \"machines\": {\"w\": {\"device\": \"%s\"%s}}}",
            device, more);
    CHECK(fclose(file) == 0);
}

static void check_devices(void)
{
    char path[] = "/tmp/cleave-test-device-XXXXXX", address[LIMIT_ADDRESS_BYTES], text[8192];
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    write_device_config(path, "wait:5", "");
    check_mistake(path, "w", NULL, "machine w: device = \"wait:5\"", "wait:LAYER_US+ROW_US");
    write_device_config(path, "wait:5+2.5", "");
    struct process process = start(path, "w", NULL);
    wait_ready(&process, address);
    CHECK(kill(process.pid, SIGTERM) == 0);
    read_all(process.errors, text, sizeof(text));
    CHECK(wait_exit(&process) == 0);
    CHECKF(strstr(text, "waits of 5 us a layer and 2.5 us a row") != NULL, "%s", text);
    /* If the GPU does not exist, the machine does not start; with `fallback` it uses the CPU and
     * says so once. */
    CHECK(setenv("CLEAVE_CUDA_PLUGIN", "/nowhere/plugin.so", 1) == 0);
    write_device_config(path, "cuda:1", "");
    check_mistake(path, "w", NULL, "machine w: device cuda:1: no plugin", "/nowhere/plugin.so");
    write_device_config(path, "cuda:1", ", \"fallback\": true");
    process = start(path, "w", NULL);
    wait_ready(&process, address);
    CHECK(kill(process.pid, SIGTERM) == 0);
    read_all(process.errors, text, sizeof(text));
    CHECK(wait_exit(&process) == 0);
    const char *warning = strstr(text, "machine w computes on the CPU: device cuda:1: no plugin: ");
    CHECKF(warning != NULL && strstr(warning + 20, "on the CPU") == NULL, "%s", text);
    CHECK(unsetenv("CLEAVE_CUDA_PLUGIN") == 0);
    unlink(path);
}

static void check_mistakes(const char *model)
{
    char cut[] = "/tmp/cleave-test-cut-XXXXXX", cut_set[64], bytes[3000];
    int source = open(model, O_RDONLY);
    int fd = mkstemp(cut);
    CHECK(source >= 0 && fd >= 0 && read(source, bytes, sizeof(bytes)) == sizeof(bytes));
    CHECK(write(fd, bytes, sizeof(bytes)) == sizeof(bytes));
    close(fd);
    close(source);
    snprintf(cut_set, sizeof(cut_set), "model=%s", cut);
    const char *const cut_model[] = {"--set", cut_set, NULL};
    const char *const no_model[] = {"--set", "model=/nowhere/model.gguf", NULL};
    const char *const bad_key[] = {"--set", "kv/memroy=1GiB", NULL};
    const char *const no_value[] = {"--set", "kv/memory", NULL};
    const char *const huge[] = {"--set", "kv/memory=8TiB", NULL};
    const char *const bad_address[] = {"--listen", "no.such.host.invalid:99999", NULL};
    check_mistake("embedded", "prompt-9", NULL, "prompt-9", "embedded");
    check_mistake("/nowhere/cleave.json", "prompt-0", NULL, "/nowhere/cleave.json", "No such file");
    check_mistake("embedded", "prompt-0", cut_model, cut + 5, "data ends");
    check_mistake("embedded", "prompt-0", no_model, "/nowhere/model.gguf", "");
    check_mistake("embedded", "prompt-0", bad_key, "kv/memroy", "kv/memory");
    check_mistake("embedded", "prompt-0", no_value, "kv/memory", "KEY=VALUE");
    check_mistake("embedded", "prompt-0", huge, "memory", "");
    check_mistake("embedded", "prompt-0", bad_address, "no.such.host.invalid:99999", "");
    unlink(cut);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    cleave = argv[1];
    const char *model = cluster_synthetic_model();
    snprintf(model_set, sizeof(model_set), "model=%s", model);
    setlinebuf(stdout);
    check_mistakes(model);
    check_devices();
    check_life();
    check_early_orphan();
    check_orphan();
    return 0;
}
