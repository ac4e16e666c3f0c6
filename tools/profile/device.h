/* profile_device: measures one device and makes a struct profile_device of the medians. All points
 * are measured in each round, so a slow period of the computer affects all points. One thread. */
#ifndef TOOLS_PROFILE_DEVICE_H
#define TOOLS_PROFILE_DEVICE_H

#include "profile/profile.h"
#include "tools/profile/step.h"

/* Called while the device is measured. what: the current measurement. done: share of the device
 * that is done, 0 to 1. seconds: time of the whole device. */
typedef void (*profile_progress_call)(void *self, const char *what, double done, double seconds);

struct profile_device_options {
    struct model_file *file;
    const char *device; /* As in a config. */
    const char *host;   /* Name in the profile. */
    uint32_t threads;
    /* If > 0, the device is also measured while this number of other devices of the same kind is
     * busy. */
    uint32_t beside;
    double seconds; /* Time to use, unless the smallest number of rounds takes longer. */
    bool quick;     /* True: few points, measured once, for tests. */
    profile_progress_call progress;
    void *self;
};

/* Adds the device to p->devices, alone and, if wanted, beside busy devices; fills p->model if p has
 * no device yet. Both variants are measured in turn at each point, so a slow period affects both.
 */
enum status profile_device_measure(const struct profile_device_options *options, struct profile *p,
                                   struct error *error);

#endif
