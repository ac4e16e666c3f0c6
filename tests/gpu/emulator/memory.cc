/* memory: a device's memory is one unnamed file, mapped far from other memory. Addresses are never
 * reused, so a freed pointer faults. Each allocation ends at a page's end and has guard pages
 * around it. All bytes are 0xff (a NaN in every float format) until written. The host cannot access
 * device memory: its pages have a protection key, and only CPU threads that run a kernel or a copy
 * have its rights.
 *
 * On a CPU without such keys, the pages are open for all threads while a kernel or copy runs.
 * Opening and closing takes a system call for each allocation, which would be most of a test's
 * time. So after CLOSINGS_ALL closings only one in CLOSINGS_EVERY is done: wrong accesses by the
 * host are found early in a test, and later only sometimes. */
#include "memory.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

namespace emulated
{
namespace
{
constexpr char FILE_NAME[] = "emulated-device";
constexpr size_t PAGE_BYTES = 4096, ALIGN_BYTES = 256, SPACE_BYTES = (size_t)1 << 38;

std::mutex mutex;
/* Allocations by start of their area. Freed device memory stays in the map. */
std::map<uintptr_t, struct allocation> allocations;
size_t used_bytes[DEVICES_MAX];
uint64_t numbers;
char *space;
size_t space_used;
int space_file = -1;
int key = -1;

/* For CPUs without protection keys. */
constexpr unsigned CLOSINGS_ALL = 32, CLOSINGS_EVERY = 256;
std::mutex rights;    /* Locked before `mutex`. */
int open_count;       /* Accesses that run; guarded by `rights`. */
unsigned close_count; /* Guarded by `rights`. */
std::atomic<bool> pages_closed = true;
thread_local int access_depth;

bool of_device(const struct allocation &a)
{
    return a.kind == allocation_kind::device || a.kind == allocation_kind::opened;
}

void protect_all(int protection)
{
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto &[address, a] : allocations) {
        if (!a.freed && of_device(a))
            mprotect(a.area, a.area_bytes, protection);
    }
}

void pages_grant(bool granted)
{
    std::lock_guard<std::mutex> lock(rights);
    if (granted && open_count++ == 0 && pages_closed) {
        pages_closed = false;
        protect_all(PROT_READ | PROT_WRITE);
    } else if (!granted && --open_count == 0 &&
               (close_count++ < CLOSINGS_ALL || close_count % CLOSINGS_EVERY == 0)) {
        pages_closed = true;
        protect_all(PROT_NONE);
    }
}

void rights_grant(bool granted)
{
    if (key >= 0)
        pkey_set(key, granted ? 0 : PKEY_DISABLE_ACCESS);
    else
        pages_grant(granted);
}

void space_open()
{
    if (space != nullptr)
        return;
    const char *keys = getenv("CUDA_EMULATED_KEYS");
    if (keys == nullptr || strcmp(keys, "0") != 0)
        key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    space_file = memfd_create(FILE_NAME, MFD_CLOEXEC);
    void *area = MAP_FAILED;
    if (space_file >= 0 && ftruncate(space_file, (off_t)SPACE_BYTES) == 0)
        area = mmap(nullptr, SPACE_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, space_file, 0);
    if (area == MAP_FAILED)
        stop("no address space for the emulated device's memory");
    space = static_cast<char *>(area);
    space_used = PAGE_BYTES;
    fault_install();
}

/* Makes the pages accessible to kernels and copies; the host has no access. Requires the mutex. */
void pages_open(char *area, size_t bytes)
{
    int closed = pages_closed ? PROT_NONE : PROT_READ | PROT_WRITE;
    int status = key >= 0 ? pkey_mprotect(area, bytes, PROT_READ | PROT_WRITE, key)
                          : mprotect(area, bytes, closed);
    if (status != 0)
        stop("the emulated device's memory cannot be protected");
}

/* Returns the allocation with the last area that begins at or before the pointer. Requires the
 * mutex. */
struct allocation *find_before(const void *pointer)
{
    auto next = allocations.upper_bound((uintptr_t)pointer);
    return next == allocations.begin() ? nullptr : &std::prev(next)->second;
}

void add(struct allocation &a);

/* Checks that the bytes of the area outside the requested range still have their poison. */
void check_margins(const struct allocation &a)
{
    class access access;
    for (const char *at = a.area; at < a.begin; at++) {
        if (*at != (char)0xff)
            stop("allocation %llu of %zu bytes was written %ld bytes before its begin",
                 (unsigned long long)a.number, a.bytes, (long)(a.begin - at));
    }
    for (const char *at = a.begin + a.bytes; at < a.area + a.area_bytes; at++) {
        if (*at != (char)0xff)
            stop("allocation %llu of %zu bytes was written %ld bytes past its end",
                 (unsigned long long)a.number, a.bytes, (long)(at - a.begin - (long)a.bytes));
    }
}

void report_leaks(int status, void *)
{
    size_t bytes = 0, count = 0;
    const struct allocation *first = nullptr;
    for (const auto &[address, a] : allocations) {
        if (a.freed || a.kind == allocation_kind::registered)
            continue;
        bytes += a.bytes;
        count++;
        if (first == nullptr || a.number < first->number)
            first = &a;
    }
    if (count == 0 || status != 0)
        return;
    fprintf(stderr,
            "emulated CUDA: leaked %zu bytes in %zu allocations; the first is number %llu, of %zu "
            "bytes\n",
            bytes, count, (unsigned long long)first->number, first->bytes);
    if (options().leaks_fail) {
        fflush(nullptr);
        _exit(98);
    }
}

void add(struct allocation &a)
{
    if (numbers == 0)
        on_exit(report_leaks, nullptr);
    a.number = ++numbers;
    allocations[(uintptr_t)a.area] = a;
}
} // namespace

