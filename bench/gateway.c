/* bench-gateway CLEAVE MODEL [options]: measures what a streamed token costs the gateway: the CPU
 * time of a real `cleave serve` with machines that compute nothing (gateway_machine.h), for several
 * numbers of open streams. All streams have their first token before the first step; the first and
 * the last steps are not counted. Prints one line for each number of streams.
 *
 * One thread is all machines and clients, so with two cores the gateway has a core of its own. */
#include "bench/gateway_machine.h"
#include "bench/gateway_streams.h"
#include "common/clock.h"
#include "common/parent.h"
#include "model/file/model_file.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MACHINES_MAX LIMIT_MACHINES
#define COUNTS_MAX   16
#define EVENTS_MAX   256
#define EDGE_STEPS   5        /* Steps at each end that are not counted. */
#define STALL_US     30000000 /* If nothing happens for this long, the gateway hangs. */
#define FILES_BESIDE 64

struct options {
    const char *cleave;
    const char *model;
    uint32_t counts[COUNTS_MAX];
    uint32_t count_count;
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
    uint32_t step_ms;
    uint32_t machines;
    bool check;
};

struct bench {
    struct options options;
    int epoll;
    pid_t gateway;
    int stdout_fd; /* The gateway's standard output. */
    uint16_t port;
    char folder[64];
    char config[96];
    struct gateway_machine_fake *machines[MACHINES_MAX];
    struct gateway_streams *streams;
};

struct figures {
    int64_t cpu_ns;
    int64_t wall_us;
    uint64_t user_ticks;
    uint64_t system_ticks;
    uint64_t resident_pages;
};

/* ---- the gateway ---- */

static enum status config_make(struct bench *b, struct error *error)
{
    const struct options *options = &b->options;
    snprintf(b->folder, sizeof(b->folder), "/tmp/cleave-bench-XXXXXX");
    if (mkdtemp(b->folder) == NULL)
        return error_set(error, ST_IO, "mkdtemp: %s", strerror(errno));
    snprintf(b->config, sizeof(b->config), "%s/config.json", b->folder);
    FILE *file = fopen(b->config, "w");
    if (file == NULL)
        return error_set(error, ST_IO, "%s: %s", b->config, strerror(errno));
    fprintf(file,
            "{\"model\":\"%s\",\"http\":{\"listen\":\"127.0.0.1:0\",\"connections_max\":8192},",
            options->model);
    fprintf(file,
            "\"scheduler\":{\"adaptive_pools\":false,\"queue_requests_max\":8192},\"machines\":{");
    for (uint32_t i = 0; i < options->machines; i++)
        fprintf(file, "%s\"m%u\":{\"address\":\"%s\",\"local\":false}", i > 0 ? "," : "", i,
                gateway_machine_address(b->machines[i]));
    fprintf(file, "},\"pools\":{\"mixed\":[");
    for (uint32_t i = 0; i < options->machines; i++)
        fprintf(file, "%s\"m%u\"", i > 0 ? "," : "", i);
    fprintf(file, "]}}\n");
    return fclose(file) == 0 ? ST_OK : error_set(error, ST_IO, "%s", strerror(errno));
}

static enum status gateway_start(struct bench *b, struct error *error)
{
    int fds[2];
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = MACHINES_MAX};
    if (pipe(fds) != 0)
        return error_set(error, ST_IO, "pipe: %s", strerror(errno));
    pid_t parent = getpid();
    b->gateway = fork();
    if (b->gateway == 0) {
        parent_end_signal_set(SIGKILL, parent);
        dup2(fds[1], STDOUT_FILENO);
        execl(b->options.cleave, "cleave", "serve", b->config, "--log-level", "warn", NULL);
        _exit(127);
    }
    close(fds[1]);
    b->stdout_fd = fds[0];
    epoll_ctl(b->epoll, EPOLL_CTL_ADD, b->stdout_fd, &event);
    return b->gateway > 0 ? ST_OK : error_set(error, ST_IO, "fork: %s", strerror(errno));
}

static void gateway_listen(struct bench *b)
{
    char text[4096];
    ssize_t got = read(b->stdout_fd, text, sizeof(text) - 1);
    text[got > 0 ? got : 0] = 0;
    const char *at = strstr(text, "http://127.0.0.1:");
    if (at != NULL && b->port == 0)
        b->port = (uint16_t)strtoul(at + 17, NULL, 10);
    if (got <= 0)
        epoll_ctl(b->epoll, EPOLL_CTL_DEL, b->stdout_fd, NULL);
}

static void figures_read(const struct bench *b, struct figures *out)
{
    char path[64];
    char text[1024];
    struct timespec cpu = {0};
    clockid_t clock;
    *out = (struct figures){.wall_us = clock_now_us(&clock_system)};
    if (clock_getcpuclockid(b->gateway, &clock) == 0)
        clock_gettime(clock, &cpu);
    out->cpu_ns = cpu.tv_sec * 1000000000ll + cpu.tv_nsec;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)b->gateway);
    FILE *file = fopen(path, "r");
    size_t bytes = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    text[bytes] = 0;
    const char *after = strrchr(text, ')');
    long long resident = 0;
    if (after != NULL)
        sscanf(after + 2,
               "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %*u "
               "%*u %lld",
               &out->user_ticks, &out->system_ticks, &resident);
    out->resident_pages = (uint64_t)resident;
}

