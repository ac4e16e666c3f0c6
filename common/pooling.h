/* pooling: the ways in which the vectors of a prompt's tokens become one vector, the embedding of
 * the prompt. The gateway chooses the pooling of a request. model/forward/ adds the vectors up as
 * fixed-point numbers, so that the sum depends neither on chunks nor on the order of additions. The
 * gateway scales the sum to length 1. Constants only: no code, no threads. */
#ifndef COMMON_POOLING_H
#define COMMON_POOLING_H

enum pooling {
    POOLING_NONE, /* A request wants no embedding, or a model's files name no known pooling. */
    POOLING_LAST, /* The vector of the last token. */
    POOLING_MEAN, /* The mean of all tokens' vectors. */
};

#define POOLING_ONE (1 << 24) /* The fixed-point number for 1.0. */
/* Elements of vectors are limited to ±POOLING_ELEMENT_MAX, so that the sum of LIMIT_CONTEXT_TOKENS
 * vectors does not overflow 64 bits. */
#define POOLING_ELEMENT_MAX 65536.0f

#endif
