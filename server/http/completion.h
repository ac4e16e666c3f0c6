/* completion: one API request in flight. Its input is a parsed body with its prompts as tokens,
 * which text_work.c makes on a text thread (completion_input_read). All other functions run on the
 * gateway's event loop thread: exchange.c opens the completion; answer.c and http.c send its
 * output, and pings.c writes pings into it. A completion submits one gateway request for each
 * choice, converts tokens to text (detokenising, stop strings, log-probabilities), and writes the
 * SSE events or the JSON body. It does not know HTTP, and chooses no machines. */
#ifndef SERVER_HTTP_COMPLETION_H
#define SERVER_HTTP_COMPLETION_H

#include "common/secret.h"
#include "common/text.h"
#include "config/config.h"
#include "events/ledger.h"
#include "server/api/encode.h"
#include "server/api/keys.h"
#include "server/api/request.h"
#include "server/api/served_model.h"
#include "server/gateway/gateway.h"

#include <stdbool.h>

/* The state that all completions of a server share. It must outlive them. */
struct completion_server {
    struct gateway *gateway;
    struct served_model *model; /* Model of the completions that are opened from now on. */
    struct api_keys *keys;
    const struct config *config;
    struct ledger *ledger; /* NULL = none. */
    /* Two different secrets, so that an id, which clients see, does not reveal a seed. */
    uint8_t id_secret[SECRET_HASH_BYTES];
    uint8_t seed_secret[SECRET_HASH_BYTES];
    uint64_t id_counter; /* Number of ids drawn. */
};

/* Draws 128 bits for an id. They cannot be guessed, and the same bits are never drawn twice. */
void completion_id_draw(struct completion_server *server, uint64_t out[2]);

/* Returns how texts of requests for this model are encoded, as the config and the model say. */
struct api_encode completion_encode(const struct completion_server *server,
                                    const struct served_model *model);

struct completion;

/* A parsed and checked request with its prompts as tokens. */
struct completion_input;

/* Parses a body and converts its prompts to tokens, for the model with this name. 8 MiB can take
 * seconds. Any thread may call it. Returns NULL, with the HTTP error in *error, on failure. */
struct completion_input *completion_input_read(const struct api_encode *encode,
                                               const struct served_model *model, enum api_kind kind,
                                               const char *body, size_t bytes,
                                               struct api_error *error);
void completion_input_free(struct completion_input *input); /* NULL is fine. */
/* Returns the number of fields of the body that neither cleave nor its peers (OpenAI, vLLM,
 * llama-server) know. */
uint32_t completion_input_unknown_fields(const struct completion_input *input);

/* What logs say about a completion. It is complete when completion_close has returned. */
struct completion_facts {
    char answer_id[GATEWAY_NAME_BYTES + 16]; /* Id in the answer's body; empty = never opened. */
    char model[64];                          /* Name of the model, or of its adapter. */
    bool is_adapter;
    bool streams;
    uint32_t choices; /* Answers: one request at the gateway each. */
    /* As in the answer's `usage`, but without prompts that no machine has computed. */
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
    const char *finish;          /* A constant: "stop", "length", "tool_calls", "error", "left". */
    char error[128];             /* Message of the error that ended it; empty = none. */
    bool summarised;             /* `last` is known. */
    struct gateway_summary last; /* Of the choice that ended last. */
    uint32_t resumed;            /* Resumptions of all choices. */
};

/* How to open a completion. */
struct completion_start {
    struct served_model *model;     /* The model for which the input was read. */
    struct completion_input *input; /* completion_open takes it over. */
    const char *request_id;         /* Id of the request, a part of the answer's id; copied. */
    uint32_t key;                   /* API_KEY_NONE = none. */
    int64_t arrived_us;             /* When the last byte of the request arrived. */
    /* Receives what logs say. Not owned; must outlive the completion. */
    struct completion_facts *facts;
    /* Called (from inside calls of the gateway) when there is new output, or when the completion
     * has finished. */
    void (*changed)(void *self);
    void *self; /* First argument of the function. */
};

/* Opens a completion and submits its requests. Returns false, with the HTTP error in *error and no
 * request submitted, on failure. */
bool completion_open(struct completion_server *server, const struct completion_start *start,
                     struct completion **out, struct api_error *error);

/* Releases the gateway requests that still run, because the client has gone, and frees the
 * completion. NULL is fine. */
void completion_close(struct completion *c);

/* Ends the completion with an error, because its API key was revoked. Calls `changed`. */
void completion_revoke(struct completion *c);

/* Releases the gateway requests of choices that a stop string has ended. Submits the further
 * choices of prompts whose first choice has a token or has ended. Call it in the iteration in which
 * `changed` was called. */
void completion_turn(struct completion *c);

/* Writes a comment (": ping") into a stream that has not finished, which begins the stream. */
void completion_ping_write(struct completion *c);

bool completion_is_stream(const struct completion *c);
/* Returns true when the HTTP status is known: for a stream at the first token or comment, the end
 * or an error; otherwise at the end or an error. */
bool completion_status_known(const struct completion *c);
/* Returns the error that occurred before any output was sent; NULL = the HTTP status is 200. */
const struct api_error *completion_error(const struct completion *c);
/* Returns true when no more output will be added. */
bool completion_finished(const struct completion *c);
/* Returns the output that was not removed yet: of a stream, its events so far; otherwise the body,
 * once the completion has finished. NULL = there was no output yet. The caller removes bytes from
 * the front with completion_output_remove. */
const char *completion_output(const struct completion *c, size_t *bytes_out);
void completion_output_remove(struct completion *c, size_t bytes);
/* Returns the bytes of all output so far, taken or not. */
uint64_t completion_output_bytes(const struct completion *c);
/* Returns the whole body of an answer that is not streamed. The caller frees it. */
struct text completion_body_take(struct completion *c);

#endif
