/* event_text: writes and reads the lines of the event log (config key `log/events_file`): the
 * cluster scheduler's options, events and actions as JSON. If a log has all lines, a new scheduler
 * that gets the log's options and events makes the log's actions. The gateway and the simulator
 * write lines; `cleave simulate` and `cleave trace` read them. The functions own nothing, open no
 * files, and may be called on any thread.
 *
 *   {"events":1,"whole":true,"options":{…}}          first line; "whole": the log begins with the
 *                                                    gateway's start
 *   {"t":1234,"event":"arrived","request":5,…,"actions":[{"do":"route","request":5,…}]}
 *   {"t":1240,"event":"configure","options":{…},"actions":[]}
 *   {"t":1240,"event":"more","actions":[…]}          further actions of the previous event
 *   {"version":2,"options":{…}}                      the scheduler of version 2 begins
 *   {"version":1,"gone":true}                        the scheduler of version 1 gets no more events
 *   {"t":1250,"event":"arrived","version":2,…}       an event of version 2
 *   {"machine":0,"name":"prompt-0"}                  the name of machine 0
 *   {"request":5,"id":"my-id"}                       the client's id of request 5, which the next
 *                                                    event is about
 *   {"t":1260,"outcome":"computed","request":5,…}    the outcome of a route (event_text_outcome)
 *   {"dropped":3}                                    3 lines are missing here (see event_log.h)
 *
 * Options, events and actions have the values of the structs' fields, under the names in the tables
 * of event_text.c. Fields that are 0 are left out. A line without "version" belongs to version 1.
 * Machines and requests are indices. "t" is in microseconds. The log contains hashes of prompts, no
 * prompts and no answers. */
#ifndef EVENTS_EVENT_TEXT_H
#define EVENTS_EVENT_TEXT_H

#include "common/status.h"
#include "common/text.h"
#include "scheduler/cluster/cluster.h"

#define EVENT_VERSION_FIRST 1 /* Version of the scheduler that begins with the first line. */

/* Each of these functions appends one line to *out, without a line feed. now_us is written as "t".
 * event_text_event with event NULL writes the line "more". */
void event_text_begin(struct text *out, bool whole, const struct sched_cluster_options *options);
void event_text_version(struct text *out, uint32_t version,
                        const struct sched_cluster_options *options);
void event_text_version_gone(struct text *out, uint32_t version);
void event_text_event(struct text *out, uint32_t version, int64_t now_us,
                      const struct sched_event *event, const struct sched_actions *actions);
void event_text_configure(struct text *out, uint32_t version, int64_t now_us,
                          const struct sched_cluster_options *options,
                          const struct sched_actions *actions);
void event_text_machine(struct text *out, uint32_t machine, const char *name);
void event_text_request(struct text *out, uint32_t version, uint32_t request, const char *id);

/* How the prompt machine of a route gets the KV of a prefix. */
enum event_choice {
    EVENT_CHOICE_NONE,    /* The scheduler made no choice. */
    EVENT_CHOICE_COMPUTE, /* The machine computes the whole prompt. */
    EVENT_CHOICE_KEEP,    /* The machine uses KV of its prefix cache. */
    EVENT_CHOICE_MOVE,    /* Another machine first sends its KV to the machine. */
    EVENT_CHOICE_LOAD,    /* The machine loads KV from its tiers. */
};

/* The choice of a route whose outcome is not known yet. All zeros = none. */
struct event_decision {
    enum event_choice choice;
    uint32_t pull_us;     /* Estimated time from the route until moved KV has arrived. */
    uint32_t computed_us; /* Estimated time from the route until the prompt is computed. */
    int64_t routed_us;    /* When the request was routed. */
    int64_t pulled_us;    /* When moved KV had arrived, set by the caller; 0 = not yet. */
};

/* Returns the choice of a route (an action SCHED_ROUTE) made at now_us. */
struct event_decision event_decision_of(const struct sched_action *route, int64_t now_us);
/* Appends the line of a route's outcome: the choice, the estimates "pull_us" and "computed_us", and
 * the measured times since the route, "pull_took_us" and "computed_took_us". Missing times are left
 * out. computed: the prompt has just been computed; false = the request left its machines before,
 * and the outcome is "left". */
void event_text_outcome(struct text *out, uint32_t version, int64_t now_us, uint32_t request,
                        const struct event_decision *decision, bool computed);

/* The kinds of lines, each shown above. */
enum event_line_kind {
    EVENT_LINE_BEGIN,
    EVENT_LINE_VERSION,
    EVENT_LINE_VERSION_GONE,
    EVENT_LINE_EVENT,
    EVENT_LINE_CONFIGURE,
    EVENT_LINE_MORE,
    EVENT_LINE_MACHINE,
    EVENT_LINE_REQUEST,
    EVENT_LINE_OUTCOME,
    EVENT_LINE_DROPPED,
};

/* One line that was read. Must not be copied, because event.prefix points into the struct. A
 * field's comment names the kinds of lines that set the field; the other values of a line are not
 * stored. */
struct event_line {
    enum event_line_kind kind;
    uint32_t version;                     /* All kinds. */
    int64_t now_us;                       /* EVENT, CONFIGURE and MORE: "t". */
    bool whole;                           /* BEGIN: the log begins with the gateway's start. */
    struct sched_cluster_options options; /* BEGIN, VERSION and CONFIGURE. */
    struct sched_event event;             /* EVENT. */
    uint64_t hashes[SCHED_PREFIX_MAX];    /* EVENT: the hashes of event.prefix. */
    struct sched_actions actions;         /* EVENT, CONFIGURE and MORE; actions.more is false. */
    uint64_t dropped;                     /* DROPPED: the number of missing lines. */
};

/* Reads one line. Returns ST_INVALID, with the reason in *error, if the text is not a line of an
 * event log; *out is then incomplete. */
enum status event_text_read(const char *line, size_t line_bytes, struct event_line *out,
                            struct error *error);

#endif
