/* attention_softmax: the softmax of a segment of an integer cache: turns scores into integer
 * weights. attention_fixed.h, which defines m, z, e, w, p, qs, vs and ws, includes this header and
 * calls the functions on the device's threads. The functions have no state. They read the scales of
 * V in struct fixed_job, but no KV. */
#ifndef COMPUTE_CPU_ATTENTION_SOFTMAX_H
#define COMPUTE_CPU_ATTENTION_SOFTMAX_H

/* Replaces each of `count` vectors x[i] by 2^max(x[i], FIXED_EXPONENT_MIN), with a relative error
 * of at most 2.6e-6. (Weights are then rounded to multiples of 1 / 4095 of the greatest weight.) */
INLINE void fixed_exp2(vec *x, uint32_t count)
{
    static const float factors[] = {0x1.ca1440p-5f, 0x1.ec06dap-3f, 0x1.62e0dcp-1f, 0x1.ffffe8p-1f};
    vec rounded[ROWS_EXP_VECTORS], p[ROWS_EXP_VECTORS];
    ROWS_EACH(i, count) x[i] = v_max(v_set(FIXED_EXPONENT_MIN), x[i]);
    ROWS_EACH(i, count) rounded[i] = v_add(x[i], v_set(0x1.8p23f));
    ROWS_EACH(i, count) x[i] = v_sub(x[i], v_sub(rounded[i], v_set(0x1.8p23f)));
    ROWS_EACH(i, count) p[i] = v_set(0x1.3997d6p-7f);
    ROWS_EACH(k, 4)
    ROWS_EACH(i, count) p[i] = v_fma(p[i], x[i], v_set(factors[k]));
    ROWS_EACH(i, count) x[i] = v_scale_exponent(p[i], rounded[i]);
}

/* Computes w of ROWS_EXP_VECTORS vectors of scores, and adds their e to *sum. slope: c; origin:
 * -(m * c). Requires that the query sees all tokens of the vectors. */
INLINE void fixed_weigh(const float *row, const float *v_scale, vec slope, vec origin, vec *sum,
                        vec *w)
{
    ROWS_EACH(i, ROWS_EXP_VECTORS) w[i] = v_fma(v_load(row + i * VECTOR_LANES), slope, origin);
    fixed_exp2(w, ROWS_EXP_VECTORS);
    ROWS_EACH(i, ROWS_EXP_VECTORS) *sum = v_add(*sum, w[i]);
    ROWS_EACH(i, ROWS_EXP_VECTORS) w[i] = v_mul(w[i], v_load(v_scale + i * VECTOR_LANES));
}

/* Computes w of one group of FIXED_GROUP tokens, and adds their e to *sum. Tokens before `hidden`
 * and from `seen` on, which the query does not see, get e = w = 0. Only the first `stored` tokens
 * have scores. */
INLINE void fixed_weigh_edge(const float *row, const float *v_scale, vec slope, vec origin,
                             vec *sum, uint32_t hidden, uint32_t seen, uint32_t stored, vec *w)
{
    ROWS_EACH(i, FIXED_GROUP_VECTORS)
    w[i] =
        i * VECTOR_LANES < stored ? v_fma(v_load(row + i * VECTOR_LANES), slope, origin) : v_zero();
    fixed_exp2(w, FIXED_GROUP_VECTORS);
    ROWS_EACH(i, FIXED_GROUP_VECTORS)
    {
        const uint32_t t = i * VECTOR_LANES;
        uint32_t lanes = seen < t ? 0 : seen - t < VECTOR_LANES ? seen - t : VECTOR_LANES;
        uint32_t before = hidden < t ? 0 : hidden - t < VECTOR_LANES ? hidden - t : VECTOR_LANES;
        if (before > 0)
            w[i] = v_drop(w[i], before);
        if (t < stored) {
            *sum = v_add(*sum, v_keep(w[i], lanes));
            w[i] = v_mul(w[i], v_load(v_scale + t));
        }
        w[i] = v_keep(w[i], lanes);
        if (before > 0) /* Again, because vs of a dropped token may be NaN. */
            w[i] = v_drop(w[i], before);
    }
}

/* Rounds w of a group's first `stored` tokens to integers p, which are written to `to`, and the
 * scale ws. */
INLINE void fixed_round(const vec *w, uint32_t stored, float *w_scale, int16_t *to)
{
    vec greatest = w[0];
    ROWS_EACH(i, FIXED_GROUP_VECTORS) greatest = v_max(greatest, w[i]);
    const float most = v_fold_max(greatest);
    const vec inverse = v_set(most >= FIXED_SMALL ? FIXED_WEIGHT / most : 0);
    *w_scale = most >= FIXED_SMALL ? most / FIXED_WEIGHT : 0;
    ROWS_EACH(i, FIXED_GROUP_VECTORS)
    {
        if (i * VECTOR_LANES < stored)
            v_round_store16(to + i * VECTOR_LANES, v_mul(w[i], inverse));
    }
}

