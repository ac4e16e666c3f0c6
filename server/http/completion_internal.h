/* completion_internal: the structs and functions that completion.c (tokens and ends) and
 * completion_write.c (JSON text) share. No other file includes it; callers use completion.h.
 * Everything runs on the gateway's loop thread, except completion_input_read. */
#ifndef SERVER_HTTP_COMPLETION_INTERNAL_H
#define SERVER_HTTP_COMPLETION_INTERNAL_H

#include "server/http/completion.h"

/* A prompt as token ids. It belongs to the completion; several choices can use it. */
struct token_prompt {
    uint32_t *ids;
    uint32_t count;
};

struct completion_input {
    struct api_request request; /* Without the texts of its prompts. */
    uint32_t prompt_count;
    struct token_prompt *prompts;
    struct token_rules_words rules;
};

enum choice_finish { CHOICE_RUNNING, CHOICE_STOP, CHOICE_LENGTH };

/* One answer of a completion: one request at the gateway. */
struct choice {
    struct completion *completion;
    struct gateway_request *request; /* NULL = not submitted, ended or released. */
    const struct token_prompt *prompt;
    uint32_t index;
    enum choice_finish finish;
    bool counted;       /* Counts as in flight for its API key. */
    uint32_t charged;   /* Prompt tokens that its API key gets back if it is not computed. */
    bool deferred;      /* Submitted when the first choice of its prompt has a token. */
    bool ended;         /* No more tokens will be used. */
    bool release;       /* A stop string or an error ended it: completion_turn releases it. */
    bool opened;        /* Its first event was written. */
    bool left_out;      /* best_of: the body does not have it. */
    double logprob_sum; /* best_of: of all tokens. */
    /* What ended the answer: a stop string's number, or an id of stop_token_ids; STOP_NONE = neither.
     */
    uint32_t stop_string;
    uint32_t stop_token;
    uint32_t tokens;        /* Tokens generated, including the end token. */
    uint32_t cached_tokens; /* Tokens of its prompt that were found in a prefix cache. */
    uint32_t characters;    /* Characters of all token texts so far, for text_offset. */
    struct detokenizer detokenizer;
    struct stop_matcher stops;
    /* Content of the next event; without streaming, of the body. */
    struct text text;
    struct text ids; /* "1,2,3" */
    /* For completions these four texts are lists; for chat, logprob_tokens holds the objects. */
    struct text logprob_tokens;
    struct text logprob_values;
    struct text logprob_tops;
    struct text logprob_offsets;
    struct text prompt_logprobs; /* Entries of the prompt's tokens, as in vLLM. */
};

#define STOP_NONE UINT32_MAX

struct completion {
    struct completion_server *server;
    struct served_model *model; /* The model that it began with. */
    struct api_request request;
    uint32_t key; /* API key index, or API_KEY_NONE. */
    void (*changed)(void *self);
    void *self;
    char name[GATEWAY_NAME_BYTES]; /* Id of the request (x-request-id). */
    char id[GATEWAY_NAME_BYTES + 16];
    int64_t created;
    int64_t arrived_us;
    uint32_t choice_count;
    struct choice *choices;
    struct token_prompt *prompts;
    uint32_t prompt_count;
    struct token_rules_words rules; /* Of logit_bias, allowed_token_ids and bad_words. */
    uint32_t open_choices;
    uint64_t seed; /* Of the first choice; each further one has the next number. */
    bool begun;
    bool finished;
    struct api_error error; /* status 0 = none. */
    struct text out;
    struct text scratch;    /* Text of one token. */
    size_t handed_bytes;    /* Bytes of `out` that were handed to HTTP. */
    uint64_t removed_bytes; /* Bytes that were handed to HTTP and removed from `out`. */
};

/* --- completion_write.c --- */

/* Adds a token's log-probability entry to the choice. entry NULL = the first prompt token, which
 * has none. */
void choice_add_logprob(struct choice *choice, uint32_t id, const struct message_token *entry);
/* As choice_add_logprob, for the field prompt_logprobs. */
void choice_add_prompt_logprob(struct choice *choice, uint32_t id,
                               const struct message_token *entry);
/* Writes an SSE event with what the choice has gathered since the last one. */
void completion_write_event(struct completion *c, struct choice *choice);
/* Writes the end of a stream: after an error its event, else the usage if it was asked for; then
 * [DONE]. */
void completion_write_stream_end(struct completion *c);
/* best_of: leaves out all but the n most likely choices of each prompt. The others get new indices,
 * the most likely one first. */
void completion_choices_select(struct completion *c);
/* Writes the whole body of an answer that is not streamed. */
void completion_write_body(struct completion *c);

#endif
