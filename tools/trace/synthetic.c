/* trace_synthetic: see the header. Every random number depends only on the seed, the kind of draw,
 * and the number of earlier draws of that kind. */
#include "tools/trace/synthetic.h"

#include "common/random.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_KEPT_MAX (1u << 20)
#define TEXT_BYTES    1024
#define TAU           6.283185307179586

enum arrivals { ARRIVALS_POISSON, ARRIVALS_GAMMA, ARRIVALS_ON_OFF, ARRIVALS_COUNT };
enum draws { DRAW_GAP, DRAW_PROMPT, DRAW_OUTPUT, DRAW_ROW, DRAW_KEPT, DRAW_COUNT };
enum law { LAW_NONE, LAW_FIXED, LAW_UNIFORM, LAW_LOGNORMAL };

static const char *const arrival_names[ARRIVALS_COUNT] = {"poisson", "gamma", "onoff"};

struct lengths {
    enum law law;
    double a, b; /* fixed: N. uniform: least and greatest. lognormal: median and sigma. */
};

struct trace_synthetic {
    enum arrivals arrivals;
    double rate_per_s;
    double cv;
    double on_s, off_s;
    double seconds;         /* 0 = not limited by time. */
    uint64_t request_count; /* 0 = not limited by number. */
    uint64_t seed;
    struct lengths prompt, output;
    char rows_path[TEXT_BYTES];
    uint32_t (*rows)[2]; /* NULL = lengths are drawn. */
    uint64_t row_count;
    bool skip; /* Skip wrong rows of the file. */
    uint64_t skipped;
    struct error first_skipped;

    uint64_t drawn[DRAW_COUNT];
    double busy_s; /* Time in which requests arrive; onoff leaves out its pauses. */
    uint64_t next_id;
};

/* ---- random draws ---- */

