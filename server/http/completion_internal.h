/* completion_internal: struct completion and its choices (completion.h), and the functions that
 * completion*.c and form*.c (answers of /v1/responses and /v1/messages) share. The functions run on
 * the gateway's event loop thread; a struct completion_input is made on a text thread. The
 * functions write text into the completion's output; they send nothing. */
#ifndef SERVER_HTTP_COMPLETION_INTERNAL_H
#define SERVER_HTTP_COMPLETION_INTERNAL_H

#include "model/answer/answer_parser.h"
#include "server/http/completion.h"

/* A prompt as token ids. The completion owns the prompt; several choices can use it. */
struct token_prompt {
    uint32_t *ids;
    uint32_t count;
    bool computed; /* A machine has computed the prompt (choice_prompt_count). */
};

/* See completion.h. completion_open moves the contents to the completion. */
struct completion_input {
    struct api_request request; /* Without the texts of its prompts. */
    uint32_t prompt_count;
    struct token_prompt *prompts;
    struct token_rules_words rules;
    /* Chats: the markers with which the model writes reasoning and tool calls. */
    struct answer_format format;
    /* Chats: whether the answer begins before, inside or after the reasoning. */
    enum answer_begin begin;
};

/* How the answer has ended. */
enum choice_finish {
    CHOICE_RUNNING, /* The answer has not ended. */
    CHOICE_STOP,    /* An end token or a stop string ended the answer. */
    CHOICE_LENGTH   /* The length limit ended the answer, or no token was wanted. */
};

/* A call of a tool in an answer. */
struct choice_call {
    char id[40];
    char name[ANSWER_NAME_BYTES];
    struct text arguments; /* JSON text that has not been written to an event. */
    bool announced;        /* An event with the id and the name was written. */
};

/* One answer of a completion: one request at the gateway, if a machine is needed. */
struct choice {
    struct completion *completion;
    struct gateway_request *request; /* NULL = not submitted, ended or released. */
    const struct token_prompt *prompt;
    uint32_t index; /* `index` in the answer. */
    enum choice_finish finish;
    bool in_flight_counted;  /* The choice counts among the answers in flight of its API key. */
    bool charged;            /* The choice was charged to its API key. */
    uint32_t charged_tokens; /* Prompt tokens that were charged with the choice. */
    bool deferred;    /* Waits until the first choice of its prompt has a token or has ended. */
    bool ended;       /* No more tokens will be used. */
    bool release_due; /* The next completion_turn must release `request`. */
    bool first_event_written; /* The choice's first event was written. */
    bool left_out;            /* best_of: the body does not contain the choice. */
    double logprob_sum;       /* Sum of the log-probabilities of the tokens. */
    uint32_t stop_string;     /* Number of the stop string that ended the answer; or STOP_NONE. */
    uint32_t stop_token;      /* Id in stop_token_ids that ended the answer; or STOP_NONE. */
    uint32_t tokens;          /* Tokens generated, including the end token. */
    uint32_t cached_tokens;   /* Tokens of the prompt that were found in a prefix cache. */
    uint32_t characters;      /* Characters of all token texts so far, for text_offset. */
    struct detokenizer detokenizer;
    struct stop_matcher stops;
    struct text text; /* Content that has not been written. */
    /* Splits a chat's answer into parts; NULL = the whole answer is content. */
    struct answer_parser *parser;
    struct text reasoning;     /* Reasoning that has not been written. */
    struct choice_call *calls; /* Calls of the answer so far; always empty with a form. */
    uint32_t call_count, call_capacity;
    uint32_t reasoning_tokens; /* Tokens of the reasoning, with its markers. */
    struct text ids;           /* return_token_ids: ids that have not been written, "1,2,3". */
    /* The log-probabilities that have not been written: members of JSON lists, without brackets. */
    struct text logprob_tokens;  /* Tokens; for chats, the objects of the list `content`. */
    struct text logprob_values;  /* The tokens' log-probabilities; not for chats. */
    struct text logprob_tops;    /* The tokens' alternatives; not for chats. */
    struct text logprob_offsets; /* The tokens' text_offset; not for chats. */
    float *vector; /* Embeddings: the vector, scaled to length 1; NULL = none yet, or no memory. */
    /* Elements that the machine sent; `vector` has fewer if the body's `dimensions` is less. */
    uint32_t vector_count;
    struct text prompt_logprobs; /* Entries of the field prompt_logprobs, as in vLLM. */
};

