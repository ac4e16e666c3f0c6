/* api_keys: which clients may use the HTTP API, their limits, and what each of them has used. Keys
 * come from a file that an operator writes. Only their SHA-256 is kept, and a client's key is
 * compared with all of them in constant time. Without a file there are no limits and every client
 * may do everything (HTTP then listens on loopback). server/http/ checks and charges keys,
 * server/serve*.c replace them, and serve_admin.c and server/metrics/ read the counters, all on the
 * gateway's loop thread. It keeps counts, but no requests, and knows no machines. */
#ifndef SERVER_API_KEYS_H
#define SERVER_API_KEYS_H

#include "common/counters.h"
#include "common/limits.h"
#include "common/status.h"
#include "server/api/error.h"

#include <stdbool.h>
#include <stdint.h>

#define API_KEY_NONE UINT32_MAX /* no keys are configured: no limits, and nothing is counted */

/* Key indices are below this. A key that was removed from the file keeps its index while its
 * answers run and while it is held. */
#define API_KEY_PLACES (2 * LIMIT_API_KEYS)

/* A key's entry in the file. */
struct api_key_rules {
    char name[LIMIT_KEY_NAME_BYTES];
    uint64_t name_hash; /* Never 0. */
    /* With server/prefix_cache_scope "group", keys of one group share cached prefixes; empty = the
     * key is alone. */
    char cache_group[LIMIT_KEY_NAME_BYTES];
    uint32_t weight;            /* Weight of its requests against those of other keys; default 1. */
    uint32_t requests_max;      /* Most answers in flight; 0 = no limit. */
    uint64_t tokens_per_minute; /* Prompt and answer tokens; 0 = no limit. */
    int32_t priority_best;      /* The lowest (most urgent) `priority` that it may ask for. */
    bool admin;                 /* May use /admin and read /metrics. */
    bool metrics;               /* May read /metrics. */
};

#define API_KEY_COUNT(name, ...) uint64_t name;
struct api_key_counts {
    KEY_COUNTERS(API_KEY_COUNT)
};
#undef API_KEY_COUNT

struct api_keys;
struct api_key_set; /* A key file that was read and checked. */

enum status api_keys_open(struct api_keys **out); /* Opens an empty table. */
void api_keys_close(struct api_keys *keys);       /* NULL is fine */

/* Reads and checks a key file without applying it. An error names file, position and field, never a
 * value. */
enum status api_key_set_read(const char *path, struct api_key_set **out, struct error *error);
void api_key_set_free(struct api_key_set *set); /* NULL is fine */

/* Calls `change` for each key that the set would add, remove or change. `how` is "added", "removed",
 * "changed" (its secret or its rules). set: NULL = no keys. */
void api_key_set_diff(const struct api_keys *keys, const struct api_key_set *set,
                      void (*change)(void *self, const char *name, const char *how), void *self);

/* Replaces the keys in use (NULL = no keys are configured). Counters continue by name. A key that
 * is removed or that gets another secret is revoked: the caller ends its requests in flight (see
 * api_keys_revoked). Frees the set. */
void api_keys_apply(struct api_keys *keys, struct api_key_set *set);

/* Sets this gateway's part of each key's limits: `gateways` gateways divide them evenly; the first
 * ones by rank (0, 1, …) get one more of what is left over. Initially 1 gateway. */
void api_keys_share_set(struct api_keys *keys, uint32_t gateways, uint32_t rank);

/* True if keys are configured. */
bool api_keys_wanted(const struct api_keys *keys);

/* Finds the key of a request: of its header "Authorization: Bearer KEY" or, without it, of "x-api-key:
 * KEY", which clients of Anthropic's API send. NULL = no such header. Returns false if it names no
 * key. */
bool api_keys_find(const struct api_keys *keys, const char *authorization, const char *x_api_key,
                   uint32_t *key_out);

/* Keeps the key's index from being given to another key, until api_keys_release. Requires a key from
 * api_keys_find, or API_KEY_NONE. */
void api_keys_hold(struct api_keys *keys, uint32_t key);
void api_keys_release(struct api_keys *keys, uint32_t key);
/* True if the latest api_keys_apply revoked the secret that the key had before. False for
 * API_KEY_NONE, and if no keys are configured any more: then every client may use the API. */
bool api_keys_revoked(const struct api_keys *keys, uint32_t key);
#define API_KEY_REVOKED_TEXT "this API key was removed or replaced"

/* `key` comes from api_keys_find, or is any index below API_KEY_PLACES. rules: NULL = there is no
 * such key. */
const struct api_key_rules *api_keys_rules(const struct api_keys *keys, uint32_t key);
const struct api_key_counts *api_keys_counts(const struct api_keys *keys, uint32_t key);

/* Begins to read a text of the key: the body of a completion, /tokenize or /detokenize. It counts as
 * an answer in flight, and is refused like an answer, but costs no tokens. Returns false with a 429
 * in *error; only the refusal is counted then. The key is held until api_keys_text_end. */
bool api_keys_text_begin(struct api_keys *keys, uint32_t key, int64_t now_us,
                         struct api_error *error);
void api_keys_text_end(struct api_keys *keys, uint32_t key);

/* Begins `answers` answers to prompts of prompt_tokens tokens in all, within this gateway's share of
 * the limits. Returns false with a 429 in *error, or with a 400 if `answers` is above the key's limit;
 * only the refusal is counted then. Tokens are charged as they are generated: an answer may
 * overdraw the budget, and the next one is refused until the rate has made up for it. Without a key
 * it always succeeds. */
bool api_keys_begin(struct api_keys *keys, uint32_t key, uint32_t answers, uint64_t prompt_tokens,
                    int64_t now_us, struct api_error *error);
void api_keys_generated(struct api_keys *keys, uint32_t key, uint32_t tokens);
/* Ends one answer. */
void api_keys_end(struct api_keys *keys, uint32_t key);
/* What is left of the limits of a key at this gateway. */
struct api_key_left {
    uint64_t answers_max; /* Most answers in flight; 0 = no limit, and answers_left is 0. */
    uint64_t answers_left;
    uint64_t tokens_max; /* Tokens a minute; 0 = no limit, and the next two fields are 0. */
    uint64_t tokens_left;
    uint64_t tokens_full_us; /* Time until tokens_max tokens are left, if none is used. */
};
/* Returns false without a key. */
bool api_keys_left(struct api_keys *keys, uint32_t key, int64_t now_us, struct api_key_left *out);

/* Gives back the tokens that the key was charged for a prompt that is not computed. */
void api_keys_give_back(struct api_keys *keys, uint32_t key, uint64_t prompt_tokens);

#endif
