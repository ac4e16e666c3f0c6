/* Goal: attention over the paged cache is right for every layout of the cache, head_dim, group of
 * heads, length and mixture of sequences; and the bits of a row's result do not depend on the rest
 * of the batch, on the places of its blocks, or on how a prompt is cut into chunks.
 *
 * Method: sequences of random queries, keys and values in a cache of shuffled blocks, with NaN in
 * all unwritten bytes. Results are compared with softmax(scale * q·K)·V in double over the cache's
 * contents, then bit for bit with other batches of the same rows. Tolerances are absolute, for V of
 * variance 1: with f16 operands a score of 10 has an error of about 0.003, and so has a weight;
 * with an fp32 cache only the fp32 sums are rounded. */
#include "compute/cuda/attention.cuh"
#include "tests/gpu/paged.h"

#include <string>

namespace
{
using namespace paged;

/* The rows of a sequence in one batch. Earlier tokens are in the cache. */
struct part {
    uint32_t first, count;
};

const char *const dtype_names[] = {"f16", "f32", "i16", "i8"};

float scale_of(const shape &s)
{
    return 1.0f / std::sqrt((float)s.dim);
}

/* Sinks of heads: one far above, one far below the scores, and some between. */
float sink_of(uint32_t head)
{
    return head % 5 == 1 ? 9.0f : head % 5 == 3 ? -60.0f : (float)(head % 5) - 2.0f;
}

struct compute_attention how_of(const shape &s, const float *sinks)
{
    return {scale_of(s), s.window, s.cap, sinks};
}

/* The first token that a row sees. */
uint32_t first_of(const shape &s, uint32_t token)
{
    return s.window != 0 && token >= s.window ? token + 1 - s.window : 0;
}

/* Returns [row of the part][head][dim], computed in double. k and v are the cache's contents. */
std::vector<float> reference(const shape &s, const sequence &q, part p)
{
    const uint32_t group = s.heads / s.kv_heads;
    std::vector<float> out((size_t)p.count * s.heads * s.dim);
    std::vector<double> weights(p.first + p.count), o(s.dim);
    for (uint32_t i = 0; i < p.count * s.heads; i++) {
        const uint32_t token = p.first + i / s.heads, head = i % s.heads;
        const float *query = &q.q[((size_t)token * s.heads + head) * s.dim];
        double most = s.sinks ? sink_of(head) : -INFINITY, sum = 0;
        for (uint32_t t = first_of(s, token); t <= token; t++) {
            const float *key = &q.k[((size_t)t * s.kv_heads + head / group) * s.dim];
            double dot = 0;
            for (uint32_t d = 0; d < s.dim; d++)
                dot += (double)query[d] * key[d];
            weights[t] = dot * scale_of(s);
            if (s.cap != 0)
                weights[t] = s.cap * std::tanh(weights[t] / s.cap);
            most = std::fmax(most, weights[t]);
        }
        std::fill(o.begin(), o.end(), 0);
        if (s.sinks)
            sum = std::exp(sink_of(head) - most);
        for (uint32_t t = first_of(s, token); t <= token; t++) {
            const float *value = &q.v[((size_t)t * s.kv_heads + head / group) * s.dim];
            const double weight = std::exp(weights[t] - most);
            sum += weight;
            for (uint32_t d = 0; d < s.dim; d++)
                o[d] += weight * value[d];
        }
        for (uint32_t d = 0; d < s.dim; d++)
            out[(size_t)i * s.dim + d] = (float)(o[d] / sum);
    }
    return out;
}

/* ---- a launch ---- */

struct batch_result {
    /* For each sequence; empty = the sequence has no rows. */
    std::vector<std::vector<float>> parts;
};

/* Sequences with a count of 0 have no row in the batch. `padding` rows of no sequence are added. */
batch_result run(const shape &s, const std::vector<sequence> &sequences,
                 const std::vector<part> &parts, const gpu::buffer<uint8_t> &memory,
                 const struct compute_kv &layout, gpu::buffer<uint8_t> &scratch, uint32_t padding)
{
    std::vector<uint32_t> row_sequence, row_position, first_row, row_count, first_position;
    std::vector<uint32_t> table_begin, blocks;
    std::vector<float> queries;
    struct cuda_sequences on_device = {};
    const size_t width = (size_t)s.heads * s.dim;
    for (uint32_t i = 0; i < sequences.size(); i++) {
        const part p = parts[i];
        first_row.push_back((uint32_t)row_sequence.size());
        row_count.push_back(p.count);
        first_position.push_back(p.first);
        table_begin.push_back((uint32_t)blocks.size());
        const uint32_t used = (p.first + p.count + s.block_tokens - 1) / s.block_tokens;
        blocks.insert(blocks.end(), sequences[i].blocks.begin(),
                      sequences[i].blocks.begin() + used);
        /* The ids of blocks that no row sees any more are beyond the cache. */
        for (uint32_t k = 0; k < first_of(s, p.first) / s.block_tokens; k++)
            blocks[table_begin.back() + k] = UINT32_MAX;
        for (uint32_t r = 0; r < p.count; r++) {
            row_sequence.push_back(i);
            row_position.push_back(p.first + r);
        }
        queries.insert(queries.end(), sequences[i].q.begin() + p.first * width,
                       sequences[i].q.begin() + (p.first + p.count) * width);
        on_device.rows_longest = std::max(on_device.rows_longest, p.count);
        on_device.context_tokens_max =
            std::max(on_device.context_tokens_max, p.first + p.count + padding);
    }
    for (uint32_t i = 0; i < padding; i++) {
        row_sequence.push_back(UINT32_MAX);
        row_position.push_back(UINT32_MAX);
    }
    queries.resize(row_sequence.size() * width, NAN);
    blocks.push_back(UINT32_MAX);
    gpu::buffer<uint32_t> a(row_sequence), b(row_position), c(first_row), d(row_count);
    gpu::buffer<uint32_t> e(first_position), f(table_begin), g(blocks);
    gpu::buffer<float> q(queries), out_f32(queries);
    std::vector<float> of_heads;
    for (uint32_t h = 0; h < s.heads; h++)
        of_heads.push_back(sink_of(h));
    gpu::buffer<float> sinks(of_heads);
    const struct compute_attention parameters = how_of(s, s.sinks ? (const float *)sinks : NULL);
    gpu::buffer<__nv_bfloat16> out(queries.size());
    on_device.row_sequence = a, on_device.row_position = b, on_device.first_row = c;
    on_device.row_count = d, on_device.first_position = e, on_device.table_begin = f;
    on_device.blocks = g;
    on_device.rows = (uint32_t)row_sequence.size();
    on_device.sequences = (uint32_t)sequences.size();
    struct compute_kv kv = layout;
    kv.base = memory.data;
    if (cuda_attention_scratch(&on_device, &kv, s.heads) > scratch.size)
        gpu::fail("the scratch of the test is too small");
    cuda_attention(NULL, &on_device, &kv, s.heads, &parameters, q, scratch, out, out_f32);
    GPU_CHECK(cudaGetLastError());
    const std::vector<float> got = out_f32.get();
    const std::vector<__nv_bfloat16> rounded = out.get();
    const size_t real = (row_sequence.size() - padding) * width;
    for (size_t i = 0; i < real; i++) {
        if (__bfloat162float(rounded[i]) != half_from_bf16(half_to_bf16(got[i]))) {
            gpu::fail("the bf16 result %zu is %g, not %g", i, (double)__bfloat162float(rounded[i]),
                      (double)got[i]);
            break;
        }
    }
    for (size_t i = real; i < got.size(); i++)
        if (!std::isnan(got[i])) {
            gpu::fail("a row of no sequence was written");
            break;
        }
    batch_result result;
    for (uint32_t i = 0; i < sequences.size(); i++)
        result.parts.emplace_back(got.begin() + first_row[i] * width,
                                  got.begin() + (first_row[i] + parts[i].count) * width);
    return result;
}

/* ---- checks ---- */

constexpr size_t SCRATCH_BYTES = 96 << 20;

struct gpu::tolerance tolerance_of(enum compute_kv_dtype dtype)
{
    if (dtype == COMPUTE_KV_F32)
        return {2e-5, 0};
    return {6e-3, 0};
}

std::string name_of(const shape &s, const char *what)
{
    char name[200];
    snprintf(name, sizeof(name),
             "%u heads over %u, dim %u, blocks of %u, %s, window %u, cap %g%s: %s", s.heads,
             s.kv_heads, s.dim, s.block_tokens, dtype_names[s.dtype], s.window, (double)s.cap,
             s.sinks ? ", sinks" : "", what);
    return name;
}

void check(gpu::random &random, const shape &s, std::vector<part> parts, const char *what,
           gpu::buffer<uint8_t> &scratch)
{
    const std::string name = name_of(s, what);
    std::vector<sequence> sequences;
    for (part p : parts)
        sequences.push_back(draw_sequence(random, s, p.first + p.count));
    cache stored(s, shuffle_blocks(random, s, sequences));
    for (sequence &q : sequences)
        for (uint32_t i = 0; i < q.tokens * s.kv_heads; i++)
            stored.store(q, i / s.kv_heads, i % s.kv_heads, &q.k[(size_t)i * s.dim],
                         &q.v[(size_t)i * s.dim]);
    gpu::buffer<uint8_t> memory(stored.bytes);
    const batch_result all = run(s, sequences, parts, memory, stored.kv, scratch, 3);
    for (uint32_t i = 0; i < parts.size(); i++)
        gpu::expect_near((name + ", sequence " + std::to_string(i)).c_str(), all.parts[i],
                         reference(s, sequences[i], parts[i]), tolerance_of(s.dtype));

    /* Each sequence alone, in other blocks, and in two chunks if both chunks run in the same kernel
     * as the whole. */
    for (uint32_t i = 0; i < parts.size() && parts.size() > 1; i++) {
        if (parts[i].count == 0)
            continue;
        std::vector<sequence> one = {sequences[i]};
        cache moved(s, shuffle_blocks(random, s, one));
        for (size_t k = 0; k < one[0].blocks.size(); k++)
            moved.copy(one[0].blocks[k], stored, sequences[i].blocks[k]);
        gpu::buffer<uint8_t> there(moved.bytes);
        std::vector<float> got;
        const uint32_t count = parts[i].count;
        const bool prompt = count > ATTENTION_TOKEN_ROWS;
        const uint32_t cut =
            prompt && count > 2 * ATTENTION_TOKEN_ROWS + 1
                ? ATTENTION_TOKEN_ROWS + 1 + random.below(count - 2 * ATTENTION_TOKEN_ROWS - 1)
                : count;
        for (uint32_t from = 0; from < count; from = from < cut ? cut : count) {
            const uint32_t rows = (from < cut ? cut : count) - from;
            const batch_result r =
                run(s, one, {{parts[i].first + from, rows}}, there, moved.kv, scratch, 0);
            got.insert(got.end(), r.parts[0].begin(), r.parts[0].end());
        }
        gpu::expect_equal((name + ", alone").c_str(), got.data(), all.parts[i].data(),
                          got.size() * sizeof(float));
    }
}

/* few: one head_dim for each dtype, drawn anew in every run. */
void check_all(gpu::random &random, bool few, gpu::buffer<uint8_t> &scratch)
{
    static const uint32_t dims[] = {64, 80, 96, 128, 256};
    static const uint32_t groups[] = {1, 2, 3, 4, 7, 8, 9, 16};
    for (int dtype = 0; dtype < COMPUTE_KV_DTYPE_COUNT; dtype++) {
        const uint32_t drawn = dims[random.below(5)];
        for (uint32_t dim : dims) {
            if (few && dim != drawn)
                continue;
            const uint32_t kv_heads = 1 + random.below(2), group = groups[random.below(8)];
            shape s = {group * kv_heads, kv_heads, dim, 16, (enum compute_kv_dtype)dtype};
            s.window = random.below(2) * (1 + random.below(100));
            s.cap = (float)random.below(2) * 20;
            s.sinks = random.below(2) != 0;
            const uint32_t n = 1 + random.below(90);
            check(random, s, {{0, n}}, "a prompt", scratch);
            check(random, s, {{random.below(70), 1}}, "a token", scratch);
            check(random, s,
                  {{random.below(40), 1},
                   {random.below(50), 5 + random.below(30)},
                   {0, 0},
                   {0, 6},
                   {300 + random.below(20), 2}},
                  "mixed", scratch);
        }
    }
}

/* The kinds of cases of check_bounds, with small numbers: the emulator takes seconds for each long
 * context. */
void check_few_bounds(gpu::random &random, gpu::buffer<uint8_t> &scratch)
{
    static const uint32_t block_tokens[] = {8, 24, 32, 256};
    const auto dtype = (enum compute_kv_dtype)random.below(COMPUTE_KV_DTYPE_COUNT);
    check(random, {4, 2, 64, block_tokens[random.below(4)], dtype},
          {{0, 40 + random.below(30)}, {80 + random.below(200), 1}, {29, 9}}, "blocks of any size",
          scratch);
    std::vector<part> many;
    for (uint32_t i = 0; i < 40; i++)
        many.push_back({random.below(20), random.below(3) == 0 ? random.below(10) : 1});
    check(random, {2, 1, 64, 16, COMPUTE_KV_F16}, many, "many sequences", scratch);
    check(random, {2, 1, 64, 16, COMPUTE_KV_F16}, {{2048, 1}, {1020, 3}}, "long contexts", scratch);
    check(random, {1, 1, 64, 16, COMPUTE_KV_F16}, {{600, 20}}, "prompts in parts", scratch);
    check(random, {1, 1, 64, 16, COMPUTE_KV_F16, 530}, {{600, 20}}, "a window in parts", scratch);
    check(random, {2, 1, 64, 16, COMPUTE_KV_F16}, {{0, 150}}, "several tiles", scratch);
}

/* Other block sizes, contexts of many chunks, and batches of more sequences than a warp has
 * lanes. */
void check_bounds(gpu::random &random, gpu::buffer<uint8_t> &scratch)
{
    static const uint32_t block_tokens[] = {8, 24, 32, 256};
    for (uint32_t i = 0; i < 4; i++)
        for (int dtype = 0; dtype < COMPUTE_KV_DTYPE_COUNT; dtype++)
            check(random, {4, 2, 64, block_tokens[i], (enum compute_kv_dtype)dtype},
                  {{0, 40 + random.below(30)}, {80 + random.below(200), 1}, {29, 9}},
                  "blocks of any size", scratch);
    const shape small = {2, 1, 64, 16, COMPUTE_KV_F16};
    std::vector<part> many;
    for (uint32_t i = 0; i < 150; i++)
        many.push_back({random.below(60), random.below(3) == 0 ? random.below(20) : 1});
    check(random, small, many, "many sequences", scratch);
    check(random, small, {{2048, 1}, {700, 140}, {1020, 3}}, "long contexts", scratch);
    check(random, {1, 1, 64, 64, COMPUTE_KV_I16}, {{33100, 1}}, "longer chunks", scratch);
    check(random, {4, 1, 64, 16, COMPUTE_KV_F16}, {{1500, 30}, {300, 200}, {1020, 9}},
          "prompts in parts", scratch);
    check(random, {4, 1, 64, 16, COMPUTE_KV_F16, 700, 30, true},
          {{1500, 30}, {300, 200}, {1020, 9}}, "windows in parts", scratch);
    check(random, {3, 1, 128, 16, COMPUTE_KV_I16}, {{1010, 21}, {5, 40}}, "prompts in parts",
          scratch);
    check(random, {2, 2, 256, 16, COMPUTE_KV_I8}, {{560, 17}}, "prompts in parts", scratch);
    check(random, {1, 1, 64, 64, COMPUTE_KV_F16}, {{8300, 10}}, "longer parts", scratch);
    check(random, {4, 1, 64, 16, COMPUTE_KV_F16}, {{0, 300}, {0, 70}}, "several tiles", scratch);
    if (!gpu::large())
        return;
    check(random, {32, 8, 128, 16, COMPUTE_KV_F16}, {{0, 1024}, {0, 333}, {1500, 1}, {2047, 1}},
          "a large model's", scratch);
    check(random, {64, 8, 128, 16, COMPUTE_KV_I16}, {{512, 512}, {0, 900}}, "a larger model's",
          scratch);
}

/* A recorded launch serves later batches of the same shape, because lengths are read on the
 * device. */
void check_graph(gpu::random &random, gpu::buffer<uint8_t> &scratch)
{
    const shape s = {8, 2, 128, 16, COMPUTE_KV_F16};
    const uint32_t rows = 5, longest = 700, width = s.heads * s.dim;
    const uint32_t blocks_each = (longest + s.block_tokens - 1) / s.block_tokens;
    std::vector<sequence> sequences;
    for (uint32_t i = 0; i < rows; i++)
        sequences.push_back(draw_sequence(random, s, longest));
    cache stored(s, shuffle_blocks(random, s, sequences));
    std::vector<uint32_t> table, ids(rows), ones(rows, 1), begins(rows);
    for (uint32_t i = 0; i < rows; i++) {
        ids[i] = i;
        begins[i] = i * blocks_each;
        table.insert(table.end(), sequences[i].blocks.begin(), sequences[i].blocks.end());
        for (uint32_t k = 0; k < longest * s.kv_heads; k++)
            stored.store(sequences[i], k / s.kv_heads, k % s.kv_heads,
                         &sequences[i].k[(size_t)k * s.dim], &sequences[i].v[(size_t)k * s.dim]);
    }
    gpu::buffer<uint8_t> memory(stored.bytes);
    gpu::buffer<uint32_t> row_sequence(ids), row_position(rows), row_count(ones);
    gpu::buffer<uint32_t> table_begin(begins), blocks(table);
    gpu::buffer<float> q(rows * width), out(rows * width);
    const struct cuda_sequences on_device = {
        row_sequence, row_position, row_sequence, row_count, row_position, table_begin,
        blocks,       rows,         rows,         1,         longest};
    struct compute_kv kv = stored.kv;
    kv.base = memory.data;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    GPU_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const struct compute_attention parameters = how_of(s, NULL);
    cuda_attention(stream, &on_device, &kv, s.heads, &parameters, q, scratch, NULL, out);
    GPU_CHECK(cudaStreamEndCapture(stream, &graph));
    GPU_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        std::vector<uint32_t> positions(rows);
        std::vector<float> queries, want;
        for (uint32_t i = 0; i < rows; i++) {
            positions[i] = round == 0 ? i : random.below(longest);
            const sequence &from = sequences[i];
            queries.insert(queries.end(), from.q.begin() + (size_t)positions[i] * width,
                           from.q.begin() + ((size_t)positions[i] + 1) * width);
            const std::vector<float> one = reference(s, from, {positions[i], 1});
            want.insert(want.end(), one.begin(), one.end());
        }
        row_position.put(positions);
        q.put(queries);
        GPU_CHECK(cudaGraphLaunch(exec, stream));
        gpu::expect_near("a recorded launch", out.get(), want, tolerance_of(s.dtype));
    }
    GPU_CHECK(cudaGraphExecDestroy(exec));
    GPU_CHECK(cudaGraphDestroy(graph));
    GPU_CHECK(cudaStreamDestroy(stream));
}

