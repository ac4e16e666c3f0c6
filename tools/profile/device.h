/* profile_device: measures one device and adds the medians to a profile as a struct profile_device.
 * All points are measured in each round, so a slow period of the computer affects all points.
 * profile.c calls it on the main thread of `cleave profile`, once per number of threads. It times
 * no batch itself (step.h), chooses no points and computes no medians (points.h), and writes no
 * file. */
#ifndef TOOLS_PROFILE_DEVICE_H
#define TOOLS_PROFILE_DEVICE_H

#include "profile/profile.h"
#include "tools/profile/step.h"

/* Reports progress, on the measuring thread. what: the current measurement. done: finished share of
 * the whole measurement, 0 to 1. seconds: expected time of the whole measurement. */
typedef void (*profile_progress_call)(void *self, const char *what, double done, double seconds);

struct profile_device_options {
    struct model_file *file; /* The open model; belongs to the caller. */
    const char *device;      /* Device as in a config, such as "cpu" or "cuda:0". */
    const char *host;        /* Name of this host in the profile. */
    uint32_t threads;        /* Threads of the device. */
    /* Number of other devices of this kind that are busy in a second measurement; 0 = no second
     * measurement. */
    uint32_t busy_devices;
    double seconds; /* Time to use, unless the smallest number of rounds takes longer. */
    bool quick;     /* Few points, and one round is enough; for trials. */
    profile_progress_call progress;
    void *self; /* First argument of `progress`. */
};

/* Adds the device to p->devices: measured alone and, if options->busy_devices > 0, once more beside
 * busy devices. Fills p->model if p has no device yet. Both variants are measured in turn at each
 * point, so a slow period affects both. ST_TOO_LARGE: the profile is full. ST_INVALID: the profile
 * has this device already. Returns also the errors of the model, the device and the processes. */
enum status profile_device_measure(const struct profile_device_options *options, struct profile *p,
                                   struct error *error);

#endif
