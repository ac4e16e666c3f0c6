/* parent: makes a process end together with the process that started it. A new child process calls
 * it on its first thread: the children of `cleave doctor`, `cleave profile` and bench-gateway right
 * after fork, and `cleave machine` after exec, when it has read its config and if it is a stage
 * process or a local machine. No state. It does not start or wait for children (see host/child.h).
 */
#ifndef COMMON_PARENT_H
#define COMMON_PARENT_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <unistd.h>

/* For a child after fork(): from now on, the kernel sends `signal_number` to this process when the
 * thread that forked it ends. `parent` is the parent's id, read with getpid() before the fork. If
 * the parent has ended already, the signal is raised now, because the kernel would never send it.
 */
static inline void parent_follow(int signal_number, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, signal_number);
    if (getppid() != parent)
        raise(signal_number);
}

/* For a child after exec, which does not know its parent's id: the kernel sends `signal_number` to
 * this process when the thread that started it ends. `pipe` is the writing end of a pipe whose only
 * reading end the parent holds. Returns false if the parent has ended already: no signal is raised
 * then, and the caller ends the process itself. */
static inline bool parent_follow_pipe(int signal_number, int pipe)
{
    struct pollfd end = {.fd = pipe};
    prctl(PR_SET_PDEATHSIG, signal_number);
    return poll(&end, 1, 0) == 0 || (end.revents & POLLERR) == 0;
}

#endif
