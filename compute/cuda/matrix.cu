/* matrix: weights on the device. Each matrix is packed into the form that cuda_gemv reads
 * (weights.cuh), piece by piece through two pinned buffers: several threads fill one while the
 * other is copied.
 *
 * Products of up to CUDA_GEMV_ROWS rows read that form. Products of more rows run on the tensor
 * cores, which need bf16. BF16 matrices are in that form already. For the others, a bf16 copy is
 * kept where memory allows; otherwise it is made in scratch memory each time, which costs as much
 * as reading the weights and writing the copy. This is decided before the first step, when
 * everything else is allocated (KV above all): copies are kept as long as a sixteenth of the memory
 * stays free. Estimate: for Llama 3 8B in Q4_0, making all copies reads 4.5 GB and writes 15 GB,
 * about 5 ms of an H200's bandwidth. With options.exact everything is fp32. */
#include "compute/cuda/backend.cuh"

#include <cstdlib>
#include <pthread.h>

#define PIECE_BYTES  ((size_t)32 << 20)
#define PACK_THREADS 8
/* Share of the device's memory that copies leave free: one of this many parts. */
#define COPIES_LEAVE 16

/* ---- upload ---- */

struct pack_part {
    enum compute_type type;
    uint32_t rows, cols;
    const void *source;
    size_t source_row;
    uint8_t *quants, *scales;
};

static void *pack_run(void *self)
{
    const struct pack_part *part = (const struct pack_part *)self;
    cuda_weights_pack(part->type, part->rows, part->cols, part->source, part->source_row,
                      part->quants, part->scales);
    return NULL;
}

/* Packs rows [first, first + rows) into `buffer`: the quants, followed by the scales. */
static void pack_piece(const struct cuda_weights *w, struct cuda_weights_layout layout,
                       const struct compute_source *source, uint32_t first, uint32_t rows,
                       uint8_t *buffer)
{
    struct pack_part parts[PACK_THREADS];
    pthread_t threads[PACK_THREADS];
    bool started[PACK_THREADS] = {};
    const size_t source_row = compute_source_row_bytes(source);
    const uint32_t share = (rows + PACK_THREADS - 1) / PACK_THREADS;
    for (uint32_t i = 0; i < PACK_THREADS; i++) {
        uint32_t from = i * share < rows ? i * share : rows;
        uint32_t count = rows - from < share ? rows - from : share;
        parts[i] = {source->type,
                    count,
                    w->cols,
                    (const uint8_t *)source->data + (first + from) * source_row,
                    source_row,
                    buffer + from * layout.row_bytes,
                    buffer + rows * layout.row_bytes + from * layout.scale_row_bytes};
        if (count > 0 && i + 1 < PACK_THREADS && share * source_row > 65536)
            started[i] = pthread_create(&threads[i], NULL, pack_run, &parts[i]) == 0;
        if (count > 0 && !started[i])
            pack_run(&parts[i]);
    }
    for (uint32_t i = 0; i < PACK_THREADS; i++)
        if (started[i])
            pthread_join(threads[i], NULL);
}

/* Kept from one matrix to the next, because pinning memory takes longer than filling it. */
struct cuda_staging {
    uint8_t *buffer[2];
    cudaEvent_t free[2];
};

void cuda_staging_close(struct compute *c)
{
    struct cuda_staging *s = c->staging;
    for (int i = 0; i < 2 && s != NULL; i++) {
        if (s->free[i] != NULL)
            (void)cudaEventDestroy(s->free[i]);
        if (s->buffer[i] != NULL)
            (void)cudaFreeHost(s->buffer[i]);
    }
    free(s);
    c->staging = NULL;
}

