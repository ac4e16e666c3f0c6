/* fiber: stacks to switch between. By hand on x86-64 (a few ns); by ucontext elsewhere. */
#ifndef TESTS_GPU_EMULATOR_FIBER_H
#define TESTS_GPU_EMULATOR_FIBER_H

namespace emulated
{
/* A fiber that starts in `entry`, which never returns, on the stack that ends at `stack_end`. */
void *fiber_prepare(char *stack_end, void (*entry)());
/* Leaves the running one's place in *from and goes on with `to`. */
extern "C" void fiber_switch(void **from, void *to);
} // namespace emulated

#endif
