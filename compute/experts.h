/* experts: an optional ability of a backend: layers whose feed-forward is a mixture of experts.
 * Each row of a batch chooses a few of a layer's experts by scores, which come from the product of
 * the row and the router's matrix. The result of a row is the sum of its chosen experts' results,
 * each multiplied by the expert's weight for this row.
 *
 * model/forward/ calls the functions, one thread at a time for each device (compute.h), and owns
 * the matrices. The functions compute neither the router's product nor shared experts. */
#ifndef COMPUTE_EXPERTS_H
#define COMPUTE_EXPERTS_H

#include "common/status.h"
#include "compute/objects.h"

#include <stdbool.h>
#include <stdint.h>

#define COMPUTE_EXPERTS_MAX      1024 /* Most experts of a layer. */
#define COMPUTE_EXPERTS_USED_MAX 64   /* Most experts of a row. */

struct compute;

/* How a row chooses its experts, and the weights of the chosen experts. The row's product with the
 * router's matrix has one element for each expert. An expert's score is the sigmoid of its element
 * if `sigmoid` is true, otherwise the element itself. The row chooses the experts with the greatest
 * scores. If two experts have equal scores, the row chooses the expert with the lower number. */
struct compute_routing {
    uint32_t experts; /* Experts of the layer, 1 to COMPUTE_EXPERTS_MAX. */
    uint32_t used;    /* Experts of a row, 1 to COMPUTE_EXPERTS_USED_MAX; at most `experts`. */
    /* True: an expert's weight is the sigmoid of its element. False: the weights are the softmax of
     * all elements. */
    bool sigmoid;
    /* The weights of a row's chosen experts are divided by their sum (plus 1e-20 if `sigmoid`). */
    bool normalise;
    float scale; /* Factor of all weights. */
    /* The experts form `groups` groups of equal size; 0 or 1 = no groups. A row chooses only among
     * the experts of the groups_used groups with the greatest scores. The score of a group is the
     * sum of the group_best (1 or 2) greatest scores of its experts. */
    uint32_t groups, groups_used, group_best;
    /* [experts] in device memory: added to the scores by which a row chooses groups and experts.
     * The weights are computed without choice_bias. NULL = none. */
    const float *choice_bias;
};

/* What an expert computes from the products of gate and up, before the product with down. If
 * `limit` is 0: activation(gate) * up. If `limit` is above 0: g * sigmoid(alpha * g) * (u + 1),
 * where g is min(gate, limit) and u is `up` limited to ±limit. A `limit` above 0 requires alpha > 0
 * and COMPUTE_SILU. */
struct compute_gate {
    enum compute_activation activation;
    float limit, alpha;
};

/* The experts of one layer that this process has. Expert first + i has the matrices gate[i] and
 * up[i] of [ffn × hidden], and down[i] of [hidden × ffn]. `open` copies the arrays of pointers; the
 * matrices, the biases and routing.choice_bias must stay valid until `close`. */
struct compute_experts_options {
    struct compute_routing routing;
    struct compute_gate gate_kind;
    uint32_t first, count; /* Experts [first, first + count) of the layer. */
    uint32_t hidden;       /* Columns of gate and up. */
    uint32_t ffn;          /* Rows of gate and up. */
    const struct compute_matrix *const *gate, *const *up, *const *down;
    /* In device memory: gate_bias and up_bias are [count × ffn], down_bias is [count × hidden];
     * NULL = none. */
    const float *gate_bias, *up_bias, *down_bias;
};

/* Sizes of a workspace. Layers of equal sizes can share a workspace, one layer at a time. */
struct compute_experts_workspace_options {
    uint32_t rows_max;      /* Most rows of a call of `run`. */
    uint32_t experts, used; /* As in struct compute_routing. */
    uint32_t hidden, ffn;   /* As in struct compute_experts_options. */
    /* needs_gate_up: the OR of compute_ops.matrix_needs of all gate and up matrices. needs_down:
     * the OR of compute_ops.matrix_needs of all down matrices. The caller may add
     * COMPUTE_NEEDS_REFINED to each of the two fields. */
    unsigned needs_gate_up, needs_down;
};

struct compute_experts;
struct compute_experts_workspace; /* Memory for the intermediate results of `run`. */

struct compute_experts_ops {
    /* Opens the experts of one layer. Returns ST_NO_MEMORY on failure. A GPU also returns ST_IO if
     * it has failed, and ST_UNSUPPORTED unless all gate and up matrices have one type, and all down
     * matrices have one type. */
    enum status (*open)(struct compute *c, const struct compute_experts_options *options,
                        struct compute_experts **out);
    void (*close)(struct compute *c, struct compute_experts *e); /* NULL is fine. */
    /* Returns ST_NO_MEMORY on failure; a GPU also returns ST_IO if it has failed. */
    enum status (*workspace_open)(struct compute *c,
                                  const struct compute_experts_workspace_options *options,
                                  struct compute_experts_workspace **out);
    /* NULL is fine. */
    void (*workspace_close)(struct compute *c, struct compute_experts_workspace *workspace);
    /* For each row r of `a`, sums the results of the row's chosen experts, each multiplied by the
     * expert's weight for the row. Chosen experts that `e` does not have are left out: other ranks
     * have these experts. Writes the sum to y[r] or, if `add` is true, adds the sum to y[r].
     * `router_product` [row_count × routing.experts] is the product of these rows and the router's
     * matrix; y is [row_count × hidden]. */
    void (*run)(struct compute *c, const struct compute_experts *e,
                struct compute_experts_workspace *workspace, const float *router_product,
                const struct compute_activations *a, uint32_t row_count, bool add, float *y);
    /* Multiplies row r of x [row_count × cols] by sigmoid(gates[r]). */
    void (*row_gate)(struct compute *c, const float *gates, uint32_t row_count, uint32_t cols,
                     float *x);
};

#endif
