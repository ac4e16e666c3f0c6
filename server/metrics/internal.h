/* metrics_internal: the structs and functions that the files of server/metrics/ share. Callers use
 * metrics.h. Everything runs on the gateway's event loop thread. These files measure nothing except
 * the gateway's own process. */
#ifndef SERVER_METRICS_INTERNAL_H
#define SERVER_METRICS_INTERNAL_H

#include "common/histogram.h"
#include "common/text.h"
#include "server/metrics/metrics.h"

#define METRICS_HTTP_CODES 600

/* The figures of one machine. */
struct metrics_machine {
    bool up;                           /* The machine is connected. */
    bool pool_known;                   /* `pool` was set. */
    uint32_t pool;                     /* Current pool, as in metrics_machine_pool_set. */
    uint64_t moves;                    /* Changes of `pool`. */
    uint64_t losses;                   /* Changes of `up` to false. */
    bool gauges_known;                 /* STATS has arrived since metrics_machine_up_set. */
    bool counters_known;               /* STATS has arrived. */
    struct message_about about;        /* The latest ABOUT; empty texts = none. */
    struct message_stats latest_stats; /* The latest STATS. */
    /* Sums of the counters of the machine's earlier processes. */
    struct message_stats earlier_counters;
    uint32_t load_count;        /* Number of `loads`; 0 = no stages, or not known. */
    struct message_load *loads; /* The latest loads of the stage processes. */
};

/* Most texts in metrics.paths; further texts count as the last one. */
#define METRICS_PATHS 64

/* Values in metrics.links. METRICS_LINK_UP + i = the link is up; paths[i] says how KV moves. */
enum { METRICS_LINK_UNKNOWN, METRICS_LINK_DOWN, METRICS_LINK_UP };

struct metrics_problems; /* See problems.c. */

struct metrics {
    struct metrics_problems *problems;
    const struct fleet *fleet;
    const struct api_keys *keys;
    char model_name[64];
    char gateway_name[LIMIT_NAME_BYTES];
    bool follows; /* Another gateway leads (metrics_leads_set). */
    struct metrics_version versions[METRICS_VERSIONS];
    struct histogram times[METRICS_TIME_COUNT]; /* In seconds. */
    struct histogram prompt_sizes;              /* In tokens. */
    struct histogram answer_sizes;              /* In tokens. */
    bool has_events;                            /* There is an event log. */
    bool has_etcd;                              /* metrics_etcd_set was called. */
    bool reloaded;                              /* metrics_reload_set was called. */
    struct histogram iterations;            /* Times of the event loop's iterations, in seconds. */
    uint64_t stalls;                        /* Number of iterations of more than a second. */
    int64_t stall_us;                       /* Duration of the latest iteration in `stalls`. */
    double slo_s[METRICS_SLO_COUNT];        /* See metrics_slo_set, in seconds. */
    bool headroom_known;                    /* `headroom` is set. */
    double headroom[METRICS_SLO_COUNT + 1]; /* See metrics_headroom_set. */
    /* [limit][0]: answers that missed the limit; [limit][1]: answers that met the limit. Last row:
     * all limits together. */
    uint64_t slo_answers[METRICS_SLO_COUNT + 1][2];
    uint64_t refused[METRICS_REFUSAL_COUNT];
    uint64_t values[METRICS_VALUE_COUNT];
    uint64_t http_codes[METRICS_HTTP_CODES]; /* Responses by status code; [0] = codes from 600. */
    uint64_t ended[METRICS_REASON_COUNT];
    struct metrics_machine machines[LIMIT_MACHINES];
    /* Counters of removed machines, for sums over all machines. */
    struct message_stats removed_counters;
    uint32_t path_count;
    char paths[METRICS_PATHS][64];                          /* Texts of metrics_link_set. */
    uint8_t links[LIMIT_MACHINES][LIMIT_MACHINES];          /* [prompt machine][token machine] */
    float link_bytes_per_s[LIMIT_MACHINES][LIMIT_MACHINES]; /* Same indices; 0 = not measured. */
};