static struct cuda_staging *staging_of(struct compute *c)
{
    if (c->staging != NULL)
        return c->staging;
    c->staging = (struct cuda_staging *)calloc(1, sizeof(*c->staging));
    if (c->staging == NULL)
        cuda_fail(c, "loading weights: out of memory");
    for (int i = 0; i < 2 && c->staging != NULL; i++)
        if (!cuda_good(c, cudaMallocHost((void **)&c->staging->buffer[i], PIECE_BYTES),
                       "pinned memory") ||
            !cuda_good(c, cudaEventCreateWithFlags(&c->staging->free[i], cudaEventDisableTiming),
                       "an event"))
            cuda_staging_close(c);
    return c->staging;
}

static bool piece_send(struct compute *c, const struct cuda_weights *w,
                       struct cuda_weights_layout layout, uint32_t first, uint32_t rows,
                       const uint8_t *buffer)
{
    uint8_t *quants = const_cast<uint8_t *>(w->quants) + first * layout.row_bytes;
    if (!cuda_good(c,
                   cudaMemcpyAsync(quants, buffer, rows * layout.row_bytes, cudaMemcpyHostToDevice,
                                   c->stream),
                   "loading weights"))
        return false;
    if (layout.scale_row_bytes == 0)
        return true;
    uint8_t *scales = const_cast<uint8_t *>(w->scales) + first * layout.scale_row_bytes;
    return cuda_good(c,
                     cudaMemcpyAsync(scales, buffer + rows * layout.row_bytes,
                                     rows * layout.scale_row_bytes, cudaMemcpyHostToDevice,
                                     c->stream),
                     "loading weights");
}

static bool upload(struct compute *c, const struct cuda_weights *w,
                   struct cuda_weights_layout layout, const struct compute_source *source)
{
    const uint32_t rows_max = (uint32_t)(PIECE_BYTES / (layout.row_bytes + layout.scale_row_bytes));
    struct cuda_staging *s = staging_of(c);
    bool good = s != NULL;
    if (good && rows_max == 0) {
        cuda_fail(c, "loading weights: rows of %zu bytes", layout.row_bytes);
        return false;
    }
    for (uint32_t first = 0, turn = 0; first < w->rows && good; first += rows_max, turn ^= 1) {
        uint32_t rows = w->rows - first < rows_max ? w->rows - first : rows_max;
        good = cuda_good(c, cudaEventSynchronize(s->free[turn]), "loading weights");
        if (good)
            pack_piece(w, layout, source, first, rows, s->buffer[turn]);
        good = good && piece_send(c, w, layout, first, rows, s->buffer[turn]) &&
               cuda_good(c, cudaEventRecord(s->free[turn], c->stream), "loading weights");
    }
    return good && cuda_good(c, cudaStreamSynchronize(c->stream), "loading weights");
}

static bool scales_upload(struct compute *c, const struct compute_source *source,
                          const struct cuda_weights *w)
{
    struct cuda_weights same = *w;
    const size_t bytes = cuda_weights_f8_bytes(w);
    float *scales = (float *)malloc(bytes);
    if (scales == NULL) {
        cuda_fail(c, "loading weights: out of memory");
        return false;
    }
    (void)cuda_weights_f8(source, &same, scales);
    cuda_write(c, const_cast<uint8_t *>(w->scales), scales, bytes);
    free(scales);
    return !c->failed;
}

/* ---- matrices ---- */

static bool wants_copy(const struct compute *c, enum compute_type type)
{
    return !c->exact && type != COMPUTE_BF16 && type != COMPUTE_F32;
}

static bool copy_keep(struct compute *c, struct compute_matrix *m)
{
    const size_t bytes = (size_t)m->weights.rows * m->weights.cols * sizeof(__nv_bfloat16);
    size_t left = 0, all = 0;
    if (!cuda_good(c, cudaMemGetInfo(&left, &all), "asking for free memory") || left < bytes ||
        left - bytes < all / COPIES_LEAVE ||
        (m->copy = (__nv_bfloat16 *)cuda_take(c, bytes, false)) == NULL)
        return false;
    cuda_dequantize(c->stream, &m->weights, m->copy);
    m->bytes += bytes;
    return cuda_launched(c, "dequantising weights");
}

