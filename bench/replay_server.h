/* replay_server: what must be known of a server before the first request of a replay: the model's
 * name, the longest context, whether it takes token ids, and how many tokens it makes of words. It
 * asks, at most a handful of times, and keeps nothing but the answers. */
#ifndef BENCH_REPLAY_SERVER_H
#define BENCH_REPLAY_SERVER_H

#include "bench/replay_client.h"
#include "bench/replay_options.h"

/* How sure it is that a prompt has as many tokens as the trace says. */
enum replay_exactness {
    REPLAY_EXACT_IDS,     /* the prompt is its tokens */
    REPLAY_EXACT_COUNTED, /* the server counted our words: one token each, and extra_tokens */
    REPLAY_EXACT_UNKNOWN, /* it counts nothing: usage will tell, or nobody */
};

struct replay_server {
    char *model;          /* the name that requests carry */
    uint32_t max_context; /* of prompt and answer; 0: it does not say */
    enum replay_prompt_kind prompt;
    uint32_t extra_tokens; /* what it adds to a text */
    enum replay_exactness exactness;
};

/* ST_UNREACHABLE, or what it lacks: no model, words that are several tokens, no ids where the
 * options insist on them. */
enum status replay_server_ask(struct replay_client *client, const struct replay_options *options,
                              struct replay_server *server_out, struct error *error);
void replay_server_done(struct replay_server *server);

/* "token ids", "text, counted by the server: …": for the report. */
void replay_server_describe(const struct replay_server *server, bool chat, char *out, size_t room);

#endif
