/* parent: makes the kernel signal a process when its parent (the process that started it) ends. A
 * new child process (a local machine or stage process, or a child of tools/ or bench/) calls one of
 * the two functions on its first thread. The functions keep no state. They start no children and do
 * not wait for children (host/child.h starts `cleave machine`). */
#ifndef COMMON_PARENT_H
#define COMMON_PARENT_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <unistd.h>

/* For a child after fork(): asks the kernel to send `signal_number` to this process when the
 * parent's thread that called fork() ends. `parent` is the process id of the parent, read with
 * getpid() before the fork. If the parent has already ended, the function raises the signal. */
static inline void parent_end_signal_set(int signal_number, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, signal_number);
    if (getppid() != parent)
        raise(signal_number);
}

/* For a child after exec, which does not know its parent's process id: asks the kernel to send
 * `signal_number` to this process when the parent's thread that started the process ends. `pipe` is
 * the writing end of a pipe whose only reading end the parent holds. Returns false if the parent
 * has already ended. The caller must then end the process, because the kernel may send no
 * signal. */
static inline bool parent_end_signal_set_by_pipe(int signal_number, int pipe)
{
    struct pollfd end = {.fd = pipe};
    prctl(PR_SET_PDEATHSIG, signal_number);
    return poll(&end, 1, 0) == 0 || (end.revents & POLLERR) == 0;
}

#endif
