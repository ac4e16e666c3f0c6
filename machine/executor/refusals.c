/* refusals: see the header. */
#include "machine/executor/refusals.h"

#include "common/log.h"

#include <stdio.h>
#include <string.h>

#define SILENT_US 600000000

/* Copies the text without numbers that follow a colon. */
static void ports_remove(const char *text, char *out, size_t capacity)
{
    size_t used = 0;
    while (*text != 0 && used + 1 < capacity) {
        out[used++] = *text++;
        if (out[used - 1] == ':')
            text += strspn(text, "0123456789");
    }
    out[used] = 0;
}

/* Returns the index of an unused line or, if all are used, of the line that was logged longest
 * ago. */
static uint32_t line_oldest(const struct refusals *refusals)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < REFUSALS_KEPT; i++)
        if (refusals->lines[i].logged_us < refusals->lines[oldest].logged_us)
            oldest = i;
    return oldest;
}

void refusals_log(struct refusals *refusals, const char *text, int64_t now_us)
{
    char line[sizeof(refusals->lines[0].text)];
    ports_remove(text, line, sizeof(line));
    uint32_t at = 0;
    while (at < REFUSALS_KEPT && strcmp(refusals->lines[at].text, line) != 0)
        at++;
    if (at < REFUSALS_KEPT && now_us - refusals->lines[at].logged_us < SILENT_US)
        return;
    if (at == REFUSALS_KEPT) {
        at = line_oldest(refusals);
        memcpy(refusals->lines[at].text, line, sizeof(line));
    }
    refusals->lines[at].logged_us = now_us;
    log_info("a peer was refused: %s", text);
}
