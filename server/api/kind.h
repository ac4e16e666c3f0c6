/* api_kind: the kinds of API requests that machines compute; each kind has an endpoint. server/api/
 * and server/http/ use it, on any thread. The header has no state and parses nothing. */
#ifndef SERVER_API_KIND_H
#define SERVER_API_KIND_H

#include <stdbool.h>

enum api_kind {
    API_COMPLETION, /* POST /v1/completions */
    API_CHAT,       /* POST /v1/chat/completions */
    API_RESPONSES,  /* POST /v1/responses, OpenAI's newer form of chats */
    API_MESSAGES,   /* POST /v1/messages, Anthropic's form of chats */
    API_EMBEDDINGS, /* POST /v1/embeddings; generates no text */
    API_KINDS       /* The number of kinds. */
};

/* Returns true if the prompt is a conversation. */
static inline bool api_is_chat(enum api_kind kind)
{
    return kind != API_COMPLETION && kind != API_EMBEDDINGS;
}

/* Returns the name of the body's field with the prompts or the conversation. */
static inline const char *api_prompt_field(enum api_kind kind)
{
    if (kind == API_EMBEDDINGS || kind == API_RESPONSES)
        return "input";
    return api_is_chat(kind) ? "messages" : "prompt";
}

/* Returns the name of the body's field that limits the number of tokens of an answer. In bodies of
 * completions and chats, the field max_completion_tokens overrides this field. */
static inline const char *api_length_field(enum api_kind kind)
{
    return kind == API_RESPONSES ? "max_output_tokens" : "max_tokens";
}

/* Returns true if the bodies of this kind are converted to the body of a chat (forms.h). */
static inline bool api_has_form(enum api_kind kind)
{
    return kind == API_RESPONSES || kind == API_MESSAGES;
}

#endif
