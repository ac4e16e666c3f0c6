/* lanes: an optional ability of a backend. Normally the device's threads divide the weights of each
 * product among them. With lanes they divide the rows of the batch: a lane is a device of one
 * thread that computes its rows, and lanes wait for each other only at the end of `run`. Every lane
 * then reads all weights, and no result travels between cores. The results have the same bits.
 *
 * Only the CPU backend has this ability. When they are opened, the forward pass and the engine call
 * `count`, and the forward pass calls `lane`. On the engine thread, the forward pass calls `pick`,
 * and both call `run`; `run` calls the steps on the device's threads (the caller's and the worker
 * threads). A lane opens no weights. */
#ifndef COMPUTE_LANES_H
#define COMPUTE_LANES_H

#include <stdint.h>

struct compute;

struct compute_lanes_ops {
    /* Returns how many lanes the device has; 1 = none besides the device itself. */
    uint32_t (*count)(const struct compute *c);
    /* Returns how many lanes shall compute a batch of row_count rows: all (the result of `count`),
     * or 1 for the device itself. compute_options.lanes decides; COMPUTE_LANES_AUTO = what is
     * faster now. */
    uint32_t (*pick)(struct compute *c, uint32_t row_count);
    /* Returns lane i, which can open activations and compute every operation on rows. c owns the
     * lane. Requires that `count` is above 1, and i below it. */
    struct compute *(*lane)(struct compute *c, uint32_t i);
    /* Calls step(context, i) for each i < count in parallel, in any order and on any of the
     * device's threads; returns when all calls have returned. */
    void (*run)(struct compute *c, uint32_t count, void (*step)(void *context, uint32_t i),
                void *context);
};

#endif
