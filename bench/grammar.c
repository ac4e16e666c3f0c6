/* bench-grammar [MODEL | --dump FILE]: measures constrained output: the time to compile a
 * constraint, and the time per token (mask and advance) of answers that follow it. The vocabulary
 * is a model's, or by default a synthetic one of 151,000 tokens. Answers are drawn with fixed
 * seeds from the masks, with a preference for tokens that end a string, a list or an object, as
 * in real texts. Times are CPU times of the thread.
 *
 * * Each constraint is compiled again for each repeat. "cold" is its first answer, which finds the
 * states and the masks; "warm" are the answers after it.
 *
 * * --dump writes the vocabulary, the constraints and their answers as JSON, for
 * bench_grammar_peers.py, which makes other libraries follow the same answers. */
#include "model/grammar/grammar.h"
#include "common/random.h"
#include "model/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOKENS     151000u
#define REPEATS    9
#define ANSWERS    8 /* Per repeat; the first is cold. */
#define STEPS_MAX  400
#define BYTES_EACH 16 /* Most bytes of a synthetic token. */

static const struct {
    const char *name;
    const char *text;
} constraints[] = {
    {"object of 3",
     "json_schema:{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{"
     "\"type\":"
     "\"integer\"},\"city\":{\"type\":\"string\"}},\"required\":[\"name\",\"age\",\"city\"],"
     "\"additionalProperties\":false}"},
    {"tool call", "json_schema:{\"type\":\"object\",\"properties\":{\"location\":{\"type\":"
                  "\"string\",\"description\":"
                  "\"City\"},\"unit\":{\"type\":\"string\",\"enum\":[\"celsius\",\"fahrenheit\"]},"
                  "\"days\":{\"type\":"
                  "\"integer\",\"minimum\":1,\"maximum\":14}},\"required\":[\"location\"],"
                  "\"additionalProperties\":"
                  "false}"},
    {"bounded strings",
     "json_schema:{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\","
     "\"maxLength\":80},"
     "\"body\":{\"type\":\"string\",\"minLength\":20,\"maxLength\":2000}},\"required\":[\"title\","
     "\"body\"],\"additionalProperties\":false}"},
    {"list of records",
     "json_schema:{\"type\":\"array\",\"maxItems\":20,\"items\":{\"type\":\"object\","
     "\"properties\":{"
     "\"id\":{\"type\":\"integer\"},\"price\":{\"type\":\"number\",\"minimum\":0},\"date\":{"
     "\"type\":"
     "\"string\",\"format\":\"date\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"
     "},"
     "\"required\":[\"id\",\"price\",\"date\"],\"additionalProperties\":false}}"},
    {"recursive",
     "json_schema:{\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"value\":{\"type\":"
     "\"string\"},\"children\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
     "node\"}}},\"required\":"
     "[\"value\"],\"additionalProperties\":false}},\"$ref\":\"#/$defs/node\"}"},
    {"anyOf of tools",
     "json_schema:{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"tool\":{\"const\":\"search\"},"
     "\"query\":{\"type\":\"string\"}},\"required\":[\"tool\",\"query\"],\"additionalProperties\":"
     "false},"
     "{\"type\":\"object\",\"properties\":{\"tool\":{\"const\":\"open\"},\"url\":{\"type\":"
     "\"string\","
     "\"format\":\"uri\"}},\"required\":[\"tool\",\"url\"],\"additionalProperties\":false},{"
     "\"type\":"
     "\"object\",\"properties\":{\"tool\":{\"const\":\"wait\"},\"seconds\":{\"type\":\"number\"}},"
     "\"required\":[\"tool\",\"seconds\"],\"additionalProperties\":false}]}"},
    {"open object", "json_schema:{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\","
                    "\"format\":\"uuid\"},"
                    "\"email\":{\"type\":\"string\",\"format\":\"email\"},\"name\":{\"type\":["
                    "\"string\",\"null\"]}},"
                    "\"required\":[\"id\"]}"},
    {"pattern and length",
     "json_schema:{\"type\":\"object\",\"properties\":{\"slug\":{\"type\":\"string\",\"pattern\":"
     "\"^[a-z0-9]+(-[a-z0-9]+)*$\",\"maxLength\":63},\"phone\":{\"type\":\"string\",\"pattern\":"
     "\"^\\\\+?[0-9]{7,15}$\"}},\"required\":[\"slug\",\"phone\"],\"additionalProperties\":false}"},
    {"json_object", "json_object:"},
    {"regex", "regex:[A-Z][a-z]+ [A-Z][a-z]+, (born|died) [12][0-9]{3}"},
    {"GBNF", "grammar:root ::= expr\nexpr ::= term ([-+] term)*\nterm ::= factor ([*/] "
             "factor)*\nfactor ::= "
             "[0-9]+ | \"(\" expr \")\" | [a-z]+"},
};
#define CONSTRAINTS (sizeof(constraints) / sizeof(constraints[0]))

