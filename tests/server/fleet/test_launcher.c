/* Goal: machine processes are started with their config, their addresses are learnt, a dead one is
 * restarted with back-off (and given up only if it never served), and all end on request, or are
 * killed if they do not. Method: this program is its own machine: started with "machine" it behaves
 * according to its name. */
#include "host/batch_record.h"
#include "host/child.h"
#include "host/turns.h"
#include "server/fleet/launcher.h"
#include "tests/check.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the machine ---- */

static volatile sig_atomic_t terminated;

static void on_term(int number)
{
    (void)number;
    terminated = 1;
}

static int machine(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
    int config_fd = -1;
    int ready_fd = -1;
    int turns_fd = -1;
    int batches_fd = -1;
    const char *name = "";
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--config-fd") == 0)
            config_fd = atoi(argv[++i]);
        else if (strcmp(argv[i], "--ready-fd") == 0)
            ready_fd = atoi(argv[++i]);
        else if (strcmp(argv[i], "--log-level") == 0)
            CHECK(strcmp(argv[++i], "warn") == 0);
        else if (strcmp(argv[i], "--turns-fd") == 0)
            turns_fd = atoi(argv[++i]);
        else if (strcmp(argv[i], "--batches-fd") == 0)
            batches_fd = atoi(argv[++i]);
        else
            name = argv[i];
    }
    static char text[1 << 16];
    ssize_t bytes = read(config_fd, text, sizeof(text));
    static struct config config;
    struct error error;
    CHECK(bytes > 0 && config_parse(text, (size_t)bytes, "config", &config, &error) == ST_OK);
    CHECK(config_machine_find(&config, name) >= 0);
    struct turns *turns;
    CHECK(turns_open(turns_fd, 1, &turns, &error) == ST_OK);
    turns_close(turns);
    static struct batch_record *batches; /* Static: this process may end anywhere. */
    CHECK(batch_record_open(turns_fd, &batches, &error) == ST_INVALID);
    CHECK(batch_record_open(batches_fd, &batches, &error) == ST_OK);
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    CHECK(!sigismember(&blocked, SIGTERM));
    signal(SIGTERM, strcmp(name, "deaf") == 0 ? SIG_IGN : on_term);
    if (strcmp(name, "hopeless") == 0)
        return 3;
    if (strcmp(name, "wrong") == 0) {
        error = (struct error){"the model\nis too large"};
        child_failure_report(ready_fd, &error);
        return 3;
    }
    if (strcmp(name, "babbler") == 0)
        dprintf(ready_fd, "hello\n");
    else
        dprintf(ready_fd, "ready 127.0.0.1:%d\n", (int)getpid());
    if (strcmp(name, "mortal") == 0)
        raise(SIGKILL);
    if (strcmp(name, "crasher") == 0) { /* With two batches, while a third one is over. */
        batch_record_add(batches, 0, 70);
        batch_record_add(batches, 1, 71);
        batch_record_add(batches, 1, 72);
        batch_record_add(batches, 2, 73);
        batch_record_add(batches, 2, 71);
        batch_record_end(batches, 0);
        raise(SIGABRT); /* The sanitizers leave this signal alone. */
    }
    while (!terminated)
        usleep(1000);
    return strcmp(name, "bereft") == 0 ? CHILD_EXIT_KILLED : 0;
}

/* ---- the launcher ---- */

static bool watching_fails; /* epoll_ctl adds no descriptor. */
static bool keeping_fails;  /* No descriptor is kept open for a process. */

int __real_posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from, int to);
int __wrap_posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from, int to);

int __wrap_posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from, int to)
{
    return keeping_fails ? ENOMEM : __real_posix_spawn_file_actions_adddup2(actions, from, to);
}

int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    if (!watching_fails || operation != EPOLL_CTL_ADD)
        return __real_epoll_ctl(epoll, operation, fd, event);
    errno = ENOMEM;
    return -1;
}

