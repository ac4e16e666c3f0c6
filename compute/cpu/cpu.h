/* cpu: the state of the CPU backend and the functions that its files share. Only compute/cpu/ and
 * tests use this header. A device computes one operation at a time, for one calling thread
 * (compute.h). Most operations divide their work into items, which the calling thread and the
 * worker threads compute (workers.h). When a batch runs in lanes (compute/lanes.h), each lane (a
 * struct compute with one thread) is a work item: one of these threads calls the lane's operations.
 *
 * Functions without comments implement functions of tables: cpu_X implements compute_ops.X
 * (compute/operations.h), cpu_lanes_X and cpu_lane are in compute_lanes_ops (compute/lanes.h), and
 * cpu_group_X is in compute_group_ops (compute/group.h). kernels.h has the arithmetic. */
#ifndef COMPUTE_CPU_CPU_H
#define COMPUTE_CPU_CPU_H

#include "compute/cpu/arena.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/workers.h"
#include "compute/experts.h"
#include "compute/low_rank.h"

/* A work item is a piece of an operation that one thread computes. In norm, layer_norm, gate_mul
 * and rope_store, an item is one tile (at most TILE_ROWS rows) or, if the batch has at least
 * ITEM_TILES_MANY whole tiles per thread, as many tiles as fit in ITEM_ROWS rows. In head_norm and
 * norm_add, an item has ITEM_ROWS rows. */
#define ITEM_ROWS       12
#define ITEM_TILES_MANY 4

/* Scratch memory of one thread, which is never made smaller. */
struct cpu_scratch {
    float *data;
    size_t floats;
};

/* Memory for attention of few rows with long contexts (sequences.c): a work item is then one
 * segment (KERNELS_SEGMENT tokens) of a sequence, for heads that share a KV head. */
struct cpu_segments {
    float *parts;  /* Results of the segments (kernels.attention_part). */
    size_t floats; /* Number of floats in `parts`. */
    /* [counters]: number of unfinished segments of a sequence, for heads that share a KV head. */
    _Atomic uint32_t *unfinished;
    uint32_t counters; /* Number of entries in `unfinished`. */
};

/* What a thread prefetches at the end of its share (workers_share) of a product: the weights that
 * the thread probably reads in the next product. */
struct cpu_weights_ahead {
    _Alignas(64) uint32_t first_item; /* First work item of the share. */
    uint32_t end_item;                /* The work item after the share. */
    uintptr_t end;                    /* Address after the last weight of the share. */
    /* Address of the first weight of the thread's next share; if not known, the same as `end`. */
    uintptr_t next;
};

/* A choice that an environment variable makes: AUTO = the backend measures and decides. */
enum cpu_choice { CPU_CHOICE_AUTO, CPU_CHOICE_NEVER, CPU_CHOICE_ALWAYS };

/* How products of many rows with a form of weights are computed. */
struct cpu_product_way {
    /* In products of at least so many rows, each group of weights is first unpacked to bytes
     * (kernels_product.unpack). UINT32_MAX = never. */
    uint32_t unpack_rows;
    bool strips; /* Tile registers (kernels.gemm_strips), if the activations have strips. */
};

/* The ways that are faster on this CPU (product_choice.c). */
struct product_choice {
    enum cpu_choice unpack; /* CLEAVE_UNPACK; NEVER if the kernels cannot unpack. */
    /* CLEAVE_AMX; NEVER if the CPU has no AMX, the operating system does not permit AMX, or the
     * kernels do not use AMX. */
    enum cpu_choice strips;
    bool known[FORM_QUANTISED_COUNT]; /* pays[form] has been measured. */
    struct cpu_product_way pays[FORM_QUANTISED_COUNT];
};

