/* Goal: a key file is read as a whole or refused with an error that names the position and never
 * shows a key; keys are found by what clients send; limits hold and are paid back; reading the file
 * again keeps counters and answers in flight. Method: files in a scratch folder; the test sets the
 * time. */
#include "common/secret.h"
#include "server/api/keys.h"
#include "tests/check.h"
#include "tests/scarce_memory.h"

#include <malloc.h>
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

static enum status wrong_end_read(struct error *error)
{
    struct api_key_set *set;
    return api_key_set_read(path, &set, error);
}

/* The file is not to blame if there is no memory for the JSON tree. It is wrong at its end. */
static void check_no_memory(void)
{
    struct error error = {""};
    uint32_t count;
    file_write("{\"keys\": [{\"name\": \"a\"}]} 7", 0600);
    CHECK(scarce_calls(wrong_end_read, &count, &error) == ST_INVALID && count > 5);
    CHECKF(strstr(error.text, ":1: not JSON (column 27)") != NULL, "%s", error.text);
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
    struct api_key_shown shown;
    return api_keys_find(keys, authorization, NULL, &shown) ? shown.key_index : API_KEY_NONE;
}

static uint32_t find_plain(const struct api_keys *keys, const char *authorization,
                           const char *x_api_key)
{
    struct api_key_shown shown;
    return api_keys_find(keys, authorization, x_api_key, &shown) ? shown.key_index : API_KEY_NONE;
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
    CHECK(api_keys_configured(keys) && a != b && a < 2 && b < 2);
    CHECK(api_keys_index_count(keys) == 2 && api_keys_index_count(NULL) == 0);
    CHECK(find_plain(keys, NULL, SECRET_A) == a && find_plain(keys, NULL, " " SECRET_B) == b);
    CHECK(find_plain(keys, NULL, "Bearer " SECRET_A) == API_KEY_NONE);
    CHECK(find_plain(keys, "Bearer " SECRET_B, SECRET_A) == b); /* Authorization decides. */
    CHECK(find_plain(keys, "Basic " SECRET_B, SECRET_A) == API_KEY_NONE);
    CHECK(api_keys_settings(keys, a)->weight == 4 && !api_keys_settings(keys, a)->admin);
    CHECK(api_keys_settings(keys, b)->weight == 1 && api_keys_settings(keys, b)->admin);
    CHECK(api_keys_settings(keys, b)->priority_best == -5);
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
        api_keys_answer_end(keys, c, 100);
    /* 400 are left; an answer overdraws by 200, which 20 seconds at 10 a second make up for. */
    CHECK(begin(keys, c, 1, 100, now, 0));
    api_keys_tokens_charge(keys, c, 500);
    CHECK(!begin(keys, c, 1, 1, now, 21) && !begin(keys, c, 1, 1, now + 19 * SECOND_US, 2));
    CHECK(begin(keys, c, 1, 60, now + 21 * SECOND_US, 0));
    api_keys_answer_return(keys, c, 60); /* the cluster refused it */
    CHECK(begin(keys, c, 1, 5, now + 21 * SECOND_US, 0));
    const struct api_key_counts *counts = api_keys_counts(keys, c);
    CHECK(counts->requests == 6 && counts->refused == 3 && counts->in_flight == 3);
    /* Only ended answers count, and not the one that was given back: the counter never falls. */
    CHECK(counts->prompt_tokens == 300 && counts->generated_tokens == 500);
    /* Long after, there is one minute's worth, not more; a prompt larger than that still runs. */
    api_keys_answer_end(keys, c, 0);
    CHECK(begin(keys, c, 1, 6000, now + 9000 * SECOND_US, 0));
    api_keys_answer_end(keys, c, 0);
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
    api_keys_answer_end(keys, t, 0);
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
            api_keys_answer_end(gateways[i], key, 0);
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
    api_keys_answer_end(keys, c, 0);
    apply(keys, "{\"keys\": [{\"name\": \"d\", \"key\": \"" SECRET_B "\"},"
                "{\"name\": \"c\", \"key\": \"sk-other-0123456789\"}]}");
    CHECK(find(keys, "Bearer " SECRET_A) == API_KEY_NONE);
    CHECK(find(keys, "Bearer sk-other-0123456789") == c && find(keys, "Bearer " SECRET_B) == d);
    CHECK(api_keys_counts(keys, c)->generated_tokens == 507);
    CHECK(api_keys_counts(keys, c)->in_flight == 1);
    api_keys_answer_end(keys, c, 0);
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
    CHECK(api_key_set_diff(keys, set, on_change, NULL) == ST_OK);
    CHECKF(strcmp(changes, want) == 0, "%s, want %s", changes, want);
    api_keys_apply(keys, set);
}

