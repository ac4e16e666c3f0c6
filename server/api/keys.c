/* api_keys: the table of keys in use. A key keeps its index while one of its answers is in flight
 * or its index is held, however often the file is read again.
 *
 * Limits of a minute are budgets that fill steadily. Limits of a day count from midnight (UTC). */
#include "server/api/keys_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define MINUTE_US   60000000.0
#define RETRY_S_MAX 600
#define DAY_S       86400
#define PLACES      API_KEY_INDICES
/* Time after the start within which a gateway learns that there are others. */
#define ALONE_S 60

struct budget {
    double left; /* At most the limit; < 0 = overdrawn. */
    int64_t filled_us;
};

struct entry {
    bool present;     /* In the key file that is in use. */
    uint8_t warned;   /* Highest enum api_key_expiry that was reported. */
    uint32_t holders; /* Calls of api_keys_index_hold, and texts. */
    struct key_secrets secrets;
    uint32_t numbers[API_KEY_SECRETS]; /* Numbers of the secrets; each secret gets a new number. */
    struct api_key_settings settings;
    struct api_key_counts counts;
    uint32_t texts; /* Texts that are read, see api_keys_text_begin. */
    struct budget tokens;
    struct budget requests;
};

/* The present day, and this gateway's part of what keys may use on it: the mean of its share over
 * the day, where the share at present counts for the rest of the day. So a gateway that joins gets
 * its share of the rest, and one that takes over gets the rest of the other's share. */
struct day {
    int64_t number; /* Since 1970. */
    int64_t now_s;
    int64_t begun_s;   /* Start of the day, or of this process. */
    double before;     /* Share in the time before begun_s; < 0 = not known yet. */
    double shared_s;   /* Integral of the share from begun_s until now_s. */
    bool is_continued; /* The ledger has answers of this day: this gateway served before. */
};

struct api_keys {
    bool wanted;
    uint32_t gateways; /* See api_keys_share_set. */
    uint32_t rank;
    uint32_t secret_count; /* Secrets that were ever placed. */
    /* Places that were ever used; these are the first ones. The memory of the others stays
     * untouched, so that it costs nothing. */
    uint32_t place_count;
    struct day day;
    struct key_index names;   /* Of all entries that have a name. */
    struct key_index secrets; /* Of present entries: place × API_KEY_SECRETS + secret. */
    struct entry entries[PLACES];
};

/* ---- the table ---- */

enum status api_keys_open(struct api_keys **out)
{
    struct api_keys *keys = calloc(1, sizeof(*keys));
    if (keys == NULL)
        return ST_NO_MEMORY;
    keys->gateways = 1;
    keys->day.before = -1;
    *out = keys;
    return ST_OK;
}

void api_keys_close(struct api_keys *keys)
{
    free(keys);
}

/* Returns the place of the key with these settings' name; PLACES = none. */
static uint32_t place_of(const struct api_keys *keys, const struct api_key_settings *settings)
{
    uint32_t place;
    for (uint32_t at = key_index_first(&keys->names, settings->name_hash, &place);
         place != KEY_INDEX_NONE; at = key_index_next(&keys->names, at, &place))
        if (strcmp(keys->entries[place].settings.name, settings->name) == 0)
            return place;
    return PLACES;
}

static bool unused(const struct entry *e)
{
    return !e->present && e->counts.in_flight == 0 && e->holders == 0;
}

/* Returns the secret of the entry with this hash; API_KEY_SECRETS = none. */
static uint32_t secret_of(const struct entry *e, const uint8_t *hash)
{
    uint32_t i = 0;
    while (i < e->secrets.count &&
           !secret_bytes_equal(e->secrets.hashes[i], hash, SECRET_HASH_BYTES))
        i++;
    return i < e->secrets.count ? i : API_KEY_SECRETS;
}

/* Secrets that stay keep their numbers. */
static void secrets_set(struct api_keys *keys, struct entry *e, const struct key_secrets *secrets)
{
    uint32_t numbers[API_KEY_SECRETS] = {0};
    for (uint32_t i = 0; i < secrets->count; i++) {
        uint32_t before = secret_of(e, secrets->hashes[i]);
        numbers[i] = before < API_KEY_SECRETS ? e->numbers[before] : ++keys->secret_count;
    }
    e->secrets = *secrets;
    memcpy(e->numbers, numbers, sizeof(e->numbers));
}

