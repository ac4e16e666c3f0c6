/* metrics: every figure that /metrics shows, and its text in Prometheus' exposition format 0.0.4.
 * Numbers only: the gateway and the HTTP side report facts as they happen, machines' figures are
 * the last STATS that came in; rendering asks nobody and takes no lock. One loop thread owns it:
 * the one that runs gateway and HTTP.
 *
 * Who stamps what: all times of a request come from the gateway (struct request_life, and what
 * machines measured of themselves); HTTP reports its response codes and nothing else. A request
 * here is one answer: a completion with n = 3 is three. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "common/config.h"
#include "common/status.h"
#include "transport/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api_keys; /* server/api_keys.h */
struct metrics;

/* The config names machines and pools (kept); model_name is a label (copied). keys: whose counters
 * are shown as well (kept); NULL: nobody's. */
enum status metrics_open(const struct config *config, const char *model_name,
                         const struct api_keys *keys, struct metrics **out);
void metrics_close(struct metrics *m); /* NULL is fine */

/* ---- the HTTP side calls ---- */

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* A response with this status code was sent in full, or as far as its client stayed. */
void metrics_http_done(struct metrics *m, unsigned code);

/* The whole page, NUL-terminated (the caller frees it), or NULL when memory is short. */
char *metrics_render(const struct metrics *m, size_t *bytes_out);

/* ---- the gateway calls ---- */

/* The phases of one request do not overlap: TTFT = queue + reserve + prompt + the wires between;
 * exposed transfer and first decode lie between the first and the second token. */
enum metrics_time {
    METRICS_QUEUE,        /* arrival → prompt batch began, less METRICS_RESERVE */
    METRICS_RESERVE,      /* RESERVE sent → the token machine had KV memory for it */
    METRICS_PROMPT,       /* prompt batch began → first token sampled */
    METRICS_EXPOSED,      /* first token sampled → all KV at the token machine */
    METRICS_TRANSFER,     /* first KV write → all KV at the token machine */
    METRICS_FIRST_DECODE, /* KV there → the second token sampled (wait for a batch, and that batch)
                           */
    METRICS_TTFT,         /* arrival → first token at the gateway */
    METRICS_INTER_TOKEN,  /* a token → the next one, at the gateway */
    METRICS_E2E,          /* arrival → end */
    METRICS_WAIT,         /* METRICS_QUEUE + METRICS_RESERVE: vLLM's "queue" */
    METRICS_DECODE,       /* first token → last token */
    METRICS_PER_TOKEN,    /* METRICS_DECODE / (tokens − 1): one figure per request */
    METRICS_TIME_COUNT
};

void metrics_time_add(struct metrics *m, enum metrics_time which, int64_t us);

enum metrics_reason {
    METRICS_STOP,
    METRICS_LENGTH,
    METRICS_ABORT,
    METRICS_ERROR,
    METRICS_REASON_COUNT
};

void metrics_request_ended(struct metrics *m, enum metrics_reason reason);
void metrics_request_refused(struct metrics *m);
void metrics_request_resumed(struct metrics *m);
void metrics_request_handed_over(struct metrics *m);
void metrics_prompt_tokens_add(struct metrics *m, uint64_t tokens);
void metrics_generated_tokens_add(struct metrics *m, uint64_t tokens);

/* Open requests now: all of them; those that no machine has begun; those that wait in the cluster
 * scheduler. */
void metrics_open_set(struct metrics *m, uint32_t open, uint32_t waiting, uint32_t unrouted);
/* Lines of the event log, if there is one. */
void metrics_events_set(struct metrics *m, bool has_log, uint64_t written, uint64_t dropped);
/* A model that is served, as METRICS_VERSIONS at most are at a time. */
#define METRICS_VERSIONS 2
struct metrics_version {
    uint32_t number; /* 0: none */
    char name[64];
    const char *state; /* kept */
    uint32_t open;     /* requests */
    uint64_t total;
};
void metrics_versions_set(struct metrics *m,
                          const struct metrics_version versions[METRICS_VERSIONS]);
/* The label of what vLLM's names show, from now on. */
void metrics_model_set(struct metrics *m, const char *model_name);
/* When the certificate ends to be valid (seconds since 1970; 0: there is none). */
void metrics_certificate_set(struct metrics *m, int64_t expires);
/* A request of so many prompt tokens has ended well, with so many of its answer. */
void metrics_request_sizes(struct metrics *m, uint32_t prompt_tokens, uint32_t generated_tokens);
void metrics_machine_up_set(struct metrics *m, uint32_t machine, bool up);
/* The machine is taken out: nothing of it is shown, and its index is free. */
void metrics_machine_forget(struct metrics *m, uint32_t machine);
/* 0 prompt, 1 token, 2 mixed: where the machine is now; a change counts as a move. */
void metrics_machine_pool_set(struct metrics *m, uint32_t machine, uint32_t pool);
void metrics_link_set(struct metrics *m, uint32_t prompt, uint32_t token, bool up,
                      const char *path);
/* What other gateways have on the machine; all zero: not connected. */
void metrics_others_set(struct metrics *m, uint32_t machine, const struct message_others *others);
void metrics_gateway_name_set(struct metrics *m, const char *name);
void metrics_leads_set(struct metrics *m, bool leads); /* it does unless told otherwise */
/* Counters of a machine that has restarted continue from where its predecessor stood. */
/* Of a machine's stages. */
void metrics_loads_set(struct metrics *m, uint32_t machine, const struct message_loads *loads);
void metrics_stats_set(struct metrics *m, uint32_t machine, const struct message_stats *stats);

#endif
