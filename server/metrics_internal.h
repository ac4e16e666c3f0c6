/* metrics_internal: private to metrics.c (input), metrics_render.c (the page), and
 * metrics_versions.c, metrics_stages.c and metrics_others.c (parts of the page). Everything runs on
 * the gateway's loop thread. */
#ifndef SERVER_METRICS_INTERNAL_H
#define SERVER_METRICS_INTERNAL_H

#include "common/histogram.h"
#include "server/metrics.h"
#include "server/text.h"

#define METRICS_HTTP_CODES 600

struct metrics_machine {
    bool up;
    bool pool_known;
    uint32_t pool;
    uint64_t moves;
    bool gauges_known; /* `last` belongs to the process that is connected now. */
    bool counters_known;
    struct message_stats last;
    struct message_stats carried; /* Counters of its earlier processes. */
    uint32_t load_count;          /* 0 = no stages. */
    struct message_load *loads;
};

/* The transport of a link is one of a few texts, so a link is stored as a byte: there are
 * LIMIT_MACHINES² of them. */
#define METRICS_PATHS 64

/* UP + i = up, with path text i */
enum { METRICS_LINK_UNKNOWN, METRICS_LINK_DOWN, METRICS_LINK_UP };

struct metrics {
    const struct fleet *fleet;
    const struct api_keys *keys;
    char model_name[64];
    char gateway_name[LIMIT_NAME_BYTES];
    bool follows; /* Another gateway leads. */
    struct metrics_version versions[METRICS_VERSIONS];
    struct histogram times[METRICS_TIME_COUNT]; /* In seconds. */
    struct histogram prompt_sizes;              /* In tokens. */
    struct histogram answer_sizes;
    bool has_events;
    uint64_t events_written;
    uint64_t events_dropped;
    int64_t certificate_expires;
    uint64_t http_codes[METRICS_HTTP_CODES]; /* [0] counts codes out of range. */
    uint64_t ended[METRICS_REASON_COUNT];
    uint64_t refused;
    uint64_t resumed;
    uint64_t handed_over;
    uint64_t prompt_tokens;
    uint64_t generated_tokens;
    uint32_t open;
    uint32_t waiting;
    uint32_t unrouted;
    struct metrics_machine machines[LIMIT_MACHINES];
    struct message_stats forgotten; /* Counters of removed machines, which sums keep. */
    uint32_t path_count;
    char paths[METRICS_PATHS][64];
    uint8_t links[LIMIT_MACHINES][LIMIT_MACHINES];
};

/* A machine's counters summed over all its processes; its gauges are the latest. */
struct message_stats metrics_counters(const struct metrics *m, uint32_t machine);

/* metrics_render.c */
void metrics_family(struct text *out, const char *name, const char *type, const char *help);
void metrics_label_add(struct text *out, const char *before, const char *name, const char *value);
/* machine="…",pool="…" */
void metrics_machine_labels(struct text *out, const struct metrics *m, uint32_t machine);
void metrics_value_add(struct text *out, double value); /* " VALUE\n" */
void metrics_machine_sample(struct text *out, const struct metrics *m, const char *name,
                            uint32_t machine, double value);

/* metrics_versions.c */
void metrics_versions_render(struct text *out, const struct metrics *m);

/* metrics_stages.c */
void metrics_stages_render(struct text *out, const struct metrics *m);
void metrics_stages_close(struct metrics *m);

/* metrics_others.c */
void metrics_others_render(struct text *out, const struct metrics *m);

#endif
