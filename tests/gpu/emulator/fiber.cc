/* fiber: a switch saves the registers that a called function must preserve (System V ABI) and
 * changes the stack. */
#include "fiber.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl fiber_switch\n"
        ".type fiber_switch, @function\n"
        "fiber_switch:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size fiber_switch, .-fiber_switch\n");

namespace emulated
{
void *fiber_prepare(char *stack_end, void (*entry)())
{
    /* Six registers, the entry, and an unused return address; 16-byte aligned. */
    uint64_t *at = reinterpret_cast<uint64_t *>(stack_end) - 8;
    memset(at, 0, 8 * sizeof(*at));
    at[6] = reinterpret_cast<uint64_t>(entry);
    return at;
}
} // namespace emulated
#else
#include <ucontext.h>

namespace emulated
{
namespace
{
/* Lies at the upper end of the fiber's stack; for the main fiber on its own stack. */
struct place {
    ucontext_t context;
};
constexpr size_t STACK_USED = 60 << 10;
} // namespace

void *fiber_prepare(char *stack_end, void (*entry)())
{
    auto address = (reinterpret_cast<uintptr_t>(stack_end) - sizeof(struct place)) & ~(uintptr_t)63;
    auto *place = reinterpret_cast<struct place *>(address);
    getcontext(&place->context);
    place->context.uc_stack.ss_sp = stack_end - STACK_USED;
    place->context.uc_stack.ss_size = address - reinterpret_cast<uintptr_t>(stack_end - STACK_USED);
    makecontext(&place->context, entry, 0);
    return place;
}

extern "C" void fiber_switch(void **from, void *to)
{
    struct place here; /* Valid during this call, which lasts until the fiber switches back. */
    *from = &here;
    swapcontext(&here.context, &static_cast<struct place *>(to)->context);
}
} // namespace emulated
#endif
