/* tokens: a small vocabulary for the tests of constraints: every byte (token = byte), pieces of
 * JSON that cross the borders of its parts, words, parts of characters. Token 256 is a control
 * token, which no constraint may produce. Constant: any thread. */
#ifndef TESTS_MODEL_GRAMMAR_TOKENS_H
#define TESTS_MODEL_GRAMMAR_TOKENS_H

#include <stddef.h>
#include <stdint.h>

uint32_t tokens_count(void);
/* A grammar_piece_of. */
const char *tokens_piece(const void *self, uint32_t id, size_t *bytes_out);

#endif
