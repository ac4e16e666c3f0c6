/* replay: the main loop. The body of the next request is made before the request is due, so that
 * making the body does not delay the request. */
#include "tools/replay/replay.h"

#include "common/clock.h"
#include "tools/replay/client.h"
#include "tools/replay/comparison.h"
#include "tools/replay/options.h"
#include "tools/replay/prompt.h"
#include "tools/replay/report.h"
#include "tools/replay/server.h"
#include "tools/trace/window.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SECOND_US 1000000
#define LEAD_US   50000 /* Time between the start of the loop and the first request. */
/* Time between lines of progress if standard error is not a terminal. */
#define PROGRESS_LINES_US (5 * (int64_t)SECOND_US)
#define EXIT_INTERRUPTED  130

struct replay {
    struct replay_options options;
    struct replay_server server;
    char prompts[128]; /* Kind of the prompts, for the report. */
    struct trace *trace;
    struct trace_window window;
    struct replay_client *client;
    struct replay_prompt *prompt;
    struct replay_report *report;
    struct replay_comparison *compare; /* NULL = none; also for `alone`. */
    struct replay_comparison *alone;
    FILE *csv;
    int64_t begin_us; /* Begin of the window. */
    int64_t last_end_us;
    int64_t next_progress_us;
    uint64_t progress_tokens; /* Tokens at the last progress line. */
    int64_t progress_us;
    bool terminal;
};

/* The next request of the window, with its body. */
struct pending {
    struct replay_request request;
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
    replay_report_result_add(replay->report, result);
}

static void on_gap(void *self, int64_t gap_us)
{
    struct replay *replay = self;
    replay_report_gap_add(replay->report, gap_us);
}

/* Requires that the server's context is known. */
static void window_set(struct replay *replay)
{
    const struct replay_options *options = &replay->options;
    replay->window = (struct trace_window){
        .start_s = options->start_s,
        .duration_s = options->duration_s,
        .speed = options->rate_scale,
        .length_scale = options->length_scale,
        .requests = options->requests,
        .max_context = replay->server.max_context,
        .fit = options->fit,
    };
}

static enum status prompt_open(struct replay *replay, struct error *error)
{
    const struct replay_options *options = &replay->options;
    enum status status = replay_server_ask(replay->client, options, &replay->server, error);
    if (status != ST_OK)
        return status;
    const struct replay_prompt_options prompt = {
        .model = replay->server.model,
        .kind = replay->server.prompt,
        .chat = options->api == REPLAY_API_CHAT,
        .id_low = (uint32_t)options->id_low,
        .id_high = (uint32_t)options->id_high,
        .extra_tokens = replay->server.extra_tokens,
        .seed = options->seed,
    };
    window_set(replay);
    replay_server_describe(&replay->server, prompt.chat, replay->prompts, sizeof(replay->prompts));
    status = replay_prompt_open(&prompt, &replay->prompt);
    if (status != ST_OK) /* The server and the options were checked. */
        return error_set(error, status, "no memory for the prompts");
    return ST_OK;
}

static enum status report_open(struct replay *replay, struct error *error)
{
    const struct replay_options *options = &replay->options;
    if (options->out != NULL) {
        replay->csv = fopen(options->out, "we");
        if (replay->csv == NULL)
            return error_set(error, ST_IO, "--out: %s: %s", options->out, strerror(errno));
    }
    enum status status = replay_report_open(
        &(struct replay_report_options){
            .trace = options->trace,
            .url = options->url,
            .model = replay->server.model,
            .prompts = replay->prompts,
            .start_s = options->start_s,
            .duration_s = options->duration_s,
            .rate_scale = options->rate_scale,
            .length_scale = options->length_scale,
            .max_context = replay->server.max_context,
            .seed = options->seed,
            .slo_ttft_ms = options->slo_ttft_ms,
            .slo_tbt_ms = options->slo_tbt_ms,
            .slo_e2e_ms = options->slo_e2e_ms,
            .json = options->json ? stdout : NULL,
            .csv = replay->csv,
            .prediction = replay->compare,
            .uncontended = replay->alone,
        },
        &replay->report);
    return status == ST_OK ? ST_OK : error_set(error, status, "no memory for the report");
}

/* Turns a row of the trace into the request to this server. */
static struct replay_request request_of(const struct replay *replay, const struct trace_row *row)
{
    struct replay_request request = {
        .id = row->id,
        .after_us = (int64_t)(row->at_s * SECOND_US),
        .line = row->line,
        .prompt_tokens = row->prompt_tokens,
        .output_tokens = row->output_tokens,
        .blocks = row->blocks,
        .block_count = row->block_count,
        .block_tokens = row->block_tokens,
    };
    if (replay->server.prompt == REPLAY_PROMPT_TEXT &&
        request.prompt_tokens <= replay->server.extra_tokens)
        request.prompt_tokens = replay->server.extra_tokens + 1;
    return request;
}

