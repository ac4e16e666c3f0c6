/* api_request: parses the body of a request (JSON text) of any kind (kind.h) into a checked struct,
 * or returns one clear error. server/http/completion_input.c and server/api/tokenize.c call it on
 * the text threads. server/http/completion.c frees requests on the gateway's event loop thread. The
 * functions keep no state, and any thread may call them. A field of null counts as absent, and
 * unknown fields are accepted. Fields that cleave knows but does not implement are refused, unless
 * their values have no effect (known_fields.h). This part does not tokenise or submit requests.
 *
 * The struct has copies of the body's values, except of the conversation of a chat: the struct
 * holds references to this part of the JSON tree until api_request_input_free. */
#ifndef SERVER_API_REQUEST_H
#define SERVER_API_REQUEST_H

#include "common/limits.h"
#include "common/sampling.h"
#include "common/secret.h"
#include "model/text/chat.h"
#include "server/api/constraint.h"
#include "server/api/error.h"
#include "server/api/kind.h"
#include "server/api/logit_rules.h"
#include "server/api/stop_strings.h"
#include "server/api/tools.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct api_text; /* A block of copied texts. */

/* A prompt: a text, or token ids if `text` is NULL. */
struct api_prompt {
    const char *text; /* Owned by api_request.texts. */
    size_t bytes;     /* Length of `text`. */
    uint32_t *ids;    /* malloc'ed, owned by the request. */
    uint32_t count;   /* Number of `ids`. */
};

enum api_transfer { API_TRANSFER_AUTO, API_TRANSFER_LAYERWISE, API_TRANSFER_ONE_PIECE };

/* Fields for which a model may have a default of its own (model/file/sampling_defaults.h). */
enum api_default {
    API_DEFAULT_TEMPERATURE = 1,
    API_DEFAULT_TOP_P = 2,
    API_DEFAULT_TOP_K = 4,
    API_DEFAULT_MIN_P = 8,
    API_DEFAULT_REPETITION_PENALTY = 16,
};

/* A parsed body. A field without a comment has the value of the body's field with this name, or its
 * default (docs/api.md). */
struct api_request {
    enum api_kind kind;
    const char *model; /* NULL = not given. */
    uint32_t prompt_count;
    struct api_prompt prompts[LIMIT_PROMPTS];
    /* The conversation of a chat: references to parts of the JSON tree. */
    struct chat_request chat;
    struct api_tools tools; /* Which tools of `chat` the answer may call. */

    int64_t max_tokens;       /* -1 = not given; API_EMBEDDINGS: 0. */
    struct sampling sampling; /* Without output_tokens_max; end_tokens has stop_token_ids only. */
    bool ignore_eos; /* The model's end tokens do not end the answer; stop_token_ids still do. */
    uint32_t absent_fields; /* Bits of enum api_default: fields that the body does not have. */
    struct api_logit_rules logit_rules;
    bool has_seed;                    /* The body has `seed`; its value is sampling.seed. */
    struct api_constraint constraint; /* The constraint of the answer. */
    uint32_t n;
    uint32_t best_of;        /* Answers that are generated for each prompt, at least n. */
    int32_t prompt_logprobs; /* Alternatives for each token of a prompt; -1 = not wanted. */
    bool include_stop;       /* The body's include_stop_str_in_output. */
    bool echo;
    bool stream;
    bool include_usage;    /* stream_options.include_usage: the stream ends with the usage. */
    bool continuous_usage; /* stream_options.continuous_usage_stats: events have the usage. */
    bool add_special_tokens;
    bool skip_special_tokens;
    bool return_token_ids;
    bool tokens_as_ids; /* vLLM's return_tokens_as_token_ids: token texts are "token_id:N". */
    struct stop_strings stops;  /* The body's `stop`. */
    int32_t priority;           /* As in vLLM: lower is more urgent; 0 if not given. */
    enum api_transfer transfer; /* cleave.transfer: how the KV of the prompt moves. */
    uint32_t dimensions;        /* API_EMBEDDINGS: elements of the vector; 0 = all. */
    bool base64;                /* API_EMBEDDINGS: encoding_format is "base64". */
    bool life_events;           /* cleave.events: the stream also has the events of the request. */
    bool has_cache_salt; /* As in vLLM: only requests with the same salt share cached prefixes. */
    uint8_t cache_salt_hash[SECRET_HASH_BYTES];
    char *repeated_members;  /* API_RESPONSES: members that the answer repeats (forms.h). */
    uint32_t unknown_fields; /* Number of fields that known_fields.h does not know. */

    struct api_text *texts;      /* Copies of the model's name and prompts. */
    struct api_text *stop_texts; /* Copies of the stop strings. */
};

/* Parses body[0..bytes). The caller frees *out with api_request_done. On failure returns false,
 * with a 400 (503 if there is no memory) in *error; *out then owns nothing. */
bool api_request_parse(enum api_kind kind, const char *body, size_t bytes, struct api_request *out,
                       struct api_error *error);
void api_request_done(struct api_request *request);
/* Frees the model's name, the prompts, the conversation and the logit rules: they are used only
 * until the prompts are token ids. */
void api_request_input_free(struct api_request *request);

/* Returns false, with a 400 in *error, for a constraint with ignore_eos or min_tokens. */
bool api_request_constraint_check(const struct api_request *request, struct api_error *error);

/* Parses a body, which must be a UTF-8 JSON object within LIMIT_JSON_VALUES and
 * LIMIT_JSON_CONTAINERS. Returns a new reference; NULL = failure, with *error filled. */
json_t *api_body_parse(const char *body, size_t bytes, struct api_error *error);
/* Checks the conversation in a body: `messages`, `documents`, the tools and the fields for the chat
 * template. Stores references to its values in *out. Requires that *out and *tools are all zeros.
 * The caller calls api_chat_done and frees tools->packed_names, also after a failure. Returns
 * false, with *error filled, on failure. */
bool api_chat_parse(json_t *root, struct chat_request *out, struct api_tools *tools,
                    struct api_error *error);
void api_chat_done(struct chat_request *chat);
/* Parses a list of token ids into a malloc'ed array, which is not NULL. field: the list's name in
 * errors. On failure returns false, with *error filled, and stores nothing. */
bool api_ids_parse(json_t *list, const char *field, uint32_t **ids_out, uint32_t *count_out,
                   struct api_error *error);

#endif
