/* api_keys: the key file, and the table of keys in use. A key keeps its index while one of its
 * answers is in flight, however often the file is read again. */
#include "server/api/keys.h"

#include "common/random.h"
#include "common/secret.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_BYTES_MAX    (256u << 10)
#define KEY_BYTES_MIN     16 /* shorter keys can be guessed */
#define KEY_BYTES_MAX     512
#define MINUTE_US         60000000.0
#define RETRY_S_MAX       600
#define IN_FLIGHT_MAX     LIMIT_CLUSTER_REQUESTS
#define TOKENS_MINUTE_MAX (1ll << 40)
#define PLACES            API_KEY_INDICES

struct entry {
    bool present;     /* In the key file that is in use. */
    bool revoked;     /* See api_keys_revoked. */
    uint32_t holders; /* Requests that have shown the key. */
    uint8_t hash[SECRET_HASH_BYTES];
    struct api_key_rules rules;
    struct api_key_counts counts;
    uint32_t texts; /* Texts that are read, see api_keys_text_begin. */
    double tokens;  /* Budget: at most that of a minute; < 0 = overdrawn. */
    int64_t filled_us;
};

struct api_keys {
    bool wanted;
    uint32_t gateways; /* See api_keys_share_set. */
    uint32_t rank;
    struct entry entries[PLACES];
};

struct api_key_set {
    uint32_t count;
    struct {
        uint8_t hash[SECRET_HASH_BYTES];
        struct api_key_rules rules;
    } keys[LIMIT_API_KEYS];
};

/* ---- the file ---- */

struct file_entry {
    const char *path;
    size_t index;
    struct error *error;
};

/* Errors never quote a value: it might be a key in the wrong field. */
static bool entry_refuse(const struct file_entry *at, const char *field, const char *want)
{
    error_set(at->error, ST_INVALID, "%s: /keys/%zu/%s: want %s", at->path, at->index, field, want);
    return false;
}