/* A device, or one of its lanes. */
struct compute {
    struct lanes *lanes; /* NULL = the device has one thread, or this struct is a lane. */
    /* Connects the device to the other ranks of its group (compute/meeting.h); NULL = no group. */
    struct meeting *meeting;
    /* Index in compute_matrix.next of the entry for thread 0: 0 for a device, the number of the
     * device's threads + i for lane i. */
    uint32_t ahead_base;
    const struct kernels *kernels;       /* Functions of the instruction set in use. */
    const struct kernels_floats *floats; /* Products of float weights. */
    struct workers *workers;             /* The threads of this struct; a lane has one. */
    struct product_choice product_choice;
    bool exact;           /* compute_options.exact. */
    bool prefetch;        /* Products prefetch weights. */
    struct arena weights; /* compute_matrix.data of all matrices; a lane has none. */
    /* First matrix of the last matmul or matmul_add; NULL = none yet, experts were computed since,
     * or the matrix was closed. */
    const struct compute_matrix *last_product;
    struct cpu_weights_ahead ahead[WORKERS_THREADS_MAX]; /* Per thread. */
    struct cpu_scratch scratch[WORKERS_THREADS_MAX];     /* Per thread. */
    /* [first_items_max]: index of each sequence's first work item in attention. */
    uint32_t *first_items;
    uint32_t first_items_max;
    struct cpu_segments segments;
    char description[64];
};

/* A weight matrix, repacked in groups of GROUP_ROWS rows (enum kernels_form). */
struct compute_matrix {
    /* Type of the weights in the file. `form` is FORM_F32 for every type with
     * compute_options.exact. */
    enum compute_type type;
    enum kernels_form form;
    uint32_t rows;
    uint32_t cols;
    struct cpu_product_way way; /* Products of many rows. */
    uint32_t groups;            /* Number of groups; the last group is padded with rows of zeros. */
    size_t group_bytes;
    uint8_t *data;
    struct arena_chunk *chunk; /* The chunk that `data` is in. */
    /* Scales of an F8_E4M3 matrix: [groups][scale_blocks][GROUP_ROWS]; NULL = none. The
     * columns form scale_blocks blocks of scale_cols columns, but the first block has scale_first
     * columns, and the last block may have fewer. */
    float *scales;
    uint32_t scale_blocks;
    uint32_t scale_first, scale_cols;
    /* One entry for each thread of the device, then one for each lane: after the latest product of
     * which this matrix was the first, the address of the first weight of the thread's share in the
     * next product. 0 = not known. */
    uintptr_t *next;
};

/* Activations in the forms of `needs`. */
struct compute_activations {
    uint32_t rows_max;
    uint32_t cols;
    unsigned needs; /* OR of enum compute_needs. */
    /* [rows_max][cols]. Without COMPUTE_NEEDS_F32, memory for intermediate results. */
    float *floats;
    /* [rows_max] rows as kernels_floats.round writes them; NULL = no COMPUTE_NEEDS_BF16. */
    uint8_t *rounded;
    size_t rounded_stride; /* Bytes of a row of `rounded`. */
    /* Rows of a tile; the last tile may have fewer rows. */
    uint32_t tile_rows;
    struct kernels_block *blocks; /* [tiles][cols / 32]; NULL = no COMPUTE_NEEDS_Q8. */
    /* Second planes (kernels.h), one per entry of `blocks`; NULL = rows are not refined. */
    struct kernels_second_plane *second_planes;
    /* [rows / KERNELS_STRIP_ROWS, rounded up][cols / 32]; NULL = no COMPUTE_NEEDS_STRIPS. */
    struct kernels_strip *strips;
    struct kernels_strip_plane *strip_planes; /* One per entry of `strips`; NULL = not refined. */
    bool few; /* The batch has too few rows for strips: `strips` is not written. */
};

/* Fewest rows of a batch whose activations are also written as strips: two whole strips. */
#define CPU_STRIPS_ROWS_MIN (2 * KERNELS_STRIP_ROWS)

/* Returns 64-byte aligned memory, not zeroed; NULL = no memory. Pages of large pieces take no
 * memory until they are written. The caller frees the memory with free(). */
void *cpu_memory_allocate(size_t bytes);

/* Returns how many rows one work item has in a row-wise operation: a multiple of tile_rows. */
static inline uint32_t cpu_item_rows(const struct compute *c, uint32_t row_count,
                                     uint32_t tile_rows)
{
    bool many = row_count / tile_rows >= workers_threads(c->workers) * ITEM_TILES_MANY;
    return many ? ITEM_ROWS / tile_rows * tile_rows : tile_rows;
}

/* Returns how many rows each tile of a batch has; the last tile may have fewer rows. The tiles are
 * as equal as possible, so that threads get equal work: 8 rows become tiles of 4 and 4. */
