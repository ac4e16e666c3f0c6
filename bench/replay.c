/* replay: the main loop. Each request's body is made while the one before it waits to be due, so
 * that making it does not make it late. */
#include "bench/replay.h"

#include "bench/replay_client.h"
#include "bench/replay_options.h"
#include "bench/replay_prompt.h"
#include "bench/replay_report.h"
#include "bench/replay_trace.h"
#include "common/clock.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SECOND_US 1000000
#define LEAD_US   50000 /* the first request is due so long after the loop begins */
#define PROGRESS_LINES_US                                                                          \
    (5 * (int64_t)SECOND_US) /* between lines, where stderr is no terminal                         \
                              */
#define EXIT_INTERRUPTED 130

struct replay {
    struct replay_options options;
    char *model; /* the name that requests carry */
    uint32_t max_context;
    uint32_t context_least; /* a text prompt is what the server adds and one word */
    struct replay_trace *trace;
    struct replay_client *client;
    struct replay_prompt *prompt;
    struct replay_report *report;
    FILE *json;
    int64_t begin_us; /* when the first second of the window begins */
    int64_t last_end_us;
    int64_t next_progress_us;
    uint64_t progress_tokens; /* at the last progress */
    int64_t progress_us;
    bool terminal;
};

/* The next request of the window, its body ready. */
struct pending {
    struct replay_row row;
    int64_t after_us; /* when it is due, from the beginning of the window */
    char *body;
    size_t body_size;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static void on_result(void *self, const struct replay_result *result)
{
    struct replay *replay = self;
    if (result->end_us > replay->last_end_us)
        replay->last_end_us = result->end_us;
    replay_report_result(replay->report, result);
}

static void on_gap(void *self, int64_t gap_us)
{
    struct replay *replay = self;
    replay_report_gap(replay->report, gap_us);
}

/* The model's name and context from /v1/models, where the options do not say. */
static enum status server_ask(struct replay *replay, struct error *error)
{
    char *answer;
    enum status status = replay_client_ask(replay->client, "/v1/models", NULL, &answer, error);
    if (status != ST_OK)
        return status;
    json_t *root = json_loads(answer, 0, NULL);
    free(answer);
    json_t *entry = json_array_get(json_object_get(root, "data"), 0);
    const char *id = replay->options.model != NULL
                         ? replay->options.model
                         : json_string_value(json_object_get(entry, "id"));
    if (id != NULL)
        replay->model = strdup(id);
    json_int_t context = json_integer_value(json_object_get(entry, "max_model_len"));
    json_decref(root);
    if (replay->model == NULL)
        return error_set(error, ST_INVALID, "%s/v1/models lists no model: give --model",
                         replay->options.url);
    replay->max_context = replay->options.max_context > 0 ? (uint32_t)replay->options.max_context
                          : context > 0 && context < UINT32_MAX ? (uint32_t)context
                                                                : 0;
    return ST_OK;
}

/* How many tokens the server makes of `text`. */
static enum status server_count(struct replay *replay, const char *text, json_int_t *count_out,
                                struct error *error)
{
    char *answer;
    json_t *ask = json_pack("{s:s, s:s}", "model", replay->model, "prompt", text);
    char *body = json_dumps(ask, 0);
    json_decref(ask);
    enum status status = replay_client_ask(replay->client, "/tokenize", body, &answer, error);
    free(body);
    if (status != ST_OK)
        return status;
    json_t *root = json_loads(answer, 0, NULL);
    free(answer);
    json_t *count = json_object_get(root, "count");
    *count_out = json_is_integer(count)
                     ? json_integer_value(count)
                     : (json_int_t)json_array_size(json_object_get(root, "tokens"));
    json_decref(root);
    return ST_OK;
}

/* Text prompts: asks the server whether our words are one token each, and what it adds to a text.
 */
static enum status prompt_calibrate(struct replay *replay, uint32_t *extra_out, struct error *error)
{
    enum { WORDS = 400 };
    json_int_t count;
    char *text = replay_prompt_text(replay->prompt, 0, WORDS);
    if (text == NULL)
        return ST_NO_MEMORY;
    enum status status = server_count(replay, text, &count, error);
    free(text);
    if (status == ST_NOT_FOUND) {
        fprintf(stderr,
                "replay: the server has no /tokenize: prompt lengths are a guess until usage "
                "tells\n");
        *extra_out = 0;
        return ST_OK;
    }
    if (status != ST_OK)
        return status;
    if (count < WORDS || count > WORDS + 8)
        return error_set(error, ST_UNSUPPORTED,
                         "%d one-token words are %lld tokens for this server: use --prompt ids",
                         WORDS, (long long)count);
    *extra_out = (uint32_t)(count - WORDS);
    return ST_OK;
}

static enum status prompt_open(struct replay *replay, struct error *error)
{
    struct replay_prompt_options options = {
        .model = replay->model,
        .kind = replay->options.prompt,
        .id_low = (uint32_t)replay->options.id_low,
        .id_high = (uint32_t)replay->options.id_high,
        .seed = replay->options.seed,
    };
    enum status status = replay_prompt_open(&options, &replay->prompt);
    if (status != ST_OK)
        return error_set(error, status, "--model: \"%s\": not UTF-8", replay->model);
    if (options.kind == REPLAY_PROMPT_IDS)
        return ST_OK;
    status = prompt_calibrate(replay, &options.extra_tokens, error);
    if (status != ST_OK || options.extra_tokens == 0)
        return status;
    replay_prompt_close(replay->prompt);
    replay->prompt = NULL;
    replay->context_least = options.extra_tokens + 1;
    return replay_prompt_open(&options, &replay->prompt);
}

static enum status report_open(struct replay *replay, struct error *error)
{
    const struct replay_options *options = &replay->options;
    if (options->json != NULL) {
        replay->json = fopen(options->json, "we");
        if (replay->json == NULL)
            return error_set(error, ST_IO, "--json: %s: %s", options->json, strerror(errno));
    }
    return replay_report_open(
        &(struct replay_report_options){
            .trace = options->trace,
            .url = options->url,
            .model = replay->model,
            .start_s = options->start_s,
            .duration_s = options->duration_s,
            .rate_scale = options->rate_scale,
            .length_scale = options->length_scale,
            .max_context = replay->max_context,
            .seed = options->seed,
            .slo_ttft_ms = options->slo_ttft_ms,
            .slo_tbt_ms = options->slo_tbt_ms,
            .json = replay->json,
        },
        &replay->report);
}

/* The next row of the window, fitted, with its body. ST_NOT_FOUND when the window is over. */
static enum status pending_next(struct replay *replay, struct pending *out, struct error *error)
{
    const struct replay_options *options = &replay->options;
    struct pending next;
    double at_s;
    do {
        enum status status = replay_trace_next(replay->trace, &next.row, error);
        if (status != ST_OK)
            return status;
        at_s = (double)next.row.at_us / SECOND_US - options->start_s;
    } while (at_s < 0);
    if (options->duration_s > 0 && at_s >= options->duration_s)
        return ST_NOT_FOUND;

