/* profile_device: measures one device, round by round over all points so that a slow spell of the
 * computer hits all of them, and makes a struct profile_device of the medians. One thread. */
#ifndef BENCH_PROFILE_DEVICE_H
#define BENCH_PROFILE_DEVICE_H

#include "bench/profile_step.h"
#include "common/profile.h"

/* Called while it runs: what is measured just now, and how much of the device is done, 0 to 1; and
 * how many seconds that takes in all. */
typedef void (*profile_progress_call)(void *self, const char *what, double done, double seconds);

struct profile_device_options {
    struct model_file *file;
    const char *device; /* as in a config */
    const char *host;   /* in the profile */
    uint32_t threads;
    uint32_t beside; /* it is measured a second time, with so many more of it that are busy */
    double seconds;  /* to be used up, unless the fewest rounds take longer */
    bool quick;      /* few points, once: for tests */
    profile_progress_call progress;
    void *self;
};

/* Fills p->model too when p has no device yet. Adds to p->devices: the device alone, and beside
 * others. Both are measured in turn, point by point: what one visit of a point is slower for, so is
 * the other. */
enum status profile_device_measure(const struct profile_device_options *options, struct profile *p,
                                   struct error *error);

#endif