/* ---- the vocabulary ---- */

struct words {
    char bytes[TOKENS][BYTES_EACH];
    uint8_t counts[TOKENS];
};

static const char *word_of(const void *self, uint32_t id, size_t *bytes_out, bool *control_out)
{
    const struct words *w = self;
    (void)control_out;
    *bytes_out = w->counts[id];
    return w->bytes[id];
}

/* Makes the vocabulary: all bytes, then words of two to five syllables, half of them after a blank,
 * some with JSON punctuation before or after them, some of characters of three bytes, and
 * numbers. */
static void words_make(struct words *w)
{
    static const char *const syllables[] = {
        "an", "be", "ca",  "der", "el", "fo", "gen",  "hi", "in",  "ju", "ka", "lo", "men",
        "no", "or", "pre", "qui", "re", "st", "tion", "un", "ver", "wa", "ex", "ly", "zo"};
    static const char *const marks[] = {"\"", "\":", "\",", "\": \"", "\"}",
                                        ",",  "{\"", "[\"", "."};
    for (uint32_t id = 0; id < TOKENS; id++) {
        char text[64] = "";
        uint64_t r = random_at(7, id);
        if (id < 256) {
            w->bytes[id][0] = (char)id;
            w->counts[id] = 1;
            continue;
        }
        if (r % 50 == 0)
            snprintf(text, sizeof(text), "%u", (uint32_t)(r >> 8) % 10000);
        else if (r % 11 == 0)
            snprintf(text, sizeof(text), "\xE4%c%c\xE5%c%c", (char)(0x80 + (r >> 8) % 64),
                     (char)(0x80 + (r >> 16) % 64), (char)(0x80 + (r >> 24) % 64),
                     (char)(0x80 + (r >> 32) % 64));
        else {
            bool mark = r % 23 == 0;
            if (mark && (r >> 40) % 2 == 0)
                strcat(text, marks[(r >> 44) % 9]);
            else if ((r >> 41) % 2 == 0)
                strcat(text, " ");
            for (uint32_t k = 0; k < 2 + (r >> 48) % 4; k++)
                strcat(text, syllables[(r >> (8 + 6 * k)) % 26]);
            if (mark && (r >> 40) % 2 == 1)
                strcat(text, marks[(r >> 44) % 9]);
        }
        size_t bytes = strlen(text);
        w->counts[id] = (uint8_t)(bytes < BYTES_EACH ? bytes : BYTES_EACH);
        memcpy(w->bytes[id], text, w->counts[id]);
    }
}

static const char *piece_of(const void *self, uint32_t id, size_t *bytes_out, bool *control_out)
{
    const struct tokenizer *t = self;
    *control_out = tokenizer_is_special(t, id);
    return tokenizer_piece(t, id, bytes_out);
}