/* ---- the loop ---- */

static void wait_once(struct bench *b, int timeout_ms)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(b->epoll, events, EVENTS_MAX, timeout_ms);
    for (int i = 0; i < count; i++) {
        uint64_t who = events[i].data.u64;
        if ((who & GATEWAY_STREAMS_TAG) != 0)
            gateway_streams_turn(b->streams, (uint32_t)who);
        else if (who == MACHINES_MAX)
            gateway_listen(b);
        else
            gateway_machine_turn(b->machines[who]);
    }
    if (count <= 0) /* For the heartbeats. */
        for (uint32_t i = 0; i < b->options.machines; i++)
            gateway_machine_turn(b->machines[i]);
}

/* True: the gateway has ended; its pid may belong to another process now. */
static bool gateway_gone(struct bench *b)
{
    if (b->gateway > 0 && waitpid(b->gateway, NULL, WNOHANG) != 0)
        b->gateway = 0;
    return b->gateway == 0;
}

static enum status wait_ready(struct bench *b, struct error *error)
{
    int64_t until = clock_now_us(&clock_system) + STALL_US;
    while (b->port == 0 && clock_now_us(&clock_system) < until && !gateway_gone(b))
        wait_once(b, 100);
    return b->port != 0 ? ST_OK : error_set(error, ST_TIMED_OUT, "the gateway is not ready");
}

static void wait_until(struct bench *b, int64_t us)
{
    for (int64_t left_us; (left_us = us - clock_now_us(&clock_system)) > 0;)
        wait_once(b, (int)(left_us / 1000) + 1);
}

/* Runs steps at regular times until all streams have ended. The machines' steps are spread over the
 * step time, so the gateway handles one batch at a time. */
static uint64_t steps_run(struct bench *b, struct figures *begin, struct figures *end)
{
    const struct options *options = &b->options;
    uint32_t steps = options->answer_tokens - 1; /* The first token needs no step. */
    uint64_t counted = 0;
    int64_t next_us = clock_now_us(&clock_system);
    for (uint32_t step = 0; step < steps; step++) {
        if (step == EDGE_STEPS)
            figures_read(b, begin);
        if (step == steps - EDGE_STEPS)
            figures_read(b, end);
        for (uint32_t i = 0; i < options->machines; i++) {
            uint32_t tokens = gateway_machine_step(b->machines[i]);
            counted += step >= EDGE_STEPS && step < steps - EDGE_STEPS ? tokens : 0;
            wait_until(b, next_us + options->step_ms * 1000ll * (i + 1) / options->machines);
        }
        next_us += options->step_ms * 1000ll;
    }
    return counted;
}

static enum status measure(struct bench *b, uint32_t count, struct error *error)
{
    const struct options *options = &b->options;
    struct figures begin, end;
    struct gateway_streams_options streams = {.port = b->port,
                                              .count = count,
                                              .prompt_tokens = options->prompt_tokens,
                                              .answer_tokens = options->answer_tokens,
                                              .check = options->check,
                                              .epoll = b->epoll};
    enum status status = gateway_streams_open(&streams, &b->streams, error);
    if (status != ST_OK)
        return status;
    int64_t until = clock_now_us(&clock_system) + STALL_US;
    while (gateway_streams_begun(b->streams) + gateway_streams_ended(b->streams) < count &&
           clock_now_us(&clock_system) < until)
        wait_once(b, 100);
    uint32_t open = gateway_streams_begun(b->streams) - gateway_streams_ended(b->streams);
    uint64_t tokens = steps_run(b, &begin, &end);
    until = clock_now_us(&clock_system) + STALL_US;
    while (gateway_streams_ended(b->streams) < count && clock_now_us(&clock_system) < until)
        wait_once(b, 100);
    const char *failure = gateway_streams_failure(b->streams);
    if (failure != NULL || open < count || gateway_streams_ended(b->streams) < count)
        status = error_set(error, ST_IO, "%u streams, %u open at once, %u ended: %s", count, open,
                           gateway_streams_ended(b->streams), failure != NULL ? failure : "hangs");
    gateway_streams_close(b->streams);
    b->streams = NULL;
    if (status != ST_OK)
        return status;
    double cpu_us = (double)(end.cpu_ns - begin.cpu_ns) / 1000;
    double wall_s = (double)(end.wall_us - begin.wall_us) * 1e-6;
    double ticks =
        (double)(end.user_ticks + end.system_ticks - begin.user_ticks - begin.system_ticks);
    double system = ticks > 0 ? (double)(end.system_ticks - begin.system_ticks) / ticks : 0;
    printf("%7u %10.0f %14.2f %11.0f %% %12.0f %% %9.1f\n", count, (double)tokens / wall_s,
           cpu_us / (double)tokens, 100 * system, cpu_us / wall_s * 1e-4,
           (double)end.resident_pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20));
    fflush(stdout);
    return ST_OK;
}

