/* Goal: each answer gives one line of the access log, with the id that its headers and its body
 * have; what a client sends cannot forge a line; strangers and a full disk do no harm; a slow
 * request is logged with the phase that took long; spans are valid. Method: the real HTTP side with
 * a scripted gateway, whose requests take fixed times; lines are read from files and from a pipe
 * instead of stderr. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include "common/log.h"
#include "events/event_log.h"

#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#define USER "Authorization: Bearer sk-user-0123456789\r\n"

static const char key_file[] =
    "{\"keys\": [{\"name\": \"user\", \"key\": \"sk-user-0123456789\"}]}";

static char path[] = "/tmp/cleave-access-XXXXXX";
static struct event_log *access_log;
static char lines[1 << 16];
static int log_fd;

/* --- the log files --- */

static void access_open(const char *file)
{
    struct error error;
    struct event_log *next = NULL, *before = access_log;
    if (file != NULL)
        CHECKF(event_log_open(file, &next, &error) == ST_OK, "%s", error.text);
    server_pause();
    http_access_log_set(http, next, false);
    server_resume();
    event_log_close(before);
    access_log = next;
}

/* Waits until the file has this many lines, then empties it. */
static void lines_read(int count)
{
    for (int i = 0; i < 60000; i++) {
        int fd = open(path, O_RDONLY), found = 0;
        ssize_t bytes = read(fd, lines, sizeof(lines) - 1);
        close(fd);
        CHECK(bytes >= 0);
        lines[bytes] = 0;
        for (const char *at = lines; (at = strchr(at, '\n')) != NULL; at++)
            found++;
        CHECKF(found <= count, "want %d lines: %s", count, lines);
        if (found == count) {
            CHECK(truncate(path, 0) == 0);
            return;
        }
        usleep(1000);
    }
    CHECKF(false, "want %d lines: %s", count, lines);
}

static json_t *line_read(void)
{
    json_error_t why;
    lines_read(1);
    json_t *line = json_loads(lines, 0, &why);
    CHECKF(line != NULL, "%s: %s", why.text, lines);
    return line;
}

static const char *text_of(const json_t *line, const char *member)
{
    const char *text = json_string_value(json_object_get(line, member));
    return text != NULL ? text : "";
}

static long long number_of(const json_t *line, const char *member)
{
    return json_integer_value(json_object_get(line, member));
}

static double seconds_of(const json_t *line, const char *phase)
{
    return json_real_value(json_object_get(json_object_get(line, "phases"), phase));
}

/* --- checks --- */

static void check_whole_answer(void)
{
    CHECK(ask("POST", "/v1/completions", "x-request-id: Az-0_9.~:@+/=\r\n",
              "{\"prompt\": \"ehello\", \"max_tokens\": 50}") == 200);
    expect("x-request-id: Az-0_9.~:@+/=");
    expect("{\"id\":\"cmpl-Az-0_9.~:@+/=\"");
    expect("\"prompt_tokens\":6,\"completion_tokens\":6,");
    json_t *line = line_read();
    CHECKF(strcmp(text_of(line, "request"), "Az-0_9.~:@+/=") == 0 &&
               strcmp(text_of(line, "answer"), "cmpl-Az-0_9.~:@+/=") == 0 &&
               strcmp(text_of(line, "model"), "m") == 0 &&
               strcmp(text_of(line, "finish"), "stop") == 0 &&
               strcmp(text_of(line, "path"), "/v1/completions") == 0 &&
               strcmp(text_of(line, "prompt_machine"), "prompt-0") == 0 &&
               strcmp(text_of(line, "token_machine"), "token-0") == 0 &&
               strcmp(text_of(line, "machine_request"), "abc") == 0 &&
               strncmp(text_of(line, "client"), "127.0.0.1:", 10) == 0,
           "%s", lines);
    CHECKF(number_of(line, "status") == 200 && number_of(line, "prompt_tokens") == 6 &&
               number_of(line, "answer_tokens") == 6 && number_of(line, "cached_tokens") == 0 &&
               number_of(line, "choices") == 1 && json_object_get(line, "key") == NULL &&
               json_object_get(line, "error") == NULL,
           "%s", lines);
    CHECKF(seconds_of(line, "reserve") == 2 && seconds_of(line, "prompt") == 3 &&
               seconds_of(line, "decode") == 0.5 &&
               json_real_value(json_object_get(line, "first_token")) == 6,
           "%s", lines);
    int year = 0;
    char zone = 0;
    CHECK(sscanf(text_of(line, "time"), "%4d-%*2d-%*2dT%*2d:%*2d:%*2d.%*3d%c", &year, &zone) == 2 &&
          year >= 2020 && zone == 'Z');
    json_decref(line);
}

