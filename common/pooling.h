/* pooling: the ways in which the vectors of a prompt's tokens become one vector, the embedding of
 * the prompt. model/file/ reads the pooling of a model. The gateway chooses the pooling of a
 * request, and messages and request tables carry this value. model/forward/ adds the vectors up as
 * fixed-point numbers, so that the sum depends neither on the batches into which a prompt is cut
 * nor on the order of the additions. The gateway (server/http/completion_embeddings.c) scales the
 * sum to length 1. Constants only: no code, no threads. */
#ifndef COMMON_POOLING_H
#define COMMON_POOLING_H

enum pooling {
    /* For a request: no embedding is wanted. For a model: the model's files name no pooling that
     * cleave has. */
    POOLING_NONE,
    POOLING_LAST, /* The vector of the last token. */
    POOLING_MEAN, /* The mean of all tokens' vectors; it is computed as their sum, scaled. */
};

/* POOLING_ONE is the fixed-point number for 1.0. Each element of a vector is limited to
 * ±POOLING_ELEMENT_MAX, so that the sum of LIMIT_CONTEXT_TOKENS vectors does not overflow 64 bits.
 * No element comes near this limit unless the weights are broken. */
#define POOLING_ONE         (1 << 24)
#define POOLING_ELEMENT_MAX 65536.0f

#endif
