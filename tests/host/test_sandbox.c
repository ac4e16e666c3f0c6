/* Goal: a process in the sandbox, and its later threads and children, cannot do what the sandbox
 * refuses, and can do what cleave needs. Method: child processes limit themselves, try, and report
 * by their exit status; each attempt is first made without limits, so that a refusal by the
 * computer is not mistaken for one by the sandbox. */
#include "host/sandbox.h"
#include "host/sandbox_internal.h"
#include "tests/check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char root[] = "/tmp/cleave-sandbox-XXXXXX";
static char secret[64]; /* A file outside the folders of the config. */
static char key[64];    /* The file of the cluster's keys. */
static char events[64];
static struct config config;

/* --- attempts: 0, or an errno --- */

static int try_read(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static int try_write(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

/* Starts a program and waits for its end. */
static int try_start(const char *program, const char *argument)
{
    char *argv[] = {(char *)program, (char *)argument, NULL};
    pid_t pid;
    int status;
    int failed = posix_spawn(&pid, program, NULL, NULL, argv, environ);
    if (failed != 0)
        return failed;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

static int try_call(long answer)
{
    return answer == -1 ? errno : 0;
}

static void *thread_reads(void *path)
{
    return (void *)(intptr_t)try_read(path);
}

static int try_read_on_thread(const char *path)
{
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, thread_reads, (void *)path) == 0);
    pthread_join(thread, &result);
    return (int)(intptr_t)result;
}

/* Runs `attempts` in a child process, which must exit with 0. */
static void in_child(void (*attempts)(void))
{
    pid_t pid = fork();
    int status;
    CHECK(pid >= 0);
    if (pid == 0) {
        attempts();
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

/* --- what both kinds of processes may and may not do --- */

static void system_calls_are_refused(void)
{
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    CHECK(try_call(syscall(SYS_bpf, -1, NULL, 0)) == EPERM);
    CHECK(try_call(syscall(SYS_init_module, NULL, 0, "")) == EPERM);
    CHECK(try_call(syscall(SYS_keyctl, -1, 0, 0, 0, 0)) == EPERM);
    CHECK(try_call(syscall(SYS_mount, "", "", "", 0, NULL)) == EPERM);
    CHECK(try_call(syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0)) == EPERM);
    CHECK(try_call(syscall(SYS_setns, -1, 0)) == EPERM);
    CHECK(try_call(syscall(425 /* io_uring_setup */, 0, NULL)) == EPERM);
    CHECK(try_call(unshare(CLONE_NEWNS)) == EPERM);
    CHECK(try_call(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)) == EPERM);
    CHECK(try_call(syscall(435 /* clone3 */, NULL, 0)) == ENOSYS);
    if (!TEST_SANITIZED)
        CHECK(try_call(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL)) == EPERM);
}

static void needs_are_met(void)
{
    CHECK(try_read("/proc/self/status") == 0 && try_read("/dev/urandom") == 0);
    CHECK(try_write("/dev/null") == 0 && try_write("/dev/shm/cleave-sandbox-test") == 0);
    CHECK(unlink("/dev/shm/cleave-sandbox-test") == 0);
    CHECK(try_read_on_thread("/proc/self/status") == 0);
    int segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    void *memory = shmat(segment, NULL, 0);
    CHECK(segment >= 0 && memory != (void *)-1 && shmdt(memory) == 0);
    CHECK(shmctl(segment, IPC_RMID, NULL) == 0);
    int fd = memfd_create("test", MFD_CLOEXEC);
    CHECK(fd >= 0 && close(fd) == 0);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && close(fd) == 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(3);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3);
}

static char said[SANDBOX_TEXT_BYTES];

static struct config_machine *machine(void)
{
    return &config.machines[0];
}

static void leaf(void)
{
    sandbox_machine_enter(&config, machine(), false, said);
    CHECKF(strstr(said, "so are files (Landlock ") != NULL, "%s", said);
    system_calls_are_refused();
    needs_are_met();
    CHECK(try_read(secret) == EACCES && try_read_on_thread(secret) == EACCES);
    CHECK(try_read("/etc/shadow") == EACCES && try_read("/etc/hostname") != 0);
    CHECK(try_write(secret) == EACCES && try_write(key) == EACCES && try_write(events) == EACCES);
    CHECK(truncate(key, 0) != 0 && unlink(key) != 0);
    CHECK(try_read(config.model) == 0 && try_read(key) == 0);
    CHECK(try_read("/etc/hosts") == 0 || access("/etc/hosts", F_OK) != 0);
    CHECK(try_start("/bin/sh", NULL) == EPERM && try_start("/proc/self/exe", "exit") == EPERM);
}

/* The key file is replaced, as an operator would do. */
static void key_is_replaced(void)
{
    char next[80];
    snprintf(next, sizeof(next), "%s.next", key);
    sandbox_machine_enter(&config, machine(), true, said);
    pid_t parent = getppid();
    CHECK(kill(parent, SIGUSR1) == 0);
    for (int i = 0; i < 60000 && access(next, F_OK) != 0; i++)
        usleep(1000);
    CHECK(try_read(next) == 0);
}