access::access()
{
    if (access_depth++ == 0)
        rights_grant(true);
}

access::~access()
{
    if (--access_depth == 0)
        rights_grant(false);
}

enum memory_kind memory_find(const void *pointer, size_t bytes)
{
    std::lock_guard<std::mutex> lock(mutex);
    const struct allocation *a = find_before(pointer);
    const char *at = static_cast<const char *>(pointer);
    if (a == nullptr || a->freed || at < a->begin || at + bytes > a->begin + a->bytes)
        return memory_kind::none;
    return of_device(*a) ? memory_kind::device : memory_kind::host;
}

int memory_device(const void *pointer)
{
    std::lock_guard<std::mutex> lock(mutex);
    const struct allocation *a = find_before(pointer);
    return a != nullptr && of_device(*a) ? a->device : -1;
}

bool memory_range(const void *pointer, uintptr_t *begin, size_t *bytes)
{
    std::lock_guard<std::mutex> lock(mutex);
    const struct allocation *a = find_before(pointer);
    const char *at = static_cast<const char *>(pointer);
    if (a == nullptr || a->freed || !of_device(*a) || at < a->begin || at >= a->begin + a->bytes)
        return false;
    *begin = (uintptr_t)a->begin;
    *bytes = a->bytes;
    return true;
}

bool memory_describe(const void *pointer, char *text, size_t size)
{
    const struct allocation *a = find_before(pointer);
    const char *at = static_cast<const char *>(pointer);
    bool in_space = at >= space && at < space + SPACE_BYTES && space != nullptr;
    if (a == nullptr)
        return false;
    /* For host memory, other data may follow directly. */
    const size_t guard_bytes = of_device(*a) ? PAGE_BYTES : 0;
    if (!in_space && at >= a->area + a->area_bytes + guard_bytes)
        return false;
    long past = (long)(at - (a->begin + a->bytes));
    const char *freed = a->freed ? "freed " : "";
    if (past < 0)
        snprintf(text, size, "byte %ld of %sallocation %llu of %zu bytes", (long)(at - a->begin),
                 freed, (unsigned long long)a->number, a->bytes);
    else
        snprintf(text, size, "%ld bytes past the end of %sallocation %llu of %zu bytes", past,
                 freed, (unsigned long long)a->number, a->bytes);
    return true;
}