static void entry_set(struct api_keys *keys, struct entry *e, const struct key_set_entry *from)
{
    const struct api_key_settings *settings = &from->settings;
    if (e->settings.tokens_per_minute != settings->tokens_per_minute)
        e->tokens.left = (double)settings->tokens_per_minute;
    if (e->settings.requests_per_minute != settings->requests_per_minute)
        e->requests.left = (double)settings->requests_per_minute;
    if (e->settings.expires != settings->expires)
        e->warned = API_KEY_VALID;
    e->present = true;
    e->settings = *settings;
    secrets_set(keys, e, &from->secrets);
}

static bool settings_equal(const struct api_key_settings *a, const struct api_key_settings *b)
{
    return strcmp(a->cache_group, b->cache_group) == 0 && a->weight == b->weight &&
           a->answers_in_flight_max == b->answers_in_flight_max &&
           a->tokens_per_minute == b->tokens_per_minute &&
           a->requests_per_minute == b->requests_per_minute &&
           a->tokens_per_day == b->tokens_per_day && a->requests_per_day == b->requests_per_day &&
           a->expires == b->expires && a->priority_best == b->priority_best &&
           a->admin == b->admin && a->metrics == b->metrics;
}

static bool secrets_equal(const struct key_secrets *a, const struct key_secrets *b)
{
    return a->count == b->count && memcmp(a->hashes, b->hashes, sizeof(a->hashes)) == 0;
}

enum status api_key_set_diff(const struct api_keys *keys, const struct api_key_set *set,
                             void (*change)(void *self, const char *name, const char *kind),
                             void *self)
{
    bool *kept = calloc(PLACES, sizeof(*kept));
    if (kept == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        const struct key_set_entry *next = &set->keys[i];
        uint32_t place = place_of(keys, &next->settings);
        const struct entry *e = place < PLACES ? &keys->entries[place] : NULL;
        if (e == NULL || !e->present) {
            change(self, next->settings.name, "added");
            continue;
        }
        kept[place] = true;
        if (!secrets_equal(&e->secrets, &next->secrets) ||
            !settings_equal(&e->settings, &next->settings))
            change(self, next->settings.name, "changed");
    }
    for (uint32_t i = 0; i < keys->place_count; i++)
        if (keys->entries[i].present && !kept[i])
            change(self, keys->entries[i].settings.name, "removed");
    free(kept);
    return ST_OK;
}

static void indices_make(struct api_keys *keys)
{
    key_index_clear(&keys->names);
    key_index_clear(&keys->secrets);
    for (uint32_t i = 0; i < keys->place_count; i++) {
        const struct entry *e = &keys->entries[i];
        if (e->settings.name[0] != 0)
            key_index_add(&keys->names, e->settings.name_hash, i);
        for (uint32_t k = 0; e->present && k < e->secrets.count; k++)
            key_index_add(&keys->secrets, key_secret_hash(e->secrets.hashes[k]),
                          i * API_KEY_SECRETS + k);
    }
}

/* Known names keep their indices; they are placed first, so that no new key takes one of them. */
void api_keys_apply(struct api_keys *keys, struct api_key_set *set)
{
    for (uint32_t i = 0; i < keys->place_count; i++)
        keys->entries[i].present = false;
    keys->wanted = set != NULL;
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        uint32_t place = place_of(keys, &set->keys[i].settings);
        if (place < PLACES)
            entry_set(keys, &keys->entries[place], &set->keys[i]);
    }
    uint32_t at = 0;
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        if (place_of(keys, &set->keys[i].settings) < PLACES)
            continue;
        while (at < PLACES && !unused(&keys->entries[at]))
            at++;
        if (at == PLACES) /* the key does not fit: its clients get 401 until the next reload */
            break;
        keys->entries[at] = (struct entry){0};
        keys->place_count = at < keys->place_count ? keys->place_count : at + 1;
        entry_set(keys, &keys->entries[at], &set->keys[i]);
    }
    indices_make(keys);
    api_key_set_free(set);
}

bool api_keys_configured(const struct api_keys *keys)
{
    return keys->wanted;
}