/* Reads the next row of the window and makes its body. ST_NOT_FOUND: the window is over. */
static enum status pending_next(struct replay *replay, struct pending *out, struct error *error)
{
    struct pending next;
    struct trace_row row;
    enum status status = trace_window_next(&replay->window, replay->trace, &row, error);
    if (status != ST_OK)
        return status;
    next.request = request_of(replay, &row);
    status = replay_prompt_body(replay->prompt, &next.request, &next.body, &next.body_size);
    if (status != ST_OK)
        return error_set(error, status, "no memory for a prompt of %" PRIu32 " tokens",
                         next.request.prompt_tokens);
    /* The array belongs to the trace, which overwrites it with the next row. */
    next.request.blocks = NULL;
    next.request.block_count = 0;
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

/* Runs one iteration of the loop, until something has happened, `until_us` is reached, or progress
 * is due. */
static enum status iterate(struct replay *replay, int64_t until_us, uint64_t sent)
{
    if (until_us > replay->next_progress_us)
        until_us = replay->next_progress_us;
    enum status status = replay_client_turn(replay->client, until_us);
    int64_t now = clock_now_us(&clock_system);
    if (now >= replay->next_progress_us)
        progress_show(replay, now, sent);
    return status;
}

/* Waits until the request is due and sends it. *sent_out is set to true if it was sent, which
 * consumes its body. */
static enum status pending_send(struct replay *replay, const struct pending *pending, uint64_t sent,
                                bool *sent_out)
{
    int64_t due_us = replay->begin_us + pending->request.after_us;
    while (clock_now_us(&clock_system) < due_us && !interrupted) {
        enum status status = iterate(replay, due_us, sent);
        if (status != ST_OK)
            return status;
    }
    if (interrupted)
        return ST_OK;
    *sent_out = true;
    return replay_client_send(replay->client, &pending->request, due_us, pending->body,
                              pending->body_size);
}

/* Starts the clock. The first request is already known, because finding it can take a while in a
 * long trace. */
static void window_begin(struct replay *replay)
{
    replay->begin_us = clock_now_us(&clock_system) + LEAD_US;
    replay->last_end_us = replay->progress_us = replay->begin_us;
    replay->next_progress_us = replay->begin_us + SECOND_US;
}

/* Sends the window's requests when they are due, then waits for the last answers. A wrong row ends
 * the sending, but open requests still finish. */
static enum status window_replay(struct replay *replay, uint64_t *sent_out, struct error *error)
{
    uint64_t sent = 0;
    struct pending pending;
    enum status turned = ST_OK, next = pending_next(replay, &pending, error);
    window_begin(replay);
    while (next == ST_OK && turned == ST_OK && !interrupted) {
        bool gone = false;
        turned = pending_send(replay, &pending, sent, &gone);
        if (!gone)
            break;
        sent++;
        next = pending_next(replay, &pending, error);
    }
    if (next == ST_OK)
        free(pending.body); /* A request that was not sent because of an interrupt or an error. */
    while (replay_client_open_count(replay->client) > 0 && turned == ST_OK && !interrupted)
        turned = iterate(replay, INT64_MAX, sent);
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
    const struct replay_options *asked = &replay->options;
    const struct trace_options trace = {.name = asked->trace,
                                        .format = asked->format,
                                        .skip = asked->on_bad_row == REPLAY_BAD_ROW_SKIP,
                                        .seed = asked->seed};
    enum status status = trace_open(&trace, &replay->trace, error);
    if (status == ST_OK && asked->compare != NULL)
        status = replay_comparison_open(asked->compare, false, &replay->compare, error);
    if (status == ST_OK && asked->slo_reference != NULL)
        status = replay_comparison_open(asked->slo_reference, true, &replay->alone, error);
    if (status != ST_OK)
        return status;
    struct replay_client_options options = {
        .url = asked->url,
        .api_key = asked->api_key,
        .chat = asked->api == REPLAY_API_CHAT,
        .timeout_s = asked->timeout_s,
        .on_result = on_result,
        .on_gap = on_gap,
        .self = replay,
    };
    status = replay_client_open(&options, &replay->client, error);
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
    replay_server_done(&replay->server);
    replay_comparison_close(replay->compare);
    replay_comparison_close(replay->alone);
    trace_close(replay->trace);
    if (replay->csv != NULL)
        fclose(replay->csv);
}

/* Returns the exit status of a replay that ran and printed its report. sending_exit: 0 = no error
 * ended the sending. */
static int judge(const struct replay *replay, int sending_exit)
{
    const struct replay_totals *totals = replay_report_totals(replay->report);
    if (interrupted)
        return EXIT_INTERRUPTED;
    if (sending_exit != 0)
        return sending_exit;
    return totals->failed == 0 && totals->wrong_counts == 0 ? 0 : 1;
}

static int replay_run(struct replay *replay)
{
    struct error error = {0};
    uint64_t sent = 0;
    enum status status = replay_open(replay, &error);
    if (status != ST_OK)
        return options_fail(&replay_options_table, status, &error);
    replay->terminal = isatty(STDERR_FILENO);
    enum status window = window_replay(replay, &sent, &error);
    if (sent == 0 && window == ST_OK && !interrupted)
        window =
            error_set(&error, ST_NOT_FOUND, "%s: the trace has no request from --start %g on%s",
                      replay->options.trace, replay->options.start_s,
                      replay->options.duration_s > 0 ? " within --duration" : "");
    const int sending_exit =
        window == ST_OK ? 0 : options_fail(&replay_options_table, window, &error);
    const struct replay_end end = {.wall_us = replay->last_end_us - replay->begin_us,
                                   .skipped_rows = trace_skipped(replay->trace),
                                   .first_skipped = trace_first_skipped(replay->trace)};
    status = replay_report_finish(replay->report, &end, replay->options.json ? stderr : stdout);
    if (status != ST_OK) {
        error_set(&error, status, "--json or --out could not be written: %s", strerror(errno));
        return options_fail(&replay_options_table, status, &error);
    }
    return judge(replay, sending_exit);
}

/* Lets Ctrl-C end the replay, but not the report, and raises the limit of open files for hundreds
 * of streams. */
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
    int exit_status = options_start(&replay_options_table, argc, argv, &replay.options);
    if (exit_status >= 0)
        return exit_status;
    process_set_up();
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        error_set(&error, ST_UNSUPPORTED, "libcurl.so.4 could not be loaded or started");
        return options_fail(&replay_options_table, ST_UNSUPPORTED, &error);
    }
    exit_status = replay_run(&replay);
    replay_close(&replay);
    curl_global_cleanup();
    return exit_status;
}
