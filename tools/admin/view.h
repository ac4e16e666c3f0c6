/* admin_view: writes the JSON of GET /admin/state as text for people, and reads members of other
 * answers of a gateway. The subcommands of admin.h, except `cleave bundle`, call it on the main
 * thread. In the JSON of a gateway of another release, a member may be missing or have another
 * type: the member is then shown as empty or 0, or left out. It keeps no state and asks no gateway.
 */
#ifndef TOOLS_ADMIN_VIEW_H
#define TOOLS_ADMIN_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Return a member of an object. On the right: what they return if it is missing or of another type.
 */
const char *view_text(const json_t *object, const char *name); /* "" */
uint64_t view_whole(const json_t *object, const char *name);   /* 0, also for a number below 0 */
bool view_true(const json_t *object, const char *name);        /* false */

/* Copies at most bytes - 1 bytes of a text that may come from another host, with a question mark
 * for each control character. Returns `out`. */
const char *view_printable(const char *text, char *out, size_t bytes);

/* Writes "gateway 0a1b… at NAME: ready, serves MODEL, up 3 h 12 min"; a line with what is wrong, if
 * anything is wrong; its head-room; and the state of a model update, if there is one. `name`:
 * admin_client_name. */
void view_gateway(const json_t *state, const char *name, FILE *out);
/* Writes a table with a row for each of the first TABLE_ROWS_MAX - 1 machines. If there are more, a
 * line says how many. Below it writes a line for each reason why a machine does not serve, each
 * warning, and the crashes of each machine. With `bars`, the use of KV is shown as a bar, too. */
void view_machines(const json_t *state, bool bars, FILE *out);
/* Writes one line: the KV that all machines hold and have sent, by the kind of layers, and the
 * number of blocks freed because no window reaches them any more. */
void view_kv(const json_t *state, FILE *out);
/* Writes how many links are up, and a line with the reason for each link that is down. */
void view_links(const json_t *state, FILE *out);
/* Writes how many problems there are, and the first `count_max` of them, each in two lines. The
 * gateway lists the worst problems first. */
void view_problems(const json_t *state, size_t count_max, FILE *out);
/* Returns a state (a new reference; NULL = no memory) with the one problem that a gateway cannot
 * report itself: it does not answer. */
json_t *view_silent_state(const char *error_text);
/* Writes how many requests are open, how many are in each state, and how many were resumed. */
void view_requests(const json_t *state, FILE *out);

#endif
