/* gateway_history: owns the records of the latest requests. A record has a request's events (struct
 * gateway_event), its machines, its counts of tokens, and its end. The memory has a fixed size: a
 * new request replaces the oldest request of the history, even if the oldest request is still open.
 * server/gateway/ makes every call, on the gateway's event loop thread. The history keeps no text
 * of prompts and answers, writes no files, and decides nothing. */
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

/* Converts the end that `ended` of struct gateway_client reports. */
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

/* Adds a request that was submitted, which may have ended already. Returns the value that the
 * caller must store in r->history_number; 0 if `h` is NULL. */
uint64_t history_begin(struct history *h, const struct gateway_request *r,
                       const struct gateway_submit *submit, int64_t now_us);
/* Adds an event of the request. Of many events, only the first ones and the latest ones are kept.
 * Does nothing if another request has replaced this one. */
void history_event(struct history *h, const struct gateway_request *r,
                   const struct gateway_event *event);
/* Records the request's end. reason: a text for operators; "" = none. Does nothing if another
 * request has replaced this one. */
void history_end(struct history *h, const struct gateway_request *r, enum history_end end,
                 const char *reason, int64_t now_us);

/* Writes the lengths of the latest answers, at most HEADROOM_ANSWERS, for the search of headroom.c.
 * The oldest answer is written first. Reads the history from the latest request back to the first
 * request that arrived before `after_us`. Leaves out requests that failed, were refused, or were
 * left without a token. An open answer gets at least the mean length of the
 * written answers that have ended. Returns the number of answers written. */
uint32_t history_answers(const struct history *h, int64_t after_us,
                         struct headroom_answer out[HEADROOM_ANSWERS]);

/* Which requests history_write writes, and how. */
struct history_query {
    /* Only requests with this id are written; NULL = all. The text may be the client's id, the
     * answer's id, or the request's id as machines log it (hexadecimal). */
    const char *id;
    uint32_t requests_max; /* No more requests are written; at most 4,096 in any case. */
    bool with_events;      /* Each request is written with its events. */
    const char *separator; /* Written between two requests. */
};

/* Appends a JSON object for each request that matches the query, the latest request first. */
void history_write(const struct history *h, const struct history_query *query, int64_t now_us,
                   struct text *out);

#endif