struct seen {
    uint32_t ready;
    uint32_t crashed;
    uint32_t ended;
    uint32_t given_up;
    uint64_t ids[3];
    uint32_t id_count;
    char address[LIMIT_ADDRESS_BYTES];
    char why[256];    /* Of a crash, or of a machine that is given up. */
    char reason[256]; /* Of `ended`. */
};

static void on_ready(void *self, struct fleet_machine *machine, const char *address)
{
    struct seen *seen = (struct seen *)self + machine->index;
    seen->ready++;
    snprintf(seen->address, sizeof(seen->address), "%s", address);
}

static void on_crashed(void *self, struct fleet_machine *machine, const char *how,
                       const uint64_t *ids, uint32_t count)
{
    struct seen *seen = (struct seen *)self + machine->index;
    seen->crashed++;
    seen->id_count = count;
    memcpy(seen->ids, ids, (count < 3 ? count : 3) * sizeof(ids[0]));
    snprintf(seen->why, sizeof(seen->why), "%s", how);
}

static void on_ended(void *self, struct fleet_machine *machine, const char *reason)
{
    struct seen *seen = (struct seen *)self + machine->index;
    seen->ended++;
    snprintf(seen->reason, sizeof(seen->reason), "%s", reason);
}

static void on_given_up(void *self, struct fleet_machine *machine, const char *why)
{
    struct seen *seen = (struct seen *)self + machine->index;
    seen->given_up++;
    snprintf(seen->why, sizeof(seen->why), "%s", why);
}

/* The launcher's time. It stands still, so that no result depends on the speed of this computer,
 * except where the test moves it. */
static int64_t test_us = 1000000;

static int64_t test_now(void *self)
{
    (void)self;
    return test_us;
}

static const struct clock test_clock = {.now_us = test_now};

static struct fleet *fleet;
static const char *counts_folder; /* Where the kernel counts what it has killed; NULL = as usual. */

static struct launcher *launch(struct config *config, const char *prompt, const char *token,
                               struct seen *seen)
{
    char text[256];
    struct error error;
    snprintf(text, sizeof(text), "{\"pools\":{\"prompt\":[\"%s\"],\"token\":[\"%s\"]}}", prompt,
             token);
    CHECKF(config_parse(text, strlen(text), "test", config, &error) == ST_OK, "%s", error.text);
    memset(seen, 0, 2 * sizeof(*seen));
    CHECK(fleet_open(config, &fleet) == ST_OK);
    struct launcher_options options = {
        .config = config,
        .fleet = fleet,
        .clock = &test_clock,
        .log_level = "warn",
        .proc = counts_folder,
        .cgroups = counts_folder,
        .events = {on_ready, on_crashed, on_ended, on_given_up},
        .self = seen,
    };
    struct launcher *l;
    CHECKF(launcher_open(&options, &l, &error) == ST_OK, "%s", error.text);
    return l;
}

/* Turns until *counter is `want`, for a minute at most; the clock jumps over pauses. */
static void turn_until(struct launcher *l, const uint32_t *counter, uint32_t want)
{
    for (int i = 0; i < 6000 && *counter < want; i++) {
        int timeout_ms = launcher_turn(l);
        struct pollfd fd = {.fd = launcher_fd(l), .events = POLLIN};
        if (timeout_ms > 0 && poll(&fd, 1, 20) == 0)
            test_us += (int64_t)timeout_ms * 1000;
        else
            poll(&fd, 1, 10);
    }
    CHECKF(*counter == want, "%u, want %u", *counter, want);
}

static void stop_all(struct launcher *l, bool must_kill)
{
    launcher_stop(l);
    for (int i = 0; i < (must_kill ? 30 : 6000) && launcher_running_count(l) > 0; i++) {
        struct pollfd fd = {.fd = launcher_fd(l), .events = POLLIN};
        poll(&fd, 1, 10);
        launcher_turn(l);
    }
    CHECK((launcher_running_count(l) > 0) == must_kill);
    launcher_kill(l);
    for (int i = 0; i < 6000 && launcher_running_count(l) > 0; i++) {
        struct pollfd fd = {.fd = launcher_fd(l), .events = POLLIN};
        poll(&fd, 1, 10);
        launcher_turn(l);
    }
    CHECK(launcher_running_count(l) == 0);
    launcher_close(l);
    fleet_close(fleet);
}