#define A "{\"name\": \"a\", \"key\": \"" SECRET_A "\"}"
#define B "{\"name\": \"b\", \"key\": \"" SECRET_B "\"}"

static struct api_key_shown show(const struct api_keys *keys, const char *authorization)
{
    struct api_key_shown shown = {.key_index = API_KEY_NONE};
    CHECK(api_keys_find(keys, authorization, NULL, &shown));
    return shown;
}

static void check_revoked(struct api_keys *keys)
{
    const struct api_key_shown none = {.key_index = API_KEY_NONE};
    apply_diff(keys, "{\"keys\": [" A ", " B "]}", "a added,b added,");
    struct api_key_shown a = show(keys, "Bearer " SECRET_A);
    struct api_key_shown b = show(keys, "Bearer " SECRET_B);
    CHECK(!api_keys_revoked(keys, &a) && !api_keys_revoked(keys, &b));
    CHECK(!api_keys_revoked(keys, &none));
    apply_diff(keys, "{\"keys\": [" B ", " A "]}", "");
    CHECK(!api_keys_revoked(keys, &a) && !api_keys_revoked(keys, &b));
    apply_diff(keys,
               "{\"keys\": [" A ", {\"name\": \"b\", \"key\": \"" SECRET_B
               "\", \"metrics\": true}]}",
               "b changed,");
    CHECK(!api_keys_revoked(keys, &a) && !api_keys_revoked(keys, &b));
    api_keys_index_hold(keys, a.key_index);
    apply_diff(keys, "{\"keys\": [{\"name\": \"b\", \"key\": \"sk-other-0123456789\"}]}",
               "b changed,a removed,");
    CHECK(api_keys_revoked(keys, &a) && api_keys_revoked(keys, &b));
    /* It returns while an old request still holds its index: the new requests are not revoked. */
    apply_diff(keys, "{\"keys\": [" A ", " B "]}", "a added,b changed,");
    CHECK(!api_keys_revoked(keys, &a) && api_keys_revoked(keys, &b));
    api_keys_index_release(keys, a.key_index);
    /* Without keys every client may use the API. */
    api_keys_apply(keys, NULL);
    CHECK(!api_keys_revoked(keys, &a) && !api_keys_revoked(keys, &b));
}

/* A rotation: the new secret is added, then the old one is removed. Requests with the old secret
 * are revoked then, those with the new one go on. */
