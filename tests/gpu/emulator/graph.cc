/* graph: a capture is a list of the work that streams would have queued. A launch queues the
 * list. */
#include "stream.h"

#include <algorithm>

using namespace emulated;

namespace
{
/* One thread uses the streams that capture, so the graph itself needs no lock. */
cudaError_t end(struct emulated_graph *graph)
{
    bool invalid = graph->invalid;
    for (struct emulated_stream *stream : graph->streams)
        stream->graph = nullptr;
    graph->streams.clear();
    return invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}
} // namespace

extern "C" {
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
    cudaError_t error = ready();
    if (error != cudaSuccess)
        return error;
    if (stream == nullptr || stream == cudaStreamLegacy || stream->graph != nullptr)
        return fail(cudaErrorStreamCaptureUnsupported);
    stream->graph = new emulated_graph();
    stream->graph->streams.push_back(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = nullptr;
    struct emulated_graph *captured = stream->graph;
    if (captured == nullptr || captured->streams.front() != stream)
        return fail(cudaErrorStreamCaptureInvalidated);
    cudaError_t error = end(captured);
    if (error != cudaSuccess)
        delete captured;
    else
        *graph = captured;
    return fail(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    bool active = stream != nullptr && stream != cudaStreamLegacy && stream->graph != nullptr;
    *status = !active                  ? cudaStreamCaptureStatusNone
              : stream->graph->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
    return ready();
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new emulated_graph_exec{graph->nodes};
    return ready();
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                struct cudaGraphExecUpdateResultInfo *info)
{
    info->result = exec->nodes.size() != graph->nodes.size();
    if (info->result != 0)
        return fail(cudaErrorInvalidValue);
    exec->nodes = graph->nodes;
    return ready();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    for (const struct work &node : exec->nodes) {
        cudaError_t error = enqueue_work(stream, node);
        if (error != cudaSuccess)
            return fail(error);
    }
    return ready();
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return ready();
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count)
{
    *count = graph->nodes.size();
    return ready();
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return ready();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return ready();
}
} /* extern "C" */