/* Tokens [begin, end) that a query sees, counted from the job's first token; 0, 0 = none. */
struct fixed_view {
    uint32_t begin, end;
};

/* Stores m of a query (not yet multiplied by qs) in job->score_max. Scores after the view, and
 * scores before the view in the view's first vector, become -infinity. Call this function for all
 * queries before fixed_softmax, so that the CPU can work on several queries at once. */
static void fixed_greatest_score(const struct fixed_job *job, uint32_t query,
                                 struct fixed_view view)
{
    const uint32_t tokens = view.end;
    float *row = job->scores + query * job->stride;
    vec most[2] = {v_set(-INFINITY), v_set(-INFINITY)};
    uint32_t t;
    for (t = tokens; t < job->padded; t++)
        row[t] = -INFINITY;
    for (t = view.begin / VECTOR_LANES * VECTOR_LANES; t < view.begin; t++)
        row[t] = -INFINITY;
    for (t = view.begin / VECTOR_LANES * VECTOR_LANES; t + VECTOR_LANES < tokens;
         t += 2 * VECTOR_LANES) {
        most[0] = v_max(most[0], v_load(row + t));
        most[1] = v_max(most[1], v_load(row + t + VECTOR_LANES));
    }
    if (t < tokens)
        most[0] = v_max(most[0], v_load(row + t));
    job->score_max[query] = v_fold_max(v_max(most[0], most[1]));
}

/* Returns true if vs of a token in the view is NaN. */
static bool fixed_view_nan(const struct fixed_job *job, struct fixed_view view)
{
    if (view.begin == 0 || job->nan_v >= view.end)
        return job->nan_v < view.end;
    for (uint32_t t = view.begin; t < view.end; t++)
        if (isnan(job->v_scale[t]))
            return true;
    return false;
}

/* Turns the query's scores into integer weights p, in place. Tokens outside the view, up to
 * job->padded, get 0. Also stores z and ws, and multiplies m by q_scale. q_scale:
 * job->q_scale[query], or 1 if the scores were capped. */
static void fixed_softmax(const struct fixed_job *job, uint32_t query, struct fixed_view view,
                          float q_scale)
{
    const uint32_t tokens = view.end;
    const float *row = job->scores + query * job->stride;
    int16_t *to = (int16_t *)row; /* Never overtakes the scores that are still to be read. */
    float *w_scale = job->w_scale + (size_t)query * FIXED_GROUPS;
    const float slope = q_scale * FIXED_LOG2_E;
    const vec slopes = v_set(slope), origin = v_set(-(job->score_max[query] * slope));
    const uint32_t wide = ROWS_EXP_VECTORS * VECTOR_LANES;
    vec sum = v_zero(), w[ROWS_EXP_VECTORS];
    uint32_t t;
    for (t = 0; t + FIXED_GROUP <= view.begin; t += FIXED_GROUP, to += FIXED_GROUP) {
        memset(to, 0, FIXED_GROUP * sizeof(*to));
        *w_scale++ = 0;
    }
    if (t < view.begin) {
        fixed_weigh_edge(row + t, job->v_scale + t, slopes, origin, &sum, view.begin - t,
                         tokens - t, job->padded - t, w);
        fixed_round(w, job->padded - t, w_scale++, to);
        t += FIXED_GROUP;
        to += FIXED_GROUP;
    }
    for (; t + wide <= tokens; t += wide) {
        fixed_weigh(row + t, job->v_scale + t, slopes, origin, &sum, w);
        ROWS_EACH(i, ROWS_EXP_VECTORS / FIXED_GROUP_VECTORS)
        {
            fixed_round(w + i * FIXED_GROUP_VECTORS, FIXED_GROUP, w_scale++, to);
            to += FIXED_GROUP;
        }
    }
    for (; t < job->padded; t += FIXED_GROUP, to += FIXED_GROUP) {
        fixed_weigh_edge(row + t, job->v_scale + t, slopes, origin, &sum, 0,
                         tokens > t ? tokens - t : 0, job->padded - t, w);
        fixed_round(w, job->padded - t, w_scale++, to);
    }
    job->score_max[query] *= q_scale;
    job->sum[query] = fixed_view_nan(job, view) ? NAN : v_fold_add(sum);
}

/* Caps the scores of a query in all vectors with tokens of the view: s becomes
 * cap * tanh(s * (qs / cap)). */
static void fixed_cap(const struct fixed_job *job, uint32_t query, struct fixed_view view,
                      float cap)
{
    float *row = job->scores + query * job->stride;
    const vec slope = v_set(job->q_scale[query] / cap), caps = v_set(cap);
    for (uint32_t t = view.begin / VECTOR_LANES * VECTOR_LANES; t < view.end; t += VECTOR_LANES)
        v_store(row + t, v_mul(v_tanh(v_mul(v_load(row + t), slope)), caps));
}

#endif
