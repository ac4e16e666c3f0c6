/* api_keys: which clients may use the HTTP API, their limits, and what each client has used. Keys
 * come from a file that an operator writes. Of a secret only the SHA-256 is kept. Without a file
 * there are no keys and no limits (server/http/access.c then decides what clients may do).
 * server/http/ checks and charges keys, server/serve*.c replace them, and server/metrics/ and
 * server/serve_admin.c read the counters, all on the gateway's event loop thread. This part keeps
 * no requests and knows no machines. */
#ifndef SERVER_API_KEYS_H
#define SERVER_API_KEYS_H

#include "common/counters.h"
#include "common/limits.h"
#include "common/status.h"
#include "server/api/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The index of a request that has shown no key: it has no limits, and nothing is counted. */
#define API_KEY_NONE UINT32_MAX

/* Indices of keys are below this number. A key that was removed from the file keeps its index while
 * its answers run and while the index is held (api_keys_index_hold). After that, a new key may get
 * the index. */
#define API_KEY_INDICES (2 * LIMIT_API_KEYS)

/* Most secrets of a key: an old secret and a new secret, while clients change. */
#define API_KEY_SECRETS 2

/* What the key file says of a key, except its secrets. */
struct api_key_settings {
    char name[LIMIT_KEY_NAME_BYTES];
    uint64_t name_hash; /* api_key_name_hash of the name. */
    /* With server/prefix_cache_scope "group", keys of one group share cached prefixes; empty = the
     * key shares prefixes with no other key. */
    char cache_group[LIMIT_KEY_NAME_BYTES];
    uint32_t weight; /* Weight of the key against other keys (scheduler/queue.h); default 1. */
    /* Most answers in flight, including the texts of api_keys_text_begin; 0 = no limit. */
    uint32_t answers_in_flight_max;
    uint64_t tokens_per_minute;   /* Most prompt and answer tokens a minute; 0 = no limit. */
    uint64_t tokens_per_day;      /* Most prompt and answer tokens a day (UTC); 0 = no limit. */
    uint64_t requests_per_minute; /* Most answers begun a minute; 0 = no limit. */
    uint64_t requests_per_day;    /* Most answers begun a day (UTC); 0 = no limit. */
    int64_t expires;              /* Seconds since 1970 from which the key is refused; 0 = never. */
    int32_t priority_best;        /* The lowest (most urgent) `priority` that requests may have. */
    bool admin;                   /* The key may use /admin and read /metrics. */
    bool metrics;                 /* The key may read /metrics. */
};

/* What a key has used: the fields of KEY_COUNTERS (common/counters.h). */
#define API_KEY_COUNT(name, ...) uint64_t name;
struct api_key_counts {
    KEY_COUNTERS(API_KEY_COUNT)
};
#undef API_KEY_COUNT

struct api_keys;
struct api_key_set; /* A key file that was read and checked. */

/* Opens an empty table. Returns ST_NO_MEMORY on failure. */
enum status api_keys_open(struct api_keys **out);
void api_keys_close(struct api_keys *keys); /* NULL is fine */

/* Reads and checks a key file without applying it. On failure returns a negative status; *error
 * names file, position and field, never a value. */
enum status api_key_set_read(const char *path, struct api_key_set **out, struct error *error);
void api_key_set_free(struct api_key_set *set); /* NULL is fine */
/* Writes a JSON Schema (draft 7) of key files, for editors. The schema does not check that names
 * and secrets of a file differ. Returns false if the schema cannot be written. */
bool api_keys_print_schema(FILE *file);
/* Returns the number of keys in the set; set NULL = 0. */
uint32_t api_key_set_count(const struct api_key_set *set);
/* Returns the settings of the key at `index`, which must be below api_key_set_count. */
const struct api_key_settings *api_key_set_settings(const struct api_key_set *set, uint32_t index);
/* Returns a hash of a key's name, which is equal in all processes and not 0. */
uint64_t api_key_name_hash(const char *name);

