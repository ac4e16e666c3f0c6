/* corpus: see the header. */
#include "bench/corpus.h"

#include "common/random.h"

#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const common_words[] = {
    "the",     "of",       "and",     "to",        "in",          "a",        "is",
    "that",    "for",      "it",      "as",        "was",         "with",     "be",
    "by",      "on",       "not",     "he",        "this",        "are",      "or",
    "his",     "from",     "at",      "which",     "but",         "have",     "an",
    "had",     "they",     "you",     "were",      "their",       "one",      "all",
    "we",      "can",      "her",     "has",       "there",       "been",     "if",
    "more",    "when",     "will",    "would",     "who",         "so",       "no",
    "people",  "water",    "between", "because",   "government",  "history",  "different",
    "energy",  "children", "against", "important", "development", "language", "understand",
    "winter",  "mountain", "usually", "probably",  "measured",    "pressure", "temperature",
    "weather", "railway",  "library", "painter",   "harbour",     "orchard",  "neighbourhood",
};

static const char *const sentences[] = {
    "The quick brown fox jumps over the lazy dog. ",
    "Der schnelle braune Fuchs springt über den faulen Hund. ",
    "Portez ce vieux whisky au juge blond qui fume. ",
    "El veloz murciélago hindú comía feliz cardillo y kiwi. ",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. ",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ",
    "نص حكيم له سر قاطع وذو شأن عظيم. ",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה. ",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। ",
    "我能吞下玻璃而不伤身体。",
    "いろはにほへと ちりぬるを わかよたれそ つねならむ。",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. ",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ",
    "😀 👩‍👩‍👧‍👦 🏳️‍🌈 🇪🇺 👍🏽 ",
};

#define WORD_COUNT     (sizeof(common_words) / sizeof(common_words[0]))
#define SENTENCE_COUNT (sizeof(sentences) / sizeof(sentences[0]))

struct maker {
    struct corpus *c;
    size_t capacity;
    uint64_t seed;
    uint64_t draws;
};

static uint32_t random_below(struct maker *m, uint32_t limit)
{
    return (uint32_t)(random_at(m->seed, m->draws++) % limit);
}

/* False: the text does not fit and was not added. */
static bool text_put(struct maker *m, const char *text, size_t bytes)
{
    if (m->c->bytes + bytes > m->capacity)
        return false;
    memcpy(m->c->text + m->c->bytes, text, bytes);
    m->c->bytes += bytes;
    return true;
}

/* Most words of a text come from the front of the list, because the product of two uniform numbers
 * is often small. */
static const char *random_word(struct maker *m)
{
    return common_words[random_below(m, WORD_COUNT) * random_below(m, WORD_COUNT) / WORD_COUNT];
}

static void make_words(struct maker *m)
{
    bool room = true;
    while (room) {
        uint32_t words = 5 + random_below(m, 20);
        for (uint32_t i = 0; i < words && room; i++) {
            char text[32];
            int bytes = snprintf(text, sizeof(text), "%s%s", random_word(m),
                                 i + 1 == words             ? "."
                                 : random_below(m, 12) == 0 ? ", "
                                                            : " ");
            if (i == 0)
                text[0] = (char)(text[0] - 'a' + 'A');
            room = text_put(m, text, (size_t)bytes);
        }
        const char *gap = random_below(m, 6) == 0 ? "\n\n" : " ";
        room = room && text_put(m, gap, strlen(gap));
    }
}

static void make_random(struct maker *m)
{
    for (;;) {
        uint32_t point = random_below(m, 0x110000);
        if (point >= 0xd800 && point < 0xe000)
            continue;
        char text[4] = {(char)point};
        size_t bytes = 1;
        if (point >= 0x80) {
            bytes = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
            for (size_t i = bytes; i-- > 1; point >>= 6)
                text[i] = (char)(0x80 | (point & 0x3f));
            text[0] = (char)(0xf0u << (4 - bytes) | point);
        }
        if (!text_put(m, text, bytes))
            return;
    }
}

static void make_from(struct maker *m, const char *alphabet)
{
    uint32_t count = (uint32_t)strlen(alphabet);
    while (text_put(m, alphabet + random_below(m, count), 1))
        ;
}

enum status corpus_make(enum corpus_kind kind, size_t bytes, uint64_t seed, struct corpus *out)
{
    static const char *const names[] = {
        [CORPUS_WORDS] = "English words",      [CORPUS_LANGUAGES] = "languages, emoji",
        [CORPUS_UNBROKEN] = "no blank",        [CORPUS_ONE_LETTER] = "aaaa",
        [CORPUS_TWO_LETTERS] = "abab",         [CORPUS_DIGITS] = "digits",
        [CORPUS_BLANKS] = "blanks, line ends", [CORPUS_MARKS] = "punctuation",
        [CORPUS_RANDOM] = "random characters",
    };
    *out = (struct corpus){.text = malloc(bytes)};
    if (out->text == NULL)
        return ST_NO_MEMORY;
    snprintf(out->name, sizeof(out->name), "%s", names[kind]);
    struct maker m = {.c = out, .capacity = bytes, .seed = seed};
    switch (kind) {
    case CORPUS_WORDS:
        make_words(&m);
        break;
    case CORPUS_LANGUAGES:
        for (const char *s = sentences[0]; text_put(&m, s, strlen(s));
             s = sentences[random_below(&m, SENTENCE_COUNT)])
            ;
        break;
    case CORPUS_UNBROKEN:
        for (const char *w = random_word(&m); text_put(&m, w, strlen(w)); w = random_word(&m))
            ;
        break;
    case CORPUS_ONE_LETTER:
        make_from(&m, "a");
        break;
    case CORPUS_TWO_LETTERS:
        while (text_put(&m, "ab", 2))
            ;
        break;
    case CORPUS_DIGITS:
        make_from(&m, "0123456789");
        break;
    case CORPUS_BLANKS:
        make_from(&m, "        \t\n");
        break;
    case CORPUS_MARKS:
        make_from(&m, "!?.,;:-=+*/()[]{}<>#@&|");
        break;
    default:
        make_random(&m);
        break;
    }
    return ST_OK;
}

/* ---- files ---- */

static bool append_file(struct corpus *c, size_t *capacity, const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return true; /* The file has disappeared; use the others. */
    size_t got = 1;
    while (got > 0) {
        if (c->bytes + 65536 > *capacity) {
            char *text = realloc(c->text, *capacity * 2 + 65536);
            if (text == NULL)
                break;
            c->text = text;
            *capacity = *capacity * 2 + 65536;
        }
        got = fread(c->text + c->bytes, 1, 65536, file);
        c->bytes += got;
    }
    fclose(file);
    return got == 0;
}

enum status corpus_read(const char *name, const char *pattern, size_t bytes, struct corpus *out)
{
    glob_t found;
    size_t capacity = 0;
    *out = (struct corpus){.text = NULL};
    snprintf(out->name, sizeof(out->name), "%s", name);
    if (glob(pattern, GLOB_BRACE, NULL, &found) != 0)
        return ST_NOT_FOUND;
    bool good = true;
    size_t before = 1;
    while (good && out->bytes < bytes && before != out->bytes) {
        before = out->bytes;
        for (size_t i = 0; good && i < found.gl_pathc && out->bytes < bytes; i++)
            good = append_file(out, &capacity, found.gl_pathv[i]);
    }
    globfree(&found);
    if (good && out->bytes > 0)
        return ST_OK;
    corpus_done(out);
    return good ? ST_NOT_FOUND : ST_NO_MEMORY;
}

void corpus_done(struct corpus *c)
{
    free(c->text);
    *c = (struct corpus){.text = NULL};
}
