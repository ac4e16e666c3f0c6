/* stream: queued work runs when a thread waits for it, in the waiting thread, one item after
 * another. Work of other streams runs only if an event or the legacy stream orders it before. So a
 * program that forgets a wait reads old bytes, every time. A query runs one item and returns "not
 * ready" until the last one is done. A thread of the emulator runs host functions, because a
 * program may wait for them without a call of CUDA. */
#include "stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace emulated
{
namespace
{
struct state { /* Never destroyed: the thread below outlives main(). */
    std::mutex mutex, device;
    std::condition_variable changed;
    std::vector<struct emulated_stream *> streams;
    std::map<int, struct emulated_stream *> legacy;
    /* Host functions that the thread must reach. */
    std::deque<std::shared_ptr<struct marker>> host_functions;
    std::map<const void *, int> shared_bytes_max;
    uint64_t numbers, launches;
    bool driver_runs;
};

struct state &state()
{
    static struct state *s = new struct state();
    return *s;
}

using lock_type = std::unique_lock<std::mutex>;

double now_ms()
{
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

void execute(const struct work &work)
{
    if (!work.run || ready() != cudaSuccess)
        return;
    if (work.kind == work_kind::host) {
        work.run();
        return;
    }
    lock_type lock(state().device, std::defer_lock);
    if (work.kind != work_kind::exchange)
        lock.lock();
    class access access;
    work.run();
}

void run_until(lock_type &lock, struct emulated_stream *stream, uint64_t number);

/* Does the work of other streams that the stream's first item waits for. Returns false if there was
 * such work; the lock was then released, so any state may have changed. */
bool first_is_free(lock_type &lock, struct emulated_stream *stream)
{
    struct state &s = state();
    const struct work &work = stream->queue.front();
    uint64_t before = work.number - 1;
    std::shared_ptr<struct marker> awaits = work.awaits;
    if (awaits && !awaits->done) {
        run_until(lock, awaits->stream, awaits->number);
        return false;
    }
    auto legacy = s.legacy.find(stream->device);
    for (struct emulated_stream *other : s.streams) {
        bool ordered = legacy != s.legacy.end() && other->device == stream->device &&
                       other != stream && other->blocking && stream->blocking &&
                       (stream == legacy->second || other == legacy->second);
        if (ordered && !other->queue.empty() && other->queue.front().number <= before) {
            run_until(lock, other, before);
            return false;
        }
    }
    return true;
}

/* Returns when all work of the stream up to `number` is done. */
void run_until(lock_type &lock, struct emulated_stream *stream, uint64_t number)
{
    struct state &s = state();
    while (!stream->queue.empty() && stream->queue.front().number <= number) {
        if (stream->busy) {
            s.changed.wait(lock);
            continue;
        }
        if (!first_is_free(lock, stream))
            continue;
        stream->busy = true;
        struct work work = std::move(stream->queue.front());
        lock.unlock();
        execute(work);
        lock.lock();
        if (work.records) {
            work.records->done = true;
            work.records->ms = now_ms();
        }
        stream->queue.pop_front();
        stream->busy = false;
        s.changed.notify_all();
    }
}

/* Waits a little before it runs host functions, so that work whose wait the program forgot is not
 * done by chance. */
void drive_host_functions()
{
    struct state &s = state();
    lock_type lock(s.mutex);
    for (;;) {
        while (s.host_functions.empty())
            s.changed.wait(lock);
        std::shared_ptr<struct marker> next = s.host_functions.front();
        s.host_functions.pop_front();
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        lock.lock();
        if (!next->done)
            run_until(lock, next->stream, next->number);
    }
}

cudaError_t queue_work(lock_type &, struct emulated_stream *stream, struct work work)
{
    struct state &s = state();
    if (stream->graph != nullptr) {
        stream->graph->nodes.push_back(std::move(work));
        return cudaSuccess;
    }
    work.number = ++s.numbers;
    if (work.kind == work_kind::host && !options().lazy) {
        work.records = std::make_shared<struct marker>();
        *work.records = {stream, nullptr, work.number, false, 0};
        s.host_functions.push_back(work.records);
        if (!s.driver_runs) {
            s.driver_runs = true;
            std::thread(drive_host_functions).detach();
        }
        s.changed.notify_all();
    } else if (work.records) {
        work.records->number = work.number;
    }
    stream->queue.push_back(std::move(work));
    return cudaSuccess;
}

struct emulated_stream *stream_add(int device, bool blocking)
{
    auto *stream = new emulated_stream();
    stream->device = device;
    stream->blocking = blocking;
    state().streams.push_back(stream);
    return stream;
}

struct emulated_stream *resolve(lock_type &, cudaStream_t stream)
{
    struct state &s = state();
    if (stream != nullptr && stream != cudaStreamLegacy && stream != cudaStreamPerThread)
        return stream;
    struct emulated_stream *&legacy = s.legacy[current_device()];
    if (legacy == nullptr)
        legacy = stream_add(current_device(), true);
    return legacy;
}

/* A wait during a capture is an error and makes the capture invalid. */
cudaError_t refuse_capture(struct emulated_stream *stream)
{
    if (stream->graph == nullptr)
        return cudaSuccess;
    stream->graph->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

bool marker_step(lock_type &lock, const std::shared_ptr<struct marker> &marker)
{
    if (!marker->done && !marker->stream->busy)
        run_until(lock, marker->stream, marker->stream->queue.front().number);
    return marker->done;
}
} // namespace

cudaError_t enqueue_work(cudaStream_t stream, struct work work)
{
    cudaError_t error = ready();
    if (error != cudaSuccess)
        return error;
    lock_type lock(state().mutex);
    return queue_work(lock, resolve(lock, stream), std::move(work));
}

cudaError_t enqueue(cudaStream_t stream, enum work_kind kind, std::function<void()> run)
{
    return enqueue_work(stream, {kind, 0, std::move(run), nullptr, nullptr});
}

cudaError_t synchronize(cudaStream_t stream)
{
    cudaError_t error = ready();
    if (error != cudaSuccess)
        return error;
    lock_type lock(state().mutex);
    struct emulated_stream *resolved = resolve(lock, stream);
    if ((error = refuse_capture(resolved)) != cudaSuccess)
        return error;
    if (resolved->blocking && state().legacy.count(resolved->device) != 0 &&
        resolved == state().legacy[resolved->device]) {
        /* The legacy stream waits for all blocking streams of the device. */
        uint64_t number = state().numbers;
        std::vector<struct emulated_stream *> streams = state().streams;
        for (struct emulated_stream *other : streams) {
            if (other->blocking && other->device == resolved->device)
                run_until(lock, other, number);
        }
    }
    run_until(lock, resolved, state().numbers);
    return ready();
}

cudaError_t synchronize_all()
{
    lock_type lock(state().mutex);
    uint64_t number = state().numbers;
    std::vector<struct emulated_stream *> streams = state().streams;
    for (struct emulated_stream *stream : streams) {
        if (stream->graph != nullptr)
            return refuse_capture(stream);
    }
    for (struct emulated_stream *stream : streams)
        run_until(lock, stream, number);
    return ready();
}

bool capturing(cudaStream_t stream)
{
    lock_type lock(state().mutex);
    return resolve(lock, stream)->graph != nullptr;
}

void launch_enqueue(struct launch launch, cudaStream_t stream)
{
    struct state &s = state();
    uint64_t threads = (uint64_t)launch.block.x * launch.block.y * launch.block.z;
    bool good = threads > 0 && threads <= 1024 && launch.block.z <= 64 && launch.grid.x > 0 &&
                launch.grid.x <= 0x7fffffffu && launch.grid.y > 0 && launch.grid.y <= 65535 &&
                launch.grid.z > 0 && launch.grid.z <= 65535;
    uint64_t number;
    {
        lock_type lock(s.mutex);
        auto found = s.shared_bytes_max.find(launch.function);
        size_t shared_max = found == s.shared_bytes_max.end() ? 48 << 10 : (size_t)found->second;
        good = good && launch.shared_bytes <= shared_max;
        int device = resolve(lock, stream)->device;
        bool counted = options().fail_device < 0 || options().fail_device == device;
        number = counted ? ++s.launches : 0;
    }
    if (!good) {
        fail(cudaErrorInvalidConfiguration);
        return;
    }
    auto run = [launch = std::move(launch), number] {
        if (number != 0 && number == options().fail_launch)
            fail_for_good(cudaErrorLaunchFailure);
        else
            run_kernel(launch);
    };
    fail(enqueue(stream, work_kind::kernel, std::move(run)));
}

void launch_check_pointer(const char *name, unsigned argument, const void *pointer)
{
    if (pointer != nullptr && memory_find(pointer, 1) == memory_kind::none)
        stop("kernel %s: argument %u, %p, is neither device memory nor pinned", name, argument + 1,
             pointer);
}
} // namespace emulated

using namespace emulated;

extern "C" {
cudaError_t emulated_function_attribute(const void *function, enum cudaFuncAttribute attribute,
                                        int value)
{
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value > 227 << 10)
            return fail(cudaErrorInvalidValue);
        std::lock_guard<std::mutex> lock(state().mutex);
        state().shared_bytes_max[function] = value;
    }
    return ready();
}

cudaError_t emulated_function_attributes(struct cudaFuncAttributes *attributes, const void *)
{
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->binaryVersion = attributes->ptxVersion = options().major * 10 + options().minor;
    return ready();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    cudaError_t error = ready();
    if (error != cudaSuccess)
        return error;
    std::lock_guard<std::mutex> lock(state().mutex);
    *stream = stream_add(current_device(), (flags & cudaStreamNonBlocking) == 0);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    lock_type lock(state().mutex);
    run_until(lock, stream, state().numbers);
    auto &all = state().streams;
    all.erase(std::remove(all.begin(), all.end(), stream), all.end());
    delete stream;
    return ready();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return fail(synchronize(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    lock_type lock(state().mutex);
    struct emulated_stream *resolved = resolve(lock, stream);
    cudaError_t error = refuse_capture(resolved);
    if (error != cudaSuccess)
        return fail(error);
    if (!resolved->queue.empty() && !resolved->busy)
        run_until(lock, resolved, resolved->queue.front().number);
    error = ready();
    return error != cudaSuccess ? error : resolved->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    lock_type lock(state().mutex);
    struct emulated_stream *resolved = resolve(lock, stream);
    if (!event->last)
        return ready(); /* The event was never recorded, so there is nothing to wait for. */
    struct emulated_graph *graph = event->last->graph;
    if (graph != nullptr && resolved->graph == nullptr) {
        resolved->graph = graph; /* The stream joins the capture. */
        graph->streams.push_back(resolved);
    }
    if (resolved->graph != nullptr)
        return resolved->graph == graph ? ready() : fail(refuse_capture(resolved));
    queue_work(lock, resolved, {work_kind::copy, 0, nullptr, nullptr, event->last});
    return ready();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    return fail(enqueue(stream, work_kind::host, [=] { function(data); }));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaError_t error = ready();
    if (error != cudaSuccess)
        return error;
    *event = new emulated_event{nullptr, (flags & cudaEventDisableTiming) == 0};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return ready();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t error = ready();
    if (error != cudaSuccess)
        return error;
    lock_type lock(state().mutex);
    struct emulated_stream *resolved = resolve(lock, stream);
    event->last = std::make_shared<struct marker>();
    event->last->stream = resolved;
    event->last->graph = resolved->graph;
    if (resolved->graph != nullptr)
        return cudaSuccess;
    return queue_work(lock, resolved, {work_kind::copy, 0, nullptr, event->last, nullptr});
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    lock_type lock(state().mutex);
    std::shared_ptr<struct marker> last = event->last;
    if (last && last->graph != nullptr)
        return fail(cudaErrorStreamCaptureUnsupported);
    if (last && !last->done)
        run_until(lock, last->stream, last->number);
    return ready();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    lock_type lock(state().mutex);
    std::shared_ptr<struct marker> last = event->last;
    if (last && last->graph != nullptr)
        return fail(cudaErrorStreamCaptureUnsupported);
    bool done = !last || marker_step(lock, last);
    cudaError_t error = ready();
    return error != cudaSuccess ? error : done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    if (!begin->last || !end->last || !begin->timed || !end->timed)
        return fail(cudaErrorInvalidResourceHandle);
    lock_type lock(state().mutex);
    if (!begin->last->done || !end->last->done)
        return cudaErrorNotReady;
    *ms = (float)(end->last->ms - begin->last->ms);
    return ready();
}
} /* extern "C" */