/* Calls `change` for each key that `set` adds, removes or changes. kind: "added", "removed" or
 * "changed" (the key's secrets or its settings). set NULL = no keys. Returns ST_NO_MEMORY on
 * failure. */
enum status api_key_set_diff(const struct api_keys *keys, const struct api_key_set *set,
                             void (*change)(void *self, const char *name, const char *kind),
                             void *self);

/* Replaces the keys in use, and frees the set; set NULL = no keys are configured. A key with the
 * name of an earlier key continues the earlier key's counters, unless another key has got the
 * earlier key's index. If `set` is not NULL, the secrets that a key no longer has are revoked: the
 * caller ends requests in flight that have shown such a secret (api_keys_revoked). New keys for
 * which no index is free cannot be used until the next call. */
void api_keys_apply(struct api_keys *keys, struct api_key_set *set);

/* Sets this gateway's share of each key's limits: `gateways` gateways divide a limit evenly. If the
 * limit is not a multiple of `gateways`, the gateways with the lowest `rank` (from 0) get one more.
 * For limits of a day, the share is the mean of the gateway's shares over that day. After
 * api_keys_open there is 1 gateway. */
void api_keys_share_set(struct api_keys *keys, uint32_t gateways, uint32_t rank);

/* Returns true if keys are configured. */
bool api_keys_configured(const struct api_keys *keys);

/* The key that a request has shown, and the secret by which the key was found. */
struct api_key_shown {
    uint32_t key_index;
    uint32_t secret_number; /* A number that no other secret of this process gets. */
};

/* Finds the key of a request by the value of its header Authorization ("Bearer KEY") or, without
 * this header, of x-api-key ("KEY"). NULL = the request does not have the header. Returns false if
 * no key in use matches. Also finds keys that have expired. */
bool api_keys_find(const struct api_keys *keys, const char *authorization, const char *x_api_key,
                   struct api_key_shown *out);

/* Keeps the key's index reserved for the key until api_keys_index_release. Requires a key_index
 * from api_keys_find, or API_KEY_NONE (no effect). */
void api_keys_index_hold(struct api_keys *keys, uint32_t key_index);
void api_keys_index_release(struct api_keys *keys, uint32_t key_index);
/* Returns true if the key that was shown no longer has the secret, or is no longer in the file in
 * use. Returns false for API_KEY_NONE, and if no keys are configured. */
bool api_keys_revoked(const struct api_keys *keys, const struct api_key_shown *shown);
/* The error text for requests whose secret was revoked. */
#define API_KEY_REVOKED_TEXT "this API key was removed or replaced"

/* ---- time ---- */

/* Sets the time, in seconds since 1970, for the expiry of keys and for the limits of a day. */
void api_keys_time_set(struct api_keys *keys, int64_t unix_s);
/* Returns true if a key in use has a limit of a day. */
bool api_keys_have_quotas(const struct api_keys *keys);
/* Counts an answer of an earlier process for the key `name`, if the answer began on the present
 * day. Call it after api_keys_apply and api_keys_time_set. */
void api_keys_day_add(struct api_keys *keys, const char *name, int64_t began_s, uint64_t tokens);

/* Number of days before its expiry at which a key begins to count as API_KEY_EXPIRES. */
#define API_KEY_WARN_DAYS 7
enum api_key_expiry {
    API_KEY_VALID,
    API_KEY_EXPIRES,      /* Within API_KEY_WARN_DAYS. */
    API_KEY_EXPIRES_SOON, /* Within a day. */
    API_KEY_EXPIRED,
};
/* Returns how near the expiry of a key with these settings is at now_s. */
enum api_key_expiry api_key_expiry_of(const struct api_key_settings *settings, int64_t now_s);
/* Returns true if the key (not API_KEY_NONE) has expired at the time of api_keys_time_set. */
bool api_keys_expired(const struct api_keys *keys, uint32_t key_index);
/* Calls `report` for each key in use that has come nearer to its expiry (api_key_expiry_of) since
 * the key was last reported. After `expires` has changed, the key counts as last reported with
 * API_KEY_VALID. */
