/* Goal: a machine with several batches in flight, and with several paths through its stages, keeps
 * the promises of machine.h. Method: cases by hand; the comment of each names the property. */
#include "scheduler/machine/machine.h"
#include "tests/check.h"

static struct sched_machine *sm;
static struct sched_batch batch;

static void machine_open(uint32_t paths, uint32_t flights, uint32_t sequences, uint32_t micro)
{
    const struct sched_machine_options options = {.slot_count = 64,
                                                  .prompt_fill_tokens = 64,
                                                  .prompt_batch_tokens = 2048,
                                                  .mixed_prompt_tokens = 512,
                                                  .batch_sequences_max = sequences,
                                                  .ageing_us = 1000,
                                                  .path_count = paths,
                                                  .batches_in_flight = flights,
                                                  .micro_batch_tokens = micro};
    CHECK(sched_machine_open(&options, &sm) == ST_OK);
}

/* Checks that the next batch has this many items and rows, and returns its batch slot. */
static uint32_t next(uint32_t path, uint32_t blocks_free, uint32_t items, uint32_t rows)
{
    bool any = sched_machine_batch_next(sm, path, blocks_free, &batch);
    CHECK(any == (batch.item_count > 0));
    CHECKF(batch.item_count == items && batch.row_count == rows, "%u items, %u rows",
           batch.item_count, batch.row_count);
    CHECK(!any || batch.path == path);
    return batch.index;
}

static void decode_add(sched_slot slot, uint32_t path, uint32_t tokens, uint32_t room,
                       int64_t born_us)
{
    sched_machine_decode_add(sm, slot,
                             &(struct sched_decode){.path = path,
                                                    .tokens_left = tokens,
                                                    .room_tokens = room,
                                                    .rank = {.born_us = born_us}});
}

static void check_item(uint32_t i, sched_slot slot, uint32_t first, uint32_t tokens)
{
    const struct sched_batch_item *item = &batch.items[i];
    CHECKF(item->slot == slot && item->first_token == first && item->token_count == tokens,
           "item %u: slot %u, %u tokens from %u", i, item->slot, item->token_count,
           item->first_token);
}

static void test_options(void)
{
    const struct sched_machine_options good = {.slot_count = 4,
                                               .prompt_batch_tokens = 64,
                                               .mixed_prompt_tokens = 16,
                                               .batch_sequences_max = 1,
                                               .path_count = 16,
                                               .batches_in_flight = 4};
    struct sched_machine_options bad = good;
    CHECK(sched_machine_open(&good, &sm) == ST_OK);
    sched_machine_close(sm);
    bad.batches_in_flight = 5;
    CHECK(sched_machine_open(&bad, &sm) == ST_INVALID);
    bad = good;
    bad.path_count = 17;
    bad.batches_in_flight = 1;
    CHECK(sched_machine_open(&bad, &sm) == ST_INVALID);
    bad = good;
    bad.micro_batch_tokens = 15;
    CHECK(sched_machine_open(&bad, &sm) == ST_INVALID);
}

/* GPipe: a prompt's chunks are in flight at the same time, batches are full, and the prompt ends
 * with its last chunk. */
static void test_micro_batches(void)
{
    struct sched_machine_load load;
    machine_open(1, 3, 8, 128);
    sched_machine_prompt_add(sm, 0, 0, 300, 1, NULL);
    sched_machine_prompt_add(sm, 1, 0, 200, 1, NULL);
    uint32_t a = next(0, 100, 1, 128);
    check_item(0, 0, 0, 128);
    CHECK(batch.items[0].is_first_chunk && !batch.items[0].is_last_chunk);
    uint32_t b = next(0, 99, 1, 128);
    check_item(0, 0, 128, 128);
    uint32_t c = next(0, 99, 2, 124); /* Slot 1 gets the rest of the budget, in whole chunks. */
    check_item(0, 0, 256, 44);
    check_item(1, 1, 0, 80);
    CHECK(batch.items[0].is_last_chunk && batch.items[1].is_first_chunk &&
          !batch.items[1].is_last_chunk);
    CHECK(a != b && b != c && a != c && a < 3 && b < 3 && c < 3);
    next(0, 98, 0, 0); /* Three batches are in flight. */
    sched_machine_load(sm, &load);
    CHECK(load.prompts_running == 2 && load.prompts_waiting == 0);
    CHECK(load.prompt_tokens_pending == 500 && load.prompt_tokens_open == 500);
    uint32_t oldest;
    CHECK(sched_machine_batch_oldest(sm, 0, &oldest) && oldest == a);
    sched_machine_batch_done(sm, a);
    CHECK(sched_machine_in_batch(sm, 0));
    CHECK(next(0, 98, 1, 120) == a);
    check_item(0, 1, 80, 120);
    sched_machine_batch_done(sm, b);
    CHECK(sched_machine_in_batch(sm, 0));
    sched_machine_batch_done(sm, c);
    CHECK(!sched_machine_in_batch(sm, 0) && sched_machine_in_batch(sm, 1));
    sched_machine_load(sm, &load);
    CHECK(load.prompts_running == 1 && load.prompt_tokens_pending == 120);
    sched_machine_batch_done(sm, a);
    CHECK(!sched_machine_batch_oldest(sm, 0, &oldest));
    next(0, 98, 0, 0);
    sched_machine_remove(sm, 0);
    decode_add(1, 0, 1, 1, 0); /* The request is decoded on this machine. */
    sched_machine_batch_done(sm, next(0, 98, 1, 1));
    sched_machine_close(sm);
}

