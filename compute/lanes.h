/* lanes: an optional ability of a backend: lanes divide the rows of a batch among the threads of
 * the device. A lane is a device with one thread that computes its own rows. Without lanes, the
 * threads divide the weights of each product among them. Both ways give the same bits.
 *
 * The forward pass (model/forward/) computes batches in lanes; the engine (machine/executor/) uses
 * `run` for sampling. One thread at a time calls the functions for a device (compute.h); `run` also
 * uses the worker threads of the device. A lane uses the weights of the device, and opens none. */
#ifndef COMPUTE_LANES_H
#define COMPUTE_LANES_H

#include <stdint.h>

struct compute;

struct compute_lanes_ops {
    /* Returns how many lanes the device has; 1 = the device has no lanes. */
    uint32_t (*count)(const struct compute *c);
    /* Returns how many lanes should compute a batch of row_count rows; 1 = the device computes the
     * batch without lanes. The result is 1 or the result of `count`. compute_options.lanes says how
     * `pick` decides. With COMPUTE_LANES_AUTO, the CPU backend compares the times of batches with
     * and without lanes, so two calls with the same row_count may give different results. */
    uint32_t (*pick)(struct compute *c, uint32_t row_count);
    /* Tells the device that the batch of the latest `pick` has been computed. Not called for a batch
     * that was abandoned. */
    void (*done)(struct compute *c);
    /* Returns lane i: a device that can open activations and compute all operations on rows. c owns
     * the lane. Requires that the device has lanes, and i < `count`. */
    struct compute *(*lane)(struct compute *c, uint32_t i);
    /* Calls step(context, i) for each i < count in parallel, in any order, on the calling thread
     * and the worker threads. Returns when all calls have returned. */
    void (*run)(struct compute *c, uint32_t count, void (*step)(void *context, uint32_t i),
                void *context);
};

#endif