static void check_replaced_key(void)
{
    char next[80];
    sigset_t signals;
    int number, status;
    snprintf(next, sizeof(next), "%s.next", key);
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        key_is_replaced();
        _exit(0);
    }
    CHECK(sigwait(&signals, &number) == 0);
    CHECK(try_write(next) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void head(void)
{
    snprintf(machine()->stages, sizeof(machine()->stages), "[{}, {}]");
    sandbox_machine_enter(&config, machine(), false, said);
    CHECKF(strstr(said, "so are files (Landlock ") != NULL, "%s", said);
    system_calls_are_refused();
    needs_are_met();
    CHECK(try_read(secret) == EACCES && try_write(secret) == EACCES);
    CHECK(try_start("/bin/sh", NULL) == EACCES && try_start("/proc/self/exe", "exit") == 7);
}

/* A model in several files: the config names the first one. */
static void parts(void)
{
    char second[96];
    snprintf(config.model, sizeof(config.model), "%s/parts/m-00001-of-00002.gguf", root);
    snprintf(second, sizeof(second), "%s/parts/m-00002-of-00002.gguf", root);
    sandbox_machine_enter(&config, machine(), false, said);
    CHECK(try_read(config.model) == 0 && try_read(second) == 0 && try_read(secret) == EACCES);
}

static void gateway(void)
{
    sandbox_gateway_enter(&config, said);
    CHECKF(strstr(said, "so are files (Landlock ") != NULL, "%s", said);
    system_calls_are_refused();
    needs_are_met();
    CHECK(try_read(secret) == 0); /* A reload may name any file. */
    CHECK(try_write(secret) == EACCES && try_write(key) == EACCES);
    CHECK(try_write(events) == 0 && unlink(events) == 0);
    CHECK(try_start("/bin/sh", NULL) == EACCES && try_start("/proc/self/exe", "exit") == 7);
    /* The gateway's machines limit themselves further. */
    in_child(leaf);
}

static void off(void)
{
    config.cluster.sandbox = false;
    sandbox_gateway_enter(&config, said);
    CHECK(strcmp(said, "sandbox: none: cluster/sandbox is false") == 0);
    config.cluster.sandbox = true;
    snprintf(machine()->device, sizeof(machine()->device), "cuda:0");
    sandbox_machine_enter(&config, machine(), false, said);
    CHECK(strstr(said, "sandbox: none: a GPU") != NULL);
    sandbox_gateway_enter(&config, said);
    CHECK(strstr(said, "sandbox: none: a GPU") != NULL);
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 && try_read(secret) == 0);
    snprintf(machine()->device, sizeof(machine()->device), "cpu");
    snprintf(config.transport.ucx_transports, sizeof(config.transport.ucx_transports), "cma");
    sandbox_machine_enter(&config, machine(), false, said);
    CHECK(strstr(said, "files are not, because transport/ucx_transports is set") != NULL);
    system_calls_are_refused();
    CHECK(try_read(secret) == 0 && try_start("/bin/sh", NULL) == EPERM);
}

static void file_make(char *path, size_t capacity, const char *folder, const char *name)
{
    snprintf(path, capacity, "%s/%s", root, folder);
    mkdir(path, 0700);
    snprintf(path, capacity, "%s/%s/%s", root, folder, name);
    CHECK(try_write(path) == 0);
}

static void files_remove(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    CHECK(system(command) == 0);
}

/* An upgrade has removed the gateway's file. The gateway still starts machines of its own
 * release. */
static int start_removed(const char *path)
{
    CHECK(unlink(path) == 0);
    config_default(&config);
    sandbox_gateway_enter(&config, said);
    return try_start("/proc/self/exe", "exit");
}

static void check_removed(void)
{
    char path[80];
    char piece[65536];
    ssize_t got;
    snprintf(path, sizeof(path), "%s/other/program", root);
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    while ((got = read(from, piece, sizeof(piece))) > 0)
        CHECK(write(to, piece, (size_t)got) == got);
    CHECK(got == 0 && close(from) == 0 && close(to) == 0);
    CHECK(try_start(path, "removed") == 7);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "removed") == 0)
        return start_removed(argv[0]);
    if (argc > 1 && strcmp(argv[1], "exit") == 0)
        return 7;
    CHECK(mkdtemp(root) != NULL);
    config_default(&config);
    file_make(secret, sizeof(secret), "other", "secret");
    file_make(key, sizeof(key), "keys", "cluster.key");
    file_make(events, sizeof(events), "log", "events");
    file_make(config.model, sizeof(config.model), "parts", "m-00001-of-00002.gguf");
    file_make(config.model, sizeof(config.model), "parts", "m-00002-of-00002.gguf");
    file_make(config.model, sizeof(config.model), "models", "m.gguf");
    snprintf(config.cluster.key_file, sizeof(config.cluster.key_file), "%s", key);
    snprintf(config.log.events_file, sizeof(config.log.events_file), "%s", events);
    CHECK(atexit(files_remove) == 0);
    in_child(off);
    if (sandbox_landlock_version() == 0)
        test_skip("this kernel has no Landlock");
    CHECK(try_start("/proc/self/exe", "exit") == 7 && try_start("/bin/true", NULL) == 0);
    in_child(leaf);
    check_replaced_key();
    in_child(head);
    in_child(parts);
    in_child(gateway);
    check_removed();
    return 0;
}