void cuda_matrices_settle(struct compute *c)
{
    size_t scratch = 0;
    struct compute_matrix *oldest = NULL;
    if (c->unsettled == NULL)
        return;
    /* The oldest matrix comes first: matrices that make a pair, such as gate and up, are neighbours
     * in this order. */
    while (c->unsettled != NULL) {
        struct compute_matrix *m = c->unsettled;
        c->unsettled = m->next;
        m->next = oldest;
        oldest = m;
    }
    for (struct compute_matrix *m = oldest; m != NULL && !c->failed; m = m->next) {
        const size_t elements = (size_t)m->weights.rows * m->weights.cols;
        size_t bytes = elements * (c->exact ? sizeof(float) : sizeof(__nv_bfloat16));
        bool needed = c->exact ? m->weights.type != COMPUTE_F32 : wants_copy(c, m->weights.type);
        /* E4M3 weights need this scratch memory as well, because cuBLASLt may have no kernel for
         * some numbers of rows. */
        if (needed && !c->exact && !cuda_f8_takes(c, &m->weights)) {
            needed = !copy_keep(c, m);
            c->copied += !needed;
            c->uncopied += needed;
        }
        scratch = needed && bytes > scratch ? bytes : scratch;
    }
    if (!c->failed)
        cuda_grow(c, &c->weights_scratch, &c->weights_scratch_bytes, scratch, "weights");
}

enum status cuda_matrix_open(struct compute *c, const struct compute_source *source,
                             struct compute_matrix **out)
{
    const enum compute_type type = source->type;
    const uint32_t rows = source->rows, cols = source->cols;
    const uint64_t begin = cuda_now_ns();
    const struct cuda_weights_layout layout = cuda_weights_layout(type, cols);
    const size_t quants = (rows * layout.row_bytes + 255) / 256 * 256;
    struct compute_matrix *m = (struct compute_matrix *)calloc(1, sizeof(*m));
    if (m == NULL)
        return ST_NO_MEMORY;
    const bool f8 = type == COMPUTE_F8_E4M3;
    m->weights.rows = rows;
    if (f8 && !cuda_weights_f8(source, &m->weights, NULL)) {
        free(m);
        return ST_UNSUPPORTED;
    }
    const struct cuda_weights scaled = m->weights;
    m->bytes = quants + (f8 ? cuda_weights_f8_bytes(&scaled) : rows * layout.scale_row_bytes);
    m->memory = cuda_take(c, m->bytes, false);
    if (m->memory == NULL) {
        free(m);
        return c->failed ? ST_IO : ST_NO_MEMORY;
    }
    m->weights = {cuda_weights_kept(type),
                  rows,
                  cols,
                  (const uint8_t *)m->memory,
                  m->bytes > quants ? (const uint8_t *)m->memory + quants : NULL,
                  layout.row_bytes,
                  f8 ? scaled.scale_row_bytes : layout.scale_row_bytes,
                  scaled.scale_shift,
                  scaled.scale_first};
    cuda_weights_codes(type, &m->weights);
    m->next = c->unsettled;
    c->unsettled = m;
    if (!upload(c, &m->weights, layout, source) || (f8 && !scales_upload(c, source, &m->weights))) {
        cuda_matrix_close(c, m);
        return ST_IO;
    }
    c->loading_ns += cuda_now_ns() - begin;
    *out = m;
    return ST_OK;
}

void cuda_matrix_settled(struct compute *c, const struct compute_matrix *m)
{
    struct compute_matrix **at = &c->unsettled;
    while (*at != NULL && *at != m)
        at = &(*at)->next;
    if (*at != NULL)
        *at = m->next;
}

void cuda_matrix_close(struct compute *c, struct compute_matrix *m)
{
    if (m == NULL)
        return;
    cuda_matrix_settled(c, m);
    cuda_steps_forget(c);
    cuda_give(c, m->copy);
    cuda_give(c, m->memory);
    free(m);
}