/* ---- life ---- */

static enum status machines_open(struct bench *b, struct error *error)
{
    struct model_file *file;
    enum status status = model_file_open(b->options.model, &file, error);
    if (status != ST_OK)
        return status;
    uint64_t hash = model_file_metadata_hash(file);
    model_file_close(file);
    for (uint32_t i = 0; status == ST_OK && i < b->options.machines; i++) {
        char name[LIMIT_NAME_BYTES];
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
        snprintf(name, sizeof(name), "m%u", i);
        status = gateway_machine_open(name, hash, &b->machines[i], error);
        if (status == ST_OK)
            epoll_ctl(b->epoll, EPOLL_CTL_ADD, gateway_machine_fd(b->machines[i]), &event);
    }
    return status;
}

static void bench_end(struct bench *b)
{
    if (b->gateway > 0) {
        kill(b->gateway, SIGTERM);
        for (int i = 0; i < 100 && !gateway_gone(b); i++)
            wait_once(b, 50);
        if (b->gateway > 0)
            kill(b->gateway, SIGKILL);
    }
    for (uint32_t i = 0; i < b->options.machines; i++)
        gateway_machine_close(b->machines[i]);
    unlink(b->config);
    rmdir(b->folder);
}

/* Raises the limit of open files: every stream needs a socket in this process. The gateway inherits
 * the limit and raises its own. */
static enum status files_raise(uint32_t streams, struct error *error)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t want = streams + MACHINES_MAX + FILES_BESIDE;
    if (limit.rlim_cur < want && limit.rlim_max >= want) {
        limit.rlim_cur = want;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    return limit.rlim_cur >= want
               ? ST_OK
               : error_set(error, ST_NO_RESOURCE, "%u streams want %llu open files (ulimit -n)",
                           streams, (unsigned long long)want);
}

static enum status run(struct bench *b, struct error *error)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < b->options.count_count; i++)
        most = b->options.counts[i] > most ? b->options.counts[i] : most;
    b->epoll = epoll_create1(EPOLL_CLOEXEC);
    enum status status = files_raise(most, error);
    if (status == ST_OK)
        status = machines_open(b, error);
    if (status == ST_OK)
        status = config_make(b, error);
    if (status == ST_OK)
        status = gateway_start(b, error);
    if (status == ST_OK)
        status = wait_ready(b, error);
    if (status == ST_OK)
        printf("%7s %10s %14s %13s %14s %9s\n", "streams", "tokens/s", "CPU us/token",
               "of it system", "of one core", "MiB");
    for (uint32_t i = 0; status == ST_OK && i < b->options.count_count; i++)
        status = measure(b, b->options.counts[i], error);
    return status;
}

static int usage(void)
{
    fprintf(stderr, "usage: bench-gateway CLEAVE MODEL [--streams N,N…] [--tokens N] [--prompt N]\n"
                    "                     [--step MS] [--machines N] [--check]\n");
    return 2;
}

static void counts_read(struct options *options, const char *text)
{
    options->count_count = 0;
    for (char *end; *text != 0 && options->count_count < COUNTS_MAX;
         text = *end == ',' ? end + 1 : end) {
        options->counts[options->count_count++] = (uint32_t)strtoul(text, &end, 10);
        if (end == text)
            return;
    }
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"streams", required_argument, NULL, 's'},
                                          {"tokens", required_argument, NULL, 't'},
                                          {"prompt", required_argument, NULL, 'p'},
                                          {"step", required_argument, NULL, 'm'},
                                          {"machines", required_argument, NULL, 'n'},
                                          {"check", no_argument, NULL, 'c'},
                                          {NULL, 0, NULL, 0}};
    struct bench b = {.options = {.counts = {16, 256, 2000},
                                  .count_count = 3,
                                  .prompt_tokens = 16,
                                  .answer_tokens = 100,
                                  .step_ms = 50,
                                  .machines = 8}};
    struct error error;
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        uint32_t number = optarg != NULL ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        if (option == 's')
            counts_read(&b.options, optarg);
        else if (option == 't')
            b.options.answer_tokens = number;
        else if (option == 'p')
            b.options.prompt_tokens = number;
        else if (option == 'm')
            b.options.step_ms = number;
        else if (option == 'n')
            b.options.machines = number;
        else if (option == 'c')
            b.options.check = true;
        else
            return usage();
    }
    if (argc - optind != 2 || b.options.machines < 1 || b.options.machines > MACHINES_MAX ||
        b.options.answer_tokens < 4 * EDGE_STEPS || b.options.prompt_tokens < 1)
        return usage();
    b.options.cleave = argv[optind];
    b.options.model = argv[optind + 1];
    signal(SIGPIPE, SIG_IGN);
    enum status status = run(&b, &error);
    if (status != ST_OK)
        fprintf(stderr, "bench-gateway: %s\n", error.text);
    bench_end(&b);
    return status == ST_OK ? 0 : 1;
}
