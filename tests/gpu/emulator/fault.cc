/* fault: reports a memory fault in a kernel, or by the host on device memory, with its place. */
#include "emulator.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unistd.h>

namespace emulated
{
namespace
{
struct sigaction before[3]; /* Earlier handlers of SIGSEGV, SIGBUS and SIGILL. */

void handle(int signal, siginfo_t *info, void *context)
{
    char where[256], what[256] = "";
    long past;
    bool kernel = running_describe(where, sizeof(where));
    bool device = signal != SIGILL && memory_describe(info->si_addr, what, sizeof(what));
    if (kernel && running_shared_overrun(info->si_addr, &past)) {
        snprintf(what, sizeof(what), "byte %ld %s the dynamic shared memory",
                 past < 0 ? -past : past, past < 0 ? "before the end of" : "past the end of");
        stop("%s: %s", where, what);
    }
    if (kernel && signal == SIGILL) /* -fsanitize-undefined-trap-on-error */
        stop("%s: an access that is not aligned, or beyond an array", where);
    if (kernel)
        stop("%s: access to %p: %s", where, info->si_addr,
             device ? what : "no memory of the device, or not aligned");
    if (device)
        stop("the host touched device memory: %s", what);
    const struct sigaction &old = before[signal == SIGBUS ? 1 : signal == SIGILL ? 2 : 0];
    if ((old.sa_flags & SA_SIGINFO) != 0 && old.sa_sigaction != nullptr)
        old.sa_sigaction(signal, info, context);
    else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN)
        old.sa_handler(signal);
    else
        /* The faulting instruction runs again, so that the process ends as it would have without
         * this handler. */
        sigaction(signal, &old, nullptr);
}
} // namespace

void fault_stack_use(char *memory, size_t bytes)
{
    stack_t stack = {};
    stack.ss_sp = memory;
    stack.ss_size = bytes;
    stack.ss_flags = memory == nullptr ? SS_DISABLE : 0;
    sigaltstack(&stack, nullptr);
}

void fault_install()
{
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &before[0]);
    sigaction(SIGBUS, &action, &before[1]);
    sigaction(SIGILL, &action, &before[2]);
}
} // namespace emulated
