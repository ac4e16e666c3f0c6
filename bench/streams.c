/* bench-streams URL [options]: what clients see when a fixed number of streams is always open
 * (closed loop, unlike `cleave replay`): each answer that ends is followed by the next request at
 * once. Prompts are distinct token ids of exactly one length; answers have exactly one length.
 *
 * Requests that are sent during the first --warm seconds are not counted. Prints one JSON object:
 * requests per second that ended after that, percentiles of TTFT and TBT, and the longest gap. */
#include "common/clock.h"
#include "tools/replay/client.h"
#include "tools/replay/prompt.h"
#include "tools/replay/report.h"

#include <curl/curl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_US  1000000
#define TIMEOUT_S  60
#define EXIT_USAGE 2
#define ID_LOW     1000 /* As in `cleave replay`: ordinary tokens of every vocabulary. */
#define ID_HIGH    30000

struct options {
    const char *url;
    uint32_t streams;
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
    uint32_t seed;
    double warm_s;
    double seconds; /* Time after the warm-up; after it no request is sent. */
};

struct bench {
    struct options options;
    struct replay_client *client;
    struct replay_prompt *prompt;
    struct replay_report *report;
    int64_t from_us; /* The window is [from_us, until_us). */
    int64_t until_us;
    uint64_t sent;
    uint64_t ended;               /* Requests that ended in the window. */
    uint64_t failed;              /* All failed requests; one ends the sending. */
    uint64_t wrong_counts;        /* Requests with other token counts than wanted. */
    struct replay_result failure; /* The first failure. */
};

static void on_result(void *self, const struct replay_result *result)
{
    struct bench *bench = self;
    if (result->failure != REPLAY_DONE) {
        if (bench->failed++ == 0)
            bench->failure = *result;
        return;
    }
    bench->wrong_counts += result->prompt_tokens != result->wanted_prompt_tokens ||
                           result->completion_tokens != result->wanted_completion_tokens;
    bench->ended += result->end_us >= bench->from_us && result->end_us < bench->until_us;
    if (result->sent_us >= bench->from_us)
        replay_report_result_add(bench->report, result);
}

/* Counts only gaps that lie in the window. */
static void on_gap(void *self, int64_t gap_us)
{
    struct bench *bench = self;
    int64_t now = clock_now_us(&clock_system);
    if (now - gap_us >= bench->from_us && now < bench->until_us)
        replay_report_gap_add(bench->report, gap_us);
}

static enum status request_send(struct bench *bench, struct error *error)
{
    const struct options *options = &bench->options;
    const struct replay_request ask = {.id = bench->sent,
                                       .line = bench->sent,
                                       .prompt_tokens = options->prompt_tokens,
                                       .output_tokens = options->answer_tokens};
    char *body;
    size_t size;
    enum status status = replay_prompt_body(bench->prompt, &ask, &body, &size);
    if (status == ST_OK) {
        bench->sent++;
        status = replay_client_send(bench->client, &ask, clock_now_us(&clock_system), body, size);
    }
    return status == ST_OK ? ST_OK : error_set(error, status, "cannot send a request");
}

/* Keeps all streams open until the time is over, then waits for the last answers. */
static enum status run(struct bench *bench, struct error *error)
{
    const struct options *options = &bench->options;
    int64_t begin = clock_now_us(&clock_system);
    bench->from_us = begin + (int64_t)(options->warm_s * SECOND_US);
    bench->until_us = bench->from_us + (int64_t)(options->seconds * SECOND_US);
    for (;;) {
        int64_t now = clock_now_us(&clock_system);
        while (now < bench->until_us && bench->failed == 0 &&
               replay_client_open_count(bench->client) < options->streams) {
            enum status status = request_send(bench, error);
            if (status != ST_OK)
                return status;
        }
        if (replay_client_open_count(bench->client) == 0)
            return ST_OK;
        if (replay_client_turn(bench->client, now + SECOND_US) != ST_OK)
            return error_set(error, ST_IO, "%s: sending failed", options->url);
    }
}

/* Gets the first model name that the server lists. */
static enum status model_ask(struct bench *bench, char **name_out, struct error *error)
{
    json_t *root;
    enum status status = replay_client_ask(bench->client, "/v1/models", NULL, &root, error);
    if (status != ST_OK)
        return status;
    const char *id =
        json_string_value(json_object_get(json_array_get(json_object_get(root, "data"), 0), "id"));
    const bool is_listed = id != NULL;
    *name_out = is_listed ? strdup(id) : NULL;
    json_decref(root);
    if (!is_listed)
        return error_set(error, ST_INVALID, "%s/v1/models lists no model", bench->options.url);
    return *name_out != NULL ? ST_OK : error_set(error, ST_NO_MEMORY, "out of memory");
}

