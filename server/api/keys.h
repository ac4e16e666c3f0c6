/* api_keys: which clients may use the HTTP API, their limits, and what each of them has used. Keys
 * come from a file that an operator writes. Of each key only the SHA-256 is kept, by which a
 * client's key is found. Without a file there are no keys and no limits (server/http/access.c then
 * decides what clients may do). server/http/ checks and charges keys, server/serve*.c replace them,
 * and server/metrics/ reads the counters, all on the gateway's event loop thread; `cleave check`
 * only reads a key file. It keeps counts, but no requests, and knows no machines. */
#ifndef SERVER_API_KEYS_H
#define SERVER_API_KEYS_H

#include "common/counters.h"
#include "common/limits.h"
#include "common/status.h"
#include "server/api/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The index of a request without a key: no keys are configured, there are no limits, and nothing is
 * counted. */
#define API_KEY_NONE UINT32_MAX

/* All indices of keys are below this number. A key that was removed from the file keeps its index
 * while its answers run and while it is held (api_keys_index_hold). */
#define API_KEY_INDICES (2 * LIMIT_API_KEYS)

/* Most secrets of a key: an old and a new one while clients change. */
#define API_KEY_SECRETS 2

/* A key's entry in the file. */
struct api_key_rules {
    char name[LIMIT_KEY_NAME_BYTES];
    uint64_t name_hash; /* Never 0. */
    /* With server/prefix_cache_scope "group", keys of one group share cached prefixes; empty = the
     * key shares prefixes with no other key. */
    char cache_group[LIMIT_KEY_NAME_BYTES];
    uint32_t weight;              /* Weight of the key's requests against other keys; default 1. */
    uint32_t requests_max;        /* Most answers in flight; 0 = no limit. */
    uint64_t tokens_per_minute;   /* Most prompt and answer tokens a minute; 0 = no limit. */
    uint64_t tokens_per_day;      /* Most tokens a day (UTC); 0 = no limit. */
    uint64_t requests_per_minute; /* Most answers begun a minute; 0 = no limit. */
    uint64_t requests_per_day;    /* Most answers begun a day (UTC); 0 = no limit. */
    int64_t expires; /* Time in seconds since 1970 from which the key is refused; 0 = never. */
    int32_t priority_best; /* The lowest (most urgent) `priority` that requests may have. */
    bool admin;            /* The key may use /admin and read /metrics. */
    bool metrics;          /* The key may read /metrics. */
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
/* Writes a JSON Schema (draft 7) of key files, for editors. What depends on several entries is not
 * in it. Returns false if the file cannot be written. */
bool api_keys_print_schema(FILE *file);
/* Return the number of keys (set NULL = 0), and the rules of the key `index`. */
uint32_t api_key_set_count(const struct api_key_set *set);
const struct api_key_rules *api_key_set_rules(const struct api_key_set *set, uint32_t index);
/* Returns a key name's name_hash. */
uint64_t api_key_name_hash(const char *name);

/* Calls `change` for each key that the set would add, remove or change. kind: "added", "removed"
 * or "changed" (the key's secrets or its rules). set NULL = no keys. Returns ST_NO_MEMORY on
 * failure. */
enum status api_key_set_diff(const struct api_keys *keys, const struct api_key_set *set,
                             void (*change)(void *self, const char *name, const char *kind),
                             void *self);

/* Replaces the keys in use; set NULL = no keys are configured. A key with the name of an earlier
 * key continues its counters. A secret that is no longer in the file is revoked: the caller ends
 * the requests in flight that have shown it (api_keys_revoked). If no index is free because removed
 * keys still hold indices, a new key cannot be used until the next call. Frees the set. */
void api_keys_apply(struct api_keys *keys, struct api_key_set *set);

/* Sets this gateway's part of each key's limits: `gateways` gateways divide a limit evenly. If the
 * limit is not a multiple of `gateways`, the gateways with the lowest ranks get one more. 1 gateway
 * after opening. */
void api_keys_share_set(struct api_keys *keys, uint32_t gateways, uint32_t rank);

/* Returns true if keys are configured. */
bool api_keys_configured(const struct api_keys *keys);

/* The key that a request has shown, and which of the key's secrets. */
struct api_key_shown {
    uint32_t key_index;
    uint32_t secret_number; /* A number that no other secret gets. */
};

/* Finds the key of a request by its header "Authorization: Bearer KEY" or, without this header, by
 * "x-api-key: KEY", which clients of Anthropic's API send. NULL = the request does not have the
 * header. Returns false if no key in use matches. Also finds keys that have expired. */
bool api_keys_find(const struct api_keys *keys, const char *authorization, const char *x_api_key,
                   struct api_key_shown *out);

/* Keeps the key's index reserved for the key until api_keys_index_release. Requires a key from
 * api_keys_find, or API_KEY_NONE. */
void api_keys_index_hold(struct api_keys *keys, uint32_t key_index);
void api_keys_index_release(struct api_keys *keys, uint32_t key_index);
/* Returns true if the secret is no longer in the file. Returns false for API_KEY_NONE, and if no
 * keys are configured, because every client may then use the API. */
bool api_keys_revoked(const struct api_keys *keys, const struct api_key_shown *shown);
#define API_KEY_REVOKED_TEXT "this API key was removed or replaced"

/* ---- time ---- */

/* Sets the time, in seconds since 1970: for expiry and the limits of a day. */
void api_keys_time_set(struct api_keys *keys, int64_t unix_s);
/* Returns true if a key has a limit of a day. */
bool api_keys_have_quotas(const struct api_keys *keys);
/* Counts an answer of an earlier process, if it began on the present day. Call it after
 * api_keys_apply and api_keys_time_set. */
void api_keys_day_add(struct api_keys *keys, const char *name, int64_t began_s, uint64_t tokens);

#define API_KEY_WARN_DAYS 7
enum api_key_expiry {
    API_KEY_VALID,
    API_KEY_EXPIRES,      /* Within API_KEY_WARN_DAYS. */
    API_KEY_EXPIRES_SOON, /* Within a day. */
    API_KEY_EXPIRED,
};
enum api_key_expiry api_key_expiry_of(const struct api_key_rules *rules, int64_t now_s);
/* Returns true if the key has expired. Requires an index below API_KEY_INDICES. */
bool api_keys_expired(const struct api_keys *keys, uint32_t key_index);
/* Calls `report` for each key in use whose enum api_key_expiry has grown since the previous call,
 * or since its `expires` has changed. */
void api_keys_expiry_report(struct api_keys *keys,
                            void (*report)(void *self, const struct api_key_rules *rules,
                                           enum api_key_expiry expiry),
                            void *self);

/* Returns the rules of a key, also of a key that was removed; NULL = API_KEY_NONE, or no key ever
 * had this index. */
const struct api_key_rules *api_keys_rules(const struct api_keys *keys, uint32_t key_index);
/* Returns how many indices keys have had so far: all of them are below this number. keys NULL =
 * 0. */
uint32_t api_keys_index_count(const struct api_keys *keys);
/* Returns true if the key is in the file in use. */
bool api_keys_present(const struct api_keys *keys, uint32_t key_index);
/* Returns the counts of a key. Requires an index below API_KEY_INDICES. */
const struct api_key_counts *api_keys_counts(const struct api_keys *keys, uint32_t key_index);

/* Begins to read a text for the key: the body of a completion, /tokenize or /detokenize. The text
 * counts as an answer in flight, and is refused like an answer, but costs no tokens. Returns false,
 * with a 429 in *error, if the text is refused; only the refusal is counted then. The key is held
 * until api_keys_text_end. Always succeeds for API_KEY_NONE. */
bool api_keys_text_begin(struct api_keys *keys, uint32_t key_index, int64_t now_us,
                         struct api_error *error);
void api_keys_text_end(struct api_keys *keys, uint32_t key_index);

/* Begins `answers` answers to prompts of prompt_tokens tokens in all, within this gateway's share
 * of the limits. Returns false with a 429 in *error, or with a 400 if `answers` is above the key's
 * limit; only the refusal is counted then. Charges the prompt's tokens. The answers' tokens are
 * charged when they are generated, so an answer may exceed the budget; later answers are refused
 * until at least one token of the budget is left again. Always succeeds for API_KEY_NONE. */
bool api_keys_answers_begin(struct api_keys *keys, uint32_t key_index, uint32_t answers,
                            uint64_t prompt_tokens, int64_t now_us, struct api_error *error);
/* Charges generated tokens. */
void api_keys_tokens_charge(struct api_keys *keys, uint32_t key_index, uint32_t tokens);
/* Ends one answer in flight. */
void api_keys_answer_end(struct api_keys *keys, uint32_t key_index);
/* The unused part of this gateway's share of a key's limits. */
struct api_key_unused {
    uint64_t answers_max; /* Most answers in flight; 0 = no limit, and answers_left is 0. */
    uint64_t answers_left;
    /* Requests a minute; 0 = no limit, or this gateway has no share: the next two fields are 0. */
    uint64_t requests_max;
    uint64_t requests_left;
    uint64_t requests_full_us; /* Time until requests_max requests are left, if none comes. */
    uint64_t tokens_max;       /* Tokens a minute; 0 as for requests_max. */
    uint64_t tokens_left;
    uint64_t tokens_full_us; /* Time until tokens_max tokens are left, if none is used. */
};
/* Stores the unused part. Returns false for API_KEY_NONE. */
bool api_keys_unused(struct api_keys *keys, uint32_t key_index, int64_t now_us,
                     struct api_key_unused *out);

/* Gives back to the key the prompt's tokens and the request that it was charged for an answer that
 * will not be computed. The caller also calls api_keys_answer_end. */
void api_keys_answer_return(struct api_keys *keys, uint32_t key_index, uint64_t prompt_tokens);

#endif
