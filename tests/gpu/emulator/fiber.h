/* fiber: stacks between which a CPU thread can switch, for block.cc, which runs each thread of a
 * block as a fiber. On x86-64 the switch is a few instructions; other CPUs use ucontext. A fiber
 * stays on its CPU thread. It allocates no stacks and schedules nothing: block.cc does. */
#ifndef TESTS_GPU_EMULATOR_FIBER_H
#define TESTS_GPU_EMULATOR_FIBER_H

namespace emulated
{
/* Prepares a fiber that starts in `entry`, which must never return, on the stack that ends at
 * `stack_end`. Returns the fiber's place for fiber_switch. */
void *fiber_prepare(char *stack_end, void (*entry)());
/* Stores the running fiber's place in *from and continues the fiber at `to`. */
extern "C" void fiber_switch(void **from, void *to);
} // namespace emulated

#endif
