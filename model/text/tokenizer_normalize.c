/* tokenizer_normalize: the steps that change a text before it is divided into words. Unicode's
 * normal forms are libunistring's. Most texts are not changed: a text of ASCII is in every normal
 * form, and libunistring's quick check finds most others. */
#include "model/text/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unicase.h>
#include <uninorm.h>
#include <unistr.h>

/* A text that grows. */
struct buffer {
    char *text;
    size_t bytes, capacity;
};

static bool buffer_add(struct buffer *b, const char *text, size_t bytes)
{
    if (b->bytes + bytes > b->capacity) {
        size_t capacity = b->bytes + bytes + (b->bytes + bytes) / 2 + 64;
        char *larger = realloc(b->text, capacity);
        if (larger == NULL)
            return false;
        b->text = larger;
        b->capacity = capacity;
    }
    if (bytes > 0)
        memcpy(b->text + b->bytes, text, bytes);
    b->bytes += bytes;
    return true;
}

static bool is_ascii(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((uint8_t)text[i] >= 0x80)
            return false;
    return true;
}

size_t character_blank(const char *text, size_t bytes)
{
    const uint8_t *t = (const uint8_t *)text;
    if (bytes >= 1 && (t[0] == ' ' || (t[0] >= 9 && t[0] <= 13)))
        return 1;
    if (bytes >= 2 && t[0] == 0xc2 && (t[1] == 0x85 || t[1] == 0xa0))
        return 2;
    if (bytes < 3)
        return 0;
    uint32_t c = (uint32_t)(t[0] & 0x0f) << 12 | (uint32_t)(t[1] & 0x3f) << 6 | (t[2] & 0x3f);
    bool blank =
        (t[0] & 0xf0) == 0xe0 && (c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
                                  c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000);
    return blank ? 3 : 0;
}

size_t character_blank_before(const char *text, size_t bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes; back++)
        if (character_blank(text + bytes - back, back) == back)
            return back;
    return 0;
}

/* ---- the steps: each writes to *out, or leaves it empty and keeps the text ---- */

/* Normalises in a form of libunistring. *same_out = the text is in this form already. */
static enum status form_apply(uninorm_t form, struct mapped_text text, struct buffer *out,
                              bool *same_out)
{
    size_t bytes = 0;
    *same_out = is_ascii(text.text, text.bytes);
    if (*same_out)
        return ST_OK;
    uint8_t *written = u8_normalize(form, (const uint8_t *)text.text, text.bytes, NULL, &bytes);
    if (written == NULL)
        return ST_NO_MEMORY;
    *out = (struct buffer){(char *)written, bytes, bytes};
    return ST_OK;
}

static enum status lowercase_apply(struct mapped_text text, struct buffer *out)
{
    for (size_t at = 0; at < text.bytes;) {
        ucs4_t character = 0;
        uint8_t lower[8];
        int taken = u8_mbtoucr(&character, (const uint8_t *)text.text + at, text.bytes - at);
        size_t length = taken > 0 ? (size_t)taken : 1;
        /* The one capital letter whose small form is two characters. */
        int bytes = character == 0x130 ? 3 : u8_uctomb(lower, uc_tolower(character), sizeof(lower));
        if (character == 0x130)
            memcpy(lower, "i\xcc\x87", 3);
        if (!buffer_add(out, (const char *)lower, bytes > 0 ? (size_t)bytes : 0))
            return ST_NO_MEMORY;
        at += length;
    }
    return ST_OK;
}

static enum status replace_apply(const struct vocabulary_step *step, struct mapped_text text,
                                 struct buffer *out)
{
    const char *at = text.text, *end = text.text + text.bytes, *found;
    while ((found = memmem(at, (size_t)(end - at), step->from.text, step->from.bytes)) != NULL) {
        if (!buffer_add(out, at, (size_t)(found - at)) ||
            !buffer_add(out, step->to.text, step->to.bytes))
            return ST_NO_MEMORY;
        at = found + step->from.bytes;
    }
    return buffer_add(out, at, (size_t)(end - at)) ? ST_OK : ST_NO_MEMORY;
}

static enum status charsmap_apply(const struct charsmap *map, struct mapped_text text,
                                  struct buffer *out)
{
    for (size_t at = 0; at < text.bytes;) {
        struct mapped_text to;
        size_t taken = charsmap_find(map, text.text + at, text.bytes - at, &to);
        if (!buffer_add(out, to.text, to.bytes))
            return ST_NO_MEMORY;
        at += taken;
    }
    return ST_OK;
}

