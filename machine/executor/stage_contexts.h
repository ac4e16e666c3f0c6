/* stage_contexts: what the sampler on the last stage of a pipeline must know about requests. For a
 * request this part owns an array of 32-bit words: the request's token rules, then its tokens
 * (struct sample_context). The head sends new words in messages CONTEXT. stage_*.c call the
 * functions on the event loop thread of the stage process. The engine's thread reads the words of
 * the requests in its batch; the head changes these words after the batch is done. Messages name a
 * request by the index stage_context.table or stage_sample.table. stage_message.c has checked that
 * index; this part checks the counts of words. This part does not sample. */
#ifndef MACHINE_EXECUTOR_STAGE_CONTEXTS_H
#define MACHINE_EXECUTOR_STAGE_CONTEXTS_H

#include "transport/stage_message.h"

struct stage_contexts;

/* Keeps the first message->known_words words that this part has of the request, drops the words
 * after them, and appends the message's new words. Opens *contexts if *contexts is NULL. Returns
 * ST_INVALID if this part has fewer than message->known_words words of the request, or
 * ST_NO_MEMORY. */
enum status stage_contexts_add(struct stage_contexts **contexts,
                               const struct stage_context *message, struct error *error);
/* Stores pointers to the words of a sample's request. If sample->word_count is 0, the sampler needs
 * no context: *out is empty, and words kept from earlier messages for this request are freed.
 * `contexts` may be NULL. Returns ST_INVALID if words are missing, or if counts or rules are
 * wrong. */
enum status stage_contexts_words(struct stage_contexts *contexts, const struct stage_sample *sample,
                                 struct sample_context *out, struct error *error);
void stage_contexts_close(struct stage_contexts *contexts); /* NULL is fine. */

#endif
