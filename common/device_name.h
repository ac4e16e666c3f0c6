/* device_name: says whether the name of a device, from the config or the command line, means a GPU,
 * and which GPU. Any folder may call the function, on any thread; the function keeps no state. It
 * does not check that the GPU exists, and knows no names of other devices (compute_device_find
 * does). */
#ifndef COMMON_DEVICE_NAME_H
#define COMMON_DEVICE_NAME_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_NUMBER_DIGITS 3 /* Most digits of a GPU's number. */

/* Returns true if `device` is "cuda:N", where N has 1 to DEVICE_NUMBER_DIGITS digits, or "cuda",
 * which means "cuda:0". Then stores N in *number_out, unless number_out is NULL. */
static inline bool device_name_gpu(const char *device, uint32_t *number_out)
{
    static const char cuda[] = "cuda", digits[] = "0123456789";
    uint32_t number = 0;
    if (strncmp(device, cuda, sizeof(cuda) - 1) != 0)
        return false;
    const char *at = device + sizeof(cuda) - 1;
    if (*at != 0) {
        const size_t count = *at == ':' ? strspn(at + 1, digits) : 0;
        if (count == 0 || count > DEVICE_NUMBER_DIGITS || at[1 + count] != 0)
            return false;
        number = (uint32_t)strtoul(at + 1, NULL, 10);
    }
    if (number_out != NULL)
        *number_out = number;
    return true;
}

#endif
