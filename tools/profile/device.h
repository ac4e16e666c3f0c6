/* profile_device: measures one device and adds one or two struct profile_device to a profile. All
 * points are measured in each round, so a slow period of the computer affects all points. profile.c
 * calls this part on the main thread of `cleave profile`, once for each different pair of a number
 * of threads and a number of ranks. step.h times a batch, and points.h chooses the points and
 * computes medians. This part writes no file. */
#ifndef TOOLS_PROFILE_DEVICE_H
#define TOOLS_PROFILE_DEVICE_H

#include "profile/profile.h"
#include "tools/profile/step.h"

/* Reports progress of a device or, for link.h, of links, on the thread that measures. measurement:
 * what is measured, as a text for the user. done_share: the finished share of the device's or the
 * links' measurements, 0 to 1. expected_seconds: the expected time of all these measurements. */
typedef void (*profile_progress_call)(void *self, const char *measurement, double done_share,
                                      double expected_seconds);

struct profile_device_options {
    struct model_file *file; /* The open model; belongs to the caller. */
    const char *device;      /* Device as in a config, such as "cpu" or "cuda:0". */
    const char *host;        /* Name of this host in the profile. */
    uint32_t threads;        /* Threads of all ranks of the device; a multiple of `ranks`. */
    uint32_t ranks; /* Ranks that compute each layer together; 1 = one process computes it. */
    /* If > 0, each point is also measured while this number of other devices of the same kind are
     * busy. */
    uint32_t busy_devices;
    /* Time for opening the device, with its weights, and for all rounds. The smallest number of
     * rounds may take longer. */
    double budget_seconds;
    bool quick;                     /* Few points, and one round is enough; for trials. */
    profile_progress_call progress; /* Not NULL. */
    void *self;                     /* First argument of `progress`. */
};

/* Adds the device to profile->devices: measured alone and, if options->busy_devices > 0, once more
 * beside busy devices. The two measurements of a point follow each other, so a slow period affects
 * both. Fills profile->model if the profile has no device yet. Requires that this process has no
 * other threads if options->busy_devices > 0 or options->ranks > 1, because the function forks.
 * ST_TOO_LARGE: the profile has no room for the devices. ST_INVALID: the profile has this device
 * already. Returns also the errors of the model, the device and the processes. */
enum status profile_device_measure(const struct profile_device_options *options,
                                   struct profile *profile, struct error *error);

#endif
