/* replay_options: the command line of `cleave replay`, as values. replay.c owns the struct, and
 * fills it from the table on the main thread (options_start). This part opens only the file of
 * --api-key-file, not the trace or the outputs. */
#ifndef TOOLS_REPLAY_OPTIONS_H
#define TOOLS_REPLAY_OPTIONS_H

#include "common/options.h"
#include "tools/replay/prompt.h"
#include "tools/trace/window.h"

#include <stdbool.h>
#include <stdint.h>

/* Texts are valid until the process ends, except api_key, which may point to api_key_copy. */
struct replay_options {
    const char *trace; /* File, "-" (standard input) or synthetic workload (trace.h). */
    const char *url;   /* Base URL of the server, without /v1. */
    const char *model; /* NULL = the first model that the server lists. */
    /* Key of --api-key, of api_key_file or of $OPENAI_API_KEY; NULL = none. */
    const char *api_key;
    const char *api_key_file;  /* File that has the key; NULL = none. */
    char api_key_copy[8192];   /* Copy of a key of --api-key or the file; api_key points to it. */
    const char *out;           /* File for a CSV row per request; NULL = none. */
    const char *compare;       /* File with predicted times (comparison.h); NULL = none. */
    const char *slo_reference; /* File with times without contention (comparison.h); NULL = none. */
    double start_s;            /* Seconds of the trace that are skipped. */
    double duration_s;         /* Seconds of the trace that are replayed; 0 = to the end. */
    double rate_scale;         /* 2 = twice as fast as the trace. */
    double length_scale;       /* Factor on the lengths of prompts and answers. */
    double timeout_s;          /* Most seconds of a request. */
    double slo_ttft_ms;        /* Limit of TTFT for goodput; 0 = none. */
    double slo_tbt_ms;         /* Limit of a request's mean TBT for goodput; 0 = none. */
    double slo_e2e_ms;         /* Limit of E2E for goodput; 0 = none. */
    uint64_t requests;         /* Largest number of requests; 0 = all. */
    uint64_t max_context;      /* Most tokens of prompt and answer; 0 = what the server reports. */
    uint64_t id_low;           /* Smallest token id of a prompt. */
    uint64_t id_high;          /* Largest token id of a prompt. */
    uint64_t seed;             /* Seed of prompts and of a synthetic workload. */
    enum trace_format format;  /* Format of the trace. */
    /* A wrong row of the trace ends the sending, or is skipped. */
    enum { REPLAY_BAD_ROW_REFUSE, REPLAY_BAD_ROW_SKIP } on_bad_row;
    enum { REPLAY_API_COMPLETIONS, REPLAY_API_CHAT } api; /* Kind of the requests. */
    enum trace_fit fit; /* How a request with more than max_context tokens is changed. */
    enum replay_prompt_kind prompt;
    bool json; /* Write the results as JSON to standard output, and the report to standard error. */
};

extern const struct option_table replay_options_table;

#endif
