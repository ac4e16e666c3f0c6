/* tokenizer_open: builds the tables that encoding reads from a model's vocabulary, merges and
 * special tokens. Every start-up waits for it, and it mostly waits for memory: so texts are
 * prefetched, and what not every text needs (which tokens are their own encoding) is computed
 * later. */
#include "model/text/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#define AHEAD 16 /* Texts that are prefetched ahead of the current one. */
static_assert(VOCABULARY_TOKENS_MAX - 1 <= MERGE_ID_MAX, "merges hold every token's id");

/* Texts of tokens that end an answer, if the file marks them as special. */
static const char *const end_texts[] = {
    "<|im_end|>",      "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
    "<|end_of_turn|>", "<end_of_turn>", "<|end|>",    "<EOT>",      "</s>",
};

/* The same for models whose answers are several messages (gpt-oss): there, MESSAGE_END ends only
 * one message. */
static const char *const end_texts_of_messages[] = {"<|return|>", "<|call|>", "<|endoftext|>"};
#define MESSAGE_END "<|end|>"

static enum status refuse_steps(struct error *error, const char *what, size_t index)
{
    return error_set(error, ST_INVALID,
                     "%s %zu: too many others have the same hash, as if they were chosen for it",
                     what, index);
}

/* Indexes all texts except those of tokens with FLAG_VERBATIM. */
static enum status index_all(struct texts *texts, const uint8_t *flags, struct error *error)
{
    for (uint32_t id = 0; id < texts->count; id++) {
        if (id + AHEAD < texts->count) {
            size_t bytes;
            const char *text = texts_at(texts, id + AHEAD, &bytes);
            texts_prefetch(texts, text, bytes);
        }
        if ((flags == NULL || (flags[id] & FLAG_VERBATIM) == 0) && !texts_index(texts, id))
            return refuse_steps(error, "token", id);
    }
    return ST_OK;
}

