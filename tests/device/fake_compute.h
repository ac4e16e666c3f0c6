/* fake_compute: the CPU backend as a device with its own memory (fake_memory.h), for tests without
 * CUDA. As on a GPU, the host cannot read the memory that holds KV and the activations of stages.
 * Computed values can be copied out only some time after the function that computes them has
 * returned. The values are those of the CPU backend. tests/machine/cluster.c uses the ops struct;
 * whole clusters load the plugin libcleave-fake-device.so in place of the one for CUDA. Threads: as
 * for any backend (compute/compute.h). It does not emulate CUDA kernels: tests/gpu/emulator/
 * does. */
#ifndef TESTS_DEVICE_FAKE_COMPUTE_H
#define TESTS_DEVICE_FAKE_COMPUTE_H

#include "compute/compute.h"
#include "tests/device/fake_memory.h"

/* Options of devices that are opened later. The plugin reads them from CLEAVE_FAKE_DEVICE in the
 * environment, such as "delay_us=200,fail_after=100,stick_after=100". */
extern struct fake_memory_options fake_compute_options;

/* The backend; the test opens devices with it. */
extern struct compute_ops fake_compute_ops;

/* Return the number of open devices, and the memory of device `index`, which the device owns. */
int fake_compute_count(void);
struct fake_memory *fake_compute_memory(int index);

#endif
