/* completion: one API request in flight. Its input is a parsed body whose prompts are tokens, which
 * a text thread makes (completion_input_read). On the gateway's loop thread, it submits one gateway
 * request per choice, turns tokens into text (detokenising, stop strings, log-probabilities), and
 * builds the SSE events or the JSON body. It does not know HTTP, and chooses no machines.
 * text_work.c reads the input; exchange.c opens the completion; answer.c and http.c take the output
 * and send it. */
#ifndef SERVER_HTTP_COMPLETION_H
#define SERVER_HTTP_COMPLETION_H

#include "common/secret.h"
#include "common/text.h"
#include "config/config.h"
#include "server/api/encode.h"
#include "server/api/keys.h"
#include "server/api/request.h"
#include "server/api/served_model.h"
#include "server/gateway/gateway.h"

#include <stdbool.h>

/* What the completions of one server share; outlives them. */
struct completion_server {
    struct gateway *gateway;
    struct served_model *model; /* Model of completions opened after this was set. */
    struct api_keys *keys;
    const struct config *config;
    /* Two secrets, so that an id, which clients see, tells nothing about a seed. */
    uint8_t id_secret[SECRET_HASH_BYTES];
    uint8_t seed_secret[SECRET_HASH_BYTES];
    uint64_t id_counter; /* Ids made. */
};

/* Draws 128 bits that cannot be guessed, for an id; the same bits are never drawn twice. */
void completion_id_draw(struct completion_server *server, uint64_t out[2]);

/* How the texts of requests for a model are encoded, by the config. */
struct api_encode completion_encode(const struct completion_server *server,
                                    const struct served_model *model);

struct completion;

/* A parsed and checked request with its prompts as tokens. */
struct completion_input;

/* Parses a body and makes tokens of its prompts, for the model with this name. 8 MiB can take
 * seconds. Any thread may call it. Returns NULL with the HTTP error in *error. */
struct completion_input *completion_input_read(const struct api_encode *encode,
                                               const struct served_model *model, enum api_kind kind,
                                               const char *body, size_t bytes,
                                               struct api_error *error);
void completion_input_free(struct completion_input *input); /* NULL is fine. */
/* Returns how many fields of the body neither cleave nor its peers know. */
uint32_t completion_input_unknown_fields(const struct completion_input *input);

/* Opens a completion at `model`, for which the input was read. Takes over `input`. name: the id of the
 * request, for logs; is_given: the client chose it, so that it is part of the answer's id. key:
 * API_KEY_NONE = none. arrived_us: when the last byte of the request arrived. `changed` is called (from gateway
 * calls) when there is something new to send or the completion has finished. Returns false with the
 * HTTP error in *error; nothing is left submitted. */
bool completion_open(struct completion_server *server, struct served_model *model,
                     struct completion_input *input, const char *name, bool is_given, uint32_t key,
                     int64_t arrived_us, void (*changed)(void *self), void *self,
                     struct completion **out, struct api_error *error);

/* Cancels what still runs at the gateway (the client has gone) and frees the completion. NULL is
 * fine. */
void completion_close(struct completion *c);

/* Ends the completion with an error: its API key was revoked. Calls `changed`. */
void completion_revoke(struct completion *c);

/* Ends choices at the gateway that a stop string has ended, and submits further choices of a prompt
 * that is computed. Call once per loop iteration after `changed`. */
void completion_turn(struct completion *c);

/* Writes a comment (": ping") into a stream that has not finished, which begins the stream. */
void completion_ping(struct completion *c);

bool completion_is_stream(const struct completion *c);
/* True when the HTTP status is known: for a stream at the first token or comment, the end or an
 * error; otherwise at the end or an error. */
bool completion_begun(const struct completion *c);
/* The error that occurred before anything was sent; NULL = status 200. */
const struct api_error *completion_error(const struct completion *c);
/* True when nothing more will be added to the output. */
bool completion_finished(const struct completion *c);
/* The output that was not taken yet: a stream's events so far, or the body, which appears when the
 * completion has finished. NULL if there has never been any. The caller removes bytes from the front
 * with completion_taken. */
const char *completion_output(const struct completion *c, size_t *bytes_out);
void completion_taken(struct completion *c, size_t bytes);
/* Bytes of all output so far, taken or not. */
uint64_t completion_written(const struct completion *c);
/* Takes the whole body of an answer that is not streamed. The caller frees it. */
struct text completion_body_take(struct completion *c);

#endif