static bool read_whole(const struct file_entry *at, const json_t *value, const char *field,
                       int64_t least, int64_t most, int64_t *out)
{
    if (json_is_integer(value) && json_integer_value(value) >= least &&
        json_integer_value(value) <= most) {
        *out = json_integer_value(value);
        return true;
    }
    char want[96];
    snprintf(want, sizeof(want), "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    return entry_refuse(at, field, want);
}

static bool read_bool(const struct file_entry *at, const json_t *value, const char *field,
                      bool *out)
{
    if (!json_is_boolean(value))
        return entry_refuse(at, field, "true or false");
    *out = json_is_true(value);
    return true;
}

static bool read_name(const struct file_entry *at, const char *field, const json_t *value,
                      char *out)
{
    const char *text = json_string_value(value);
    size_t length = text != NULL ? strlen(text) : 0;
    bool good = length > 0 && length < LIMIT_KEY_NAME_BYTES;
    for (size_t i = 0; good && i < length; i++)
        good = text[i] > ' ' && text[i] < 127 && text[i] != '"' && text[i] != '\\';
    if (!good)
        return entry_refuse(at, field,
                            "a name of 1 to 63 letters, digits and signs, without spaces");
    memcpy(out, text, length + 1);
    return true;
}

static bool read_key(const struct file_entry *at, const json_t *value, uint8_t *hash_out)
{
    const char *text = json_string_value(value);
    size_t length = text != NULL ? strlen(text) : 0;
    bool good = length >= KEY_BYTES_MIN && length <= KEY_BYTES_MAX;
    for (size_t i = 0; good && i < length; i++)
        good = text[i] > ' ' && text[i] < 127;
    if (!good)
        return entry_refuse(at, "key", "16 to 512 letters, digits and signs, without spaces");
    secret_hash(text, length, hash_out);
    return true;
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != 0 ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

static bool read_sha256(const struct file_entry *at, const json_t *value, uint8_t *hash_out)
{
    const char *text = json_string_value(value);
    bool good = text != NULL && strlen(text) == 2 * SECRET_HASH_BYTES;
    for (size_t i = 0; good && i < SECRET_HASH_BYTES; i++) {
        int high = hex_digit(text[2 * i]);
        int low = hex_digit(text[2 * i + 1]);
        good = high >= 0 && low >= 0;
        hash_out[i] = (uint8_t)(high * 16 + low);
    }
    return good || entry_refuse(at, "sha256", "64 hexadecimal digits");
}

static bool read_field(const struct file_entry *at, const char *field, const json_t *value,
                       struct api_key_rules *rules, uint8_t *hash_out)
{
    int64_t number = 0;
    bool good = true;
    if (strcmp(field, "name") == 0)
        return read_name(at, field, value, rules->name);
    if (strcmp(field, "cache_group") == 0)
        return read_name(at, field, value, rules->cache_group);
    if (strcmp(field, "key") == 0)
        return read_key(at, value, hash_out);
    if (strcmp(field, "sha256") == 0)
        return read_sha256(at, value, hash_out);
    if (strcmp(field, "admin") == 0)
        return read_bool(at, value, field, &rules->admin);
    if (strcmp(field, "metrics") == 0)
        return read_bool(at, value, field, &rules->metrics);
    if (strcmp(field, "weight") == 0) {
        good = read_whole(at, value, field, 1, LIMIT_KEY_WEIGHT, &number);
        rules->weight = (uint32_t)number;
    } else if (strcmp(field, "requests_max") == 0) {
        good = read_whole(at, value, field, 0, IN_FLIGHT_MAX, &number);
        rules->requests_max = (uint32_t)number;
    } else if (strcmp(field, "tokens_per_minute") == 0) {
        good = read_whole(at, value, field, 0, TOKENS_MINUTE_MAX, &number);
        rules->tokens_per_minute = (uint64_t)number;
    } else if (strcmp(field, "priority_best") == 0) {
        good = read_whole(at, value, field, -LIMIT_PRIORITY, LIMIT_PRIORITY, &number);
        rules->priority_best = (int32_t)number;
    } else {
        char shown[32];
        snprintf(shown, sizeof(shown), "%.24s", field);
        return entry_refuse(at, shown,
                            "one of name, key, sha256, weight, requests_max, tokens_per_minute, "
                            "priority_best, metrics, admin, cache_group");
    }
    return good;
}

/* Identifies the key on machines: equal at every gateway that reads the same file. */
static uint64_t name_hash(const char *name)
{
    uint64_t hash = 0;
    for (; *name != 0; name++)
        hash = random_at(hash, (unsigned char)*name);
    return hash != 0 ? hash : 1;
}

static bool read_entry(const struct file_entry *at, json_t *object, struct api_key_set *set)
{
    struct api_key_rules rules = {.weight = 1};
    uint8_t hash[SECRET_HASH_BYTES] = {0};
    const char *field;
    json_t *value;
    if (!json_is_object(object))
        return entry_refuse(at, "", "an object");
    json_object_foreach(object, field, value)
    {
        if (!read_field(at, field, value, &rules, hash))
            return false;
    }
    if (rules.name[0] == 0)
        return entry_refuse(at, "name", "one: it stands in logs and metrics");
    if ((json_object_get(object, "key") != NULL) == (json_object_get(object, "sha256") != NULL))
        return entry_refuse(at, "key", "either key or sha256");
    for (uint32_t i = 0; i < set->count; i++) {
        if (strcmp(set->keys[i].rules.name, rules.name) == 0)
            return entry_refuse(at, "name", "another one: an earlier key has it");
        if (secret_equal(set->keys[i].hash, hash, sizeof(hash)))
            return entry_refuse(at, "key", "another one: an earlier entry has it");
    }
    rules.name_hash = name_hash(rules.name);
    memcpy(set->keys[set->count].hash, hash, sizeof(hash));
    set->keys[set->count++].rules = rules;
    return true;
}

static enum status read_entries(const char *path, json_t *root, struct api_key_set *set,
                                struct error *error)
{
    json_t *list = json_object_get(root, "keys");
    if (!json_is_object(root) || json_object_size(root) != 1 || !json_is_array(list))
        return error_set(error, ST_INVALID, "%s: want {\"keys\": [{\"name\": …, \"key\": …}, …]}",
                         path);
    if (json_array_size(list) == 0 || json_array_size(list) > LIMIT_API_KEYS)
        return error_set(error, ST_INVALID, "%s: /keys has %zu entries: want 1 to %d", path,
                         json_array_size(list), LIMIT_API_KEYS);
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct file_entry at = {path, i, error};
        if (!read_entry(&at, json_array_get(list, i), set))
            return ST_INVALID;
    }
    return ST_OK;
}

enum status api_key_set_read(const char *path, struct api_key_set **out, struct error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    enum status status = secret_file_read(path, FILE_BYTES_MAX, &text, &bytes, error);
    if (status != ST_OK)
        return status;
    json_error_t where;
    struct api_key_set *set = calloc(1, sizeof(*set));
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (set == NULL)
        status = error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
    else if (root == NULL) /* jansson's messages quote the text, which might be a key */
        status = error_set(error, ST_INVALID, "%s:%d: not JSON (column %d)", path, where.line,
                           where.column);
    else
        status = read_entries(path, root, set, error);
    json_decref(root);
    secret_wipe(text, bytes);
    free(text);
    if (status != ST_OK) {
        api_key_set_free(set);
        return status;
    }
    *out = set;
    return ST_OK;
}

void api_key_set_free(struct api_key_set *set)
{
    free(set);
}

/* ---- the table ---- */

enum status api_keys_open(struct api_keys **out)
{
    struct api_keys *keys = calloc(1, sizeof(*keys));
    if (keys == NULL)
        return ST_NO_MEMORY;
    keys->gateways = 1;
    *out = keys;
    return ST_OK;
}

void api_keys_close(struct api_keys *keys)
{
    free(keys);
}

/* Returns the place of the key with this name; PLACES = none. */
static uint32_t place_of(const struct api_keys *keys, const char *name)
{
    uint32_t place = 0;
    while (place < PLACES && strcmp(keys->entries[place].rules.name, name) != 0)
        place++;
    return place;
}

static bool unused(const struct entry *e)
{
    return !e->present && e->counts.in_flight == 0 && e->holders == 0;
}

static void entry_set(struct entry *e, const struct api_key_set *set, uint32_t index)
{
    const struct api_key_rules *rules = &set->keys[index].rules;
    if (e->rules.tokens_per_minute != rules->tokens_per_minute)
        e->tokens = (double)rules->tokens_per_minute;
    e->present = true;
    e->revoked = e->revoked && !secret_equal(e->hash, set->keys[index].hash, sizeof(e->hash));
    e->rules = *rules;
    memcpy(e->hash, set->keys[index].hash, sizeof(e->hash));
}

static bool rules_equal(const struct api_key_rules *a, const struct api_key_rules *b)
{
    return strcmp(a->cache_group, b->cache_group) == 0 && a->weight == b->weight &&
           a->requests_max == b->requests_max && a->tokens_per_minute == b->tokens_per_minute &&
           a->priority_best == b->priority_best && a->admin == b->admin && a->metrics == b->metrics;
}

void api_key_set_diff(const struct api_keys *keys, const struct api_key_set *set,
                      void (*change)(void *self, const char *name, const char *how), void *self)
{
    bool kept[PLACES] = {false};
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        const struct api_key_rules *rules = &set->keys[i].rules;
        uint32_t place = place_of(keys, rules->name);
        const struct entry *e = place < PLACES ? &keys->entries[place] : NULL;
        if (e == NULL || !e->present) {
            change(self, rules->name, "added");
            continue;
        }
        kept[place] = true;
        if (!secret_equal(e->hash, set->keys[i].hash, sizeof(e->hash)) ||
            !rules_equal(&e->rules, rules))
            change(self, rules->name, "changed");
    }
    for (uint32_t i = 0; i < PLACES; i++)
        if (keys->entries[i].present && !kept[i])
            change(self, keys->entries[i].rules.name, "removed");
}

