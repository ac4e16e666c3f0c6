/* tokens: a small vocabulary for the tests of model/grammar. It has a token for every byte (id =
 * byte), pieces of JSON that cross the borders of JSON's tokens, words, and parts of UTF-8
 * characters. Token 256 is the control token <|c|>. It is constant, so any thread may call. It
 * tokenises no text. */
#ifndef TESTS_MODEL_GRAMMAR_TOKENS_H
#define TESTS_MODEL_GRAMMAR_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t tokens_count(void);
/* A grammar_piece_of. */
const char *tokens_piece(const void *self, uint32_t id, size_t *bytes_out, bool *control_out);
/* Stores the bytes that stand for the token in a constraint. Returns their number; 0 = none. */
size_t tokens_bytes(uint32_t id, char out[256]);

#endif
