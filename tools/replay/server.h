/* replay_server: finds out what a replay must know about a server: the model's name, the longest
 * context, whether the server accepts token ids, and how many tokens a word is. replay.c owns the
 * result and calls the functions on the main thread. No times are measured. */
#ifndef TOOLS_REPLAY_SERVER_H
#define TOOLS_REPLAY_SERVER_H

#include "tools/replay/client.h"
#include "tools/replay/options.h"

/* How certain it is that a prompt has the wanted number of tokens. */
enum replay_exactness {
    REPLAY_EXACT_IDS,     /* The prompt is token ids. */
    REPLAY_EXACT_COUNTED, /* The server counted a text: one token per word, plus extra_tokens. */
    REPLAY_EXACT_UNKNOWN, /* The server does not count the tokens of a text. */
};

struct replay_server {
    char *model;                    /* Model name in requests; allocated. */
    uint32_t max_context;           /* Most tokens of prompt and answer; 0 = not known. */
    enum replay_prompt_kind prompt; /* REPLAY_PROMPT_IDS or REPLAY_PROMPT_TEXT. */
    uint32_t extra_tokens;          /* Tokens that the server adds to a text. */
    enum replay_exactness exactness;
};

/* Asks the server through the client with a few requests; blocks up to ten seconds for each. The
 * caller frees *server_out with replay_server_done. Prompts of the chat API are text. With --prompt
 * auto, prompts are token ids if the server accepts them; else they are text, and a warning says so
 * on standard error. ST_INVALID: the server lists no model, or --model is not UTF-8.
 * ST_UNSUPPORTED: a word is not one token. Other errors are those of replay_client_ask. */
enum status replay_server_ask(struct replay_client *client, const struct replay_options *options,
                              struct replay_server *server_out, struct error *error);
/* Frees the model's name. */
void replay_server_done(struct replay_server *server);

/* Writes the kind of prompts for the report, such as "token ids", to out[room]. chat: the replay
 * uses the chat API. */
void replay_server_describe(const struct replay_server *server, bool chat, char *out, size_t room);

#endif
