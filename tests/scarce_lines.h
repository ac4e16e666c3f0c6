/* scarce_lines: a getline that has no memory after a number of lines, for tests of readers of
 * files. It replaces the C library's functions in the whole program, so one file of a program includes it.
 * A test sets scarce_lines_left and then calls what reads. The header owns nothing. */
#ifndef TESTS_SCARCE_LINES_H
#define TESTS_SCARCE_LINES_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static size_t scarce_lines_left = SIZE_MAX; /* Lines until all further calls fail. */

/* What getline of <stdio.h> calls in an optimised build. */
ssize_t __getdelim(char **line, size_t *room, int end, FILE *file)
{
    size_t used = 0;
    int c = EOF;
    if (scarce_lines_left == 0) {
        errno = ENOMEM; /* As the C library's: neither feof nor ferror becomes true. */
        return -1;
    }
    scarce_lines_left--;
    while (c != end && (c = fgetc(file)) != EOF) {
        if (used + 2 > *room) {
            *room = 2 * *room + 128;
            *line = realloc(*line, *room);
            if (*line == NULL)
                abort();
        }
        (*line)[used++] = (char)c;
        (*line)[used] = 0;
    }
    return used > 0 ? (ssize_t)used : -1;
}

ssize_t getline(char **line, size_t *room, FILE *file)
{
    return __getdelim(line, room, '\n', file);
}

#endif
