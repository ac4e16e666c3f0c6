/* graph: copies a batch's arrays to the device, and records decode steps as CUDA graphs.
 *
 * A batch becomes arrays of numbers. They are written to pinned memory at fixed positions and
 * copied to the device at once (the block tables are last, and only their used part is copied).
 * There are three sets of arrays: for decode steps, for steps with prompts, and for other arrays
 * that an operation names (the rows of a prompt's tail), which are copied when they are named. Each
 * set has two pinned buffers, so that the next batch can be written while the last one is still
 * being copied.
 *
 * A step with one row per sequence, and without marks between its operations, is the same few
 * hundred launches as the step before, for any numbers. The second time that a shape occurs it is
 * recorded as a CUDA graph, and from the third time on it is replayed. The shape is the number of
 * rows and logits, the memory that is used, and the longest context rounded up to a power of two:
 * kernels take lengths from the arrays, and the shape only decides how many blocks they are
 * launched with. Whether any sequence has a low-rank adapter belongs to the shape too; which
 * sequence has which adapter does not.
 *
 * The number of rows is rounded up too, so that batches which requests join and leave can use the
 * same recordings: 1, 2, 4, 8, 16, then eight sizes per doubling for products by cuBLAS (24, 32, …
 * 64, 80, … 512: 23 in all). The additional rows are padding: sequences without rows, which
 * attention and the writing of K and V skip. Up to 16 rows padding costs nothing, since products
 * read the same weights; beyond that it costs at most a seventh of the arithmetic, of which steps
 * with so few rows use only about 10 %.
 *
 * The first shapes are recorded before the first request, for as long as loading the weights took
 * (RECORDING_NS_MAX at most). Estimate: a step of Llama 3 8B on an H200 takes 4 to 10 ms, and
 * recording its 330 launches about as long again: 44 shapes (up to 64 rows, up to 4096 tokens) take
 * 0.7 s. */
#include "compute/cuda/backend.cuh"

#include <cstdlib>
#include <cstring>

/* Number of recordings. A token machine's steps can have any number of rows. A shape that was
 * dropped costs two steps without a graph, and some milliseconds for recording. */
#define GRAPHS        320
#define BUCKET_TOKENS 512u  /* The least context size of a recording. */
#define STEP_BLOCKS   65536 /* Room for this many block ids of a step from the beginning. */
/* Limits of what is recorded before requests need it. */
#define AHEAD_ROWS       64
#define AHEAD_TOKENS     4096
#define RECORDING_NS_MAX 3000000000ull

enum { SET_TOKENS, SET_PROMPTS, SET_OTHER, SETS };

/* Arrays of rows_max numbers each, in this order; block ids follow them. */
enum {
    IDS,
    LOGITS,
    ROW_SEQUENCE,
    ROW_POSITION,
    FIRST_ROW,
    ROW_COUNT,
    FIRST_POSITION,
    TABLE,
    ADAPTED_ROWS,
    ADAPTERS,
    ARRAYS
};

struct array_set {
    uint32_t rows_max;
    uint32_t blocks_max;
    uint32_t *device;
    uint32_t *host[2];
    cudaEvent_t free[2]; /* The copy from host[i] is done. */
    uint32_t turn;
    /* The sequences whose arrays are in this set; NULL = none that are valid. */
    const struct compute_sequence *source;
    uint32_t block_tokens; /* For which the block tables are valid; 0 = there are none. */
    struct cuda_sequences sequences;
};

struct graph_key {
    const void *owner, *residual, *kv_base;
    uint32_t rows, logits_count, bucket_tokens, block_tokens;
    uint32_t all_rows;
    uint32_t adapted; /* 1 = sequences have low-rank adapters. */
};

struct graph {
    struct graph_key key;
    bool used;
    uint64_t last_use;
    cudaGraphExec_t recorded; /* NULL = the shape has occurred once and is not recorded yet. */
};

struct cuda_steps {
    struct array_set sets[SETS];
    struct compute_step step;  /* The current step; owner NULL = no step has begun. */
    struct array_set *current; /* The current step's set. */
    struct graph *recording;
    uint64_t uses;
    struct graph graphs[GRAPHS];
};

/* ---- arrays ---- */

static void array_set_done(struct compute *c, struct array_set *p)
{
    cuda_give(c, p->device);
    for (int i = 0; i < 2; i++) {
        if (p->host[i] != NULL)
            (void)cudaFreeHost(p->host[i]);
        if (p->free[i] != NULL)
            (void)cudaEventDestroy(p->free[i]);
    }
    *p = {};
}

