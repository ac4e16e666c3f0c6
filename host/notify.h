/* notify: sends messages to the service manager that started this process (systemd, Type=notify):
 * that the process is ready, what it does, and that it is alive. A message is a text in a datagram
 * on the Unix socket that the environment variable NOTIFY_SOCKET names (sd_notify(3)). The part
 * owns the connection to this socket. Without a service manager the functions send nothing; a
 * message that the manager does not take at once is lost. The main thread of a gateway, a machine
 * or a stage process makes every call. */
#ifndef HOST_NOTIFY_H
#define HOST_NOTIFY_H

#include <stdint.h>

struct notify {
    int fd;              /* Connected to the service manager; -1 = there is none. */
    int64_t interval_us; /* Time between signs of life; 0 = the manager wants none. */
    int64_t next_us;     /* When the next sign of life is due (monotonic clock). */
};

/* Connects to the service manager that the environment names. Removes NOTIFY_SOCKET, WATCHDOG_USEC
 * and WATCHDOG_PID from the environment, so that child processes do not use them. Requires that the
 * process has not entered the sandbox. */
void notify_open(struct notify *n);
void notify_close(struct notify *n);

/* Reports that the process serves. status_line: shown by `systemctl status`. */
void notify_ready(const struct notify *n, const char *status_line);
/* Reports that the process reads its config again; notify_ready ends this state. now_us: now, on
 * the monotonic clock. */
void notify_reloading(const struct notify *n, int64_t now_us);
/* Reports that the process ends. status_line: shown by `systemctl status`. */
void notify_stopping(const struct notify *n, const char *status_line);

/* Sends a sign of life if it is due. Called in each iteration of the event loop. Returns the
 * milliseconds after which it must be called again; -1 = the manager wants no signs of life. */
int notify_turn(struct notify *n, int64_t now_us);

#endif
