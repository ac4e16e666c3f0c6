/* emulated_threads: what a thread of a kernel sees of itself and of other threads: indices,
 * barriers, the functions of a warp, asynchronous copies. Part of cuda_runtime.h; only kernels call
 * it.
 *
 * The threads of a block are fibers of one CPU thread (block.cc). A function of a warp waits until
 * every lane of its mask has called it from the same line of the source; the last lane then
 * computes the results of all lanes. */
#ifndef TESTS_GPU_EMULATOR_EMULATED_THREADS_H
#define TESTS_GPU_EMULATOR_EMULATED_THREADS_H

#include "emulated_types.h"

namespace emulated
{
struct block {
    uint3 index;
    dim3 size, grid;
    void *shared; /* Dynamic shared memory. A guard page follows its last byte. */
    size_t shared_bytes;
};

struct thread {
    uint3 index;
    unsigned lane;
    const struct block *block;
};

/* The thread that runs now; set by the switch between fibers. */
extern __thread struct thread *self __attribute__((tls_model("initial-exec")));

/* Computes out[l] from in[l] for each lane l of the mask. The result must depend on nothing else.
 */
typedef void (*warp_function)(uint32_t mask, const void *const *in, void *const *out);

/* Waits until each lane of `mask` has called warp_call with the same mask, function and place in
 * the source, and `function` has run over all of them. */
void warp_call(uint32_t mask, warp_function function, const void *in, void *out, const char *name,
               const char *file, int line);
void block_barrier(const char *file, int line);
/* Waits for all threads of the block and returns the number of threads whose `vote` is not 0 (for
 * __syncthreads_or, _and and _count). */
int block_count(int vote, const char *file, int line);
[[noreturn]] void thread_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Asynchronous copies by this thread. The bytes arrive when the thread waits for the copy; until
 * then the old bytes are read. */
void copy_begin(void *shared, const void *global, unsigned bytes, unsigned source_bytes);
void copy_commit();
void copy_wait(unsigned groups_left);

template <class T> struct shuffle_in {
    T value;
    unsigned source;
};

template <class T> void shuffle(uint32_t mask, const void *const *in, void *const *out)
{
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        unsigned source = static_cast<const shuffle_in<T> *>(in[lane])->source;
        if ((mask >> source & 1) == 0)
            thread_error("a shuffle reads lane %u, which mask %08x leaves out", source, mask);
        *static_cast<T *>(out[lane]) = static_cast<const shuffle_in<T> *>(in[source])->value;
    }
}

template <class T>
T shuffle_call(uint32_t mask, T value, unsigned source, const char *name, const char *file,
               int line)
{
    shuffle_in<T> in{value, source};
    T out;
    warp_call(mask, shuffle<T>, &in, &out, name, file, line);
    return out;
}

/* Combines the lanes' values in the order of the lanes; every lane gets the result. */
template <class T, class F> void reduce(uint32_t mask, const void *const *in, void *const *out)
{
    T sum = *static_cast<const T *>(in[__builtin_ctz(mask)]);
    for (uint32_t rest = mask & (mask - 1); rest != 0; rest &= rest - 1)
        sum = F()(sum, *static_cast<const T *>(in[__builtin_ctz(rest)]));
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1)
        *static_cast<T *>(out[__builtin_ctz(rest)]) = sum;
}

template <class F, class T>
T reduce_call(uint32_t mask, T value, const char *name, const char *file, int line)
{
    T out;
    warp_call(mask, reduce<T, F>, &value, &out, name, file, line);
    return out;
}

struct least {
    template <class T> T operator()(T a, T b) const
    {
        return b < a ? b : a;
    }
};

struct greatest {
    template <class T> T operator()(T a, T b) const
    {
        return a < b ? b : a;
    }
};

void warp_nothing(uint32_t mask, const void *const *in, void *const *out);
void warp_match_any(uint32_t mask, const void *const *in, void *const *out);
} // namespace emulated

#define threadIdx (emulated::self->index)
#define blockIdx  (emulated::self->block->index)
#define blockDim  (emulated::self->block->size)
#define gridDim   (emulated::self->block->grid)
constexpr int warpSize = 32;

/* The place in the source of a collective's call: the caller's file and line. */
#define EMULATED_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(EMULATED_PLACE)
{
    emulated::block_barrier(file, line);
}

