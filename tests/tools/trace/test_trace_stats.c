/* Goal: the figures of `cleave trace` are right. Method: a few requests with figures computed by
 * hand; random requests compared with sums over all of them; and the command itself with files that
 * it should describe, draw or refuse. Usage: test_trace_stats CLEAVE */
#include "tools/trace/stats.h"
#include "tools/trace/window.h"

#include "common/random.h"
#include "tests/check.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct trace_stats *stats_open(double interval_s, double tbt_s, double prompt_rate)
{
    const struct trace_stats_options options = {interval_s, tbt_s, prompt_rate};
    struct trace_stats *stats;
    CHECK(trace_stats_open(&options, &stats) == ST_OK);
    return stats;
}

static void add(struct trace_stats *stats, double at_s, uint32_t prompt, uint32_t output)
{
    const struct trace_row row = {.at_s = at_s, .prompt_tokens = prompt, .output_tokens = output};
    CHECK(trace_stats_add(stats, &row) == ST_OK);
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9 * (1 + fabs(b));
}

/* At 100 prompt tokens per second and 0.5 s per answer token, the first request is a prompt for 1 s
 * and then has three more tokens in 1.5 s. The second request is a prompt for 0.5 s. */
static void test_by_hand(void)
{
    struct trace_stats *stats = stats_open(1, 0.5, 100);
    add(stats, 0, 100, 4);
    add(stats, 2.25, 50, 1);
    add(stats, 3, 200, 1);
    CHECK(trace_stats_count(stats) == 3 && near(trace_stats_last_s(stats), 3));
    CHECK(near(trace_stats_mean(stats, TRACE_PROMPT), 350.0 / 3));
    CHECK(trace_stats_quantile(stats, TRACE_PROMPT, 0.5) == 100);
    CHECK(trace_stats_quantile(stats, TRACE_PROMPT, 0) == 50);
    CHECK(trace_stats_quantile(stats, TRACE_OUTPUT, 1) == 4);
    CHECK(trace_stats_up_to(stats, TRACE_PROMPT, 100) == 2);
    uint32_t count;
    double width_s;
    struct trace_interval *in = trace_stats_intervals(stats, 99, &count, &width_s);
    /* The fourth interval has no length, so it is merged with the third. */
    CHECK(count == 3 && near(width_s, 1));
    CHECK(in[0].requests == 1 && near(in[0].active_requests, 1) && near(in[0].active_tokens, 100));
    /* From 1 s to 2.5 s: 100 prompt tokens, the answer's first token, and one more each half
     * second. */
    CHECK(near(in[1].active_tokens, 100 + 1 + 1) && near(in[1].active_requests, 1));
    CHECK(in[2].requests == 2 && in[2].tokens[TRACE_PROMPT] == 250 && near(in[2].seconds, 1));
    free(in);
    trace_stats_close(stats);
}

/* Sums over intervals equal sums over requests, for any width of the intervals. */
static void test_sums(uint64_t seed, double spread_s)
{
    struct trace_stats *stats = stats_open(0, 0.1, 1000);
    uint64_t prompts = 0, count = 3000;
    double at_s = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t prompt = 1 + (uint32_t)(random_at(seed, 2 * i) % 5000);
        at_s += (double)(random_at(seed, 2 * i + 1) % 1000) / 1000 * spread_s;
        add(stats, at_s, prompt, 1 + (uint32_t)(i % 7));
        prompts += prompt;
    }
    uint32_t intervals;
    double width_s, seconds = 0;
    struct trace_interval *in = trace_stats_intervals(stats, 24, &intervals, &width_s);
    CHECKF(intervals >= 1 && intervals <= 24, "%u of %g s", intervals, width_s);
    for (uint32_t i = 0; i < intervals; i++) {
        count -= in[i].requests;
        prompts -= in[i].tokens[TRACE_PROMPT];
        seconds += in[i].seconds;
    }
    CHECK(count == 0 && prompts == 0);
    CHECKF(fabs(seconds - trace_stats_last_s(stats)) < 1e-6 * seconds, "%g s", seconds);
    free(in);
    trace_stats_close(stats);
}

