/* Goal: the emulator's NCCL does what NCCL does, between processes, and reports ranks that call
 * different functions or die. On a computer with several devices the same source tests NCCL itself.
 *
 * Method: two to four processes each call every collective on numbers that say their rank and
 * place; results are compared with sums and copies made by hand. */
#include "tests/check.h"
#include "tests/gpu/children.h"

#include <csignal>
#include <cuda_bf16.h>
#include <nccl.h>
#include <vector>

#define GOOD(call)  CHECK((call) == cudaSuccess)
#define NGOOD(call) CHECKF((call) == ncclSuccess, "rank %d", rank)

namespace
{
float number(int rank, size_t i)
{
    return (float)(rank + 1) * 0.5f + (float)(i % 97);
}

std::vector<float> get(const float *device, size_t count, cudaStream_t stream)
{
    std::vector<float> host(count);
    GOOD(cudaMemcpyAsync(host.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost,
                         stream));
    GOOD(cudaStreamSynchronize(stream));
    return host;
}

void test_sums(ncclComm_t comm, int rank, int ranks, size_t count, cudaStream_t stream)
{
    float *memory;
    GOOD(cudaMalloc(&memory, count * sizeof(float)));
    std::vector<float> mine(count);
    for (size_t i = 0; i < count; i++)
        mine[i] = number(rank, i);
    GOOD(cudaMemcpy(memory, mine.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    NGOOD(ncclAllReduce(memory, memory, count, ncclFloat32, ncclSum, comm, stream));
    std::vector<float> got = get(memory, count, stream);
    for (size_t i = 0; i < count; i++) {
        float want = 0;
        for (int r = 0; r < ranks; r++)
            want += number(r, i);
        CHECKF(got[i] == want, "rank %d [%zu]: %g instead of %g", rank, i, (double)got[i],
               (double)want);
    }
    std::vector<__nv_bfloat16> half(count, __nv_bfloat16((float)rank + 1)), half_got(count);
    GOOD(cudaMemcpy(memory, half.data(), count * 2, cudaMemcpyHostToDevice));
    NGOOD(ncclAllReduce(memory, memory, count, ncclBfloat16, ncclSum, comm, stream));
    GOOD(cudaStreamSynchronize(stream));
    GOOD(cudaMemcpy(half_got.data(), memory, count * 2, cudaMemcpyDeviceToHost));
    CHECK((float)half_got[count - 1] == (float)(ranks * (ranks + 1)) / 2);
    GOOD(cudaFree(memory));
}

void test_copies(ncclComm_t comm, int rank, int ranks, size_t count, cudaStream_t stream)
{
    float *one, *all;
    GOOD(cudaMalloc(&one, count * sizeof(float)));
    GOOD(cudaMalloc(&all, count * sizeof(float) * (size_t)ranks));
    std::vector<float> mine(count);
    for (size_t i = 0; i < count; i++)
        mine[i] = number(rank, i);
    GOOD(cudaMemcpy(one, mine.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    NGOOD(ncclAllGather(one, all, count, ncclFloat32, comm, stream));
    std::vector<float> got = get(all, count * (size_t)ranks, stream);
    for (size_t i = 0; i < got.size(); i++)
        CHECK(got[i] == number((int)(i / count), i % count));
    NGOOD(ncclBroadcast(one, one, count, ncclFloat32, ranks - 1, comm, stream));
    got = get(one, count, stream);
    CHECK(got[count - 1] == number(ranks - 1, count - 1));
    /* A ring: every rank sends first, which works only in a group. */
    GOOD(cudaMemcpy(one, mine.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    NGOOD(ncclGroupStart());
    NGOOD(ncclSend(one, count, ncclFloat32, (rank + 1) % ranks, comm, stream));
    NGOOD(ncclRecv(all, count, ncclFloat32, (rank + ranks - 1) % ranks, comm, stream));
    NGOOD(ncclGroupEnd());
    got = get(all, count, stream);
    for (size_t i = 0; i < count; i++)
        CHECK(got[i] == number((rank + ranks - 1) % ranks, i));
    GOOD(cudaFree(one));
    GOOD(cudaFree(all));
}

struct rank_run {
    struct ncclUniqueId id;
    int ranks;
    std::function<void(ncclComm_t, int, cudaStream_t)> body;
};

int run_rank(const struct rank_run &run, int rank)
{
    cudaStream_t stream;
    ncclComm_t comm;
    GOOD(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    NGOOD(ncclCommInitRank(&comm, run.ranks, run.id, rank));
    run.body(comm, rank, stream);
    GOOD(cudaStreamSynchronize(stream));
    NGOOD(ncclCommDestroy(comm));
    GOOD(cudaStreamDestroy(stream));
    return 0;
}

/* Runs one process per rank. Returns how the first one ended. */
struct child_end run_ranks(int ranks, std::function<void(ncclComm_t, int, cudaStream_t)> body,
                           bool others_live = true)
{
    struct rank_run run;
    CHECK(ncclGetUniqueId(&run.id) == ncclSuccess);
    run.ranks = ranks;
    run.body = std::move(body);
    fflush(nullptr);
    std::vector<pid_t> others;
    for (int rank = 1; rank < ranks; rank++) {
        pid_t process = fork();
        if (process == 0) {
            struct child_end end = child_run("", [&] { return run_rank(run, rank); });
            _exit(WIFEXITED(end.status) ? WEXITSTATUS(end.status) : 99);
        }
        others.push_back(process);
    }
    struct child_end first = child_run("", [&] { return run_rank(run, 0); });
    for (pid_t process : others) {
        int status;
        CHECK(waitpid(process, &status, 0) == process);
        if (first.exited(0) && others_live)
            CHECKF(status == 0, "a rank ended with status %d", status);
    }
    return first;
}
} // namespace

int main()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (size_t count : {1, 1000, 200000}) {
            struct child_end end = run_ranks(ranks, [=](ncclComm_t comm, int rank, cudaStream_t s) {
                test_sums(comm, rank, ranks, count, s);
                if (ranks > 1)
                    test_copies(comm, rank, ranks, count, s);
            });
            CHECKF(end.exited(0), "%d ranks, %zu numbers: %s", ranks, count, end.text.c_str());
        }
    }
    struct child_end end = run_ranks(2, [](ncclComm_t comm, int rank, cudaStream_t stream) {
        float *memory;
        GOOD(cudaMalloc(&memory, 400));
        NGOOD(ncclAllReduce(memory, memory, rank == 0 ? 100 : 99, ncclFloat32, ncclSum, comm,
                            stream));
        GOOD(cudaStreamSynchronize(stream));
        GOOD(cudaFree(memory));
    });
    CHECKF(end.aborted() && end.says("all-reduce of 100") && end.says("all-reduce of 99"), "%s",
           end.text.c_str());
    end = run_ranks(
        2,
        [](ncclComm_t comm, int rank, cudaStream_t stream) {
            float *memory;
            ncclResult_t error;
            if (rank == 1)
                raise(SIGKILL);
            GOOD(cudaMalloc(&memory, 400));
            /* The call itself fails if rank 1 has ended before it. */
            error = ncclAllReduce(memory, memory, 100, ncclFloat32, ncclSum, comm, stream);
            CHECK(error == ncclSuccess || error == ncclRemoteError);
            GOOD(cudaStreamSynchronize(stream));
            NGOOD(ncclCommGetAsyncError(comm, &error));
            CHECK(error == ncclRemoteError);
            GOOD(cudaFree(memory));
        },
        false);
    CHECKF(end.exited(0), "a rank that died: %s", end.text.c_str());
    return 0;
}
