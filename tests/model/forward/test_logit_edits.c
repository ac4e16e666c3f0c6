/* Goal: the logits that are sampled from are those of vLLM's rules, and depend on nothing but the
 * request. Method: random rules and tokens of a small vocabulary, with ids that the vocabulary
 * lacks; a plain reference, which goes through the whole vocabulary and counts each token's
 * occurrences, gives every logit. Also: damaged words of rules are refused, and an editor that has
 * been used for other requests gives the same bits. */
#include "common/random.h"
#include "common/token_rules.h"
#include "model/forward/logit_edits.h"
#include "tests/check.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VOCAB_MAX  300
#define TOKENS_MAX 400

static uint64_t seed, counter;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, counter++) % below);
}

static float draw_float(float low, float high)
{
    return low + (high - low) * random_unit_at(seed, counter++);
}

struct example {
    uint32_t vocab;
    struct sampling sampling;
    struct token_rules_words words;
    struct sample_context context;
    uint32_t masked[4];
    uint32_t masked_count;
    uint32_t tokens[TOKENS_MAX];
    float logits[VOCAB_MAX];
};

/* Tokens of a few ids, so that they repeat and sequences are found. */
static uint32_t draw_id(const struct example *e)
{
    return draw(draw(3) == 0 ? e->vocab + 2 : 1 + e->vocab / 8);
}

static void draw_rules(struct example *e)
{
    uint32_t biases[2 * 8], allowed[12], forbidden[40], forbidden_words = 0;
    uint32_t bias_count = draw(3) == 0 ? draw(9) : 0;
    uint32_t allowed_count = draw(4) == 0 ? 1 + draw(12) : 0;
    for (uint32_t i = 0; i < bias_count; i++) {
        float bias = draw_float(-100, 100);
        biases[2 * (size_t)i] = draw_id(e);
        memcpy(&biases[2 * (size_t)i + 1], &bias, sizeof(bias));
    }
    for (uint32_t i = 0; i < allowed_count; i++)
        allowed[i] = draw_id(e);
    for (uint32_t left = draw(2) * draw(8); left > 0; left--) {
        uint32_t length = 1 + draw(4);
        forbidden[forbidden_words++] = length;
        for (uint32_t i = 0; i < length; i++)
            forbidden[forbidden_words++] = draw_id(e);
    }
    CHECK(token_rules_make(biases, bias_count, allowed, allowed_count, forbidden, forbidden_words,
                           &e->words) == ST_OK);
}

static void draw_example(struct example *e)
{
    memset(e, 0, sizeof(*e));
    e->vocab = 1 + draw(draw(2) ? VOCAB_MAX : 12);
    for (uint32_t i = 0; i < e->vocab; i++)
        e->logits[i] = draw(50) == 0 ? NAN : draw(50) == 0 ? -INFINITY : draw_float(-10, 10);
    e->sampling.presence_penalty = draw(2) ? draw_float(-2, 2) : 0;
    e->sampling.frequency_penalty = draw(2) ? draw_float(-2, 2) : 0;
    e->sampling.repetition_penalty = draw(2) ? draw_float(0.1f, 3) : (float)draw(2);
    draw_rules(e);
    uint32_t count = 1 + draw(TOKENS_MAX);
    for (uint32_t i = 0; i < count; i++)
        e->tokens[i] = draw_id(e);
    e->masked_count = draw(4);
    for (uint32_t i = 0; i < e->masked_count; i++)
        e->masked[i] = draw(e->vocab);
    bool reads = token_rules_depend_on_context(&e->sampling, e->words.words, e->words.count);
    e->context = (struct sample_context){.rules = e->words.words,
                                         .rule_count = e->words.count,
                                         .tokens = e->tokens,
                                         .token_count = reads ? count : 0,
                                         .prompt_count = reads ? 1 + draw(count) : 0};
}

/* ---- the plain reference ---- */

static bool is_forbidden(const struct example *e, const struct token_rules *rules, uint32_t id)
{
    const uint32_t *answer = e->context.tokens + e->context.prompt_count;
    uint32_t length = e->context.token_count - e->context.prompt_count;
    for (uint32_t at = 0; at < rules->forbidden_words; at += 1 + rules->forbidden[at]) {
        uint32_t before = rules->forbidden[at] - 1;
        bool found = before <= length && rules->forbidden[at + 1 + before] == id;
        for (uint32_t i = 0; i < before && found; i++)
            found = answer[length - before + i] == rules->forbidden[at + 1 + i];
        if (found)
            return true;
    }
    return false;
}

static bool is_allowed(const struct token_rules *rules, uint32_t id)
{
    bool found = rules->allowed_count == 0;
    for (uint32_t i = 0; i < rules->allowed_count; i++)
        found |= rules->allowed[i] == id;
    return found;
}

static bool is_masked(const struct example *e, uint32_t id)
{
    bool found = false;
    for (uint32_t i = 0; i < e->masked_count; i++)
        found |= e->masked[i] == id;
    return found;
}

