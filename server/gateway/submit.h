/* gateway_submit: the struct of a request that is submitted to the gateway, and the functions
 * through which the gateway reports the request's tokens, events and end. Here a *client* is the
 * part of this process that submits the request: server/http/, for each answer that an HTTP client
 * wants. The gateway calls the functions on its event loop thread. This header has no state;
 * gateway_submit and gateway_release are in gateway.h. */
#ifndef SERVER_GATEWAY_SUBMIT_H
#define SERVER_GATEWAY_SUBMIT_H

#include "transport/message.h"

#include <stdbool.h>
#include <stdint.h>

/* Maximum number of models served at a time: one, or two during a model update. */
#define GATEWAY_VERSIONS 2
/* Size of the id of an HTTP request (x-request-id), with its NUL. */
#define GATEWAY_CLIENT_ID_BYTES 129
#define GATEWAY_CURRENT         0 /* Version number that means: the version of new requests. */

/* How a request ends. In parentheses: the HTTP status, if the answer has not begun. */
enum gateway_end {
    GATEWAY_DONE,   /* The client has everything that the request asked for. */
    GATEWAY_FAILED, /* The request could not be completed (503). */
    /* The request is the likely cause of crashes (blame.h). The client must not retry it (500). */
    GATEWAY_BLAMED,
    /* The request ended without a result. retry_after_s > 0: too many requests wait, or the wait is
     * too long (429). 0: the cluster cannot serve the request at all (400). */
    GATEWAY_REFUSED,
};

/* Events of a request other than its tokens. */
enum gateway_event_kind {
    GATEWAY_EVENT_QUEUED,      /* The request waits in the scheduler. */
    GATEWAY_EVENT_ROUTED,      /* The scheduler has chosen the request's machines. */
    GATEWAY_EVENT_PREFILLING,  /* The prompt was sent to the prompt machine. */
    GATEWAY_EVENT_FIRST_TOKEN, /* The first token of this generation has arrived. */
    GATEWAY_EVENT_TRANSFERRED, /* The prompt's KV is on the token machine. */
    GATEWAY_EVENT_RESUMING,    /* The request will be scheduled again (enum gateway_resume). */
    GATEWAY_EVENT_KINDS
};

/* Returns the name of an event for clients and operators. */
static inline const char *gateway_event_name(enum gateway_event_kind kind)
{
    static const char *const names[GATEWAY_EVENT_KINDS] = {
        "queued", "routed", "prefilling", "first_token", "transferred", "resuming"};
    return names[kind];
}

/* Why a request is scheduled again. */
enum gateway_resume {
    GATEWAY_RESUME_FAILED,     /* A cause not named below, such as the loss of a machine. */
    GATEWAY_RESUME_PREEMPTED,  /* The token machine gave the request's blocks to others. */
    GATEWAY_RESUME_HANDED_OVER /* The token machine drains. */
};

/* Returns the name of a reason for clients and operators. */
static inline const char *gateway_resume_name(enum gateway_resume resume)
{
    static const char *const names[] = {[GATEWAY_RESUME_FAILED] = "lost",
                                        [GATEWAY_RESUME_PREEMPTED] = "preempted",
                                        [GATEWAY_RESUME_HANDED_OVER] = "handed over"};
    return names[resume];
}

/* An event. The struct and its pointers are valid during the call of gateway_client.event. */
struct gateway_event {
    enum gateway_event_kind kind;
    uint32_t after_us;                        /* Time since the arrival of the request. */
    uint32_t generation;                      /* Number of resumptions so far. */
    uint32_t delivered;                       /* Tokens of the answer that the client has. */
    const char *prompt_machine;               /* Name; NULL = none at the moment. */
    const char *token_machine;                /* Name; NULL = none at the moment, or none needed. */
    enum gateway_resume resume_reason;        /* Only RESUMING: the reason. */
    const struct message_token *token;        /* Only FIRST_TOKEN: the token. */
    const struct message_prefilled *transfer; /* Only TRANSFERRED: times and bytes. */
};