static uint32_t at_least(uint32_t have, uint32_t want)
{
    uint32_t size = have > 0 ? have : 512;
    while (size < want)
        size *= 2;
    return size;
}

/* Makes room for `rows` rows and `blocks` block ids. Recordings contain the addresses of the
 * arrays: they are dropped if the arrays move. */
static bool array_set_grow(struct compute *c, struct array_set *p, uint32_t rows, uint32_t blocks)
{
    if (p->device != NULL && rows <= p->rows_max && blocks <= p->blocks_max)
        return true;
    if (cuda_step_recording(c)) {
        cuda_fail(c, "a recorded step uses rows that it did not begin with");
        return false;
    }
    rows = at_least(p->rows_max, rows);
    blocks = at_least(p->blocks_max, blocks < 8 * rows ? 8 * rows : blocks);
    cuda_steps_forget(c);
    array_set_done(c, p);
    const size_t bytes = ((size_t)ARRAYS * rows + blocks) * sizeof(uint32_t);
    p->device = (uint32_t *)cuda_take(c, bytes, true);
    bool good = p->device != NULL;
    for (int i = 0; i < 2 && good; i++)
        good =
            cuda_good(c, cudaMallocHost((void **)&p->host[i], bytes), "pinned memory") &&
            cuda_good(c, cudaEventCreateWithFlags(&p->free[i], cudaEventDisableTiming), "an event");
    if (!good) {
        array_set_done(c, p);
        cuda_fail(c, "no memory for a batch of %u rows", rows);
        return false;
    }
    p->rows_max = rows;
    p->blocks_max = blocks;
    return true;
}

static uint32_t *array_of(const struct array_set *p, uint32_t *base, int array)
{
    return base + (size_t)array * p->rows_max;
}

static uint32_t blocks_of(const struct compute_sequence *s, uint32_t block_tokens)
{
    if (block_tokens == 0)
        return 0;
    return (s->first_position + s->row_count + block_tokens - 1) / block_tokens;
}

/* Number of rows that are not padding. */
static uint32_t rows_used(const struct compute_batch *batch)
{
    if (batch->sequence_count == 0)
        return 0;
    const struct compute_sequence *last = &batch->sequences[batch->sequence_count - 1];
    return last->first_row + last->row_count;
}

/* Computes the sizes of a batch in addition to its rows. */
static struct cuda_sequences measure(const struct compute_batch *batch, uint32_t block_tokens,
                                     uint32_t *blocks_out)
{
    struct cuda_sequences all = {};
    uint64_t blocks = 0;
    all.rows = batch->row_count;
    all.sequences = batch->sequence_count + batch->row_count - rows_used(batch);
    all.rows_longest = 1;
    for (uint32_t i = 0; i < batch->sequence_count; i++) {
        const struct compute_sequence *s = &batch->sequences[i];
        const uint32_t tokens = s->first_position + s->row_count;
        blocks += blocks_of(s, block_tokens);
        all.rows_longest = s->row_count > all.rows_longest ? s->row_count : all.rows_longest;
        all.context_tokens_max = tokens > all.context_tokens_max ? tokens : all.context_tokens_max;
        all.adapted += s->adapter != 0 ? s->row_count : 0;
    }
    *blocks_out = blocks < UINT32_MAX / 2 ? (uint32_t)blocks : UINT32_MAX / 2;
    return all;
}

/* Returns the lowest adapter of the batch above `adapter`; 0 = none. */
static uint32_t adapter_after(const struct compute_batch *batch, uint32_t adapter)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < batch->sequence_count; i++) {
        const uint32_t own = batch->sequences[i].adapter;
        if (own > adapter && (next == 0 || own < next))
            next = own;
    }
    return next;
}

/* Writes the list of rows with adapters. */
static void lay_out_adapters(const struct array_set *p, uint32_t *to,
                             const struct compute_batch *batch)
{
    uint32_t *rows = array_of(p, to, ADAPTED_ROWS), *adapters = array_of(p, to, ADAPTERS);
    uint32_t count = 0;
    for (uint32_t a = adapter_after(batch, 0); a != 0; a = adapter_after(batch, a))
        for (uint32_t i = 0; i < batch->sequence_count; i++) {
            const struct compute_sequence *s = &batch->sequences[i];
            for (uint32_t r = 0; s->adapter == a && r < s->row_count; r++, count++) {
                rows[count] = s->first_row + r;
                adapters[count] = a;
            }
        }
    memset(adapters + count, 0, (batch->row_count - count) * sizeof(*adapters));
}