static float plain_logit(const struct example *e, const struct token_rules *rules, uint32_t id,
                         bool bans)
{
    if (bans && (!is_allowed(rules, id) || is_forbidden(e, rules, id)))
        return -INFINITY;
    float logit = isnan(e->logits[id]) || isinf(e->logits[id]) ? -FLT_MAX : e->logits[id];
    float bias_sum = 0, times = 0;
    bool named = false;
    for (uint32_t i = 0; i < rules->bias_count; i++) {
        uint32_t of;
        float bias = token_rules_bias(rules, i, &of);
        if (of == id)
            bias_sum += bias;
        named |= of == id;
    }
    for (uint32_t i = 0; i < e->context.token_count; i++) {
        named |= e->tokens[i] == id;
        times += i >= e->context.prompt_count && e->tokens[i] == id ? 1.0f : 0.0f;
    }
    if (!named)
        return logit;
    logit += bias_sum;
    bool seen = false;
    for (uint32_t i = 0; i < e->context.token_count; i++)
        seen |= e->tokens[i] == id;
    if (seen && sampling_has_repetition_penalty(&e->sampling))
        logit = logit > 0 ? logit / e->sampling.repetition_penalty
                          : logit * e->sampling.repetition_penalty;
    if (times > 0)
        logit -= e->sampling.frequency_penalty * times + e->sampling.presence_penalty;
    return logit;
}

static float same_nan(float logit)
{
    return isnan(logit) || logit < -FLT_MAX ? -FLT_MAX : logit;
}

/* Returns true if the rules left a token. */
static bool check_example(struct logit_editor *editor, const struct example *e)
{
    struct token_rules rules;
    struct logit_edits edits;
    struct error error;
    float row[VOCAB_MAX], again[VOCAB_MAX];
    CHECK(token_rules_check(e->words.words, e->words.count, &rules, &error) == ST_OK);
    logit_edits_make(editor, &e->sampling, &e->context, e->masked, e->masked_count, &edits);
    logit_edits_apply(&edits, e->logits, e->vocab, row);
    bool left = false;
    for (uint32_t id = 0; id < e->vocab; id++)
        left |= !is_masked(e, id) && is_allowed(&rules, id) && !is_forbidden(e, &rules, id);
    for (uint32_t id = 0; id < e->vocab; id++) {
        float want = plain_logit(e, &rules, id, left);
        CHECKF(isinf(want) == (isinf(row[id]) && !isinf(e->logits[id])) ||
                   (isinf(row[id]) && isinf(want)),
               "id %u: %g instead of %g", id, (double)row[id], (double)want);
        CHECKF(same_nan(row[id]) == same_nan(want), "id %u: %.9g instead of %.9g", id,
               (double)row[id], (double)want);
    }
    struct logit_editor *fresh = logit_editor_open(e->vocab);
    CHECK(fresh != NULL);
    logit_edits_make(fresh, &e->sampling, &e->context, e->masked, e->masked_count, &edits);
    logit_edits_apply(&edits, e->logits, e->vocab, again);
    CHECK(memcmp(row, again, e->vocab * sizeof(row[0])) == 0);
    logit_editor_close(fresh);
    return left;
}

/* ---- damaged words ---- */

static void check_damage(const struct example *e)
{
    struct token_rules rules;
    struct error error = {0};
    uint32_t words[100];
    if (e->words.count == 0 || e->words.count >= 100)
        return;
    memcpy(words, e->words.words, e->words.count * sizeof(words[0]));
    CHECK(token_rules_check(words, e->words.count - 1, &rules, &error) == ST_INVALID);
    CHECK(token_rules_check(words, e->words.count + 1, &rules, &error) == ST_INVALID);
    CHECK(rules.bias_count + rules.allowed_count + rules.forbidden_words == 0);
    if (words[2] > 0) {
        uint32_t first = 3 + 2 * words[0] + words[1];
        words[first] = draw(2) ? 0 : words[2];
        CHECK(token_rules_check(words, e->words.count, &rules, &error) == ST_INVALID);
        CHECK(strstr(error.text, "forbidden sequence") != NULL);
    } else if (words[0] > 0) {
        const float bias = draw(2) ? NAN : 100.5f;
        memcpy(&words[4], &bias, sizeof(bias));
        CHECK(token_rules_check(words, e->words.count, &rules, &error) == ST_INVALID);
    }
}

int main(void)
{
    static struct example e;
    seed = test_seed();
    uint32_t none_left = 0, plain = 0;
    for (int round = 0; round < 4000; round++) {
        draw_example(&e);
        struct logit_editor *editor = logit_editor_open(e.vocab);
        CHECK(editor != NULL);
        none_left += check_example(editor, &e) ? 0 : 1;
        none_left += check_example(editor, &e) ? 0 : 1;
        plain += logit_edits_wanted(&e.context) ? 0 : 1;
        check_damage(&e);
        logit_editor_close(editor);
        free(e.words.words);
    }
    CHECK(none_left > 0 && plain > 0);
    return 0;
}