#define STOP_NONE UINT32_MAX /* No stop string, or no stop token. */

struct event_writer;    /* State of completion_events.c. */
struct completion_form; /* See form.h. */

struct completion {
    struct completion_server *server;
    struct served_model *model; /* The model with which the completion began. */
    struct api_request request;
    uint32_t api_key_index;      /* API_KEY_NONE = none. */
    void (*changed)(void *self); /* See struct completion_start. */
    void *self;                  /* First argument of `changed`. */
    /* What the logs say about the completion; belongs to the caller of completion_open. */
    struct completion_facts *facts;
    char request_id[GATEWAY_CLIENT_ID_BYTES]; /* Id of the request (x-request-id). */
    char id[GATEWAY_CLIENT_ID_BYTES + 16];    /* Id in the answer's body. */
    int64_t created;    /* When the completion was opened, in seconds since 1970. */
    int64_t arrived_us; /* See struct completion_start. */
    uint32_t choice_count;
    struct choice *choices;
    struct token_prompt *prompts;
    uint32_t prompt_count;
    struct token_rules_words rules;    /* The body's rules about tokens (common/token_rules.h). */
    uint8_t pooling;                   /* enum pooling, for embeddings. */
    struct event_writer *event_writer; /* NULL = no events of the gateway are written. */
    struct completion_form *form;      /* NULL = neither /v1/responses nor /v1/messages. */
    struct answer_format format;       /* See struct completion_input. */
    enum answer_begin begin;           /* See struct completion_input. */
    uint32_t open_choices;             /* Number of choices that have not ended. */
    uint64_t seed; /* Seed of the first choice; choice i has the seed `seed` + i. */
    /* A choice has a token or a score or has ended, an event or a ping was written, or the
     * completion has finished. */
    bool output_begun;
    uint64_t prompt_tokens_computed;   /* Tokens of the prompts that are `computed`. */
    struct ledger_entry *ledger_entry; /* NULL = no ledger, or the entry has ended. */
    bool finished;                     /* See completion_finished. */
    struct api_error error;            /* status 0 = none. */
    struct text output;
    struct text event_head; /* Text with which each choice's event begins; empty = no event yet. */
    struct text token_text; /* Memory for the text of one token. */
    size_t read_bytes;      /* Bytes at the beginning of `output` that were sent. */
    uint64_t removed_bytes; /* Bytes that are no longer in `output`. */
};

/* --- completion.c --- */

/* Counts the choice's prompt as computed, if it was not counted before. cached_tokens: the prompt's
 * tokens that were found in a prefix cache. */
void choice_prompt_count(struct choice *choice, uint32_t cached_tokens);

/* --- completion_embeddings.c: POST /v1/embeddings --- */

/* Stores how the vectors of tokens become one embedding (enum pooling, by the config and the
 * model). Returns false, with *error, if the config or the model allows no embeddings. */
bool completion_pooling_find(const struct completion *c, uint8_t *out, struct api_error *error);
/* The callback `embedding` of struct gateway_client. self: the choice. */
void completion_on_embedding(void *self, const int64_t *sums, uint32_t count);
/* Writes the body; sets c->error instead if `dimensions` is larger than the vectors. */
void completion_write_embeddings(struct completion *c);

/* --- completion_events.c --- */

/* Opens c->event_writer, if the body has cleave.events. Returns false if there is no memory. */
bool completion_events_begin(struct completion *c);
/* Frees c->event_writer; events after this call are not written. */
void completion_events_end(struct completion *c);
/* The callback `event` of struct gateway_client: writes an SSE event, unless the completion has
 * 256 such events already. self: the choice. */
void completion_on_event(void *self, const struct gateway_event *event);

