/* metrics: collects the figures of /metrics, and writes them in Prometheus' exposition format
 * 0.0.4. server/gateway/, server/http/ and server/serve*.c report the figures, on the gateway's
 * event loop thread. The part measures nothing except the gateway's process, and keeps no history
 * except for the search for problems. A request here is one answer: a completion with n = 3 counts
 * as three requests. */
#ifndef SERVER_METRICS_METRICS_H
#define SERVER_METRICS_METRICS_H

#include "common/counters.h"
#include "common/status.h"
#include "common/text.h"
#include "server/fleet/fleet.h"
#include "transport/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api_keys; /* See server/api/keys.h. */
struct metrics;

/* Opens metrics with all figures 0. fleet: the machines; not owned. model_name: label of the
 * metrics that have the names of vLLM's metrics; copied. keys: API keys whose counters are on the
 * page, too; not owned, NULL = none. Returns ST_NO_MEMORY on failure. */
enum status metrics_open(const struct fleet *fleet, const char *model_name,
                         const struct api_keys *keys, struct metrics **out);
void metrics_close(struct metrics *m); /* NULL is fine. */

/* Content-Type of /metrics. */
#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Counts a response with this status code, also if the client left before the response's end. */
void metrics_http_done(struct metrics *m, unsigned code);

/* Returns the page of /metrics, NUL-terminated; the caller frees it. NULL = no memory. */
char *metrics_render(const struct metrics *m, size_t *bytes_out);

/* Looks for problems (problems.h), at most once a second. Returns the milliseconds until the next
 * call. unix_s: Unix time. */
int metrics_problems_turn(struct metrics *m, int64_t now_us, int64_t unix_s);
/* Appends the present problems as JSON objects, separated by commas, the worst first. Members: name
 * (of the alarm), severity, where, what, since_s, what_to_do, page. */
void metrics_problems_write(const struct metrics *m, int64_t now_us, struct text *out);

/* The intervals of a request. QUEUE + RESERVE + PROMPT is TTFT without the time on the network. The
 * second token is sampled EXPOSED + FIRST_DECODE after the first token. EXPOSED, TRANSFER and
 * FIRST_DECODE are counted in each attempt of a resumed request. */
enum metrics_time {
    METRICS_QUEUE,        /* arrival → prompt batch began, minus METRICS_RESERVE */
    METRICS_RESERVE,      /* RESERVE sent → the token machine had KV memory for the request */
    METRICS_PROMPT,       /* prompt batch began → first token sampled */
    METRICS_EXPOSED,      /* first token sampled → all KV at the token machine */
    METRICS_TRANSFER,     /* first KV write → all KV at the token machine */
    METRICS_FIRST_DECODE, /* all KV at the token machine → second token sampled */
    METRICS_TTFT,         /* arrival → first token at the gateway */
    METRICS_INTER_TOKEN,  /* a token → the next token, at the gateway */
    METRICS_E2E,          /* arrival → end */
    METRICS_WAIT,         /* METRICS_QUEUE + METRICS_RESERVE: vLLM's "queue" */
    METRICS_DECODE,       /* first token → last token */
    METRICS_PER_TOKEN,    /* METRICS_DECODE / (tokens − 1) */
    METRICS_TIME_COUNT
};

/* Counts one interval of `us` microseconds. */
void metrics_time_add(struct metrics *m, enum metrics_time interval, int64_t us);

/* How a request ended. */
enum metrics_reason {
    METRICS_STOP,   /* An end token or a stop string ended the answer. */
    METRICS_LENGTH, /* The answer reached its length limit, or no answer was wanted. */
    METRICS_ABORT,  /* The rest of the answer was no longer wanted. */
    METRICS_ERROR,  /* The request ended with an error. */
    METRICS_REASON_COUNT
};

void metrics_request_ended(struct metrics *m, enum metrics_reason reason);

/* Why a request was refused. */
enum metrics_refusal {
    METRICS_REFUSED_QUEUE,     /* Too many requests wait in the gateway or on a machine. */
    METRICS_REFUSED_OPEN,      /* The gateway has LIMIT_CLUSTER_REQUESTS open requests. */
    METRICS_REFUSED_LATE,      /* The first token would come later than the SLO allows. */
    METRICS_REFUSED_TOO_LONG,  /* The first token would be too late even on an idle cluster. */
    METRICS_REFUSED_TOO_LARGE, /* The request is larger than the KV memory of any machine. */
    METRICS_REFUSED_WAIT,      /* The wait would be, or was, longer than scheduler/queue_ms. */
    METRICS_REFUSAL_COUNT
};

void metrics_request_refused(struct metrics *m, enum metrics_refusal refusal);