void check_shape(gpu::random &random, gpu::buffer<uint8_t> &scratch)
{
    printf("tiles of shape %d\n", (int)attention_prompt_shape());
    check(random, {6, 2, 64, 16, COMPUTE_KV_F16}, {{0, 70}, {33, 20}}, "head_dim 64", scratch);
    check(random, {6, 2, 128, 16, COMPUTE_KV_I16}, {{0, 70}, {33, 20}}, "head_dim 128", scratch);
    check(random, {6, 2, 256, 16, COMPUTE_KV_I8}, {{0, 70}, {33, 20}}, "head_dim 256", scratch);
}
} // namespace

/* Argument: few = a few cases of each kind, drawn by the seed; shape = a case of each kind with
 * prompts, for the emulated compute capabilities that have other shapes of tiles. */
int main(int argc, char **argv)
{
    const std::string argument = argc > 1 ? argv[1] : "";
    const bool few = argument == "few";
    gpu::begin();
    gpu::random random(gpu::seed());
    gpu::buffer<uint8_t> scratch(SCRATCH_BYTES);
    GPU_CHECK(cudaMemset(scratch, 0, SCRATCH_BYTES));
    if (argument == "shape") {
        check_shape(random, scratch);
        return gpu::finish();
    }
    check_all(random, few, scratch);
    if (few)
        check_few_bounds(random, scratch);
    else
        check_bounds(random, scratch);
    check_graph(random, scratch);
    return gpu::finish();
}
