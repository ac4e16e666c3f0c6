/* tokenizer_split: the pre-tokenizers' regular expressions, compiled by PCRE2 (with JIT where it is
 * available). A pre-tokenizer is one expression or several: each divides what the one before has
 * left, both its matches and what is between them, into its own matches and what is between those.
 *
 * They are the models' own expressions, rewritten in two ways that do not change matches:
 * - Repetitions are possessive wherever what follows cannot begin with what is repeated, so that
 *   the matcher never backtracks over it: the time is proportional to the text.
 * - White space is spelled out, because PCRE2 counts U+180E as white space; Unicode since 6.3, and
 *   the tokenizers, do not. */
#include "model/text/tokenizer_internal.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE REGEX_SPACE

/* 's 't 're 've 'm 'll 'd, then letters, then the rest. */
#define GPT2_WORD  "'(?:s|t|re|ve|m|ll|d)| ?+\\p{L}++"
#define GPT2_OTHER " ?+[^" SPACE "\\p{L}\\p{N}]++"
#define GPT2_END   "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]++"

#define GPT2 GPT2_WORD "| ?+\\p{N}++|" GPT2_OTHER "|" GPT2_END

/* SmolLM splits at each digit first and applies GPT-2's expression to the parts between; for that
 * expression the text ends before a digit. */
#define SMOLLM GPT2_WORD "|\\p{N}|" GPT2_OTHER "|[" SPACE "]+(?![^" SPACE "\\p{N}])|[" SPACE "]++"

/* Backtracks over the blanks after the last line end, once per run of white space. */
#define LINES "[" SPACE "]*[\\r\\n]++"
#define LLAMA3(digits)                                                                             \
    "(?i:'(?:s|t|re|ve|m|ll|d))|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|" digits "| ?+[^" SPACE            \
    "\\p{L}\\p{N}]++[\\r\\n]*+|" LINES "|" GPT2_END

/* As Qwen 2's, but marks belong to words; a mark may stand alone. */
#define QWEN35                                                                                     \
    "(?i:'(?:s|t|re|ve|m|ll|d))|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]++|\\p{N}| ?+[^" SPACE         \
    "\\p{L}\\p{M}\\p{N}]++[\\r\\n]*+|" LINES "|" GPT2_END

/* Mistral's tekken: splits where capitals follow small letters. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "++|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER           \
    "*+|\\p{N}| ?+[^" SPACE "\\p{L}\\p{N}]++[\\r\\n/]*+|" LINES "|" GPT2_END

/* GPT-4o's (o200k): as tekken's, but with the endings of GPT-2 at the end of a word. */
#define ENDING "(?i:'(?:s|t|re|ve|m|ll|d))?+"
#define O200K                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "++" ENDING "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*+" ENDING "|\\p{N}{1,3}+| ?+[^" SPACE "\\p{L}\\p{N}]++[\\r\\n/]*+|" LINES "|" GPT2_END

/* Letters with two cases, as DeepSeek LLM lists them. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{"    \
    "293}"                                                                                         \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}"          \
    "\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"                 \
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}"  \
    "\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"                 \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}"                 \
    "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"         \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"        \
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"                 \
    "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}"         \
    "\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{"     \
    "213f}"                                                                                        \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"         \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}"                  \
    "\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                 \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"                 \
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"         \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

/* Chinese characters and Hangul, as both DeepSeek LLM and DeepSeek Coder list them. */
#define DEEPSEEK_CHARACTERS "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]++"

#define PASSES_MAX 6

