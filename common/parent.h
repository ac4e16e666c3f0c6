/* parent: lets the kernel signal a process when its parent (the process that started it) ends. A
 * new child process calls one of the two functions on its first thread: the first function right
 * after fork if the child runs no other program (tools/doctor/, tools/profile/), the second one
 * after exec if the child is a `cleave machine` that another cleave process started. The functions
 * keep no state. They do not start children or wait for them (host/child.h starts `cleave
 * machine`). */
#ifndef COMMON_PARENT_H
#define COMMON_PARENT_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <unistd.h>

/* For a child after fork(): asks the kernel to send `signal_number` to this process when the thread
 * that called fork() ends. `parent` is the parent's id, read with getpid() before the fork. If the
 * parent has ended already, the function raises the signal itself. */
static inline void parent_end_signal_set(int signal_number, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, signal_number);
    if (getppid() != parent)
        raise(signal_number);
}

/* For a child after exec, which does not know its parent's id: asks the kernel to send
 * `signal_number` to this process when the thread that started it ends. `pipe` is the writing end
 * of a pipe whose only reading end the parent holds. Returns false if the parent has ended already:
 * no signal is raised then, and the caller must end the process. */
static inline bool parent_end_signal_set_by_pipe(int signal_number, int pipe)
{
    struct pollfd end = {.fd = pipe};
    prctl(PR_SET_PDEATHSIG, signal_number);
    return poll(&end, 1, 0) == 0 || (end.revents & POLLERR) == 0;
}

#endif