/* A request that is cancelled while it is in flight gets into no further batch and leaves after its
 * last one. The next prompt begins at once. */
static void test_stop(void)
{
    struct sched_machine_load load;
    machine_open(1, 2, 8, 64);
    sched_machine_prompt_add(sm, 0, 0, 1000, 1, NULL);
    sched_machine_prompt_add(sm, 1, 0, 64, 1, NULL);
    uint32_t a = next(0, 100, 1, 64);
    sched_machine_stop(sm, 0);
    uint32_t b = next(0, 100, 1, 64);
    check_item(0, 1, 0, 64);
    sched_machine_batch_done(sm, a);
    CHECK(!sched_machine_in_batch(sm, 0));
    sched_machine_remove(sm, 0);
    sched_machine_load(sm, &load);
    CHECK(load.prompts_running == 1 && load.prompt_tokens_pending == 64);
    sched_machine_batch_done(sm, b);
    sched_machine_close(sm);
}

/* Decodes spread evenly over the batches in flight, also after requests join and leave. */
static void test_groups(void)
{
    uint32_t flying[3];
    machine_open(1, 3, 32, 0);
    for (sched_slot slot = 0; slot < 7; slot++)
        decode_add(slot, 0, 100, 100, 0);
    flying[0] = next(0, 0, 3, 3);
    flying[1] = next(0, 0, 2, 2);
    flying[2] = next(0, 0, 2, 2);
    check_item(0, 5, 0, 1);
    decode_add(7, 0, 100, 100, 0);
    decode_add(8, 0, 1, 1, 0);
    for (uint32_t i = 0; i < 3; i++) { /* New requests join the smaller groups. */
        sched_machine_batch_done(sm, flying[i]);
        flying[i] = next(0, 0, 3, 3);
    }
    check_item(0, 5, 0, 1);
    check_item(2, 8, 0, 1);
    for (sched_slot slot = 0; slot < 3; slot++) { /* a whole group leaves */
        if (slot == 0)
            sched_machine_batch_done(sm, flying[0]);
        sched_machine_remove(sm, slot);
    }
    next(0, 0, 0, 0); /* All remaining decodes are in flight. */
    sched_machine_batch_done(sm, flying[1]);
    flying[0] = next(0, 0, 2, 2);            /* Two of six decodes. */
    sched_machine_batch_done(sm, flying[2]); /* slot 8 has ended */
    flying[1] = next(0, 0, 2, 2);
    flying[2] = next(0, 0, 1, 1);
    for (uint32_t i = 0; i < 3; i++)
        sched_machine_batch_done(sm, flying[i]);
    sched_machine_close(sm);
}

/* A path that has just begun, or had no batches, spreads its requests: no batch stays empty while
 * another one takes two. */
static void test_idle_share(void)
{
    uint32_t flying[4];
    machine_open(1, 4, 32, 0);
    for (sched_slot slot = 0; slot < 6; slot++)
        decode_add(slot, 0, 100, 100, 0);
    for (uint32_t i = 0; i < 4; i++)
        flying[i] = next(0, 0, i < 2 ? 2 : 1, i < 2 ? 2 : 1);
    sched_machine_batch_done(sm, flying[0]);
    sched_machine_batch_done(sm, flying[1]);
    sched_machine_batch_done(sm, flying[2]);
    sched_machine_remove(sm, 0);
    sched_machine_remove(sm, 1);
    for (uint32_t i = 0; i < 3; i++) /* Three idle requests go into three batches. */
        next(0, 0, 1, 1);
    next(0, 0, 0, 0);
    sched_machine_close(sm);
}

/* There are more decodes than places: every decode gets its turn, and a prompt has a place in each
 * batch. */
static void test_rotation(void)
{
    uint32_t turns[9] = {0};
    uint32_t flying[2];
    machine_open(1, 2, 3, 32);
    for (sched_slot slot = 0; slot < 9; slot++)
        decode_add(slot, 0, 1000, 1000, 0);
    sched_machine_prompt_add(sm, 20, 0, 320, 1, NULL);
    for (uint32_t i = 0; i < 18; i++) {
        if (i >= 2)
            sched_machine_batch_done(sm, flying[i % 2]);
        flying[i % 2] = next(0, 10, 3, i < 10 ? 34 : 3);
        CHECK(batch.items[2].is_prompt == (i < 10));
        for (uint32_t k = 0; k < batch.item_count; k++)
            turns[batch.items[k].slot % 20] += batch.items[k].is_prompt ? 0 : 1;
        if (i == 8)
            CHECK(turns[0] == 2 && turns[8] == 2);
    }
    for (sched_slot slot = 0; slot < 9; slot++)
        CHECKF(turns[slot] >= 4 && turns[slot] <= 5, "slot %u: %u turns", slot, turns[slot]);
    sched_machine_close(sm);
}

