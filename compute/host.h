/* host: functions of struct compute_ops for backends that compute in host memory and finish every
 * operation before it returns. The backends cpu/ and wait/ put these functions into their tables.
 * host_X implements compute_ops.X, which operations.h describes; host_memory_copy implements
 * memory_write and memory_read. Any thread; no state. This part computes nothing. */
#ifndef COMPUTE_HOST_H
#define COMPUTE_HOST_H

#include "compute/operations.h"

const struct device_memory *host_device_memory(struct compute *c); /* Returns NULL: host memory. */
/* Returns ST_NO_MEMORY if there is no memory. */
enum status host_memory_allocate(struct compute *c, size_t floats, float **out);
void host_memory_free(struct compute *c, float *memory);
void host_memory_copy(struct compute *c, void *to, const void *from, size_t bytes);
/* Calls done(self, number) before it returns. */
void host_mark(struct compute *c, uint32_t number, void (*done)(void *self, uint32_t number),
               void *self);
void host_wait(struct compute *c); /* Returns at once. */
enum status host_attention_check(struct compute *c, const struct compute_kv *kv,
                                 uint32_t head_count, struct error *error); /* Returns ST_OK. */

#endif
