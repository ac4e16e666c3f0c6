/* pooling: how the vectors of a prompt's tokens become one vector, its embedding. The engine adds
 * them up as fixed-point numbers, so that the sum depends neither on how a prompt is cut into
 * batches nor on the order of the additions. Constants only: no code, no threads. */
#ifndef COMMON_POOLING_H
#define COMMON_POOLING_H

enum pooling {
    POOLING_NONE, /* No embedding is wanted. */
    POOLING_LAST, /* The vector of the last token. */
    POOLING_MEAN, /* The mean of all tokens' vectors. */
};

/* 1.0 in the sums, and the largest element; larger ones are cut off. So LIMIT_CONTEXT_TOKENS vectors
 * do not overflow 64 bits. A model with sane weights has no element near it. */
#define POOLING_ONE         (1 << 24)
#define POOLING_ELEMENT_MAX 65536.0f

#endif