/* One machine is asked to end and does not (it is killed), another one takes its place. */
static void test_changes(void)
{
    static struct config config;
    struct seen seen[2];
    struct launcher *l = launch(&config, "good", "deaf", seen);
    turn_until(l, &seen[0].ready, 1);
    turn_until(l, &seen[1].ready, 1);
    struct fleet_machine *deaf = &fleet->machines[1];
    launcher_machine_stop(l, deaf);
    CHECK(deaf->process.state == PROCESS_ENDING && deaf->process.pid > 0);
    int64_t begun_us = test_us;
    turn_until(l, &seen[1].ended, 1);
    CHECK(test_us - begun_us > 4000000); /* it had its time */
    CHECK(deaf->process.state == PROCESS_NONE && launcher_running_count(l) == 1);
    for (int i = 0; i < 20; i++) { /* it is not started again */
        test_us += 1000000;
        launcher_turn(l);
    }
    CHECK(launcher_running_count(l) == 1 && seen[1].ready == 1);
    snprintf(deaf->config.name, sizeof(deaf->config.name), "next");
    launcher_machine_start(l, deaf);
    turn_until(l, &seen[1].ready, 2);
    CHECK(launcher_running_count(l) == 2 && seen[0].ended == 0);
    launcher_machine_stop(l, deaf);
    turn_until(l, &seen[1].ended, 2);
    stop_all(l, false);
}

/* A machine that ends because a stage process was killed, or that was asked to end and has ended
 * with status 0, starts again at once, and the pauses begin at the shortest one; a machine that
 * crashes waits. */
static void test_bereft(void)
{
    static struct config config;
    struct seen seen[2];
    struct launcher *l = launch(&config, "bereft", "good", seen);
    for (int end = 0; end < 3; end++) {
        const uint32_t i = end == 0 ? 0 : 1;
        const int before = end == 2 ? 1 : 0; /* How often this machine has ended so far. */
        turn_until(l, &seen[i].ready, before + 1);
        test_us += 1000000;
        kill(atoi(seen[i].address + 10), end == 2 ? SIGABRT : SIGTERM);
        turn_until(l, &seen[i].ended, before + 1);
        CHECK(fleet->machines[i].process.backoff_us == (end == 2 ? 400000 : 200000));
        turn_until(l, &seen[i].ready, before + 2);
    }
    stop_all(l, false);
}

/* A machine that cannot be watched, or gets no descriptors, is not left running, and is started
 * again later. */
static void test_not_started(bool *fault)
{
    static struct config config;
    struct seen seen[2];
    struct launcher *l = launch(&config, "good", "good-2", seen);
    turn_until(l, &seen[0].ready, 1);
    turn_until(l, &seen[1].ready, 1);
    *fault = true;
    kill(atoi(seen[0].address + 10), SIGKILL);
    turn_until(l, &seen[0].ended, 1);
    for (int i = 0; i < 20; i++) {
        test_us += 1000000;
        launcher_turn(l);
        CHECK(launcher_running_count(l) == 1);
    }
    *fault = false;
    CHECKF(seen[0].ended > 1 && strstr(seen[0].reason, "start machine good: ") != NULL, "%s",
           seen[0].reason);
    turn_until(l, &seen[0].ready, 2);
    CHECK(launcher_running_count(l) == 2 && seen[0].crashed == 0);
    stop_all(l, false);
}

