/* replay_prompt: the JSON body of a completion or chat request whose prompt has exactly so many
 * tokens. Pure: the same seed and line give the same bytes, whatever was made before. Not
 * thread-safe. */
#ifndef BENCH_REPLAY_PROMPT_H
#define BENCH_REPLAY_PROMPT_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum replay_prompt_kind {
    REPLAY_PROMPT_AUTO, /* ids where the server takes them: replay_server finds out */
    REPLAY_PROMPT_IDS,  /* an array of token ids, drawn from [id_low, id_high] */
    REPLAY_PROMPT_TEXT, /* words that are one token each in the usual vocabularies */
};

struct replay_prompt_options {
    const char *model;
    enum replay_prompt_kind kind; /* AUTO is as IDS */
    bool chat;                    /* the text is the user's message */
    uint32_t id_low;
    uint32_t id_high;
    uint32_t extra_tokens; /* what the server adds to a text (BOS, template): so many words fewer */
    uint64_t seed;
};

/* What a row of the trace asks for, fitted. */
struct replay_ask {
    uint64_t id;      /* of the row (trace.h) */
    int64_t after_us; /* when it is due, from the beginning of the replay */
    uint64_t line;    /* all that tokens are drawn from, except in blocks */
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    const int64_t *blocks; /* the same id gives the same tokens in any request */
    uint32_t block_count;  /* the tokens after the last block are of the line */
    uint32_t block_tokens; /* each; > 0 where there is a block */
};

struct replay_prompt;

enum status replay_prompt_open(const struct replay_prompt_options *options,
                               struct replay_prompt **prompt_out);
void replay_prompt_close(struct replay_prompt *prompt); /* NULL is fine. */

/* The body, to be freed by the caller. Greedy, streamed, with usage, and with ignore_eos, without
 * which the lengths of the answers would not be the trace's. ST_INVALID: a text prompt that
 * extra_tokens leave no word in. */
enum status replay_prompt_body(const struct replay_prompt *prompt, const struct replay_ask *ask,
                               char **body_out, size_t *size_out);

/* The text of `words` words for line `line`, as REPLAY_PROMPT_TEXT sends it; freed by the caller.
 */
char *replay_prompt_text(const struct replay_prompt *prompt, uint64_t line, uint32_t words);

#endif
