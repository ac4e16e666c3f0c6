/* Goal: answers that no client reads take a bounded memory for a bounded time, and a client that
 * reads is never dropped because an answer is long. Method: clients that read or do not read large
 * answers; the test sets the clock. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* More than the sockets' buffers of a connection take. */
#define ANSWER_BYTES (16u << 20)

/* Asks for a large answer and does not read it. Returns the connection. */
static int ask_large(void)
{
    int fd = dial();
    send_request(fd, "GET", "/metrics", "", "");
    return fd;
}

static uint64_t unread(void)
{
    server_pause();
    uint64_t bytes = http->unread_bytes;
    server_resume();
    return bytes;
}

static void wait_unread(uint64_t least, uint64_t most)
{
    for (int i = 0; i < 60000 && (unread() < least || unread() > most); i++)
        usleep(1000);
    uint64_t bytes = unread();
    CHECKF(bytes >= least && bytes <= most, "%llu bytes are unread", (unsigned long long)bytes);
}

/* Reads up to this many bytes. Returns fewer if the server has closed the connection. */
static size_t read_some(int fd, size_t bytes)
{
    static char piece[65536];
    size_t all = 0;
    while (all < bytes) {
        size_t most = bytes - all < sizeof(piece) ? bytes - all : sizeof(piece);
        ssize_t got = recv(fd, piece, most, 0);
        CHECKF(got >= 0 || errno == ECONNRESET, "recv: %s", strerror(errno));
        if (got <= 0)
            break;
        all += (size_t)got;
    }
    return all;
}

/* F-13 of the security review: unread answers were kept without limit. */
static void check_all_unread_answers_have_one_limit(void)
{
    server_pause();
    config.http.answers_bytes_max = ANSWER_BYTES * 3 / 2;
    server_resume();
    int slow[2], reader = -1;
    slow[0] = ask_large();
    wait_unread(ANSWER_BYTES, ANSWER_BYTES * 3 / 2);
    for (int i = 1; i <= 2; i++) { /* each one takes the place of the one before */
        unsigned ended = fake_http_codes[200];
        int next = ask_large();
        wait_for_counter(&fake_http_codes[200], ended + 1, "ended");
        if (i < 2)
            slow[i] = next;
        else
            reader = next;
        CHECK(read_some(slow[i - 1], SIZE_MAX) < ANSWER_BYTES);
        close(slow[i - 1]);
        wait_unread(ANSWER_BYTES, ANSWER_BYTES * 3 / 2);
    }
    CHECK(read_some(reader, ANSWER_BYTES) == ANSWER_BYTES);
    close(reader);
    wait_unread(0, 0);
}

static void check_unread_answer_has_a_time_limit(void)
{
    int fd = ask_large();
    wait_unread(ANSWER_BYTES, UINT64_MAX);
    CHECK(read_some(fd, ANSWER_BYTES / 2) == ANSWER_BYTES / 2);
    clock_advance(31000000); /* half an answer earns more than this */
    CHECK(ask("GET", "/ping", "", "") == 200 && unread() > 0);
    clock_advance(3600000000ll);
    CHECK(read_some(fd, SIZE_MAX) < ANSWER_BYTES / 2);
    close(fd);
    wait_unread(0, 0);
}

/* A stream that waits for its next token has no time limit. */
static void check_waiting_stream_has_no_time_limit(void)
{
    unsigned submitted = fake_submitted;
    int fd = dial();
    send_request(fd, "POST", "/v1/completions", "", "{\"prompt\": \"h\", \"stream\": true}");
    wait_for_counter(&fake_submitted, submitted + 1, "submitted");
    clock_advance(3600000000ll);
    CHECK(ask("GET", "/ping", "", "") == 200 && fake_open == 1);
    close(fd);
    wait_for_counter(&fake_open, 0, "open");
}

/* F-7: the first event of this stream alone is larger than what a slow reader may have unread. */
static void check_long_scored_prompt_is_streamed(void)
{
    enum { TOKENS = 50000 };
    static char body[TOKENS + 256];
    int bytes = snprintf(body, sizeof(body),
                         "{\"stream\": true, \"echo\": true, \"logprobs\": 1, "
                         "\"max_tokens\": 2, \"prompt\": \"");
    memset(body + bytes, 'a', TOKENS);
    memcpy(body + bytes + TOKENS, "\"}", 3);
    CHECK(post("/v1/completions", body) == 200);
    CHECKF(reply_body_bytes > 1 << 20, "%zu bytes", reply_body_bytes);
    CHECK(count_in_body("{\"a\":-0.25}") == TOKENS - 1 && count_in_body("\"data: [DONE]") == 0);
    CHECKF(count_in_body("data: ") > 5, "%u events", count_in_body("data: "));
    CHECK(strcmp(reply_body + reply_body_bytes - 14, "data: [DONE]\n\n") == 0);
}

int main(void)
{
    server_config_default();
    fake_metrics_bytes = ANSWER_BYTES;
    server_start((struct http_options){0});
    check_all_unread_answers_have_one_limit();
    check_unread_answer_has_a_time_limit();
    check_waiting_stream_has_no_time_limit();
    check_long_scored_prompt_is_streamed();
    server_stop();
    return 0;
}
