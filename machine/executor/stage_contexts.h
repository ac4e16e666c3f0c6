/* stage_contexts: what the sampler on the last stage of a pipeline must know of each request. For
 * each request this part owns an array of 32-bit words: the request's token rules, then its tokens
 * (struct sample_context). The head sends words in messages CONTEXT: only words that are new, or
 * that were drafted tokens. The files of the stage process (stage_*.c) make every call, on the
 * event loop thread of this process. The engine's thread reads the words of the requests in its
 * batch, which do not change until the batch is done. There are at most LIMIT_MACHINE_REQUESTS
 * contexts. This part checks counts of words; stage_message.c has checked `table`, the number that
 * stands for a request. This part does not sample. */
#ifndef MACHINE_EXECUTOR_STAGE_CONTEXTS_H
#define MACHINE_EXECUTOR_STAGE_CONTEXTS_H

#include "transport/stage_message.h"

struct stage_contexts;

/* Stores the new words of a CONTEXT message after its known words, and forgets all later words of
 * the request. The first message opens *contexts (NULL before). Returns ST_INVALID if the known
 * words are not here, or ST_NO_MEMORY. */
enum status stage_contexts_add(struct stage_contexts **contexts,
                               const struct stage_context *message, struct error *error);
/* Writes to *out pointers to the words of a sample's request. For a sample without words, *out is
 * empty, and the request's words are freed. `contexts` may be NULL. Returns ST_INVALID if words are
 * missing, or if counts or rules are wrong. */
enum status stage_contexts_words(struct stage_contexts *contexts, const struct stage_sample *sample,
                                 struct sample_context *out, struct error *error);
void stage_contexts_close(struct stage_contexts *contexts); /* NULL is fine. */

#endif
