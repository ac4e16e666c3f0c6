/* completion: one API request, from its body to its answer. A completion owns the parsed body, its
 * prompts as tokens, and the output that the client has not read. A body can ask for several
 * answers, the *choices*; the completion submits a gateway request for each choice that needs a
 * machine. The completion converts tokens to text, and writes server-sent events (SSE) or the JSON
 * body. server/http/ calls completion_input_read on a text thread (text_jobs.h), and the other
 * functions on the gateway's event loop thread. A completion knows HTTP status codes, but no
 * connections and headers, and of machines only their names. */
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

/* The state that all completions of a server share. It must outlive the completions. */
struct completion_server {
    struct gateway *gateway;
    struct served_model *model; /* The model for new requests. */
    struct api_keys *keys;
    const struct config *config;
    struct ledger *ledger;                  /* NULL = none. */
    uint8_t id_secret[SECRET_HASH_BYTES];   /* Ids are made with this secret. */
    uint8_t seed_secret[SECRET_HASH_BYTES]; /* Seeds are made with this secret. */
    uint64_t id_counter;                    /* Number of ids drawn. */
};

/* Stores 128 bits for an id that cannot be guessed. */
void completion_id_draw(struct completion_server *server, uint64_t out[2]);

/* Returns the settings that convert the texts of requests for this model to tokens. Leaves
 * context_tokens 0. */
struct api_encode completion_encode_options(const struct completion_server *server,
                                            const struct served_model *model);

struct completion;

/* A parsed and checked request with its prompts as tokens. */
struct completion_input;

/* Parses and checks a body, and converts its prompts to tokens of the model. Any thread may call
 * the function. Returns NULL, with *error filled, on failure. */
struct completion_input *completion_input_read(const struct api_encode *encode,
                                               const struct served_model *model, enum api_kind kind,
                                               const char *body, size_t bytes,
                                               struct api_error *error);
void completion_input_free(struct completion_input *input); /* NULL is fine. */
/* Returns the number of fields of the body that server/api/known_fields.h does not know. */
uint32_t completion_input_unknown_fields(const struct completion_input *input);

/* What logs say about a completion. The struct is complete when completion_close has returned or
 * completion_open has failed. The caller sets the struct to zeros before completion_open. */
struct completion_facts {
    char answer_id[GATEWAY_CLIENT_ID_BYTES + 16]; /* Id in the answer's body. */
    char model[64];                               /* Name of the model, or of its adapter. */
    bool is_adapter;
    bool streams;
    uint32_t choices; /* Number of choices, including the choices that best_of leaves out. */
    /* As in the answer's field `usage`. If the completion did not succeed, prompt_tokens counts
     * only the prompts that a machine has computed. */
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
    /* "stop", "length", "tool_calls", "error", or "left" = the client left before the end, or
     * completion_open failed. NULL = completion_open was not called, or had no memory. */
    const char *finish;
    /* Message of the error that ended the completion after completion_open; empty = none. */
    char error[128];
    bool summarised;                     /* `last_summary` is set. */
    struct gateway_summary last_summary; /* Summary of the gateway request that ended last. */
    uint32_t resumed;                    /* Sum of the resumptions of all choices. */
};

/* How to open a completion. */
struct completion_start {
    struct served_model *model;     /* The model for which the input was read. */
    struct completion_input *input; /* completion_open takes it over, also on failure. */
    const char *request_id;         /* Id of the request, a part of the answer's id; copied. */
    uint32_t api_key_index;         /* API_KEY_NONE = none. */
    int64_t arrived_us;             /* When the last byte of the request arrived. */
    struct completion_facts *facts; /* Receives the facts; must outlive the completion. */
    /* Called when there is new output or completion_turn has work, and perhaps at other times. Not
     * called during completion_open. Must not close the completion. */
    void (*changed)(void *self);
    void *self; /* First argument of `changed`. */
};

/* Opens a completion and submits its gateway requests. Returns false, with *error, on failure. */
bool completion_open(struct completion_server *server, const struct completion_start *start,
                     struct completion **out, struct api_error *error);

/* Releases the gateway requests, completes the facts and the ledger's entry, and frees the
 * completion. NULL is fine. */
void completion_close(struct completion *c);

/* Ends the completion with a 401 (revoked API key). No effect if the completion has finished. */
void completion_revoke(struct completion *c);

/* Releases the gateway requests of choices that a stop string or an error has ended. Submits
 * choices that waited until their prompt was computed for another choice. Call it after `changed`
 * has returned, in the same iteration of the event loop. */
void completion_turn(struct completion *c);

/* Adds a comment of SSE (": ping") to the output of a stream, which begins the stream. No effect on
 * a completion that has finished. */
void completion_ping_write(struct completion *c);

bool completion_is_stream(const struct completion *c);
/* Returns true when the HTTP status is known: when the stream has begun or the completion has
 * finished. */
bool completion_status_known(const struct completion *c);
/* Returns the error that must be sent as the response; NULL = the HTTP status is 200. If a stream
 * has begun, its error is an event of the output. Requires completion_status_known, and that no
 * output was removed. */
const struct api_error *completion_error(const struct completion *c);
/* Returns true when no more output will be added. */
bool completion_finished(const struct completion *c);
/* Returns the output that was not removed yet: events of a stream, or the body of a finished
 * completion. NULL = there was no output yet. */
const char *completion_output(const struct completion *c, size_t *bytes_out);
/* Removes the first `bytes` bytes of the output, which have been sent. */
void completion_output_remove(struct completion *c, size_t bytes);
/* Returns the number of bytes of all output so far, including removed bytes. */
uint64_t completion_output_bytes(const struct completion *c);
/* Takes the whole body of an answer that is not streamed. Requires that the completion has finished
 * without an error. The caller frees the body (text_done). */
struct text completion_body_take(struct completion *c);

#endif
