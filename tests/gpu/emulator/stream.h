/* stream: queues of work that nobody has waited for yet, events in them, graphs recorded of them.
 */
#ifndef TESTS_GPU_EMULATOR_STREAM_H
#define TESTS_GPU_EMULATOR_STREAM_H

#include "emulator.h"

#include <deque>
#include <vector>

namespace emulated
{
/* A place in a stream that an event names. */
struct marker {
    struct emulated_stream *stream;
    struct emulated_graph *graph; /* recorded while the stream captured into it */
    uint64_t number;
    bool done;
    double ms;
};

struct work {
    enum work_kind kind;
    uint64_t number; /* of all work in all streams */
    std::function<void()> run;
    std::shared_ptr<struct marker> records, awaits;
};
} // namespace emulated

struct emulated_graph {
    std::vector<emulated::work> nodes;             /* in the order in which they were captured */
    std::vector<struct emulated_stream *> streams; /* that capture into it; the first began */
    bool invalid;
};

struct emulated_graph_exec {
    std::vector<emulated::work> nodes;
};

struct emulated_stream {
    std::deque<emulated::work> queue;
    bool busy;     /* the first of the queue runs, in some CPU thread */
    bool blocking; /* the legacy stream and it wait for each other */
    int device;
    struct emulated_graph *graph; /* it captures */
};

struct emulated_event {
    std::shared_ptr<emulated::marker> last;
    bool timed;
};

namespace emulated
{
/* Work of other work's graph. */
cudaError_t enqueue_work(cudaStream_t stream, struct work work);
} // namespace emulated

#endif
