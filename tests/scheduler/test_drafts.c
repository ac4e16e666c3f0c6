/* Goal: drafts are checked where that gives more tokens per time, and batches with drafts are
 * legal. Method: devices whose step times are known functions of the rows, with drafts of known
 * quality: the chosen length must be the best one by definition. Then a machine's scheduler with
 * random drafts: every batch is checked against the rules of machine.h, and the load against a
 * recount. */
#include "common/random.h"
#include "scheduler/drafts.h"
#include "scheduler/machine/machine.h"
#include "tests/check.h"

static double flat(double rows)
{
    (void)rows;
    return 2000;
}

static double linear(double rows)
{
    return 500 * rows;
}

static double mixed(double rows)
{
    return 2000 + 300 * rows;
}

static void learn(struct sched_drafts *drafts, double (*us)(double))
{
    *drafts = (struct sched_drafts){0};
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t rows = 1; rows <= 256; rows += rows < 16 ? 1 : 8)
            sched_drafts_step_add(drafts, rows, (uint64_t)us(rows));
}

/* Returns a trust, for long matches, in which a drafted token is right with this probability. */
static struct sched_draft_trust trust_of(double right)
{
    struct sched_draft_trust trust = {0};
    trust.classes[2].accepted = (float)(1e6 * right);
    trust.classes[2].rejected = (float)(1e6 * (1 - right));
    return trust;
}

static double tokens_of(double right, uint32_t length)
{
    double sum = 1, power = 1;
    for (uint32_t i = 0; i < length; i++)
        sum += power *= right;
    return sum;
}

/* The chosen length gives at least 0.99 of the tokens per time of the best length, or it is 0 and
 * no length gives SCHED_DRAFT_GAIN times as many. */
static void check_length(double (*us)(double), double right, uint32_t answers)
{
    struct sched_drafts drafts;
    learn(&drafts, us);
    const struct sched_draft_trust trust = trust_of(right);
    uint32_t chosen = sched_drafts_length(&drafts, &trust, answers, 20, 8);
    double best = 0, got = tokens_of(right, chosen) / us(answers * (1.0 + chosen));
    for (uint32_t j = 0; j <= 8; j++) {
        double rate = tokens_of(right, j) / us(answers * (1.0 + j));
        best = rate > best ? rate : best;
    }
    CHECK(chosen <= 8);
    CHECK(got >= 0.99 * best || (chosen == 0 && best <= 1.01 * SCHED_DRAFT_GAIN * got));
}

static void check_lengths(void)
{
    struct sched_drafts drafts = {0};
    struct sched_draft_trust trust = {0};
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) == 0); /* Nothing is known. */
    sched_drafts_step_add(&drafts, 1, 2000);
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) == 1); /* A larger step is tried. */
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 0) == 0);
    learn(&drafts, linear);
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) == 0); /* Every row costs a step. */
    learn(&drafts, flat);
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) == 8); /* Rows are free. */
    for (uint32_t i = 0; i < 20; i++)
        for (uint32_t answers = 1; answers <= 16; answers *= 2) {
            check_length(mixed, i * 0.05, answers);
            check_length(flat, i * 0.05, answers);
            check_length(linear, i * 0.05, answers);
        }

    drafts = (struct sched_drafts){.always = true};
    CHECK(sched_drafts_length(&drafts, &trust, 64, 3, 8) == 8);

    /* Wrong drafts end the checks; later one is tried again; right ones bring them back. */
    learn(&drafts, mixed);
    uint32_t unchecked = 0;
    for (uint32_t i = 0; i < 20; i++)
        sched_draft_trust_add(&trust, 20, 4, 0);
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) == 0);
    for (; unchecked < 10000 && sched_drafts_length(&drafts, &trust, 1, 20, 8) == 0; unchecked++)
        sched_draft_trust_add(&trust, 20, 0, 0);
    CHECK(unchecked > 10 && unchecked < 10000);
    for (uint32_t i = 0; i < 20; i++)
        sched_draft_trust_add(&trust, 20, 8, 8);
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) == 8);
    /* Drafts of another class have their own trust. */
    trust = (struct sched_draft_trust){0};
    for (uint32_t i = 0; i < 20; i++)
        sched_draft_trust_add(&trust, 3, 4, 0);
    CHECK(sched_drafts_length(&drafts, &trust, 1, 3, 8) == 0);
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) > 0);
    CHECK(sched_drafts_length(&drafts, &trust, 1, SCHED_DRAFT_FORCED, 8) > 0);
    for (uint32_t i = 0; i < 20; i++)
        sched_draft_trust_add(&trust, SCHED_DRAFT_FORCED, 4, 0);
    CHECK(sched_drafts_length(&drafts, &trust, 1, SCHED_DRAFT_FORCED, 8) == 0);
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) > 0);
}

/* Tokens on which all sources agree have a trust of their own. */
static void check_agreed(void)
{
    struct sched_drafts drafts;
    struct sched_draft_trust trust = {.agreed = 4};
    learn(&drafts, mixed);
    for (uint32_t i = 0; i < 20; i++) /* The token after the agreed ones is wrong. */
        sched_draft_trust_add(&trust, 20, 8, 4);
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) == 4);
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 2) == 2);
    trust.agreed = 0;
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) == 0);
    trust.agreed = 8;
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) == 8);
    for (uint32_t i = 0; i < 60; i++)
        sched_draft_trust_add(&trust, 20, 8, 0);
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) == 0);
    uint32_t unchecked = 0;
    for (; unchecked < 10000 && sched_drafts_length(&drafts, &trust, 1, 20, 8) == 0; unchecked++)
        sched_draft_trust_add(&trust, 20, 0, 0);
    CHECK(unchecked > 0 && unchecked < 10000);
}

