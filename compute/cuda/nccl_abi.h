/* nccl_abi: declares the part of NCCL's C interface that groups use (libnccl.so.2, 2.10.3 or
 * later). The plugin is built without NCCL's header, so a plugin that was built on a host without
 * NCCL can use groups on a host with NCCL. group.cu includes this header and loads the library, on
 * the threads that call compute_group_ops (compute/group.h). tests/gpu/nccl_header.cc compares the
 * declarations with NCCL's header. The header has no functions and no state. */
#ifndef COMPUTE_CUDA_NCCL_ABI_H
#define COMPUTE_CUDA_NCCL_ABI_H

#include <cuda_runtime.h>

#include <stddef.h>

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 }; /* ncclResult_t */
enum { NCCL_FLOAT32 = 7, NCCL_BFLOAT16 = 9 };    /* ncclDataType_t */
enum { NCCL_SUM = 0 };                           /* ncclRedOp_t */

struct nccl_id { /* ncclUniqueId; passed by value. */
    char internal[128];
};

typedef struct ncclComm *nccl_comm;

/* Addresses of the library's functions. NCCL's enumerations are int here. */
struct nccl {
    int (*version)(int *version);
    const char *(*error_text)(int result);
    int (*make_id)(struct nccl_id *id);
    int (*join)(nccl_comm *comm, int ranks, struct nccl_id id, int rank);
    int (*leave)(nccl_comm comm);
    int (*abort)(nccl_comm comm);
    int (*async_error)(nccl_comm comm, int *result);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int operation,
                      nccl_comm comm, cudaStream_t stream);
    int (*send)(const void *from, size_t count, int type, int peer, nccl_comm comm,
                cudaStream_t stream);
    int (*receive)(void *to, size_t count, int type, int peer, nccl_comm comm, cudaStream_t stream);
    int (*begin)(void);
    int (*end)(void);
};

/* Calls each(field of struct nccl, the library's name of the function) for every field. */
#define NCCL_FUNCTIONS(each)                                                                       \
    each(version, "ncclGetVersion");                                                               \
    each(error_text, "ncclGetErrorString");                                                        \
    each(make_id, "ncclGetUniqueId");                                                              \
    each(join, "ncclCommInitRank");                                                                \
    each(leave, "ncclCommDestroy");                                                                \
    each(abort, "ncclCommAbort");                                                                  \
    each(async_error, "ncclCommGetAsyncError");                                                    \
    each(all_reduce, "ncclAllReduce");                                                             \
    each(send, "ncclSend");                                                                        \
    each(receive, "ncclRecv");                                                                     \
    each(begin, "ncclGroupStart");                                                                 \
    each(end, "ncclGroupEnd")

#endif
