/* block: runs the blocks of a kernel one after another, and a block's threads as fibers of the
 * calling CPU thread. A fiber runs until it waits (at a barrier or in a function of its warp) or
 * ends. Then another fiber of its warp runs, or one of the next warp. If no fiber can run and not
 * all have ended, the emulator stops and names the fibers that wait. */
#include "emulator.h"
#include "fiber.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <link.h>
#include <sys/mman.h>
#include <vector>

namespace emulated
{
__thread struct thread *self __attribute__((tls_model("initial-exec")));

namespace
{
constexpr unsigned THREADS_MAX = 1024;
constexpr size_t STACK_BYTES = 64 << 10, PAGE_BYTES = 4096, SHARED_MAX = 256 << 10;

struct copy {
    void *to;
    const void *from;
    unsigned bytes, source_bytes;
};

/* What a waiting fiber waits for. */
struct waiting {
    warp_function function; /* NULL = the block's barrier. */
    uint32_t mask;
    const char *name, *file;
    int line;
};

struct fiber : thread {
    void *stack_pointer;
    struct waiting waiting;
    bool waits, ended;
    /* Copies in order; groups: number of copies that each commit closed. */
    std::vector<struct copy> copies;
    std::vector<size_t> groups;
};

struct warp {
    uint32_t runnable;
    uint32_t waiting; /* Mask of lanes that wait in a function of the warp. */
    const void *in[32];
    void *out[32];
};

/* The state of a CPU thread that runs blocks. */
struct runner {
    struct block block;
    const struct launch *launch;
    struct fiber fibers[THREADS_MAX];
    struct warp warps[THREADS_MAX / 32];
    unsigned threads, warp_count, ended, at_barrier;
    int votes, votes_done;
    unsigned current; /* The fiber that runs. */
    bool running;
    void *main_stack_pointer;
    char *stacks, *shared_area, *fault_stack;
    uint64_t random, order;
    ~runner();
};

thread_local std::unique_ptr<struct runner> runner_of_thread;
/* Points to the thread's runner without a call. */
__thread struct runner *runner_now __attribute__((tls_model("initial-exec")));

char *map(size_t bytes)
{
    void *area = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED)
        stop("no memory for the emulator's fibers");
    return static_cast<char *>(area);
}

runner::~runner()
{
    runner_now = nullptr;
    fault_stack_use(nullptr, 0);
    munmap(stacks, THREADS_MAX * STACK_BYTES);
    munmap(shared_area, SHARED_MAX + 2 * PAGE_BYTES);
    munmap(fault_stack, STACK_BYTES);
}

struct runner &runner_get()
{
    if (!runner_of_thread) {
        runner_of_thread = std::make_unique<struct runner>();
        struct runner &r = *runner_of_thread;
        runner_now = &r;
        r.stacks = map(THREADS_MAX * STACK_BYTES);
        for (unsigned i = 0; i < THREADS_MAX; i++) /* An overflow hits the page, not a neighbour. */
            mprotect(r.stacks + i * STACK_BYTES, PAGE_BYTES, PROT_NONE);
        r.shared_area = map(SHARED_MAX + 2 * PAGE_BYTES);
        mprotect(r.shared_area, PAGE_BYTES, PROT_NONE);
        mprotect(r.shared_area + PAGE_BYTES + SHARED_MAX, PAGE_BYTES, PROT_NONE);
        r.fault_stack = map(STACK_BYTES);
        fault_stack_use(r.fault_stack, STACK_BYTES);
    }
    return *runner_of_thread;
}

uint64_t draw(struct runner &r)
{
    r.random = r.random * 6364136223846793005u + 1442695040888963407u;
    return r.random >> 33;
}

unsigned pick_lane(struct runner &r, uint32_t lanes)
{
    if (r.order == 0)
        return (unsigned)__builtin_ctz(lanes);
    if (r.order == 1)
        return 31 - (unsigned)__builtin_clz(lanes);
    unsigned turn = (unsigned)draw(r) & 31;
    uint32_t turned = lanes >> turn | lanes << ((32 - turn) & 31);
    return ((unsigned)__builtin_ctz(turned) + turn) & 31;
}

/* Returns the fiber to run after the current one, from the current warp if possible. THREADS_MAX =
 * none can run. */
unsigned pick(struct runner &r)
{
    unsigned first = r.current / 32;
    if (r.warps[first].runnable != 0)
        return first * 32 + pick_lane(r, r.warps[first].runnable);
    for (unsigned i = 1; i < r.warp_count; i++) {
        unsigned down = (first + r.warp_count - i) % r.warp_count, up = (first + i) % r.warp_count;
        unsigned warp = r.order == 1 ? down : up;
        if (r.warps[warp].runnable != 0)
            return warp * 32 + pick_lane(r, r.warps[warp].runnable);
    }
    return THREADS_MAX;
}

std::string thread_name(const struct fiber &f)
{
    char text[64];
    snprintf(text, sizeof(text), "thread (%u,%u,%u)", f.index.x, f.index.y, f.index.z);
    return text;
}

std::string waiting_name(const struct fiber &f)
{
    char text[512], mask[32] = "";
    if (f.waiting.function != nullptr)
        snprintf(mask, sizeof(mask), " of mask %08x", f.waiting.mask);
    snprintf(text, sizeof(text), "%s waits in %s%s at %s:%d", thread_name(f).c_str(),
             f.waiting.name, mask, f.waiting.file, f.waiting.line);
    return text;
}

[[noreturn]] void stop_stuck(struct runner &r)
{
    const struct fiber *waits = nullptr, *other = nullptr;
    for (unsigned i = 0; i < r.threads; i++) {
        if (r.fibers[i].waits && waits == nullptr)
            waits = &r.fibers[i];
    }
    for (unsigned i = 0; i < r.threads; i++) {
        const struct fiber &f = r.fibers[i];
        bool missing = f.ended || f.waiting.function != waits->waiting.function ||
                       f.waiting.mask != waits->waiting.mask;
        bool wanted =
            waits->waiting.function == nullptr || (i / 32 == (unsigned)(waits - r.fibers) / 32 &&
                                                   (waits->waiting.mask >> (i % 32) & 1) != 0);
        if (missing && wanted) {
            other = &f;
            break;
        }
    }
    self = const_cast<struct fiber *>(waits);
    if (other == nullptr)
        thread_error("%s for lanes that the block does not have", waiting_name(*waits).c_str());
    thread_error("%s, but %s%s", waiting_name(*waits).c_str(),
                 other->ended ? thread_name(*other).c_str() : waiting_name(*other).c_str(),
                 other->ended ? " has ended" : "");
}

/* Runs another fiber, or returns to run_block() when all have ended. Returns when this fiber's turn
 * has come. */
void yield(struct runner &r)
{
    struct fiber &from = r.fibers[r.current];
    unsigned next = pick(r);
    if (next == THREADS_MAX) {
        if (r.ended != r.threads)
            stop_stuck(r);
        fiber_switch(&from.stack_pointer, r.main_stack_pointer);
        return;
    }
    r.current = next;
    self = &r.fibers[next];
    if (&r.fibers[next] != &from)
        fiber_switch(&from.stack_pointer, r.fibers[next].stack_pointer);
}

/* Lets the fiber wait for what its `waiting` says. */
void wait(struct runner &r)
{
    unsigned number = r.current;
    r.fibers[number].waits = true;
    r.warps[number / 32].runnable &= ~(1u << (number % 32));
    yield(r);
}

void wake(struct runner &r, unsigned number)
{
    r.fibers[number].waits = false;
    r.warps[number / 32].runnable |= 1u << (number % 32);
}

void fiber_main()
{
    struct runner &r = *runner_now;
    r.launch->body();
    struct fiber &f = r.fibers[r.current];
    f.ended = true;
    r.ended++;
    r.warps[r.current / 32].runnable &= ~(1u << (r.current % 32));
    yield(r);
    __builtin_unreachable();
}

struct poison_search {
    const void *function;
};

/* Finds the thread-local memory, on this CPU thread, of the object that has the kernel, and poisons
 * it. It contains only the kernel's __shared__ variables; the emulator's own are in another
 * object. */
int poison_static(struct dl_phdr_info *info, size_t, void *data)
{
    auto address = (uintptr_t) static_cast<struct poison_search *>(data)->function;
    bool here = false;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &header = info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header.p_vaddr;
        if (header.p_type == PT_LOAD && address >= begin && address < begin + header.p_memsz)
            here = true;
        if (header.p_type == PT_TLS)
            bytes = header.p_memsz;
    }
    if (here && info->dlpi_tls_data != nullptr && bytes > 0)
        memset(info->dlpi_tls_data, 0xff, bytes);
    return here;
}

