/* gateway_history: the latest requests and what happened to each: its events (struct
 * gateway_event), machines, tokens and end. It needs no log file, and its memory is fixed: a new
 * request replaces the oldest request of the history, even if the oldest request is still open.
 * requests.c and request_events.c report what happens; state.c writes the requests as JSON for
 * operators (server/serve*.c say which ones), and headroom.c replays the answers. Everything runs
 * on the gateway's event loop thread. The history has no text of prompts and answers, decides
 * nothing, and sends nothing. */
#ifndef SERVER_GATEWAY_HISTORY_H
#define SERVER_GATEWAY_HISTORY_H

#include "common/text.h"
#include "scheduler/headroom.h"
#include "server/gateway/table.h"

struct history;

/* How a request has ended. */
enum history_end {
    HISTORY_OPEN,    /* The request has not ended. */
    HISTORY_DONE,    /* Everything was generated. */
    HISTORY_STOPPED, /* A stop string was found. */
    HISTORY_LEFT,    /* The client has gone. */
    HISTORY_FAILED,  /* GATEWAY_FAILED or GATEWAY_BLAMED. */
    HISTORY_REFUSED, /* GATEWAY_REFUSED. */
    HISTORY_END_COUNT
};

/* Converts the end that the request's client gets. */
static inline enum history_end history_end_of(enum gateway_end end)
{
    return end == GATEWAY_DONE      ? HISTORY_DONE
           : end == GATEWAY_REFUSED ? HISTORY_REFUSED
                                    : HISTORY_FAILED;
}

/* Opens a history of up to `count` requests, ≥ 1. Returns ST_NO_MEMORY on failure. */
enum status history_open(uint32_t count, struct history **out);
void history_close(struct history *h); /* NULL is fine. */

/* The next three functions do nothing if `h` is NULL. The second and the third do nothing if the
 * request was already replaced. */

/* Adds a request that was submitted; it may have ended already. Returns its number, for
 * r->history_number; 0 if `h` is NULL. */
uint64_t history_begin(struct history *h, const struct gateway_request *r,
                       const struct gateway_submit *submit, int64_t now_us);
/* Adds an event of the request. Of more than 24 events, the first 12 and the latest 12 are kept. */
void history_event(struct history *h, const struct gateway_request *r,
                   const struct gateway_event *event);
/* Records the request's end. text: the reason; "" = none. */
void history_end(struct history *h, const struct gateway_request *r, enum history_end end,
                 const char *text, int64_t now_us);

/* Writes the latest requests, at most HEADROOM_ANSWERS, that arrived at or after `after_us` and
 * were served or are open, in the order of their arrival. An open answer gets at least the mean
 * length of the answers that have ended. Returns the number of requests written. */
uint32_t history_answers(const struct history *h, int64_t after_us,
                         struct headroom_answer out[HEADROOM_ANSWERS]);

/* Which requests are written, and how. */
struct history_query {
    /* Only requests with this id (the client's, the answer's, or the number in the log of a
     * machine); NULL = all. */
    const char *id;
    uint32_t count;        /* Most requests. */
    bool events;           /* The events of each request are written, too. */
    const char *separator; /* Text between two requests. */
};

/* Appends a JSON object for each request, the latest request first, at most 4,096. */
void history_write(const struct history *h, const struct history_query *query, int64_t now_us,
                   struct text *out);

#endif