/* The outcome of a request, and the duration of its parts. */
struct gateway_summary {
    uint64_t id;          /* The request's id on machines. */
    uint32_t resumed;     /* Number of resumptions. */
    uint32_t preemptions; /* Preemptions after the token machine had generated tokens. */
    /* The machines of the latest generation that was routed; empty = never routed. */
    char prompt_machine[LIMIT_NAME_BYTES];
    char token_machine[LIMIT_NAME_BYTES]; /* Empty also if no token machine was needed. */
    int64_t first_us; /* When the first token was delivered, by the gateway's clock; -1 = never. */
    /* The sum of the fields below is the time from the request's arrival to its latest token. If
     * the request had no token, or was being resumed when it ended, the sum ends at the request's
     * end. */
    int64_t queue_us;   /* From arrival until the prompt's first batch, without `reserve_us`. */
    int64_t reserve_us; /* Wait for KV memory of the token machine. */
    /* From the prompt's first batch until the first token. If there was no token: from the sending
     * of PREFILL until the request's end. */
    int64_t prompt_us;
    /* From the first token until the token machine had all KV; in generation 0 only. */
    int64_t transfer_us;
    int64_t resume_us; /* Pauses by resumptions after the first token. */
    int64_t decode_us; /* The rest of the sum: the token machine generated the answer. */
};

/* Functions of the client. gateway_turn calls `token` and `embedding`; gateway_turn and
 * gateway_close call `ended`. These three may submit and release requests. Functions of gateway.h
 * except gateway_submit can call `event` and `summarise`, which must not release a request. */
struct gateway_client {
    /* Receives the next token of the answer (index 0, 1, …), or the score of a prompt position
     * (token->scored). */
    void (*token)(void *self, const struct message_token *token);
    /* Receives the embedding, not scaled: the vector of the last token (POOLING_LAST) or the sum of
     * all tokens' vectors (POOLING_MEAN), as fixed-point numbers (POOLING_ONE, common/pooling.h).
     * count: elements of the vector. NULL = no embedding is wanted. */
    void (*embedding)(void *self, const int64_t *sums, uint32_t count);
    /* Receives the request's events; NULL = not wanted. FIRST_TOKEN precedes its token. */
    void (*event)(void *self, const struct gateway_event *event);
    /* Reports the request's end, before `ended` or during gateway_release; NULL = not wanted. Not
     * called if the request has ended already when gateway_submit returns. */
    void (*summarise)(void *self, const struct gateway_summary *summary);
    /* The last call for this request, which is already freed. Not called after gateway_release.
     * reason: "" = none. retry_after_s: see GATEWAY_REFUSED. */
    void (*ended)(void *self, enum gateway_end end, const char *reason, uint32_t retry_after_s);
    void *self; /* First argument of the functions. */
};

/* A request to submit. gateway_submit copies everything except `constraint`. */
struct gateway_submit {
    uint32_t version;            /* Number of an open version, or GATEWAY_CURRENT. */
    const char *client_id;       /* Id of the HTTP request (x-request-id), for logs. NULL = none. */
    const char *answer_id;       /* For the history (history.h). NULL = unknown. */
    const char *key_name;        /* Name of the API key, for the history. NULL = unknown. */
    const char *model_name;      /* For the history. NULL = unknown. */
    const uint32_t *prompt;      /* Token ids. */
    uint32_t prompt_count;       /* ≥ 1 */
    struct sampling sampling;    /* output_tokens_max 0 = no answer is wanted. */
    const uint32_t *token_rules; /* Rules in the form of common/token_rules.h. */
    uint32_t token_rule_words;   /* Elements of `token_rules`; 0 = no rules. */
    /* The answer's constraint (model/grammar/grammar.h), which must compile. The text must stay
     * valid until `ended` or gateway_release. NULL = none. */
    const char *constraint;
    uint32_t constraint_bytes;
    bool score_prompt;     /* Scores of the prompt's tokens, from the second on, are wanted. */
    uint8_t pooling;       /* enum pooling; POOLING_NONE = no embedding is wanted. */
    uint8_t transfer_mode; /* enum message_transfer_mode. */
    uint32_t key;          /* Index of the API key; API_KEY_NONE = none. */
    uint64_t key_hash;     /* api_key_name_hash of the key's name; 0 = no key. */
    uint64_t prefix_salt;  /* Only requests with equal salts share cached prefixes; 0 = no salt. */
    uint32_t weight;       /* Weight of the key against other keys; 0 counts as 1. */
    int32_t priority;      /* Lower is more urgent. */
    int64_t arrived_us;    /* Arrival by the gateway's clock, the start of TTFT; 0 = now. */
    struct gateway_client client;
};

/* Why a client releases a request. */
enum gateway_release {
    GATEWAY_STOPPED,    /* A stop string was found: the answer is complete. */
    GATEWAY_CLIENT_GONE /* Any other reason: the client does not want the rest of the answer. */
};

#endif
