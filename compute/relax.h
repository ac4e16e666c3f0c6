/* relax: the pause instruction for a loop that polls memory which another core writes.
 * cpu/workers.c and meeting.c call it, on any thread. No state. It does not give the core to other
 * threads. */
#ifndef COMPUTE_RELAX_H
#define COMPUTE_RELAX_H

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