void poison(struct runner &r)
{
    struct poison_search search = {r.launch->function};
    dl_iterate_phdr(poison_static, &search);
    memset(r.block.shared, 0xff, r.block.shared_bytes);
}

/* Stacks begin at different distances. At equal distances their hot lines would share a few sets of
 * the caches. */
char *stack_end(struct runner &r, unsigned i)
{
    return r.stacks + (i + 1) * STACK_BYTES - (i * 832) % (24 << 10);
}

void run_block(struct runner &r, uint3 index)
{
    r.block.index = index;
    r.ended = r.at_barrier = 0;
    r.votes = 0;
    poison(r);
    uint3 at = {0, 0, 0};
    for (unsigned i = 0; i < r.threads; i++) {
        struct fiber &f = r.fibers[i];
        f.index = at;
        f.lane = i % 32;
        f.block = &r.block;
        f.waits = f.ended = false;
        f.copies.clear();
        f.groups.clear();
        f.stack_pointer = fiber_prepare(stack_end(r, i), fiber_main);
        if (++at.x == r.block.size.x) {
            at.x = 0;
            if (++at.y == r.block.size.y) {
                at.y = 0;
                at.z++;
            }
        }
    }
    for (unsigned w = 0; w < r.warp_count; w++) {
        unsigned lanes = std::min(32u, r.threads - w * 32);
        r.warps[w].waiting = 0;
        r.warps[w].runnable = lanes == 32 ? ~0u : (1u << lanes) - 1;
    }
    r.current = r.order == 1 ? r.threads - 1 : 0;
    r.current = pick(r);
    self = &r.fibers[r.current];
    fiber_switch(&r.main_stack_pointer, r.fibers[r.current].stack_pointer);
    self = nullptr;
}

