/* parts: runs the parser of answers on a text, and writes its result as one line that tests
 * compare: reasoning as "R(…)", content as "C(…)", a call as "name(arguments)". Consecutive parts
 * of one kind are joined. The tests of model/answer call it on their main thread. It checks nothing
 * itself. */
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
