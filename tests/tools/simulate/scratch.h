/* scratch: a folder of small files that a test of the simulator writes and reads. The test calls
 * the functions on its main thread. It makes the folder with mkdtemp(scratch), and removes the
 * folder with its files: the functions do neither. */
#ifndef TESTS_TOOLS_SIMULATE_SCRATCH_H
#define TESTS_TOOLS_SIMULATE_SCRATCH_H

#include "tests/check.h"

#include <stdio.h>

static char scratch[] = "/tmp/cleave-test-simulate.XXXXXX";

/* Returns the path of a file in the folder, which is valid for the next seven calls. */
static inline const char *scratch_path(const char *name)
{
    static char paths[8][400];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%.300s", scratch, name);
    return path;
}

/* Writes a file in the folder, and replaces an older file with this name. */
static inline void scratch_write(const char *name, const char *text)
{
    FILE *file = fopen(scratch_path(name), "w");
    CHECK(file != NULL);
    fputs(text, file);
    CHECK(fclose(file) == 0);
}

#endif