/* Known names keep their indices; they are placed first, so that no new key takes one of them. */
void api_keys_apply(struct api_keys *keys, struct api_key_set *set)
{
    bool placed[LIMIT_API_KEYS] = {false};
    for (uint32_t i = 0; i < PLACES; i++) {
        keys->entries[i].revoked = keys->entries[i].present && set != NULL;
        keys->entries[i].present = false;
    }
    keys->wanted = set != NULL;
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        uint32_t place = place_of(keys, set->keys[i].rules.name);
        placed[i] = place < PLACES;
        if (placed[i])
            entry_set(&keys->entries[place], set, i);
    }
    uint32_t at = 0;
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        if (placed[i])
            continue;
        while (at < PLACES && !unused(&keys->entries[at]))
            at++;
        if (at == PLACES) /* the key does not fit: its clients get 401 until the next reload */
            break;
        keys->entries[at] = (struct entry){0};
        entry_set(&keys->entries[at], set, i);
    }
    api_key_set_free(set);
}

bool api_keys_configured(const struct api_keys *keys)
{
    return keys->wanted;
}

bool api_keys_find(const struct api_keys *keys, const char *authorization, const char *x_api_key,
                   uint32_t *key_out)
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
    uint32_t found = API_KEY_NONE;
    for (uint32_t i = 0; i < PLACES; i++) { /* compares with all of them, for constant time */
        bool equal = secret_equal(keys->entries[i].hash, hash, sizeof(hash));
        if (equal && keys->entries[i].present)
            found = i;
    }
    if (found == API_KEY_NONE)
        return false;
    *key_out = found;
    return true;
}

