/* audit: see the header. */
#include "server/api/audit.h"

#include "common/log.h"
#include "common/text.h"

#include <string.h>

static void member_add(struct text *out, const char *name, const char *value)
{
    text_format_add(out, ",\"%s\":", name);
    text_add_json_string(out, value, strlen(value));
}

void audit_write(const struct audit_actor *actor, const char *act, const char *target,
                 unsigned status)
{
    struct text line = {0};
    text_format_add(&line, "{\"status\":%u", status);
    member_add(&line, "act", act);
    member_add(&line, "target", target);
    member_add(&line, "who", actor->name);
    member_add(&line, "from", actor->address);
    text_string_add(&line, "}");
    if (!line.broken)
        log_object(actor->is_administrator ? LOG_INFO : LOG_WARN, !actor->is_administrator, "audit",
                   line.data, line.bytes);
    text_done(&line);
}