/* Ids that could forge a line, or that are too long, are replaced by one that is in the headers,
 * the body and the line. */
static void check_ids(void)
{
    static const char *const bad[] = {"a b", "a\"b",      "a\\b",  "a,b",
                                      "a<b", "a\x1b[31m", "a%0ab", "a\xc3\xaf"};
    char header[300], id[64];
    for (size_t i = 0; i <= sizeof(bad) / sizeof(bad[0]); i++) {
        if (i < sizeof(bad) / sizeof(bad[0]))
            snprintf(header, sizeof(header), "x-request-id: %s\r\n", bad[i]);
        else
            snprintf(header, sizeof(header), "x-request-id: %0129d\r\n", 1);
        CHECK(ask("POST", "/v1/chat/completions", header,
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"eb\"}]}") == 200);
        const char *at = strstr(reply, "x-request-id: ");
        CHECK(at != NULL && sscanf(at, "x-request-id: %63s", id) == 1);
        CHECKF(strlen(id) == 24 && strspn(id, "0123456789abcdef") == 24, "%s", id);
        snprintf(header, sizeof(header), "\"id\":\"chatcmpl-%s\"", id);
        expect(header);
        CHECK(strcmp(fake_name, id) == 0);
        json_t *line = line_read();
        CHECKF(strcmp(text_of(line, "request"), id) == 0, "%s", lines);
        json_decref(line);
    }
    snprintf(header, sizeof(header), "x-request-id: %0128d\r\n", 1);
    CHECK(ask("POST", "/v1/completions", header, "{\"prompt\": \"eb\"}") == 200);
    json_t *line = line_read();
    CHECK(strlen(text_of(line, "request")) == 128);
    json_decref(line);
}

static void expect_line(const char *finish, unsigned status, long long prompt, long long answer,
                        const char *error)
{
    json_t *line = line_read();
    CHECKF(strcmp(text_of(line, "finish"), finish) == 0 && number_of(line, "status") == status &&
               number_of(line, "prompt_tokens") == prompt &&
               number_of(line, "answer_tokens") == answer &&
               strncmp(text_of(line, "error"), error, strlen(error)) == 0 &&
               (error[0] != 0 || text_of(line, "error")[0] == 0),
           "want %s %u %lld %lld: %s", finish, status, prompt, answer, lines);
    json_decref(line);
}

static void check_ends(void)
{
    CHECK(post("/v1/completions", "{\"prompt\": \"aa\", \"max_tokens\": 3}") == 200);
    expect_line("length", 200, 2, 3, "");
    CHECK(post("/v1/completions",
               "{\"prompt\": \"aa\", \"max_tokens\": 3, \"n\": 2, \"stream\": true}") == 200);
    expect_line("length", 200, 2, 6, "");
    CHECK(post("/v1/completions", "{\"prompt\": \"sa\", \"max_tokens\": 9, \"stop\": \"aa\"}") ==
          200);
    expect_line("stop", 200, 2, 2, "");
    CHECK(post("/v1/completions", "{\"prompt\": \"fa\", \"max_tokens\": 9, \"stream\": true}") ==
          200);
    expect_line("error", 200, 2, 2, "machine \"token-0\" is lost");
    CHECK(post("/v1/completions", "{\"prompt\": \"xa\"}") == 503);
    expect_line("error", 503, 0, 0, "machine \"token-0\" is lost");
    CHECK(post("/v1/completions", "{\"prompt\": \"ra\"}") == 429);
    expect_line("error", 429, 0, 0, "the queue is full");
    int fd = dial();
    unsigned gone = fake_clients_gone;
    send_request(fd, "POST", "/v1/completions", "", "{\"prompt\": \"ha\", \"stream\": true}");
    wait_for_counter(&fake_open, 1, "open");
    close(fd);
    wait_for_counter(&fake_clients_gone, gone + 1, "gone");
    expect_line("left", 0, 0, 0, "");
}

