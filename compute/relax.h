/* relax: the pause instruction, for loops that poll memory which another core writes
 * (cpu/workers.c, meeting.c). Any thread; no state. The instruction does not give the core to other
 * threads. On CPUs other than x86 and 64-bit Arm, cpu_relax does nothing. */
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
