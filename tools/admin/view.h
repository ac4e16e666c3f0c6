/* admin_view: writes the JSON of GET /admin/state as text for people, and reads members of a
 * gateway's answers. The subcommands of admin.h call the functions on the main thread. The
 * functions keep no state and send no requests. A member that is missing or has another type is no
 * error, because the gateway may have another release. */
#ifndef TOOLS_ADMIN_VIEW_H
#define TOOLS_ADMIN_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Returns a member that is a text, which the object owns; "" if there is none. */
const char *view_text(const json_t *object, const char *member);
/* Returns a member that is a whole number; 0 if there is none, or if the number is below 0. */
uint64_t view_whole(const json_t *object, const char *member);
/* Returns whether the member is `true`; false if there is none. */
bool view_true(const json_t *object, const char *member);

/* Copies at most capacity - 1 bytes of the text to `out`, with a question mark in place of each
 * control character, so that a terminal may print the copy. Returns `out`. */
const char *view_printable(const char *text, char *out, size_t capacity);

/* Writes a line such as "gateway 0a1b… at NAME: ready, serves MODEL, up 3 h 12 min, cleave 1.2".
 * Below this line, writes what the gateway reports of these: its `detail`, if this is more than
 * "ready"; the head-room (the factors by which the traffic can grow); the state of a model update.
 * gateway_name: the result of admin_client_name. */
void view_gateway(const json_t *state, const char *gateway_name, FILE *out);
/* Writes a table of at most the first TABLE_ROWS_MAX - 1 machines. Below the table, writes why
 * machines do not serve, their warnings and their crashes. with_bars: draws the use of KV, too. */
void view_machines(const json_t *state, bool with_bars, FILE *out);
/* Writes one line: the bytes of KV that machines hold and have sent, per kind of layers, and the
 * number of blocks that were freed because windows have passed them. */
void view_kv(const json_t *state, FILE *out);
/* Writes how many links are up, and one line with the reason for each link that is down. */
void view_links(const json_t *state, FILE *out);
/* Writes how many problems there are, and the first `problems_max` problems, each in two lines. */
void view_problems(const json_t *state, size_t problems_max, FILE *out);
/* Makes a state with one problem for view_problems: the gateway does not answer. error_text: the
 * reason. Returns a new reference; NULL = no memory. */
json_t *view_silent_state(const char *error_text);
/* Writes how many requests are open, how many are in each state, and how many were resumed. */
void view_requests(const json_t *state, FILE *out);

#endif
