/* replay_prompt: makes the JSON body of a completion or chat request whose prompt has an exact
 * number of tokens. The same options and request give the same bytes, independent of earlier calls.
 * `cleave replay` and bench-streams call it, each on its main thread. It sends nothing and has no
 * tokenizer: server.c finds out how many tokens a word is for the server. */
#ifndef TOOLS_REPLAY_PROMPT_H
#define TOOLS_REPLAY_PROMPT_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum replay_prompt_kind {
    /* Ids if the server accepts them, otherwise text: replay_server_ask decides. */
    REPLAY_PROMPT_AUTO,
    REPLAY_PROMPT_IDS,  /* An array of token ids, drawn from [id_low, id_high]. */
    REPLAY_PROMPT_TEXT, /* Words that are one token each in the usual vocabularies. */
};

struct replay_prompt_options {
    const char *model;            /* Model name in the request; must outlive the opening only. */
    enum replay_prompt_kind kind; /* REPLAY_PROMPT_AUTO is treated as REPLAY_PROMPT_IDS. */
    /* True: a chat request, whose user message is the text. Used with REPLAY_PROMPT_TEXT only. */
    bool chat;
    uint32_t id_low;  /* Smallest token id that is drawn. */
    uint32_t id_high; /* Largest token id that is drawn. */
    /* Tokens that the server adds to a text (BOS, template). The text has this many words fewer. */
    uint32_t extra_tokens;
    uint64_t seed; /* Seed of the tokens or words. */
};

/* One request to send. In a replay: a row of the trace, with lengths that fit the context of the
 * server. */
struct replay_request {
    uint64_t id;      /* Id of the row (trace.h). */
    int64_t after_us; /* Due time, from the beginning of the replay. */
    uint64_t line;    /* Line of the row: determines, with the seed, the tokens outside blocks. */
    uint32_t prompt_tokens; /* Length of the prompt; of a text: with extra_tokens. */
    uint32_t output_tokens; /* Length of the answer. */
    /* [block_count]: ids of the prompt's first blocks; NULL if block_count is 0. Blocks with equal
     * ids have equal tokens, also in different requests. */
    const int64_t *blocks;
    /* Number of blocks. The tokens after the blocks depend on the seed and on `line`. */
    uint32_t block_count;
    uint32_t block_tokens; /* Tokens of each block; > 0 if there is a block. */
};

struct replay_prompt;

/* Opens a maker of prompts; replay_prompt_close frees it. ST_INVALID: id_low > id_high, or the
 * model's name is not UTF-8. ST_NO_MEMORY: memory runs out. */
enum status replay_prompt_open(const struct replay_prompt_options *options,
                               struct replay_prompt **prompt_out);
void replay_prompt_close(struct replay_prompt *prompt); /* NULL is fine. */

/* Makes the body; the caller frees it. Requests are greedy and streamed, with usage and with
 * ignore_eos, so that answers have the trace's lengths. ST_INVALID: a text prompt would have no
 * word after subtracting extra_tokens. ST_NO_MEMORY: memory runs out. */
enum status replay_prompt_body(const struct replay_prompt *prompt,
                               const struct replay_request *request, char **body_out,
                               size_t *size_out);

/* Returns the text that REPLAY_PROMPT_TEXT sends for a request of `words` words, of line `line`,
 * without blocks. The caller frees it. NULL = out of memory. */
char *replay_prompt_text(const struct replay_prompt *prompt, uint64_t line, uint32_t words);

#endif