static enum status bench_open(struct bench *bench, struct error *error)
{
    const struct replay_client_options client = {.url = bench->options.url,
                                                 .timeout_s = TIMEOUT_S,
                                                 .on_result = on_result,
                                                 .on_gap = on_gap,
                                                 .self = bench};
    char *model;
    enum status status = replay_client_open(&client, &bench->client, error);
    if (status == ST_OK)
        status = model_ask(bench, &model, error);
    if (status != ST_OK)
        return status;
    const struct replay_prompt_options prompt = {.model = model,
                                                 .kind = REPLAY_PROMPT_IDS,
                                                 .id_low = ID_LOW,
                                                 .id_high = ID_HIGH,
                                                 .seed = bench->options.seed};
    status = replay_prompt_open(&prompt, &bench->prompt);
    free(model);
    const struct replay_report_options report = {.url = bench->options.url};
    return status == ST_OK ? replay_report_open(&report, &bench->report) : status;
}

static void bench_close(struct bench *bench)
{
    replay_report_close(bench->report);
    replay_prompt_close(bench->prompt);
    replay_client_close(bench->client);
}

static void bench_print(struct bench *bench)
{
    struct replay_percentiles ttft = replay_report_percentiles(bench->report, REPLAY_TTFT);
    struct replay_percentiles tbt = replay_report_percentiles(bench->report, REPLAY_TBT);
    printf("{\"requests\": %" PRIu64 ", \"requests_a_second\": %.4f, \"ttft_p50_ms\": %.3f, "
           "\"ttft_p99_ms\": %.3f, \"tbt_p50_ms\": %.3f, \"tbt_p99_ms\": %.3f, "
           "\"gap_max_ms\": %.3f}\n",
           bench->ended, (double)bench->ended / bench->options.seconds, ttft.p50, ttft.p99, tbt.p50,
           tbt.p99, tbt.max);
}

static int usage(void)
{
    fprintf(stderr, "usage: bench-streams URL [--streams N] [--prompt TOKENS] [--answer TOKENS]\n"
                    "           [--seconds S] [--warm S] [--seed N]\n");
    return EXIT_USAGE;
}

static bool options_read(struct options *options, int argc, char **argv)
{
    static const struct option known[] = {{"streams", required_argument, NULL, 's'},
                                          {"prompt", required_argument, NULL, 'p'},
                                          {"answer", required_argument, NULL, 'a'},
                                          {"seed", required_argument, NULL, 'e'},
                                          {"seconds", required_argument, NULL, 't'},
                                          {"warm", required_argument, NULL, 'w'},
                                          {0}};
    int option;
    *options = (struct options){
        .streams = 8, .prompt_tokens = 256, .answer_tokens = 64, .warm_s = 2, .seconds = 10};
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        char *end = "";
        double value = option != '?' ? strtod(optarg, &end) : 0;
        if (option == '?' || *end != 0 || !(value >= 0 && value <= 1000000))
            return false;
        uint32_t whole = (uint32_t)value;
        if (option == 's')
            options->streams = whole;
        else if (option == 'p')
            options->prompt_tokens = whole;
        else if (option == 'a')
            options->answer_tokens = whole;
        else if (option == 'e')
            options->seed = whole;
        else if (option == 't')
            options->seconds = value;
        else
            options->warm_s = value;
    }
    options->url = argv[optind];
    return optind + 1 == argc && options->streams > 0 && options->prompt_tokens > 0 &&
           options->answer_tokens > 0 && options->seconds > 0;
}

/* Returns 0 if every request got exactly what it asked for. */
static int judge(const struct bench *bench)
{
    if (bench->failed > 0)
        fprintf(stderr, "bench-streams: %" PRIu64 " requests failed, the first: %s %s\n",
                bench->failed, replay_failure_name(bench->failure.failure), bench->failure.message);
    if (bench->wrong_counts > 0)
        fprintf(stderr, "bench-streams: %" PRIu64 " requests with other token counts\n",
                bench->wrong_counts);
    return bench->failed == 0 && bench->wrong_counts == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    struct error error = {0};
    if (!options_read(&bench.options, argc, argv))
        return usage();
    signal(SIGPIPE, SIG_IGN);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return 1;
    enum status status = bench_open(&bench, &error);
    if (status == ST_OK)
        status = run(&bench, &error);
    int exit_status = 1;
    if (status != ST_OK)
        fprintf(stderr, "bench-streams: %s\n",
                error.text[0] != 0 ? error.text : status_name(status));
    else {
        bench_print(&bench);
        exit_status = judge(&bench);
    }
    bench_close(&bench);
    curl_global_cleanup();
    return exit_status;
}