static const struct {
    const char *name;
    /* Applied one after the other; NULL = no more. A single expression matches every text. */
    const char *patterns[PASSES_MAX];
    bool whole_words_first;
    bool adds_bos;
} kinds[] = {
    {"smollm", {SMOLLM}, false, false},
    {"gpt-2", {GPT2}, false, false},
    {"default", {GPT2}, false, false},
    {"llama-bpe", {LLAMA3("\\p{N}{1,3}+")}, true, true},
    {"qwen2", {LLAMA3("\\p{N}")}, false, false},
    {"tekken", {TEKKEN}, true, true},
    {"gpt-4o", {O200K}, false, false},
    {"starcoder", {SMOLLM}, false, false},
    {"refact", {SMOLLM}, false, false},
    {"command-r", {SMOLLM}, false, false},
    {"mpt", {GPT2}, false, false},
    {"qwen35", {QWEN35}, false, false},
    {"falcon", {"[\\p{P}$+<=>^~|`]++", GPT2, "[0-9]{3}"}, false, false},
    {"deepseek-llm",
     {"[\\r\\n]", "[" SPACE "]?[" CASED_LETTERS "]++",
      "[" SPACE
      "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]++",
      /* Begins where a run of white space begins, so that a run is read only once. */
      "(?<![" SPACE "])[" SPACE "]++\\z", DEEPSEEK_CHARACTERS, "\\p{N}++"},
     false,
     false},
    {"deepseek-coder",
     {"[\\r\\n]", "[" SPACE "]?\\p{L}++", "[" SPACE "]?\\p{P}++", DEEPSEEK_CHARACTERS, "\\p{N}"},
     false,
     false},
};

/* One match backtracks at most over one run of white space, so this allows 10 MB of it without a
 * JIT. */
#define MATCH_STEPS_MAX 10000000u
/* For expressions of a model's file, which may be made to backtrack. */
#define MATCH_STEPS_MAX_OWN 1000000u
#define KIND_OWN            SIZE_MAX

struct splitter {
    pcre2_code *codes[PASSES_MAX];
    size_t passes;
    pcre2_match_context *limits;
    size_t kind; /* KIND_OWN = the model's file has the expressions. */
    /* A single expression, which matches wherever a word begins: it need not be searched for. */
    bool anchored;
    bool jit; /* Every expression has machine code. */
};
static_assert(PASSES_MAX <= SPLIT_PASSES_MAX, "struct split has room for every pass");

static enum status unknown_kind(const char *name, size_t name_bytes, struct error *error)
{
    char names[256] = "";
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i > 0 ? ", " : "",
                 kinds[i].name);
    return error_set(error, ST_UNSUPPORTED, "key 'tokenizer.ggml.pre' is '%.*s': supported are %s",
                     name_bytes < 64 ? (int)name_bytes : 64, name, names);
}

static enum status compile(struct splitter *s, const char *pattern, struct error *error)
{
    const size_t pass = s->passes;
    int code = 0;
    size_t offset = 0;
    uint32_t options = s->anchored ? PCRE2_ANCHORED : 0;
    s->codes[pass] = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | options, &code, &offset, NULL);
    if (s->codes[pass] == NULL)
        return error_set(error, ST_UNSUPPORTED,
                         "PCRE2 refuses expression %zu of the pre-tokenizer: error %d at %zu of "
                         "'%.200s'",
                         pass, code, offset, pattern);
    s->jit = s->jit && pcre2_jit_compile(s->codes[pass], PCRE2_JIT_COMPLETE) == 0;
    s->passes = pass + 1;
    return ST_OK;
}

static enum status splitter_new(size_t kind, uint32_t steps_max, struct splitter **out,
                                struct error *error)
{
    struct splitter *s = calloc(1, sizeof(*s));
    if (s == NULL || (s->limits = pcre2_match_context_create(NULL)) == NULL) {
        free(s);
        return error_set(error, ST_NO_MEMORY, "no memory for the pre-tokenizer");
    }
    s->kind = kind;
    s->jit = true;
    pcre2_set_match_limit(s->limits, steps_max);
    *out = s;
    return ST_OK;
}

/* Gives the splitter to the caller, or closes it after an error. */
static enum status splitter_finish(struct splitter *s, enum status status, struct splitter **out)
{
    if (status == ST_OK)
        *out = s;
    else
        splitter_close(s);
    return status;
}

enum status splitter_open(const char *name, size_t name_bytes, struct splitter **out,
                          struct error *error)
{
    size_t kind = 0;
    size_t kind_count = sizeof(kinds) / sizeof(kinds[0]);
    while (kind < kind_count && (strlen(kinds[kind].name) != name_bytes ||
                                 memcmp(kinds[kind].name, name, name_bytes) != 0))
        kind++;
    if (kind == kind_count)
        return unknown_kind(name, name_bytes, error);
    struct splitter *s = NULL;
    enum status status = splitter_new(kind, MATCH_STEPS_MAX, &s, error);
    if (status == ST_OK)
        s->anchored = kinds[kind].patterns[1] == NULL;
    for (size_t i = 0; i < PASSES_MAX && status == ST_OK && kinds[kind].patterns[i] != NULL; i++)
        status = compile(s, kinds[kind].patterns[i], error);
    return splitter_finish(s, status, out);
}