static void check_two_secrets(struct api_keys *keys)
{
    apply_diff(keys, "{\"keys\": [" A "]}", "a added,");
    struct api_key_shown old = show(keys, "Bearer " SECRET_A);
    apply_diff(keys,
               "{\"keys\": [{\"name\": \"a\", \"key\": [\"" SECRET_B "\", \"" SECRET_A "\"]}]}",
               "a changed,");
    struct api_key_shown new = show(keys, "Bearer " SECRET_B);
    CHECK(show(keys, "Bearer " SECRET_A).secret_number == old.secret_number &&
          new.secret_number != old.secret_number);
    CHECK(new.key_index == old.key_index && !api_keys_revoked(keys, &old) &&
          !api_keys_revoked(keys, &new));
    apply_diff(keys, "{\"keys\": [{\"name\": \"a\", \"key\": [\"" SECRET_B "\"]}]}", "a changed,");
    CHECK(api_keys_revoked(keys, &old) && !api_keys_revoked(keys, &new));
    CHECK(find(keys, "Bearer " SECRET_A) == API_KEY_NONE);
    check_wrong("{\"keys\": [{\"name\": \"a\", \"key\": [\"" SECRET_A "\", \"" SECRET_A "\"]}]}",
                0600, "/keys/0/key: want two different secrets");
    check_wrong("{\"keys\": [{\"name\": \"a\", \"key\": []}]}", 0600, "one or two secrets");
    check_wrong("{\"keys\": [{\"name\": \"a\", \"key\": [\"" SECRET_A "\", \"" SECRET_B
                "\"], \"sha256\": \"00\"}]}",
                0600, "one or two secrets");
    check_wrong("{\"keys\": [" B ", {\"name\": \"a\", \"key\": [\"" SECRET_A "\", \"" SECRET_B
                "\"]}]}",
                0600, "/keys/1/key: want another one");
    apply_diff(keys, "{\"keys\": [" B "]}", "b added,a removed,");
}

#define DAY   86400ll
#define TODAY (20000 * DAY) /* Midnight. */

static enum api_key_expiry reported;

static void on_expiry(void *self, const struct api_key_settings *settings,
                      enum api_key_expiry expiry)
{
    (void)self;
    CHECK(strcmp(settings->name, "e") == 0);
    reported = expiry;
}

static enum api_key_expiry expiry_at(struct api_keys *keys, int64_t unix_s)
{
    reported = API_KEY_VALID;
    api_keys_time_set(keys, unix_s);
    api_keys_expiry_report(keys, on_expiry, NULL);
    return reported;
}

static void check_expiry(void)
{
    static const char *const wrong[] = {"tomorrow",
                                        "2027-01-31",
                                        "2027-02-30T00:00:00Z",
                                        "2027-01-31T24:00:00Z",
                                        "2027-01-31T18:00:00",
                                        "2027-01-31T18:00:00+2",
                                        "2027-01-31T18:00:00Zx",
                                        "1969-01-01T00:00:00Z",
                                        "2027-1-31T18:00:00Z",
                                        ""};
    struct api_keys *keys;
    char text[256];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(text, sizeof(text),
                 "{\"keys\": [{\"name\": \"e\", \"key\": \"" SECRET_A "\", \"expires\": \"%s\"}]}",
                 wrong[i]);
        check_wrong(text, 0600, "/keys/0/expires: want a date and time");
    }
    CHECK(api_keys_open(&keys) == ST_OK);
    /* 10 days after TODAY, at 02:00. */
    apply(keys, "{\"keys\": [{\"name\": \"e\", \"key\": \"" SECRET_A
                "\", \"expires\": \"2024-10-14T04:00:00.5+02:00\"}]}");
    uint32_t e = find(keys, "Bearer " SECRET_A);
    const int64_t at = TODAY + 10 * DAY + 2 * 3600;
    CHECKF(api_keys_settings(keys, e)->expires == at, "%lld",
           (long long)api_keys_settings(keys, e)->expires);
    CHECK(expiry_at(keys, at - 8 * DAY) == API_KEY_VALID && !api_keys_expired(keys, e));
    CHECK(expiry_at(keys, at - 6 * DAY) == API_KEY_EXPIRES);
    CHECK(expiry_at(keys, at - 5 * DAY) == API_KEY_VALID); /* It was reported. */
    CHECK(expiry_at(keys, at - 60) == API_KEY_EXPIRES_SOON && !api_keys_expired(keys, e));
    CHECK(expiry_at(keys, at) == API_KEY_EXPIRED && api_keys_expired(keys, e));
    CHECK(find(keys, "Bearer " SECRET_A) == e); /* Its requests get an error of their own. */
    /* A clock that is put back makes it valid again. */
    CHECK(expiry_at(keys, at - 60) == API_KEY_VALID && !api_keys_expired(keys, e));
    /* A new date is reported again. */
    apply(keys, "{\"keys\": [{\"name\": \"e\", \"key\": \"" SECRET_A
                "\", \"expires\": \"2024-10-15t02:00:00z\"}]}");
    CHECK(expiry_at(keys, at) == API_KEY_EXPIRES_SOON);
    api_keys_close(keys);
}

