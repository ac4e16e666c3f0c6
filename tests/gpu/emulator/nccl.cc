/* nccl: the ranks of a communicator share memory with a slot for each rank, a mailbox for each
 * pair, and a barrier. A collective passes through the slots in chunks; sums are computed in the
 * order of ranks. Ranks that call different functions, or with different counts, get an error. If a
 * rank's process dies or calls ncclCommAbort, the other ranks stop waiting with an error. */
#include "nccl.h"

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "emulator.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace
{
constexpr size_t CHUNK_BYTES = 256 << 10, PIECE_BYTES = 64 << 10;
constexpr int RANKS_MAX = 8;

struct call {
    char name[16];
    uint64_t count;
    int32_t type, root;
    uint64_t number;
};

struct mailbox {
    std::atomic<uint32_t> full;
    uint32_t bytes;
    char data[PIECE_BYTES];
};

struct shared {
    std::atomic<uint32_t> joined, arrived, turn, aborted;
    std::atomic<int32_t> process[RANKS_MAX];
    struct call calls[RANKS_MAX];
    struct mailbox boxes[RANKS_MAX][RANKS_MAX]; /* [from][to] */
    char slots[RANKS_MAX][CHUNK_BYTES];
};

struct transfer {
    bool sends;
    int peer;
    char *data;
    size_t bytes, done;
};

struct group {
    int depth;
    std::vector<struct transfer> transfers;
    struct emulated_communicator *comm;
    cudaStream_t stream;
};
thread_local struct group group;
} // namespace

struct emulated_communicator {
    struct shared *shared;
    int rank, ranks;
    uint64_t calls;
    std::atomic<int> error;
};

using namespace emulated;

