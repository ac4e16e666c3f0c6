/* fake_nvml: the GPUs of fake_nvml.c, which stands for NVIDIA's libnvidia-ml.so.1. test_nvml.c finds
 * the variables fake_gpus (two of them) and fake_fails (an int: if it is not 0, all functions return
 * it) with dlsym, and reads and sets them on the thread that calls the functions. */
#ifndef TESTS_HOST_FAKE_NVML_H
#define TESTS_HOST_FAKE_NVML_H

struct fake_gpu {
    const char *name, *uuid;
    unsigned long long energy_mj;
    unsigned limit_mw, least_mw, greatest_mw;
};

#endif
