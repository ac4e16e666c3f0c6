/* Goal: a key file is read as a whole or refused with an error that names the position and never
 * shows a key; keys are found by what clients send; limits hold and are paid back; reading the file
 * again keeps counters and answers in flight. Method: files in a scratch folder; the test sets the
 * time. */
#include "common/secret.h"
#include "server/api/keys.h"
#include "tests/check.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_A  "sk-alpha-0123456789"
#define SECRET_B  "sk-beta-0123456789ab"
#define SECOND_US 1000000ll

static char path[] = "/tmp/cleave-keys-XXXXXX";

static void file_write(const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    CHECK(chmod(path, mode) == 0);
}

static void check_wrong(const char *text, mode_t mode, const char *part)
{
    struct api_key_set *set = NULL;
    struct error error = {""};
    file_write(text, mode);
    CHECK(api_key_set_read(path, &set, &error) != ST_OK && set == NULL);
    CHECKF(strstr(error.text, part) != NULL, "no '%s' in: %s", part, error.text);
    CHECKF(strstr(error.text, path) != NULL, "no path in: %s", error.text);
    CHECKF(strstr(error.text, "0123456789") == NULL, "a key is shown: %s", error.text);
}

static void check_files(void)
{
    static const char good[] = "{\"keys\": [{\"name\": \"a\", \"key\": \"" SECRET_A "\"}]}";
    check_wrong(good, 0644, "mode 0644");
    check_wrong(good, 0620, "chmod 600");
    check_wrong("{\"keys\": [{\"name\": \"a\", \"key\": \"" SECRET_A "\"", 0600, ":1: not JSON");
    check_wrong("{\"keys\": []}", 0600, "/keys has 0 entries");
    check_wrong("{\"keyz\": []}", 0600, "want {\"keys\"");
    check_wrong("{\"keys\": [{\"name\": \"a\"}]}", 0600, "/keys/0/key: want either key or sha256");
    check_wrong("{\"keys\": [{\"key\": \"" SECRET_A "\"}]}", 0600, "/keys/0/name");
    check_wrong("{\"keys\": [{\"name\": \"a\", \"key\": \"short0123456789\"}]}", 0600, "16 to 512");
    check_wrong("{\"keys\": [{\"name\": \"a\", \"sha256\": \"" SECRET_A "\"}]}", 0600, "64 hex");
    check_wrong("{\"keys\": [{\"name\": \"a b\", \"key\": \"" SECRET_A "\"}]}", 0600, "name");
    check_wrong("{\"keys\": [{\"name\": \"a\", \"key\": \"" SECRET_A "\", \"weight\": 0}]}", 0600,
                "/keys/0/weight: want a whole number from 1");
    check_wrong("{\"keys\": [{\"name\": \"a\", \"key\": \"" SECRET_A "\", \"wait\": 0}]}", 0600,
                "/keys/0/wait: want one of name");
    check_wrong("{\"keys\": [{\"name\": \"a\", \"key\": \"" SECRET_A "\"},"
                "{\"name\": \"b\", \"key\": \"" SECRET_A "\"}]}",
                0600, "/keys/1/key: want another one");
    check_wrong("{\"keys\": [{\"name\": \"a\", \"key\": \"" SECRET_A "\"},"
                "{\"name\": \"a\", \"key\": \"" SECRET_B "\"}]}",
                0600, "/keys/1/name: want another one");
    struct api_key_set *set = NULL;
    struct error error;
    CHECK(unlink(path) == 0 && api_key_set_read(path, &set, &error) == ST_NOT_FOUND);
    CHECK(mkfifo(path, 0600) == 0 && api_key_set_read(path, &set, &error) == ST_INVALID);
    CHECK(unlink(path) == 0);
}

static void apply(struct api_keys *keys, const char *text)
{
    struct api_key_set *set;
    struct error error;
    file_write(text, 0600);
    CHECKF(api_key_set_read(path, &set, &error) == ST_OK, "%s", error.text);
    api_keys_apply(keys, set);
}