static bool is_special(int32_t type)
{
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

/* Writes the bytes that a token stands for to `piece`; returns their number. */
static size_t write_piece(struct tokenizer *t, uint32_t id, const struct mapped_text *token,
                          int32_t type, char *piece)
{
    bool bytes_spelled = t->kind == VOCABULARY_BYTES;
    int byte = !bytes_spelled && type == TOKEN_BYTE ? spm_byte(token->text, token->bytes) : -1;
    if (byte >= 0) {
        t->bpe.byte_ids[byte] = id;
        piece[0] = (char)byte;
        return 1;
    }
    if (is_special(type) ||
        (type == TOKEN_USER_DEFINED && t->kind != VOCABULARY_CHARACTERS && !t->user_blanks)) {
        memcpy(piece, token->text, token->bytes);
        return token->bytes;
    }
    return bytes_spelled ? alphabet_decode(token->text, token->bytes, piece)
                         : spm_decode(token->text, token->bytes, piece);
}

static bool add_token(struct tokenizer *t, uint32_t id, const struct mapped_text *token,
                      int32_t type, uint8_t finds)
{
    bool special = is_special(type), verbatim = special || type == TOKEN_USER_DEFINED;
    char *piece = texts_begin(&t->pieces);
    memcpy(texts_begin(&t->spellings), token->text, token->bytes);
    texts_end(&t->spellings, token->bytes);
    size_t bytes = write_piece(t, id, token, type, piece);
    texts_end(&t->pieces, bytes);
    if (special)
        t->flags[id] |= FLAG_SPECIAL;
    if (verbatim || (t->kind != VOCABULARY_BYTES && type == TOKEN_BYTE)) {
        t->flags[id] |= FLAG_VERBATIM;
        if (!verbatim || token->bytes == 0)
            return true;
        return t->user_blanks && !special
                   ? specials_add(&t->specials, piece, bytes, id, true, finds)
                   : specials_add(&t->specials, token->text, token->bytes, id, !special, finds);
    }
    t->word_bytes_max = bytes > t->word_bytes_max ? bytes : t->word_bytes_max;
    t->spm_crosses = t->spm_crosses || spm_word_crosses(piece, bytes);
    return true;
}

static enum status open_vocab(struct tokenizer *t, const struct vocabulary *v, struct error *error)
{
    const uint32_t count = v->count;
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += v->tokens[i].bytes;
    t->flags = calloc(count, 1);
    t->words = calloc(count, sizeof(*t->words));
    if (t->flags == NULL || t->words == NULL || !texts_open(&t->spellings, count, bytes) ||
        !texts_open(&t->pieces, count, bytes))
        return error_set(error, ST_NO_MEMORY, "no memory for a vocabulary of %u tokens", count);
    for (uint32_t id = 0; id < count; id++)
        if (!add_token(t, id, &v->tokens[id], v->types != NULL ? v->types[id] : TOKEN_NORMAL,
                       v->find_flags != NULL ? v->find_flags[id] : 0))
            return error_set(error, ST_NO_MEMORY, "no memory for the special tokens");
    enum status status = index_all(&t->spellings, NULL, error);
    return status != ST_OK ? status : index_all(&t->pieces, t->flags, error);
}

/* Returns the blank in "left right", searched from the second byte on, because the first byte may
 * itself be a blank. NULL = none. */
static const char *merge_blank(const struct mapped_text *merge)
{
    return merge->bytes > 2 ? memchr(merge->text + 1, ' ', merge->bytes - 1) : NULL;
}

static void prefetch_merge(const struct tokenizer *t, const struct mapped_text *merge)
{
    const char *blank = merge_blank(merge);
    if (blank == NULL)
        return;
    size_t left_bytes = (size_t)(blank - merge->text);
    texts_prefetch(&t->spellings, merge->text, left_bytes);
    texts_prefetch(&t->spellings, blank + 1, merge->bytes - left_bytes - 1);
}

/* Finds the token with this spelling. Most vocabularies list results in the order of the merges, so
 * `guess` is tried first. */
static uint32_t find_result(const struct tokenizer *t, const char *text, size_t bytes,
                            uint32_t guess)
{
    size_t guess_bytes;
    if (guess < t->spellings.count) {
        const char *guessed = texts_at(&t->spellings, guess, &guess_bytes);
        if (guess_bytes == bytes && memcmp(guessed, text, bytes) == 0 &&
            (t->flags[guess] & FLAG_VERBATIM) == 0)
            return guess;
    }
    return texts_find(&t->spellings, text, bytes);
}

static enum status open_merge(struct tokenizer *t, const struct mapped_text *merge, size_t index,
                              char *joined, uint32_t *id_out, struct error *error)
{
    const char *blank = merge_blank(merge);
    if (blank == NULL)
        return error_set(error, ST_INVALID, "merge %zu: want two parts with a blank between",
                         index);
    size_t left_bytes = (size_t)(blank - merge->text);
    size_t right_bytes = merge->bytes - left_bytes - 1;
    memcpy(joined, merge->text, left_bytes);
    memcpy(joined + left_bytes, blank + 1, right_bytes);
    uint32_t left = texts_find(&t->spellings, merge->text, left_bytes);
    uint32_t right = texts_find(&t->spellings, blank + 1, right_bytes);
    uint32_t id = find_result(t, joined, left_bytes + right_bytes, *id_out + 1);
    if (left == TOKENIZER_NO_TOKEN || right == TOKENIZER_NO_TOKEN || id == TOKENIZER_NO_TOKEN)
        return error_set(error, ST_INVALID,
                         "merge %zu: a part or the result is not in the vocabulary", index);
    if (!merges_add(&t->bpe.merges, left, right, id))
        return refuse_steps(error, "merge", index);
    *id_out = id;
    return ST_OK;
}

static enum status open_merges(struct tokenizer *t, const struct vocabulary *v, struct error *error)
{
    const struct mapped_text *merges = v->merges;
    const size_t count = v->merge_count;
    size_t longest = 0;
    enum status status = ST_OK;
    if (count > MERGE_RANK_MAX)
        return error_set(error, ST_TOO_LARGE, "%zu merges: want at most %u", count, MERGE_RANK_MAX);
    for (size_t i = 0; i < count; i++)
        longest = merges[i].bytes > longest ? merges[i].bytes : longest;
    char *joined = malloc(longest + 1);
    if (joined == NULL || !merges_open(&t->bpe.merges, (uint32_t)count))
        status = error_set(error, ST_NO_MEMORY, "no memory for %zu merges", count);
    uint32_t id = 0;
    for (size_t i = 0; i < count && status == ST_OK; i++) {
        if (i + AHEAD < count)
            prefetch_merge(t, &merges[i + AHEAD]);
        status = open_merge(t, &merges[i], i, joined, &id, error);
    }
    free(joined);
    return status;
}

/* Adds all pairs of tokens whose joint bytes are token `id`. */
static enum status open_pairs(struct tokenizer *t, uint32_t id, struct error *error)
{
    size_t bytes;
    const char *piece = texts_at(&t->pieces, id, &bytes);
    for (size_t at = 1; at < bytes; at++) {
        uint32_t left = texts_find(&t->pieces, piece, at);
        uint32_t right = texts_find(&t->pieces, piece + at, bytes - at);
        if (left == TOKENIZER_NO_TOKEN || right == TOKENIZER_NO_TOKEN)
            continue;
        if (!merges_add_ranked(&t->bpe.merges, left, right, id, id))
            return refuse_steps(error, "token", id);
    }
    return ST_OK;
}

/* Longest token whose pairs are searched for: far longer than those of real vocabularies. */
#define PAIR_BYTES_MAX 1024

static enum status open_merges_by_id(struct tokenizer *t, struct error *error)
{
    size_t pairs = t->pieces.count, bytes;
    for (uint32_t id = 0; id < t->pieces.count; id++) {
        (void)texts_at(&t->pieces, id, &bytes);
        if (bytes > PAIR_BYTES_MAX)
            return error_set(error, ST_TOO_LARGE, "token %u has %zu bytes: want at most %d", id,
                             bytes, PAIR_BYTES_MAX);
        pairs += bytes;
    }
    if (pairs > MERGE_RANK_MAX)
        return error_set(error, ST_TOO_LARGE,
                         "the tokens have %zu bytes beside their first: want at most %u", pairs,
                         MERGE_RANK_MAX);
    if (!merges_open(&t->bpe.merges, (uint32_t)pairs))
        return error_set(error, ST_NO_MEMORY, "no memory for the merges of %u tokens",
                         t->pieces.count);
    enum status status = ST_OK;
    for (uint32_t id = 0; id < t->pieces.count && status == ST_OK; id++)
        if ((t->flags[id] & FLAG_VERBATIM) == 0)
            status = open_pairs(t, id, error);
    return status;
}

static void add_end(struct tokenizer *t, uint32_t id)
{
    if (id == TOKENIZER_NO_TOKEN || (t->flags[id] & FLAG_END) != 0 ||
        t->end_count == sizeof(t->end_tokens) / sizeof(t->end_tokens[0]))
        return;
    t->flags[id] |= FLAG_END;
    t->end_tokens[t->end_count++] = id;
}

/* Returns the id of the special token with this text; TOKENIZER_NO_TOKEN = none. */
static uint32_t find_special(const struct tokenizer *t, const char *text)
{
    uint32_t id = tokenizer_find(t, text);
    return id != TOKENIZER_NO_TOKEN && (t->flags[id] & FLAG_SPECIAL) != 0 ? id : TOKENIZER_NO_TOKEN;
}

static void add_ends_by_text(struct tokenizer *t)
{
    const bool messages = find_special(t, MESSAGE_END) != TOKENIZER_NO_TOKEN &&
                          find_special(t, end_texts_of_messages[0]) != TOKENIZER_NO_TOKEN;
    const char *const *texts = messages ? end_texts_of_messages : end_texts;
    const size_t count = messages ? sizeof(end_texts_of_messages) / sizeof(char *)
                                  : sizeof(end_texts) / sizeof(char *);
    for (size_t i = 0; i < count; i++)
        add_end(t, find_special(t, texts[i]));
}

static void open_ids(struct tokenizer *t, const struct vocabulary *v)
{
    t->bos = v->bos;
    t->eos = v->eos;
    t->unknown = v->unknown;
    t->add_bos = v->add_bos != VOCABULARY_UNSET ? v->add_bos == VOCABULARY_YES
                 : t->kind == VOCABULARY_BYTES  ? splitter_adds_bos(t->splitter)
                                                : true;
    t->add_eos = v->add_eos == VOCABULARY_YES;
    add_end(t, t->eos);
    for (uint32_t i = 0; i < v->end_count; i++)
        add_end(t, v->end_tokens[i]);
    add_ends_by_text(t);
}

/* Finds the tokens of single bytes, with which the encoding of every word begins. Special tokens
 * are not in the pieces' index, so they never occur as words. */
static void open_bytes(struct tokenizer *t)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        t->bpe.byte_ids[byte] = texts_find(&t->pieces, &text, 1);
    }
}

