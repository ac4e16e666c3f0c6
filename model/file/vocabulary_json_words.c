/* vocabulary_json_words: reads how tokenizer.json changes and splits a text before anything is
 * merged. Expressions that the supported families use get the pre-tokenizers of tokenizer_split.c,
 * which are faster; others are kept as they are. Parts of other types are refused by name. */
#include "model/file/json_read.h"
#include "model/file/vocabulary_read.h"

#include <stdio.h>

#define FILE_NAME "tokenizer.json"
#define BLANK     "\xe2\x96\x81" /* SentencePiece's spelling of a blank. */
#define PARTS_MAX 8

/* Returns a part's type; "null" for null. */
static const char *type_of(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return part == NULL || json_is_null(part) ? "null" : type != NULL ? type : "without a type";
}

static enum status part_refuse(struct error *error, const char *key, const char *what,
                               const char *supported)
{
    return error_set(error, ST_UNSUPPORTED, FILE_NAME ": %s %.160s is not supported%s%s", key, what,
                     supported[0] != 0 ? ": want " : "", supported);
}

static bool flag(const json_t *part, const char *name, bool otherwise)
{
    const json_t *value = json_object_get(part, name);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

/* Lists a Sequence's parts, or the single part itself; no parts for null. */
static enum status list(const json_t *part, const char *key, const char *name,
                        const json_t *out[PARTS_MAX], size_t *count_out, struct error *error)
{
    *count_out = 0;
    if (part == NULL || json_is_null(part))
        return ST_OK;
    if (!json_text_equals(part, "type", "Sequence")) {
        out[(*count_out)++] = part;
        return ST_OK;
    }
    const json_t *parts = json_object_get(part, name);
    if (!json_is_array(parts) || json_array_size(parts) > PARTS_MAX)
        return error_set(error, ST_INVALID, FILE_NAME ": %s/%s: want an array of up to %d", key,
                         name, PARTS_MAX);
    for (size_t i = 0; i < json_array_size(parts); i++)
        out[(*count_out)++] = json_array_get(parts, i);
    return ST_OK;
}

/* ---- pre_tokenizer ---- */

#define SPLIT_START   "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define SPLIT_END     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LETTERS_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LETTERS_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" LETTERS_UPPER "*" LETTERS_LOWER                                       \
    "+|[^\\r\\n\\p{L}\\p{N}]?" LETTERS_UPPER "+" LETTERS_LOWER                                     \
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"                                      \
    "\\s+(?!\\S)|\\s+"

#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define O200K                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" LETTERS_UPPER "*" LETTERS_LOWER "+" ENDING                            \
    "|[^\\r\\n\\p{L}\\p{N}]?" LETTERS_UPPER "+" LETTERS_LOWER "*" ENDING                           \
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Regular expressions as tokenizer.json has them, and the equivalent pre-tokenizer of
 * tokenizer_split.c. */
static const struct {
    const char *pattern;
    const char *splitter;
} patterns[] = {
    {SPLIT_START "\\p{N}{1,3}" SPLIT_END, "llama-bpe"},
    {SPLIT_START "\\p{N}" SPLIT_END, "qwen2"},
    {TEKKEN, "tekken"},
    {O200K, "gpt-4o"},
};

/* GPT-2's expression, which ByteLevel has of its own. */
#define GPT2        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define PUNCTUATION "[\\p{P}$+<=>^~|`]"

struct mapped_text vocabulary_splitter_find(const char *expression)
{
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
        if (strcmp(expression, patterns[i].pattern) == 0)
            return mapped_text_of(patterns[i].splitter);
    return (struct mapped_text){NULL, 0};
}

static enum status expression_add(struct vocabulary *v, struct mapped_text expression,
                                  struct error *error)
{
    if (v->expression_count == VOCABULARY_EXPRESSIONS_MAX)
        return part_refuse(error, "pre_tokenizer", "of more than six parts", "");
    v->expressions[v->expression_count++] = expression;
    return ST_OK;
}

/* Known expressions match every text: for them, "the matches are the words" and "what is between
 * the matches is removed" are the same. */
static enum status read_split(const json_t *split, bool alone, struct vocabulary *v,
                              struct error *error)
{
    const json_t *pattern = json_find(split, "pattern/Regex");
    bool invert = flag(split, "invert", false),
         isolated = json_text_equals(split, "behavior", "Isolated");
    if (pattern == NULL || !json_is_string(pattern))
        return part_refuse(error, "pre_tokenizer", "Split without a regular expression", "");
    const struct mapped_text known = vocabulary_splitter_find(json_string_value(pattern));
    if (isolated ? invert
                 : known.text == NULL || !invert || !json_text_equals(split, "behavior", "Removed"))
        return part_refuse(error, "pre_tokenizer", "Split whose matches are not the words", "");
    if (known.text == NULL || !alone)
        return expression_add(v, json_text_of(pattern), error);
    v->splitter = known;
    return ST_OK;
}

static enum status read_punctuation(const json_t *part, struct vocabulary *v, struct error *error)
{
    bool runs = json_text_equals(part, "behavior", "Contiguous");
    if (!runs && !json_text_equals(part, "behavior", "Isolated"))
        return part_refuse(error, "pre_tokenizer", "Punctuation", "Isolated or Contiguous");
    return expression_add(v, mapped_text_of(runs ? PUNCTUATION "+" : PUNCTUATION), error);
}

static enum status read_part(const json_t *part, bool alone, struct vocabulary *v,
                             struct error *error)
{
    if (json_text_equals(part, "type", "Split"))
        return read_split(part, alone, v, error);
    if (json_text_equals(part, "type", "Punctuation"))
        return read_punctuation(part, v, error);
    if (!json_text_equals(part, "type", "Digits"))
        return part_refuse(error, "pre_tokenizer", type_of(part),
                           "Split, Digits and Punctuation, then ByteLevel");
    return expression_add(
        v, mapped_text_of(flag(part, "individual_digits", false) ? "\\p{N}" : "\\p{N}+"), error);
}

/* The last part must be ByteLevel. */
static enum status read_byte_level(const json_t *const *parts, size_t count, struct vocabulary *v,
                                   struct error *error)
{
    const json_t *last = parts[count - 1];
    bool cuts = flag(last, "use_regex", true);
    v->kind = VOCABULARY_BYTES;
    if (flag(last, "add_prefix_space", true))
        return part_refuse(error, "pre_tokenizer", "ByteLevel with add_prefix_space", "");
    if (count == 1 && cuts) {
        v->splitter = mapped_text_of("gpt-2");
        return ST_OK;
    }
    if (count == 2 && cuts && json_text_equals(parts[0], "type", "Digits") &&
        flag(parts[0], "individual_digits", false)) {
        v->splitter = mapped_text_of("smollm");
        return ST_OK;
    }
    enum status status = ST_OK;
    for (size_t i = 0; i + 1 < count && status == ST_OK; i++)
        status = read_part(parts[i], count == 2 && !cuts, v, error);
    if (status == ST_OK && cuts)
        status = expression_add(v, mapped_text_of(GPT2), error);
    return status;
}

static enum status read_metaspace(const json_t *part, struct vocabulary *v, struct error *error)
{
    const char *scheme = json_string_value(json_object_get(part, "prepend_scheme"));
    if (scheme == NULL)
        scheme = flag(part, "add_prefix_space", true) ? "always" : "never";
    if (!json_text_equals(part, "replacement", BLANK))
        return part_refuse(error, "pre_tokenizer", "Metaspace with another replacement", BLANK);
    if (strcmp(scheme, "always") == 0)
        v->prefix = VOCABULARY_PREFIX_UNLESS_BLANK;
    else if (strcmp(scheme, "first") == 0)
        v->prefix = VOCABULARY_PREFIX_FIRST;
    else if (strcmp(scheme, "never") != 0)
        return part_refuse(error, "pre_tokenizer/prepend_scheme", scheme, "always, first or never");
    v->blank_begins_word = flag(part, "split", true);
    return ST_OK;
}

/* ---- normalizer ---- */

/* What the normalizers of a SentencePiece vocabulary do besides the steps. */
struct normalized {
    bool blanks; /* Blanks become BLANK. */
    bool prefix; /* BLANK is put first. */
};

static enum status step_add(struct vocabulary *v, struct vocabulary_step step, struct error *error)
{
    if (v->step_count == VOCABULARY_STEPS_MAX)
        return part_refuse(error, "normalizer", "of more than eight parts", "");
    v->steps[v->step_count++] = step;
    return ST_OK;
}

static enum status read_strip(const json_t *part, struct vocabulary *v, struct error *error)
{
    enum status status = ST_OK;
    if (flag(part, "strip_left", true))
        status = step_add(v, (struct vocabulary_step){.kind = STEP_STRIP_LEFT}, error);
    if (flag(part, "strip_right", true) && status == ST_OK)
        status = step_add(v, (struct vocabulary_step){.kind = STEP_STRIP_RIGHT}, error);
    return status;
}

/* Reads a step that is only a name. Returns false if it has another name. */
static bool read_named(const json_t *part, struct vocabulary_step *out)
{
    static const struct {
        const char *name;
        enum vocabulary_step_kind kind;
    } named[] = {{"NFC", STEP_NFC},
                 {"NFD", STEP_NFD},
                 {"NFKC", STEP_NFKC},
                 {"NFKD", STEP_NFKD},
                 {"Lowercase", STEP_LOWERCASE}};
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        if (json_text_equals(part, "type", named[i].name)) {
            *out = (struct vocabulary_step){.kind = named[i].kind};
            return true;
        }
    return false;
}

static enum status read_step(const json_t *part, struct vocabulary *v, struct normalized *out,
                             struct error *error)
{
    const json_t *content = json_object_get(part, "content");
    const json_t *pattern = json_find(part, "pattern/String");
    const json_t *prepend = json_object_get(part, "prepend");
    bool replaces = json_text_equals(part, "type", "Replace") && json_is_string(content) &&
                    json_string_length(pattern) > 0;
    bool prepends = json_text_equals(part, "type", "Prepend") && json_is_string(prepend);
    struct vocabulary_step step;
    if (replaces && mapped_text_equals(json_text_of(content), BLANK) &&
        mapped_text_equals(json_text_of(pattern), " ")) {
        out->blanks = true;
        return ST_OK;
    }
    if (prepends && mapped_text_equals(json_text_of(prepend), BLANK)) {
        out->prefix = true;
        return ST_OK;
    }
    if (read_named(part, &step))
        return step_add(v, step, error);
    if (out->blanks || out->prefix)
        return part_refuse(error, "normalizer", type_of(part), "no more after blanks are replaced");
    if (json_text_equals(part, "type", "Strip"))
        return read_strip(part, v, error);
    if (prepends)
        return step_add(
            v, (struct vocabulary_step){.kind = STEP_PREPEND, .to = json_text_of(prepend)}, error);
    if (replaces)
        return step_add(v,
                        (struct vocabulary_step){.kind = STEP_REPLACE,
                                                 .from = json_text_of(pattern),
                                                 .to = json_text_of(content)},
                        error);
    return part_refuse(error, "normalizer", type_of(part),
                       "NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, and Replace of a text");
}

static enum status read_normalizer(const json_t *root, struct vocabulary *v, struct normalized *out,
                                   struct error *error)
{
    const json_t *parts[PARTS_MAX];
    size_t count;
    enum status status = list(json_object_get(root, "normalizer"), "normalizer", "normalizers",
                              parts, &count, error);
    for (size_t i = 0; i < count && status == ST_OK; i++)
        status = read_step(parts[i], v, out, error);
    return status;
}

/* ---- post_processor ---- */

/* Reads a template of BOS and the text, or of the text alone. */
static enum status read_template(const json_t *part, struct vocabulary *v, struct error *error)
{
    const json_t *single = json_object_get(part, "single");
    size_t count = json_array_size(single);
    const char *first = json_string_value(json_find(json_array_get(single, 0), "SpecialToken/id"));
    const json_t *last = json_array_get(single, count - 1);
    if (count < 1 || count > 2 || json_object_get(last, "Sequence") == NULL ||
        (count == 2) != (first != NULL))
        return part_refuse(error, "post_processor", "TemplateProcessing",
                           "one that puts at most one token, before the text");
    v->add_bos = count == 2 ? VOCABULARY_YES : VOCABULARY_NO;
    const json_t *tokens = json_object_get(part, "special_tokens");
    const json_t *ids = json_object_get(json_object_get(tokens, first != NULL ? first : ""), "ids");
    const json_t *id = json_array_get(ids, 0);
    if (count == 2 && (json_array_size(ids) != 1 || !json_is_integer(id) ||
                       json_integer_value(id) < 0 || json_integer_value(id) >= v->count))
        return error_set(error, ST_INVALID,
                         FILE_NAME ": post_processor: special_tokens/%.60s/ids: want one id below "
                                   "%u",
                         first, v->count);
    if (count == 2)
        v->bos = (uint32_t)json_integer_value(id);
    return ST_OK;
}

static enum status read_post(const json_t *root, struct vocabulary *v, struct error *error)
{
    const json_t *parts[PARTS_MAX];
    size_t count;
    enum status status = list(json_object_get(root, "post_processor"), "post_processor",
                              "processors", parts, &count, error);
    v->add_bos = VOCABULARY_NO;
    for (size_t i = 0; i < count && status == ST_OK; i++) {
        if (json_text_equals(parts[i], "type", "TemplateProcessing"))
            status = read_template(parts[i], v, error);
        /* ByteLevel only trims offsets. */
        else if (!json_text_equals(parts[i], "type", "ByteLevel"))
            status = part_refuse(error, "post_processor", type_of(parts[i]),
                                 "TemplateProcessing and ByteLevel");
    }
    return status;
}

/* ---- all ---- */

/* Gemma's part: it splits at blanks, and the normalizer has replaced all of them. */
static bool split_does_nothing(const json_t *part, const struct normalized *normalized)
{
    const char *pattern = json_string_value(json_find(part, "pattern/String"));
    return normalized->blanks && json_text_equals(part, "type", "Split") && pattern != NULL &&
           strcmp(pattern, " ") == 0;
}

static enum status read_characters(const json_t *root, const json_t *const *parts, size_t count,
                                   const struct normalized *normalized, struct vocabulary *v,
                                   struct error *error)
{
    v->kind = json_text_equals(json_object_get(root, "model"), "type", "Unigram")
                  ? VOCABULARY_UNIGRAM
                  : VOCABULARY_CHARACTERS;
    v->unknown_fused = v->kind == VOCABULARY_UNIGRAM;
    v->prefix = normalized->prefix ? VOCABULARY_PREFIX_ALWAYS : VOCABULARY_PREFIX_NONE;
    if (count == 1 && json_text_equals(parts[0], "type", "Metaspace") && !normalized->blanks &&
        !normalized->prefix)
        return read_metaspace(parts[0], v, error);
    if (normalized->blanks &&
        (count == 0 || (count == 1 && split_does_nothing(parts[0], normalized))))
        return ST_OK;
    return part_refuse(error, "pre_tokenizer", count > 0 ? type_of(parts[0]) : "null",
                       "ByteLevel, Metaspace, or a normalizer that replaces blanks");
}

enum status vocabulary_json_words(const json_t *root, struct vocabulary *v, struct error *error)
{
    const json_t *parts[PARTS_MAX];
    struct normalized normalized = {.blanks = false};
    size_t count;
    enum status status = list(json_object_get(root, "pre_tokenizer"), "pre_tokenizer",
                              "pretokenizers", parts, &count, error);
    if (status == ST_OK)
        status = read_normalizer(root, v, &normalized, error);
    if (status != ST_OK)
        return status;
    bool byte_level = count > 0 && json_text_equals(parts[count - 1], "type", "ByteLevel");
    if (byte_level && (normalized.blanks || normalized.prefix))
        return part_refuse(error, "normalizer", "of blanks before ByteLevel", "");
    status = byte_level ? read_byte_level(parts, count, v, error)
                        : read_characters(root, parts, count, &normalized, v, error);
    return status == ST_OK ? read_post(root, v, error) : status;
}