/* Begins an answer, which ends at once. Returns the error's code, or "". */
static const char *use(struct api_keys *keys, uint32_t key, uint64_t tokens, int64_t now_us)
{
    static struct api_error error;
    if (!api_keys_answers_begin(keys, key, 1, tokens, now_us, &error)) {
        CHECK(error.status == 429 && error.retry_after_s > 0);
        return error.code;
    }
    api_keys_answer_end(keys, key, 0);
    return "";
}

#define MINUTE_CODE "rate_limit_exceeded"
#define DAY_CODE    "insufficient_quota"

static void check_requests_per_minute(void)
{
    struct api_keys *keys;
    struct api_error error;
    struct api_key_unused left;
    CHECK(api_keys_open(&keys) == ST_OK);
    apply(keys,
          "{\"keys\": [{\"name\": \"r\", \"key\": \"" SECRET_A "\", \"requests_per_minute\": 6}]}");
    uint32_t r = find(keys, "Bearer " SECRET_A);
    for (int i = 0; i < 6; i++)
        CHECK(strcmp(use(keys, r, 1, SECOND_US), "") == 0);
    CHECK(!api_keys_answers_begin(keys, r, 1, 1, SECOND_US, &error) && error.retry_after_s == 11);
    CHECK(api_keys_unused(keys, r, 6 * SECOND_US, &left));
    CHECK(left.requests_max == 6 && left.requests_left == 0 &&
          left.requests_full_us == 55 * SECOND_US);
    CHECK(strcmp(use(keys, r, 1, 0), MINUTE_CODE) == 0); /* The clock went backwards. */
    CHECK(strcmp(use(keys, r, 1, 11 * SECOND_US), "") == 0);
    api_keys_answer_return(keys, r, 1); /* The cluster refused it: it costs nothing. */
    CHECK(strcmp(use(keys, r, 1, 11 * SECOND_US), "") == 0);
    CHECK(strcmp(use(keys, r, 1, 11 * SECOND_US), MINUTE_CODE) == 0);
    CHECK(!api_keys_answers_begin(keys, r, 7, 1, SECOND_US, &error) && error.status == 400);
    /* The second of four gateways may accept two of six. */
    api_keys_share_set(keys, 4, 1);
    CHECK(strcmp(use(keys, r, 1, 9000 * SECOND_US), "") == 0);
    CHECK(strcmp(use(keys, r, 1, 9000 * SECOND_US), "") == 0);
    CHECK(strcmp(use(keys, r, 1, 9000 * SECOND_US), MINUTE_CODE) == 0);
    api_keys_close(keys);
}

static const char *use_today(struct api_keys *keys, uint32_t key, uint64_t tokens, int64_t unix_s)
{
    api_keys_time_set(keys, unix_s);
    return use(keys, key, tokens, SECOND_US);
}