/* Checks that the running lane and a waiting lane whose mask contains the running one are in the
 * same call. */
void check_same(struct runner &r, const struct waiting &mine, unsigned number)
{
    const struct fiber &f = r.fibers[number];
    const struct waiting &w = f.waiting;
    if ((w.mask >> (r.current % 32) & 1) != 0 &&
        (w.function != mine.function || w.mask != mine.mask || w.line != mine.line ||
         w.file != mine.file))
        thread_error("it is in %s of mask %08x at %s:%d while %s", mine.name, mine.mask, mine.file,
                     mine.line, waiting_name(f).c_str());
}

void copy_land(struct fiber &f, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct copy &c = f.copies[i];
        memcpy(c.to, c.from, c.source_bytes);
        memset(static_cast<char *>(c.to) + c.source_bytes, 0, c.bytes - c.source_bytes);
    }
    f.copies.erase(f.copies.begin(), f.copies.begin() + (ptrdiff_t)count);
}
} // namespace

void run_kernel(const struct launch &launch)
{
    struct runner &r = runner_get();
    r.launch = &launch;
    r.random = r.order = options().order;
    r.block.size = launch.block;
    r.block.grid = launch.grid;
    r.block.shared_bytes = launch.shared_bytes;
    size_t kept = (launch.shared_bytes + 15) & ~(size_t)15;
    r.block.shared = r.shared_area + PAGE_BYTES + SHARED_MAX - kept;
    r.threads = launch.block.x * launch.block.y * launch.block.z;
    r.warp_count = (r.threads + 31) / 32;
    r.running = true;
    uint64_t blocks = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t b = r.order == 0 ? i : blocks - 1 - i;
        run_block(r, uint3{(unsigned)(b % launch.grid.x),
                           (unsigned)(b / launch.grid.x % launch.grid.y),
                           (unsigned)(b / launch.grid.x / launch.grid.y)});
    }
    r.running = false;
}