static inline uint32_t cpu_tile_rows(uint32_t row_count)
{
    uint32_t tiles = (row_count + TILE_ROWS - 1) / TILE_ROWS;
    return tiles == 0 ? TILE_ROWS : (row_count + tiles - 1) / tiles;
}

/* Grows every thread's scratch memory to at least `floats` floats. Memory that grows loses its
 * content. Returns ST_NO_MEMORY on failure. */
enum status cpu_scratch_grow(struct compute *c, size_t floats);

/* Grows c->segments to at least `floats` floats of results and `counters` counters. Arrays that
 * grow lose their content. Returns false if there is no memory. */
bool cpu_segments_grow(struct compute *c, size_t floats, uint32_t counters);

/* Returns the index in a->blocks of the block with row `row` and column `col`. */
static inline size_t cpu_activation_block(const struct compute_activations *a, uint32_t row,
                                          uint32_t col)
{
    return (size_t)(row / a->tile_rows) * (a->cols / 32) + col / 32;
}

/* cpu.c: reads the environment variable `name`: auto, never or always. Not set or empty = auto.
 * Returns ST_INVALID for other values. */
enum status cpu_choice_read(const char *name, enum cpu_choice *out, struct error *error);

/* cpu.c: frees a device or a lane with its workers and scratch memory, but not a device's lanes and
 * meeting. */
void cpu_compute_free(struct compute *c);

/* lanes.c */
/* Opens a lane for each thread of c. `when` says which batches run in lanes; the environment
 * variable CLEAVE_LANES (auto, never, always) replaces COMPUTE_LANES_AUTO. Returns ST_INVALID for
 * another value of the variable, ST_NO_MEMORY, or an error of workers_open. The caller calls
 * cpu_lanes_close, also after an error. Requires that c has at least two threads and that *out is
 * NULL. */
enum status cpu_lanes_open(struct compute *c, enum compute_lanes when, struct lanes **out,
                           struct error *error);
void cpu_lanes_close(struct lanes *lanes); /* NULL is fine. */
/* Removes pointers of the lanes to matrix m, which is about to be closed. */
void cpu_lanes_forget(struct lanes *lanes, const struct compute_matrix *m);
uint32_t cpu_lanes_count(const struct compute *c);
uint32_t cpu_lanes_pick(struct compute *c, uint32_t row_count);
void cpu_lanes_done(struct compute *c);
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
/* Most tiles with which a group of W is multiplied before the next group is read. 21 tiles are 126
 * rows: best for 576 to 1536 columns. */
#define CPU_CHUNK_TILES 21
/* A part of a product: groups [first_group, first_group + groups) of `matrix` times rows
 * [0, row_count) of `a`. */
struct cpu_part {
    const struct compute_matrix *matrix;
    uint32_t first_group, groups;
    const float *bias; /* [rows of the matrix]; NULL = none. */
    const struct compute_activations *a;
    uint32_t row_count;
    float *y;        /* Result of row 0 of `a` and the first row of group `first_group`. */
    size_t y_stride; /* Floats in y from one row of `a` to the next. */
    /* Weights that the thread reads after this part, to prefetch; NULL = the weights that follow
     * the part in memory. */
    const uint8_t *next;
};
/* Computes a part on the calling thread. */
void cpu_matmul_part(const struct compute *c, const struct cpu_part *part);
void cpu_matmul(struct compute *c, const struct compute_matrix *const *matrices,
                const float *const *biases, uint32_t count, const struct compute_activations *a,
                uint32_t row_count, float *const *y);
void cpu_matmul_add(struct compute *c, const struct compute_matrix *m,
                    const struct compute_activations *a, uint32_t row_count, float *x);

/* product_choice.c */
/* Sets the rules of c->product_choice from the environment variables CLEAVE_UNPACK and CLEAVE_AMX
 * (auto, never, always), and asks the operating system for the permission to use AMX. Returns
 * ST_INVALID for another value. */
enum status cpu_product_rules(struct compute *c, struct error *error);
/* Returns how products of many rows with matrices of this form are computed. With CPU_CHOICE_AUTO,
 * the first call for a form measures which way is faster; without memory for the measurement, no
 * way is. The way does not change the bits of products. Call this function on the thread that opens
 * matrices. */
