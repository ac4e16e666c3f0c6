/* fake_compute: the CPU's backend as a device with memory of its own (fake_memory.h): KV and the
 * activations of stages lie where the host cannot read them, and what is computed there can be
 * copied out only some time after the function has returned, as on a GPU. Its numbers are the
 * CPU's. For tests that need no CUDA: as an ops struct, or as a plugin in place of the one for CUDA
 * (libcleave-fake-device.so), for whole clusters. */
#ifndef TESTS_DEVICE_FAKE_COMPUTE_H
#define TESTS_DEVICE_FAKE_COMPUTE_H

#include "compute/compute.h"
#include "tests/device/fake_memory.h"

/* Of devices that are opened from now on; the plugin reads them from the environment's
 * CLEAVE_FAKE_DEVICE, such as "delay_us=200,fail_after=100,stick_after=100". */
extern struct fake_memory_options fake_compute_options;

extern struct compute_ops fake_compute_ops;

/* Devices that are open, and their memory. */
int fake_compute_count(void);
struct fake_memory *fake_compute_memory(int index);

#endif
