/* notify: see the header. */
#include "host/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TEXT_BYTES 512

/* Connects to a path, or with "@" at its beginning to a name without a file. Returns -1 if the path
 * cannot be used. */
static int manager_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || bytes < 2 || bytes >= sizeof(address.sun_path))
        return -1;
    memcpy(address.sun_path, path, bytes);
    if (path[0] == '@')
        address.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, length) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The manager wants a sign of life within this time; half of it is our interval. Returns 0 if the
 * manager wants none, or wants it from another process. */
static int64_t interval_read(void)
{
    const char *within = getenv("WATCHDOG_USEC");
    const char *process = getenv("WATCHDOG_PID");
    char *end;
    if (within == NULL || (process != NULL && strtoll(process, NULL, 10) != getpid()))
        return 0;
    errno = 0;
    long long us = strtoll(within, &end, 10);
    return errno == 0 && *end == 0 && us > 1 ? us / 2 : 0;
}

void notify_open(struct notify *n)
{
    const char *path = getenv("NOTIFY_SOCKET");
    *n = (struct notify){.fd = path != NULL ? manager_connect(path) : -1};
    if (n->fd >= 0)
        n->interval_us = interval_read();
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void notify_close(struct notify *n)
{
    if (n->fd >= 0)
        close(n->fd);
    n->fd = -1;
}

/* A manager that does not read loses the message; the process must not wait for it. */
static void send_text(const struct notify *n, const char *text)
{
    if (n->fd >= 0)
        (void)send(n->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void send_state(const struct notify *n, const char *state, const char *status_line)
{
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "%s\nSTATUS=%.*s", state, (int)strcspn(status_line, "\n"),
             status_line);
    send_text(n, text);
}

void notify_ready(const struct notify *n, const char *status_line)
{
    send_state(n, "READY=1", status_line);
}

void notify_reloading(const struct notify *n, int64_t now_us)
{
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRId64, now_us);
    send_text(n, text);
}

void notify_stopping(const struct notify *n, const char *status_line)
{
    send_state(n, "STOPPING=1", status_line);
}

int notify_turn(struct notify *n, int64_t now_us)
{
    if (n->fd < 0 || n->interval_us == 0)
        return -1;
    if (now_us >= n->next_us) {
        send_text(n, "WATCHDOG=1");
        n->next_us = now_us + n->interval_us;
    }
    return (int)((n->next_us - now_us) / 1000) + 1;
}
