/* reference: a plain fp32 forward pass to compare the engine with. Weights are dequantised when it
 * is opened; it computes the whole sequence at once, with one loop nest per formula. It shares no
 * code with compute/ except compute_dequantize, and reads the file's keys itself. Tests of model/
 * and tests/gpu call it on their main thread. It is slow, and has no KV cache, no batches and no
 * sampler. Aborts the test on a file that it cannot read. */
#ifndef TESTS_MODEL_FORWARD_REFERENCE_H
#define TESTS_MODEL_FORWARD_REFERENCE_H

#include "model/file/gguf.h"

struct reference;

struct reference *reference_open(const struct gguf *g);
void reference_close(struct reference *r);
uint32_t reference_vocab(const struct reference *r);

/* Runs ids[0..count). logits_out[(i - first) * vocab] are the logits after ids[i], for i from
 * `first` on. */
void reference_run(const struct reference *r, const uint32_t *ids, uint32_t count, uint32_t first,
                   float *logits_out);

/* Writes the vectors after the last norm of ids[0..count) to out[count × hidden]. */
void reference_finals(const struct reference *r, const uint32_t *ids, uint32_t count, float *out);

/* Runs ids[0..count) through the first draft layer. finals[count × hidden] has the final vector of
 * the token before each. The layer's own final vectors go to finals_out[count × hidden]. */
void reference_draft_run(const struct reference *r, const uint32_t *ids, const float *finals,
                         uint32_t count, float *logits_out, float *finals_out);

/* Returns the root mean square of the differences, divided by that of the reference. */
double reference_distance(const float *a, const float *reference, size_t count);

#endif