static enum status collapse_apply(struct mapped_text text, struct buffer *out)
{
    for (size_t at = 0; at < text.bytes; at++) {
        if (text.text[at] == ' ' && (out->bytes == 0 || text.text[at - 1] == ' '))
            continue;
        if (!buffer_add(out, text.text + at, 1))
            return ST_NO_MEMORY;
    }
    while (out->bytes > 0 && out->text[out->bytes - 1] == ' ')
        out->bytes--;
    return ST_OK;
}

static struct mapped_text strip(struct mapped_text text, bool left)
{
    size_t blank;
    while (text.bytes > 0 && (blank = left ? character_blank(text.text, text.bytes)
                                           : character_blank_before(text.text, text.bytes)) > 0) {
        text.text += left ? blank : 0;
        text.bytes -= blank;
    }
    return text;
}

static enum status step_apply(const struct normalizer *n, const struct vocabulary_step *step,
                              struct mapped_text *text, struct buffer *out)
{
    bool same = false;
    enum status status = ST_OK;
    switch (step->kind) {
    case STEP_NFC:
        status = form_apply(UNINORM_NFC, *text, out, &same);
        break;
    case STEP_NFD:
        status = form_apply(UNINORM_NFD, *text, out, &same);
        break;
    case STEP_NFKC:
        status = form_apply(UNINORM_NFKC, *text, out, &same);
        break;
    case STEP_NFKD:
        status = form_apply(UNINORM_NFKD, *text, out, &same);
        break;
    case STEP_LOWERCASE:
        status = lowercase_apply(*text, out);
        break;
    case STEP_STRIP_LEFT:
    case STEP_STRIP_RIGHT:
        *text = strip(*text, step->kind == STEP_STRIP_LEFT);
        return ST_OK;
    case STEP_PREPEND:
        same = text->bytes == 0;
        if (!same && (!buffer_add(out, step->to.text, step->to.bytes) ||
                      !buffer_add(out, text->text, text->bytes)))
            return ST_NO_MEMORY;
        break;
    case STEP_REPLACE:
        status = replace_apply(step, *text, out);
        break;
    case STEP_CHARSMAP:
        status = charsmap_apply(&n->charsmap, *text, out);
        break;
    case STEP_COLLAPSE:
        status = collapse_apply(*text, out);
        break;
    }
    if (status == ST_OK && !same)
        *text = (struct mapped_text){out->text != NULL ? out->text : "", out->bytes};
    return status;
}

enum status normalizer_apply(const struct normalizer *n, struct mapped_text *text, char **owned_out)
{
    char *owned = NULL;
    for (uint32_t i = 0; i < n->step_count; i++) {
        struct buffer out = {NULL, 0, 0};
        enum status status = step_apply(n, &n->steps[i], text, &out);
        if (status != ST_OK || text->bytes > UINT32_MAX / 2) {
            free(out.text);
            free(owned);
            return status != ST_OK ? status : ST_TOO_LARGE;
        }
        if (out.text != NULL) {
            free(owned);
            owned = out.text;
        }
    }
    *owned_out = owned;
    return ST_OK;
}

/* ---- opening ---- */

/* The normal forms shorten a text to a third at most (the letters of a Hangul syllable, Kelvin's
 * sign). Other steps can shorten it to nothing. */
static size_t shrink_of(enum vocabulary_step_kind kind)
{
    switch (kind) {
    case STEP_NFC:
    case STEP_NFD:
        return 3;
    case STEP_PREPEND:
        return 1;
    default:
        return 0;
    }
}

static bool text_keep(struct mapped_text *text)
{
    char *copy = malloc(text->bytes + 1);
    if (copy == NULL)
        return false;
    if (text->bytes > 0)
        memcpy(copy, text->text, text->bytes);
    text->text = copy;
    return true;
}

enum status normalizer_open(struct normalizer *n, const struct vocabulary *v, struct error *error)
{
    n->shrink = 1;
    for (uint32_t i = 0; i < v->step_count; i++) {
        struct vocabulary_step step = v->steps[i];
        bool kept = text_keep(&step.from);
        if (kept && !text_keep(&step.to)) {
            free((char *)step.from.text);
            kept = false;
        }
        if (!kept)
            return error_set(error, ST_NO_MEMORY, "no memory for the tokenizer's normalizer");
        n->steps[n->step_count++] = step;
        n->shrink *= shrink_of(step.kind);
        if (step.kind == STEP_CHARSMAP && !charsmap_open(&n->charsmap, step.from))
            return error_set(
                error, ST_INVALID,
                "the tokenizer's precompiled_charsmap of %zu bytes is cut or malformed",
                step.from.bytes);
    }
    return ST_OK;
}

void normalizer_close(struct normalizer *n)
{
    for (uint32_t i = 0; i < n->step_count; i++) {
        free((char *)n->steps[i].from.text);
        free((char *)n->steps[i].to.text);
    }
}
