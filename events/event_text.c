/* event_text: see the header. Each field of the scheduler's structs is one row of a table, used for
 * writing and reading. */
#include "events/event_text.h"

#include "common/json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct field {
    const char *name;
    size_t offset;
    size_t bytes; /* 1, 4 or 8 */
    bool is_signed;
    bool is_bool;
};

/* The names in the log stay when members of the structs are renamed. */
#define ROW_NAMED(type, member, text, sign)                                                        \
    {                                                                                              \
        .name = (text), .offset = offsetof(struct type, member),                                   \
        .bytes = sizeof(((struct type *)0)->member), .is_signed = sign,                            \
        .is_bool = _Generic(((struct type *)0)->member, bool                                       \
                            : true, default                                                        \
                            : false)                                                               \
    }
#define ROW(type, member, sign) ROW_NAMED(type, member, #member, sign)

static const struct field option_fields[] = {
    ROW(sched_cluster_options, request_count, false),
    ROW(sched_cluster_options, machine_count, false),
    ROW(sched_cluster_options, prefix_count, false),
    ROW(sched_cluster_options, queue_requests_max, false),
    ROW(sched_cluster_options, queue_us_max, true),
    ROW(sched_cluster_options, wait_us_max, true),
    ROW(sched_cluster_options, cover_after_us, true),
    ROW(sched_cluster_options, prompt_queue_threshold_tokens, false),
    ROW(sched_cluster_options, prompt_queue_threshold_unmeasured, false),
    ROW(sched_cluster_options, prompt_queue_threshold_us, true),
    ROW(sched_cluster_options, compare_time, false),
    ROW(sched_cluster_options, token_memory_threshold, false),
    ROW(sched_cluster_options, growth_reserve_percent, false),
    ROW(sched_cluster_options, growth_reserve_tokens, false),
    ROW_NAMED(sched_cluster_options, schedule_mean_answer, "answers_grow", false),
    ROW(sched_cluster_options, machine_kv_multiple, false),
    ROW(sched_cluster_options, machine_tokens_max, false),
    ROW(sched_cluster_options, machine_us_max, true),
    ROW(sched_cluster_options, machine_tokens_unmeasured, false),
    ROW(sched_cluster_options, ageing_us, true),
    ROW(sched_cluster_options, adaptive, false),
    ROW(sched_cluster_options, unsplit, false),
    ROW_NAMED(sched_cluster_options, busy_is_reported, "queues_told", false),
    ROW(sched_cluster_options, homing, false),
    ROW_NAMED(sched_cluster_options, lends_as_splitwise, "lent_stay", false),
    ROW_NAMED(sched_cluster_options, one_machine_routes, "together", false),
    ROW_NAMED(sched_cluster_options, one_machine_targets.ttft_us, "together_targets.ttft_us", true),
    ROW_NAMED(sched_cluster_options, one_machine_targets.tbt_us, "together_targets.tbt_us", true),
    ROW(sched_cluster_options, stay_tokens, false),
    ROW(sched_cluster_options, prefix_slack_tokens, false),
    ROW(sched_cluster_options, prefix_step_tokens, false),
    ROW(sched_cluster_options, prefix_saves, false),
    ROW(sched_cluster_options, ttft_us_max, true),
    ROW(sched_cluster_options, repurpose_window_us, true),
    ROW(sched_cluster_options, repurpose_interval_us_min, true),
    ROW(sched_cluster_options, repurpose_gain_percent_min, false),
};