struct cpu_product_way cpu_product_way(struct compute *c, enum kernels_form form);

/* activations.c */
enum status cpu_activations_open(struct compute *c, uint32_t rows_max, uint32_t cols,
                                 unsigned needs, struct compute_activations **out);
void cpu_activations_close(struct compute *c, struct compute_activations *a);
/* Sets a->tile_rows and a->few for a batch of row_count rows, which are not written yet. */
void cpu_activations_begin(struct compute_activations *a, uint32_t row_count);
/* Writes columns [col, col + count) of row `row` into a->rounded, a->blocks and a->strips, if `a`
 * has these arrays. With a->blocks, `col` and `count` must be multiples of 32; with
 * a->second_planes, the columns must be a whole row. Several threads may call this function at once
 * for different rows or columns. */
void cpu_activations_quantise(const struct compute *c, const struct compute_activations *a,
                              uint32_t row, uint32_t col, uint32_t count, const float *values);
/* Calls cpu_activations_quantise for a whole row. Does not write a->floats. */
void cpu_activations_finish(const struct compute *c, const struct compute_activations *a,
                            uint32_t row, const float *values);
void cpu_norm(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
              uint32_t cols, const float *weight, float epsilon, struct compute_activations *a);
void cpu_layer_norm(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
                    uint32_t cols, const float *weight, const float *bias, float epsilon,
                    struct compute_activations *a);
void cpu_gate_mul(struct compute *c, enum compute_activation activation, const float *gate,
                  const float *up, uint32_t row_count, uint32_t cols,
                  struct compute_activations *a);
/* Computes one row of gate_mul. */
void cpu_gate_mul_row(const struct compute *c, enum compute_activation activation,
                      const float *gate, const float *up, uint32_t cols, float *out);

/* group.c */
enum status cpu_group_id_make(struct compute *c, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                              struct error *error);
enum status cpu_group_join(struct compute *c, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                           uint32_t rank, uint32_t ranks, uint32_t timeout_ms, struct error *error);
void cpu_group_sum(struct compute *c, size_t count, float *y);
void cpu_group_sum_add(struct compute *c, size_t count, float *y, float *x);
void cpu_group_norm(struct compute *c, const struct compute_group_norm *norms, uint32_t count,
                    float epsilon, uint32_t row_count);
void cpu_group_gather(struct compute *c, uint32_t row_count, const float *part,
                      const uint32_t *counts, float *all);
enum status cpu_check(struct compute *c, struct error *error);

/* latent.c: the table compute_ops.latent. */
extern const struct compute_latent_ops cpu_latent;

/* in_place.c */
void cpu_cap(struct compute *c, float cap, size_t count, float *x);
void cpu_scale(struct compute *c, float factor, size_t count, float *x);
void cpu_scale_add(struct compute *c, float factor, size_t count, const float *y, float *x);
void cpu_head_norm(struct compute *c, const float *weight, float epsilon, uint32_t row_count,
                   uint32_t head_count, uint32_t head_dim, float *x);
void cpu_norm_add(struct compute *c, const float *y, uint32_t row_count, uint32_t cols,
                  const float *weight, float epsilon, float *x);

/* low_rank.c */
void cpu_low_rank(struct compute *c, const struct compute_low_ranks *ranks,
                  const struct compute_batch *batch, const struct compute_activations *a, float *y);

/* experts.c: the table compute_ops.experts. */
extern const struct compute_experts_ops cpu_experts;

/* sequences.c */
enum status cpu_rope_open(struct compute *c, const struct compute_rope *rope,
                          struct compute_rope_table **out);
void cpu_rope_close(struct compute *c, struct compute_rope_table *table);
void cpu_rope_store(struct compute *c, struct compute_rope_table *rope,
                    const struct compute_batch *batch, const struct compute_kv *kv,
                    uint32_t head_count, float *q, float *k, const float *v);
void cpu_attention(struct compute *c, const struct compute_batch *batch,
                   const struct compute_kv *kv, uint32_t head_count,
                   const struct compute_attention *parameters, const float *q,
                   struct compute_activations *a);

#endif
