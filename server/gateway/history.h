/* gateway_history: owns the records of the latest requests. A record has a request's events (struct
 * gateway_event), its machines, its counts of tokens, and its end. When the history is full, a new
 * request replaces the oldest request, even if the oldest request is still open. server/gateway/
 * calls the functions on the gateway's event loop thread. The history keeps no text of prompts and
 * answers, and writes no files. */
#ifndef SERVER_GATEWAY_HISTORY_H
#define SERVER_GATEWAY_HISTORY_H

#include "common/text.h"
#include "scheduler/headroom.h"
#include "server/gateway/table.h"

struct history;

/* How a request has ended. */
enum history_end {
    HISTORY_OPEN,    /* The request has not ended. */
    HISTORY_DONE,    /* GATEWAY_DONE. */
    HISTORY_STOPPED, /* Released with GATEWAY_STOPPED while machines worked on the request. */
    HISTORY_LEFT,    /* Any other release of a request that had not ended. */
    HISTORY_FAILED,  /* GATEWAY_FAILED or GATEWAY_BLAMED. */
    HISTORY_REFUSED, /* GATEWAY_REFUSED. */
    HISTORY_END_COUNT
};

static inline enum history_end history_end_of(enum gateway_end end)
{
    return end == GATEWAY_DONE      ? HISTORY_DONE
           : end == GATEWAY_REFUSED ? HISTORY_REFUSED
                                    : HISTORY_FAILED;
}

/* Opens a history of at most `requests_max` requests, ≥ 1. Returns ST_NO_MEMORY on failure. */
enum status history_open(uint32_t requests_max, struct history **out);
void history_close(struct history *h); /* NULL is fine. */

/* history_begin, history_event and history_end do nothing if `h` is NULL. */

/* Adds a request, which may have ended already. Returns the value for r->history_number. */
uint64_t history_begin(struct history *h, const struct gateway_request *r,
                       const struct gateway_submit *submit, int64_t now_us);
/* Adds an event of the request. Of many events, only the first and the latest events are kept. Does
 * nothing if another request has replaced `r`. */
void history_event(struct history *h, const struct gateway_request *r,
                   const struct gateway_event *event);
/* Records the request's end. reason: a text for operators; "" = none. Does nothing if another
 * request has replaced `r`. */
void history_end(struct history *h, const struct gateway_request *r, enum history_end end,
                 const char *reason, int64_t now_us);

/* Stores the lengths of the latest requests that arrived since `after_us`, at most
 * HEADROOM_ANSWERS, the oldest first. Leaves out requests that failed, were refused, or ended
 * HISTORY_LEFT without a token. For an open request, the length of the answer is at least the mean
 * length of the ended answers. Returns the number of requests. */
uint32_t history_answers(const struct history *h, int64_t after_us,
                         struct headroom_answer out[HEADROOM_ANSWERS]);

/* Which requests history_write writes, and how. */
struct history_query {
    /* Only requests with this id are written; NULL = all. The text may be client_id or answer_id of
     * struct gateway_submit, or the request's id as machines log it (hexadecimal). */
    const char *id;
    uint32_t requests_max; /* Most requests that are written; values above 4,096 count as 4,096. */
    bool with_events;      /* Requests are written with their events. */
    const char *separator; /* Written between two requests. */
};

/* Appends JSON objects of the requests that match the query, the latest request first. */
void history_write(const struct history *h, const struct history_query *query, int64_t now_us,
                   struct text *out);

#endif
