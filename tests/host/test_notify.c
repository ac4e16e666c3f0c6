/* Goal: a service manager (systemd, Type=notify) learns when a process serves, reloads and ends,
 * and that it is alive; without a manager nothing is sent. Method: a Unix datagram socket of this
 * test is the manager, with a path and with an abstract name. */
#include "host/notify.h"
#include "tests/check.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int manager_open(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", name);
    if (name[0] == '@')
        address.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0);
    CHECK(bind(fd, (const struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))) == 0);
    return fd;
}

static void message_check(int fd, const char *wanted)
{
    char text[600];
    ssize_t bytes = recv(fd, text, sizeof(text) - 1, 0);
    text[bytes > 0 ? bytes : 0] = 0;
    CHECKF(strcmp(text, wanted) == 0, "got \"%s\", want \"%s\"", text, wanted);
}

static void none_check(int fd)
{
    char text[8];
    CHECK(recv(fd, text, sizeof(text), 0) < 0);
}

static void test_messages(const char *name)
{
    char pid[16];
    struct notify n;
    int manager = manager_open(name);
    snprintf(pid, sizeof(pid), "%d", getpid());
    setenv("NOTIFY_SOCKET", name, 1);
    setenv("WATCHDOG_USEC", "2000000", 1);
    setenv("WATCHDOG_PID", pid, 1);
    notify_open(&n);
    CHECK(getenv("NOTIFY_SOCKET") == NULL && getenv("WATCHDOG_USEC") == NULL &&
          getenv("WATCHDOG_PID") == NULL);
    CHECK(notify_turn(&n, 5000000) == 1001); /* at once, and then every second */
    message_check(manager, "WATCHDOG=1");
    CHECK(notify_turn(&n, 5999000) == 2);
    none_check(manager);
    CHECK(notify_turn(&n, 6000000) == 1001);
    message_check(manager, "WATCHDOG=1");
    notify_ready(&n, "serves\nREADY=0");
    message_check(manager, "READY=1\nSTATUS=serves"); /* a status is one line */
    notify_reloading(&n, 77);
    message_check(manager, "RELOADING=1\nMONOTONIC_USEC=77");
    notify_stopping(&n, "drains");
    message_check(manager, "STOPPING=1\nSTATUS=drains");
    close(manager);
    notify_ready(&n, "the manager is gone"); /* neither waits nor ends the process */
    notify_close(&n);
    notify_close(&n);
}

static void test_no_watchdog(const char *variable, const char *value)
{
    struct notify n;
    int manager = manager_open("@cleave-test-notify-none");
    setenv("NOTIFY_SOCKET", "@cleave-test-notify-none", 1);
    setenv("WATCHDOG_USEC", "2000000", 1);
    setenv(variable, value, 1);
    notify_open(&n);
    CHECK(notify_turn(&n, 0) == -1);
    none_check(manager);
    notify_close(&n);
    close(manager);
}

static void test_no_manager(const char *name)
{
    struct notify n;
    setenv("NOTIFY_SOCKET", name, 1);
    notify_open(&n);
    CHECK(n.fd == -1 && notify_turn(&n, 0) == -1);
    notify_ready(&n, "serves");
    notify_close(&n);
}

int main(void)
{
    char path[] = "/tmp/cleave-notify-XXXXXX", file[64], name[64], long_name[200];
    CHECK(mkdtemp(path) != NULL);
    snprintf(file, sizeof(file), "%s/socket", path);
    snprintf(name, sizeof(name), "@cleave-test-%d", getpid());
    test_messages(file);
    test_messages(name);
    test_no_watchdog("WATCHDOG_USEC", "none");
    test_no_watchdog("WATCHDOG_PID", "1"); /* the sign of life of another process */
    memset(long_name, 'x', sizeof(long_name));
    long_name[0] = '/';
    long_name[sizeof(long_name) - 1] = 0;
    test_no_manager("relative");
    test_no_manager("/nowhere/socket");
    test_no_manager(long_name);
    unlink(file);
    rmdir(path);
    return 0;
}