static void check_day(void)
{
    static const char file[] = "{\"keys\": [{\"name\": \"d\", \"key\": \"" SECRET_A
                               "\", \"requests_per_day\": 3, \"tokens_per_day\": 1000}]}";
    struct api_keys *keys;
    struct api_error error;
    CHECK(api_keys_open(&keys) == ST_OK);
    apply(keys, file);
    uint32_t d = find(keys, "Bearer " SECRET_A);
    CHECK(strcmp(use_today(keys, d, 300, TODAY + 100), "") == 0);
    CHECK(strcmp(use_today(keys, d, 300, TODAY + DAY / 2), "") == 0);
    CHECK(strcmp(use_today(keys, d, 300, TODAY + DAY - 10), "") == 0);
    CHECK(!api_keys_answers_begin(keys, d, 1, 1, SECOND_US, &error));
    CHECK(strcmp(error.code, DAY_CODE) == 0 && error.retry_after_s == 10);
    CHECKF(strcmp(error.message, "key d has used its quota of 3 requests a day: the next day (UTC) "
                                 "begins in 0:00 hours") == 0,
           "%s", error.message);
    apply(keys, file); /* Reading the file again gives no new quota, */
    CHECK(strcmp(use(keys, d, 1, SECOND_US), DAY_CODE) == 0);
    CHECK(strcmp(use_today(keys, d, 999, TODAY + DAY), "") == 0); /* but midnight does. */
    /* A clock that goes back over midnight gives no new quota, neither there nor on its return. */
    CHECK(strcmp(use_today(keys, d, 1, TODAY + DAY - 5), "") == 0);
    CHECK(strcmp(use_today(keys, d, 1, TODAY + DAY + 5), DAY_CODE) == 0);
    /* A clock that was a year ahead: the counts go on, and the earlier day ends. */
    CHECK(strcmp(use_today(keys, d, 1, TODAY + 365 * DAY), "") == 0);
    CHECK(strcmp(use_today(keys, d, 999, TODAY + DAY + 9), "") == 0);
    CHECK(strcmp(use_today(keys, d, 1, TODAY + DAY + 10), DAY_CODE) == 0);
    CHECK(strcmp(use_today(keys, d, 1, TODAY + 2 * DAY), "") == 0);
    api_keys_close(keys);
    /* A new process continues the day from the ledger; answers of other days and keys do not
     * count. */
    CHECK(api_keys_open(&keys) == ST_OK);
    apply(keys, file);
    d = find(keys, "Bearer " SECRET_A);
    api_keys_time_set(keys, TODAY + 3600);
    CHECK(api_keys_have_quotas(keys));
    api_keys_day_add(keys, "d", TODAY + 1, 400);
    api_keys_day_add(keys, "d", TODAY - 1, 400);
    api_keys_day_add(keys, "other", TODAY + 2, 400);
    CHECK(api_keys_counts(keys, d)->day_requests == 1 &&
          api_keys_counts(keys, d)->day_tokens == 400);
    CHECK(strcmp(use(keys, d, 600, SECOND_US), "") == 0);
    CHECK(strcmp(use(keys, d, 1, SECOND_US), DAY_CODE) == 0);
    api_keys_close(keys);
}

/* Returns how many of 100 tokens a day the key may use now. */
static uint64_t day_tokens_left(struct api_keys *keys, uint32_t key)
{
    uint64_t used = 0;
    while (strcmp(use(keys, key, 1, SECOND_US), "") == 0)
        used++;
    return used;
}

/* A second gateway joins at noon and leaves at 18:00: together they accept what one would have. */
static void check_day_shares(void)
{
    struct api_keys *first, *second;
    CHECK(api_keys_open(&first) == ST_OK && api_keys_open(&second) == ST_OK);
    static const char file[] =
        "{\"keys\": [{\"name\": \"d\", \"key\": \"" SECRET_A "\", \"tokens_per_day\": 100}]}";
    apply(first, file);
    apply(second, file);
    uint32_t d = find(first, "Bearer " SECRET_A);
    api_keys_time_set(first, TODAY + 1); /* It starts just after midnight. */
    for (int hour = 0; hour < 12; hour++)
        api_keys_time_set(first, TODAY + 3600 * hour + 100);
    api_keys_time_set(first, TODAY + DAY / 2);
    api_keys_share_set(first, 2, 0);
    api_keys_time_set(first, TODAY + DAY / 2 + 1);
    api_keys_share_set(second, 2, 1);
    api_keys_time_set(second, TODAY + DAY / 2 + 1);
    uint64_t one = day_tokens_left(first, d), two = day_tokens_left(second, d);
    CHECKF(one >= 74 && one <= 75 && two >= 24 && two <= 25, "%d and %d", (int)one, (int)two);
    /* The second gateway is gone: the first one takes over its part of the rest of the day. */
    api_keys_time_set(first, TODAY + DAY * 3 / 4);
    api_keys_share_set(first, 1, 0);
    api_keys_time_set(first, TODAY + DAY * 3 / 4 + 1);
    one += day_tokens_left(first, d);
    CHECKF(one >= 86 && one <= 88, "%d", (int)one);
    /* The next day is its own. */
    api_keys_time_set(first, TODAY + DAY + 1);
    CHECK(day_tokens_left(first, d) == 100);
    api_keys_close(first);
    api_keys_close(second);
}

