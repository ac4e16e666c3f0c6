/* fake_compute: the CPU backend as a device with its own memory (fake_memory.h). KV and the
 * activations of stages are in memory that the host cannot read, and computed values can be copied
 * out only some time after the function has returned, as on a GPU. The numbers are those of the
 * CPU. For tests without CUDA: as an ops struct, or as a plugin instead of the one for CUDA
 * (libcleave-fake-device.so), for whole clusters. */
#ifndef TESTS_DEVICE_FAKE_COMPUTE_H
#define TESTS_DEVICE_FAKE_COMPUTE_H

#include "compute/compute.h"
#include "tests/device/fake_memory.h"

/* Options of devices that are opened later. The plugin reads them from CLEAVE_FAKE_DEVICE in the
 * environment, such as "delay_us=200,fail_after=100,stick_after=100". */
extern struct fake_memory_options fake_compute_options;

extern struct compute_ops fake_compute_ops;

/* Return the number of open devices, and the memory of one. */
int fake_compute_count(void);
struct fake_memory *fake_compute_memory(int index);

#endif