const struct api_key_rules *api_keys_rules(const struct api_keys *keys, uint32_t key)
{
    return key < PLACES && keys->entries[key].rules.name[0] != 0 ? &keys->entries[key].rules : NULL;
}

const struct api_key_counts *api_keys_counts(const struct api_keys *keys, uint32_t key)
{
    return &keys->entries[key].counts;
}

/* ---- use ---- */

static struct entry *entry_at(struct api_keys *keys, uint32_t key)
{
    return key < PLACES ? &keys->entries[key] : NULL;
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

static bool limit_refuse(const struct api_keys *keys, struct entry *e, struct api_error *error,
                         double wait_us, const char *what, uint64_t limit)
{
    char shared[96] = "";
    e->counts.refused++;
    if (keys->gateways > 1)
        snprintf(shared, sizeof(shared), " (of which %llu at this one of %u gateways)",
                 (unsigned long long)share_of(keys, limit), keys->gateways);
    api_error_set(error, 429, NULL, "key %s is at its limit of %llu %s%s", e->rules.name,
                  (unsigned long long)limit, what, shared);
    error->code = "rate_limit_exceeded";
    double seconds = wait_us / 1e6 + 1;
    error->retry_after_s = seconds > RETRY_S_MAX ? RETRY_S_MAX : (uint32_t)seconds;
    return false;
}

/* `most` is the budget of a minute. now_us may be earlier than in the call before. With several
 * gateways, a new gateway must not add a whole budget to the budgets of the others, so it begins
 * with one token, which allows one request. */
static void tokens_fill(const struct api_keys *keys, struct entry *e, double most, int64_t now_us)
{
    if (e->filled_us == 0)
        e->tokens = keys->gateways > 1 ? 1 : most;
    else if (now_us > e->filled_us)
        e->tokens += (double)(now_us - e->filled_us) * most / MINUTE_US;
    if (e->tokens > most)
        e->tokens = most;
    e->filled_us = now_us > e->filled_us ? now_us : e->filled_us;
}

void api_keys_index_hold(struct api_keys *keys, uint32_t key)
{
    struct entry *e = entry_at(keys, key);
    if (e != NULL)
        e->holders++;
}

void api_keys_index_release(struct api_keys *keys, uint32_t key)
{
    struct entry *e = entry_at(keys, key);
    if (e == NULL)
        return;
    assert(e->holders > 0);
    e->holders--;
}

bool api_keys_revoked(const struct api_keys *keys, uint32_t key)
{
    return key < PLACES && keys->entries[key].revoked;
}

/* A request that can never be within the key's limit. */
static bool too_many_answers(struct entry *e, uint32_t answers, struct api_error *error)
{
    e->counts.refused++;
    api_error_set(error, 400, "n",
                  "the request wants %u answers (prompts × n): key %s may have %u in flight",
                  answers, e->rules.name, e->rules.requests_max);
    error->code = "invalid_value";
    return false;
}

/* Checks whether the key may begin this many answers or texts now. Fills the budget of tokens. */
static bool limits_check(const struct api_keys *keys, struct entry *e, uint32_t count,
                         int64_t now_us, struct api_error *error)
{
    uint64_t rate = share_of(keys, e->rules.tokens_per_minute);
    if (e->rules.requests_max > 0 && count > e->rules.requests_max)
        return too_many_answers(e, count, error);
    tokens_fill(keys, e, (double)rate, now_us);
    if (e->rules.requests_max > 0 &&
        e->counts.in_flight + e->texts + count > share_of(keys, e->rules.requests_max))
        return limit_refuse(keys, e, error, 0, "answers in flight", e->rules.requests_max);
    if (e->rules.tokens_per_minute > 0 && e->tokens < 1)
        return limit_refuse(keys, e, error,
                            rate > 0 ? (1 - e->tokens) * MINUTE_US / (double)rate
                                     : RETRY_S_MAX * 1e6,
                            "tokens a minute", e->rules.tokens_per_minute);
    return true;
}

bool api_keys_text_begin(struct api_keys *keys, uint32_t key, int64_t now_us,
                         struct api_error *error)
{
    struct entry *e = entry_at(keys, key);
    if (e == NULL)
        return true;
    if (!limits_check(keys, e, 1, now_us, error))
        return false;
    e->texts++;
    e->holders++;
    return true;
}

void api_keys_text_end(struct api_keys *keys, uint32_t key)
{
    struct entry *e = entry_at(keys, key);
    if (e == NULL)
        return;
    assert(e->texts > 0);
    e->texts--;
    api_keys_index_release(keys, key);
}

bool api_keys_answers_begin(struct api_keys *keys, uint32_t key, uint32_t answers,
                            uint64_t prompt_tokens, int64_t now_us, struct api_error *error)
{
    struct entry *e = entry_at(keys, key);
    if (e == NULL)
        return true;
    if (!limits_check(keys, e, answers, now_us, error))
        return false;
    e->tokens -= (double)prompt_tokens;
    e->counts.in_flight += answers;
    e->counts.requests += answers;
    e->counts.prompt_tokens += prompt_tokens;
    return true;
}

void api_keys_tokens_charge(struct api_keys *keys, uint32_t key, uint32_t tokens)
{
    struct entry *e = entry_at(keys, key);
    if (e == NULL)
        return;
    e->counts.generated_tokens += tokens;
    e->tokens -= tokens;
}

void api_keys_answer_end(struct api_keys *keys, uint32_t key)
{
    struct entry *e = entry_at(keys, key);
    if (e == NULL)
        return;
    assert(e->counts.in_flight > 0);
    e->counts.in_flight--;
}

void api_keys_tokens_return(struct api_keys *keys, uint32_t key, uint64_t prompt_tokens)
{
    struct entry *e = entry_at(keys, key);
    if (e == NULL)
        return;
    assert(e->counts.prompt_tokens >= prompt_tokens);
    e->counts.prompt_tokens -= prompt_tokens;
    e->tokens += (double)prompt_tokens;
}

bool api_keys_unused(struct api_keys *keys, uint32_t key, int64_t now_us,
                     struct api_key_unused *out)
{
    struct entry *e = entry_at(keys, key);
    if (e == NULL)
        return false;
    *out = (struct api_key_unused){0};
    if (e->rules.requests_max > 0) {
        uint64_t used = e->counts.in_flight + e->texts;
        out->answers_max = share_of(keys, e->rules.requests_max);
        out->answers_left = out->answers_max > used ? out->answers_max - used : 0;
    }
    out->tokens_max = share_of(keys, e->rules.tokens_per_minute);
    if (out->tokens_max > 0) {
        double most = (double)out->tokens_max;
        tokens_fill(keys, e, most, now_us);
        out->tokens_left = e->tokens > 0 ? (uint64_t)e->tokens : 0;
        out->tokens_full_us = (uint64_t)((most - e->tokens) * MINUTE_US / most);
    }
    return true;
}
