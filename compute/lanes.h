/* lanes: an optional ability of a backend, which only the CPU backend has. Without lanes, the
 * device's threads divide the weights of each product among them. With lanes, the threads divide
 * the rows of the batch: a lane is a device with one thread that computes its own rows. Lanes wait
 * for each other only at the end of `run`. Every lane reads all weights, and no result travels
 * between cores. Lanes never change the bits of a result.
 *
 * The forward pass (model/forward/) and the engine (machine/executor/) call these functions. They
 * call `count` and `lane` when they are opened, on the thread that opens them, and `pick` and `run`
 * on the engine thread. `run` calls the steps on the device's threads: the calling thread and the
 * worker threads. Lanes read the device's weights, and open none of their own. */
#ifndef COMPUTE_LANES_H
#define COMPUTE_LANES_H

#include <stdint.h>

struct compute;

struct compute_lanes_ops {
    /* Returns how many lanes the device has; 1 = the device has no lanes. */
    uint32_t (*count)(const struct compute *c);
    /* Returns how many lanes are to compute a batch of row_count rows: all (the result of `count`),
     * or 1 = the device computes the batch without lanes. compute_options.lanes decides; with
     * COMPUTE_LANES_AUTO, `pick` decides by the number of rows and by the time that a cache line
     * needs between the cores, which `pick` measures now and then. */
    uint32_t (*pick)(struct compute *c, uint32_t row_count);
    /* Returns lane i, which can open activations and compute every operation on rows. c owns the
     * lane. Requires that the device has lanes, and i < `count`. */
    struct compute *(*lane)(struct compute *c, uint32_t i);
    /* Calls step(context, i) for each i < count in parallel, in any order and on any of the
     * device's threads; returns when all calls have returned. */
    void (*run)(struct compute *c, uint32_t count, void (*step)(void *context, uint32_t i),
                void *context);
};

#endif
