/* weights_fixture: random weights of any type for the tests of kernels: as a file has them, as
 * float numbers, and packed on the device. The test's main thread makes them; a matrix owns its
 * memory. It compares nothing. */
#ifndef TESTS_GPU_WEIGHTS_FIXTURE_H
#define TESTS_GPU_WEIGHTS_FIXTURE_H

#include "compute/cuda/kernels.cuh"
#include "compute/half.h"
#include "tests/compute/blocks.h"
#include "tests/gpu/harness.h"

#include <cstring>
#include <memory>

namespace gpu
{
/* Returns `count` weights as a file has them: random bits with scales of a usual size. */
inline std::vector<uint8_t> file_weights(random &random, enum compute_type type, size_t count)
{
    const size_t bytes = compute_type_block_bytes(type);
    const size_t blocks = count / compute_type_block_elements(type);
    std::vector<uint8_t> out(blocks * bytes);
    for (size_t i = 0; i < blocks; i++) {
        uint8_t *block = out.data() + i * bytes;
        for (size_t k = 0; k < bytes; k++)
            block[k] = (uint8_t)random.bits();
        const float value = random.normal();
        const uint16_t half = half_to_f16(random.normal() * 0.02f);
        const uint16_t min = half_to_f16(random.normal() * 0.02f), bf16 = half_to_bf16(value);
        if (type == COMPUTE_F32)
            memcpy(block, &value, 4);
        else if (type == COMPUTE_BF16)
            memcpy(block, &bf16, 2);
        else if (type == COMPUTE_F8_E4M3)
            *block = half_to_e4m3(value * 60);
        else if (type == COMPUTE_F16)
            memcpy(block, &half, 2);
        else
            blocks_put(type, block, half, min);
    }
    return out;
}

/* A random matrix in all three forms. */
struct matrix {
    matrix(random &random, enum compute_type type, uint32_t rows, uint32_t cols)
        : type(type), numbers((size_t)rows * cols)
    {
        const std::vector<uint8_t> file = file_weights(random, type, numbers.size());
        const struct cuda_weights_layout layout = cuda_weights_layout(type, cols);
        const struct compute_source source = scaled(random, type, rows, cols, file.data());
        for (uint32_t r = 0; r < rows; r++)
            compute_source_row(&source, r, numbers.data() + (size_t)r * cols);
        /* Bytes that the packing leaves out would show as garbage. */
        std::vector<uint8_t> packed(rows * layout.row_bytes, 0xa5);
        std::vector<uint8_t> packed_scales(rows * layout.scale_row_bytes, 0xa5);
        cuda_weights_pack(type, rows, cols, file.data(), file.size() / rows, packed.data(),
                          packed_scales.data());
        quants = std::make_unique<buffer<uint8_t>>(packed);
        if (layout.scale_row_bytes != 0)
            scales = std::make_unique<buffer<uint8_t>>(packed_scales);
        weights = {cuda_weights_kept(type),
                   rows,
                   cols,
                   quants->data,
                   scales != nullptr ? scales->data : nullptr,
                   layout.row_bytes,
                   layout.scale_row_bytes};
        cuda_weights_codes(type, &weights);
        if (type != COMPUTE_F8_E4M3)
            return;
        cuda_weights_f8(&source, &weights, nullptr);
        std::vector<uint8_t> table(cuda_weights_f8_bytes(&weights));
        cuda_weights_f8(&source, &weights, reinterpret_cast<float *>(table.data()));
        scales = std::make_unique<buffer<uint8_t>>(table);
        weights.scales = scales->data;
    }

    /* Returns the source of the weights. F8_E4M3 gets one of four random forms of scales: none, one
     * per row, or one per 128 × 128 block, with the first row at a block's start or inside a block.
     */
    struct compute_source scaled(random &random, enum compute_type type, uint32_t rows,
                                 uint32_t cols, const uint8_t *data)
    {
        struct compute_source source = {};
        source.type = type;
        source.rows = rows;
        source.cols = cols;
        source.data = data;
        const uint32_t form = random.below(4);
        if (type != COMPUTE_F8_E4M3 || form == 0)
            return source;
        const uint32_t right = form == 1 ? 1 : (cols + 127) / 128;
        const uint32_t first = form == 3 ? random.below(128) : 0;
        values.resize(form == 1 ? rows : (size_t)right * ((first + rows + 127) / 128));
        for (float &value : values)
            value = random.normal() * 0.02f;
        source.scales = {
            values.data(), form == 1 ? 1 : 128u, form == 1 ? UINT32_MAX : 128u, right, first, 0};
        return source;
    }

    enum compute_type type;     /* In the file. */
    std::vector<float> numbers; /* [rows × cols]: the weights as compute_source_row returns them. */
    std::vector<float> values;  /* Scales of F8_E4M3. */
    struct cuda_weights weights;
    std::unique_ptr<buffer<uint8_t>> quants, scales;
};

inline std::vector<float> normals(random &random, size_t count)
{
    std::vector<float> out(count);
    for (float &value : out)
        value = random.normal();
    return out;
}

/* Rounds to bf16: to nearest, ties to even. */
inline std::vector<__nv_bfloat16> rounded(const std::vector<float> &values)
{
    std::vector<__nv_bfloat16> out(values.size());
    for (size_t i = 0; i < values.size(); i++)
        out[i] = __float2bfloat16_rn(values[i]);
    return out;
}

inline std::vector<float> floats(const std::vector<__nv_bfloat16> &values)
{
    std::vector<float> out(values.size());
    for (size_t i = 0; i < values.size(); i++)
        out[i] = __bfloat162float(values[i]);
    return out;
}
} // namespace gpu

#endif
