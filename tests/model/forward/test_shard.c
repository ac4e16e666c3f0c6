/* Goal: the slices of a group's ranks cover every layer exactly once, no slice is empty, and they
 * are as even as heads and blocks allow; a model that cannot be split is refused with both numbers.
 * Method: real and odd shapes at every degree; the sum, the order and the boundaries of the slices.
 */
#include "tests/check.h"

#include "model/forward/model.h"
#include "model/forward/shard.h"

#include <string.h>

struct shape {
    const char *name;
    struct model_hyper hyper;
};

#define SHAPE(n, heads, kv, f, block, words)                                                       \
    {                                                                                              \
        .name = n, .hyper = {                                                                      \
            .head_count = heads,                                                                   \
            .kv_head_count = kv,                                                                   \
            .head_dim = 64,                                                                        \
            .ffn = f,                                                                              \
            .ffn_block = block,                                                                    \
            .vocab = words                                                                         \
        }                                                                                          \
    }

static const struct shape shapes[] = {
    SHAPE("SmolLM2 135M, Q8_0", 9, 3, 1536, 32, 49152),
    SHAPE("Llama 3 8B, Q4_K", 32, 8, 14336, 256, 128256),
    SHAPE("Llama 3 70B, BF16", 64, 8, 28672, 1, 128256),
    SHAPE("Qwen2.5 7B", 28, 4, 18944, 256, 152064),
    SHAPE("Gemma 3 27B", 32, 16, 21504, 32, 262208),
    SHAPE("odd", 10, 5, 77, 1, 67),
    SHAPE("blocks that do not divide by 32 alone", 16, 16, 4096 + 256, 256, 1000),
    SHAPE("tiny", 2, 2, 64, 32, 2),
};

/* Slices follow each other without a gap, earlier ones being the larger by up to a unit. */
struct cover {
    uint32_t end, last, unit_max;
};

static void cover_next(struct cover *cover, uint32_t first, uint32_t count)
{
    CHECK(first == cover->end && count > 0);
    CHECK(cover->end == 0 || (count <= cover->last && cover->last - count <= cover->unit_max));
    cover->end = first + count;
    cover->last = count;
}

static void test_cover(const struct model_hyper *h, uint32_t ranks)
{
    struct cover kv = {.unit_max = 1}, heads = {.unit_max = h->head_count / h->kv_head_count};
    struct cover ffn = {.unit_max = h->ffn_block > 32 ? h->ffn_block : 32};
    struct cover vocab = {.unit_max = 128}, experts = {.unit_max = 1};
    struct cover shared = {.unit_max = h->experts.shared_block > 32 ? h->experts.shared_block : 32};
    struct error error = {0};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct model_shard s;
        CHECKF(model_shard_compute(h, rank, ranks, &s, &error) == ST_OK, "%s", error.text);
        CHECK(s.rank == rank && s.rank_count == ranks);
        CHECK(model_shard_is_whole(&s) == (ranks == 1));
        cover_next(&kv, s.kv_head_first, s.kv_head_count);
        cover_next(&heads, s.head_first, s.head_count);
        cover_next(&ffn, s.ffn_first, s.ffn_count);
        cover_next(&vocab, s.vocab_first, s.vocab_count);
        if (h->experts.count > 0)
            cover_next(&experts, s.expert_first, s.expert_count);
        if (h->experts.shared_ffn > 0)
            cover_next(&shared, s.shared_ffn_first, s.shared_ffn_count);
        CHECK(s.head_first * h->kv_head_count == s.kv_head_first * h->head_count);
        CHECK(s.ffn_first % h->ffn_block == 0);
    }
    CHECK(kv.end == h->kv_head_count && heads.end == h->head_count);
    CHECK(ffn.end == h->ffn && vocab.end == h->vocab);
    CHECK(experts.end == h->experts.count && shared.end == h->experts.shared_ffn);
}

static void refused(const struct model_hyper *h, uint32_t rank, uint32_t ranks, const char *said)
{
    struct error error = {0};
    struct model_shard s;
    CHECK(model_shard_compute(h, rank, ranks, &s, &error) == ST_INVALID);
    CHECKF(strstr(error.text, said) != NULL, "\"%s\" lacks \"%s\"", error.text, said);
}

/* With latent attention, heads are divided, and every rank has the KV. */
static void test_latent(void)
{
    struct model_hyper h = shapes[0].hyper;
    struct error error = {0};
    h.latent.rank = 512;
    h.head_count = 10;
    h.kv_head_count = 1;
    for (uint32_t ranks = 1; ranks <= h.head_count; ranks++) {
        struct cover heads = {.unit_max = 1};
        for (uint32_t rank = 0; rank < ranks; rank++) {
            struct model_shard s;
            CHECKF(model_shard_compute(&h, rank, ranks, &s, &error) == ST_OK, "%s", error.text);
            CHECK(s.kv_head_first == 0 && s.kv_head_count == 1);
            cover_next(&heads, s.head_first, s.head_count);
        }
        CHECK(heads.end == h.head_count);
    }
    refused(&h, 0, 11, "11 ranks: the model has 10 heads");
}

static void test_refused(void)
{
    struct model_hyper h = shapes[0].hyper;
    refused(&h, 0, 4, "4 ranks: the model has 3 KV heads");
    refused(&h, 2, 2, "rank 2 of 2");
    refused(&h, 1, 0, "rank 1 of 0");
    refused(&h, 1, 1, "rank 1 of 1");
    h.kv_head_count = h.head_count = 32;
    refused(&h, 0, 17, "up to 16");
    h.ffn = 512, h.ffn_block = 256;
    refused(&h, 0, 3, "feed-forward of 512 in blocks of 256");
    h.ffn_block = 32, h.vocab = 2;
    refused(&h, 0, 3, "2 tokens");
    h.vocab = 1000, h.experts.count = 2;
    refused(&h, 0, 3, "3 ranks: the model has 2 experts");
    h.experts = (struct model_experts){.count = 8, .shared_ffn = 512, .shared_block = 256};
    refused(&h, 0, 3, "shared experts' feed-forward of 512 in blocks of 256");
}

int main(void)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct model_hyper *h = &shapes[i].hyper;
        struct model_shard none, one;
        for (uint32_t ranks = 1; ranks <= h->kv_head_count && ranks <= MODEL_RANKS_MAX; ranks++)
            test_cover(h, ranks);
        CHECK(model_shard_compute(h, 0, 0, &none, NULL) == ST_OK);
        CHECK(model_shard_compute(h, 0, 1, &one, NULL) == ST_OK);
        CHECK(memcmp(&none, &one, sizeof(none)) == 0);
        struct model_hyper experts = *h;
        experts.experts =
            (struct model_experts){.count = 128, .shared_ffn = 4096 + 256, .shared_block = 256};
        for (uint32_t ranks = 1; ranks <= h->kv_head_count && ranks <= MODEL_RANKS_MAX; ranks++)
            test_cover(&experts, ranks);
        printf("%s: up to %u ranks\n", shapes[i].name, h->kv_head_count);
    }
    test_latent();
    test_refused();
    return 0;
}
