/* replay_options: the command line of `cleave replay`. */
#ifndef TOOLS_REPLAY_OPTIONS_H
#define TOOLS_REPLAY_OPTIONS_H

#include "common/options.h"
#include "tools/replay/prompt.h"
#include "tools/trace/window.h"

#include <stdbool.h>
#include <stdint.h>

/* Texts point into argv or are literals; NULL = not given. */
struct replay_options {
    const char *trace;
    const char *url;
    const char *model;
    const char *api_key;      /* As given, then `key`; NULL = none. */
    const char *api_key_file; /* NULL = none. */
    char key[8192];
    const char *out;
    const char *compare;
    const char *slo_reference;
    double start_s;
    double duration_s; /* 0 = to the end. */
    double rate_scale;
    double length_scale;
    double timeout_s;
    double slo_ttft_ms;
    double slo_tbt_ms;
    double slo_e2e_ms;
    uint64_t requests;    /* 0 = all. */
    uint64_t max_context; /* 0 = what the server reports. */
    uint64_t id_low;
    uint64_t id_high;
    uint64_t seed;
    enum trace_format format;
    enum { REPLAY_BAD_ROW_REFUSE, REPLAY_BAD_ROW_SKIP } on_bad_row;
    enum { REPLAY_API_COMPLETIONS, REPLAY_API_CHAT } api;
    enum trace_fit fit;
    enum replay_prompt_kind prompt;
    bool json;
};

extern const struct option_table replay_options_table;

#endif