static enum status open_long_scores(struct tokenizer *t, const struct vocabulary *v,
                                    struct error *error)
{
    t->short_sums = v->long_scores == NULL;
    t->long_scores = malloc(v->count * sizeof(*t->long_scores));
    if (t->long_scores == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the scores of %u tokens", v->count);
    for (uint32_t id = 0; id < v->count; id++)
        t->long_scores[id] = t->short_sums ? (double)v->scores[id] : v->long_scores[id];
    return ST_OK;
}

/* Opens what depends on the kind of vocabulary; open_vocab and open_merges need it. */
static enum status open_kind(struct tokenizer *t, const struct vocabulary *v, struct error *error)
{
    t->kind = v->kind;
    t->prefix = v->prefix;
    t->blank_begins_word = v->blank_begins_word;
    for (unsigned byte = 0; byte < 256; byte++)
        t->bpe.byte_ids[byte] = TOKENIZER_NO_TOKEN;
    t->unknown_fused = v->unknown_fused;
    t->user_blanks = v->user_blanks;
    if (v->kind == VOCABULARY_UNIGRAM)
        return open_long_scores(t, v, error);
    if (v->kind == VOCABULARY_SCORES) {
        t->scores = malloc(v->count * sizeof(*t->scores));
        if (t->scores == NULL)
            return error_set(error, ST_NO_MEMORY, "no memory for the scores of %u tokens",
                             v->count);
        memcpy(t->scores, v->scores, v->count * sizeof(*t->scores));
        return ST_OK;
    }
    t->whole_words_first = v->whole_words_first == VOCABULARY_YES;
    if (v->kind == VOCABULARY_CHARACTERS)
        return ST_OK;
    enum status status =
        v->expression_count > 0
            ? splitter_open_expressions(v->expressions, v->expression_count, &t->splitter, error)
            : splitter_open(v->splitter.text, v->splitter.bytes, &t->splitter, error);
    if (status == ST_OK && v->whole_words_first == VOCABULARY_UNSET)
        t->whole_words_first = splitter_whole_words_first(t->splitter);
    return status;
}

/* Finds the bytes that never are left out. With SentencePiece, characters without a token become
 * the unknown token, or are left out if there is none. */
static void open_in_token(struct tokenizer *t)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        bool has_token = t->bpe.byte_ids[byte] != TOKENIZER_NO_TOKEN ||
                         texts_find(&t->pieces, &text, 1) != TOKENIZER_NO_TOKEN;
        t->in_token[byte] = t->kind == VOCABULARY_BYTES
                                ? has_token
                                : t->unknown != TOKENIZER_NO_TOKEN || (has_token && byte < 0x80);
    }
}

