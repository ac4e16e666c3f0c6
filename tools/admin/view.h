/* admin_view: writes the JSON of GET /admin/state as text for people. The subcommands of admin.h
 * call it on the main thread. In the JSON of a gateway of another release, a member may be missing
 * or have another type: the member is then shown as empty or 0. It keeps no state and asks no
 * gateway. */
#ifndef TOOLS_ADMIN_VIEW_H
#define TOOLS_ADMIN_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Members of an object, with the values that a missing member has. */
const char *view_text(const json_t *object, const char *name); /* "" */
uint64_t view_whole(const json_t *object, const char *name);   /* 0 */
bool view_true(const json_t *object, const char *name);        /* false */

/* Copies a text that may come from another host, without control characters. Returns `out`. */
const char *view_printable(const char *text, char *out, size_t bytes);

/* Writes "gateway 0a1b…: ready, serves MODEL, up 3 h 12 min", and a line with what is wrong, if
 * anything is wrong. `name`: admin_client_name. */
void view_gateway(const json_t *state, const char *name, FILE *out);
/* Writes a line for each machine, and a line with the reason for each machine that does not serve.
 * With `bars`, the use of KV is a bar. */
void view_machines(const json_t *state, bool bars, FILE *out);
/* Writes one line: the KV that all machines hold and have sent, by the kind of layers, and the
 * number of blocks freed because no window reaches them any more. */
void view_kv(const json_t *state, FILE *out);
/* Writes the links that are down, with the reason, and how many are up. */
void view_links(const json_t *state, FILE *out);
/* Writes at most `count_max` problems, the worst ones first, each in two lines. */
void view_problems(const json_t *state, size_t count_max, FILE *out);
/* Returns a state with the one problem that a gateway cannot report itself: it does not answer. */
json_t *view_silent_state(const char *error_text);
/* Writes the number of requests in each state. */
void view_requests(const json_t *state, FILE *out);

#endif
