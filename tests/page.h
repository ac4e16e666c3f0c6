/* page: checks that a generated page of docs/ is up to date: it compares what the program prints
 * with the committed file. Each page has a test that calls page_check on its main thread. It does
 * not write the page. */
#ifndef TESTS_PAGE_H
#define TESTS_PAGE_H

#include "tests/check.h"

#include <string.h>

/* Checks that `print` writes exactly the file `path` (from the top of the tree). `command` prints
 * the page; a failed check shows it. */
static inline void page_check(const char *path, const char *command, void (*print)(FILE *out))
{
    char name[1024];
    char *page = NULL;
    size_t bytes = 0;
    const char *source = getenv("CLEAVE_SOURCE");
    snprintf(name, sizeof(name), "%s/%s", source != NULL ? source : ".", path);
    FILE *file = open_memstream(&page, &bytes);
    CHECK(file != NULL);
    print(file);
    fclose(file);
    char *committed = calloc(1, bytes + 2);
    CHECK(committed != NULL);
    file = fopen(name, "rb");
    size_t read = file != NULL ? fread(committed, 1, bytes + 1, file) : 0;
    if (file != NULL)
        fclose(file);
    CHECKF(read == bytes && memcmp(page, committed, bytes) == 0,
           "%s is not up to date; run: %s > %s", name, command, path);
    free(committed);
    free(page);
}

#endif