static inline int __syncthreads_or(int vote, EMULATED_PLACE)
{
    return emulated::block_count(vote, file, line) != 0;
}

static inline int __syncthreads_count(int vote, EMULATED_PLACE)
{
    return emulated::block_count(vote, file, line);
}

static inline int __syncthreads_and(int vote, EMULATED_PLACE)
{
    return emulated::block_count(vote == 0, file, line) == 0;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATED_PLACE)
{
    emulated::warp_call(mask, emulated::warp_nothing, nullptr, nullptr, "__syncwarp", file, line);
}

template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMULATED_PLACE)
{
    unsigned lane = emulated::self->lane, first = lane & ~((unsigned)width - 1);
    return emulated::shuffle_call(mask, value, first | ((unsigned)source & ((unsigned)width - 1)),
                                  "__shfl_sync", file, line);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATED_PLACE)
{
    unsigned lane = emulated::self->lane, first = lane & ~((unsigned)width - 1);
    return emulated::shuffle_call(mask, value, lane < first + delta ? lane : lane - delta,
                                  "__shfl_up_sync", file, line);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATED_PLACE)
{
    unsigned lane = emulated::self->lane, end = (lane & ~((unsigned)width - 1)) + (unsigned)width;
    return emulated::shuffle_call(mask, value, lane + delta < end ? lane + delta : lane,
                                  "__shfl_down_sync", file, line);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, EMULATED_PLACE)
{
    unsigned lane = emulated::self->lane, end = (lane & ~((unsigned)width - 1)) + (unsigned)width;
    unsigned source = lane ^ (unsigned)lane_mask;
    return emulated::shuffle_call(mask, value, source < end ? source : lane, "__shfl_xor_sync",
                                  file, line);
}

static inline unsigned __ballot_sync(unsigned mask, int vote, EMULATED_PLACE)
{
    unsigned bit = vote != 0 ? 1u << emulated::self->lane : 0;
    return emulated::reduce_call<std::bit_or<unsigned>>(mask, bit, "__ballot_sync", file, line);
}

static inline int __any_sync(unsigned mask, int vote, EMULATED_PLACE)
{
    return emulated::reduce_call<std::bit_or<int>>(mask, (int)(vote != 0), "__any_sync", file,
                                                   line);
}

static inline int __all_sync(unsigned mask, int vote, EMULATED_PLACE)
{
    return emulated::reduce_call<std::bit_and<int>>(mask, (int)(vote != 0), "__all_sync", file,
                                                    line);
}

static inline unsigned __match_any_sync(unsigned mask, unsigned value, EMULATED_PLACE)
{
    unsigned out;
    emulated::warp_call(mask, emulated::warp_match_any, &value, &out, "__match_any_sync", file,
                        line);
    return out;
}

#define EMULATED_REDUCE(name, type, function)                                                      \
    static inline type __reduce_##name##_sync(unsigned mask, type value, EMULATED_PLACE)           \
    {                                                                                              \
        return emulated::reduce_call<function>(mask, value, "__reduce_" #name "_sync", file,       \
                                               line);                                              \
    }
EMULATED_REDUCE(add, unsigned, std::plus<unsigned>)
EMULATED_REDUCE(add, int, std::plus<int>)
EMULATED_REDUCE(min, unsigned, emulated::least)
EMULATED_REDUCE(min, int, emulated::least)
EMULATED_REDUCE(max, unsigned, emulated::greatest)
EMULATED_REDUCE(max, int, emulated::greatest)
EMULATED_REDUCE(and, unsigned, std::bit_and<unsigned>)
EMULATED_REDUCE(or, unsigned, std::bit_or<unsigned>)
EMULATED_REDUCE(xor, unsigned, std::bit_xor<unsigned>)
#undef EMULATED_REDUCE

/* Ends the process: which lanes run together with this one has no meaning on a CPU. */
static inline unsigned __activemask()
{
    emulated::thread_error("__activemask: name the lanes instead");
}

static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void __threadfence_block()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void __threadfence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void __nanosleep(unsigned)
{
}

/* Programmatic dependent launch does nothing here, because kernels run one after the other. */
static inline void cudaGridDependencySynchronize()
{
}

static inline void cudaTriggerProgrammaticLaunchCompletion()
{
}

#endif
