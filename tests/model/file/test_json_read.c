/* Goal: a JSON file for which memory is short is not called malformed. Method: jansson's
 * allocations fail, from the first one, then from the second one, and so on, until the file can be
 * read. */
#include "model/file/json_read.h"
#include "tests/check.h"
#include "tests/scarce_memory.h"

#include <string.h>

/* Returns the number of allocations without which the text cannot be read. */
static size_t check_scarce(const char *text)
{
    for (size_t count = 0;; count++) {
        json_t *root;
        struct error error = {0};
        scarce_allocations_left = count;
        const enum status status =
            json_read("config.json", (struct mapped_text){text, strlen(text)}, &root, &error);
        if (status == ST_OK) {
            json_decref(root);
            return count;
        }
        CHECKF(status == ST_NO_MEMORY && strcmp(error.text, "config.json: out of memory") == 0,
               "%zu allocations: %s: %s", count, status_name(status), error.text);
    }
}

static void check_malformed(void)
{
    static const char text[] = "{\"a\": }";
    json_t *root;
    struct error error = {0};
    scarce_allocations_left = SIZE_MAX;
    CHECK(json_read("x", (struct mapped_text){text, strlen(text)}, &root, &error) == ST_INVALID);
    CHECKF(strncmp(error.text, "x:1:7: ", 7) == 0, "%s", error.text);
}

int main(void)
{
    json_set_alloc_funcs(scarce_malloc, free);
    /* The words are short, because jansson takes what it could store of a long word for the
     * word. */
    CHECK(check_scarce("{\"a\": [1, {\"b\": \"c\"}], \"d\": 2.5, \"e\": null}") > 8);
    check_malformed();
    return 0;
}
