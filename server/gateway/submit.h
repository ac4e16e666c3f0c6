/* gateway_submit: what a client of the gateway submits, and how its request ends. A client is a
 * part of this process, not an HTTP client: server/http/completion.c fills the struct for each
 * choice that an HTTP client wants. Types only; the calls are in gateway.h. The callbacks of struct
 * gateway_client run on the gateway's loop thread. */
#ifndef SERVER_GATEWAY_SUBMIT_H
#define SERVER_GATEWAY_SUBMIT_H

#include "transport/message.h"

#include <stdbool.h>
#include <stdint.h>

/* Most models that are served at a time: one, and a second one during an update. */
#define GATEWAY_VERSIONS 2
/* A client's id of a request (x-request-id) with its NUL. */
#define GATEWAY_NAME_BYTES 129
#define GATEWAY_CURRENT    0 /* As a version number: the version that new requests get. */

enum gateway_end {
    GATEWAY_DONE, /* An end token or the length limit was reached, or all scores are complete. */
    /* The request could not be completed; the text says why. The client gets a 503 or an error
     * event. */
    GATEWAY_FAILED,
    /* Nothing ran: the queue is full (retry_after_s > 0: 429), or the request can never fit (0:
     * 400). */
    GATEWAY_REFUSED,
};

struct gateway_client {
    /* Receives the next token of the answer (index 0, 1, …), or the score of a prompt position
     * (token->scored). */
    void (*token)(void *self, const struct message_token *token);
    /* Last call for this request, whose handle becomes invalid. Never called from inside
     * gateway_submit, nor after gateway_release. */
    void (*ended)(void *self, enum gateway_end end, const char *text, uint32_t retry_after_s);
    void *self;
};

struct gateway_submit {
    /* Version whose tokenizer made the prompt, or GATEWAY_CURRENT. */
    uint32_t version;
    const char *name;         /* The client's id of the request, for logs; copied. NULL = none. */
    const uint32_t *prompt;   /* Copied. */
    uint32_t prompt_count;    /* ≥ 1 */
    struct sampling sampling; /* output_tokens_max 0 = only score the prompt. */
    const uint32_t *rules;    /* Words of common/token_rules.h; copied. */
    uint32_t rule_count;
    /* The answer's constraint (model/grammar/grammar.h), which the gateway has compiled to check it.
     * Not copied: valid until `ended` or gateway_release. NULL = none. */
    const char *constraint;
    uint32_t constraint_bytes;
    bool score_prompt;
    uint8_t kv_path;   /* enum message_kv_path */
    uint32_t key;      /* API key index: requests of one key share its weight. */
    uint64_t key_hash; /* Hash of the key's name, the same at every gateway; 0 = no key. */
    /* Requests with different salts share nothing in prefix caches; 0 = no salt. */
    uint64_t prefix_salt;
    uint32_t weight;    /* Weight against other keys; 0 counts as 1. */
    int32_t priority;   /* Lower is more urgent. */
    int64_t arrived_us; /* When the client's bytes had arrived (TTFT counts from here); 0 = now. */
    struct gateway_client client;
};

enum gateway_release {
    GATEWAY_STOPPED /* a stop string was found: the request is done */,
    GATEWAY_CLIENT_GONE
};

#endif