#define TIER_ROW(KIND, kind, member)                                                               \
    ROW_NAMED(sched_event, tiers[TIER_KIND_##KIND].member, "tiers." #kind "." #member, false)
#define TIER_ROWS(KIND, kind)                                                                      \
    TIER_ROW(KIND, kind, works), TIER_ROW(KIND, kind, load_fixed_us),                              \
        TIER_ROW(KIND, kind, load_token_ns),

static const struct field event_fields[] = {
    /* without prefix: see prefix_add */
    ROW(sched_event, request, false),
    ROW(sched_event, prompt_tokens, false),
    ROW(sched_event, output_tokens, false),
    ROW(sched_event, resumed, false),
    ROW_NAMED(sched_event, key_index, "key", false),
    ROW(sched_event, weight, false),
    ROW(sched_event, priority, true),
    ROW(sched_event, held_tokens, false),
    ROW_NAMED(sched_event, holder_plus_1, "held", false),
    ROW(sched_event, identity, true),
    ROW(sched_event, machine, false),
    ROW(sched_event, peer, false),
    ROW(sched_event, pool, false),
    ROW(sched_event, busy, false),
    ROW(sched_event, prompt_tokens_per_s, false),
    ROW(sched_event, output_tokens_per_s, false),
    ROW(sched_event, host, false),
    ROW(sched_event, link.latency_us, false),
    ROW(sched_event, link.tokens_per_s, false),
    ROW(sched_event, link.error_percent, false),
    TIER_KINDS(TIER_ROWS) ROW(sched_event, step.fixed_ns, false),
    ROW(sched_event, step.row_ns, false),
    ROW(sched_event, kv_tokens, false),
    ROW(sched_event, mixed_kv_tokens, false),
    ROW(sched_event, kv.capacity_tokens, false),
    ROW(sched_event, kv.groups.count, false),
    ROW(sched_event, kv.groups.windowed, false),
    ROW(sched_event, kv.groups.window_tokens, false),
    ROW(sched_event, kv.block_tokens, false),
    ROW(sched_event, kv.kept_spans[0], false),
    ROW(sched_event, kv.kept_spans[1], false),
    ROW(sched_event, cores, false),
    ROW(sched_event, core_count, false),
    ROW(sched_event, threads, false),
    ROW(sched_event, others.prompt_tokens, false),
    ROW(sched_event, others.kv_tokens, false),
    ROW(sched_event, others.prompts, false),
    ROW(sched_event, others.decodes, false),
    ROW(sched_event, others.mixed, false),
    ROW(sched_event, others.arrived_answers, false),
    ROW(sched_event, others.arrived_prompt_tokens, false),
};

static const struct field action_fields[] = {
    ROW(sched_action, request, false),
    ROW(sched_action, machine, false),
    ROW_NAMED(sched_action, token_machine, "peer", false),
    ROW_NAMED(sched_action, refusal, "why", false),
    ROW(sched_action, pool, false),
    ROW(sched_action, home, false),
    ROW(sched_action, prefix_tokens, false),
    ROW(sched_action, load_tokens, false),
    ROW(sched_action, retry_after_ms, false),
    ROW_NAMED(sched_action, pull_source_plus_1, "pull", false),
    ROW(sched_action, decision.compute_us, false),
    ROW(sched_action, decision.keep_us, false),
    ROW(sched_action, decision.move_us, false),
    ROW(sched_action, decision.load_us, false),
    ROW(sched_action, decision.loaded_us, false),
    ROW(sched_action, decision.pull_us, false),
    ROW(sched_action, decision.computed_us, false),
};

static const char *const event_names[] = {
    [SCHED_ARRIVED] = "arrived",
    [SCHED_COMPUTED] = "computed",
    [SCHED_PREFILLED] = "prefilled",
    [SCHED_ENDED] = "ended",
    [SCHED_OVERDUE] = "overdue",
    [SCHED_MACHINE_UP] = "machine_up",
    [SCHED_MACHINE_DOWN] = "machine_down",
    [SCHED_LINK_UP] = "link_up",
    [SCHED_LINK_DOWN] = "link_down",
    [SCHED_LINK_SPEED] = "link_speed",
    [SCHED_MACHINE_HOST] = "machine_host",
    [SCHED_MACHINE_DRAIN] = "machine_drain",
    [SCHED_MACHINE_UNDRAIN] = "machine_undrain",
    [SCHED_MACHINE_HOME] = "machine_home",
    [SCHED_MACHINE_RATES] = "machine_rates",
    [SCHED_MACHINE_TIERS] = "machine_tiers",
    [SCHED_MACHINE_QUEUE] = "machine_queue",
    [SCHED_MACHINE_IDLE] = "machine_idle",
    [SCHED_MACHINE_LOAD] = "machine_load",
    [SCHED_CACHED] = "cached",
    [SCHED_EVICTED] = "evicted",
    [SCHED_TICK] = "tick",
};

static const char *const action_names[] = {
    [SCHED_ROUTE] = "route", [SCHED_REFUSE] = "refuse", [SCHED_EXPIRED] = "expired",
    [SCHED_LOST] = "lost",   [SCHED_MOVED] = "moved",
};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* ---- writing ---- */

static int64_t field_get(const struct field *field, const void *base)
{
    const char *at = (const char *)base + field->offset;
    uint8_t one;
    uint32_t four;
    uint64_t eight;
    switch (field->bytes) {
    case 1:
        memcpy(&one, at, 1);
        return one;
    case 4:
        memcpy(&four, at, 4);
        return field->is_signed ? (int64_t)(int32_t)four : (int64_t)four;
    default:
        memcpy(&eight, at, 8);
        return (int64_t)eight;
    }
}

static void fields_add(struct text *out, const char *before, const struct field *fields,
                       size_t count, const void *base)
{
    for (size_t i = 0; i < count; i++) {
        int64_t value = field_get(&fields[i], base);
        if (value == 0)
            continue;
        text_format_add(out, "%s\"%s\":%lld", before, fields[i].name, (long long)value);
        before = ",";
    }
}

static void options_add(struct text *out, const struct sched_cluster_options *options)
{
    text_string_add(out, "\"options\":{");
    fields_add(out, "", option_fields, COUNT(option_fields), options);
    text_string_add(out, "}");
}

/* Writes the hashes of the prefix as signed numbers, because JSON readers know no larger
 * integers. */
static void prefix_add(struct text *out, const struct sched_prefix *prefix)
{
    if (prefix->count == 0)
        return;
    text_string_add(out, ",\"prefix\":[");
    for (uint32_t i = 0; i < prefix->count && i < SCHED_PREFIX_MAX; i++)
        text_format_add(out, "%s%lld", i > 0 ? "," : "", (long long)prefix->hashes[i]);
    text_string_add(out, "]");
}

static void actions_add(struct text *out, const struct sched_actions *actions)
{
    text_string_add(out, ",\"actions\":[");
    for (uint32_t i = 0; i < actions->count; i++) {
        const struct sched_action *action = &actions->items[i];
        text_format_add(out, "%s{\"do\":\"%s\"", i > 0 ? "," : "", action_names[action->kind]);
        fields_add(out, ",", action_fields, COUNT(action_fields), action);
        text_string_add(out, "}");
    }
    text_string_add(out, "]}");
}

void event_text_begin(struct text *out, bool whole, const struct sched_cluster_options *options)
{
    text_format_add(out, "{\"events\":1,\"whole\":%s,", whole ? "true" : "false");
    options_add(out, options);
    text_string_add(out, "}");
}

void event_text_version(struct text *out, uint32_t version,
                        const struct sched_cluster_options *options)
{
    text_format_add(out, "{\"version\":%u,", version);
    options_add(out, options);
    text_string_add(out, "}");
}

void event_text_version_gone(struct text *out, uint32_t version)
{
    text_format_add(out, "{\"version\":%u,\"gone\":true}", version);
}

static void head_add(struct text *out, uint32_t version, int64_t now_us, const char *event)
{
    text_format_add(out, "{\"t\":%lld,\"event\":\"%s\"", (long long)now_us, event);
    if (version != EVENT_VERSION_FIRST)
        text_format_add(out, ",\"version\":%u", version);
}

void event_text_event(struct text *out, uint32_t version, int64_t now_us,
                      const struct sched_event *event, const struct sched_actions *actions)
{
    head_add(out, version, now_us, event != NULL ? event_names[event->kind] : "more");
    if (event != NULL) {
        fields_add(out, ",", event_fields, COUNT(event_fields), event);
        prefix_add(out, &event->prefix);
    }
    actions_add(out, actions);
}

void event_text_configure(struct text *out, uint32_t version, int64_t now_us,
                          const struct sched_cluster_options *options,
                          const struct sched_actions *actions)
{
    head_add(out, version, now_us, "configure");
    text_string_add(out, ",");
    options_add(out, options);
    actions_add(out, actions);
}

void event_text_machine(struct text *out, uint32_t machine, const char *name)
{
    text_format_add(out, "{\"machine\":%u,\"name\":", machine);
    text_add_json_string(out, name, strlen(name));
    text_string_add(out, "}");
}

void event_text_request(struct text *out, uint32_t version, uint32_t request, const char *id)
{
    text_format_add(out, "{\"request\":%u,", request);
    if (version != EVENT_VERSION_FIRST)
        text_format_add(out, "\"version\":%u,", version);
    text_string_add(out, "\"id\":");
    text_add_json_string(out, id, strlen(id));
    text_string_add(out, "}");
}

struct event_decision event_decision_of(const struct sched_action *route, int64_t now_us)
{
    const struct sched_decision *decision = &route->decision;
    if (decision->compute_us == 0 && decision->keep_us == 0 && decision->move_us == 0 &&
        decision->load_us == 0)
        return (struct event_decision){.choice = EVENT_CHOICE_NONE};
    return (struct event_decision){.choice = route->pull_source_plus_1 > 0 ? EVENT_CHOICE_MOVE
                                             : route->load_tokens > 0      ? EVENT_CHOICE_LOAD
                                             : route->prefix_tokens > 0    ? EVENT_CHOICE_KEEP
                                                                           : EVENT_CHOICE_COMPUTE,
                                   .pull_us = decision->pull_us,
                                   .computed_us = decision->computed_us,
                                   .routed_us = now_us};
}

void event_text_outcome(struct text *out, uint32_t version, int64_t now_us, uint32_t request,
                        const struct event_decision *decision, bool computed)
{
    static const char *const choices[] = {"none", "compute", "keep", "move", "load"};
    text_format_add(out, "{\"t\":%lld,\"outcome\":\"%s\"", (long long)now_us,
                    computed ? "computed" : "left");
    if (version != EVENT_VERSION_FIRST)
        text_format_add(out, ",\"version\":%u", version);
    text_format_add(out, ",\"request\":%u,\"choice\":\"%s\",\"computed_us\":%u", request,
                    choices[decision->choice], decision->computed_us);
    if (decision->pull_us > 0)
        text_format_add(out, ",\"pull_us\":%u", decision->pull_us);
    if (decision->pulled_us > 0)
        text_format_add(out, ",\"pull_took_us\":%lld",
                        (long long)(decision->pulled_us - decision->routed_us));
    if (computed)
        text_format_add(out, ",\"computed_took_us\":%lld",
                        (long long)(now_us - decision->routed_us));
    text_string_add(out, "}");
}

/* ---- reading ---- */

static bool field_set(const struct field *field, void *base, json_t *value)
{
    char *at = (char *)base + field->offset;
    if (value == NULL)
        return true;
    if (!json_is_integer(value))
        return false;
    int64_t number = json_integer_value(value);
    if (field->is_bool && number != 0 && number != 1)
        return false;
    uint8_t one = (uint8_t)number;
    uint32_t four = (uint32_t)number;
    memcpy(at,
           field->bytes == 1   ? (const void *)&one
           : field->bytes == 4 ? (const void *)&four
                               : (const void *)&number,
           field->bytes);
    return field_get(field, base) == number;
}

static bool fields_set(const struct field *fields, size_t count, void *base, json_t *object)
{
    bool good = json_is_object(object);
    for (size_t i = 0; good && i < count; i++)
        good = field_set(&fields[i], base, json_object_get(object, fields[i].name));
    return good;
}

static int name_find(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; name != NULL && i < count; i++)
        if (names[i] != NULL && strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

static bool actions_read(json_t *list, struct sched_actions *out)
{
    bool good = json_is_array(list) && json_array_size(list) <= SCHED_ACTIONS_MAX;
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        json_t *object = json_array_get(list, i);
        struct sched_action *action = &out->items[out->count++];
        int kind = name_find(action_names, COUNT(action_names),
                             json_string_value(json_object_get(object, "do")));
        action->kind = (enum sched_action_kind)kind;
        good = kind >= 0 && fields_set(action_fields, COUNT(action_fields), action, object);
    }
    return good;
}

static bool prefix_read(json_t *list, struct event_line *line)
{
    size_t count = json_array_size(list);
    if ((list != NULL && !json_is_array(list)) || count > SCHED_PREFIX_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!json_is_integer(json_array_get(list, i)))
            return false;
        line->hashes[i] = (uint64_t)json_integer_value(json_array_get(list, i));
    }
    line->event.prefix.hashes = count > 0 ? line->hashes : NULL;
    line->event.prefix.count = (uint32_t)count;
    return true;
}

static bool version_read(json_t *value, struct event_line *line)
{
    line->version = value == NULL ? EVENT_VERSION_FIRST : (uint32_t)json_integer_value(value);
    return value == NULL || (json_is_integer(value) && json_integer_value(value) > 0 &&
                             json_integer_value(value) <= UINT32_MAX);
}

static bool event_read(json_t *root, struct event_line *line)
{
    const char *name = json_string_value(json_object_get(root, "event"));
    json_t *time = json_object_get(root, "t");
    if (!json_is_integer(time) || name == NULL ||
        !actions_read(json_object_get(root, "actions"), &line->actions))
        return false;
    line->now_us = line->event.now_us = json_integer_value(time);
    if (strcmp(name, "more") == 0) {
        line->kind = EVENT_LINE_MORE;
        return true;
    }
    if (strcmp(name, "configure") == 0) {
        line->kind = EVENT_LINE_CONFIGURE;
        return fields_set(option_fields, COUNT(option_fields), &line->options,
                          json_object_get(root, "options"));
    }
    int kind = name_find(event_names, COUNT(event_names), name);
    line->kind = EVENT_LINE_EVENT;
    line->event.kind = (enum sched_event_kind)kind;
    return kind >= 0 && fields_set(event_fields, COUNT(event_fields), &line->event, root) &&
           prefix_read(json_object_get(root, "prefix"), line);
}

static bool line_read(json_t *root, struct event_line *line)
{
    if (!version_read(json_object_get(root, "version"), line))
        return false;
    if (json_object_get(root, "event") != NULL)
        return event_read(root, line);
    if (json_object_get(root, "events") != NULL) {
        line->kind = EVENT_LINE_BEGIN;
        line->whole = json_is_true(json_object_get(root, "whole"));
        return fields_set(option_fields, COUNT(option_fields), &line->options,
                          json_object_get(root, "options"));
    }
    if (json_object_get(root, "outcome") != NULL) {
        line->kind = EVENT_LINE_OUTCOME;
        return json_is_integer(json_object_get(root, "request"));
    }
    if (json_object_get(root, "id") != NULL) {
        line->kind = EVENT_LINE_REQUEST;
        return json_is_integer(json_object_get(root, "request"));
    }
    if (json_is_true(json_object_get(root, "gone"))) {
        line->kind = EVENT_LINE_VERSION_GONE;
        return true;
    }
    if (json_object_get(root, "version") != NULL) {
        line->kind = EVENT_LINE_VERSION;
        return fields_set(option_fields, COUNT(option_fields), &line->options,
                          json_object_get(root, "options"));
    }
    json_t *dropped = json_object_get(root, "dropped");
    line->kind = dropped != NULL ? EVENT_LINE_DROPPED : EVENT_LINE_MACHINE;
    line->dropped = (uint64_t)json_integer_value(dropped);
    return dropped != NULL || json_object_get(root, "machine") != NULL;
}

enum status event_text_read(const char *line, size_t line_bytes, struct event_line *out,
                            struct error *error)
{
    json_error_t json_error;
    json_t *root;
    enum status status = json_text_load(line, line_bytes, 0, &root, &json_error);
    memset(out, 0, sizeof(*out));
    if (status == ST_NO_MEMORY)
        error_set(error, status, "out of memory");
    else if (status != ST_OK)
        error_set(error, status, "not JSON: %s", json_error.text);
    else if (!line_read(root, out))
        status = error_set(error, ST_INVALID, "no line of an event log: %.*s",
                           (int)(line_bytes < 200 ? line_bytes : 200), line);
    json_decref(root);
    return status;
}