cudaError_t device_take(void **pointer, size_t bytes, int device)
{
    std::lock_guard<std::mutex> lock(mutex);
    space_open();
    size_t kept = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    size_t area_bytes = (kept + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (kept < bytes || kept > options().memory_bytes - used_bytes[device] ||
        space_used + area_bytes + PAGE_BYTES > SPACE_BYTES)
        return cudaErrorMemoryAllocation;
    struct allocation a = {};
    a.kind = allocation_kind::device;
    a.bytes = bytes;
    a.area = space + space_used;
    a.area_bytes = area_bytes;
    a.begin = a.area + area_bytes - kept;
    a.device = device;
    space_used += area_bytes + PAGE_BYTES;
    used_bytes[device] += kept;
    pages_open(a.area, area_bytes);
    add(a);
    *pointer = a.begin;
    return cudaSuccess;
}

void poison_fill(void *pointer)
{
    struct allocation a;
    {
        std::lock_guard<std::mutex> lock(mutex);
        a = *find_before(pointer);
    }
    class access access;
    memset(a.area, 0xff, a.area_bytes);
}

cudaError_t device_release(void *pointer)
{
    struct allocation *a;
    {
        std::lock_guard<std::mutex> lock(mutex);
        a = find_before(pointer);
        if (a == nullptr || a->freed || a->kind != allocation_kind::device || a->begin != pointer)
            return cudaErrorInvalidValue;
    }
    check_margins(*a);
    std::lock_guard<std::mutex> lock(mutex);
    a->freed = true;
    used_bytes[a->device] -= (a->bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    mprotect(a->area, a->area_bytes, PROT_NONE);
    fallocate(space_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, a->area - space,
              (off_t)a->area_bytes);
    return cudaSuccess;
}

size_t device_used(int device)
{
    std::lock_guard<std::mutex> lock(mutex);
    return used_bytes[device];
}

cudaError_t host_take(void **pointer, size_t bytes)
{
    size_t area_bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    void *area =
        mmap(nullptr, area_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    memset(area, 0xff, area_bytes);
    struct allocation a = {};
    a.kind = allocation_kind::pinned;
    a.bytes = bytes;
    a.area = a.begin = static_cast<char *>(area);
    a.area_bytes = area_bytes;
    std::lock_guard<std::mutex> lock(mutex);
    add(a);
    *pointer = area;
    return cudaSuccess;
}

cudaError_t host_register(void *pointer, size_t bytes)
{
    struct allocation a = {};
    a.kind = allocation_kind::registered;
    a.bytes = a.area_bytes = bytes;
    a.area = a.begin = static_cast<char *>(pointer);
    std::lock_guard<std::mutex> lock(mutex);
    const struct allocation *before = find_before(a.area + bytes - 1);
    if (before != nullptr && !before->freed && before->area + before->area_bytes > a.area)
        return cudaErrorHostMemoryAlreadyRegistered;
    add(a);
    return cudaSuccess;
}

cudaError_t host_release(void *pointer, enum allocation_kind kind)
{
    std::lock_guard<std::mutex> lock(mutex);
    auto found = allocations.find((uintptr_t)pointer);
    if (found == allocations.end() || found->second.kind != kind)
        return kind == allocation_kind::registered ? cudaErrorHostMemoryNotRegistered
                                                   : cudaErrorInvalidValue;
    if (kind == allocation_kind::pinned || kind == allocation_kind::opened)
        munmap(found->second.area, found->second.area_bytes);
    allocations.erase(found);
    return cudaSuccess;
}

bool ipc_export(const void *pointer, struct ipc_memory *out)
{
    std::lock_guard<std::mutex> lock(mutex);
    const struct allocation *a = find_before(pointer);
    if (a == nullptr || a->freed || a->kind != allocation_kind::device || a->begin != pointer)
        return false;
    *out = {(int64_t)getpid(), space_file, (uint64_t)(a->area - space),
            a->area_bytes,     a->bytes,   (uint64_t)(a->begin - a->area),
            a->device};
    return true;
}

cudaError_t ipc_import(const struct ipc_memory &from, void **pointer)
{
    char path[64], target[64] = "";
    if (from.process == getpid())
        /* As on a device, only other processes may open the handle. */
        return cudaErrorInvalidValue;
    if (!options().ipc)
        return cudaErrorPeerAccessUnsupported;
    snprintf(path, sizeof(path), "/proc/%lld/fd/%lld", (long long)from.process,
             (long long)from.file);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length < 0 || strstr(target, FILE_NAME) == nullptr || from.offset % PAGE_BYTES != 0 ||
        from.area_bytes % PAGE_BYTES != 0 || from.offset > SPACE_BYTES ||
        from.area_bytes > SPACE_BYTES - from.offset || from.begin > from.area_bytes ||
        from.bytes > from.area_bytes - from.begin || from.device < 0 || from.device >= DEVICES_MAX)
        return cudaErrorInvalidValue;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return cudaErrorInvalidValue;
    std::lock_guard<std::mutex> lock(mutex);
    space_open();
    void *area = mmap(nullptr, from.area_bytes, PROT_NONE, MAP_SHARED, file, (off_t)from.offset);
    close(file);
    if (area == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    struct allocation a = {};
    a.kind = allocation_kind::opened;
    a.bytes = from.bytes;
    a.area = static_cast<char *>(area);
    a.area_bytes = from.area_bytes;
    a.begin = a.area + from.begin;
    a.device = from.device;
    pages_open(a.area, a.area_bytes);
    add(a);
    *pointer = a.begin;
    return cudaSuccess;
}

cudaError_t ipc_release(void *pointer)
{
    struct allocation *a;
    {
        std::lock_guard<std::mutex> lock(mutex);
        a = find_before(pointer);
        if (a == nullptr || a->kind != allocation_kind::opened || a->begin != pointer)
            return cudaErrorInvalidValue;
    }
    return host_release(a->area, allocation_kind::opened);
}
} // namespace emulated