enum status splitter_open_expressions(const struct mapped_text *expressions, uint32_t count,
                                      struct splitter **out, struct error *error)
{
    char pattern[REGEX_BYTES_MAX];
    struct splitter *s = NULL;
    assert(count >= 1 && count <= PASSES_MAX);
    enum status status = splitter_new(KIND_OWN, MATCH_STEPS_MAX_OWN, &s, error);
    for (uint32_t i = 0; i < count && status == ST_OK; i++) {
        status = regex_translate(expressions[i], pattern, error);
        if (status == ST_OK)
            status = compile(s, pattern, error);
    }
    return splitter_finish(s, status, out);
}

void splitter_close(struct splitter *s)
{
    if (s == NULL)
        return;
    pcre2_match_context_free(s->limits);
    for (size_t i = 0; i < PASSES_MAX; i++)
        pcre2_code_free(s->codes[i]);
    free(s);
}

bool splitter_whole_words_first(const struct splitter *s)
{
    return s->kind != KIND_OWN && kinds[s->kind].whole_words_first;
}

bool splitter_adds_bos(const struct splitter *s)
{
    return s->kind != KIND_OWN && kinds[s->kind].adds_bos;
}

enum status split_begin(struct split *w, const struct splitter *s, const char *text, size_t bytes)
{
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (match == NULL)
        return ST_NO_MEMORY;
    *w = (struct split){.splitter = s, .match = match, .text = text, .bytes = bytes};
    return ST_OK;
}

/* Finds the first match of an expression at or after w->next_word in the part [begin, end) of the
 * text. The expression sees nothing else of the text. No match: *found_out is empty, at the part's
 * end. */
static inline enum status find(struct split *w, size_t pass, size_t begin, size_t end,
                               struct split_range *found_out)
{
    const struct splitter *s = w->splitter;
    PCRE2_SPTR text = (PCRE2_SPTR)w->text + begin;
    int found = PCRE2_ERROR_JIT_BADOPTION;
    if (s->jit)
        found = pcre2_jit_match(s->codes[pass], text, end - begin, w->next_word - begin, 0,
                                w->match, s->limits);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        found = pcre2_match(s->codes[pass], text, end - begin, w->next_word - begin,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->match, s->limits);
    const size_t *range = pcre2_get_ovector_pointer(w->match);
    if (found == PCRE2_ERROR_NOMATCH)
        *found_out = (struct split_range){end, end};
    else if (found > 0 && range[1] > range[0])
        *found_out = (struct split_range){begin + range[0], begin + range[1]};
    else
        return ST_TOO_LARGE;
    return ST_OK;
}

enum status split_next(struct split *w, size_t *start_out, size_t *end_out)
{
    size_t begin = 0, end = w->bytes;
    if (w->next_word >= w->bytes)
        return ST_NOT_FOUND;
    if (w->splitter->anchored) {
        struct split_range found = {0, 0};
        enum status status = find(w, 0, 0, w->bytes, &found);
        if (status != ST_OK || found.start != w->next_word)
            return status != ST_OK ? status : ST_TOO_LARGE;
        *start_out = w->next_word;
        *end_out = w->next_word = found.end;
        return ST_OK;
    }
    for (size_t pass = 0; pass < w->splitter->passes; pass++) {
        struct split_range *found = &w->found[pass], *part = &w->parts[pass];
        if (w->next_word >= part->end) {
            enum status status =
                w->next_word >= found->end ? find(w, pass, begin, end, found) : ST_OK;
            if (status != ST_OK)
                return status;
            part->start = w->next_word;
            part->end = w->next_word < found->start ? found->start : found->end;
        }
        begin = part->start;
        end = part->end;
    }
    *start_out = w->next_word;
    *end_out = end;
    w->next_word = end;
    return ST_OK;
}

void split_end(struct split *w)
{
    pcre2_match_data_free(w->match);
}
