/* profile_device: measures one device, alone and beside busy devices, and adds the results to a
 * profile. profile.c calls the function on the main thread of `cleave profile`. During the call,
 * the function owns the device and the processes that it starts. It writes no file. */
#ifndef TOOLS_PROFILE_DEVICE_H
#define TOOLS_PROFILE_DEVICE_H

#include "profile/profile.h"
#include "tools/profile/step.h"

/* Reports the progress of one call that measures a device or links (link.h), on the thread that
 * measures. measurement: what is measured, as a text for the user. done_share: finished share of
 * the call, 0 to 1. expected_seconds: expected time of the whole call. */
typedef void (*profile_progress_call)(void *self, const char *measurement, double done_share,
                                      double expected_seconds);

struct profile_device_options {
    struct model_file *file; /* The open model; belongs to the caller. */
    const char *device;      /* Device as in a config, such as "cpu" or "cuda:0". */
    const char *host;        /* Name of this host in the profile. */
    uint32_t threads;        /* Threads of all ranks of the device; a multiple of `ranks`. */
    uint32_t ranks;          /* Processes that compute each layer together; 1 = one process. */
    /* Devices of the same kind to keep busy in a second measurement; 0 = no second measurement. */
    uint32_t busy_devices;
    /* Time for opening the device and for all measurements. On a slow host they may take longer. */
    double budget_seconds;
    bool quick; /* For trials: measure fewer points, and at least one round instead of two. */
    const char *energy_folder;      /* ENERGY_FOLDER (host/energy.h), or the folder of a test. */
    profile_progress_call progress; /* Not NULL. */
    void *self;                     /* First argument of `progress`. */
};

/* Adds the device to profile->devices: measured alone and, if options->busy_devices > 0, once more
 * beside busy devices. Fills profile->model if the profile has no device yet. Requires that this
 * process has no other threads if options->busy_devices > 0 or options->ranks > 1, because the
 * function forks. ST_TOO_LARGE: the profile has no room for the new entry, or for the two new
 * entries if options->busy_devices > 0. ST_INVALID: the profile has this device already. Also
 * returns the errors of opening the model, the device and the processes. */
enum status profile_device_measure(const struct profile_device_options *options,
                                   struct profile *profile, struct error *error);

#endif