bool api_keys_find(const struct api_keys *keys, const char *authorization, const char *x_api_key,
                   struct api_key_shown *out)
{
    static const char scheme[] = "bearer ";
    uint8_t hash[SECRET_HASH_BYTES];
    const char *key = x_api_key;
    if (authorization != NULL)
        key = strncasecmp(authorization, scheme, sizeof(scheme) - 1) == 0
                  ? authorization + sizeof(scheme) - 1
                  : NULL;
    if (key == NULL)
        return false;
    key += strspn(key, " ");
    size_t bytes = strlen(key);
    if (bytes == 0 || bytes > KEY_BYTES_MAX)
        return false;
    secret_hash(key, bytes, hash);
    uint32_t found;
    for (uint32_t at = key_index_first(&keys->secrets, key_secret_hash(hash), &found);
         found != KEY_INDEX_NONE; at = key_index_next(&keys->secrets, at, &found)) {
        const struct entry *e = &keys->entries[found / API_KEY_SECRETS];
        uint32_t secret = found % API_KEY_SECRETS;
        if (!secret_bytes_equal(e->secrets.hashes[secret], hash, sizeof(hash)))
            continue;
        *out = (struct api_key_shown){found / API_KEY_SECRETS, e->numbers[secret]};
        return true;
    }
    return false;
}

const struct api_key_settings *api_keys_settings(const struct api_keys *keys, uint32_t key_index)
{
    return key_index < PLACES && keys->entries[key_index].settings.name[0] != 0
               ? &keys->entries[key_index].settings
               : NULL;
}

uint32_t api_keys_index_count(const struct api_keys *keys)
{
    return keys != NULL ? keys->place_count : 0;
}

bool api_keys_present(const struct api_keys *keys, uint32_t key_index)
{
    return key_index < PLACES && keys->entries[key_index].present;
}

const struct api_key_counts *api_keys_counts(const struct api_keys *keys, uint32_t key_index)
{
    return &keys->entries[key_index].counts;
}

/* ---- expiry ---- */

enum api_key_expiry api_key_expiry_of(const struct api_key_settings *settings, int64_t now_s)
{
    int64_t left_s = settings->expires - now_s;
    if (settings->expires == 0 || left_s > API_KEY_WARN_DAYS * DAY_S)
        return API_KEY_VALID;
    if (left_s > DAY_S)
        return API_KEY_EXPIRES;
    return left_s > 0 ? API_KEY_EXPIRES_SOON : API_KEY_EXPIRED;
}

bool api_keys_expired(const struct api_keys *keys, uint32_t key_index)
{
    return api_key_expiry_of(&keys->entries[key_index].settings, keys->day.now_s) ==
           API_KEY_EXPIRED;
}

void api_keys_expiry_report(struct api_keys *keys,
                            void (*report)(void *self, const struct api_key_settings *settings,
                                           enum api_key_expiry expiry),
                            void *self)
{
    for (uint32_t i = 0; i < keys->place_count; i++) {
        struct entry *e = &keys->entries[i];
        enum api_key_expiry expiry = api_key_expiry_of(&e->settings, keys->day.now_s);
        if (!e->present || expiry <= e->warned)
            continue;
        e->warned = (uint8_t)expiry;
        report(self, &e->settings, expiry);
    }
}

/* ---- the day ---- */

static double share_now(const struct api_keys *keys)
{
    return 1.0 / keys->gateways;
}

static void day_begin(struct api_keys *keys, int64_t number, int64_t begun_s)
{
    for (uint32_t i = 0; i < keys->place_count; i++)
        keys->entries[i].counts.day_requests = keys->entries[i].counts.day_tokens = 0;
    keys->day = (struct day){.number = number, .now_s = begun_s, .begun_s = begun_s, .before = -1};
}

/* The clock may go backwards. A day does not begin again then, so no key gets its quota twice.
 * After a jump of more than a day backwards, the counts go on in the earlier day, which then
 * ends. */
void api_keys_time_set(struct api_keys *keys, int64_t unix_s)
{
    struct day *day = &keys->day;
    int64_t number = unix_s / DAY_S;
    if (day->number == 0) {
        day_begin(keys, number, unix_s);
    } else if (number > day->number) {
        day_begin(keys, number, number * DAY_S);
        day->before = 0; /* Nothing was before. */
    } else if (number < day->number - 1) {
        day->number = number;
        day->now_s = day->begun_s = unix_s;
        day->shared_s = 0;
    }
    if (unix_s > day->now_s)
        day->shared_s += (double)(unix_s - day->now_s) * share_now(keys);
    day->now_s = unix_s;
    if (day->before < 0 && (keys->gateways > 1 || unix_s > day->begun_s + ALONE_S))
        day->before = keys->gateways == 1 || day->is_continued ? share_now(keys) : 0;
}

