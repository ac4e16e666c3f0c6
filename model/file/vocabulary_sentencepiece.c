/* vocabulary_sentencepiece: reads tokenizer.model, the model file of SentencePiece, of a folder
 * without tokenizer.json: pieces with scores and types, and how a text is normalised. Texts stay in
 * the file's mapping. Further tokens are in tokenizer_config.json or added_tokens.json
 * (vocabulary_json.c). Field numbers: sentencepiece_model.proto. */
#include "model/file/protobuf.h"
#include "model/file/vocabulary_read.h"

#include <math.h>
#include <stdlib.h>

#define FILE_NAME "tokenizer.model"

enum { OWNED_TOKENS, OWNED_TYPES, OWNED_FINDS, OWNED_SCORES };

enum model_field { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum piece_field { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum trainer_field { TRAINER_TYPE = 3, TRAINER_SUFFIX = 24, TRAINER_BOS = 41, TRAINER_EOS = 42 };
enum trainer_type { TRAINER_UNIGRAM = 1, TRAINER_BPE = 2 };
enum normalizer_field {
    NORMALIZER_CHARSMAP = 2,
    NORMALIZER_DUMMY_PREFIX = 3,
    NORMALIZER_REMOVE_BLANKS = 4,
    NORMALIZER_ESCAPE_BLANKS = 5
};

struct reader {
    struct vocabulary *v;
    struct mapped_text *tokens;
    int32_t *types;
    float *scores;
    uint32_t pieces; /* Read so far. */
    bool prefix, collapse;
    struct mapped_text charsmap;
    struct error *error;
};

static enum status malformed(const struct reader *r, const char *what)
{
    return error_set(r->error, ST_INVALID, FILE_NAME ": %s %u is cut or malformed", what,
                     r->pieces);
}

static enum status read_piece(struct reader *r, struct mapped_text message)
{
    struct protobuf p = protobuf_begin(message);
    struct protobuf_field field;
    struct mapped_text text = {"", 0};
    float score = 0;
    uint64_t type = TOKEN_NORMAL;
    while (protobuf_next(&p, &field)) {
        if (field.number == PIECE_TEXT && field.bytes.text != NULL)
            text = field.bytes;
        else if (field.number == PIECE_SCORE)
            score = protobuf_float(&field);
        else if (field.number == PIECE_TYPE)
            type = field.value;
    }
    if (p.malformed || type < TOKEN_NORMAL || type > TOKEN_BYTE || !isfinite(score))
        return malformed(r, "piece");
    if (r->pieces == r->v->count)
        return error_set(r->error, ST_INVALID,
                         FILE_NAME " has more pieces than the embedding has rows, which are %u",
                         r->v->count);
    r->tokens[r->pieces] = text;
    r->types[r->pieces] = (int32_t)type;
    r->scores[r->pieces] = score;
    if (type == TOKEN_UNKNOWN)
        r->v->unknown = r->pieces;
    r->pieces++;
    return ST_OK;
}

/* Ids are signed; -1 = none. */
static uint32_t id_of(const struct protobuf_field *field)
{
    return field->value < VOCABULARY_TOKENS_MAX ? (uint32_t)field->value : VOCABULARY_NO_TOKEN;
}

static enum status read_trainer(struct reader *r, struct mapped_text message)
{
    struct protobuf p = protobuf_begin(message);
    struct protobuf_field field;
    uint64_t type = TRAINER_UNIGRAM, suffix = 0;
    while (protobuf_next(&p, &field))
        switch (field.number) {
        case TRAINER_TYPE:
            type = field.value;
            break;
        case TRAINER_SUFFIX:
            suffix = field.value;
            break;
        case TRAINER_BOS:
            r->v->bos = id_of(&field);
            break;
        case TRAINER_EOS:
            r->v->eos = id_of(&field);
            break;
        default:
            break;
        }
    if (p.malformed)
        return malformed(r, "trainer_spec, behind piece");
    if ((type != TRAINER_UNIGRAM && type != TRAINER_BPE) || suffix != 0)
        return error_set(r->error, ST_UNSUPPORTED,
                         FILE_NAME ": trainer_spec: model_type is %u and "
                                   "treat_whitespace_as_suffix %u: supported are 1 (unigram) and 2 "
                                   "(BPE), and 0",
                         (unsigned)type, (unsigned)suffix);
    r->v->kind = type == TRAINER_BPE ? VOCABULARY_SCORES : VOCABULARY_UNIGRAM;
    return ST_OK;
}

static enum status read_normalizer(struct reader *r, struct mapped_text message)
{
    struct protobuf p = protobuf_begin(message);
    struct protobuf_field field;
    bool escapes = true;
    while (protobuf_next(&p, &field))
        switch (field.number) {
        case NORMALIZER_CHARSMAP:
            r->charsmap = field.bytes;
            break;
        case NORMALIZER_DUMMY_PREFIX:
            r->prefix = field.value != 0;
            break;
        case NORMALIZER_REMOVE_BLANKS:
            r->collapse = field.value != 0;
            break;
        case NORMALIZER_ESCAPE_BLANKS:
            escapes = field.value != 0;
            break;
        default:
            break;
        }
    if (p.malformed)
        return malformed(r, "normalizer_spec, behind piece");
    return escapes
               ? ST_OK
               : error_set(r->error, ST_UNSUPPORTED,
                           FILE_NAME ": normalizer_spec: escape_whitespaces is false: supported "
                                     "is true");
}

static enum status read_fields(struct reader *r, struct mapped_text file)
{
    struct protobuf p = protobuf_begin(file);
    struct protobuf_field field;
    enum status status = ST_OK;
    while (status == ST_OK && protobuf_next(&p, &field)) {
        if (field.bytes.text == NULL)
            continue;
        if (field.number == MODEL_PIECE)
            status = read_piece(r, field.bytes);
        else if (field.number == MODEL_TRAINER)
            status = read_trainer(r, field.bytes);
        else if (field.number == MODEL_NORMALIZER)
            status = read_normalizer(r, field.bytes);
    }
    if (status == ST_OK && p.malformed)
        return malformed(r, "the file behind piece");
    if (status == ST_OK && r->pieces == 0)
        return error_set(r->error, ST_INVALID,
                         FILE_NAME " has no pieces: want a SentencePiece model");
    return status;
}

static void steps_set(const struct reader *r)
{
    struct vocabulary *v = r->v;
    if (r->charsmap.bytes > 0)
        v->steps[v->step_count++] =
            (struct vocabulary_step){.kind = STEP_CHARSMAP, .from = r->charsmap};
    if (r->collapse)
        v->steps[v->step_count++] = (struct vocabulary_step){.kind = STEP_COLLAPSE};
    v->prefix = r->prefix ? VOCABULARY_PREFIX_ALWAYS : VOCABULARY_PREFIX_NONE;
}

enum status vocabulary_read_sentencepiece(struct mapped_text file, struct vocabulary *v,
                                          struct error *error)
{
    struct reader r = {.v = v,
                       .tokens = calloc(v->count, sizeof(*r.tokens)),
                       .types = calloc(v->count, sizeof(*r.types)),
                       .scores = calloc(v->count, sizeof(*r.scores)),
                       .prefix = true,
                       .collapse = true,
                       .error = error};
    uint8_t *finds = calloc(v->count, sizeof(*finds));
    v->owned[OWNED_TOKENS] = r.tokens;
    v->owned[OWNED_TYPES] = r.types;
    v->owned[OWNED_FINDS] = finds;
    v->owned[OWNED_SCORES] = r.scores;
    v->tokens = r.tokens;
    v->types = r.types;
    v->find_flags = finds;
    v->scores = r.scores;
    if (r.tokens == NULL || r.types == NULL || finds == NULL || r.scores == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a vocabulary of %u tokens", v->count);
    v->kind = VOCABULARY_UNIGRAM; /* The defaults of the file's schema. */
    v->bos = 1;
    v->eos = 2;
    v->unknown_fused = true;
    v->user_blanks = true;
    enum status status = read_fields(&r, file);
    if (status != ST_OK)
        return status;
    for (uint32_t id = r.pieces; id < v->count; id++) {
        r.tokens[id] = mapped_text_of("");
        r.types[id] = TOKEN_UNUSED;
    }
    if (v->bos >= r.pieces || r.types[v->bos] != TOKEN_CONTROL)
        v->bos = VOCABULARY_NO_TOKEN;
    if (v->eos >= r.pieces || r.types[v->eos] != TOKEN_CONTROL)
        v->eos = VOCABULARY_NO_TOKEN;
    steps_set(&r);
    return ST_OK;
}