static void file_write(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Counts processes of this process's cgroup where the kernel counts them, else those of the host:
 * a process of another program that was killed must not look like a machine. */
static void test_memory_kills(void)
{
    static const char *const folders[] = {"self", "cleave.slice", "cleave.slice/a.service"};
    char root[] = "/tmp/cleave-launcher-XXXXXX";
    char path[256];
    CHECK(mkdtemp(root) != NULL);
    CHECK(child_memory_kills(root, root) == 0);
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, folders[i]);
        CHECK(mkdir(path, 0700) == 0);
    }
    file_write(root, "vmstat", "nr_free_pages 5\noom_kill 7\n");
    CHECK(child_memory_kills(root, root) == 7);
    file_write(root, "self/cgroup", "4:memory:/x\n0::/cleave.slice/a.service\n");
    CHECK(child_memory_kills(root, root) == 7);
    file_write(root, "cleave.slice/a.service/memory.events",
               "oom 4\noom_kill 2\noom_group_kill 0\n");
    CHECK(child_memory_kills(root, root) == 2);
    file_write(root, "cleave.slice/a.service/memory.events", "oom 4\noom_kill 0\n");
    CHECK(child_memory_kills(root, root) == 0);
    static const char *const left[] = {"cleave.slice/a.service/memory.events",
                                       "cleave.slice/a.service",
                                       "cleave.slice",
                                       "self/cgroup",
                                       "self",
                                       "vmstat",
                                       ""};
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, left[i]);
        CHECK(remove(path) == 0);
    }
}

/* The kernel has killed two machines at once, as the count says; the second end is seen later, when
 * the first machine runs again. A third machine was killed by hand; so was one long after the
 * kernel had killed a process. */
static void test_killed_at_once(void)
{
    static struct config config;
    struct seen seen[2];
    char root[] = "/tmp/cleave-launcher-XXXXXX";
    char path[256];
    CHECK(mkdtemp(root) != NULL);
    file_write(root, "vmstat", "oom_kill 3\n");
    counts_folder = root;
    struct launcher *l = launch(&config, "good", "good-2", seen);
    turn_until(l, &seen[0].ready, 1);
    turn_until(l, &seen[1].ready, 1);
    file_write(root, "vmstat", "oom_kill 5\n");
    for (int i = 0; i < 2; i++) {
        kill(atoi(seen[i].address + 10), SIGKILL);
        turn_until(l, &seen[i].ready, 2);
        CHECKF(seen[i].crashed == 1 && strstr(seen[i].why, "memory was short") != NULL, "%d: %s", i,
               seen[i].why);
        CHECKF(strstr(seen[i].reason, "ended: probably killed by the kernel") != NULL, "%s",
               seen[i].reason);
    }
    kill(atoi(seen[0].address + 10), SIGKILL);
    turn_until(l, &seen[0].ready, 3);
    CHECK(seen[0].crashed == 1 && seen[0].ended == 2);
    file_write(root, "vmstat", "oom_kill 7\n");
    kill(atoi(seen[0].address + 10), SIGKILL);
    turn_until(l, &seen[0].ready, 4);
    CHECK(seen[0].crashed == 2);
    test_us += 11000000;
    kill(atoi(seen[1].address + 10), SIGKILL);
    turn_until(l, &seen[1].ready, 3);
    CHECK(seen[1].crashed == 1 && seen[1].ended == 2);
    stop_all(l, false);
    counts_folder = NULL;
    snprintf(path, sizeof(path), "%s/vmstat", root);
    CHECK(remove(path) == 0 && remove(root) == 0);
}

/* A machine ends because a stage process was killed. If the kernel has killed a process meanwhile,
 * this is a crash; otherwise the stage process was killed from outside. */
