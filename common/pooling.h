/* pooling: how the vectors of a prompt's tokens become one vector, its embedding. model/forward/
 * adds the vectors up as fixed-point numbers, so that the sum depends neither on how a prompt is
 * cut into batches nor on the order of the additions; the gateway
 * (server/http/completion_embeddings.c) scales the sum to length 1. model/file/ reads a model's
 * pooling; messages and the request tables carry it. Constants only: no code, no threads. */
#ifndef COMMON_POOLING_H
#define COMMON_POOLING_H

enum pooling {
    /* Of a request: no embedding is wanted. Of a model: its files name no pooling that cleave
     * has. */
    POOLING_NONE,
    POOLING_LAST, /* The vector of the last token. */
    POOLING_MEAN, /* The mean of all tokens' vectors: the sum of the vectors, scaled. */
};

/* POOLING_ONE stands for 1.0 in the sums. Elements are limited to ±POOLING_ELEMENT_MAX, so that the
 * sum of LIMIT_CONTEXT_TOKENS vectors does not overflow 64 bits. A model with sane weights has no
 * element near this limit. */
#define POOLING_ONE         (1 << 24)
#define POOLING_ELEMENT_MAX 65536.0f

#endif
