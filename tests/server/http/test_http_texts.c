/* Goal: while threads read the texts of requests, the texts count for their key, clients may leave,
 * keys may be removed and the server may stop; a large text holds up no small one. Method: texts
 * whose encoding waits until the test releases it. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include <string.h>
#include <unistd.h>

#define ALPHA     "Authorization: Bearer sk-alpha-0123456789\r\n"
#define BETA      "Authorization: Bearer sk-beta-0123456789\r\n"
#define KEY_ALPHA "{\"name\": \"alpha\", \"key\": \"sk-alpha-0123456789\", \"requests_max\": 2}"
#define KEY_BETA  "{\"name\": \"beta\", \"key\": \"sk-beta-0123456789\"}"
#define WAITING   "{\"prompt\": \"W\"}"

/* Begins a request. Returns the connection when `held` texts wait. */
static int begin(const char *path, const char *headers, const char *body, unsigned held)
{
    int fd = dial();
    send_request(fd, "POST", path, headers, body);
    wait_for_counter(&fake_encode_held, held, "texts that wait");
    return fd;
}

/* Returns a body with a prompt of this many bytes. */
static const char *prompt(char first, size_t bytes)
{
    static char body[100000];
    CHECK(bytes + 20 < sizeof(body));
    int at = sprintf(body, "{\"prompt\": \"%c", first);
    memset(body + at, 'a', bytes - 1);
    strcpy(body + at + bytes - 1, "\"}");
    return body;
}

static void release(int fd, int want)
{
    fake_encode_holds = false;
    if (fd < 0)
        return;
    int status = read_reply(fd);
    CHECKF(status == want, "%d, want %d:\n%s", status, want, reply);
    close(fd);
}

/* A client that leaves costs its body until the thread has ended, and nothing after that. */
static void check_clients_leave(void)
{
    fake_encode_holds = true;
    int running[2];
    for (unsigned i = 0; i < 2; i++)
        running[i] = begin("/v1/completions", "", WAITING, i + 1);
    int queued = dial();
    send_request(queued, "POST", "/tokenize", "", WAITING);
    wait_for_body_bytes(3 * strlen(WAITING));
    close(queued);
    wait_for_body_bytes(2 * strlen(WAITING)); /* the threads still read two of them */
    close(running[0]);
    close(running[1]);
    CHECK(fake_encode_held == 2);
    release(-1, 0);
    wait_for_body_bytes(0);
    CHECK(post("/tokenize", "{\"prompt\": \"ab\"}") == 200);
}

/* F-3: /tokenize and /detokenize counted against no limit of a key. */
static void check_limits(void)
{
    static const char *const paths[] = {"/tokenize", "/v1/completions", "/detokenize"};
    keys_use("{\"keys\": [" KEY_ALPHA "," KEY_BETA "]}");
    for (int leave = 0; leave < 2; leave++) {
        fake_encode_holds = true;
        int first = begin("/tokenize", ALPHA, WAITING, 1);
        int second = begin("/v1/completions", ALPHA, "{\"prompt\": \"Whi\", \"max_tokens\": 0}", 2);
        for (int i = 0; i < 3; i++) {
            CHECK(ask("POST", paths[i], ALPHA, "{\"prompt\": \"ehi\", \"tokens\": [97]}") == 429);
            expect("key alpha is at its limit of 2 answers in flight");
        }
        if (leave) { /* its texts count until the threads have ended */
            close(first);
            close(second);
            wait_for_counter(&fake_encode_held, 2, "texts that wait");
            CHECK(ask("POST", "/tokenize", ALPHA, "{\"prompt\": \"ab\"}") == 429);
            release(-1, 0);
            wait_for_body_bytes(0);
        } else {
            release(first, 200);
            release(second, 200);
        }
        CHECK(ask("POST", "/tokenize", ALPHA, "{\"prompt\": \"ab\"}") == 200);
        CHECK(ask("POST", "/v1/completions", ALPHA, "{\"prompt\": \"ehi\", \"n\": 2}") == 200);
    }
    keys_use("{\"keys\": [{\"name\": \"alpha\", \"key\": \"sk-alpha-0123456789\","
             " \"tokens_per_minute\": 1}]}");
    CHECK(ask("POST", "/v1/completions", ALPHA, "{\"prompt\": \"ehi\"}") == 200);
    expect("x-ratelimit-limit-tokens: 1\r\nx-ratelimit-remaining-tokens: 0\r\n"
           "x-ratelimit-reset-tokens: ");
    CHECK(ask("POST", "/tokenize", ALPHA, "{\"prompt\": \"ab\"}") == 429);
    expect("tokens a minute");
}

/* A key that is removed while its text is read: 401, and its place is not given away. */
static void check_removed_key(void)
{
    keys_use("{\"keys\": [" KEY_ALPHA "]}");
    fake_encode_holds = true;
    int fd = begin("/tokenize", ALPHA, WAITING, 1);
    int left = begin("/tokenize", ALPHA, WAITING, 2);
    close(left);
    keys_use("{\"keys\": [" KEY_BETA "]}");
    CHECK(ask("POST", "/detokenize", ALPHA, "{\"tokens\": [97]}") == 401);
    release(fd, 401);
    expect("this API key was removed");
    wait_for_body_bytes(0);
    keys_use("{\"keys\": [" KEY_BETA "]}");
}

/* A prompt that cannot fit into the context is refused without being encoded. */
static void check_too_long(void)
{
    fake_encode_holds = true;
    CHECK(ask("POST", "/v1/completions", BETA, prompt('W', 60001)) == 400);
    expect("context_length_exceeded");
    expect("This model's maximum context length is 60000 tokens");
    expect("the prompt has at least 60001 tokens");
    CHECK(fake_encode_held == 0);
    fake_encode_holds = false;
    CHECK(ask("POST", "/tokenize", BETA, prompt('a', 60001)) == 200);
    expect("\"count\":60001,");
}

static void check_large_and_small(void)
{
    fake_encode_holds = true;
    int large[3];
    for (int i = 0; i < 3; i++) {
        large[i] = dial();
        send_request(large[i], "POST", "/tokenize", BETA, prompt('W', 70000));
    }
    wait_for_counter(&fake_encode_held, 1, "large texts that wait");
    for (int i = 0; i < 10; i++)
        CHECK(ask("POST", "/v1/completions", BETA, "{\"prompt\": \"ehi\"}") == 200);
    CHECK(fake_encode_held == 1);
    for (int i = 0; i < 3; i++)
        release(large[i], 200);
}

int main(void)
{
    server_config_default();
    server_start((struct http_options){0});
    check_clients_leave();
    check_limits();
    check_removed_key();
    check_too_long();
    check_large_and_small();
    /* The server stops while one text is read and others are queued. */
    fake_encode_holds = true;
    int open[4];
    for (int i = 0; i < 4; i++)
        open[i] = begin("/v1/completions", BETA, WAITING, i > 0 ? 2 : 1);
    server_stop_now();
    for (int i = 0; i < 4; i++)
        close(open[i]);
    return 0;
}