static void test_stage_killed(void)
{
    static struct config config;
    struct seen seen[2];
    char root[] = "/tmp/cleave-launcher-XXXXXX";
    char path[256];
    CHECK(mkdtemp(root) != NULL);
    file_write(root, "vmstat", "oom_kill 3\n");
    counts_folder = root;
    struct launcher *l = launch(&config, "bereft", "good", seen);
    turn_until(l, &seen[0].ready, 1);
    test_us += 1000000;
    file_write(root, "vmstat", "oom_kill 4\n");
    kill(atoi(seen[0].address + 10), SIGTERM);
    turn_until(l, &seen[0].ended, 1);
    CHECK(seen[0].crashed == 1 && fleet->machines[0].process.backoff_us == 400000);
    CHECKF(strstr(seen[0].why, "stage") != NULL && strstr(seen[0].why, "memory was short") != NULL,
           "%s", seen[0].why);
    turn_until(l, &seen[0].ready, 2);
    test_us += 1000000;
    kill(atoi(seen[0].address + 10), SIGTERM);
    turn_until(l, &seen[0].ended, 2);
    CHECK(seen[0].crashed == 1 && fleet->machines[0].process.backoff_us == 200000);
    stop_all(l, false);
    counts_folder = NULL;
    snprintf(path, sizeof(path), "%s/vmstat", root);
    CHECK(remove(path) == 0 && remove(root) == 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "machine") == 0)
        return machine(argc, argv);
    log_open("test", LOG_ERROR);
    static struct config config;
    struct seen seen[2];

    struct launcher *l = launch(&config, "good", "deaf", seen);
    turn_until(l, &seen[0].ready, 1);
    turn_until(l, &seen[1].ready, 1);
    CHECK(strncmp(seen[0].address, "127.0.0.1:", 10) == 0);
    CHECK(launcher_running_count(l) == 2);
    pid_t pid = atoi(seen[0].address + 10);
    kill(pid, SIGKILL); /* once: it is started again, with another process */
    turn_until(l, &seen[0].ended, 1);
    CHECKF(strcmp(seen[0].reason, "its process has ended: signal 9, Killed") == 0, "%s",
           seen[0].reason);
    turn_until(l, &seen[0].ready, 2);
    CHECK(atoi(seen[0].address + 10) != pid && seen[0].given_up == 0 && seen[0].crashed == 0);
    stop_all(l, true);
    CHECK(seen[0].ended == 1); /* an end that was asked for is no event */

    test_memory_kills();
    test_killed_at_once();
    test_stage_killed();
    test_changes();
    test_bereft();
    test_not_started(&watching_fails);
    test_not_started(&keeping_fails);
    l = launch(&config, "good", "hopeless", seen);
    turn_until(l, &seen[1].given_up, 1);
    CHECK(seen[1].ready == 0 && seen[1].ended == 0);
    CHECKF(strstr(seen[1].why, "exit status 3") != NULL, "%s", seen[1].why);
    stop_all(l, false);

    l = launch(&config, "good", "wrong", seen);
    turn_until(l, &seen[1].given_up, 1);
    CHECKF(strcmp(seen[1].why, "it ended before it was ready: the model is too large") == 0, "%s",
           seen[1].why);
    stop_all(l, false);

    l = launch(&config, "good", "mortal", seen);
    int64_t begun_us = test_us;
    turn_until(l, &seen[1].ended, 12); /* dies as soon as it serves: tried on, and not in a hurry */
    CHECK(seen[1].ready == 12 && seen[1].given_up == 0 && seen[0].ended == 0);
    CHECK(test_us - begun_us > 30000000);
    stop_all(l, false);

    l = launch(&config, "good", "crasher", seen);
    turn_until(l, &seen[1].ended, 1);
    CHECK(seen[1].crashed == 1 && seen[1].id_count == 3);
    CHECK(seen[1].ids[0] == 71 && seen[1].ids[1] == 72 && seen[1].ids[2] == 73);
    CHECKF(strncmp(seen[1].why, "signal 6,", 9) == 0, "%s", seen[1].why);
    stop_all(l, false);

    l = launch(&config, "babbler", "good", seen);
    turn_until(l, &seen[0].given_up, 1);
    launcher_close(l); /* with a machine that runs: it is killed */
    fleet_close(fleet);
    return 0;
}