static void lay_out(const struct array_set *p, uint32_t *to, const struct compute_batch *batch,
                    uint32_t block_tokens)
{
    uint32_t *row_sequence = array_of(p, to, ROW_SEQUENCE);
    uint32_t *row_position = array_of(p, to, ROW_POSITION);
    uint32_t *blocks = array_of(p, to, ARRAYS);
    uint32_t used = 0;
    for (uint32_t i = 0; i < batch->sequence_count; i++) {
        const struct compute_sequence *s = &batch->sequences[i];
        const uint32_t count = blocks_of(s, block_tokens);
        array_of(p, to, FIRST_ROW)[i] = s->first_row;
        array_of(p, to, ROW_COUNT)[i] = s->row_count;
        array_of(p, to, FIRST_POSITION)[i] = s->first_position;
        array_of(p, to, TABLE)[i] = used;
        for (uint32_t r = 0; r < s->row_count; r++) {
            row_sequence[s->first_row + r] = i;
            row_position[s->first_row + r] = s->first_position + r;
        }
        memcpy(blocks + used, s->blocks, count * sizeof(*blocks));
        used += count;
    }
    uint32_t i = batch->sequence_count;
    for (uint32_t row = rows_used(batch); row < batch->row_count; row++, i++) {
        array_of(p, to, FIRST_ROW)[i] = row;
        array_of(p, to, ROW_COUNT)[i] = 0;
        array_of(p, to, FIRST_POSITION)[i] = 0;
        array_of(p, to, TABLE)[i] = 0;
        row_sequence[row] = UINT32_MAX;
        row_position[row] = 0;
    }
    lay_out_adapters(p, to, batch);
}

/* Writes ids and rows of logits. Padding rows get the first token of the vocabulary and logits of
 * their own. */
static void lay_out_step(const struct array_set *p, uint32_t *to, const struct compute_step *step)
{
    const uint32_t used = rows_used(&step->batch), rows = step->batch.row_count;
    const uint32_t padding = rows - used;
    if (step->token_ids != NULL) {
        memcpy(array_of(p, to, IDS), step->token_ids, used * sizeof(uint32_t));
        memset(array_of(p, to, IDS) + used, 0, padding * sizeof(uint32_t));
    }
    if (step->logits_count == 0)
        return;
    memcpy(array_of(p, to, LOGITS), step->logits_rows,
           (step->logits_count - padding) * sizeof(uint32_t));
    for (uint32_t row = used; row < rows; row++)
        array_of(p, to, LOGITS)[row] = row;
}

/* Returns the other pinned buffer as soon as it is free; NULL = the device has failed. */
static uint32_t *side_take(struct compute *c, struct array_set *p)
{
    p->turn ^= 1;
    return cuda_good(c, cudaEventSynchronize(p->free[p->turn]), "the batch before")
               ? p->host[p->turn]
               : NULL;
}

static bool side_send(struct compute *c, const struct array_set *p, size_t first, size_t count)
{
    return cuda_good(c,
                     cudaMemcpyAsync(p->device + first, p->host[p->turn] + first,
                                     count * sizeof(uint32_t), cudaMemcpyHostToDevice, c->stream),
                     "sending a batch");
}

static bool side_sent(struct compute *c, const struct array_set *p)
{
    return cuda_good(c, cudaEventRecord(p->free[p->turn], c->stream), "sending a batch");
}

/* Copies a whole batch, with the step's ids and rows of logits if there is a step. */
static bool array_set_fill(struct compute *c, struct array_set *p,
                           const struct compute_batch *batch, uint32_t block_tokens,
                           const struct compute_step *step)
{
    uint32_t blocks;
    struct cuda_sequences s = measure(batch, block_tokens, &blocks);
    if (step != NULL && s.context_tokens_max < step->context_tokens_max)
        s.context_tokens_max = step->context_tokens_max;
    if (!array_set_grow(c, p, batch->row_count, blocks))
        return false;
    uint32_t *to = side_take(c, p);
    if (to == NULL)
        return false;
    lay_out(p, to, batch, block_tokens);
    if (step != NULL)
        lay_out_step(p, to, step);
    s.row_sequence = array_of(p, p->device, ROW_SEQUENCE);
    s.row_position = array_of(p, p->device, ROW_POSITION);
    s.first_row = array_of(p, p->device, FIRST_ROW);
    s.row_count = array_of(p, p->device, ROW_COUNT);
    s.first_position = array_of(p, p->device, FIRST_POSITION);
    s.table_begin = array_of(p, p->device, TABLE);
    s.blocks = array_of(p, p->device, ARRAYS);
    s.adapted_rows = array_of(p, p->device, ADAPTED_ROWS);
    s.adapters = array_of(p, p->device, ADAPTERS);
    p->sequences = s;
    p->source = batch->sequences;
    p->block_tokens = block_tokens;
    return side_send(c, p, 0, (size_t)ARRAYS * p->rows_max + blocks) && side_sent(c, p);
}

