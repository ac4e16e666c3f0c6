/* tokenizer_split: the pre-tokenizers' regular expressions, compiled by PCRE2 (with JIT where it is
 * available). They are the models' own expressions, rewritten in two ways that do not change
 * matches:
 * - Repetitions are possessive wherever what follows cannot begin with what is repeated, so that
 *   the matcher never backtracks over it: the time is proportional to the text.
 * - White space is spelled out, because PCRE2 counts U+180E as white space; Unicode since 6.3, and
 *   the tokenizers, do not. */
#include "model/text/tokenizer_internal.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANK                                                                                      \
    "\\t\\x{0b}\\x{0c} "                                                                           \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACE BLANK "\\r\\n"

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

static const struct {
    const char *name;
    const char *pattern;
    bool words_first;
    bool adds_bos;
} kinds[] = {
    {"smollm", SMOLLM, false, false},          {"gpt-2", GPT2, false, false},
    {"default", GPT2, false, false},           {"llama-bpe", LLAMA3("\\p{N}{1,3}+"), true, true},
    {"qwen2", LLAMA3("\\p{N}"), false, false}, {"tekken", TEKKEN, true, true},
    {"starcoder", SMOLLM, false, false},       {"refact", SMOLLM, false, false},
    {"command-r", SMOLLM, false, false},       {"mpt", GPT2, false, false},
    {"qwen35", QWEN35, false, false},
};

/* One match backtracks at most over one run of white space, so this allows 10 MB of it without a
 * JIT. */
#define MATCH_STEPS_MAX 10000000u

struct splitter {
    pcre2_code *code;
    pcre2_match_context *limits;
    size_t kind;
    bool jit;
};

static enum status unknown_kind(const char *name, size_t name_bytes, struct error *error)
{
    char names[256] = "";
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i > 0 ? ", " : "",
                 kinds[i].name);
    return error_set(error, ST_UNSUPPORTED, "key 'tokenizer.ggml.pre' is '%.*s': supported are %s",
                     name_bytes < 64 ? (int)name_bytes : 64, name, names);
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
    struct splitter *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the pre-tokenizer");
    int code = 0;
    size_t offset = 0;
    s->kind = kind;
    s->code = pcre2_compile((PCRE2_SPTR)kinds[kind].pattern, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &offset, NULL);
    s->limits = pcre2_match_context_create(NULL);
    if (s->code == NULL || s->limits == NULL) {
        splitter_close(s);
        return error_set(error, ST_UNSUPPORTED,
                         "PCRE2 refuses the pre-tokenizer %s: error %d at %zu", kinds[kind].name,
                         code, offset);
    }
    pcre2_set_match_limit(s->limits, MATCH_STEPS_MAX);
    s->jit = pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) == 0;
    *out = s;
    return ST_OK;
}

void splitter_close(struct splitter *s)
{
    if (s == NULL)
        return;
    pcre2_match_context_free(s->limits);
    pcre2_code_free(s->code);
    free(s);
}

bool splitter_words_first(const struct splitter *s)
{
    return kinds[s->kind].words_first;
}

bool splitter_adds_bos(const struct splitter *s)
{
    return kinds[s->kind].adds_bos;
}

enum status split_begin(struct split *w, const struct splitter *s, const char *text, size_t bytes)
{
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (match == NULL)
        return ST_NO_MEMORY;
    *w = (struct split){.splitter = s, .match = match, .text = text, .bytes = bytes};
    return ST_OK;
}

enum status split_next(struct split *w, size_t *start_out, size_t *end_out)
{
    const struct splitter *s = w->splitter;
    PCRE2_SPTR text = (PCRE2_SPTR)w->text;
    int found = PCRE2_ERROR_JIT_BADOPTION;
    if (w->at >= w->bytes)
        return ST_NOT_FOUND;
    if (s->jit)
        found = pcre2_jit_match(s->code, text, w->bytes, w->at, 0, w->match, s->limits);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        found = pcre2_match(s->code, text, w->bytes, w->at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                            w->match, s->limits);
    const size_t *range = pcre2_get_ovector_pointer(w->match);
    /* Every character begins some alternative, so only the limit can have stopped the match. */
    if (found <= 0 || range[1] <= w->at)
        return ST_TOO_LARGE;
    *start_out = w->at;
    *end_out = range[1];
    w->at = range[1];
    return ST_OK;
}

void split_end(struct split *w)
{
    pcre2_match_data_free(w->match);
}
