/* Goal: a tenant pays for its own requests only, and learns nothing about those of others.
 * Method: requests whose key is removed, or that the gateway does not take, and what an attacker
 * can compute from an id. */
#include "tests/check.h"
#include "tests/server/http/http_fixture.h"

#include "common/random.h"

#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ALPHA "Authorization: Bearer sk-alpha-0123456789\r\n"

static const struct api_key_counts *counts_of(const char *secret)
{
    char header[128];
    struct api_key_shown shown;
    snprintf(header, sizeof(header), "Bearer %s", secret);
    CHECK(api_keys_find(keys, header, NULL, &shown));
    return api_keys_counts(keys, shown.key_index);
}

/* --- ids and seeds --- */

static uint64_t unshift(uint64_t x, unsigned bits)
{
    uint64_t y = x;
    for (unsigned known = bits; known < 64; known += bits)
        y = x ^ (y >> bits);
    return y;
}

/* The inverse of random_mix. */
static uint64_t unmix(uint64_t x)
{
    x = unshift(x, 31) * 0x319642b2d24d8ec3u;
    x = unshift(x, 27) * 0x96de1b173f119089u;
    return unshift(x, 30) - 0x9e3779b97f4a7c15u;
}

/* Returns the two parts of the answer's id. */
static void id_read(uint64_t *random, uint64_t *counter)
{
    const char *at = strstr(reply_body, "\"id\":\"cmpl-");
    unsigned low = 0;
    CHECK(at != NULL && sscanf(at + 11, "%16" SCNx64 "%8x", random, &low) == 2);
    *counter = low;
}

/* F-6 of the security review: ids were random_at(key, counter) and seeds random_at(key, ~counter),
 * which can be inverted: whoever saw one id knew the seeds of all requests. */
static void check_ids_tell_nothing_about_seeds(void)
{
    uint64_t first, counter, second, next;
    CHECK(unmix(random_mix(0x0123456789abcdef)) == 0x0123456789abcdef);
    CHECK(post("/v1/completions", "{\"prompt\": \"ehi\"}") == 200);
    id_read(&first, &counter);
    uint64_t mixed_key = unmix(first) ^ random_mix(counter ^ 0x6a09e667f3bcc909u);
    uint64_t key = unmix(mixed_key);
    uint64_t seed = fake_seed;
    CHECK(seed != random_at(key, ~(counter + 1)));
    CHECK(post("/v1/completions", "{\"prompt\": \"ehi\"}") == 200);
    id_read(&second, &next);
    CHECK(second != first && fake_seed != seed);
    for (uint64_t ahead = 0; ahead < 4; ahead++) {
        CHECK(fake_seed != random_at(key, ~(counter + ahead)));
        CHECK(next != counter + ahead); /* ids do not count requests */
    }
    /* A seed that the client gives is used as it is. */
    CHECK(post("/v1/completions", "{\"prompt\": \"ehi\", \"seed\": 7}") == 200 && fake_seed == 7);
}

/* --- charges --- */

/* F-20: when the gateway had no room for one choice, the key paid for all of them. */
static void check_failed_submission_is_not_charged(void)
{
    keys_use("{\"keys\": [{\"name\": \"alpha\", \"key\": \"sk-alpha-0123456789\","
             " \"tokens_per_minute\": 100}]}");
    for (int i = 0; i < 5; i++) {
        unsigned gone = fake_clients_gone;
        fake_submits_left = 2;
        CHECK(ask("POST", "/v1/completions", ALPHA,
                  "{\"prompt\": [\"h2345678901234567890\", \"h2345678901234567890\","
                  " \"h2345678901234567890\"]}") == 429);
        expect("too many requests are open here");
        wait_for_counter(&fake_clients_gone, gone + 2, "released");
    }
    fake_submits_left = UINT32_MAX;
    const struct api_key_counts *counts = counts_of("sk-alpha-0123456789");
    CHECK(counts->prompt_tokens == 0 && counts->in_flight == 0);
    CHECK(ask("POST", "/v1/completions", ALPHA, "{\"prompt\": \"ehi\"}") == 200);
    CHECK(counts->prompt_tokens == 3);
}

