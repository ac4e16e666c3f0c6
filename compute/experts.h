/* experts: an optional ability of a backend: layers whose feed-forward is a mixture of experts.
 * Each row of a batch chooses a few of a layer's experts by its scores (the product of the row and
 * the router's matrix). The results of these experts are multiplied by the row's weights and added.
 * model/forward/ makes every call: it opens the experts while it loads a model, and calls `run` and
 * `row_gate` in a forward pass (compute.h says on which threads). The matrices belong to the
 * caller, which also computes the router's product and, as an ordinary feed-forward, the shared
 * experts.
 *
 * On CPUs and GPUs a row's result does not depend on the other rows: the results of its experts are
 * added in the order of the experts' numbers. No expert is read that no row has chosen. */
#ifndef COMPUTE_EXPERTS_H
#define COMPUTE_EXPERTS_H

#include "common/status.h"
#include "compute/objects.h"

#include <stdbool.h>
#include <stdint.h>

#define COMPUTE_EXPERTS_MAX      1024 /* Experts of a layer. */
#define COMPUTE_EXPERTS_USED_MAX 64   /* Experts of a row. */

struct compute;

/* How a row chooses its experts, and their weights. The score of an expert is its element of the
 * router's product, or the sigmoid of it. The experts with the greatest scores are chosen; of equal
 * scores, the one with the lower number. */
struct compute_routing {
    uint32_t experts; /* Experts of the layer, 1 to COMPUTE_EXPERTS_MAX. */
    uint32_t used;    /* Experts of a row, 1 to COMPUTE_EXPERTS_USED_MAX. */
    /* True: weights are the sigmoids of the router's product. False: its softmax over all
     * experts. */
    bool sigmoid;
    bool normalise; /* The weights of a row's experts are divided by their sum. */
    float scale;    /* Factor of all weights. */
    /* Only the experts of the groups_used best of `groups` equal groups may be chosen; groups 0 or
     * 1 = no groups. The score of a group is the sum of its group_best greatest scores. */
    uint32_t groups, groups_used, group_best;
    /* [experts] in device memory: added to the scores for the choice of experts, but not to the
     * weights; NULL = none. */
    const float *choice_bias;
};

/* What is computed between the products with gate and up and the product with down: activation(gate)
 * * up, or, with `limit` L above 0, gate' * sigmoid(alpha * gate') * (up' + 1) with gate' =
 * min(gate, L) and up' = up limited to ±L. */
struct compute_gate {
    enum compute_activation activation;
    float limit, alpha;
};

/* The experts of one layer that this process has: [first, first + count) of routing.experts. Expert
 * first + i has the matrices gate[i] and up[i] of [ffn × hidden], and down[i] of [hidden × ffn].
 * The arrays are read during `open` only; matrices and biases are used until `close`. */
struct compute_experts_options {
    struct compute_routing routing;
    struct compute_gate gate_kind;
    uint32_t first, count; /* Experts [first, first + count) of the layer. */
    uint32_t hidden;       /* Columns of gate and up. */
    uint32_t ffn;          /* Rows of gate and up. */
    const struct compute_matrix *const *gate, *const *up, *const *down;
    /* In device memory: [count × ffn], [count × ffn], [count × hidden]; NULL = none. */
    const float *gate_bias, *up_bias, *down_bias;
};

/* Sizes of a workspace, which the experts of all layers with these sizes can use. */
struct compute_experts_workspace_options {
    uint32_t rows_max;      /* Most rows of a call of `run`. */
    uint32_t experts, used; /* As in struct compute_routing. */
    uint32_t hidden, ffn;   /* As in struct compute_experts_options. */
    /* enum compute_needs of all gate and up matrices, and of all down matrices. */
    unsigned needs_gate_up, needs_down;
};

struct compute_experts;
struct compute_experts_workspace; /* A workspace for `run`. */

struct compute_experts_ops {
    /* Opens the experts of one layer. */
    enum status (*open)(struct compute *c, const struct compute_experts_options *options,
                        struct compute_experts **out);
    void (*close)(struct compute *c, struct compute_experts *e); /* NULL is fine. */
    enum status (*workspace_open)(struct compute *c,
                                  const struct compute_experts_workspace_options *options,
                                  struct compute_experts_workspace **out);
    /* NULL is fine. */
    void (*workspace_close)(struct compute *c, struct compute_experts_workspace *workspace);
    /* For each row r of `a`, takes the chosen experts that `e` has, and computes the weighted sum
     * of their results. Writes the sum to y[r] or, with `add`, adds it to y[r]. `product`
     * [row_count × routing.experts] is the product of these rows and the router's matrix; y is
     * [row_count × hidden]. */
    void (*run)(struct compute *c, const struct compute_experts *e,
                struct compute_experts_workspace *workspace, const float *product,
                const struct compute_activations *a, uint32_t row_count, bool add, float *y);
    /* Multiplies row r of x, which has `cols` columns, with sigmoid(gates[r]). */
    void (*row_gate)(struct compute *c, const float *gates, uint32_t row_count, uint32_t cols,
                     float *x);
};

#endif
