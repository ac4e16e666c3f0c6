/* Goal: a config is not called wrong if there is no memory to read it, and no key is missing if
 * there is no memory to write it. Method: texts that are wrong at their end, so that they are wrong
 * only for a reader that had enough memory, and a config that is written, with an allocator that
 * fails after 0, 1, 2 … allocations. */
#include "config/config.h"

#include "tests/check.h"
#include "tests/scarce_memory.h"

#include <string.h>

static enum status wrong_end_read(struct error *error)
{
    static struct config config;
    static const char text[] = "{\"pools\": [1, \"a\"]} 7";
    return config_parse(text, strlen(text), "x", &config, error);
}

static enum status wrong_machine_end_read(struct error *error)
{
    static struct config config;
    static const char text[] = "{\"name\": [1, \"a\"]} 7";
    struct config_machine machine;
    return config_machine_parse(text, strlen(text), "x", &config, &machine, error);
}

static struct config embedded; /* Made when there is memory. */

/* Sets a machine's stages to a right value. If that fails, the error must say that memory ran
 * out. */
static enum status right_stages_set(struct error *error)
{
    static struct config config;
    config = embedded;
    enum status status = config_set(&config, "--set", "machines/prompt-0/stages",
                                    "[{\"host\": \"a\"}, {\"device\": \"cpu\"}]", error);
    CHECKF(status == ST_OK || strstr(error->text, ": no memory") != NULL, "%s", error->text);
    return status;
}

static char whole[1 << 16]; /* The config `embedded`, written when there is memory. */

/* Writes a config. If that succeeds, no key may be missing. */
static enum status embedded_write(struct error *error)
{
    static char text[sizeof(whole)];
    (void)error;
    FILE *file = fmemopen(text, sizeof(text), "w");
    CHECK(file != NULL);
    enum status status = config_write(&embedded, file);
    CHECK(fclose(file) == 0);
    if (status != ST_OK)
        return ST_NO_MEMORY;
    if (whole[0] == 0)
        memcpy(whole, text, sizeof(whole));
    CHECKF(strcmp(text, whole) == 0, "written: %s\nwant: %s", text, whole);
    return ST_OK;
}

int main(void)
{
    struct error error = {""};
    uint32_t count;
    config_default(&embedded);
    CHECK(embedded_write(&error) == ST_OK);
    scarce_once = true;
    CHECK(scarce_calls(embedded_write, &count, &error) == ST_OK && count > 100);
    scarce_once = false;
    CHECK(scarce_calls(right_stages_set, &count, &error) == ST_OK && count > 5);
    CHECK(scarce_calls(wrong_end_read, &count, &error) == ST_INVALID && count > 5);
    CHECKF(strncmp(error.text, "x:1: not JSON: ", 15) == 0, "%s", error.text);
    CHECK(scarce_calls(wrong_machine_end_read, &count, &error) == ST_INVALID && count > 5);
    CHECKF(strncmp(error.text, "x: not JSON: ", 13) == 0, "%s", error.text);
    return 0;
}