bool api_keys_have_quotas(const struct api_keys *keys)
{
    for (uint32_t i = 0; i < keys->place_count; i++)
        if (keys->entries[i].present && (keys->entries[i].settings.tokens_per_day > 0 ||
                                         keys->entries[i].settings.requests_per_day > 0))
            return true;
    return false;
}

void api_keys_day_add(struct api_keys *keys, const char *name, int64_t began_s, uint64_t tokens)
{
    const struct day *day = &keys->day;
    struct api_key_settings settings = {.name_hash = api_key_name_hash(name)};
    snprintf(settings.name, sizeof(settings.name), "%s", name);
    uint32_t place = place_of(keys, &settings);
    if (began_s / DAY_S != day->number)
        return;
    keys->day.is_continued = true;
    if (place == PLACES)
        return;
    keys->entries[place].counts.day_requests++;
    keys->entries[place].counts.day_tokens += tokens;
}

static int64_t day_left_s(const struct api_keys *keys)
{
    int64_t left_s = (keys->day.number + 1) * DAY_S - keys->day.now_s;
    return left_s > 0 ? left_s : 1;
}

/* ---- use ---- */

static struct entry *entry_at(struct api_keys *keys, uint32_t key_index)
{
    return key_index < PLACES ? &keys->entries[key_index] : NULL;
}

void api_keys_share_set(struct api_keys *keys, uint32_t gateways, uint32_t rank)
{
    keys->gateways = gateways;
    keys->rank = rank;
}

/* Returns this gateway's share of a limit. */
static uint64_t share_of(const struct api_keys *keys, uint64_t limit)
{
    return limit / keys->gateways + (keys->rank < limit % keys->gateways);
}

/* Returns this gateway's share of a limit of a day. */
static uint64_t day_share_of(const struct api_keys *keys, uint64_t limit)
{
    const struct day *day = &keys->day;
    double share = share_now(keys);
    double before = day->before < 0 ? share : day->before;
    double before_s = (double)(day->begun_s - day->number * DAY_S);
    double mean = (before * before_s + day->shared_s + share * (double)day_left_s(keys)) / DAY_S;
    if (mean > share - 1e-6 && mean < share + 1e-6)
        return share_of(keys, limit);
    return mean < 1 ? (uint64_t)(mean * (double)limit) : limit;
}

static void shared_text(const struct api_keys *keys, uint64_t share, char out[96])
{
    out[0] = 0;
    if (keys->gateways > 1)
        snprintf(out, 96, " (of which %llu at this one of %u gateways)", (unsigned long long)share,
                 keys->gateways);
}

static bool limit_refuse(const struct api_keys *keys, struct entry *e, struct api_error *error,
                         double wait_us, const char *what, uint64_t limit)
{
    char shared[96];
    e->counts.refused++;
    shared_text(keys, share_of(keys, limit), shared);
    api_error_set(error, 429, NULL, "key %s is at its limit of %llu %s%s", e->settings.name,
                  (unsigned long long)limit, what, shared);
    error->code = "rate_limit_exceeded";
    double seconds = wait_us / 1e6 + 1;
    error->retry_after_s = seconds > RETRY_S_MAX ? RETRY_S_MAX : (uint32_t)seconds;
    return false;
}

static bool quota_refuse(const struct api_keys *keys, struct entry *e, struct api_error *error,
                         const char *what, uint64_t limit)
{
    char shared[96];
    int64_t left_s = day_left_s(keys);
    e->counts.refused++;
    shared_text(keys, day_share_of(keys, limit), shared);
    api_error_set(error, 429, NULL,
                  "key %s has used its quota of %llu %s a day%s: the next day (UTC) begins in "
                  "%lld:%02lld hours",
                  e->settings.name, (unsigned long long)limit, what, shared,
                  (long long)left_s / 3600, (long long)left_s / 60 % 60);
    error->code = "insufficient_quota";
    error->retry_after_s = (uint32_t)left_s;
    return false;
}

/* `most` is the budget of a minute. now_us may be earlier than in the call before. With several
 * gateways, a new gateway must not add a whole budget to the budgets of the others, so it begins
 * with 1, which allows one request. */