/* Requests without a completion have a line, too. Its error may quote the client. */
static void check_refused(void)
{
    CHECK(post("/v1/completions", "{\"prompt\": \"ea\", \"model\": \"n\\u001b[31m\\n\\\"one\"}") ==
          404);
    json_t *line = line_read();
    CHECKF(number_of(line, "status") == 404 && strstr(text_of(line, "error"), "\x1b[31m") != NULL &&
               json_object_get(line, "answer") == NULL && strchr(lines, '\x1b') == NULL,
           "%s", lines);
    json_decref(line);
    CHECK(ask("GET", "/v1/models", "", "") == 200);
    line = line_read();
    CHECK(strcmp(text_of(line, "path"), "/v1/models") == 0 && number_of(line, "status") == 200);
    json_decref(line);
    CHECK(ask("GET", "/health", "", "") == 200 && ask("GET", "/nothing", "", "") == 404);
    lines_read(0);
}

static void check_trace(void)
{
    static const struct {
        const char *header, *trace, *parent;
    } cases[] = {{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                  "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"},
                 {"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
                  "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"},
                 {"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "", ""},
                 {"00-00000000000000000000000000000000-b7ad6b7169203331-01", "", ""},
                 {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "", ""},
                 {"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", "", ""},
                 {"00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-0101", "", ""},
                 {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", "", ""},
                 {"00", "", ""}};
    char header[128];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(header, sizeof(header), "traceparent: %s\r\n", cases[i].header);
        CHECK(ask("POST", "/v1/completions", header, "{\"prompt\": \"eb\"}") == 200);
        json_t *line = line_read();
        CHECKF(strcmp(text_of(line, "trace"), cases[i].trace) == 0 &&
                   strcmp(text_of(line, "trace_parent"), cases[i].parent) == 0,
               "%s: %s", cases[i].header, lines);
        json_decref(line);
    }
}

static void check_text(void)
{
    snprintf(config.log.format, sizeof(config.log.format), "text");
    CHECK(ask("POST", "/v1/completions", "x-request-id: id-1\r\n", "{\"prompt\": \"eb\"}") == 200);
    lines_read(1);
    CHECKF(strstr(lines, "Z id-1 200 /v1/completions client=127.0.0.1:") != NULL &&
               strstr(lines,
                      " answer=cmpl-id-1 model=m finish=stop prompt_tokens=2 "
                      "cached_tokens=0 answer_tokens=2 prompt_machine=prompt-0 "
                      "token_machine=token-0 machine_request=abc resumed=0 seconds=") != NULL,
           "%s", lines);
    CHECK(post("/v1/completions", "{\"prompt\": \"ea\", \"model\": \"n\\n x=1 \\\"\"}") == 404);
    lines_read(1); /* One line, although the error quotes a line feed. */
    CHECKF(strstr(lines, " error=\"") != NULL && strstr(lines, "\\n x=1 ") != NULL, "%s", lines);
    snprintf(config.log.format, sizeof(config.log.format), "json");
}

static void check_keys(void)
{
    keys_use(key_file);
    CHECK(post("/v1/completions", "{\"prompt\": \"ea\"}") == 401);
    lines_read(0); /* Strangers cannot fill the disk. */
    CHECK(ask("POST", "/v1/completions", USER, "{\"prompt\": \"ea\"}") == 200);
    json_t *line = line_read();
    CHECKF(strcmp(text_of(line, "key"), "user") == 0 && strstr(lines, "sk-") == NULL, "%s", lines);
    json_decref(line);
    server_pause();
    api_keys_apply(keys, NULL);
    server_resume();
}

static void check_full_disk(void)
{
    access_open("/dev/full");
    for (int i = 0; i < 3; i++)
        CHECK(post("/v1/completions", "{\"prompt\": \"ea\"}") == 200);
    for (int i = 0; i < 60000 && fake_access_dropped < 3; i++) {
        CHECK(ask("GET", "/health", "", "") == 200); /* One iteration of the loop. */
        usleep(1000);
    }
    CHECK(fake_access_dropped == 3);
    ssize_t bytes = read(log_fd, lines, sizeof(lines) - 1);
    lines[bytes > 0 ? bytes : 0] = 0;
    const char *told = strstr(lines, "log/access_file loses lines: No space left on device");
    CHECKF(told != NULL && strstr(told + 30, "loses lines") == NULL, "%s", lines);
}

static void check_slow(void)
{
    access_open(NULL);
    config.log.slow_s = 3600;
    CHECK(post("/v1/completions", "{\"prompt\": \"ea\"}") == 200);
    CHECK(read(log_fd, lines, sizeof(lines)) < 0);
    int fd = dial();
    send_request(fd, "POST", "/v1/completions", "x-request-id: slow-1\r\n", "{\"prompt\": \"ha\"}");
    wait_for_counter(&fake_open, 1, "open");
    clock_advance(4000 * 1000000ll);
    fake_hold_fails = true;
    CHECK(read_reply(fd) == 503);
    close(fd);
    fake_hold_fails = false;
    ssize_t bytes = 0;
    for (int i = 0; i < 60000 && (bytes = read(log_fd, lines, sizeof(lines) - 1)) <= 0; i++)
        usleep(1000);
    CHECK(bytes > 0);
    lines[bytes] = 0;
    CHECKF(strstr(lines, "warn  gateway: request slow-1 took 4000.") != NULL &&
               strstr(lines, " s: the client read its answer 39") != NULL &&
               strstr(lines,
                      "machines prompt-0 and token-0 (request abc there), resumed 0 times") != NULL,
           "%s", lines);
    config.log.slow_s = 0;
}

/* Spans are valid JSON whatever the texts contain; phases that took no time have none. */
static void check_spans(void)
{
    const uint64_t ids[2] = {0, 0};
    struct completion_facts facts = {.model = "a\"b", .summarised = true};
    struct http_record record = {.request_id = "r",
                                 .trace_id = "",
                                 .trace_parent = "",
                                 .facts = &facts,
                                 .path = "/v1/x",
                                 .key_name = "k\"\n",
                                 .finish = "stop",
                                 .error = "",
                                 .status = 503,
                                 .total_us = 5,
                                 .phases_us = {[HTTP_PHASE_PROMPT] = 2, [HTTP_PHASE_DECODE] = 3}};
    struct text text = {0};
    snprintf(facts.last_summary.prompt_machine, sizeof(facts.last_summary.prompt_machine), "p0");
    text_string_add(&text, "[");
    CHECK(http_record_spans(&record, ids, &text) == 3);
    text_string_add(&text, "]");
    json_t *spans = json_loadb(text.data, text.bytes, 0, NULL);
    CHECKF(json_array_size(spans) == 3, "%.*s", (int)text.bytes, text.data);
    const json_t *root = json_array_get(spans, 0), *prompt = json_array_get(spans, 1);
    CHECK(strcmp(text_of(root, "spanId"), "0000000000000001") == 0 &&
          strcmp(text_of(root, "traceId"), "00000000000000010000000000000000") == 0 &&
          json_object_get(root, "parentSpanId") == NULL &&
          number_of(json_object_get(root, "status"), "code") == 2);
    CHECK(strcmp(text_of(prompt, "name"), "prompt") == 0 &&
          strcmp(text_of(prompt, "parentSpanId"), text_of(root, "spanId")) == 0 &&
          strcmp(text_of(prompt, "startTimeUnixNano"), text_of(root, "startTimeUnixNano")) == 0 &&
          strcmp(text_of(json_array_get(spans, 2), "endTimeUnixNano"),
                 text_of(root, "endTimeUnixNano")) == 0);
    json_decref(spans);
    text_done(&text);
}

static void log_capture(void)
{
    int ends[2], real = dup(STDERR_FILENO);
    CHECK(real >= 0 && pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    log_open("gateway", LOG_INFO);
    CHECK(dup2(real, STDERR_FILENO) >= 0 && close(ends[1]) == 0 && close(real) == 0);
    log_fd = ends[0];
    CHECK(fcntl(log_fd, F_SETFL, O_NONBLOCK) == 0);
}

int main(void)
{
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    log_capture();
    server_config_default();
    snprintf(config.log.format, sizeof(config.log.format), "json");
    server_start((struct http_options){.admin_fd = 0});
    access_open(path);
    check_whole_answer();
    check_ids();
    check_ends();
    check_refused();
    check_trace();
    check_text();
    check_keys();
    check_full_disk();
    check_slow();
    check_spans();
    server_stop();
    unlink(path);
    return 0;
}
