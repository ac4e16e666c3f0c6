/* profile_ranks: adds a device of two ranks to a profile that was read from profile_example.h, for
 * tests of what simulates and plans. Its times are invented, so that sums can be checked by hand: a
 * prompt of 20 tokens takes 2 * 26 + 13 us in the three layers, a decode step of one sequence 3 *
 * 4, and each batch 2 us besides, 1 for the embedding and 60 for vocabulary and sampling. */
#ifndef TESTS_PROFILE_PROFILE_RANKS_H
#define TESTS_PROFILE_PROFILE_RANKS_H

#include "profile/profile.h"
#include "tests/check.h"

#include <string.h>

static inline struct profile_device *profile_ranks_add(struct profile *p)
{
    struct profile_device *d = &p->devices[p->device_count++];
    *d = (struct profile_device){.name = "cpu-2-tp2",
                                 .kind = "cpu",
                                 .threads = 2,
                                 .ranks = 2,
                                 .memory_bytes = p->devices[0].memory_bytes,
                                 .layer_count = 1,
                                 .batch_us = 2};
    strcpy(d->host, p->devices[0].host);
    d->layers = calloc(1, sizeof(*d->layers));
    CHECK(d->layers != NULL);
    d->layers[0].prompt = (struct profile_grid){
        .row_count = 2, .context_count = 1, .rows = {1, 20}, .us = {{7}, {26}}};
    d->layers[0].token =
        (struct profile_grid){.row_count = 1, .context_count = 1, .rows = {1}, .us = {{4}}};
    d->last_layer_prompt = (struct profile_grid){
        .row_count = 2, .context_count = 1, .rows = {1, 20}, .us = {{3}, {13}}};
    d->embedding = (struct profile_curve){.row_count = 1, .rows = {1}, .us = {1}};
    d->vocabulary = (struct profile_curve){.row_count = 1, .rows = {1}, .us = {60}};
    return d;
}

#endif
