/* audit: writes log lines that record which administrator did what. A line is `audit: ` and a JSON
 * object (here on two lines). With LOG_JSON (common/log.h), the object is the member `audit` of the
 * log line:
 *
 *   {"status":200,"act":"POST /admin/drain/","target":"token-0","who":"key operator",
 *    "from":"127.0.0.1:41234"}
 *
 * server/http/ writes lines for requests under /admin. server/serve*.c write lines for signals, and
 * for what a reload changes. The lines of an administrator have no rate limit. The lines of other
 * clients have the rate limit of common/log.h. audit_write keeps no state and checks no rights. Any
 * thread may call audit_write. */
#ifndef SERVER_API_AUDIT_H
#define SERVER_API_AUDIT_H

#include "common/limits.h"

#include <stdbool.h>

#define AUDIT_ACT_BYTES 96 /* Most bytes of an act, with its NUL. */

/* The client or process that acts. */
struct audit_actor {
    /* "key NAME", "no valid key"; without API keys "loopback client" or "unknown client". For the
     * admin socket "admin socket uid N", or "admin socket" if the uid is not known. For a signal
     * "uid N pid P", or "terminal" for a signal of the kernel, such as Ctrl-C. */
    char name[LIMIT_KEY_NAME_BYTES + 16];
    /* "127.0.0.1:41234", "[::1]:41234", "unknown address", "admin socket" or "signal". */
    char address[LIMIT_ADDRESS_BYTES];
    bool is_administrator; /* The actor has the rights of an administrator. */
};

/* Writes a line. act: what was done, such as "POST /admin/drain/" or "reload". target: the machine,
 * key or other thing that was acted on; "" = none. status: an HTTP status, also for signals and
 * reloads; 0 = the client left before it had an answer. */
void audit_write(const struct audit_actor *actor, const char *act, const char *target,
                 unsigned status);

#endif
