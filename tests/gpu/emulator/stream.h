/* stream: the emulator's streams (queues of work that has not run yet), the events in them, and the
 * graphs that are recorded from them. Only stream.cc and graph.cc use it. Any CPU thread may queue
 * work; one lock protects all queues. stream.cc decides when work runs: when a thread waits for
 * it. */
#ifndef TESTS_GPU_EMULATOR_STREAM_H
#define TESTS_GPU_EMULATOR_STREAM_H

#include "emulator.h"

#include <deque>
#include <vector>

namespace emulated
{
/* The place in a stream that an event marks. */
struct marker {
    struct emulated_stream *stream;
    /* Graph into which the stream captured when the event was recorded; NULL = none. */
    struct emulated_graph *graph;
    uint64_t number;
    bool done;
    double ms;
};

struct work {
    enum work_kind kind;
    uint64_t number; /* Number of the work, over all streams. */
    std::function<void()> run;
    std::shared_ptr<struct marker> records, awaits;
};
} // namespace emulated

struct emulated_graph {
    std::vector<emulated::work> nodes; /* Work in the order in which it was captured. */
    /* Streams that capture into the graph; the first one began the capture. */
    std::vector<struct emulated_stream *> streams;
    bool invalid;
};

struct emulated_graph_exec {
    std::vector<emulated::work> nodes;
};

struct emulated_stream {
    std::deque<emulated::work> queue;
    bool busy;     /* True: a CPU thread runs the first work of the queue. */
    bool blocking; /* True: the legacy stream and this stream wait for each other. */
    int device;
    struct emulated_graph *graph; /* Graph into which the stream captures; NULL = none. */
};

struct emulated_event {
    std::shared_ptr<emulated::marker> last;
    bool timed;
};

namespace emulated
{
/* Queues work that was recorded in a graph. */
cudaError_t enqueue_work(cudaStream_t stream, struct work work);
} // namespace emulated

#endif
