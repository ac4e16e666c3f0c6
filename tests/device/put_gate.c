/* put_gate: a library for LD_PRELOAD that stops a process in the middle of a put into another
 * process's memory, so that a test of real processes can stop a machine there.
 *
 * While the file that the environment's CLEAVE_PUT_GATE names exists, the first process that begins
 * a put writes its process id to "FILE.held" and waits until FILE is gone, at most HOLD_S_MAX.
 * Other processes continue: only the process that has created "FILE.held" is held. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <dlfcn.h>

#define HOLD_S_MAX 300
#define POLL_US    5000

static void pause_us(uint32_t us)
{
    struct timespec left = {.tv_nsec = (long)us * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static void gate_wait(void)
{
    const char *gate = getenv("CLEAVE_PUT_GATE");
    char held[4200];
    if (gate == NULL || access(gate, F_OK) != 0)
        return;
    snprintf(held, sizeof(held), "%s.held", gate);
    int fd = open(held, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    dprintf(fd, "%d\n", getpid());
    close(fd);
    for (uint64_t us = 0; us < HOLD_S_MAX * 1000000ull && access(gate, F_OK) == 0; us += POLL_US)
        pause_us(POLL_US);
}

ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep, const void *buffer, size_t count, uint64_t remote_addr,
                             ucp_rkey_h rkey, const ucp_request_param_t *param)
{
    static __typeof__(&ucp_put_nbx) next;
    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "ucp_put_nbx");
    gate_wait();
    return next(ep, buffer, count, remote_addr, rkey, param);
}