    replay_fit_lengths(options->length_scale, replay->max_context, options->fit,
                       &next.row.context_tokens, &next.row.generated_tokens);
    if (next.row.context_tokens < replay->context_least)
        next.row.context_tokens = replay->context_least;
    next.after_us = (int64_t)(at_s * SECOND_US / options->rate_scale);
    enum status status = replay_prompt_body(replay->prompt, next.row.line, next.row.context_tokens,
                                            next.row.generated_tokens, &next.body, &next.body_size);
    if (status != ST_OK)
        return error_set(error, status, "no memory for a prompt of %" PRIu32 " tokens",
                         next.row.context_tokens);
    *out = next;
    return ST_OK;
}

static void progress_show(struct replay *replay, int64_t now_us, uint64_t sent)
{
    const struct replay_totals *totals = replay_report_totals(replay->report);
    uint64_t tokens = replay_client_token_count(replay->client);
    double elapsed_s = (double)(now_us - replay->progress_us) / SECOND_US;
    fprintf(stderr,
            "%sreplay %.0f s: %" PRIu64 " sent, %" PRIu64 " done, %" PRIu32 " open, %" PRIu64
            " failed, %.0f tokens/s%s",
            replay->terminal ? "\r\033[K" : "", (double)(now_us - replay->begin_us) / SECOND_US,
            sent, totals->done, replay_client_open_count(replay->client), totals->failed,
            (double)(tokens - replay->progress_tokens) / elapsed_s, replay->terminal ? "" : "\n");
    replay->progress_tokens = tokens;
    replay->progress_us = now_us;
    replay->next_progress_us = now_us + (replay->terminal ? SECOND_US : PROGRESS_LINES_US);
}

/* One turn of the loop: until something happened, the time came, or progress is to be shown. */
static enum status turn(struct replay *replay, int64_t until_us, uint64_t sent)
{
    if (until_us > replay->next_progress_us)
        until_us = replay->next_progress_us;
    enum status status = replay_client_turn(replay->client, until_us);
    int64_t now = clock_now_us(&clock_system);
    if (now >= replay->next_progress_us)
        progress_show(replay, now, sent);
    return status;
}

/* Waits until the request is due and sends it. `*sent_out` says whether it was, and its body gone.
 */
static enum status pending_send(struct replay *replay, const struct pending *pending, uint64_t sent,
                                bool *sent_out)
{
    int64_t due_us = replay->begin_us + pending->after_us;
    while (clock_now_us(&clock_system) < due_us && !interrupted) {
        enum status status = turn(replay, due_us, sent);
        if (status != ST_OK)
            return status;
    }
    if (interrupted)
        return ST_OK;
    *sent_out = true;
    return replay_client_send(replay->client, pending->row.line, due_us,
                              pending->row.context_tokens, pending->row.generated_tokens,
                              pending->body, pending->body_size);
}

/* The clock starts when the first request is ready: finding it may take a while in a long trace. */
static void window_begin(struct replay *replay)
{
    replay->begin_us = clock_now_us(&clock_system) + LEAD_US;
    replay->last_end_us = replay->progress_us = replay->begin_us;
    replay->next_progress_us = replay->begin_us + SECOND_US;
}

/* Sends the window's requests, each when it is due, then waits for the last answers. A broken row
 * ends the sending; what is under way still ends well. */
static enum status window_replay(struct replay *replay, uint64_t *sent_out, struct error *error)
{
    uint64_t limit = replay->options.requests, sent = 0;
    struct pending pending;
    enum status turned = ST_OK, next = pending_next(replay, &pending, error);
    window_begin(replay);
    while (next == ST_OK && turned == ST_OK && !interrupted) {
        bool gone = false;
        turned = pending_send(replay, &pending, sent, &gone);
        if (!gone)
            break;
        sent++; /* a limit of 0 is never reached */
        next = sent == limit ? ST_NOT_FOUND : pending_next(replay, &pending, error);
    }
    if (next == ST_OK)
        free(pending.body); /* the one that the user cut off */
    while (replay_client_open_count(replay->client) > 0 && turned == ST_OK && !interrupted)
        turned = turn(replay, INT64_MAX, sent);
    if (interrupted)
        replay_client_interrupt(replay->client);
    if (replay->terminal)
        fprintf(stderr, "\r\033[K");
    *sent_out = sent;
    if (turned != ST_OK)
        return error_set(error, turned, "sending failed: %s", status_name(turned));
    return next == ST_NOT_FOUND ? ST_OK : next;
}

static enum status replay_open(struct replay *replay, struct error *error)
{
    enum status status = replay_trace_open(replay->options.trace, &replay->trace, error);
    if (status != ST_OK)
        return status;
    struct replay_client_options options = {
        .url = replay->options.url,
        .api_key = replay->options.api_key,
        .timeout_s = replay->options.timeout_s,
        .on_result = on_result,
        .on_gap = on_gap,
        .self = replay,
    };
    status = replay_client_open(&options, &replay->client, error);
    if (status == ST_OK)
        status = server_ask(replay, error);
    if (status == ST_OK)
        status = prompt_open(replay, error);
    if (status == ST_OK)
        status = report_open(replay, error);
    return status;
}

static void replay_close(struct replay *replay)
{
    replay_report_close(replay->report);
    replay_prompt_close(replay->prompt);
    replay_client_close(replay->client);
    replay_trace_close(replay->trace);
    if (replay->json != NULL)
        fclose(replay->json);
    free(replay->model);
}

/* The exit status of a replay that ran. */
static int judge(const struct replay *replay)
{
    const struct replay_totals *totals = replay_report_totals(replay->report);
    if (interrupted)
        return EXIT_INTERRUPTED;
    return totals->failed == 0 && totals->wrong_counts == 0 ? 0 : 1;
}

static int replay_run(struct replay *replay)
{
    struct error error = {0};
    uint64_t sent = 0;
    enum status status = replay_open(replay, &error);
    if (status != ST_OK) {
        fprintf(stderr, "cleave replay: %s\n",
                error.text[0] != 0 ? error.text : status_name(status));
        return 2;
    }
    replay->terminal = isatty(STDERR_FILENO);
    enum status window = window_replay(replay, &sent, &error);
    if (sent == 0 && window == ST_OK && !interrupted)
        window =
            error_set(&error, ST_NOT_FOUND, "%s: the trace has no request from --start %g on%s",
                      replay->options.trace, replay->options.start_s,
                      replay->options.duration_s > 0 ? " within --duration" : "");
    if (window != ST_OK)
        fprintf(stderr, "cleave replay: %s\n", error.text);
    status = replay_report_finish(replay->report, replay->last_end_us - replay->begin_us, stdout);
    if (status != ST_OK)
        fprintf(stderr, "cleave replay: --json: %s: %s\n", replay->options.json, strerror(errno));
    return window != ST_OK || status != ST_OK ? 2 : judge(replay);
}

/* Ctrl-C ends the replay, not the report; hundreds of streams need as many descriptors. */
static void process_set_up(void)
{
    struct sigaction interrupt = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND};
    struct rlimit files;
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGTERM, &interrupt, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int replay_main(int argc, char **argv)
{
    struct replay replay = {0};
    struct error error = {0};
    if (replay_options_parse(argc, argv, &replay.options, &error) != ST_OK) {
        fprintf(stderr, "cleave replay: %s\n", error.text);
        return 2;
    }
    if (replay.options.help) {
        replay_options_print_help(stdout);
        return 0;
    }
    process_set_up();
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        fprintf(stderr, "cleave replay: libcurl.so.4 could not be loaded or started\n");
        return 2;
    }
    int exit_status = replay_run(&replay);
    replay_close(&replay);
    curl_global_cleanup();
    return exit_status;
}