static uint32_t find(const struct api_keys *keys, const char *authorization)
{
    uint32_t key = API_KEY_NONE;
    return api_keys_find(keys, authorization, NULL, &key) ? key : API_KEY_NONE;
}

static uint32_t find_plain(const struct api_keys *keys, const char *authorization,
                           const char *x_api_key)
{
    uint32_t key = API_KEY_NONE;
    return api_keys_find(keys, authorization, x_api_key, &key) ? key : API_KEY_NONE;
}

/* The same key in clear and as its hash; what clients send that is no key. */
static void check_finding(struct api_keys *keys)
{
    uint8_t hash[SECRET_HASH_BYTES];
    char text[512], hex[2 * SECRET_HASH_BYTES + 1];
    secret_hash(SECRET_B, strlen(SECRET_B), hash);
    for (size_t i = 0; i < sizeof(hash); i++)
        snprintf(hex + 2 * i, 3, i % 2 ? "%02x" : "%02X", hash[i]);
    CHECK(!api_keys_configured(keys) && find(keys, "Bearer " SECRET_A) == API_KEY_NONE);
    snprintf(text, sizeof(text),
             "{\"keys\": [{\"name\": \"a\", \"key\": \"" SECRET_A "\", \"weight\": 4},"
             "{\"name\": \"b\", \"sha256\": \"%s\", \"admin\": true, \"priority_best\": -5}]}",
             hex);
    apply(keys, text);
    uint32_t a = find(keys, "Bearer " SECRET_A);
    uint32_t b = find(keys, "bearer  " SECRET_B);
    CHECK(api_keys_configured(keys) && a != b && a < API_KEY_INDICES && b < API_KEY_INDICES);
    CHECK(find_plain(keys, NULL, SECRET_A) == a && find_plain(keys, NULL, " " SECRET_B) == b);
    CHECK(find_plain(keys, NULL, "Bearer " SECRET_A) == API_KEY_NONE);
    CHECK(find_plain(keys, "Bearer " SECRET_B, SECRET_A) == b); /* Authorization decides. */
    CHECK(find_plain(keys, "Basic " SECRET_B, SECRET_A) == API_KEY_NONE);
    CHECK(api_keys_rules(keys, a)->weight == 4 && !api_keys_rules(keys, a)->admin);
    CHECK(api_keys_rules(keys, b)->weight == 1 && api_keys_rules(keys, b)->admin);
    CHECK(api_keys_rules(keys, b)->priority_best == -5);
    static const char *const others[] = {NULL,          "",
                                         "Bearer",      "Bearer ",
                                         SECRET_A,      "Basic " SECRET_A,
                                         "Bearer x",    "Bearer " SECRET_A "x",
                                         "Bearer sk-a", "Bearer sk-alpha-0123456788"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        CHECK(find(keys, others[i]) == API_KEY_NONE);
}

static bool begin(struct api_keys *keys, uint32_t key, uint32_t answers, uint64_t tokens,
                  int64_t now_us, uint32_t retry_s)
{
    struct api_error error = {0};
    bool good = api_keys_answers_begin(keys, key, answers, tokens, now_us, &error);
    if (!good)
        CHECKF(error.status == 429 && error.retry_after_s == retry_s, "%u: %s", error.retry_after_s,
               error.message);
    return good;
}

static void check_limits(struct api_keys *keys)
{
    apply(keys, "{\"keys\": [{\"name\": \"c\", \"key\": \"" SECRET_A
                "\", \"requests_max\": 3, \"tokens_per_minute\": 600}]}");
    uint32_t c = find(keys, "Bearer " SECRET_A);
    int64_t now = 5 * SECOND_US;
    CHECK(begin(keys, c, 2, 100, now, 0));
    CHECK(!begin(keys, c, 2, 10, now, 1)); /* 4 of 3 */
    CHECK(begin(keys, c, 1, 100, now, 0) && api_keys_counts(keys, c)->in_flight == 3);
    for (int i = 0; i < 3; i++)
        api_keys_answer_end(keys, c);
    /* 400 are left; an answer overdraws by 200, which 20 seconds at 10 a second make up for. */
    CHECK(begin(keys, c, 1, 100, now, 0));
    api_keys_tokens_charge(keys, c, 500);
    CHECK(!begin(keys, c, 1, 1, now, 21) && !begin(keys, c, 1, 1, now + 19 * SECOND_US, 2));
    CHECK(begin(keys, c, 1, 60, now + 21 * SECOND_US, 0));
    api_keys_tokens_return(keys, c, 60); /* the cluster refused it */
    CHECK(begin(keys, c, 1, 5, now + 21 * SECOND_US, 0));
    const struct api_key_counts *counts = api_keys_counts(keys, c);
    CHECK(counts->requests == 6 && counts->refused == 3 && counts->in_flight == 3);
    CHECK(counts->prompt_tokens == 305 && counts->generated_tokens == 500);
    /* Long after, there is one minute's worth, not more; a prompt larger than that still runs. */
    api_keys_answer_end(keys, c);
    CHECK(begin(keys, c, 1, 6000, now + 9000 * SECOND_US, 0));
    api_keys_answer_end(keys, c);
    CHECK(!begin(keys, c, 1, 1, now + 9000 * SECOND_US, 541));
    /* A request whose body took long to read arrived earlier: the budget is not filled twice. */
    CHECK(!begin(keys, c, 1, 1, now, 541));
    CHECK(!begin(keys, c, 1, 1, now + 9000 * SECOND_US, 541));
    CHECK(begin(keys, API_KEY_NONE, 1000, 1u << 30, 0, 0)); /* without a key there are no limits */
}

/* Texts that are read count as answers in flight, and cost nothing. */
static void check_texts(void)
{
    struct api_keys *keys;
    struct api_error error = {0};
    CHECK(api_keys_open(&keys) == ST_OK);
    apply(keys, "{\"keys\": [{\"name\": \"t\", \"key\": \"" SECRET_A
                "\", \"requests_max\": 3, \"tokens_per_minute\": 60}]}");
    uint32_t t = find(keys, "Bearer " SECRET_A);
    const struct api_key_counts *counts = api_keys_counts(keys, t);
    uint64_t requests = counts->requests;
    CHECK(api_keys_text_begin(keys, t, SECOND_US, &error));
    CHECK(api_keys_text_begin(keys, t, SECOND_US, &error));
    CHECK(!begin(keys, t, 2, 0, SECOND_US, 1));
    CHECK(begin(keys, t, 1, 59, SECOND_US, 0));
    CHECK(!api_keys_text_begin(keys, t, SECOND_US, &error) && error.status == 429);
    api_keys_text_end(keys, t);
    CHECK(api_keys_text_begin(keys, t, SECOND_US, &error)); /* 1 token is left */
    api_keys_tokens_charge(keys, t, 1);
    api_keys_text_end(keys, t);
    CHECK(!api_keys_text_begin(keys, t, SECOND_US, &error) && error.retry_after_s == 2);
    CHECK(counts->requests == requests + 1 && counts->in_flight == 1);
    /* One text is read, one answer is in flight, and 60 tokens of 60 are used. */
    struct api_key_unused left;
    CHECK(api_keys_unused(keys, t, SECOND_US, &left) && left.answers_max == 3);
    CHECK(left.answers_left == 1 && left.tokens_max == 60 && left.tokens_left == 0);
    CHECK(left.tokens_full_us == 60 * SECOND_US);
    CHECK(api_keys_unused(keys, t, 31 * SECOND_US, &left) && left.tokens_left == 30);
    CHECK(left.tokens_full_us == 30 * SECOND_US && !api_keys_unused(keys, API_KEY_NONE, 0, &left));
    api_keys_share_set(keys, 2, 0);
    CHECK(api_keys_unused(keys, t, 31 * SECOND_US, &left));
    CHECK(left.answers_max == 2 && left.answers_left == 0 && left.tokens_max == 30);
    api_keys_share_set(keys, 1, 0);
    /* The key keeps its place while a text is read. */
    api_keys_answer_end(keys, t);
    apply(keys, "{\"keys\": [{\"name\": \"u\", \"key\": \"" SECRET_B "\"}]}");
    CHECK(find(keys, "Bearer " SECRET_B) != t);
    api_keys_text_end(keys, t);
    apply(keys, "{\"keys\": [{\"name\": \"v\", \"key\": \"" SECRET_A "\"}]}");
    CHECK(api_keys_text_begin(keys, API_KEY_NONE, 0, &error));
    api_keys_text_end(keys, API_KEY_NONE);
    api_keys_close(keys);
}

/* Three gateways divide the limits of one key: together they accept what one would, and the rest of
 * a division is not lost. */
static void check_shares(void)
{
    struct api_keys *gateways[3];
    uint32_t key = API_KEY_NONE;
    int64_t now = 5 * SECOND_US;
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(api_keys_open(&gateways[i]) == ST_OK);
        apply(gateways[i], "{\"keys\": [{\"name\": \"s\", \"key\": \"" SECRET_A
                           "\", \"requests_max\": 8, \"tokens_per_minute\": 602}]}");
        api_keys_share_set(gateways[i], 3, i);
        key = find(gateways[i], "Bearer " SECRET_A);
    }
    uint32_t accepted[3] = {0};
    for (uint32_t i = 0; i < 3; i++)
        while (begin(gateways[i], key, 1, 0, now, 1))
            accepted[i]++;
    CHECK(accepted[0] == 3 && accepted[1] == 3 && accepted[2] == 2);
    /* Another gateway is gone: the two others take what it had. */
    api_keys_share_set(gateways[1], 2, 0);
    CHECK(begin(gateways[1], key, 1, 0, now, 0) && !begin(gateways[1], key, 1, 0, now, 1));
    struct api_error error;
    CHECK(!api_keys_answers_begin(gateways[1], key, 1, 0, now, &error));
    CHECKF(strcmp(error.message, "key s is at its limit of 8 answers in flight (of which 4 at this "
                                 "one of 2 gateways)") == 0,
           "%s", error.message);
    api_keys_share_set(gateways[1], 3, 1);
    /* Tokens: each begins with one, gains a third of the rate, and holds a third of a minute's. */
    for (uint32_t i = 0; i < 3; i++) {
        for (uint64_t k = api_keys_counts(gateways[i], key)->in_flight; k > 0; k--)
            api_keys_answer_end(gateways[i], key);
        api_keys_tokens_charge(gateways[i], key, 1);
        CHECK(!begin(gateways[i], key, 1, 1, now, 1)); /* 1 of 3.3 a second, in 0.3 s */
        CHECK(begin(gateways[i], key, 1, 20, now + 10 * SECOND_US, 0));
        api_keys_tokens_charge(gateways[i], key, 14); /* 33 were there */
        CHECK(!begin(gateways[i], key, 1, 1, now + 10 * SECOND_US, 1));
        CHECK(begin(gateways[i], key, 1, 200, now + 9000 * SECOND_US, 0));
        api_keys_tokens_charge(gateways[i], key, 1);
        CHECK(!begin(gateways[i], key, 1, 1, now + 9000 * SECOND_US, 1));
        api_keys_close(gateways[i]);
    }
}

