/* Goal: the declarations of compute/cuda/nccl_abi.h match NCCL's interface. Method: numbers, types
 * and signatures are compared with NCCL's header when this file is compiled. Each function pointer
 * must have the function's type, except that enumerations are int. */
#include "compute/cuda/nccl_abi.h"

#include <cstdio>
#include <nccl.h>
#include <type_traits>

static_assert(NCCL_SUCCESS == (int)ncclSuccess && NCCL_IN_PROGRESS == (int)ncclInProgress, "");
static_assert(NCCL_FLOAT32 == (int)ncclFloat32 && NCCL_BFLOAT16 == (int)ncclBfloat16, "");
static_assert(NCCL_SUM == (int)ncclSum, "");
static_assert(sizeof(struct nccl_id) == sizeof(ncclUniqueId) &&
                  alignof(struct nccl_id) == alignof(ncclUniqueId),
              "");
static_assert(std::is_same<nccl_comm, ncclComm_t>::value, "");

namespace
{
/* Maps a type of NCCL to cleave's declaration of it. */
template <class T> struct ours {
    using type = std::conditional_t<std::is_enum<T>::value, int, T>;
};
template <> struct ours<ncclUniqueId> {
    using type = struct nccl_id;
};
template <class T> struct ours<T *> {
    using type = typename ours<T>::type *;
};
template <class T> struct ours<const T> {
    using type = const typename ours<T>::type;
};

template <class POINTER> struct signature;
template <class R, class... A> struct signature<R (*)(A...)> {
    using type = typename ours<R>::type (*)(typename ours<A>::type...);
};
} // namespace

#define SAME(name, function)                                                                       \
    static_assert(std::is_same<decltype(nccl::name), signature<decltype(&function)>::type>::value, \
                  #function)

SAME(version, ncclGetVersion);
SAME(error_text, ncclGetErrorString);
SAME(make_id, ncclGetUniqueId);
SAME(join, ncclCommInitRank);
SAME(leave, ncclCommDestroy);
SAME(abort, ncclCommAbort);
SAME(async_error, ncclCommGetAsyncError);
SAME(all_reduce, ncclAllReduce);
SAME(send, ncclSend);
SAME(receive, ncclRecv);
SAME(begin, ncclGroupStart);
SAME(end, ncclGroupEnd);

int main()
{
    printf("as in the header of NCCL %d.%d.%d\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
    return 0;
}
