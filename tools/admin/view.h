/* admin_view: writes the JSON of GET /admin/state as text for people, and reads members of other
 * answers of a gateway. The subcommands of admin.h call the functions on the main thread. A member
 * may be missing or have another type, because the gateway has another release. Such a member never
 * causes an error: depending on the member, the text is "-", 0, a word such as "not ready", or
 * nothing. The functions keep no state and send no requests. */
#ifndef TOOLS_ADMIN_VIEW_H
#define TOOLS_ADMIN_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Returns a member that is a text; "" if there is none. */
const char *view_text(const json_t *object, const char *member);
/* Returns a member that is a whole number; 0 if there is none, or if the number is below 0. */
uint64_t view_whole(const json_t *object, const char *member);
/* Returns true if the member is `true`. */
bool view_true(const json_t *object, const char *member);

/* Copies the text, which may come from another host, up to the capacity, with a question mark in
 * place of each control character. Returns `out`. */
const char *view_printable(const char *text, char *out, size_t capacity);

/* Writes "gateway 0a1b… at NAME: ready, serves MODEL, up 3 h 12 min". Then writes the gateway's
 * `detail` unless it is empty, "ready" or "ok", the head-room, and the state of a model update if
 * there is one. gateway_name: the result of admin_client_name. */
void view_gateway(const json_t *state, const char *gateway_name, FILE *out);
/* Writes a table with a row for each of the first TABLE_ROWS_MAX - 1 machines; if there are more, a
 * line says how many. Below the table, writes why machines do not serve, their warnings and their
 * crashes. with_bars: the use of KV is shown as a bar, too. */
void view_machines(const json_t *state, bool with_bars, FILE *out);
/* Writes one line: the KV that all machines hold and have sent, by the kind of layers, and the
 * number of blocks freed because no window reaches them any more. */
void view_kv(const json_t *state, FILE *out);
/* Writes how many links are up, and a line with the reason for each link that is down. */
void view_links(const json_t *state, FILE *out);
/* Writes how many problems there are, and the first `problems_max` problems, each in two lines. The
 * gateway lists the worst problems first. */
void view_problems(const json_t *state, size_t problems_max, FILE *out);
/* Returns a state for view_problems with one problem: the gateway does not answer. The state is a
 * new reference; NULL = no memory. error_text: why there is no answer. */
json_t *view_silent_state(const char *error_text);
/* Writes how many requests are open, how many are in each state, and how many were resumed. */
void view_requests(const json_t *state, FILE *out);

#endif
