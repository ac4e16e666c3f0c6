/* stage_contexts: the contexts of the requests that the last stage samples for: for each request,
 * the words of its token rules, then its tokens (struct sample_context). The head sends each word
 * once (STAGE_CONTEXT). stage_jobs.c and stage_peers.c call it on the stage process's event loop
 * thread; the engine reads the words of the requests in its batch, which do not change until the
 * batch is done. It holds at most LIMIT_MACHINE_REQUESTS contexts of LIMIT_CONTEXT_WORDS words, and
 * checks all indices. It does not sample. */
#ifndef MACHINE_EXECUTOR_STAGE_CONTEXTS_H
#define MACHINE_EXECUTOR_STAGE_CONTEXTS_H

#include "transport/stage_message.h"

struct stage_contexts;

/* Stores the words of a CONTEXT message. The first message opens *contexts (NULL before). Returns
 * ST_INVALID if the message is wrong, ST_NO_MEMORY. */
enum status stage_contexts_take(struct stage_contexts **contexts,
                                const struct stage_context *message, struct error *error);
/* Stores the context of a sample. If the sample has no context, frees the context of the sample's
 * table. `contexts` may be NULL. Returns ST_INVALID if the sample's words have not been
 * received. */
enum status stage_contexts_find(struct stage_contexts *contexts, const struct stage_sample *sample,
                                struct sample_context *out, struct error *error);
void stage_contexts_close(struct stage_contexts *contexts); /* NULL is fine. */

#endif