/* The limits of the config's `slo`. */
enum metrics_slo { METRICS_SLO_TTFT, METRICS_SLO_TBT, METRICS_SLO_COUNT };

/* Sets the limits, which become bounds of histograms. If a limit has changed, the histograms that
 * have it as a bound start again at 0. */
void metrics_slo_set(struct metrics *m, uint32_t ttft_ms, uint32_t tbt_ms);
/* Counts an answer that has ended. failed: the answer ended with an error, so it misses both
 * limits, and the times are not read. ttft_us: time to the first token. tbt_us: mean time between
 * tokens; 0 = the answer has one token. */
void metrics_slo_answer_add(struct metrics *m, bool failed, int64_t ttft_us, int64_t tbt_us);
/* Sets the factors by which the traffic can grow before the SLO is missed. factors[i]: for part i
 * of enum headroom_part (scheduler/headroom.h). NULL = the factors are not known, and are not on
 * the page. */
void metrics_headroom_set(struct metrics *m, const double *factors);
/* Counts an iteration of the event loop that took `us` microseconds without its sleep. */
void metrics_iteration_add(struct metrics *m, int64_t us);
/* Records whether the start, or the latest reload, succeeded. unix_s: Unix time of the event. */
void metrics_reload_set(struct metrics *m, bool succeeded, int64_t unix_s);
/* Sets whether etcd answers. Before the first call the page has no metrics of etcd. */
void metrics_etcd_set(struct metrics *m, bool up);

/* The gateway's own counters and gauges. */
#define METRICS_VALUE(name, ...) METRICS_##name,
enum metrics_value { GATEWAY_COUNTERS(METRICS_VALUE) METRICS_VALUE_COUNT };
#undef METRICS_VALUE

void metrics_counter_add(struct metrics *m, enum metrics_value counter, uint64_t amount);
/* Sets a value. METRICS_CERTIFICATE_EXPIRES is in seconds since 1970; 0 = no certificate. */
void metrics_value_set(struct metrics *m, enum metrics_value gauge, uint64_t value);

/* Sets how many lines the event log has written and dropped. has_log = false: there is no event
 * log. */
void metrics_events_set(struct metrics *m, bool has_log, uint64_t written, uint64_t dropped);
#define METRICS_VERSIONS 2 /* Most models that are served at a time. */
/* A served model (*version*). */
struct metrics_version {
    uint32_t number;   /* 0 = none. */
    char name[64];     /* The model's name. */
    const char *state; /* Such as "serving"; not owned. */
    uint32_t open;     /* Open requests. */
    uint64_t total;    /* Requests of the version so far. */
};
/* Sets the served models. */
void metrics_versions_set(struct metrics *m,
                          const struct metrics_version versions[METRICS_VERSIONS]);
/* Sets the model label of the metrics that have the names of vLLM's metrics. */
void metrics_model_set(struct metrics *m, const char *model_name);
/* Records the sizes of a request that ended normally. */
void metrics_request_sizes(struct metrics *m, uint32_t prompt_tokens, uint32_t generated_tokens);
/* Sets whether the machine is connected. */
void metrics_machine_up_set(struct metrics *m, uint32_t machine, bool up);
/* Forgets a machine that is removed. Its counters stay in the sums over all machines. */
void metrics_machine_forget(struct metrics *m, uint32_t machine);
/* Sets the machine's current pool (enum pool). A change counts as a move. */
void metrics_machine_pool_set(struct metrics *m, uint32_t machine, uint32_t pool);
/* Sets the state of the link over which machine `prompt` writes KV to machine `token`. path: a text
 * that says how KV moves; not read if the link is not up. */
void metrics_link_set(struct metrics *m, uint32_t prompt, uint32_t token, bool up,
                      const char *path);
/* Sets the measured bandwidth of the link from machine `prompt` to machine `token`. */
void metrics_link_speed_set(struct metrics *m, uint32_t prompt, uint32_t token,
                            uint64_t bytes_per_s);
void metrics_gateway_name_set(struct metrics *m, const char *name);
/* Sets whether this gateway leads (server/gateway/internal.h); true before the first call. */
void metrics_leads_set(struct metrics *m, bool leads);
/* Stores a machine's LOADS: the loads of its stage processes. */
void metrics_loads_set(struct metrics *m, uint32_t machine, const struct message_loads *loads);
/* Stores a machine's ABOUT. */
void metrics_about_set(struct metrics *m, uint32_t machine, const struct message_about *about);
/* Stores a machine's STATS. On the page, the counters of a restarted machine continue from their
 * old values. */
void metrics_stats_set(struct metrics *m, uint32_t machine, const struct message_stats *stats);

#endif