void api_keys_expiry_report(struct api_keys *keys,
                            void (*report)(void *self, const struct api_key_settings *settings,
                                           enum api_key_expiry expiry),
                            void *self);

/* Returns the settings of a key, also of a key that was removed; NULL = API_KEY_NONE, or no key
 * ever had this index. */
const struct api_key_settings *api_keys_settings(const struct api_keys *keys, uint32_t key_index);
/* Returns a number above all indices that keys have had so far. keys NULL = 0. */
uint32_t api_keys_index_count(const struct api_keys *keys);
/* Returns true if the key is in the file in use. */
bool api_keys_present(const struct api_keys *keys, uint32_t key_index);
/* Returns the counts of a key. Requires an index below API_KEY_INDICES. */
const struct api_key_counts *api_keys_counts(const struct api_keys *keys, uint32_t key_index);

/* Begins to parse and tokenize a text for the key, such as the body of a completion. Until
 * api_keys_text_end, the text counts as an answer in flight and the key's index is held. A text
 * charges no request and no tokens. If the key could not begin an answer, returns false with a 429
 * in *error; only the refusal is then counted. Succeeds for API_KEY_NONE. */
bool api_keys_text_begin(struct api_keys *keys, uint32_t key_index, int64_t now_us,
                         struct api_error *error);
void api_keys_text_end(struct api_keys *keys, uint32_t key_index);

/* Begins `answers` answers to prompts of prompt_tokens tokens in all, if the key's limits allow
 * them. Charges the answers and the prompts' tokens. Answers may exceed the limits of tokens; later
 * answers are then refused until at least one token is left again. Returns false with a 429 in
 * *error, or with a 400 if `answers` is above a limit of the key for all gateways together; only
 * the refusal is then counted. Succeeds for API_KEY_NONE. */
bool api_keys_answers_begin(struct api_keys *keys, uint32_t key_index, uint32_t answers,
                            uint64_t prompt_tokens, int64_t now_us, struct api_error *error);
/* Charges the key for generated tokens. */
void api_keys_tokens_charge(struct api_keys *keys, uint32_t key_index, uint32_t tokens);
/* Ends one answer in flight. prompt_tokens: tokens of its prompt, which api_key_counts.prompt_tokens
 * counts now; 0 = the prompt counts with another answer, or its charge was given back. */
void api_keys_answer_end(struct api_keys *keys, uint32_t key_index, uint64_t prompt_tokens);
/* The unused part of this gateway's share of a key's limits, except the limits of a day. If the
 * field …_max of a limit is 0, its fields …_left and …_full_us are 0, too. */
struct api_key_unused {
    uint64_t answers_max; /* Answers in flight; 0 = no limit, or this gateway has no share. */
    uint64_t answers_left;
    uint64_t requests_max; /* Requests a minute; 0 = no limit, or this gateway has no share. */
    uint64_t requests_left;
    uint64_t requests_full_us; /* Time until requests_left is requests_max without new requests. */
    uint64_t tokens_max;       /* Tokens a minute; 0 = no limit, or this gateway has no share. */
    uint64_t tokens_left;
    uint64_t tokens_full_us; /* Time until tokens_left is tokens_max, if no token is charged. */
};
/* Stores the unused part. Returns false for API_KEY_NONE. */
bool api_keys_unused(struct api_keys *keys, uint32_t key_index, int64_t now_us,
                     struct api_key_unused *out);

/* Gives back to the key what an answer that will not be computed was charged: one request and
 * prompt_tokens tokens. Does not lower api_key_counts.requests. The caller also calls
 * api_keys_answer_end. */
void api_keys_answer_return(struct api_keys *keys, uint32_t key_index, uint64_t prompt_tokens);

#endif
