/* event_text: the cluster scheduler's options, events and actions as lines of JSON, and back: what
 * `log/events_file` holds. Fed through the same scheduler again, the lines give the same actions.
 *
 *   {"events":1,"whole":true,"options":{…}}          first line; whole: from the gateway's start on
 *   {"t":1234,"event":"arrived","request":5,…,"actions":[{"do":"route","request":5,…}]}
 *   {"t":1240,"event":"configure","options":{…},"actions":[]}
 *   {"t":1240,"event":"more","actions":[…]}          the rest of the actions of the line before
 *   {"version":2,"options":{…}}                      a second scheduler, for another model
 *   {"version":1,"gone":true}                        it is told nothing any more
 *   {"t":1250,"event":"arrived","version":2,…}       what it is told; without: the first one
 *   {"dropped":3}                                    lines that are missing here
 *
 * Numbers as in the structs; those that are 0 are left out. Machines are indices, named by lines
 * {"machine":0,"name":"prompt-0"}. No text of a request is ever in it. Pure. */
#ifndef SERVER_EVENT_TEXT_H
#define SERVER_EVENT_TEXT_H

#include "common/status.h"
#include "scheduler/cluster.h"
#include "server/text.h"

#define EVENT_VERSION_FIRST 1

/* Each appends one line, without a line feed. `event` NULL: "more". */
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

struct event_line { /* not to be copied: the event's prefix points into it */
    enum event_line_kind kind;
    uint32_t version; /* of VERSION, EVENT, CONFIGURE and MORE */
    int64_t now_us;
    bool whole;
    struct sched_cluster_options options;
    struct sched_event event;
    uint64_t hashes[SCHED_PREFIX_MAX]; /* of the event */
    struct sched_actions actions;      /* `more` is not in the text */
};

/* ST_INVALID: not such a line; the error says what is wrong with it. */
enum status event_text_read(const char *line, size_t bytes, struct event_line *out,
                            struct error *error);

#endif