/* A limit that is smaller than the number of gateways: only the first ones serve the key. */
static void check_small_shares(void)
{
    struct api_keys *keys;
    CHECK(api_keys_open(&keys) == ST_OK);
    apply(keys, "{\"keys\": [{\"name\": \"s\", \"key\": \"" SECRET_A "\", \"requests_max\": 1}]}");
    uint32_t key = find(keys, "Bearer " SECRET_A);
    api_keys_share_set(keys, 2, 1);
    CHECK(!begin(keys, key, 1, 1, SECOND_US, 1));
    api_keys_share_set(keys, 2, 0);
    CHECK(begin(keys, key, 1, 1, SECOND_US, 0));
    api_keys_close(keys);
}

/* "c" has two answers in flight: it is away for one file, and back in the next. */
static void check_again(struct api_keys *keys)
{
    uint32_t c = find(keys, "Bearer " SECRET_A);
    apply(keys, "{\"keys\": [{\"name\": \"d\", \"key\": \"" SECRET_B "\"}]}");
    CHECK(find(keys, "Bearer " SECRET_A) == API_KEY_NONE);
    uint32_t d = find(keys, "Bearer " SECRET_B);
    CHECK(d != c && d < API_KEY_INDICES);
    api_keys_tokens_charge(keys, c, 7);
    api_keys_answer_end(keys, c);
    apply(keys, "{\"keys\": [{\"name\": \"d\", \"key\": \"" SECRET_B "\"},"
                "{\"name\": \"c\", \"key\": \"sk-other-0123456789\"}]}");
    CHECK(find(keys, "Bearer " SECRET_A) == API_KEY_NONE);
    CHECK(find(keys, "Bearer sk-other-0123456789") == c && find(keys, "Bearer " SECRET_B) == d);
    CHECK(api_keys_counts(keys, c)->generated_tokens == 507);
    CHECK(api_keys_counts(keys, c)->in_flight == 1);
    api_keys_answer_end(keys, c);
    api_keys_apply(keys, NULL);
    CHECK(!api_keys_configured(keys) && find(keys, "Bearer " SECRET_B) == API_KEY_NONE);
}