/* ---- steps ---- */

enum status cuda_steps_open(struct compute *c)
{
    c->steps = (struct cuda_steps *)calloc(1, sizeof(*c->steps));
    if (c->steps == NULL)
        return ST_NO_MEMORY;
    return array_set_grow(c, &c->steps->sets[SET_TOKENS], CUDA_STEP_ROWS, STEP_BLOCKS)
               ? ST_OK
               : ST_NO_MEMORY;
}

void cuda_steps_forget(struct compute *c)
{
    for (uint32_t i = 0; c->steps != NULL && i < GRAPHS; i++) {
        struct graph *g = &c->steps->graphs[i];
        if (g->recorded != NULL)
            (void)cudaGraphExecDestroy(g->recorded);
        *g = {};
    }
}

void cuda_steps_close(struct compute *c)
{
    if (c->steps == NULL)
        return;
    cuda_steps_forget(c);
    for (int i = 0; i < SETS; i++)
        array_set_done(c, &c->steps->sets[i]);
    free(c->steps);
    c->steps = NULL;
}

bool cuda_step_recording(const struct compute *c)
{
    return c->steps != NULL && c->steps->recording != NULL;
}

static bool recordable(const struct compute_step *step)
{
    const struct compute_batch *batch = &step->batch;
    const bool tail = step->logits_count != 0 && step->logits_count != batch->row_count;
    return !step->is_unrecordable && rows_used(batch) == batch->sequence_count &&
           batch->row_count <= CUDA_STEP_ROWS && !tail;
}

/* Rounds up to the next number of rows that is recorded. */
static uint32_t rows_bucket(uint32_t rows)
{
    uint32_t bucket = 1;
    while (bucket < rows && bucket < CUDA_GEMV_ROWS)
        bucket *= 2;
    for (uint32_t step = 8; bucket < rows; bucket += step)
        step = bucket < 64 ? 8 : bucket < 128 ? 16 : bucket < 256 ? 32 : 64;
    return bucket;
}

uint32_t cuda_step_padded_rows(const struct compute *c, const struct compute_step *step,
                               uint32_t rows_max)
{
    (void)c;
    const uint32_t rows = step->batch.row_count, bucket = rows_bucket(rows);
    return recordable(step) && bucket <= rows_max && bucket <= CUDA_STEP_ROWS ? bucket : rows;
}

bool cuda_step_next_shape(struct compute *c, uint32_t index, uint32_t rows_max, uint32_t tokens_max,
                          uint32_t *rows_out, uint32_t *tokens_out)
{
    const uint64_t now = cuda_now_ns();
    const uint64_t limit =
        c->loading_ns < RECORDING_NS_MAX ? c->loading_ns : (uint64_t)RECORDING_NS_MAX;
    uint32_t buckets[32], count = 0, contexts = 0;
    if (index == 0)
        c->recording_ns = now;
    if (c->failed || now - c->recording_ns > limit)
        return false;
    for (uint32_t rows = 1; rows <= rows_max && rows <= AHEAD_ROWS; rows = rows_bucket(rows + 1))
        buckets[count++] = rows;
    while (contexts == 0 || (BUCKET_TOKENS << (contexts - 1) < tokens_max &&
                             BUCKET_TOKENS << contexts <= AHEAD_TOKENS))
        contexts++;
    if (count == 0 || index > count * contexts)
        return false;
    /* The largest shape is first, because scratch memory that grows later drops recordings. */
    index = index == 0 ? count * contexts - 1 : index - 1;
    *rows_out = buckets[index % count];
    *tokens_out = BUCKET_TOKENS << index / count;
    return true;
}

/* Returns the entry of the shape; otherwise a free entry, or the one that was not used for the
 * longest time. */
static struct graph *graph_find(struct compute *c, const struct graph_key *key)
{
    struct cuda_steps *steps = c->steps;
    struct graph *oldest = &steps->graphs[0];
    for (uint32_t i = 0; i < GRAPHS; i++) {
        struct graph *g = &steps->graphs[i];
        if (g->used && memcmp(&g->key, key, sizeof(*key)) == 0)
            return g;
        if (g->last_use < oldest->last_use)
            oldest = g;
    }
    if (oldest->recorded != NULL)
        (void)cudaGraphExecDestroy(oldest->recorded);
    *oldest = {};
    return oldest;
}