/* --- completion_parts.c: the answers of chats, split into reasoning, content and calls --- */

/* Returns true if the answers of the completion are split into parts. */
bool completion_has_parts(const struct completion *c);
/* Opens choice->parser if completion_has_parts. Returns ST_NO_MEMORY on failure. */
enum status choice_parts_open(struct choice *choice);
void choice_parts_done(struct choice *choice); /* Frees the parser, the reasoning and the calls. */
/* Adds text to the answer's content or, if there is a parser, to the parts that the parser finds.
 */
void choice_text_add(struct choice *choice, const char *text, size_t bytes);
/* Returns true if an end token or a stop string ended the answer, and the answer has calls. */
bool choice_ended_with_calls(const struct choice *choice);
/* Returns true if the text of this control token must be given to the parser. */
bool choice_needs_token(const struct choice *choice, uint32_t id);
/* Appends the JSON fields of an answer's parts. for_event true = for an event's `delta`: the
 * reasoning and the arguments of calls, but not the content, are removed from the choice. false =
 * for the body's `message`. */
void choice_write_parts(struct text *out, struct choice *choice, bool for_event);

/* Writes a new id for a call of a tool. Requires a capacity of at least 10 bytes. */
void choice_call_id(struct completion *c, char *out, size_t capacity);

/* --- form.c: the answers of /v1/responses and /v1/messages --- */

/* Opens c->form, if api_has_form. Returns false if there is no memory. */
bool completion_form_open(struct completion *c);
void completion_form_close(struct completion *c); /* No effect without a form. */

/* The other functions of form.c require c->form. */

/* Adds a piece of the answer. text: the piece; for ANSWER_PART_CALL, the tool's name. */
void completion_form_part(struct completion *c, enum answer_part part, const char *text,
                          size_t bytes);
/* Call it after pieces were added: writes events for these pieces, if the answer is streamed. When
 * the choice has finished, ends the answer's last item. */
void completion_form_step(struct completion *c);
void completion_form_end(struct completion *c);  /* Writes the events at the end of a stream. */
void completion_form_body(struct completion *c); /* Writes a whole body that is not streamed. */
/* Sets c->id from c->request_id. */
void completion_form_id(struct completion *c);

/* --- completion_write.c --- */

/* Tokens of a completion so far. A prompt counts once, for any number of choices. */
struct completion_usage {
    uint64_t prompt;    /* Tokens of all prompts. */
    uint64_t generated; /* Tokens of all answers. */
    uint64_t cached;    /* Tokens of the prompts that were found in prefix caches. */
    uint64_t reasoning; /* Tokens of the answers' reasoning. */
};
struct completion_usage completion_usage(const struct completion *c);

/* Adds the id of a token of the answer, if the request wants ids. */
void choice_add_id(struct choice *choice, uint32_t id);
/* Adds a token's log-probabilities. score: NULL = the first prompt token, which has none. */
void choice_add_logprob(struct choice *choice, uint32_t id, const struct message_token *score);
/* Adds a prompt token to the field prompt_logprobs. score: as for choice_add_logprob. */
void choice_add_prompt_logprob(struct choice *choice, uint32_t id,
                               const struct message_token *score);
/* Adds the text of the choice's prompt before the text of the answer. */
void choice_echo_prompt(struct choice *choice);
/* Writes an SSE event with what the choice has collected since its last event. With c->form, calls
 * completion_form_step instead. */
void completion_write_event(struct completion *c, struct choice *choice);
/* Writes the end of a stream: the error's event, or the usage if the request wants it; then [DONE].
 * With c->form, calls completion_form_end instead. */
void completion_write_stream_end(struct completion *c);
/* best_of: of each prompt, keeps the n choices with the highest mean log-probability, and leaves
 * out the others. The kept choices get new indices, the most likely choice first. */
void completion_choices_select(struct completion *c);
/* Writes the whole body of an answer that is not streamed. */
void completion_write_body(struct completion *c);
/* Frees the choice's texts that were collected for events or the body. */
void choice_texts_done(struct choice *choice);

#endif
