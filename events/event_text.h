/* event_text: the cluster scheduler's options, events and actions as lines of JSON, and back: the
 * contents of `log/events_file`. If the lines are given to the same scheduler again, it gives the
 * same actions. The gateway (server/gateway/events.c) and the simulator write lines; `cleave
 * simulate` reads them again (tools/simulate/replay_log.c). Pure functions, any thread; files are
 * left to event_log.h and the reader.
 *
 *   {"events":1,"whole":true,"options":{…}}          first line; whole = since the gateway's start
 *   {"t":1234,"event":"arrived","request":5,…,"actions":[{"do":"route","request":5,…}]}
 *   {"t":1240,"event":"configure","options":{…},"actions":[]}
 *   {"t":1240,"event":"more","actions":[…]}          further actions of the line before
 *   {"version":2,"options":{…}}                      a second scheduler, for another model
 *   {"version":1,"gone":true}                        this scheduler gets no more events
 *   {"t":1250,"event":"arrived","version":2,…}       an event of version 2; without: version 1
 *   {"dropped":3}                                    lines missing here
 *
 * Numbers are those of the structs; fields that are 0 are left out. Machines are indices; lines
 * {"machine":0,"name":"prompt-0"} name them. The log never contains text of a request. */
#ifndef EVENTS_EVENT_TEXT_H
#define EVENTS_EVENT_TEXT_H

#include "common/status.h"
#include "common/text.h"
#include "scheduler/cluster/cluster.h"

#define EVENT_VERSION_FIRST 1 /* Version of the scheduler that the first line opens. */

/* Each function appends one of the lines above to *out, without a line feed. t is now_us, in
 * microseconds. event_text_event with event = NULL writes the line "more". */
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

/* The kind of a line: which of the lines above it is. */
enum event_line_kind {
    EVENT_LINE_BEGIN,
    EVENT_LINE_VERSION,
    EVENT_LINE_VERSION_GONE,
    EVENT_LINE_EVENT,
    EVENT_LINE_CONFIGURE,
    EVENT_LINE_MORE,
    EVENT_LINE_MACHINE,
    EVENT_LINE_DROPPED,
};

/* One line that was read. Must not be copied, because event.prefix points into it. The fields that
 * do not belong to the line's kind are 0. */
struct event_line {
    enum event_line_kind kind;
    uint32_t version; /* In lines VERSION, VERSION_GONE, EVENT, CONFIGURE and MORE. */
    int64_t now_us;
    bool whole;                           /* BEGIN: the log begins with the gateway's start. */
    struct sched_cluster_options options; /* BEGIN, VERSION and CONFIGURE. */
    struct sched_event event;             /* EVENT. */
    uint64_t hashes[SCHED_PREFIX_MAX];    /* Hashes of the event's prefix. */
    /* EVENT, CONFIGURE and MORE. The member `more` is not in the text. */
    struct sched_actions actions;
};

/* Reads one line. ST_INVALID: it is not a line of an event log; the error says why. */
enum status event_text_read(const char *line, size_t bytes, struct event_line *out,
                            struct error *error);

#endif