static struct grammar_vocabulary *vocabulary_open(const char *model, struct error *error)
{
    struct grammar_vocabulary *v = NULL;
    if (model == NULL) {
        struct words *w = malloc(sizeof(*w));
        if (w != NULL) {
            words_make(w);
            grammar_vocabulary_open(TOKENS, word_of, w, &v, error);
        }
        free(w);
        return v;
    }
    struct model_file *file;
    struct tokenizer *t;
    if (model_file_open(model, &file, error) != ST_OK)
        return NULL;
    if (tokenizer_open(file, &t, error) == ST_OK) {
        grammar_vocabulary_open(tokenizer_token_count(t), piece_of, t, &v, error);
        tokenizer_close(t);
    }
    model_file_close(file);
    return v;
}

/* ---- measuring ---- */

struct times {
    double *us;
    size_t count, capacity;
};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void times_add(struct times *t, double us)
{
    if (t->count == t->capacity) {
        t->capacity = t->capacity == 0 ? 4096 : 2 * t->capacity;
        t->us = realloc(t->us, t->capacity * sizeof(*t->us));
        if (t->us == NULL)
            abort();
    }
    t->us[t->count++] = us;
}

static int by_value(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static double quantile(struct times *t, double q)
{
    qsort(t->us, t->count, sizeof(*t->us), by_value);
    return t->count > 0 ? t->us[(size_t)(q * (double)(t->count - 1))] : 0;
}

/* Chooses a token of the mask: often one that ends a part of the text, else the first one from a
 * random id on. Returns UINT32_MAX if there is none. Requires that most ids below 256 are single
 * bytes. */
static uint32_t choose(const uint32_t *mask, uint32_t count, uint64_t r)
{
    static const char enders[] = "\"}],:";
    for (size_t i = 0; i < sizeof(enders) - 1 && r % 10 == 0; i++)
        if (mask[(uint8_t)enders[i] / 32] >> enders[i] % 32 & 1)
            return (uint8_t)enders[i];
    uint32_t from = (uint32_t)(r >> 16) % count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = from + i < count ? from + i : from + i - count;
        if (mask[id / 32] >> id % 32 & 1)
            return id;
    }
    return UINT32_MAX;
}

/* dump: where the ids of the answer are written, as a JSON list; NULL = nowhere. */
static void answer(struct grammar *g, uint32_t *mask, uint32_t count, uint64_t seed,
                   struct times *times, FILE *dump)
{
    struct grammar_run *run;
    struct error error = {0};
    if (grammar_run_open(g, &run, &error) != ST_OK)
        exit(1);
    for (uint64_t step = 0; step < STEPS_MAX; step++) {
        double begin = now_us();
        enum status status = grammar_run_mask(run, mask, &error);
        double masked = now_us() - begin;
        uint32_t id = status == ST_OK ? choose(mask, count, random_at(seed, step)) : UINT32_MAX;
        if (id == UINT32_MAX)
            break;
        begin = now_us();
        status = grammar_run_token(run, id, &error);
        times_add(times, masked + now_us() - begin);
        if (dump != NULL)
            fprintf(dump, step > 0 ? ",%u" : "%u", id);
    }
    grammar_run_close(run);
}

static void measure(const struct grammar_vocabulary *v, uint32_t *mask, size_t index,
                    struct times *compiles, struct times *cold, struct times *warm)
{
    const char *text = constraints[index].text;
    for (uint64_t repeat = 0; repeat < REPEATS; repeat++) {
        struct grammar *g;
        struct error error;
        double begin = now_us();
        if (grammar_open(text, strlen(text), v, &g, &error) != ST_OK) {
            fprintf(stderr, "%s: %s\n", constraints[index].name, error.text);
            exit(1);
        }
        times_add(compiles, now_us() - begin);
        for (uint64_t k = 0; k < ANSWERS; k++)
            answer(g, mask, grammar_vocabulary_count(v), repeat * ANSWERS + k + 1,
                   k == 0 ? cold : warm, NULL);
        grammar_close(g);
    }
}

/* ---- for other libraries ---- */

static void string_dump(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != 0; text++)
        fprintf(out, (unsigned char)*text < ' ' || strchr("\"\\", *text) != NULL ? "\\u%04x" : "%c",
                (unsigned char)*text);
    fputc('"', out);
}

