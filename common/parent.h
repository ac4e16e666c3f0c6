/* parent: a process that must not outlive the one that started it. Called by a new child process,
 * before it does anything else; no state. It does not wait for children (see host/child.h). */
#ifndef COMMON_PARENT_H
#define COMMON_PARENT_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <unistd.h>

/* After fork(): the kernel sends `signal_number` to this process when the thread that forked it
 * ends. `parent` is getpid() of before the fork: if that process has ended already, the signal is
 * raised now, because the kernel would never send it. */
static inline void parent_follow(int signal_number, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, signal_number);
    if (getppid() != parent)
        raise(signal_number);
}

/* The same after exec, where the parent's id is not known: `pipe` is the writing end of a pipe whose
 * only reading end the parent holds. Returns false if the parent has ended already. */
static inline bool parent_follow_pipe(int signal_number, int pipe)
{
    struct pollfd end = {.fd = pipe};
    prctl(PR_SET_PDEATHSIG, signal_number);
    return poll(&end, 1, 0) == 0 || (end.revents & POLLERR) == 0;
}

#endif