static void test_blocks(void)
{
    struct trace_stats *stats = stats_open(0, 0.1, 1000);
    for (int64_t i = 0; i < 1000; i++) {
        const int64_t blocks[] = {0, i, 1000000 + i};
        const struct trace_row row = {
            .prompt_tokens = 1536, .output_tokens = 1, .blocks = blocks, .block_count = 3};
        CHECK(trace_stats_add(stats, &row) == ST_OK);
    }
    CHECK(trace_stats_blocks(stats) == 3000);
    /* 999 zeros, and the id of the first row. */
    CHECKF(trace_stats_blocks_again(stats) == 1000, "%llu",
           (unsigned long long)trace_stats_blocks_again(stats));
    trace_stats_close(stats);
}

static void test_too_many(void)
{
    struct trace_stats *stats = stats_open(0.001, 0.1, 1000);
    const struct trace_row row = {.at_s = 1e6, .prompt_tokens = 1, .output_tokens = 1};
    CHECK(trace_stats_add(stats, &row) == ST_TOO_LARGE);
    trace_stats_close(stats);
}

static void test_fit(uint64_t seed)
{
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t context = (uint32_t)(random_at(seed, 4 * i) % 20000);
        uint32_t generated = (uint32_t)(random_at(seed, 4 * i + 1) % 3000);
        uint32_t max = (uint32_t)(random_at(seed, 4 * i + 2) % 8000);
        enum trace_fit fit = i % 2 == 0 ? TRACE_FIT_SCALE : TRACE_FIT_CLIP;
        uint32_t c = context, g = generated;
        trace_fit_lengths(1, max, fit, &c, &g);
        CHECKF(c >= 1 && g >= 1, "%u %u max %u gives %u %u", context, generated, max, c, g);
        CHECK(max < 2 || c + g <= max);
        if (context > 0 && generated > 0 && (max == 0 || context + generated <= max))
            CHECK(c == context && g == generated);
        else if (max >= 2 && context > 0 && generated > 0)
            CHECKF(c + g == max || (max < 4 && c + g <= max) || fit == TRACE_FIT_CLIP,
                   "%u %u max %u gives %u %u", context, generated, max, c, g);
    }
    uint32_t c = 3000, g = 1000;
    trace_fit_lengths(1, 2000, TRACE_FIT_SCALE, &c, &g);
    CHECK(c == 1500 && g == 500);
    c = 3000, g = 1000;
    trace_fit_lengths(1, 1600, TRACE_FIT_CLIP, &c, &g);
    CHECK(c == 800 && g == 800);
    c = 3000, g = 100;
    trace_fit_lengths(0.5, 0, TRACE_FIT_CLIP, &c, &g);
    CHECK(c == 1500 && g == 50);
}

/* One request per second for a minute: a window from 10 s on for 20 s, at double rate, with half
 * the lengths; then at most three requests of the window. */
static void test_window(void)
{
    for (uint64_t most = 0; most <= 3; most += 3) {
        struct trace_window window = {
            .start_s = 10, .duration_s = 20, .speed = 2, .length_scale = 0.5, .requests = most};
        struct trace *trace;
        struct trace_row row;
        FILE *file = tmpfile();
        fprintf(file, "arrival_timestamp,prompt_size,token_size\n");
        for (int i = 0; i < 60; i++)
            fprintf(file, "%d,%d,4\n", i, 9 + i);
        rewind(file);
        CHECK(trace_open_file(file, &(struct trace_options){.name = "t"}, &trace, NULL) == ST_OK);
        uint64_t count = 0, wanted = most > 0 ? most : 20;
        while (trace_window_next(&window, trace, &row, NULL) == ST_OK) {
            CHECK(near(row.at_s, (double)count / 2) && row.id == 10 + count);
            CHECK(row.prompt_tokens == (19 + count) / 2 && row.output_tokens == 2);
            count++;
        }
        CHECK(count == wanted && window.returned_count == wanted);
        CHECK(row.block_tokens == 256);
        trace_close(trace);
    }
}

/* ---- the command ---- */

static char said[20000];

