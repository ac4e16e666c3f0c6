/* stage_contexts: what the sampler of the last stage reads of a request: the words of its token
 * rules, then its tokens (struct sample_context). The head sends each word once (STAGE_CONTEXT).
 * stage_jobs.c and stage_peers.c call it on the stage process's event loop thread; the engine reads
 * the words of the requests in its batch, which do not change until the batch is done. It holds at
 * most LIMIT_MACHINE_REQUESTS contexts of LIMIT_CONTEXT_WORDS words, and checks all indices. */
#ifndef MACHINE_EXECUTOR_STAGE_CONTEXTS_H
#define MACHINE_EXECUTOR_STAGE_CONTEXTS_H

#include "transport/stage_message.h"

struct stage_contexts;

/* Takes a CONTEXT message. *contexts is opened by the first one. ST_INVALID: a mistake of the head;
 * ST_NO_MEMORY. */
enum status stage_contexts_take(struct stage_contexts **contexts,
                                const struct stage_context *message, struct error *error);
/* Fills *out for a sample, and frees the context that the table has if the sample has none.
 * `contexts` may be NULL. Returns ST_INVALID if the sample's words are not here. */
enum status stage_contexts_find(struct stage_contexts *contexts, const struct stage_sample *sample,
                                struct sample_context *out, struct error *error);
void stage_contexts_close(struct stage_contexts *contexts); /* NULL is fine. */

#endif
