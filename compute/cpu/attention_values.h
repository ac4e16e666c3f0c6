/* attention_values: p·V of a segment of an integer cache: computes o of the segment for each query,
 * the sum of the values of the segment's tokens, multiplied by their weights. attention_fixed.h,
 * which defines p, V and o, includes this header, calls the functions on the device's threads, and
 * joins the segments. The functions have no state. */
#ifndef COMPUTE_CPU_ATTENTION_VALUES_H
#define COMPUTE_CPU_ATTENTION_VALUES_H

/* Adds p·V of tokens [begin, end) to `out`, for `rows` queries from `query` on and `vectors`
 * vectors of dimensions, from dimension `first_dim` on. Requires that `begin` is a multiple of
 * FIXED_GROUP. With `decode`, also prefetches. */
INLINE void fixed_pv_tile(const struct fixed_job *job, enum compute_kv_dtype dtype, bool decode,
                          uint32_t rows, uint32_t vectors, uint32_t lanes, uint32_t query,
                          uint32_t first_dim, uint32_t begin, uint32_t end, float *out)
{
    const size_t pair = 2 * compute_kv_element_bytes(dtype), vector = VECTOR_LANES * pair;
    const size_t next = job->value_dim * pair;
    const uint8_t *weights[PV_ROWS];
    const struct fixed_unit *unit = job->units + begin / job->unit_tokens;
    ROWS_UNROLL
    for (uint32_t r = 0; r < rows; r++)
        weights[r] = (const uint8_t *)(job->scores + (query + r) * job->stride);
    for (uint32_t t = begin; t < end;) {
        ivec o[PV_ROWS][PV_VECTORS];
        const uint32_t group = t, limit = end - t < FIXED_GROUP ? end : t + FIXED_GROUP;
        ROWS_UNROLL
        for (uint32_t r = 0; r < rows; r++)
            ROWS_UNROLL
        for (uint32_t c = 0; c < vectors; c++)
            o[r][c] = v_int_zero();
        for (; t < limit; unit++) {
            const uint32_t stop = limit - t < job->unit_tokens ? limit : t + job->unit_tokens;
            const uint8_t *values = unit->values + first_dim * pair;
            struct fixed_ahead ahead = {0};
            if (decode)
                ahead = fixed_ahead_at(
                    job, dtype, job->unit_count + (uint32_t)(unit - job->units) + FIXED_AHEAD);
            ahead.vector += first_dim / VECTOR_LANES * ahead.step;
            for (; t < stop; t += 2, values += next) {
                ivec v[PV_VECTORS];
                ROWS_UNROLL
                for (uint32_t c = 0; c < vectors; c++) {
                    v[c] = fixed_load(dtype, values + c * vector, lanes);
                    if (decode)
                        v_prefetch_l2(ahead.vector + c * ahead.step);
                }
                ahead.vector += job->value_dim / VECTOR_LANES * ahead.step;
                ROWS_UNROLL
                for (uint32_t r = 0; r < rows; r++) {
                    int32_t two;
                    memcpy(&two, weights[r] + (size_t)t * 2, sizeof(two));
                    ivec one = v_int_set(two);
                    ROWS_UNROLL
                    for (uint32_t c = 0; c < vectors; c++)
                        o[r][c] = v_dot_pairs(o[r][c], v[c], one);
                }
            }
        }
        ROWS_UNROLL
        for (uint32_t r = 0; r < rows; r++) {
            vec scale =
                v_set(job->w_scale[(size_t)(query + r) * FIXED_GROUPS + group / FIXED_GROUP]);
            ROWS_UNROLL
            for (uint32_t c = 0; c < vectors; c++) {
                float *to = out + (size_t)r * job->value_dim + first_dim + c * VECTOR_LANES;
                if (lanes == VECTOR_LANES)
                    v_store(to, v_fma(v_int_float(o[r][c]), scale, v_load(to)));
                else
                    v_store_part(to, v_fma(v_int_float(o[r][c]), scale, v_load_part(to, lanes)),
                                 lanes);
            }
        }
    }
}