static void budget_fill(const struct api_keys *keys, struct budget *b, double most, int64_t now_us)
{
    if (b->filled_us == 0)
        b->left = keys->gateways > 1 ? 1 : most;
    else if (now_us > b->filled_us)
        b->left += (double)(now_us - b->filled_us) * most / MINUTE_US;
    if (b->left > most)
        b->left = most;
    b->filled_us = now_us > b->filled_us ? now_us : b->filled_us;
}

/* Returns the time until the budget has `wanted`. `most` is the budget of a minute. */
static double budget_wait_us(const struct budget *b, double wanted, double most)
{
    return most > 0 ? (wanted - b->left) * MINUTE_US / most : RETRY_S_MAX * 1e6;
}

void api_keys_index_hold(struct api_keys *keys, uint32_t key_index)
{
    struct entry *e = entry_at(keys, key_index);
    if (e != NULL)
        e->holders++;
}

void api_keys_index_release(struct api_keys *keys, uint32_t key_index)
{
    struct entry *e = entry_at(keys, key_index);
    if (e == NULL)
        return;
    assert(e->holders > 0);
    e->holders--;
}

bool api_keys_revoked(const struct api_keys *keys, const struct api_key_shown *shown)
{
    if (!keys->wanted || shown->key_index >= PLACES)
        return false;
    const struct entry *e = &keys->entries[shown->key_index];
    for (uint32_t i = 0; e->present && i < e->secrets.count; i++)
        if (e->numbers[i] == shown->secret_number)
            return false;
    return true;
}

/* A request that can never be within the key's limit. */
static bool too_many_answers(struct entry *e, uint32_t answers, uint64_t limit, const char *what,
                             struct api_error *error)
{
    e->counts.refused++;
    api_error_set(error, 400, "n",
                  "the request wants %u answers (prompts × n): key %s may have "
                  "%llu %s",
                  answers, e->settings.name, (unsigned long long)limit, what);
    error->code = "invalid_value";
    return false;
}

/* True if the key may ever begin this many answers at once. */
static bool count_check(struct entry *e, uint32_t count, struct api_error *error)
{
    const struct api_key_settings *settings = &e->settings;
    if (settings->answers_in_flight_max > 0 && count > settings->answers_in_flight_max)
        return too_many_answers(e, count, settings->answers_in_flight_max, "in flight", error);
    if (settings->requests_per_minute > 0 && count > settings->requests_per_minute)
        return too_many_answers(e, count, settings->requests_per_minute, "a minute", error);
    if (settings->requests_per_day > 0 && count > settings->requests_per_day)
        return too_many_answers(e, count, settings->requests_per_day, "a day", error);
    return true;
}

static bool quotas_check(const struct api_keys *keys, struct entry *e, uint32_t count,
                         struct api_error *error)
{
    const struct api_key_settings *settings = &e->settings;
    if (settings->requests_per_day > 0 &&
        e->counts.day_requests + count > day_share_of(keys, settings->requests_per_day))
        return quota_refuse(keys, e, error, "requests", settings->requests_per_day);
    if (settings->tokens_per_day > 0 &&
        e->counts.day_tokens >= day_share_of(keys, settings->tokens_per_day))
        return quota_refuse(keys, e, error, "tokens", settings->tokens_per_day);
    return true;
}

/* Checks whether the key may begin this many answers or texts now. Fills the budgets. With several
 * gateways a share may be smaller than `count`; a full budget then allows it. */
static bool limits_check(const struct api_keys *keys, struct entry *e, uint32_t count,
                         int64_t now_us, struct api_error *error)
{
    double tokens = (double)share_of(keys, e->settings.tokens_per_minute);
    double requests = (double)share_of(keys, e->settings.requests_per_minute);
    double wanted = count < requests || requests < 1 ? count : requests;
    if (!count_check(e, count, error))
        return false;
    budget_fill(keys, &e->tokens, tokens, now_us);
    budget_fill(keys, &e->requests, requests, now_us);
    if (!quotas_check(keys, e, count, error))
        return false;
    if (e->settings.answers_in_flight_max > 0 &&
        e->counts.in_flight + e->texts + count > share_of(keys, e->settings.answers_in_flight_max))
        return limit_refuse(keys, e, error, 0, "answers in flight",
                            e->settings.answers_in_flight_max);
    if (e->settings.requests_per_minute > 0 && e->requests.left < wanted - 1e-9)
        return limit_refuse(keys, e, error, budget_wait_us(&e->requests, wanted, requests),
                            "requests a minute", e->settings.requests_per_minute);
    if (e->settings.tokens_per_minute > 0 && e->tokens.left < 1)
        return limit_refuse(keys, e, error, budget_wait_us(&e->tokens, 1, tokens),
                            "tokens a minute", e->settings.tokens_per_minute);
    return true;
}

