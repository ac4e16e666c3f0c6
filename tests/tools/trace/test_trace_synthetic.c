/* Goal: a synthetic workload follows its distributions, and the same seed gives the same requests.
 * Method: rates, coefficients of variation, medians and ranges of a hundred thousand requests
 * compared with the wanted ones, with bounds of several standard errors; each wrong text with its
 * error. */
#include "tests/check.h"
#include "tools/trace/synthetic.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define ROWS 100000

static struct trace *open_law(const char *text, uint64_t seed)
{
    struct trace *trace = NULL;
    struct error error = {0};
    enum status status =
        trace_open(&(struct trace_options){.name = text, .seed = seed}, &trace, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    CHECK(trace_format(trace) == TRACE_SYNTHETIC);
    return trace;
}

/* Statistics of the gaps between requests. */
struct gaps {
    double mean, cv;
};

static struct gaps gaps_of(const char *text, uint64_t seed)
{
    struct trace *trace = open_law(text, seed);
    struct trace_row row;
    double last_s = 0, sum = 0, squares = 0;
    uint64_t count = 0;
    while (trace_next(trace, &row, NULL) == ST_OK) {
        double gap = row.at_s - last_s;
        CHECK(gap >= 0 && row.id == count && row.line == count + 1 && row.block_count == 0);
        last_s = row.at_s;
        sum += gap;
        squares += gap * gap;
        count++;
    }
    CHECK(count == ROWS);
    trace_close(trace);
    double mean = sum / ROWS;
    return (struct gaps){mean, sqrt(squares / ROWS - mean * mean) / mean};
}

static void test_arrivals(uint64_t seed)
{
    struct gaps g = gaps_of("poisson:rate=5,requests=100000,prompt=fixed:9,output=fixed:1", seed);
    CHECKF(fabs(g.mean - 0.2) < 0.004 && fabs(g.cv - 1) < 0.05, "%g %g", g.mean, g.cv);
    g = gaps_of("gamma:rate=5,cv=2,requests=100000,prompt=fixed:9,output=fixed:1", seed);
    CHECKF(fabs(g.mean - 0.2) < 0.01 && fabs(g.cv - 2) < 0.2, "%g %g", g.mean, g.cv);
    g = gaps_of("gamma:rate=50,cv=0.25,requests=100000,prompt=fixed:9,output=fixed:1", seed);
    CHECKF(fabs(g.mean - 0.02) < 0.0004 && fabs(g.cv - 0.25) < 0.02, "%g %g", g.mean, g.cv);
}

/* All requests arrive in the first 2 s of each 5 s, and their number is as requested. */
static void test_on_off(uint64_t seed)
{
    struct trace *trace =
        open_law("onoff:rate=100,on=2,off=3,seconds=1000,prompt=fixed:9,output=fixed:1", seed);
    struct trace_row row;
    uint64_t count = 0;
    while (trace_next(trace, &row, NULL) == ST_OK) {
        CHECKF(fmod(row.at_s, 5) <= 2 + 1e-6, "%f", row.at_s);
        CHECK(row.at_s < 1000);
        count++;
    }
    CHECKF(fabs((double)count - 40000) < 1000, "%llu", (unsigned long long)count);
    trace_close(trace);
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void test_lengths(uint64_t seed)
{
    static uint32_t prompts[ROWS];
    struct trace *trace = open_law(
        "poisson:rate=5,requests=100000,prompt=lognormal:1020:0.9,output=uniform:10:19", seed);
    struct trace_row row;
    uint64_t outputs[10] = {0}, count = 0;
    while (trace_next(trace, &row, NULL) == ST_OK) {
        prompts[count++] = row.prompt_tokens;
        CHECK(row.output_tokens >= 10 && row.output_tokens <= 19);
        outputs[row.output_tokens - 10]++;
    }
    trace_close(trace);
    CHECK(count == ROWS);
    for (int i = 0; i < 10; i++)
        CHECKF(outputs[i] > 9500 && outputs[i] < 10500, "%d: %llu", i,
               (unsigned long long)outputs[i]);
    qsort(prompts, ROWS, sizeof(prompts[0]), compare);
    CHECKF(fabs(prompts[ROWS / 2] - 1020.0) < 20, "%u", prompts[ROWS / 2]);
    double p84 = log(prompts[ROWS * 8413 / 10000] / 1020.0); /* One sigma. */
    CHECKF(fabs(p84 - 0.9) < 0.03, "%g", p84);
}

/* The two lengths of a request come from one row. */
static void test_lengths_of_trace(uint64_t seed)
{
    char path[] = "/tmp/cleave-lengths-XXXXXX", text[200];
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    CHECK(file != NULL);
    fputs("Timestamp,Request tokens,Response tokens\n", file);
    for (int i = 1; i <= 4; i++)
        fprintf(file, "%d,%d,%d\n", i, 100 * i, i);
    fclose(file);
    snprintf(text, sizeof(text), "poisson:rate=5,requests=4000,lengths=%s", path);
    struct trace *trace = open_law(text, seed);
    struct trace_row row;
    uint64_t seen[5] = {0};
    while (trace_next(trace, &row, NULL) == ST_OK) {
        CHECK(row.prompt_tokens == 100 * row.output_tokens && row.output_tokens <= 4);
        seen[row.output_tokens]++;
    }
    for (int i = 1; i <= 4; i++)
        CHECKF(seen[i] > 800 && seen[i] < 1200, "%d: %llu", i, (unsigned long long)seen[i]);
    trace_close(trace);
    /* A bad row is skipped on request, and reported otherwise. */
    file = fopen(path, "a");
    CHECK(file != NULL);
    fputs("9,100,0\n", file);
    fclose(file);
    struct error error = {""};
    struct trace_options options = {.name = text, .seed = seed};
    CHECK(trace_open(&options, &trace, &error) == ST_INVALID);
    CHECKF(strstr(error.text, ":6: Response tokens = \"0\"") != NULL, "%s", error.text);
    options.skip = true;
    CHECKF(trace_open(&options, &trace, &error) == ST_OK, "%s", error.text);
    CHECK(trace_skipped(trace) == 1);
    CHECK(strstr(trace_first_skipped(trace), ":6: Response tokens = \"0\"") != NULL);
    trace_close(trace);
    unlink(path);
}

static void test_seeds(void)
{
    static const char text[] = "gamma:rate=5,cv=3,requests=50,prompt=uniform:1:900,output=fixed:2";
    struct trace *one = open_law(text, 1), *same = open_law(text, 1), *other = open_law(text, 2);
    struct trace_row a, b, c;
    bool differs = false;
    while (trace_next(one, &a, NULL) == ST_OK) {
        CHECK(trace_next(same, &b, NULL) == ST_OK && trace_next(other, &c, NULL) == ST_OK);
        CHECK(memcmp(&a.at_s, &b.at_s, sizeof(a.at_s)) == 0 && a.prompt_tokens == b.prompt_tokens);
        differs |= a.prompt_tokens != c.prompt_tokens;
    }
    CHECK(differs);
    trace_close(one);
    trace_close(same);
    trace_close(other);
}

static void refused(const char *text, const char *wanted)
{
    struct trace *trace = NULL;
    struct error error = {0};
    CHECK(trace_open(&(struct trace_options){.name = text}, &trace, &error) < 0);
    CHECK(trace == NULL);
    CHECKF(strcmp(error.text, wanted) == 0, "\ngot  %s\nwant %s", error.text, wanted);
}

static void test_refusals(void)
{
    refused("poisson:", "poisson: want rate=REQUESTS_A_SECOND");
    refused("poisson:rate=0", "poisson: rate=0: want a number from 1e-09 to 1e+09");
    refused("poisson:rate=nan", "poisson: rate=nan: want a number from 1e-09 to 1e+09");
    refused("poisson:rate", "poisson: \"rate\": want key=value");
    refused("poisson:speed=1", "poisson: unknown key \"speed\": want rate, cv, on, off, seconds, "
                               "requests, prompt, output, lengths or seed");
    refused("poisson:rate=1,prompt=fixed:1,output=fixed:1",
            "poisson: want seconds=N or requests=N, otherwise the workload never ends");
    refused("poisson:rate=1,seconds=1,prompt=fixed:1",
            "poisson: want prompt= and output=, or lengths=FILE");
    refused("poisson:rate=1,seconds=1,prompt=fixed:0",
            "poisson: prompt=fixed:0: want fixed:N, uniform:LEAST:MOST or lognormal:MEDIAN:SIGMA");
    refused("poisson:rate=1,seconds=1,output=uniform:9:8", "poisson: output=uniform:9:8: want "
                                                           "fixed:N, uniform:LEAST:MOST or "
                                                           "lognormal:MEDIAN:SIGMA");
    refused("gamma:rate=1,seconds=1,prompt=fixed:1,output=fixed:1",
            "gamma: want cv=COEFFICIENT_OF_VARIATION");
    refused("onoff:rate=1,seconds=1,prompt=fixed:1,output=fixed:1", "onoff: want on=SECONDS");
    refused("poisson:rate=1,cv=1,seconds=1,prompt=fixed:1,output=fixed:1",
            "poisson: only gamma has cv, only onoff has on and off");
    refused("poisson:rate=1,seconds=1,lengths=/nonexistent",
            "poisson: /nonexistent: No such file or directory");
    CHECK(!trace_is_synthetic("poisson.csv") && !trace_is_synthetic("poissonx:rate=1"));
}

int main(void)
{
    uint64_t seed = test_seed();
    test_arrivals(seed);
    test_on_off(seed);
    test_lengths(seed);
    test_lengths_of_trace(seed);
    test_seeds();
    test_refusals();
    return 0;
}