/* Calls fixed_pv_tile with `rows` as a constant, so that the accumulators are kept in registers. */
INLINE void fixed_pv_rows(const struct fixed_job *job, enum compute_kv_dtype dtype, bool decode,
                          uint32_t rows, uint32_t vectors, uint32_t lanes, uint32_t query,
                          uint32_t first_dim, uint32_t begin, uint32_t end, float *out)
{
#define FIXED_PV_CASE(n)                                                                           \
    case n:                                                                                        \
        fixed_pv_tile(job, dtype, decode, n, vectors, lanes, query, first_dim, begin, end, out);   \
        break
    switch (rows) {
#if PV_ROWS == 6
        FIXED_PV_CASE(6);
        FIXED_PV_CASE(5);
        FIXED_PV_CASE(4);
#endif
#if PV_ROWS >= 3
        FIXED_PV_CASE(3);
        FIXED_PV_CASE(2);
#endif
        FIXED_PV_CASE(1);
    }
#undef FIXED_PV_CASE
}

/* Calls fixed_pv_tile for all dimensions of one tile of queries. */
INLINE void fixed_pv_tokens(const struct fixed_job *job, enum compute_kv_dtype dtype, bool decode,
                            uint32_t query, uint32_t rows, uint32_t begin, uint32_t end, float *out)
{
    const uint32_t dim = job->value_dim;
    uint32_t first_dim = 0;
#if PV_VECTORS > 1
    for (; first_dim + PV_VECTORS * VECTOR_LANES <= dim; first_dim += PV_VECTORS * VECTOR_LANES)
        fixed_pv_rows(job, dtype, decode, rows, PV_VECTORS, VECTOR_LANES, query, first_dim, begin,
                      end, out);
#endif
    for (; first_dim + VECTOR_LANES <= dim; first_dim += VECTOR_LANES)
        fixed_pv_rows(job, dtype, decode, rows, 1, VECTOR_LANES, query, first_dim, begin, end, out);
    if (first_dim < dim)
        fixed_pv_rows(job, dtype, decode, rows, 1, dim - first_dim, query, first_dim, begin, end,
                      out);
}

/* A segment has `tokens` tokens; its first token is at position `begin`. Returns how many of the
 * segment's first tokens lie at or before the position of the query's row. */
INLINE uint32_t fixed_view_end(uint32_t first_position, uint32_t heads, uint32_t query,
                               uint32_t begin, uint32_t tokens)
{
    uint32_t end = first_position + query / heads + 1, seen = end > begin ? end - begin : 0;
    return seen < tokens ? seen : tokens;
}

/* Returns how many tokens from position `begin` on lie before the window of the query's row. */
INLINE uint32_t fixed_view_begin(uint32_t first_position, uint32_t heads, uint32_t window,
                                 uint32_t query, uint32_t begin)
{
    const uint32_t end = first_position + query / heads + 1;
    return window != 0 && end > window && end - window > begin ? end - window - begin : 0;
}

/* Returns which tokens a query of the band sees in the segment that begins at position `begin`. */
INLINE struct fixed_view fixed_view_of(const struct fixed_job *band, uint32_t first_position,
                                       uint32_t heads, uint32_t query, uint32_t begin)
{
    query += band->first_query;
    const uint32_t end = fixed_view_end(first_position, heads, query, begin, band->tokens);
    const uint32_t hidden = fixed_view_begin(first_position, heads, band->window, query, begin);
    return hidden < end ? (struct fixed_view){hidden, end} : (struct fixed_view){0, 0};
}

/* Computes o of all queries of a band for the segment that begins at position `position`.
 * Overwrites `out`. */
INLINE void fixed_pv(const struct fixed_job *job, enum compute_kv_dtype dtype, bool decode,
                     uint32_t first_position, uint32_t heads, uint32_t position, float *out)
{
    memset(out, 0, (size_t)job->queries * job->value_dim * sizeof(float));
    for (uint32_t begin = 0; begin < job->tokens; begin += FIXED_V_CHUNK)
        for (uint32_t i = 0; i < job->queries; i += PV_ROWS) {
            uint32_t rows = job->queries - i < PV_ROWS ? job->queries - i : PV_ROWS;
            /* The tile's last row sees the latest token. */
            uint32_t seen = fixed_view_end(first_position, heads, job->first_query + i + rows - 1,
                                           position, job->tokens);
            uint32_t end = seen < begin + FIXED_V_CHUNK ? seen : begin + FIXED_V_CHUNK;
            /* The tile's first row sees the earliest token. */
            uint32_t hidden = fixed_view_begin(first_position, heads, job->window,
                                               job->first_query + i, position);
            if (seen > begin && hidden < begin + FIXED_V_CHUNK)
                fixed_pv_tokens(job, dtype, decode, i, rows, begin, end,
                                out + (size_t)i * job->value_dim);
        }
}

#endif
