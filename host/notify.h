/* notify: sends messages to the service manager that started this process (systemd, Type=notify):
 * that the process is ready, what it does, and that it is alive (sd_notify(3)). The part owns the
 * connection to the manager. Without a service manager the functions send nothing. A message that
 * the manager does not take at once is lost. Gateways, machines and stage processes make the calls
 * on their main threads. */
#ifndef HOST_NOTIFY_H
#define HOST_NOTIFY_H

#include <stdint.h>

struct notify {
    int fd;              /* Connected to the service manager; -1 = no service manager. */
    int64_t interval_us; /* Time between signs of life; 0 = the manager wants none. */
    int64_t next_us;     /* When the next sign of life is due (monotonic clock). */
};

/* Connects to the service manager that the environment names. Removes NOTIFY_SOCKET, WATCHDOG_USEC
 * and WATCHDOG_PID from the environment, so that child processes do not use them. Call it before
 * the process enters the sandbox. */
void notify_open(struct notify *n);
void notify_close(struct notify *n);

/* Reports that the process serves. `systemctl status` shows status_line. */
void notify_ready(const struct notify *n, const char *status_line);
/* Reports that the process is reading its config again. Call notify_ready when the process has read
 * the config. now_us: monotonic clock. */
void notify_reloading(const struct notify *n, int64_t now_us);
/* Reports that the process ends. `systemctl status` shows status_line. */
void notify_stopping(const struct notify *n, const char *status_line);

/* Sends a sign of life if it is due. now_us: monotonic clock. Returns the number of milliseconds
 * after which the caller must call notify_turn again; -1 = the manager wants no signs of life. */
int notify_turn(struct notify *n, int64_t now_us);

#endif
