/* Goal: a config is not called wrong if there is no memory to read it. Method: texts that are wrong
 * at their end, so that they are wrong only for a reader that had enough memory, with an allocator
 * that fails after 0, 1, 2 … allocations. */
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

/* Sets a machine's stages to a right value. If that fails, the error's text must say that memory ran
 * out (config_set returns ST_INVALID for that, too). */
static enum status right_stages_set(struct error *error)
{
    static struct config config;
    config = embedded;
    enum status status = config_set(&config, "--set", "machines/prompt-0/stages",
                                    "[{\"host\": \"a\"}, {\"device\": \"cpu\"}]", error);
    CHECKF(status == ST_OK || strstr(error->text, ": no memory") != NULL, "%s", error->text);
    return status == ST_OK ? ST_OK : ST_NO_MEMORY;
}

int main(void)
{
    struct error error = {""};
    uint32_t count;
    config_default(&embedded);
    CHECK(scarce_calls(right_stages_set, &count, &error) == ST_OK && count > 5);
    CHECK(scarce_calls(wrong_end_read, &count, &error) == ST_INVALID && count > 5);
    CHECKF(strncmp(error.text, "x:1: not JSON: ", 15) == 0, "%s", error.text);
    CHECK(scarce_calls(wrong_machine_end_read, &count, &error) == ST_INVALID && count > 5);
    CHECKF(strncmp(error.text, "x: not JSON: ", 13) == 0, "%s", error.text);
    return 0;
}
