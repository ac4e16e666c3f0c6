/* Goal: a refusal is logged once in ten minutes, and a new line takes the place of the line that was
 * logged longest ago. Method: a clock of the test, and the lines that log.h keeps. */
#include "machine/executor/refusals.h"
#include "tests/check.h"

#include "common/log.h"
#include "common/text.h"

#include <string.h>

#define SECOND_US 1000000ll
#define MINUTE_US (60 * SECOND_US)

/* Returns how many lines end with the text. */
static uint32_t logged(const char *text)
{
    struct text lines = {0};
    char line[128];
    uint32_t count = 0;
    snprintf(line, sizeof(line), "a peer was refused: %s\n", text);
    log_kept_write(&lines);
    text_add(&lines, "", 1); /* The NUL. */
    for (const char *at = lines.data; (at = strstr(at, line)) != NULL; at++)
        count++;
    text_done(&lines);
    return count;
}

static void check_ports(void)
{
    struct refusals refusals = {0};
    refusals_log(&refusals, "10.0.0.1:700: no key", MINUTE_US);
    refusals_log(&refusals, "10.0.0.1:701: no key", 10 * MINUTE_US);
    CHECK(logged("10.0.0.1:700: no key") == 1 && logged("10.0.0.1:701: no key") == 0);
    refusals_log(&refusals, "10.0.0.1:702: no key", 11 * MINUTE_US);
    CHECK(logged("10.0.0.1:702: no key") == 1);
}

static void check_replaced(void)
{
    struct refusals refusals = {0};
    char name[REFUSALS_KEPT][16];
    for (uint32_t i = 0; i < REFUSALS_KEPT; i++) {
        snprintf(name[i], sizeof(name[i]), "peer-%u", i);
        refusals_log(&refusals, name[i], MINUTE_US + i * SECOND_US);
    }
    const int64_t later_us = 20 * MINUTE_US;
    refusals_log(&refusals, name[0], later_us);
    CHECK(logged(name[0]) == 2);
    refusals_log(&refusals, "another peer", later_us); /* In the place of name[1]. */
    refusals_log(&refusals, name[0], later_us + SECOND_US);
    CHECK(logged(name[0]) == 2 && logged("another peer") == 1);
    refusals_log(&refusals, name[1], later_us + SECOND_US);
    CHECK(logged(name[1]) == 2);
}

int main(void)
{
    log_open("test", LOG_INFO);
    log_keep(65536);
    check_ports();
    check_replaced();
    return 0;
}