static char changes[256];

static void on_change(void *self, const char *name, const char *how)
{
    (void)self;
    size_t used = strlen(changes);
    snprintf(changes + used, sizeof(changes) - used, "%s %s,", name, how);
}

/* Applies a key file, and checks which keys it says have changed. */
static void apply_diff(struct api_keys *keys, const char *text, const char *want)
{
    struct api_key_set *set;
    struct error error;
    file_write(text, 0600);
    CHECKF(api_key_set_read(path, &set, &error) == ST_OK, "%s", error.text);
    changes[0] = 0;
    api_key_set_diff(keys, set, on_change, NULL);
    CHECKF(strcmp(changes, want) == 0, "%s, want %s", changes, want);
    api_keys_apply(keys, set);
}

#define A "{\"name\": \"a\", \"key\": \"" SECRET_A "\"}"
#define B "{\"name\": \"b\", \"key\": \"" SECRET_B "\"}"

static void check_revoked(struct api_keys *keys)
{
    apply_diff(keys, "{\"keys\": [" A ", " B "]}", "a added,b added,");
    uint32_t a = find(keys, "Bearer " SECRET_A);
    uint32_t b = find(keys, "Bearer " SECRET_B);
    CHECK(!api_keys_revoked(keys, a) && !api_keys_revoked(keys, b));
    CHECK(!api_keys_revoked(keys, API_KEY_NONE));
    apply_diff(keys, "{\"keys\": [" B ", " A "]}", "");
    CHECK(!api_keys_revoked(keys, a) && !api_keys_revoked(keys, b));
    apply_diff(keys,
               "{\"keys\": [" A ", {\"name\": \"b\", \"key\": \"" SECRET_B
               "\", \"metrics\": true}]}",
               "b changed,");
    CHECK(!api_keys_revoked(keys, a) && !api_keys_revoked(keys, b));
    api_keys_index_hold(keys, a);
    apply_diff(keys, "{\"keys\": [{\"name\": \"b\", \"key\": \"sk-other-0123456789\"}]}",
               "b changed,a removed,");
    CHECK(api_keys_revoked(keys, a) && api_keys_revoked(keys, b));
    /* It returns while an old request still holds its index: the new requests are not revoked. */
    apply_diff(keys, "{\"keys\": [" A ", " B "]}", "a added,b changed,");
    CHECK(!api_keys_revoked(keys, a) && api_keys_revoked(keys, b));
    api_keys_index_release(keys, a);
    /* Without keys every client may use the API. */
    api_keys_apply(keys, NULL);
    CHECK(!api_keys_revoked(keys, a) && !api_keys_revoked(keys, b));
}

int main(void)
{
    struct api_keys *keys;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    check_files();
    CHECK(api_keys_open(&keys) == ST_OK);
    check_finding(keys);
    check_limits(keys);
    check_texts();
    check_shares();
    check_small_shares();
    check_again(keys);
    check_revoked(keys);
    api_keys_close(keys);
    unlink(path);
    printf("keys are read, found and limited as documented\n");
    return 0;
}
