/* parts: what a parser of answers gives for a text, as one line that tests compare: reasoning in
 * "R(…)", content in "C(…)", a call as "name(arguments)". Equal parts in sequence are joined. */
#ifndef TESTS_MODEL_ANSWER_PARTS_H
#define TESTS_MODEL_ANSWER_PARTS_H

#include "common/text.h"
#include "model/answer/answer_parser.h"

struct parts {
    struct text line;
    struct text given; /* All content and reasoning. */
    int last;
    uint32_t calls;
};

/* Feeds the text in the pieces that `cut` says: it returns the bytes of the piece at an offset. */
void parts_read(const struct answer_options *options, const char *text, size_t bytes,
                size_t (*cut)(void *self, size_t at), void *self, struct parts *out);
void parts_done(struct parts *parts);

#endif
