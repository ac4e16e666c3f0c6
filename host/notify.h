/* notify: tells the service manager that started this process (systemd, Type=notify) when the
 * process is ready, what it does, and that it is alive. The messages are texts in datagrams on the
 * Unix socket that NOTIFY_SOCKET names (sd_notify(3)). Without that variable the functions do
 * nothing. The main thread of a gateway or a machine makes every call: server/serve*.c,
 * machine/main.c and machine/process.c. */
#ifndef HOST_NOTIFY_H
#define HOST_NOTIFY_H

#include <stdint.h>

struct notify {
    int fd;              /* Connected to the service manager; -1 = there is none. */
    int64_t interval_us; /* Time between signs of life; 0 = the manager wants none. */
    int64_t next_us;     /* When the next sign of life is due. */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and removes them from the environment, so
 * that child processes do not use them. Call it before the sandbox is entered. */
void notify_open(struct notify *n);
void notify_close(struct notify *n);

/* Says that the process serves. status_line: shown by `systemctl status`. */
void notify_ready(const struct notify *n, const char *status_line);
/* Says that the process reads its config again; notify_ready ends this state. `now_us` is the
 * monotonic clock. */
void notify_reloading(const struct notify *n, int64_t now_us);
/* Says that the process ends. status_line: shown by `systemctl status`. */
void notify_stopping(const struct notify *n, const char *status_line);

/* Sends a sign of life if it is due. Call it in each iteration of the event loop. Returns the
 * milliseconds after which it must be called again; -1 = no call is needed. */
int notify_turn(struct notify *n, int64_t now_us);

#endif
