/* api_keys: who may use the HTTP side, how much of it, and how much each has used. Keys come from a
 * file that an operator writes; only their SHA-256 stays here, and a client's is compared with all
 * of them in constant time. Without a file everybody may do everything (HTTP listens on loopback
 * then). It knows requests as numbers only. The loop thread owns it. */
#ifndef SERVER_API_KEYS_H
#define SERVER_API_KEYS_H

#include "common/limits.h"
#include "common/status.h"
#include "server/api_error.h"

#include <stdbool.h>
#include <stdint.h>

#define API_KEY_NONE UINT32_MAX /* no keys are configured: no limits, nothing is counted */

/* Indices of keys are below this: a key that is gone keeps its place while its answers run. */
#define API_KEY_PLACES (2 * LIMIT_API_KEYS)

/* What a key's entry in the file says. */
struct api_key_rules {
    char name[LIMIT_KEY_NAME_BYTES];
    uint64_t name_hash;         /* never 0 */
    uint32_t weight;            /* of its requests against those of other keys; default 1 */
    uint32_t requests_max;      /* answers in flight; 0: no limit */
    uint64_t tokens_per_minute; /* prompt and answer; 0: no limit */
    int32_t priority_best;      /* the lowest (most urgent) `priority` that it may ask for */
    bool admin;                 /* may use /admin; and read /metrics */
    bool metrics;               /* may read /metrics */
};

struct api_key_counts {
    uint64_t requests; /* admitted */
    uint64_t refused;  /* over a limit of the key */
    uint64_t prompt_tokens;
    uint64_t generated_tokens;
    uint32_t in_flight;
};

struct api_keys;
struct api_key_set; /* a file that was read and checked */

enum status api_keys_open(struct api_keys **out); /* no keys yet */
void api_keys_close(struct api_keys *keys);       /* NULL is fine */

/* Reads and checks a file; nothing changes yet. An error names file, place and value, never a key.
 */
enum status api_key_set_read(const char *path, struct api_key_set **out, struct error *error);
void api_key_set_free(struct api_key_set *set); /* NULL is fine */

/* From now on these keys count (NULL: none do). Counters go on by name; a request that is in flight
 * goes on. Frees the set. */
void api_keys_apply(struct api_keys *keys, struct api_key_set *set);

/* Some keys are configured. */
bool api_keys_wanted(const struct api_keys *keys);

/* The key that "Bearer KEY" (the Authorization header; NULL: there was none) names, if it names
 * one. */
bool api_keys_find(const struct api_keys *keys, const char *authorization, uint32_t *key_out);

/* `key` is of api_keys_find, or any index below API_KEY_PLACES (rules are NULL where there is no
 * key). */
const struct api_key_rules *api_keys_rules(const struct api_keys *keys, uint32_t key);
const struct api_key_counts *api_keys_counts(const struct api_keys *keys, uint32_t key);

/* Begins `answers` answers to prompts of `prompt_tokens` in all. False: *error has the 429, nothing
 * was counted but the refusal. Tokens are paid as they come: an answer may overdraw, and the next
 * one waits until the minute's rate has made up for it. */
bool api_keys_begin(struct api_keys *keys, uint32_t key, uint32_t answers, uint64_t prompt_tokens,
                    int64_t now_us, struct api_error *error);
void api_keys_generated(struct api_keys *keys, uint32_t key, uint32_t tokens);
/* One answer has ended. */
void api_keys_end(struct api_keys *keys, uint32_t key);
/* The cluster had no room for it: its prompt is not to be paid. */
void api_keys_give_back(struct api_keys *keys, uint32_t key, uint64_t prompt_tokens);

#endif
