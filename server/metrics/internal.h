/* metrics_internal: the structs and functions that the files of server/metrics/ share. metrics.c:
 * input. render.c: the page. versions.c, kv.c, stages.c, others.c, slo.c, process.c: parts of the
 * page. problems.c: the present problems. Only these files include it; callers use metrics.h.
 * Everything runs on the gateway's event loop thread. Only process.c measures something: its own
 * process, for each page and every 10 s for problems.c. */
#ifndef SERVER_METRICS_INTERNAL_H
#define SERVER_METRICS_INTERNAL_H

#include "common/histogram.h"
#include "common/text.h"
#include "server/metrics/metrics.h"

#define METRICS_HTTP_CODES 600

/* The figures of one machine, from its latest STATS and from the gateway. */
struct metrics_machine {
    bool up;                    /* The machine is connected. */
    bool pool_known;            /* `pool` was set. */
    uint32_t pool;              /* Current pool, as in metrics_machine_pool_set. */
    uint64_t moves;             /* Changes of `pool`. */
    uint64_t losses;            /* Changes of `up` to false. */
    bool gauges_known;          /* `latest_stats` belongs to the process that is connected now. */
    bool counters_known;        /* A STATS has arrived. */
    struct message_about about; /* The latest ABOUT; empty texts = none. */
    struct message_stats latest_stats; /* The latest STATS. */
    /* Sums of the counters of the machine's earlier processes. */
    struct message_stats earlier_counters;
    uint32_t load_count;        /* Number of `loads`; 0 = no stages. */
    struct message_load *loads; /* The latest loads of the stage processes. */
};

/* The transport of a link is one of a few texts, so a link is stored as a byte: there are
 * LIMIT_MACHINES² of them. */
#define METRICS_PATHS 64

/* Values of `links`. METRICS_LINK_UP + i = up, over the transport paths[i]. */
enum { METRICS_LINK_UNKNOWN, METRICS_LINK_DOWN, METRICS_LINK_UP };

struct metrics_problems; /* See problems.c. */

struct metrics {
    struct metrics_problems *problems;
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
    bool has_etcd;
    bool reloaded;                   /* METRICS_RELOAD_GOOD was set. */
    struct histogram iterations;     /* Times of the event loop's iterations, in seconds. */
    uint64_t stalls;                 /* Iterations of more than a second. */
    int64_t stall_us;                /* The latest of these. */
    double slo_s[METRICS_SLO_COUNT]; /* The limits of the config; 0 = not set. */
    bool headroom_known;
    double headroom[METRICS_SLO_COUNT + 1];         /* In the order of slo_answers. */
    uint64_t slo_answers[METRICS_SLO_COUNT + 1][2]; /* [slo][met]; the last row: both limits. */
    uint64_t refused[METRICS_REFUSAL_COUNT];
    uint64_t values[METRICS_VALUE_COUNT];
    uint64_t http_codes[METRICS_HTTP_CODES]; /* [0] counts codes out of range. */
    uint64_t ended[METRICS_REASON_COUNT];
    struct metrics_machine machines[LIMIT_MACHINES];
    /* Counters of removed machines, for sums over all machines. */
    struct message_stats removed_counters;
    uint32_t path_count;
    char paths[METRICS_PATHS][64];
    uint8_t links[LIMIT_MACHINES][LIMIT_MACHINES];
    float link_bytes_per_s[LIMIT_MACHINES][LIMIT_MACHINES]; /* 0 = not measured. */
};

/* Bounds of histograms of times: four buckets per decade, from ten microseconds (a short transfer
 * through shared memory) to three minutes (a prompt in a long queue). Every percentile is known to
 * within 78 %, and much better with interpolation. */
#define METRICS_TIME_FIRST_S 0.00001
#define METRICS_TIME_FACTOR  1.7782794100389228
#define METRICS_TIME_BUCKETS 30

/* Returns a machine's counters, summed over all its processes, and its latest gauges. */
struct message_stats metrics_counters(const struct metrics *m, uint32_t machine);

/* The groups of families that common/counters.h names. The groups of a machine follow each other on
 * the page in this order. */
enum metrics_group {
    METRICS_GROUP_HIDDEN, /* Not on the page, or a part of another family. */
    METRICS_GROUP_LOAD,
    METRICS_GROUP_WORK,
    METRICS_GROUP_SENT,
    METRICS_GROUP_TRANSFERS,
    METRICS_GROUP_COPIES,
    METRICS_GROUP_REQUESTS, /* Labelled as vLLM does. */
    METRICS_GROUP_ROUTING,
    METRICS_GROUP_EVENTS,      /* Only with an event log. */
    METRICS_GROUP_CERTIFICATE, /* Only with a certificate. */
    METRICS_GROUP_ETCD,        /* Only with etcd. */
    METRICS_GROUP_RELOAD,
};

/* A family whose values are a field of a struct. */
struct metrics_row {
    uint32_t bits; /* Width of the field: 32 or 64. */
    size_t offset; /* Offset of the field. */
    double factor; /* Converts the field's unit to the family's. */
    enum metrics_group group;
    const char *type;
    const char *family;
    const char *help;
};

#define METRICS_ROW(bits, offset, kind, group, factor, family, help)                               \
    {bits, offset, factor, METRICS_GROUP_##group, COUNTER_TYPE_##kind, family, help},

/* ---- problems.c ---- */

enum status metrics_problems_open(struct metrics *m);
void metrics_problems_close(struct metrics *m);
/* Forgets the problems of a machine that was removed. */
void metrics_problems_forget(struct metrics *m, uint32_t machine);

/* ---- render.c ---- */

/* Returns the value of the label `reason`. */
const char *metrics_refusal_name(enum metrics_refusal refusal);

/* Returns the row's value in the struct `values`, in the family's unit. */
double metrics_row_value(const struct metrics_row *row, const void *values);
/* Appends the lines HELP and TYPE of a family. */
void metrics_family(struct text *out, const char *name, const char *type, const char *help);
/* Appends `before`, then NAME="VALUE" with escapes. */
void metrics_label_add(struct text *out, const char *before, const char *name, const char *value);
/* Appends machine="…",pool="…". */
void metrics_machine_labels(struct text *out, const struct metrics *m, uint32_t machine);
/* Appends " VALUE\n". */
void metrics_value_add(struct text *out, double value);
/* Appends a whole line of a family, with vLLM's labels. */
void metrics_vllm_sample(struct text *out, const struct metrics *m, const char *name, double value);
/* Appends a whole line of a family, with the labels of a machine. */
void metrics_machine_sample(struct text *out, const struct metrics *m, const char *name,
                            uint32_t machine, double value);

/* Appends the bound of a bucket as the label `le` has it: "0.3162", "0.5". */
void metrics_bound_write(double bound, char out[32]);

/* Each render function appends its part of the page. */

/* slo.c */
void metrics_slo_render(struct text *out, const struct metrics *m);

/* process.c */
void metrics_process_render(struct text *out, const struct metrics *m);
/* Returns the gateway's open files as a part of the most that it may have; 0 = not known. */
double metrics_process_files(void);

/* versions.c */
void metrics_versions_render(struct text *out, const struct metrics *m);

/* kv.c */
/* Returns the share of the token machines' KV blocks that are in use (1 = all). */
double metrics_kv_usage(const struct metrics *m);
void metrics_kv_render(struct text *out, const struct metrics *m);

/* stages.c */
void metrics_stages_render(struct text *out, const struct metrics *m);
void metrics_stages_close(struct metrics *m);

/* others.c */
void metrics_others_render(struct text *out, const struct metrics *m);

#endif
