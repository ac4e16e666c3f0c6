/* cpu: the internal state of the CPU backend and the functions that its files share. No part
 * outside compute/cpu/ includes it, except tests. A device computes one operation at a time, for
 * one calling thread (compute.h says which); the operation hands work items to the worker threads.
 * When a batch runs in lanes (compute/lanes.h), each worker thread calls the operations of its own
 * lane, a struct compute of one thread. Functions without a comment are those of struct compute_ops
 * and of its tables `lanes` and `group`, and are described there. The arithmetic is not here: see
 * kernels.h. */
#ifndef COMPUTE_CPU_CPU_H
#define COMPUTE_CPU_CPU_H

#include "compute/cpu/arena.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/workers.h"

/* A work item is a piece of an operation that one thread computes. In a row-wise operation, an item
 * is one tile (kernels.h). If each thread would get ITEM_TILES_MANY tiles or more, an item is as
 * many tiles as fit in ITEM_ROWS rows: some microseconds of work. */
#define ITEM_ROWS       12
#define ITEM_TILES_MANY 4

/* Scratch memory of one thread. */
struct cpu_scratch {
    float *data;
    size_t floats;
};

/* Attention of few rows with long contexts, whose segments (kernels.h) are separate work items. */
struct cpu_split {
    float *parts;           /* Results of the segments. */
    size_t floats;          /* Size of `parts`. */
    _Atomic uint32_t *left; /* Segments not finished, for each sequence and KV head. */
    uint32_t heads;         /* Size of `left`. */
};

/* One thread's share of a product's work items, for prefetching weights. */
struct cpu_weights_ahead {
    _Alignas(64) uint32_t first_item;
    uint32_t end_item;
    uintptr_t end;  /* End address of the share's weights. */
    uintptr_t next; /* Start address of the weights of the thread's share of the next product. */
};

/* A device, or one of its lanes. */
struct compute {
    struct lanes *lanes;     /* NULL = one thread, or this is a lane. */
    struct meeting *meeting; /* The other ranks of this device's group; NULL = it is in no group. */
    /* Index of this device's first entry in compute_matrix.next, which has an entry for each thread
     * of the device and then one for each lane. */
    uint32_t ahead_base;
    const struct kernels *kernels;       /* Functions of the instruction set. */
    const struct kernels_floats *floats; /* Its products of float weights. */
    struct workers *workers;
    bool exact;    /* compute_options.exact. */
    bool prefetch; /* Weights are prefetched by software. */
    struct arena weights;
    const struct compute_matrix *last_product; /* First matrix of the last product; NULL = none. */
    struct cpu_weights_ahead ahead[WORKERS_THREADS_MAX]; /* Per thread. */
    struct cpu_scratch scratch[WORKERS_THREADS_MAX];     /* Per thread. */
    /* First work item of each sequence; used by attention. */
    uint32_t *first_items;
    uint32_t first_items_max;
    struct cpu_split split;
    char description[64];
};

/* A weight matrix, repacked in groups of rows (kernels.h). */
struct compute_matrix {
    /* The type in the file. With compute_options.exact, weights are stored as FORM_F32 for any
     * type. */
    enum compute_type type;
    enum kernels_form form;
    uint32_t rows;
    uint32_t cols;
    uint32_t groups; /* Number of groups of GROUP_ROWS rows; the last group is padded with zeros. */
    size_t group_bytes;
    uint8_t *data;
    struct arena_chunk *chunk; /* The chunk that `data` is in. */
    /* Scales of an F8_E4M3 matrix, which multiply the products with the unscaled weights. The
     * columns are in blocks of scale_cols columns; the first block has scale_first columns. */
    float *scales; /* [groups][scale_blocks][GROUP_ROWS]; NULL = not scaled. */
    uint32_t scale_blocks;
    uint32_t scale_first, scale_cols;
    /* [threads of the device, then of its lanes]: where, in the last forward pass, the weights
     * began that the thread read after its share of this matrix (see cpu_weights_ahead.next); 0 =
     * not known yet. */
    uintptr_t *next;
};

/* Activations in the forms that `needs` asks for. */
struct compute_activations {
    uint32_t rows_max;
    uint32_t cols;
    unsigned needs; /* OR of enum compute_needs. */
    /* [rows_max][cols]. Without COMPUTE_NEEDS_F32, only attention may use it, for intermediate
     * results. */
    float *floats;
    /* [rows_max] rows as kernels_floats.round writes them; NULL = no COMPUTE_NEEDS_BF16. */
    uint8_t *rounded;
    size_t rounded_stride; /* Bytes of a row of `rounded`. */
    /* Rows of a tile in the batch that was written last; the last tile may have fewer. */
    uint32_t tile_rows;
    struct kernels_block *blocks; /* [tiles][cols / 32]; NULL = no COMPUTE_NEEDS_Q8. */
    /* Second planes (kernels.h, "refined rows"), one per entry of `blocks`; NULL = no
     * COMPUTE_REFINED. */
    struct kernels_low *lows;
};

/* Returns 64-byte aligned memory, not zeroed; NULL = no memory. Pages of large pieces take no
 * memory until they are written. */
void *cpu_memory_take(size_t bytes);

/* Rows of a work item of the row-wise operations: whole tiles. */
static inline uint32_t cpu_item_rows(const struct compute *c, uint32_t row_count,
                                     uint32_t tile_rows)
{
    bool many = row_count / tile_rows >= workers_threads(c->workers) * ITEM_TILES_MANY;
    return many ? ITEM_ROWS / tile_rows * tile_rows : tile_rows;
}

/* Rows of a tile, chosen so that all tiles of the batch are equally large, except that the last one
 * may have fewer rows. */