void warp_call(uint32_t mask, warp_function function, const void *in, void *out, const char *name,
               const char *file, int line)
{
    struct runner &r = *runner_now;
    unsigned number = r.current, lane = number % 32, first = number - lane;
    struct warp &warp = r.warps[number / 32];
    if ((mask >> lane & 1) == 0)
        thread_error("%s of mask %08x, in which its lane %u is not, at %s:%d", name, mask, lane,
                     file, line);
    warp.in[lane] = in;
    warp.out[lane] = out;
    /* Filled field by field: copying a struct would stall. */
    struct waiting &mine = r.fibers[number].waiting;
    mine.function = function;
    mine.mask = mask;
    mine.name = name;
    mine.file = file;
    mine.line = line;
    uint32_t others = mask & ~(1u << lane);
    /* One is enough, because the waiting lanes have been compared with each other. */
    if (warp.waiting != 0)
        check_same(r, mine, first + (unsigned)__builtin_ctz(warp.waiting));
    if ((others & ~warp.waiting) != 0) {
        warp.waiting |= 1u << lane;
        wait(r);
        return;
    }
    for (uint32_t rest = others; rest != 0; rest &= rest - 1)
        check_same(r, mine, first + (unsigned)__builtin_ctz(rest));
    function(mask, warp.in, warp.out);
    warp.waiting &= ~mask;
    for (uint32_t rest = others; rest != 0; rest &= rest - 1)
        wake(r, first + (unsigned)__builtin_ctz(rest));
}

int block_count(int vote, const char *file, int line)
{
    struct runner &r = *runner_now;
    r.votes += vote != 0;
    struct waiting &mine = r.fibers[r.current].waiting;
    mine.function = nullptr;
    mine.mask = 0;
    mine.name = "__syncthreads";
    mine.file = file;
    mine.line = line;
    if (++r.at_barrier < r.threads) {
        wait(r);
        return r.votes_done;
    }
    for (unsigned i = 0; i < r.threads; i++) {
        const struct fiber &f = r.fibers[i];
        if (i != r.current && (f.waiting.line != line || f.waiting.file != file))
            thread_error("it is in __syncthreads at %s:%d while %s", file, line,
                         waiting_name(f).c_str());
        if (i != r.current)
            wake(r, i);
    }
    r.at_barrier = 0;
    r.votes_done = r.votes;
    r.votes = 0;
    return r.votes_done;
}

void block_barrier(const char *file, int line)
{
    block_count(0, file, line);
}

void warp_nothing(uint32_t, const void *const *, void *const *)
{
}

void warp_match_any(uint32_t mask, const void *const *in, void *const *out)
{
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest), same = 0;
        for (uint32_t other = mask; other != 0; other &= other - 1) {
            unsigned i = (unsigned)__builtin_ctz(other);
            if (*static_cast<const unsigned *>(in[i]) == *static_cast<const unsigned *>(in[lane]))
                same |= 1u << i;
        }
        *static_cast<unsigned *>(out[lane]) = same;
    }
}

void copy_begin(void *shared, const void *global, unsigned bytes, unsigned source_bytes)
{
    if (((uintptr_t)shared | (source_bytes == 0 ? 0 : (uintptr_t)global)) % bytes != 0)
        thread_error("cp.async of %u bytes from %p to %p: not aligned", bytes, global, shared);
    struct runner &r = *runner_now;
    r.fibers[r.current].copies.push_back({shared, global, bytes, source_bytes});
}

void copy_commit()
{
    struct runner &r = *runner_now;
    struct fiber &f = r.fibers[r.current];
    size_t before = 0;
    for (size_t count : f.groups)
        before += count;
    f.groups.push_back(f.copies.size() - before);
}

void copy_wait(unsigned groups_left)
{
    struct runner &r = *runner_now;
    struct fiber &f = r.fibers[r.current];
    while (f.groups.size() > groups_left) {
        copy_land(f, f.groups.front());
        f.groups.erase(f.groups.begin());
    }
}

bool running_describe(char *text, size_t size)
{
    if (runner_now == nullptr || !runner_now->running || self == nullptr)
        return false;
    const struct runner &r = *runner_now;
    snprintf(text, size, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)", r.launch->name,
             r.block.index.x, r.block.index.y, r.block.index.z, self->index.x, self->index.y,
             self->index.z);
    return true;
}

bool running_shared_overrun(const void *address, long *past_out)
{
    if (runner_now == nullptr || !runner_now->running)
        return false;
    const struct runner &r = *runner_now;
    const char *at = static_cast<const char *>(address), *area = r.shared_area;
    if (at < area || at >= area + SHARED_MAX + 2 * PAGE_BYTES)
        return false;
    *past_out = at - (static_cast<const char *>(r.block.shared) + r.block.shared_bytes);
    return true;
}

void thread_error(const char *format, ...)
{
    char text[1024], where[256] = "no kernel";
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    running_describe(where, sizeof(where));
    stop("%s: %s", where, text);
}
} // namespace emulated
