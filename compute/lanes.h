/* lanes: an optional ability of a backend, which only the CPU backend has. Without lanes, the
 * device's threads divide the weights of each product among them. With lanes, the threads divide
 * the rows of the batch: a lane is a device with one thread that computes its own rows. Lanes wait
 * for each other only at the end of `run`. Lanes never change the bits of a result.
 *
 * The forward pass (model/forward/) computes batches in lanes; the engine (machine/executor/) uses
 * `run` for sampling. compute.h says on which threads the functions are called. Lanes use the
 * device's weights, and open none of their own. */
#ifndef COMPUTE_LANES_H
#define COMPUTE_LANES_H

#include <stdint.h>

struct compute;

struct compute_lanes_ops {
    /* Returns how many lanes the device has; 1 = the device has no lanes. */
    uint32_t (*count)(const struct compute *c);
    /* Returns how many lanes should compute a batch of row_count rows: the result of `count`, or 1
     * = the device computes the batch without lanes. compute_options.lanes decides. With
     * COMPUTE_LANES_AUTO, `pick` decides by the number of rows and by measurements, so two calls
     * may differ. */
    uint32_t (*pick)(struct compute *c, uint32_t row_count);
    /* Returns lane i: a device that can open activations and compute all operations on rows. c owns
     * the lane. Requires that the device has lanes, and i < `count`. */
    struct compute *(*lane)(struct compute *c, uint32_t i);
    /* Calls step(context, i) for each i < count in parallel, in any order, on the calling thread
     * and the worker threads. Returns when all calls have returned. */
    void (*run)(struct compute *c, uint32_t count, void (*step)(void *context, uint32_t i),
                void *context);
};

#endif