static inline uint32_t cpu_tile_rows(uint32_t row_count)
{
    uint32_t tiles = (row_count + TILE_ROWS - 1) / TILE_ROWS;
    return tiles == 0 ? TILE_ROWS : (row_count + tiles - 1) / tiles;
}

/* Makes every thread's scratch memory at least `floats` large and keeps it for later calls. */
enum status cpu_scratch_need(struct compute *c, size_t floats);

/* Makes c->split large enough for `floats` and `heads`. False: no memory. */
bool cpu_split_need(struct compute *c, size_t floats, uint32_t heads);

/* Index of the block that holds row `row` and column `col`. */
static inline size_t cpu_activation_block(const struct compute_activations *a, uint32_t row,
                                          uint32_t col)
{
    return (size_t)(row / a->tile_rows) * (a->cols / 32) + col / 32;
}

/* cpu.c: frees a device without lanes, or a lane: its workers, its scratch memory and *c. */
void cpu_compute_free(struct compute *c);

/* lanes.c */
/* Opens a lane for each thread of c. when: whether batches will run in them; for AUTO the
 * environment variable CLEAVE_LANES decides if it is set. On an error, *out may hold what was
 * opened so far; close it. */
enum status cpu_lanes_open(struct compute *c, enum compute_lanes when, struct lanes **out,
                           struct error *error);
void cpu_lanes_close(struct lanes *lanes); /* NULL is fine. */
/* Removes pointers to matrix m, which is about to be closed. */
void cpu_lanes_forget(struct lanes *lanes, const struct compute_matrix *m);
uint32_t cpu_lanes_count(const struct compute *c);
uint32_t cpu_lanes_pick(struct compute *c, uint32_t row_count);
struct compute *cpu_lane(struct compute *c, uint32_t i);
void cpu_lanes_run(struct compute *c, uint32_t count, void (*step)(void *context, uint32_t i),
                   void *context);

/* matrix.c */
enum status cpu_matrix_open(struct compute *c, const struct compute_source *source,
                            struct compute_matrix **out);
void cpu_matrix_close(struct compute *c, struct compute_matrix *m);
unsigned cpu_matrix_needs(const struct compute_matrix *m);
size_t cpu_matrix_bytes(const struct compute_matrix *m);
void cpu_embed(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
               uint32_t count, float *y);

/* matmul.c */
void cpu_matmul(struct compute *c, const struct compute_matrix *const *matrices,
                const float *const *biases, uint32_t count, const struct compute_activations *a,
                uint32_t row_count, float *const *y);
void cpu_matmul_add(struct compute *c, const struct compute_matrix *m,
                    const struct compute_activations *a, uint32_t row_count, float *x);

/* activations.c */
enum status cpu_activations_open(struct compute *c, uint32_t rows_max, uint32_t cols,
                                 unsigned needs, struct compute_activations **out);
void cpu_activations_close(struct compute *c, struct compute_activations *a);
/* Prepares writing a batch of row_count rows: chooses the size of the tiles (cpu_tile_rows). 8 rows
 * become tiles of 4 and 4, not of 6 and 2, so that two threads get equal work. */
void cpu_activations_begin(struct compute_activations *a, uint32_t row_count);
/* Called by worker threads, each for its own rows. Writes columns [col, col + count) of row `row`
 * in those of two forms that `a` has: quantised, and rounded to bfloat16. Requires multiples of 32;
 * refined activations only as whole rows. */
void cpu_activations_quantise(const struct compute *c, const struct compute_activations *a,
                              uint32_t row, uint32_t col, uint32_t count, const float *values);
/* Calls cpu_activations_quantise for a whole row. The fp32 form is not written: the caller has
 * computed `values` there. */
void cpu_activations_finish(const struct compute *c, const struct compute_activations *a,
                            uint32_t row, const float *values);
void cpu_norm(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
              uint32_t cols, const float *weight, float epsilon, struct compute_activations *a);
void cpu_silu_mul(struct compute *c, const float *gate, const float *up, uint32_t row_count,
                  uint32_t cols, struct compute_activations *a);

void cpu_gelu_mul(struct compute *c, const float *gate, const float *up, uint32_t row_count,
                  uint32_t cols, struct compute_activations *a);

/* group.c */
enum status cpu_group_make(struct compute *c, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                           struct error *error);
enum status cpu_group_join(struct compute *c, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                           uint32_t rank, uint32_t ranks, uint32_t timeout_ms, struct error *error);
void cpu_group_sum(struct compute *c, size_t count, float *y);
void cpu_group_add(struct compute *c, size_t count, float *y, float *x);
void cpu_group_gather(struct compute *c, uint32_t row_count, const float *part,
                      const uint32_t *counts, float *all);
enum status cpu_check(struct compute *c, struct error *error);

/* in_place.c */
void cpu_scale(struct compute *c, float factor, size_t count, float *x);
void cpu_head_norm(struct compute *c, const float *weight, float epsilon, uint32_t row_count,
                   uint32_t head_count, uint32_t head_dim, float *x);
void cpu_norm_add(struct compute *c, const float *y, uint32_t row_count, uint32_t cols,
                  const float *weight, float epsilon, float *x);

/* sequences.c */
enum status cpu_rope_open(struct compute *c, const struct compute_rope *rope,
                          struct compute_rope_table **out);
void cpu_rope_close(struct compute *c, struct compute_rope_table *table);
void cpu_rope_store(struct compute *c, struct compute_rope_table *rope,
                    const struct compute_batch *batch, const struct compute_kv *kv,
                    uint32_t head_count, float *q, float *k, const float *v);
void cpu_attention(struct compute *c, const struct compute_batch *batch,
                   const struct compute_kv *kv, uint32_t head_count, float scale, const float *q,
                   struct compute_activations *a);

#endif