bool api_keys_text_begin(struct api_keys *keys, uint32_t key_index, int64_t now_us,
                         struct api_error *error)
{
    struct entry *e = entry_at(keys, key_index);
    if (e == NULL)
        return true;
    if (!limits_check(keys, e, 1, now_us, error))
        return false;
    e->texts++;
    e->holders++;
    return true;
}

void api_keys_text_end(struct api_keys *keys, uint32_t key_index)
{
    struct entry *e = entry_at(keys, key_index);
    if (e == NULL)
        return;
    assert(e->texts > 0);
    e->texts--;
    api_keys_index_release(keys, key_index);
}

bool api_keys_answers_begin(struct api_keys *keys, uint32_t key_index, uint32_t answers,
                            uint64_t prompt_tokens, int64_t now_us, struct api_error *error)
{
    struct entry *e = entry_at(keys, key_index);
    if (e == NULL)
        return true;
    if (!limits_check(keys, e, answers, now_us, error))
        return false;
    e->tokens.left -= (double)prompt_tokens;
    e->requests.left -= answers;
    e->counts.in_flight += answers;
    e->counts.requests += answers;
    e->counts.day_requests += answers;
    e->counts.day_tokens += prompt_tokens;
    return true;
}

void api_keys_tokens_charge(struct api_keys *keys, uint32_t key_index, uint32_t tokens)
{
    struct entry *e = entry_at(keys, key_index);
    if (e == NULL)
        return;
    e->counts.generated_tokens += tokens;
    e->counts.day_tokens += tokens;
    e->tokens.left -= tokens;
}

void api_keys_answer_end(struct api_keys *keys, uint32_t key_index, uint64_t prompt_tokens)
{
    struct entry *e = entry_at(keys, key_index);
    if (e == NULL)
        return;
    assert(e->counts.in_flight > 0);
    e->counts.in_flight--;
    e->counts.prompt_tokens += prompt_tokens;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0; /* A day may have begun since. */
}

void api_keys_answer_return(struct api_keys *keys, uint32_t key_index, uint64_t prompt_tokens)
{
    struct entry *e = entry_at(keys, key_index);
    if (e == NULL)
        return;
    e->counts.day_tokens = less(e->counts.day_tokens, prompt_tokens);
    e->counts.day_requests = less(e->counts.day_requests, 1);
    e->tokens.left += (double)prompt_tokens;
    e->requests.left += 1;
}

static void budget_unused(const struct api_keys *keys, struct budget *b, uint64_t limit,
                          int64_t now_us, uint64_t *left_out, uint64_t *full_us_out)
{
    if (limit == 0)
        return;
    budget_fill(keys, b, (double)limit, now_us);
    *left_out = b->left > 0 ? (uint64_t)b->left : 0;
    *full_us_out = (uint64_t)budget_wait_us(b, (double)limit, (double)limit);
}

bool api_keys_unused(struct api_keys *keys, uint32_t key_index, int64_t now_us,
                     struct api_key_unused *out)
{
    struct entry *e = entry_at(keys, key_index);
    if (e == NULL)
        return false;
    *out = (struct api_key_unused){0};
    if (e->settings.answers_in_flight_max > 0) {
        uint64_t used = e->counts.in_flight + e->texts;
        out->answers_max = share_of(keys, e->settings.answers_in_flight_max);
        out->answers_left = out->answers_max > used ? out->answers_max - used : 0;
    }
    out->requests_max = share_of(keys, e->settings.requests_per_minute);
    budget_unused(keys, &e->requests, out->requests_max, now_us, &out->requests_left,
                  &out->requests_full_us);
    out->tokens_max = share_of(keys, e->settings.tokens_per_minute);
    budget_unused(keys, &e->tokens, out->tokens_max, now_us, &out->tokens_left,
                  &out->tokens_full_us);
    return true;
}
