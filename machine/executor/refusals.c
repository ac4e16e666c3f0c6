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
        at = refusals->oldest;
        refusals->oldest = (at + 1) % REFUSALS_KEPT;
        memcpy(refusals->lines[at].text, line, sizeof(line));
    }
    refusals->lines[at].logged_us = now_us;
    log_info("a peer was refused: %s", text);
}