/* The key paid for the prompt once per answer, and `usage` counted it once. */
static void check_prompt_is_charged_once(void)
{
    keys_use("{\"keys\": [{\"name\": \"alpha\", \"key\": \"sk-alpha-0123456789\","
             " \"tokens_per_minute\": 1000, \"requests_max\": 8}]}");
    const struct api_key_counts *counts = counts_of("sk-alpha-0123456789");
    uint64_t before = counts->prompt_tokens, generated = counts->generated_tokens;
    CHECK(ask("POST", "/v1/completions", ALPHA, "{\"prompt\": [\"ehi\", \"ehello\"], \"n\": 4}") ==
          200);
    expect("\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":36");
    CHECK(counts->prompt_tokens == before + 9);
    CHECK(counts->generated_tokens == generated + 36);
    /* More answers than the key may ever have: not a 429, after which clients try again for
     * ever. */
    uint64_t refused = counts->refused;
    CHECK(ask("POST", "/v1/completions", ALPHA, "{\"prompt\": \"ehi\", \"n\": 9}") == 400);
    expect("\"param\":\"n\"");
    expect("the request wants 9 answers (prompts × n): key alpha may have 8 in flight");
    CHECK(counts->refused == refused + 1 && counts->in_flight == 0);
}

/* F-14: a request whose key was removed while its body arrived was charged to the key that had
 * taken its index. */
static void check_removed_key_is_not_charged_to_another(void)
{
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" ALPHA
                               "Content-Type: application/json\r\nContent-Length: 16\r\n\r\n";
    static const char body[] = "{\"prompt\":\"ehi\"}";
    unsigned submitted = fake_submitted;
    int fd = dial();
    send_bytes(fd, head, sizeof(head) - 1);
    send_bytes(fd, body, 5);
    wait_for_body_bytes(5);
    keys_use("{\"keys\": [{\"name\": \"beta\", \"key\": \"sk-beta-0123456789\"}]}");
    send_bytes(fd, body + 5, 11);
    CHECK(read_reply(fd) == 401);
    expect("this API key was removed");
    close(fd);
    CHECK(counts_of("sk-beta-0123456789")->requests == 0 && fake_submitted == submitted);
}

#define KEY_ALPHA "{\"name\": \"alpha\", \"key\": \"sk-alpha-0123456789\"}"
#define KEY_BETA  "{\"name\": \"beta\", \"key\": \"sk-beta-0123456789\"}"
#define BETA      "Authorization: Bearer sk-beta-0123456789\r\n"

/* Begins a request. With a stream, returns when its first event has arrived. */
static int begin(const char *header, const char *body)
{
    int fd = dial();
    unsigned open = fake_open;
    char some[4096];
    send_request(fd, "POST", "/v1/completions", header, body);
    wait_for_counter(&fake_open, open + 1, "submitted");
    if (strstr(body, "stream") != NULL)
        CHECK(recv(fd, some, sizeof(some), MSG_PEEK) > 0);
    return fd;
}

/* A key that is removed, or gets another secret, is revoked at once: its streams end with an error
 * event, its requests that wait get a 401, and nothing of them stays on machines. Other keys'
 * requests go on. */
static void check_revoked_key_ends_its_requests(void)
{
    static const char stream[] = "{\"prompt\": \"p\", \"stream\": true, \"max_tokens\": 50000}";
    static const char waiting[] = "{\"prompt\": \"h\"}";
    static const char waiting_twice[] = "{\"prompt\": \"h\", \"n\": 2}";
    static const char *const later[] = {
        "{\"keys\": [" KEY_BETA "]}",
        "{\"keys\": [{\"name\": \"alpha\", \"key\": \"sk-new-0123456789\"}, " KEY_BETA "]}"};
    for (int i = 0; i < 2; i++) {
        keys_use("{\"keys\": [" KEY_ALPHA ", " KEY_BETA "]}");
        unsigned gone = fake_clients_gone;
        int running = begin(ALPHA, stream);
        int queued = begin(ALPHA, waiting);
        int other = begin(BETA, stream);
        int two = dial();
        send_request(two, "POST", "/v1/completions", ALPHA, waiting_twice);
        wait_for_counter(&fake_open, 5, "submitted");
        keys_use(later[i]);
        CHECK(read_reply(running) == 200);
        expect("\"text\":\"a\"");
        expect("\"message\":\"this API key was removed or replaced\"");
        expect("\"code\":\"invalid_api_key\"");
        CHECK(read_reply(queued) == 401);
        expect("this API key was removed or replaced");
        CHECK(read_reply(two) == 401);
        wait_for_counter(&fake_clients_gone, gone + 4, "cancelled");
        CHECK(fake_open == 1);
        CHECK(ask("POST", "/v1/completions", ALPHA, waiting) == 401);
        char some[4096];
        server_pause(); /* what the other stream gets after this was written after the change */
        while (recv(other, some, sizeof(some), MSG_DONTWAIT) > 0)
            ;
        server_resume();
        CHECK(recv(other, some, sizeof(some), 0) > 0);
        close(running);
        close(queued);
        close(two);
        close(other);
        wait_for_counter(&fake_open, 0, "the other client has left");
    }
    /* The rest of a key's rules may change under its requests. */
    int fd = begin(BETA, stream);
    keys_use("{\"keys\": [{\"name\": \"beta\", \"key\": \"sk-beta-0123456789\", \"weight\": 7}]}");
    server_pause();
    CHECK(http->exchanges != NULL && !http->exchanges->key_revoked && fake_open == 1);
    server_resume();
    close(fd);
    wait_for_counter(&fake_open, 0, "the client has left");
}

/* --- the prefix cache --- */

#define SECRET_A "sk-a-0123456789012"
#define SECRET_B "sk-b-0123456789012"
#define SECRET_C "sk-c-0123456789012"

static uint64_t salt_of(const char *secret, const char *more)
{
    char header[128], body[128];
    snprintf(header, sizeof(header), "Authorization: Bearer %s\r\n", secret);
    snprintf(body, sizeof(body), "{\"prompt\": \"ehi\"%s}", more);
    CHECK(ask("POST", "/v1/completions", header, body) == 200);
    return fake_salt;
}

static void scope_set(const char *scope)
{
    server_pause();
    snprintf(config.server.prefix_cache_scope, sizeof(config.server.prefix_cache_scope), "%s",
             scope);
    server_resume();
}

/* F-8: all keys shared one prefix cache, and cached_tokens told what another tenant had sent. */
static void check_prefix_cache_is_salted_by_key(void)
{
    static const char x[] = ", \"cache_salt\": \"x\"", y[] = ", \"cache_salt\": \"y\"";
    keys_use("{\"keys\": [{\"name\": \"a\", \"key\": \"" SECRET_A "\", \"cache_group\": \"c\"},"
             "{\"name\": \"b\", \"key\": \"" SECRET_B "\", \"cache_group\": \"c\"},"
             "{\"name\": \"c\", \"key\": \"" SECRET_C "\"}]}");
    uint64_t a = salt_of(SECRET_A, ""), b = salt_of(SECRET_B, ""), c = salt_of(SECRET_C, "");
    CHECK(a != 0 && b != 0 && c != 0 && a != b && a != c && b != c && a == salt_of(SECRET_A, ""));
    uint64_t ax = salt_of(SECRET_A, x);
    CHECK(ax != a && ax == salt_of(SECRET_A, x) && ax != salt_of(SECRET_A, y) &&
          ax != salt_of(SECRET_B, x));
    scope_set("group");
    uint64_t group = salt_of(SECRET_A, "");
    CHECK(group == salt_of(SECRET_B, "") && salt_of(SECRET_C, "") == c && group != c);
    CHECK(salt_of(SECRET_A, x) == salt_of(SECRET_B, x) && salt_of(SECRET_A, x) != group);
    scope_set("all");
    CHECK(salt_of(SECRET_A, "") == 0 && salt_of(SECRET_C, "") == 0);
    CHECK(salt_of(SECRET_A, x) == salt_of(SECRET_C, x) && salt_of(SECRET_A, x) != 0);
    scope_set("key");
}

/* Without API keys there is one cache, unless a request has a salt. */
static void check_prefix_cache_without_keys(void)
{
    CHECK(post("/v1/completions", "{\"prompt\": \"ehi\"}") == 200 && fake_salt == 0);
    CHECK(post("/v1/completions", "{\"prompt\": \"ehi\", \"cache_salt\": \"x\"}") == 200);
    CHECK(fake_salt != 0);
    CHECK(post("/v1/completions", "{\"prompt\": \"ehi\", \"cache_salt\": \"\"}") == 400);
    CHECK(post("/v1/completions", "{\"prompt\": \"ehi\", \"cache_salt\": 5}") == 400);
}

int main(void)
{
    server_config_default();
    server_start((struct http_options){0});
    check_ids_tell_nothing_about_seeds();
    check_prefix_cache_without_keys();
    check_failed_submission_is_not_charged();
    check_prompt_is_charged_once();
    check_removed_key_is_not_charged_to_another();
    check_revoked_key_ends_its_requests();
    check_prefix_cache_is_salted_by_key();
    server_stop();
    return 0;
}