static int run(const char *cleave, const char *arguments)
{
    char command[2000];
    snprintf(command, sizeof(command), "'%s' trace %s 2>&1", cleave, arguments);
    FILE *pipe = popen(command, "r");
    CHECK(pipe != NULL);
    size_t size = fread(said, 1, sizeof(said) - 1, pipe);
    said[size] = 0;
    int status = pclose(pipe);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void said_wanted(const char *text)
{
    CHECKF(strstr(said, text) != NULL, "want \"%s\" in:\n%s", text, said);
}

/* The written file has the ids of the rows and can be read as a trace. */
static void write_check(const char *cleave, const char *trace, const char *folder)
{
    char arguments[400], written[100], line[200];
    snprintf(written, sizeof(written), "%s/w.csv", folder);
    snprintf(arguments, sizeof(arguments),
             "\"%s\" --on-bad-row skip --start 5 --speed 4 --max-context 100 --write %s", trace,
             written);
    CHECKF(run(cleave, arguments) == 0, "%s", said);
    said_wanted("2 requests in 5.0 s");
    FILE *file = fopen(written, "r");
    CHECK(file != NULL && fgets(line, sizeof(line), file) != NULL);
    CHECK(strcmp(line, "request_id,arrival_timestamp,prompt_size,token_size\n") == 0);
    CHECK(fgets(line, sizeof(line), file) != NULL);
    CHECKF(strcmp(line, "1,1.250000000,98,2\n") == 0, "%s", line);
    CHECK(fgets(line, sizeof(line), file) != NULL);
    CHECKF(strcmp(line, "3,6.250000000,5,1\n") == 0, "%s", line);
    CHECK(fgets(line, sizeof(line), file) == NULL);
    fclose(file);
    CHECK(run(cleave, written) == 0);
    said_wanted("splitwise\n2 requests in 5.0 s");
    unlink(written);
}

static void test_command(const char *cleave)
{
    char folder[] = "/tmp/cleave-trace-XXXXXX", trace[100], arguments[400];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(trace, sizeof(trace), "%s/it's \xc3\xa9.csv", folder);
    FILE *file = fopen(trace, "w");
    CHECK(file != NULL);
    fprintf(file, "Timestamp,Request tokens,Response tokens\n10,100,5\n20,300,9\n30,5,0\n40,5,1\n");
    fclose(file);
    snprintf(arguments, sizeof(arguments), "\"%s\"", trace);
    CHECK(run(cleave, arguments) == 1);
    said_wanted("2 requests in 10.0 s");
    said_wanted(".csv:4: Response tokens = \"0\"");
    snprintf(arguments, sizeof(arguments), "\"%s\" --on-bad-row skip --interval 15", trace);
    CHECK(run(cleave, arguments) == 0);
    said_wanted("3 requests in 30.0 s");
    said_wanted("1 rows left out, the first: ");
    said_wanted("in intervals of 15 s");
    CHECK(run(cleave, "poisson:rate=100,requests=500,prompt=fixed:64,output=fixed:2") == 0);
    said_wanted("64-127            500 100.00% 100.00%");
    CHECK(run(cleave, "--interval no a.csv") == 2);
    said_wanted("--interval = \"no\": want a number");
    CHECK(run(cleave, "--fat a.csv") == 2);
    said_wanted("unknown option --fat (cleave trace --help");
    write_check(cleave, trace, folder);
    snprintf(arguments, sizeof(arguments), "\"%s\" --on-bad-row skip --plot %s/p.gif", trace,
             folder);
    CHECK(run(cleave, arguments) == 2);
    said_wanted("want a name that ends in .svg or .png");
    snprintf(arguments, sizeof(arguments), "\"%s\" --on-bad-row skip --plot %s/p.svg", trace,
             folder);
    int status = run(cleave, arguments);
    snprintf(arguments, sizeof(arguments), "%s/p.svg", folder);
    if (status == 1 && strstr(said, "there is no gnuplot") != NULL) {
        printf("no gnuplot: no picture is drawn\n");
    } else {
        CHECKF(status == 0, "%s", said);
        file = fopen(arguments, "r");
        CHECK(file != NULL && fread(said, 1, sizeof(said) - 1, file) > 1000);
        fclose(file);
        said_wanted("<svg");
        said_wanted("s \xc3\xa9.csv"); /* The title of the picture. */
    }
    unlink(arguments);
    unlink(trace);
    rmdir(folder);
}

int main(int argc, char **argv)
{
    uint64_t seed = test_seed();
    CHECK(argc == 2);
    test_by_hand();
    test_sums(seed, 0.01);
    test_sums(seed, 3);
    test_sums(seed, 5000);
    test_blocks();
    test_too_many();
    test_fit(seed);
    test_window();
    test_command(argv[1]);
    return 0;
}
