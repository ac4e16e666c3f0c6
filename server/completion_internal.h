/* completion_internal: the structs that completion.c (life) and completion_write.c (text) share. */
#ifndef SERVER_COMPLETION_INTERNAL_H
#define SERVER_COMPLETION_INTERNAL_H

#include "server/completion.h"

struct token_prompt {
    uint32_t *ids;
    uint32_t count;
};

enum choice_finish { CHOICE_RUNNING, CHOICE_STOP, CHOICE_LENGTH };

struct choice {
    struct completion *completion;
    struct gateway_request *request; /* NULL: not submitted, ended or released */
    const struct token_prompt *prompt;
    uint32_t index;
    enum choice_finish finish;
    bool counted;           /* in flight, for its key */
    bool ended;             /* nothing more will come of it */
    bool release;           /* a stop string ended it: release it at the next turn */
    bool opened;            /* its first event was written */
    uint32_t tokens;        /* generated, end token included */
    uint32_t cached_tokens; /* of its prompt, found on the prompt machine */
    uint32_t characters;    /* of all token texts so far: text_offset */
    struct detokenizer detokenizer;
    struct stop_matcher stops;
    /* What the next event carries; without streaming, what the body will carry. */
    struct text text;
    struct text ids; /* "1,2,3" */
    struct text
        logprob_tokens; /* completions: four lists; chat: logprob_tokens holds the objects */
    struct text logprob_values;
    struct text logprob_tops;
    struct text logprob_offsets;
};

struct completion {
    struct completion_server *server;
    struct served_model *model; /* that it began with */
    struct api_request request;
    uint32_t key; /* whose it is */
    void (*changed)(void *self);
    void *self;
    char id[40];
    int64_t created;
    int64_t arrived_us;
    uint32_t choice_count;
    struct choice *choices;
    struct token_prompt *prompts;
    uint32_t prompt_count;
    uint32_t open_choices;
    bool begun;
    bool finished;
    struct api_error error; /* status 0: none */
    struct text out;
    struct text scratch; /* the text of one token */
    size_t taken;
};

/* --- completion_write.c --- */

/* Adds a token's log-probability entry to the choice; entry NULL: the first prompt token, which has
 * none. */
void choice_add_logprob(struct choice *choice, uint32_t id, const struct message_token *entry);
/* An SSE event with what the choice has gathered since the last one. */
void completion_write_event(struct completion *c, struct choice *choice);
/* The end of a stream: usage if asked, then [DONE]; after an error its event first. */
void completion_write_stream_end(struct completion *c);
/* The whole body of an answer that is not streamed. */
void completion_write_body(struct completion *c);

#endif
