/* form: writes the answers of /v1/responses and /v1/messages into a completion's output. An answer
 * of these APIs is a list of items (reasoning, text and tool calls) in the order in which the model
 * wrote them. form.c finds where items begin and end; form_responses.c and form_messages.c write
 * the JSON and the events of their API. completion*.c call form.c (see completion_internal.h) on
 * the gateway's event loop thread. The completion, which has one choice, owns its struct
 * completion_form. The part converts no bodies of requests (server/api/forms.h does). */
#ifndef SERVER_HTTP_FORM_H
#define SERVER_HTTP_FORM_H

#include "server/http/completion_internal.h"

/* Kinds of items. */
enum form_item { FORM_NONE, FORM_REASONING, FORM_TEXT, FORM_CALL };

struct form_writer;

/* The answer under construction. */
struct completion_form {
    const struct form_writer *writer;
    bool begun;                        /* The answer has begun. */
    uint64_t sequence;                 /* /v1/responses: number of the next event. */
    enum form_item item;               /* The open item; FORM_NONE = none. */
    uint32_t item_count;               /* Items so far, including the open item. */
    char item_id[40];                  /* /v1/responses: id of the open item. */
    char call_id[40];                  /* Id of the open call. */
    char tool_name[ANSWER_NAME_BYTES]; /* Name of the tool that the open call calls. */
    struct text item_text;             /* The open item's text; of a call, its arguments. */
    size_t shown_bytes;                /* Streams: first bytes of `item_text` that events have. */
    struct text logprobs;     /* FORM_TEXT: log-probability entries, separated by commas. */
    struct text closed_items; /* JSON of the items before the open one, separated by commas. */
    uint32_t call_count;      /* Number of items that are calls. */
};

/* The functions that write the answers of one API to c->output. form.c calls begin, item_more and
 * end for streams only. */
struct form_writer {
    const char *id_prefix;               /* Beginning of the answer's id. */
    void (*begin)(struct completion *c); /* Writes the events before the first item. */
    /* Begins the item c->form->item. Writes its first events, if the answer is streamed. */
    void (*item_begin)(struct completion *c);
    /* Writes an event with the bytes of item_text after shown_bytes. logprobs: the log-probability
     * entries of the tokens since the last call. */
    void (*item_more)(struct completion *c, const struct text *logprobs);
    /* Ends the open item: appends its JSON to `closed_items`. Writes its last events, if the answer
     * is streamed. was_cut: the length limit ended the answer within this item. */
    void (*item_end)(struct completion *c, bool was_cut);
    void (*end)(struct completion *c);  /* Writes the events at the end of a stream. */
    void (*body)(struct completion *c); /* Writes a whole answer that is not streamed. */
};

extern const struct form_writer form_responses_writer, form_messages_writer;

/* Appends `"NAME":"TEXT"` with a comma before it. */
void form_member_add(struct text *out, const char *name, const char *text, size_t bytes);
/* Draws a new id for an item: `prefix`, then 24 hexadecimal digits. */
void form_id_draw(struct completion *c, const char *prefix, char *out, size_t capacity);

#endif
