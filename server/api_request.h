/* api_request: the body of POST /v1/completions or /v1/chat/completions as a checked struct. Pure:
 * JSON text in, struct or one clear error out; no tokenizer, no cluster. Fuzzed. Null and unknown
 * fields are accepted. */
#ifndef SERVER_API_REQUEST_H
#define SERVER_API_REQUEST_H

#include "common/limits.h"
#include "model/chat.h"
#include "server/api_error.h"
#include "server/stop_strings.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum api_kind { API_COMPLETION, API_CHAT };

/* A prompt is text (not NULL) or token ids. */
struct api_prompt {
    const char *text; /* owned by the request's JSON */
    size_t bytes;
    uint32_t *ids; /* malloc'ed */
    uint32_t count;
};

enum api_transfer { API_TRANSFER_AUTO, API_TRANSFER_LAYERWISE, API_TRANSFER_ONE_PIECE };

struct api_request {
    enum api_kind kind;
    const char *model; /* NULL: not given */
    uint32_t prompt_count;
    struct api_prompt prompts[LIMIT_PROMPTS];
    bool prompt_is_list;           /* for error texts only */
    struct chat_message *messages; /* malloc'ed array */
    uint32_t message_count;

    int64_t max_tokens; /* -1: not given */
    float temperature;
    float top_p;
    float min_p;
    uint32_t top_k; /* 0: off */
    bool has_seed;
    uint64_t seed;
    uint32_t n;
    uint32_t min_tokens;
    bool ignore_eos;
    int32_t logprobs; /* -1: none; otherwise alternatives per position */
    bool echo;
    bool stream;
    bool include_usage;
    bool continuous_usage;
    bool add_special_tokens;
    bool skip_special_tokens;
    bool return_token_ids;
    bool tokens_as_ids; /* vLLM's return_tokens_as_token_ids: token texts are "token_id:N" */
    struct stop_strings stops;
    uint32_t stop_id_count;
    uint32_t stop_ids[8];
    int32_t priority; /* as in vLLM: a lower one comes earlier; 0 if not given */
    enum api_transfer transfer;

    json_t *root;  /* everything above points into it */
    char **joined; /* contents joined from text parts */
    uint32_t joined_count;
};

/* Parses body[0..bytes). False: *error says what is wrong (400) and *out owns nothing. */
bool api_request_parse(enum api_kind kind, const char *body, size_t bytes, struct api_request *out,
                       struct api_error *error);
void api_request_done(struct api_request *request);

/* Reads a JSON object; shared with the tokenise endpoints. NULL: *error is filled. */
json_t *api_body_parse(const char *body, size_t bytes, struct api_error *error);
/* `messages` of a chat or a /tokenize body into request->messages. */
bool api_messages_parse(json_t *messages, struct api_request *out, struct api_error *error);
/* A list of token ids, malloc'ed. `field` names it in errors. */
bool api_ids_parse(json_t *list, const char *field, uint32_t **ids_out, uint32_t *count_out,
                   struct api_error *error);

#endif