unsigned cuda_matrix_needs(const struct compute_matrix *m)
{
    return m->weights.type == COMPUTE_F32       ? COMPUTE_NEEDS_F32
           : m->weights.type == COMPUTE_F8_E4M3 ? COMPUTE_NEEDS_BF16 | COMPUTE_NEEDS_F8
                                                : COMPUTE_NEEDS_BF16;
}

size_t cuda_matrix_bytes(const struct compute_matrix *m)
{
    return m->bytes;
}

/* ---- products ---- */

static void product_f32(struct compute *c, const struct compute_matrix *m,
                        const struct compute_activations *a, uint32_t rows, bool add, float *y)
{
    const struct cuda_weights *w = &m->weights;
    const void *values = w->quants;
    size_t row_bytes = w->row_bytes;
    if (w->type != COMPUTE_F32) {
        row_bytes = w->cols * sizeof(float);
        if (!cuda_grow(c, &c->weights_scratch, &c->weights_scratch_bytes, w->rows * row_bytes,
                       "weights"))
            return;
        cuda_dequantize_f32(c->stream, w, (float *)c->weights_scratch);
        values = c->weights_scratch;
    }
    const struct cuda_gemm_work work = {CUDA_R_32F, CUDA_R_32F, {values, NULL}, row_bytes,
                                        a->f32,     rows,       w->rows,        w->cols,
                                        add,        {y, NULL}};
    cuda_gemm(c, &work);
}

static void product_bf16(struct compute *c, const struct compute_matrix *m,
                         const struct compute_activations *a, uint32_t rows, bool add, float *y)
{
    const struct cuda_weights *w = &m->weights;
    const void *values = m->copy;
    size_t row_bytes = w->cols * sizeof(__nv_bfloat16);
    if (w->type == COMPUTE_BF16) {
        values = w->quants;
        row_bytes = w->row_bytes;
    } else if (values == NULL) {
        if (!cuda_grow(c, &c->weights_scratch, &c->weights_scratch_bytes, w->rows * row_bytes,
                       "weights"))
            return;
        cuda_dequantize(c->stream, w, (__nv_bfloat16 *)c->weights_scratch);
        values = c->weights_scratch;
    }
    const struct cuda_gemm_work work = {CUDA_R_16BF, CUDA_R_32F, {values, NULL}, row_bytes,
                                        a->bf16,     rows,       w->rows,        w->cols,
                                        add,         {y, NULL}};
    cuda_gemm(c, &work);
}

void cuda_product(struct compute *c, const struct compute_matrix *m,
                  const struct compute_activations *a, uint32_t rows, bool add, float *y)
{
    const bool f32 = c->exact || m->weights.type == COMPUTE_F32;
    if (rows <= CUDA_GEMV_ROWS)
        cuda_gemv(c->stream, &m->weights, a->bf16, f32 ? a->f32 : NULL, rows, add, y);
    else if (f32)
        product_f32(c, m, a, rows, add, y);
    else if (!cuda_product_f8(c, m, a, rows, add, y))
        product_bf16(c, m, a, rows, add, y);
    cuda_launched(c, "a product");
}

bool cuda_product_pair(struct compute *c, const struct compute_matrix *const m[2],
                       const struct compute_activations *a, uint32_t rows, float *const y[2])
{
    const struct cuda_weights *w = &m[0]->weights, *other = &m[1]->weights;
    if (rows <= CUDA_GEMV_ROWS || c->exact || w->type != other->type || w->rows != other->rows ||
        w->cols != other->cols || w->type == COMPUTE_F32)
        return false;
    const bool bf16 = w->type == COMPUTE_BF16;
    const void *first = bf16 ? (const void *)w->quants : m[0]->copy;
    const void *second = bf16 ? (const void *)other->quants : m[1]->copy;
    if (first == NULL || second == NULL)
        return false;
    const struct cuda_gemm_work work = {
        CUDA_R_16BF,     CUDA_R_32F,
        {first, second}, bf16 ? w->row_bytes : w->cols * sizeof(__nv_bfloat16),
        a->bf16,         rows,
        w->rows,         w->cols,
        false,           {y[0], y[1]}};
    return cuda_gemm(c, &work);
}