#define MANY LIMIT_API_KEYS

static void file_write_many(uint32_t count, uint32_t first)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs("{\"keys\": [", file) >= 0);
    for (uint32_t i = 0; i < count; i++)
        CHECK(fprintf(file, "%s{\"name\": \"key-%u\", \"key\": \"sk-many-%010u\"}",
                      i > 0 ? ", " : "", first + i, first + i) > 0);
    CHECK(fputs("]}", file) >= 0 && fclose(file) == 0 && chmod(path, 0600) == 0);
}

/* As many keys as a file may have, all replaced by others, and one too many. */
static void check_many(void)
{
    struct api_keys *keys;
    struct api_key_set *set = NULL;
    struct error error;
    char header[64];
    CHECK(api_keys_open(&keys) == ST_OK);
    for (uint32_t round = 0; round < 3; round++) {
        file_write_many(MANY, round * MANY);
        CHECKF(api_key_set_read(path, &set, &error) == ST_OK, "%s", error.text);
        CHECK(api_key_set_count(set) == MANY);
        api_keys_apply(keys, set);
        for (uint32_t i = 0; i < 3 * MANY; i++) {
            snprintf(header, sizeof(header), "Bearer sk-many-%010u", i);
            bool known = i / MANY == round;
            uint32_t key = find(keys, header);
            CHECK((key != API_KEY_NONE) == known);
            if (known)
                snprintf(header, sizeof(header), "key-%u", i);
            CHECK(!known || strcmp(api_keys_settings(keys, key)->name, header) == 0);
        }
    }
    set = NULL;
    file_write_many(MANY + 1, 0);
    CHECK(api_key_set_read(path, &set, &error) == ST_INVALID && set == NULL);
    CHECKF(strstr(error.text, "/keys has 10001 entries: want 1 to 10000") != NULL, "%s",
           error.text);
    api_keys_close(keys);
}

static long resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%*d %ld", &pages) == 1 && fclose(file) == 0);
    return pages * sysconf(_SC_PAGESIZE);
}

/* The table has room for 20,000 keys (10 MiB), of which a server without keys touches nothing. */
static void check_empty(void)
{
    struct api_keys *keys;
    mallopt(M_PERTURB, 0); /* The tests' environment makes malloc fill memory. */
    long before = resident_bytes();
    CHECK(api_keys_open(&keys) == ST_OK);
    api_keys_apply(keys, NULL);
    api_keys_time_set(keys, 1000000);
    CHECK(api_keys_index_count(keys) == 0 && !api_keys_have_quotas(keys));
    long more = resident_bytes() - before;
    CHECKF(more < 3 << 20, "an empty table takes %ld bytes", more);
    api_keys_close(keys);
}

int main(void)
{
    struct api_keys *keys;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    check_empty();
    check_no_memory();
    check_files();
    CHECK(api_keys_open(&keys) == ST_OK);
    check_finding(keys);
    check_limits(keys);
    check_texts();
    check_shares();
    check_expiry();
    check_requests_per_minute();
    check_day();
    check_day_shares();
    check_many();
    check_small_shares();
    check_again(keys);
    check_revoked(keys);
    check_two_secrets(keys);
    api_keys_close(keys);
    unlink(path);
    printf("keys are read, found and limited as documented\n");
    return 0;
}