/* One long step does not change the choice for long, and a slower device is noticed. */
static void check_outliers(void)
{
    struct sched_drafts drafts = {0};
    const struct sched_draft_trust trust = trust_of(0.97);
    uint32_t later = 0;
    for (uint32_t i = 0; i < 20; i++)
        for (uint32_t rows = 1; rows <= 5; rows++)
            sched_drafts_step_add(&drafts, rows, (uint64_t)mixed(rows));
    const uint32_t before = sched_drafts_length(&drafts, &trust, 1, 20, 8);
    CHECK(before > 4);
    sched_drafts_step_add(&drafts, 1 + before, 100000);
    for (; later < 1000 && sched_drafts_length(&drafts, &trust, 1, 20, 8) <= 4; later++)
        sched_drafts_step_add(&drafts, 1 + later % 5, (uint64_t)mixed(1 + later % 5));
    CHECK(later > 10 && later < 200);

    learn(&drafts, mixed);
    sched_drafts_step_add(&drafts, 9, 2 * (uint64_t)mixed(9));
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) >= 7);
    for (uint32_t i = 0; i < 100; i++)
        for (uint32_t rows = 1; rows <= 9; rows++)
            sched_drafts_step_add(&drafts, rows, (rows > 1 ? 20 : 1) * (uint64_t)mixed(rows));
    CHECK(sched_drafts_length(&drafts, &trust, 1, 20, 8) == 0);
}

#define SLOTS  24
#define PLACES 16

static struct decode {
    uint32_t left, room, draft;
    bool decodes;
} decodes[SLOTS];
static bool prompt_waits;

static uint32_t draw(uint32_t below)
{
    static uint64_t draws;
    return (uint32_t)(random_at(4, draws++) % below);
}

/* Returns the number of drafted tokens in the batch. */
static uint32_t check_batch(const struct sched_batch *batch)
{
    uint32_t rows = 0, drafted = 0;
    bool has_prompt = false;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const struct sched_batch_item *item = &batch->items[i];
        const struct decode *d = &decodes[item->slot];
        rows += item->token_count;
        has_prompt |= item->is_prompt;
        if (item->is_prompt)
            continue;
        CHECK(d->decodes && item->token_count >= 1);
        CHECK(item->token_count <= d->room && item->token_count <= d->left);
        CHECK(item->token_count - 1 <= d->draft);
        drafted += item->token_count - 1;
    }
    CHECK(rows == batch->row_count);
    CHECK(has_prompt || rows <= PLACES);
    CHECK(!has_prompt || drafted == 0);
    return drafted;
}

static void decode_begin(struct sched_machine *sm, uint32_t slot)
{
    struct decode *d = &decodes[slot];
    *d = (struct decode){.left = 1 + draw(40), .decodes = true};
    d->room = 1 + draw(d->left);
    sched_machine_decode_add(
        sm, slot, &(struct sched_decode){.tokens_left = d->left, .room_tokens = d->room});
}

static void batch_end(struct sched_machine *sm, const struct sched_batch *batch)
{
    sched_machine_batch_done(sm, batch->index);
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const struct sched_batch_item *item = &batch->items[i];
        struct decode *d = &decodes[item->slot];
        if (item->is_prompt) {
            sched_machine_remove(sm, item->slot);
            prompt_waits = false;
            continue;
        }
        uint32_t right = draw(item->token_count);
        d->left -= 1 + right;
        d->room -= 1 + right;
        if (d->left > 0) {
            sched_machine_decode_advance(sm, item->slot, right);
        } else { /* As token_pool does with the last token of an answer. */
            sched_machine_remove(sm, item->slot);
            d->decodes = false;
        }
    }
}

static void check_machine(void)
{
    struct sched_machine *sm;
    const struct sched_machine_options options = {.slot_count = SLOTS + 1,
                                                  .prompt_batch_tokens = 64,
                                                  .mixed_prompt_tokens = 64,
                                                  .batch_sequences_max = PLACES};
    uint64_t drafted = 0, alone = 0;
    CHECK(sched_machine_open(&options, &sm) == ST_OK);
    for (uint32_t round = 0; round < 20000; round++) {
        struct sched_machine_load load;
        struct sched_batch batch;
        uint64_t pending = 0;
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            struct decode *d = &decodes[slot];
            if (!d->decodes && draw(20) == 0)
                decode_begin(sm, slot);
            if (d->decodes) {
                d->draft = draw(3) == 0 ? draw(LIMIT_DRAFT_TOKENS + 1) : 0;
                sched_machine_draft_set(sm, slot, d->draft);
                pending += d->left;
            }
        }
        sched_slot slot;
        while (sched_machine_short_find(sm, &slot)) {
            CHECK(decodes[slot].room == 0);
            decodes[slot].room = 1 + draw(decodes[slot].left);
            sched_machine_decode_grow(sm, slot, decodes[slot].room);
        }
        if (!prompt_waits && draw(10) == 0) {
            sched_machine_prompt_add(sm, SLOTS, 0, 1 + draw(64), 1, NULL);
            prompt_waits = true;
        }
        sched_machine_load(sm, &load);
        CHECK(load.decode_tokens_pending == pending);
        if (!sched_machine_batch_next(sm, 0, 100, &batch))
            continue;
        uint32_t now = check_batch(&batch);
        drafted += now;
        alone += now > 0 ? 1 : 0;
        batch_end(sm, &batch);
    }
    CHECK(drafted > 10000 && alone > 1000);
    sched_machine_close(sm);
}

int main(void)
{
    check_lengths();
    check_agreed();
    check_outliers();
    check_machine();
    return 0;
}
