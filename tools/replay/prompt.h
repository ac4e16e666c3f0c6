/* replay_prompt: makes the JSON body of a completion or chat request whose prompt has an exact
 * number of tokens. Equal options and requests give equal bytes. `cleave replay` and bench-streams
 * call the functions on their main threads. This part sends nothing and has no tokenizer. */
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
    REPLAY_PROMPT_TEXT, /* Frequent English words, each assumed to be one token. */
};

struct replay_prompt_options {
    const char *model;            /* Model name in the request; used only while opening. */
    enum replay_prompt_kind kind; /* REPLAY_PROMPT_AUTO is treated as REPLAY_PROMPT_IDS. */
    bool chat; /* Make chat requests, with the text as a message. Requires REPLAY_PROMPT_TEXT. */
    uint32_t id_low;       /* Smallest token id that is drawn. */
    uint32_t id_high;      /* Largest token id that is drawn. */
    uint32_t extra_tokens; /* Tokens that the server adds to a text, such as BOS. */
    uint64_t seed;         /* Seed of the tokens or words. */
};

/* One request to send. In a replay: a row of the trace, with lengths that fit the context of the
 * server. */
struct replay_request {
    uint64_t id;      /* Id of the row (trace.h). */
    int64_t after_us; /* Due time, from the beginning of the replay. */
    uint64_t line;    /* Line of the row. Tokens outside blocks depend on this line and the seed. */
    uint32_t prompt_tokens; /* Length of the prompt, with extra_tokens. */
    uint32_t output_tokens; /* Length of the answer. */
    /* [block_count]: ids of the prompt's first blocks; NULL if block_count is 0. Blocks with equal
     * ids have equal tokens, also in different requests. */
    const int64_t *blocks;
    uint32_t block_count;
    uint32_t block_tokens; /* Tokens of each block; > 0 if block_count > 0. */
};

struct replay_prompt;

/* Opens a maker of prompts; replay_prompt_close frees it. ST_INVALID: id_low > id_high, or the
 * model's name is not UTF-8. ST_NO_MEMORY: memory runs out. */
enum status replay_prompt_open(const struct replay_prompt_options *options,
                               struct replay_prompt **prompt_out);
void replay_prompt_close(struct replay_prompt *prompt); /* NULL is fine. */

/* Makes the body; the caller frees *body_out. The request is greedy and streamed, with usage and
 * with ignore_eos, so that the answer has the wanted length. ST_INVALID: a text prompt is not
 * longer than extra_tokens. ST_NO_MEMORY: memory runs out. */
enum status replay_prompt_body(const struct replay_prompt *prompt,
                               const struct replay_request *request, char **body_out,
                               size_t *size_out);

/* Returns the text of a request with this line, without blocks, of `words` words. The caller frees
 * the text. NULL = out of memory. */
char *replay_prompt_text(const struct replay_prompt *prompt, uint64_t line, uint32_t words);

#endif