static uint32_t bucket_of(uint32_t tokens)
{
    uint32_t bucket = BUCKET_TOKENS;
    while (bucket < tokens)
        bucket *= 2;
    return bucket;
}

/* True: the step has been queued from a recording. */
static bool graph_use(struct compute *c, const struct compute_step *step)
{
    struct cuda_steps *steps = c->steps;
    struct cuda_sequences *s = &steps->current->sequences;
    struct graph_key key = {};
    s->context_tokens_max = bucket_of(s->context_tokens_max);
    key.owner = step->owner;
    key.residual = step->residual;
    key.kv_base = step->kv_base;
    key.rows = s->rows;
    key.logits_count = step->logits_count;
    key.bucket_tokens = s->context_tokens_max;
    key.block_tokens = step->block_tokens;
    key.all_rows = step->all_rows;
    key.adapted = s->adapted > 0;
    struct graph *g = graph_find(c, &key);
    const bool seen = g->used;
    g->key = key;
    g->used = true;
    g->last_use = ++steps->uses;
    if (g->recorded != NULL) {
        cuda_good(c, cudaGraphLaunch(g->recorded, c->stream), "a recorded step");
        return true;
    }
    /* Not the first time: what a launch prepares once (loading code, growing scratch memory) cannot
     * be recorded. */
    if (seen && cuda_good(c, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal),
                          "recording a step"))
        steps->recording = g;
    return false;
}

bool cuda_step_begin(struct compute *c, const struct compute_step *step)
{
    struct cuda_steps *steps = c->steps;
    if (!cuda_enter(c))
        return false;
    if (c->unsettled != NULL)
        cuda_matrices_settle(c);
    const bool tokens = recordable(step);
    steps->step = *step;
    steps->current = &steps->sets[tokens ? SET_TOKENS : SET_PROMPTS];
    for (int i = 0; i < SETS; i++)
        steps->sets[i].source = NULL; /* The same address may have other contents now. */
    if (!array_set_fill(c, steps->current, &step->batch, step->block_tokens, step))
        return false;
    return tokens && graph_use(c, step);
}

void cuda_step_end(struct compute *c)
{
    struct cuda_steps *steps = c->steps;
    struct graph *g = steps->recording;
    cudaGraph_t graph = NULL;
    steps->step = {};
    steps->recording = NULL;
    for (int i = 0; i < SETS; i++)
        steps->sets[i].source = NULL;
    if (g == NULL)
        return;
    (void)cudaSetDevice(c->device);
    if (cuda_good(c, cudaStreamEndCapture(c->stream, &graph), "recording a step") && !c->failed &&
        cuda_good(c, cudaGraphInstantiate(&g->recorded, graph, 0), "recording a step"))
        cuda_good(c, cudaGraphLaunch(g->recorded, c->stream), "a recorded step");
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
}

/* ---- arrays that operations name ---- */

const struct cuda_sequences *cuda_step_batch(struct compute *c, const struct compute_batch *batch,
                                             uint32_t block_tokens)
{
    struct cuda_steps *steps = c->steps;
    for (int i = 0; i < SETS; i++) {
        struct array_set *p = &steps->sets[i];
        if (p->source == batch->sequences && p->sequences.rows == batch->row_count &&
            (block_tokens == 0 || p->block_tokens == block_tokens))
            return &p->sequences;
    }
    if (block_tokens == 0)
        block_tokens = steps->step.block_tokens; /* 0 = no step has begun. */
    if (steps->recording != NULL) {
        cuda_fail(c, "a recorded step uses rows that it did not begin with");
        return NULL;
    }
    struct array_set *other = &steps->sets[SET_OTHER];
    return array_set_fill(c, other, batch, block_tokens, NULL) ? &other->sequences : NULL;
}

const uint32_t *cuda_step_numbers(struct compute *c, const uint32_t *numbers, uint32_t count)
{
    struct cuda_steps *steps = c->steps;
    const struct compute_step *step = &steps->step;
    if (step->owner != NULL && numbers == step->token_ids)
        return array_of(steps->current, steps->current->device, IDS);
    if (step->owner != NULL && numbers == step->logits_rows)
        return array_of(steps->current, steps->current->device, LOGITS);
    struct array_set *other = &steps->sets[SET_OTHER];
    if (!array_set_grow(c, other, count, 0))
        return NULL;
    if (steps->recording != NULL) {
        cuda_fail(c, "a recorded step uses rows that it did not begin with");
        return NULL;
    }
    uint32_t *to = side_take(c, other);
    if (to == NULL)
        return NULL;
    memcpy(to, numbers, count * sizeof(*numbers));
    return side_send(c, other, 0, count) && side_sent(c, other) ? other->device : NULL;
}
