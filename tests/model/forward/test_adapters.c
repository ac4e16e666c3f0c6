/* Goal: the matrices of a low-rank adapter are the same wherever they begin in the adapter's file:
 * the format safetensors allows any offset. Method: a small model with the same adapter in two
 * files, in which the elements begin at an even and at an odd offset; the matrices on the CPU are
 * compared. The sanitizers find reads of 16-bit numbers at odd addresses. */
#include "tests/check.h"
#include "tests/model/file/adapter_writer.h"
#include "tests/model/forward/synthetic.h"

#include "model/file/model_file.h"
#include "model/forward/model.h"
#include "model/forward/weights.h"

#include <string.h>

#define RANK 3

struct opened {
    struct model_file *file;
    uint8_t *image;
    struct model *model;
};

static struct opened open_with(struct compute *c, bool bf16, bool odd)
{
    const struct synthetic s = synthetic_default();
    const struct adapter_writer w = {.layers = s.layers,
                                     .hidden = s.hidden,
                                     .ffn = s.ffn,
                                     .q = s.hidden,
                                     .kv = s.hidden / s.heads * s.kv_heads,
                                     .rank = RANK,
                                     .alpha = 2,
                                     .seed = 5,
                                     .bf16 = bf16,
                                     .odd = odd};
    const struct model_options options = {.ops = &compute_cpu, .compute = c};
    struct opened o;
    struct error error = {0};
    o.file = synthetic_open(&s, "synthetic", &o.image);
    adapter_writer_add(&w, o.file, "adapter");
    const struct adapter *adapter = model_file_adapter(o.file, 0);
    const struct mapped_tensor *a = adapter_tensor(adapter, 0, ADAPTER_Q, false);
    CHECK(a != NULL && (uintptr_t)a->data % 2 == odd);
    CHECKF(model_open(o.file, &options, &o.model, &error) == ST_OK, "%s", error.text);
    return o;
}

static void close_opened(const struct opened *o)
{
    model_close(o->model);
    model_file_close(o->file);
    free(o->image);
}

static void check_equal(const struct model_layer *a, const struct model_layer *b, uint32_t hidden,
                        uint32_t ffn)
{
    for (int i = 0; i < ADAPTER_MATRIX_COUNT; i++) {
        const struct compute_low_ranks *x = &a->adapters[i], *y = &b->adapters[i];
        const size_t cols = i == ADAPTER_DOWN ? ffn : hidden;
        CHECK(x->by_adapter != NULL && y->by_adapter != NULL && x->rows == y->rows);
        CHECK(x->by_adapter[0].rank == RANK && y->by_adapter[0].rank == RANK);
        CHECK(memcmp(x->by_adapter[0].down, y->by_adapter[0].down, RANK * cols * sizeof(float)) ==
              0);
        CHECK(memcmp(x->by_adapter[0].up, y->by_adapter[0].up, RANK * x->rows * sizeof(float)) ==
              0);
    }
}

int main(void)
{
    const struct compute_options options = {.threads = 1};
    struct compute *c;
    struct error error = {0};
    CHECKF(compute_cpu.open(&options, &c, &error) == ST_OK, "%s", error.text);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const struct opened even = open_with(c, bf16 != 0, false),
                            odd = open_with(c, bf16 != 0, true);
        const struct model_hyper *h = model_hyper_get(even.model);
        for (uint32_t i = 0; i < h->layer_count; i++)
            check_equal(&even.model->layers[i], &odd.model->layers[i], h->hidden, h->ffn);
        close_opened(&even);
        close_opened(&odd);
    }
    compute_cpu.close(c);
    return 0;
}