static void open_token_bytes_max(struct tokenizer *t)
{
    t->token_bytes_max = 4; /* The unknown token can stand for a character. */
    for (uint32_t id = 0; id < t->pieces.count; id++) {
        size_t bytes, blanks = 0;
        const char *piece = texts_at(&t->pieces, id, &bytes);
        /* With SentencePiece a text may spell each blank as U+2581, which has 3 bytes. */
        for (size_t i = 0; t->kind != VOCABULARY_BYTES && i < bytes; i++)
            blanks += piece[i] == ' ';
        bytes += 2 * blanks;
        t->token_bytes_max = bytes > t->token_bytes_max ? bytes : t->token_bytes_max;
    }
}

static enum status open_parts(struct tokenizer *t, const struct vocabulary *v, struct error *error)
{
    enum status status = normalizer_open(&t->normalizer, v, error);
    if (status == ST_OK)
        status = open_kind(t, v, error);
    if (status == ST_OK)
        status = open_vocab(t, v, error);
    if (status == ST_OK && v->merges_by_id)
        status = open_merges_by_id(t, error);
    else if (status == ST_OK && t->scores == NULL && t->long_scores == NULL)
        status = open_merges(t, v, error);
    if (status != ST_OK)
        return status;
    open_ids(t, v);
    if (t->kind == VOCABULARY_BYTES)
        open_bytes(t);
    if (t->kind == VOCABULARY_UNIGRAM)
        unigram_open(t);
    open_in_token(t);
    open_token_bytes_max(t);
    return ST_OK;
}

enum status tokenizer_open(struct model_file *file, struct tokenizer **out, struct error *error)
{
    const struct vocabulary *v = NULL;
    enum status status = model_file_vocabulary(file, &v, error);
    if (status != ST_OK)
        return status;
    struct tokenizer *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the tokenizer");
    status = open_parts(t, v, error);
    if (status != ST_OK) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return ST_OK;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t == NULL)
        return;
    texts_close(&t->spellings);
    texts_close(&t->pieces);
    merges_close(&t->bpe.merges);
    specials_close(&t->specials);
    splitter_close(t->splitter);
    normalizer_close(&t->normalizer);
    free(t->scores);
    free(t->long_scores);
    free(t->flags);
    free(t->words);
    free(t);
}