/* The request to be preempted is in flight: the request that needs its blocks waits, and no other
 * request is preempted in its place. */
static void test_victim_in_flight(void)
{
    sched_slot slot;
    machine_open(1, 2, 8, 0);
    decode_add(0, 0, 10, 1, 100);
    decode_add(1, 0, 10, 5, 300);
    decode_add(2, 0, 10, 5, 200);
    uint32_t a = next(0, 0, 2, 2); /* slots 0 and 1 */
    uint32_t b = next(0, 0, 1, 1);
    CHECK(!sched_machine_short_find(sm, &slot));
    sched_machine_batch_done(sm, a);
    CHECK(sched_machine_short_find(sm, &slot) && slot == 0);
    CHECK(sched_machine_victim_find(sm, &slot) && slot == 1);
    a = next(0, 0, 1, 1); /* No victim was requested: slot 0 is left out, slot 1 continues. */
    check_item(0, 1, 0, 1);
    CHECK(sched_machine_short_find(sm, &slot) && slot == 0);
    CHECK(!sched_machine_victim_find(sm, &slot));
    sched_machine_batch_done(sm, b);
    CHECK(!sched_machine_victim_find(sm, &slot)); /* slot 2 is idle, and more urgent */
    sched_machine_batch_done(sm, a);
    CHECK(sched_machine_victim_find(sm, &slot) && slot == 1);
    sched_machine_remove(sm, 1);
    sched_machine_decode_grow(sm, 0, 9);
    CHECK(!sched_machine_short_find(sm, &slot));
    next(0, 0, 1, 1);
    next(0, 0, 1, 1);
    sched_machine_close(sm);
}

/* Paths are independent: a path's batches in flight do not limit another path. They share
 * memory. */
static void test_paths(void)
{
    sched_slot slot;
    struct sched_machine_load load;
    machine_open(2, 1, 8, 0);
    decode_add(0, 0, 3, 3, 0);
    decode_add(1, 1, 3, 3, 0);
    sched_machine_prompt_add(sm, 10, 0, 64, 10, NULL);
    sched_machine_prompt_add(sm, 11, 1, 64, 4, NULL);
    sched_machine_prompt_add(sm, 12, 1, 64, 0, NULL);
    sched_machine_reserve_add(sm, 13, 3, 48, NULL);
    /* 10 and 4 blocks are kept for the earlier prompts. */
    CHECK(!sched_machine_reserve_next(sm, 16, &slot));
    CHECK(sched_machine_prompt_after(sm, 1, SCHED_NO_SLOT, &slot) && slot == 11);
    CHECK(!sched_machine_prompt_after(sm, 1, 11, &slot));
    sched_machine_load(sm, &load);
    CHECK(load.prompts_waiting == 3 && load.decodes_running == 2);
    /* 4 of 12 blocks are enough for this prompt, but 10 are kept for slot 10. */
    uint32_t a = next(1, 12, 2, 65);
    check_item(0, 1, 0, 1);
    check_item(1, 12, 0, 64);
    next(1, 12, 0, 0);
    uint32_t b = next(0, 12, 2, 65);
    check_item(0, 0, 0, 1);
    check_item(1, 10, 0, 64);
    CHECK(a != b);
    sched_machine_batch_done(sm, a);
    a = next(1, 4, 2, 65);
    check_item(1, 11, 0, 64);
    sched_machine_batch_done(sm, b);
    sched_machine_batch_done(sm, a);
    CHECK(sched_machine_reserve_next(sm, 3, &slot) && slot == 13);
    sched_machine_close(sm);
}

/* A key's share counts over all paths of the machine: after a long prompt on one path the key waits
 * on the other. */
static void test_keys_over_paths(void)
{
    struct sched_rank rank = {.key = 1};
    machine_open(2, 1, 8, 0);
    sched_machine_prompt_add(sm, 0, 0, 640, 1, &rank);
    sched_machine_prompt_add(sm, 1, 1, 64, 1, &rank);
    rank.key = 2;
    sched_machine_prompt_add(sm, 2, 1, 64, 1, &rank);
    sched_machine_batch_done(sm, next(0, 100, 1, 640));
    sched_machine_batch_done(sm, next(1, 100, 1, 64));
    check_item(0, 2, 0, 64);
    sched_machine_close(sm);
}

int main(void)
{
    test_options();
    test_micro_batches();
    test_stop();
    test_groups();
    test_idle_share();
    test_rotation();
    test_victim_in_flight();
    test_paths();
    test_keys_over_paths();
    return 0;
}
