/* audit: see the header. */
#include "server/api/audit.h"

#include "common/log.h"
#include "common/text.h"

#include <string.h>
#include <time.h>

static void member_add(struct text *out, const char *name, const char *value)
{
    text_addf(out, ",\"%s\":", name);
    text_add_json_string(out, value, strlen(value));
}

void audit_write(const struct audit_actor *actor, const char *act, const char *target,
                 unsigned status)
{
    struct timespec now;
    struct tm utc;
    char time[32];
    struct text line = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &utc);
    text_addf(&line, "{\"time\":\"%s.%03dZ\"", time, (int)(now.tv_nsec / 1000000));
    member_add(&line, "act", act);
    member_add(&line, "target", target);
    member_add(&line, "who", actor->who);
    member_add(&line, "from", actor->from);
    text_addf(&line, ",\"status\":%u}", status);
    int bytes = line.broken ? 0 : (int)line.bytes;
    const char *text = bytes > 0 ? line.data : "";
    if (actor->is_administrator)
        log_audit("audit: %.*s", bytes, text);
    else
        log_warn("audit: %.*s", bytes, text);
    text_done(&line);
}