/* Writes the synthetic vocabulary, the constraints, and the answers of the first repeat. */
static void dump_write(FILE *out, const struct grammar_vocabulary *v, uint32_t *mask)
{
    struct words *w = malloc(sizeof(*w));
    struct times ignored = {0};
    if (w == NULL)
        return;
    words_make(w);
    fprintf(out, "{\"tokens\":[");
    for (uint32_t id = 0; id < TOKENS; id++) {
        fprintf(out, id > 0 ? ",\"" : "\"");
        for (uint32_t i = 0; i < w->counts[id]; i++)
            fprintf(out, "%02x", (unsigned char)w->bytes[id][i]);
        fputc('"', out);
    }
    fprintf(out, "],\"constraints\":[");
    for (size_t i = 0; i < CONSTRAINTS; i++) {
        struct grammar *g;
        struct error error;
        const char *text = constraints[i].text;
        if (grammar_open(text, strlen(text), v, &g, &error) != ST_OK)
            exit(1);
        fprintf(out, i > 0 ? ",{\"name\":" : "{\"name\":");
        string_dump(out, constraints[i].name);
        fprintf(out, ",\"text\":");
        string_dump(out, text);
        fprintf(out, ",\"answers\":[");
        for (uint64_t k = 0; k < ANSWERS; k++) {
            fprintf(out, k > 0 ? ",[" : "[");
            answer(g, mask, grammar_vocabulary_count(v), k + 1, &ignored, out);
            fputc(']', out);
        }
        fprintf(out, "]}");
        grammar_close(g);
    }
    fprintf(out, "]}\n");
    free(ignored.us);
    free(w);
}

int main(int argc, char **argv)
{
    struct error error = {"out of memory"};
    double begin = now_us();
    bool dumps = argc == 3 && strcmp(argv[1], "--dump") == 0;
    struct grammar_vocabulary *v = vocabulary_open(argc > 1 && !dumps ? argv[1] : NULL, &error);
    if (v == NULL) {
        fprintf(stderr, "bench-grammar: %s\n", error.text);
        return 1;
    }
    uint32_t count = grammar_vocabulary_count(v);
    uint32_t *mask = calloc(GRAMMAR_MASK_WORDS(count), sizeof(*mask));
    struct times all_compiles = {0}, all_warm = {0};
    if (mask == NULL)
        return 1;
    if (dumps) {
        FILE *out = fopen(argv[2], "w");
        if (out == NULL)
            return 1;
        dump_write(out, v, mask);
        return fclose(out) == 0 ? 0 : 1;
    }
    printf("%u tokens, tree built in %.0f ms\n", count, (now_us() - begin) / 1000);
    printf("%-20s %10s | %26s | %34s\n", "", "compile", "cold, us per token", "warm, us per token");
    printf("%-20s %10s | %8s %8s %8s | %8s %8s %8s %7s\n", "constraint", "ms", "median", "99 %",
           "most", "median", "99 %", "most", "tokens");
    for (size_t i = 0; i < CONSTRAINTS; i++) {
        struct times compiles = {0}, cold = {0}, warm = {0};
        measure(v, mask, i, &compiles, &cold, &warm);
        printf("%-20s %10.2f | %8.1f %8.1f %8.0f | %8.1f %8.1f %8.0f %7zu\n", constraints[i].name,
               quantile(&compiles, 0.5) / 1000, quantile(&cold, 0.5), quantile(&cold, 0.99),
               quantile(&cold, 1), quantile(&warm, 0.5), quantile(&warm, 0.99), quantile(&warm, 1),
               warm.count);
        times_add(&all_compiles, quantile(&compiles, 0.5));
        for (size_t k = 0; k < warm.count; k++)
            times_add(&all_warm, warm.us[k]);
        free(compiles.us);
        free(cold.us);
        free(warm.us);
    }
    printf("all: compile %.2f ms (median of the constraints), %.1f us per warm token (median)\n",
           quantile(&all_compiles, 0.5) / 1000, quantile(&all_warm, 0.5));
    free(all_compiles.us);
    free(all_warm.us);
    free(mask);
    grammar_vocabulary_close(v);
    return 0;
}