/* Bounds of histograms of times: four per decade, from 10 µs to 3 minutes. */
#define METRICS_TIME_FIRST_S 0.00001
#define METRICS_TIME_FACTOR  1.7782794100389228
#define METRICS_TIME_BUCKETS 30

/* Returns a machine's counters, summed over its processes so far, and its latest gauges. */
struct message_stats metrics_counters(const struct metrics *m, uint32_t machine);

/* Groups of metric families (common/counters.h). A *family* is what Prometheus calls the samples of
 * one metric. The page has the families of machines in the order of the groups LOAD to METERS. */
enum metrics_group {
    METRICS_GROUP_HIDDEN, /* No family: the value is not on the page, or is in another family. */
    METRICS_GROUP_LOAD,
    METRICS_GROUP_WORK,
    METRICS_GROUP_SENT,
    METRICS_GROUP_TRANSFERS,
    METRICS_GROUP_COPIES,
    METRICS_GROUP_METERS,   /* Meters of machines. A value of 0 is unknown and has no sample. */
    METRICS_GROUP_REQUESTS, /* With vLLM's labels. */
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
    double factor; /* Value of the family / value of the field. */
    enum metrics_group group;
    const char *type;   /* Text after TYPE, such as "counter". */
    const char *family; /* Name of the family. */
    const char *help;   /* Text after HELP. */
};

#define METRICS_ROW(bits, offset, kind, group, factor, family, help)                               \
    {bits, offset, factor, METRICS_GROUP_##group, COUNTER_TYPE_##kind, family, help},

/* ---- problems.c ---- */

/* Opens m->problems. Returns ST_NO_MEMORY on failure. */
enum status metrics_problems_open(struct metrics *m);
void metrics_problems_close(struct metrics *m);
/* Forgets the problems of a removed machine. */
void metrics_problems_forget(struct metrics *m, uint32_t machine);

/* ---- render.c ---- */

/* Returns the text for a reason of refusal on the page. */
const char *metrics_refusal_name(enum metrics_refusal refusal);

/* Returns true if the page shows the machine's value of a family of this type. Counters of a
 * machine that is down stay on the page, gauges do not. */
bool metrics_value_known(const struct metrics_machine *machine, const char *type);
/* Returns the row's value in the struct `values`, in the family's unit. */
double metrics_row_value(const struct metrics_row *row, const void *values);
/* Appends the lines HELP and TYPE of a family. */
void metrics_family(struct text *out, const char *name, const char *type, const char *help);
/* Appends `before`, then NAME="VALUE" with escapes. */
void metrics_label_add(struct text *out, const char *before, const char *name, const char *value);
/* Appends machine="…",pool="…", with the pool of the machine's config. */
void metrics_machine_labels(struct text *out, const struct metrics *m, uint32_t machine);
/* Appends " VALUE\n". */
void metrics_value_add(struct text *out, double value);
/* Appends a line of a family, with vLLM's labels. */
void metrics_vllm_sample(struct text *out, const struct metrics *m, const char *name, double value);
/* Appends a line of a family, with the labels of a machine. */
void metrics_machine_sample(struct text *out, const struct metrics *m, const char *name,
                            uint32_t machine, double value);

/* Writes the bound of a bucket as the value of the label `le`, such as "0.3162" or "0.5". */
void metrics_bound_write(double bound, char out[32]);

/* The functions …_render append parts of the page. */

/* slo.c */
void metrics_slo_render(struct text *out, const struct metrics *m);

/* process.c */
void metrics_process_render(struct text *out, const struct metrics *m);
/* Returns the gateway's number of open files, divided by its limit; 0 = not known. */
double metrics_process_files(void);

/* versions.c */
void metrics_versions_render(struct text *out, const struct metrics *m);

/* kv.c */
/* Returns the share of KV blocks that are neither free nor cached, of the machines whose current
 * pool is token or mixed; 1 = all. */
double metrics_kv_usage(const struct metrics *m);
void metrics_kv_render(struct text *out, const struct metrics *m);

/* stages.c */
void metrics_stages_render(struct text *out, const struct metrics *m);
void metrics_stages_close(struct metrics *m);

/* others.c */
void metrics_others_render(struct text *out, const struct metrics *m);

#endif