namespace
{
size_t type_bytes(ncclDataType_t type)
{
    return type == ncclInt8 || type == ncclUint8         ? 1
           : type == ncclFloat16 || type == ncclBfloat16 ? 2
                                                         : 4;
}

/* Returns whether the process has ended, even if no parent has waited for it. */
bool ended(int32_t process)
{
    int file = (int)syscall(SYS_pidfd_open, process, 0);
    if (file < 0)
        return errno == ESRCH;
    struct pollfd look = {file, POLLIN, 0};
    bool gone = poll(&look, 1, 0) > 0;
    close(file);
    return gone;
}

/* False if a rank has aborted or ended. The result then stays false. */
bool all_live(struct emulated_communicator *comm, bool look)
{
    for (int rank = 0; look && rank < comm->ranks; rank++) {
        int32_t process = comm->shared->process[rank];
        if (process > 0 && ended(process))
            comm->shared->aborted = 1;
    }
    if (comm->shared->aborted != 0 || comm->error != ncclSuccess)
        comm->error = ncclRemoteError;
    return comm->error == ncclSuccess;
}

/* Waits between two checks of the shared memory: yields the core first, sleeps later. Returns false
 * if waiting is in vain. */
bool pause_for(struct emulated_communicator *comm, unsigned turn)
{
    if (turn < 100) {
        sched_yield();
    } else {
        struct timespec time = {0, 50 * 1000};
        nanosleep(&time, nullptr);
    }
    return all_live(comm, turn % 1000 == 0);
}

bool barrier(struct emulated_communicator *comm)
{
    struct shared *s = comm->shared;
    uint32_t turn = s->turn;
    if (s->arrived.fetch_add(1) + 1 == (uint32_t)comm->ranks) {
        s->arrived = 0;
        s->turn = turn + 1;
        syscall(SYS_futex, &s->turn, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
        return true;
    }
    while (s->turn == turn) {
        const struct timespec time = {0, 20 * 1000 * 1000};
        if (!all_live(comm, true) && s->turn == turn)
            return false;
        syscall(SYS_futex, &s->turn, FUTEX_WAIT, turn, &time, nullptr, 0);
    }
    return true;
}

/* Returns whether all ranks are in the same call. */
bool agree(struct emulated_communicator *comm, const struct call &call)
{
    struct shared *s = comm->shared;
    s->calls[comm->rank] = call;
    s->calls[comm->rank].number = comm->calls++;
    if (!barrier(comm))
        return false;
    for (int rank = 0; rank < comm->ranks; rank++) {
        const struct call &other = s->calls[rank], &mine = s->calls[comm->rank];
        if (memcmp(&other, &mine, sizeof(mine)) != 0)
            stop("NCCL: rank %d is in %s of %llu, rank %d in %s of %llu", comm->rank, mine.name,
                 (unsigned long long)mine.count, rank, other.name, (unsigned long long)other.count);
    }
    return barrier(comm);
}

float number_get(const char *data, ncclDataType_t type, size_t i)
{
    if (type == ncclBfloat16)
        return reinterpret_cast<const __nv_bfloat16 *>(data)[i];
    if (type == ncclFloat16)
        return reinterpret_cast<const __half *>(data)[i];
    return reinterpret_cast<const float *>(data)[i];
}

void number_put(char *data, ncclDataType_t type, size_t i, float value)
{
    if (type == ncclBfloat16)
        reinterpret_cast<__nv_bfloat16 *>(data)[i] = value;
    else if (type == ncclFloat16)
        reinterpret_cast<__half *>(data)[i] = value;
    else
        reinterpret_cast<float *>(data)[i] = value;
}

void sum_slots(struct emulated_communicator *comm, ncclDataType_t type, ncclRedOp_t operation,
               size_t count, char *to)
{
    for (size_t i = 0; i < count; i++) {
        float sum = number_get(comm->shared->slots[0], type, i);
        for (int rank = 1; rank < comm->ranks; rank++) {
            float x = number_get(comm->shared->slots[rank], type, i);
            sum = operation == ncclSum   ? sum + x
                  : operation == ncclMax ? std::max(sum, x)
                                         : std::min(sum, x);
        }
        number_put(to, type, i, sum);
    }
}

/* Each chunk of this rank's data goes into its slot; `take` reads the slots. */
template <class T>
void through_slots(struct emulated_communicator *comm, const char *from, size_t bytes, T take)
{
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
        size_t part = std::min(CHUNK_BYTES, bytes - at);
        if (from != nullptr)
            memcpy(comm->shared->slots[comm->rank], from + at, part);
        if (!barrier(comm))
            return;
        take(at, part);
        if (!barrier(comm))
            return;
    }
}

struct call make_call(const char *name, uint64_t count, ncclDataType_t type, int root)
{
    struct call call = {};
    snprintf(call.name, sizeof(call.name), "%s", name);
    call.count = count;
    call.type = type;
    call.root = root;
    return call;
}

bool step(struct emulated_communicator *comm, struct transfer &t)
{
    struct mailbox &box =
        t.sends ? comm->shared->boxes[comm->rank][t.peer] : comm->shared->boxes[t.peer][comm->rank];
    if ((box.full != 0) == t.sends)
        return false;
    size_t part = t.sends ? std::min(PIECE_BYTES, t.bytes - t.done) : box.bytes;
    if (part > t.bytes - t.done)
        stop("NCCL: rank %d sends more to rank %d than that receives, %zu bytes", t.peer,
             comm->rank, t.bytes);
    if (t.sends)
        memcpy(box.data, t.data + t.done, part);
    else
        memcpy(t.data + t.done, box.data, part);
    box.bytes = (uint32_t)part;
    box.full = t.sends;
    t.done += part;
    return true;
}

/* Runs all transfers of a group at once, because two ranks may both send first. Transfers of a pair
 * keep their order. */
void exchange(struct emulated_communicator *comm, std::vector<struct transfer> transfers)
{
    for (unsigned turn = 0;;) {
        bool moved = false, left = false;
        std::vector<std::pair<bool, int>> busy;
        for (struct transfer &t : transfers) {
            std::pair<bool, int> way(t.sends, t.peer);
            if (t.done == t.bytes)
                continue;
            if (std::find(busy.begin(), busy.end(), way) == busy.end())
                moved = step(comm, t) || moved;
            busy.push_back(way);
            left = left || t.done < t.bytes;
        }
        if (!left)
            return;
        turn = moved ? 0 : turn + 1;
        if (!moved && !pause_for(comm, turn))
            return;
    }
}

ncclResult_t queue(cudaStream_t stream, std::function<void()> run)
{
    cudaError_t error = enqueue(stream, work_kind::exchange, std::move(run));
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

bool good(struct emulated_communicator *comm, const void *data, size_t bytes)
{
    return comm->error == ncclSuccess &&
           (bytes == 0 || memory_find(data, bytes) == memory_kind::device);
}

ncclResult_t transfer_add(struct emulated_communicator *comm, const struct transfer &transfer,
                          cudaStream_t stream)
{
    if (!good(comm, transfer.data, transfer.bytes) || transfer.peer < 0 ||
        transfer.peer >= comm->ranks || transfer.peer == comm->rank)
        return ncclInvalidArgument;
    if (group.depth == 0)
        return queue(stream, [=] { exchange(comm, {transfer}); });
    if (!group.transfers.empty() && (group.comm != comm || group.stream != stream))
        stop("NCCL: the emulator knows groups of one communicator and stream only");
    group.comm = comm;
    group.stream = stream;
    group.transfers.push_back(transfer);
    return ncclSuccess;
}
} // namespace

extern "C" {
const char *ncclGetErrorString(ncclResult_t result)
{
    const char *const texts[] = {
        "no error",         "unhandled cuda error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage",        "a rank has died",        "in progress"};
    return result <= ncclInProgress ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t)
{
    return "";
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(struct ncclUniqueId *id)
{
    /* No name stays in a folder if ranks are killed. The file is open until this process ends, and
     * the ranks open it through /proc. */
    int file = memfd_create("emulated-nccl", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, sizeof(struct shared)) != 0)
        return ncclSystemError;
    *id = {};
    snprintf(id->internal, sizeof(id->internal), "/proc/%d/fd/%d", (int)getpid(), file);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, struct ncclUniqueId id, int rank)
{
    if (ready() != cudaSuccess)
        return ncclUnhandledCudaError;
    if (ranks < 1 || ranks > RANKS_MAX || rank < 0 || rank >= ranks || id.internal[0] != '/')
        return ncclInvalidArgument;
    int file = open(id.internal, O_RDWR | O_CLOEXEC);
    if (file < 0) /* The process that made the id has ended. */
        return ncclRemoteError;
    void *memory =
        mmap(nullptr, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return ncclSystemError;
    auto *made = new emulated_communicator();
    made->shared = static_cast<struct shared *>(memory); /* The initial state is all zeros. */
    made->rank = rank;
    made->ranks = ranks;
    made->shared->process[rank] = getpid();
    if (!barrier(made)) {
        munmap(made->shared, sizeof(struct shared));
        delete made;
        return ncclRemoteError;
    }
    *comm = made;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t)
{
    return synchronize_all() == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm == nullptr)
        return ncclSuccess;
    if (comm->error == ncclSuccess)
        synchronize_all();
    comm->shared->process[comm->rank] = 0; /* This rank has left without an error. */
    munmap(comm->shared, sizeof(struct shared));
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->shared->aborted = 1;
    comm->error = ncclRemoteError;
    return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    *error = (ncclResult_t)comm->error.load();
    return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *count)
{
    *count = comm->ranks;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * type_bytes(type);
    bool known = (type == ncclFloat32 || type == ncclFloat16 || type == ncclBfloat16) &&
                 (operation == ncclSum || operation == ncclMax || operation == ncclMin);
    if (!known || !good(comm, from, bytes) || !good(comm, to, bytes))
        return ncclInvalidArgument;
    return queue(stream, [=] {
        auto *target = static_cast<char *>(to);
        if (!agree(comm, make_call("all-reduce", count, type, operation)))
            return;
        through_slots(comm, static_cast<const char *>(from), bytes, [&](size_t at, size_t part) {
            sum_slots(comm, type, operation, part / type_bytes(type), target + at);
        });
    });
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * type_bytes(type);
    if (!good(comm, from, bytes) || !good(comm, to, bytes * (size_t)comm->ranks))
        return ncclInvalidArgument;
    return queue(stream, [=] {
        auto *target = static_cast<char *>(to);
        if (!agree(comm, make_call("all-gather", count, type, 0)))
            return;
        through_slots(comm, static_cast<const char *>(from), bytes, [&](size_t at, size_t part) {
            for (int rank = 0; rank < comm->ranks; rank++)
                memcpy(target + (size_t)rank * bytes + at, comm->shared->slots[rank], part);
        });
    });
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * type_bytes(type);
    bool gives = comm->rank == root;
    if (root < 0 || root >= comm->ranks || (gives && !good(comm, from, bytes)) ||
        !good(comm, to, bytes))
        return ncclInvalidArgument;
    return queue(stream, [=] {
        auto *target = static_cast<char *>(to);
        auto *source = gives ? static_cast<const char *>(from) : nullptr;
        if (!agree(comm, make_call("broadcast", count, type, root)))
            return;
        through_slots(comm, source, bytes, [&](size_t at, size_t part) {
            memcpy(target + at, comm->shared->slots[root], part);
        });
    });
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    auto *data = static_cast<char *>(const_cast<void *>(from));
    return transfer_add(comm, {true, peer, data, count * type_bytes(type), 0}, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    auto *data = static_cast<char *>(to);
    return transfer_add(comm, {false, peer, data, count * type_bytes(type), 0}, stream);
}

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group.depth == 0)
        return ncclInvalidUsage;
    if (--group.depth > 0 || group.transfers.empty())
        return ncclSuccess;
    auto *comm = group.comm;
    std::vector<struct transfer> transfers = std::move(group.transfers);
    group.transfers.clear();
    return queue(group.stream, [=] { exchange(comm, transfers); });
}
} /* extern "C" */