/* Uniform in (0, 1). */
static double draw(struct trace_synthetic *s, enum draws kind)
{
    uint64_t bits = random_at(random_at(s->seed, (uint64_t)kind), s->drawn[kind]++);
    return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

/* Box and Muller. The second value of a pair is dropped, so that each value has its own draws. */
static double draw_normal(struct trace_synthetic *s, enum draws kind)
{
    double radius = sqrt(-2 * log(draw(s, kind)));
    return radius * cos(TAU * draw(s, kind));
}

/* Gamma distribution with this shape and scale 1 (Marsaglia and Tsang, "A simple method for
 * generating gamma variables", 2000). */
static double draw_gamma(struct trace_synthetic *s, double shape)
{
    if (shape < 1) {
        double u = draw(s, DRAW_GAP);
        return draw_gamma(s, shape + 1) * pow(u, 1 / shape);
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = draw_normal(s, DRAW_GAP), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(draw(s, DRAW_GAP)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}

static double draw_gap(struct trace_synthetic *s)
{
    if (s->arrivals != ARRIVALS_GAMMA)
        return -log(draw(s, DRAW_GAP)) / s->rate_per_s;
    double shape = 1 / (s->cv * s->cv);
    return draw_gamma(s, shape) / (shape * s->rate_per_s);
}

static uint32_t draw_length(struct trace_synthetic *s, const struct lengths *lengths,
                            enum draws kind)
{
    double value = lengths->a;
    if (lengths->law == LAW_UNIFORM)
        value = lengths->a + floor(draw(s, kind) * (lengths->b - lengths->a + 1));
    else if (lengths->law == LAW_LOGNORMAL)
        value = round(lengths->a * exp(lengths->b * draw_normal(s, kind)));
    return value < 1 ? 1 : value > TRACE_TOKENS_MAX ? TRACE_TOKENS_MAX : (uint32_t)value;
}

enum status trace_synthetic_next(struct trace_synthetic *s, struct trace_row *row_out)
{
    if (s->request_count > 0 && s->next_id == s->request_count)
        return ST_NOT_FOUND;
    s->busy_s += draw_gap(s);
    struct trace_row row = {.at_s = s->busy_s, .id = s->next_id, .line = s->next_id + 1};
    if (s->arrivals == ARRIVALS_ON_OFF)
        row.at_s += floor(s->busy_s / s->on_s) * s->off_s;
    if (s->seconds > 0 && row.at_s >= s->seconds)
        return ST_NOT_FOUND;
    if (s->rows != NULL) {
        uint64_t at = (uint64_t)(draw(s, DRAW_ROW) * (double)s->row_count);
        row.prompt_tokens = s->rows[at][0];
        row.output_tokens = s->rows[at][1];
    } else {
        row.prompt_tokens = draw_length(s, &s->prompt, DRAW_PROMPT);
        row.output_tokens = draw_length(s, &s->output, DRAW_OUTPUT);
    }
    s->next_id++;
    *row_out = row;
    return ST_OK;
}

/* ---- the text ---- */

static const struct key {
    const char *name;
    size_t offset;
    double low, high;
} keys[] = {
    {"rate", offsetof(struct trace_synthetic, rate_per_s), 1e-9, 1e9},
    {"cv", offsetof(struct trace_synthetic, cv), 0.01, 100},
    {"on", offsetof(struct trace_synthetic, on_s), 1e-6, 1e9},
    {"off", offsetof(struct trace_synthetic, off_s), 0, 1e9},
    {"seconds", offsetof(struct trace_synthetic, seconds), 1e-6, 1e10},
};

static bool number_read(const char *text, char end_char, double low, double high, double *out,
                        const char **end_out)
{
    char *end;
    *out = strtod(text, &end);
    *end_out = end;
    return end != text && *end == end_char && *out >= low && *out <= high;
}

/* fixed:N, uniform:LEAST:MOST, lognormal:MEDIAN:SIGMA */
static bool lengths_read(const char *text, struct lengths *out)
{
    static const struct {
        const char *name;
        enum law law;
        double b_high;
    } laws[] = {{"fixed:", LAW_FIXED, 0},
                {"uniform:", LAW_UNIFORM, TRACE_TOKENS_MAX},
                {"lognormal:", LAW_LOGNORMAL, 10}};
    for (size_t i = 0; i < sizeof(laws) / sizeof(laws[0]); i++) {
        size_t size = strlen(laws[i].name);
        if (strncmp(text, laws[i].name, size) != 0)
            continue;
        bool two = laws[i].law != LAW_FIXED;
        const char *end;
        out->law = laws[i].law;
        if (!number_read(text + size, two ? ':' : 0, 1, TRACE_TOKENS_MAX, &out->a, &end))
            return false;
        if (laws[i].law != LAW_LOGNORMAL && out->a != floor(out->a))
            return false;
        double b_low = laws[i].law == LAW_UNIFORM ? out->a : 0;
        return !two || (number_read(end + 1, 0, b_low, laws[i].b_high, &out->b, &end) &&
                        (laws[i].law != LAW_UNIFORM || out->b == floor(out->b)));
    }
    return false;
}

static enum status whole_read(const char *name, const char *value, uint64_t *out,
                              struct error *error)
{
    double number;
    const char *end;
    if (!number_read(value, 0, 0, 9e15, &number, &end) || number != floor(number))
        return error_set(error, ST_INVALID, "%s=%.60s: want a whole number from 0 to 9e15", name,
                         value);
    *out = (uint64_t)number;
    return ST_OK;
}

static enum status key_read(struct trace_synthetic *s, const char *name, const char *value,
                            struct error *error)
{
    if (strcmp(name, "requests") == 0)
        return whole_read(name, value, &s->request_count, error);
    if (strcmp(name, "seed") == 0)
        return whole_read(name, value, &s->seed, error);
    if (strcmp(name, "prompt") == 0 || strcmp(name, "output") == 0) {
        if (lengths_read(value, name[0] == 'p' ? &s->prompt : &s->output))
            return ST_OK;
        return error_set(error, ST_INVALID,
                         "%s=%.60s: want fixed:N, uniform:LEAST:MOST or lognormal:MEDIAN:SIGMA",
                         name, value);
    }
    if (strcmp(name, "lengths") == 0) {
        snprintf(s->rows_path, sizeof(s->rows_path), "%s", value);
        return ST_OK;
    }
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        double number;
        const char *end;
        if (strcmp(name, keys[i].name) != 0)
            continue;
        if (!number_read(value, 0, keys[i].low, keys[i].high, &number, &end))
            return error_set(error, ST_INVALID, "%s=%.60s: want a number from %g to %g", name,
                             value, keys[i].low, keys[i].high);
        memcpy((char *)s + keys[i].offset, &number, sizeof(number));
        return ST_OK;
    }
    return error_set(error, ST_INVALID,
                     "unknown key \"%.60s\": want rate, cv, on, off, seconds, requests, prompt, "
                     "output, lengths or seed",
                     name);
}

/* Reads "key=value,…", and cuts the text into pieces. */
static enum status keys_read(struct trace_synthetic *s, char *text, struct error *error)
{
    while (text != NULL && *text != 0) {
        char *key = text, *comma = strchr(text, ',');
        text = comma != NULL ? comma + 1 : NULL;
        if (comma != NULL)
            *comma = 0;
        char *equals = strchr(key, '=');
        if (equals == NULL)
            return error_set(error, ST_INVALID, "\"%.60s\": want key=value", key);
        *equals = 0;
        enum status status = key_read(s, key, equals + 1, error);
        if (status != ST_OK)
            return status;
    }
    return ST_OK;
}

/* Checks the keys against each other. */
static enum status check(const struct trace_synthetic *s, struct error *error)
{
    bool rows = s->rows_path[0] != 0;
    bool laws = s->prompt.law != LAW_NONE && s->output.law != LAW_NONE;
    if (s->rate_per_s == 0)
        return error_set(error, ST_INVALID, "want rate=REQUESTS_A_SECOND");
    if (s->seconds == 0 && s->request_count == 0)
        return error_set(error, ST_INVALID,
                         "want seconds=N or requests=N, otherwise the workload never ends");
    if (rows == laws || (rows && (s->prompt.law != LAW_NONE || s->output.law != LAW_NONE)))
        return error_set(error, ST_INVALID, "want prompt= and output=, or lengths=FILE");
    if (s->arrivals == ARRIVALS_GAMMA && s->cv == 0)
        return error_set(error, ST_INVALID, "want cv=COEFFICIENT_OF_VARIATION");
    if (s->arrivals == ARRIVALS_ON_OFF && s->on_s == 0)
        return error_set(error, ST_INVALID, "want on=SECONDS");
    if ((s->cv > 0 && s->arrivals != ARRIVALS_GAMMA) ||
        ((s->on_s > 0 || s->off_s > 0) && s->arrivals != ARRIVALS_ON_OFF))
        return error_set(error, ST_INVALID, "only gamma has cv, only onoff has on and off");
    return ST_OK;
}

/* ---- lengths of a trace ---- */

/* Keeps each row with the same probability: row n replaces a random one (Vitter's algorithm R). */
static void row_keep(struct trace_synthetic *s, uint64_t seen, const struct trace_row *row)
{
    uint64_t at = seen;
    if (seen >= ROWS_KEPT_MAX)
        at = (uint64_t)(draw(s, DRAW_KEPT) * (double)(seen + 1));
    if (at >= ROWS_KEPT_MAX)
        return;
    s->rows[at][0] = row->prompt_tokens;
    s->rows[at][1] = row->output_tokens;
    if (at == s->row_count)
        s->row_count++;
}

static enum status rows_read(struct trace_synthetic *s, struct error *error)
{
    struct trace *trace;
    struct trace_row row;
    if (trace_is_synthetic(s->rows_path))
        return error_set(error, ST_INVALID, "lengths=%.60s: want a file", s->rows_path);
    s->rows = malloc(ROWS_KEPT_MAX * sizeof(s->rows[0]));
    if (s->rows == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    const struct trace_options options = {.name = s->rows_path, .skip = s->skip};
    enum status status = trace_open(&options, &trace, error);
    if (status != ST_OK)
        return status;
    for (uint64_t seen = 0; (status = trace_next(trace, &row, error)) == ST_OK; seen++)
        row_keep(s, seen, &row);
    s->skipped = trace_skipped(trace);
    error_set(&s->first_skipped, ST_OK, "%s", trace_first_skipped(trace));
    trace_close(trace);
    if (status != ST_NOT_FOUND)
        return status;
    return s->row_count > 0 ? ST_OK : error_set(error, ST_INVALID, "%s: no rows", s->rows_path);
}

bool trace_is_synthetic(const char *text)
{
    for (int i = 0; i < ARRIVALS_COUNT; i++) {
        size_t size = strlen(arrival_names[i]);
        if (strncmp(text, arrival_names[i], size) == 0 && text[size] == ':')
            return true;
    }
    return false;
}

static enum status text_read(struct trace_synthetic *s, const char *text, struct error *error)
{
    char keys_text[TEXT_BYTES];
    const char *colon = strchr(text, ':');
    for (int i = 0; i < ARRIVALS_COUNT; i++)
        if (strncmp(text, arrival_names[i], (size_t)(colon - text)) == 0)
            s->arrivals = (enum arrivals)i;
    if (strlen(colon + 1) >= sizeof(keys_text))
        return error_set(error, ST_TOO_LARGE, "longer than %zu bytes", sizeof(keys_text) - 1);
    memcpy(keys_text, colon + 1, strlen(colon + 1) + 1);
    enum status status = keys_read(s, keys_text, error);
    if (status == ST_OK)
        status = check(s, error);
    if (status == ST_OK && s->rows_path[0] != 0)
        status = rows_read(s, error);
    return status;
}

uint64_t trace_synthetic_skipped(const struct trace_synthetic *synthetic, const char **why_out)
{
    *why_out = synthetic->first_skipped.text;
    return synthetic->skipped;
}

enum status trace_synthetic_open(const char *text, uint64_t seed, bool skip,
                                 struct trace_synthetic **synthetic_out, struct error *error)
{
    struct trace_synthetic *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    s->seed = seed;
    s->skip = skip;
    enum status status = text_read(s, text, error);
    if (status != ST_OK) {
        error_prefix(error, "%.*s", (int)(strchr(text, ':') - text), text);
        trace_synthetic_close(s);
        return status;
    }
    *synthetic_out = s;
    return ST_OK;
}

void trace_synthetic_close(struct trace_synthetic *synthetic)
{
    if (synthetic == NULL)
        return;
    free(synthetic->rows);
    free(synthetic);
}
