/* gateway_history: see the header. The memory is a ring of records of one size. */
#include "server/gateway/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    EVENTS_FIRST = 12, /* Events from the beginning of a life that are kept. */
    EVENTS_LATEST = 12,
    EVENTS = EVENTS_FIRST + EVENTS_LATEST,
    MACHINES = 6, /* Machines of one request whose names are kept. */
    NO_MACHINE = 255,
    OTHER_MACHINE = 254,
    VALUES = 4,
    WRITTEN_MAX = 4096, /* Requests of one answer: the loop must not stand still. */
};

struct event {
    uint8_t kind;   /* enum gateway_event_kind */
    uint8_t resume; /* enum gateway_resume */
    uint8_t prompt_machine, token_machine;
    uint32_t after_us, generation, tokens;
    uint32_t values[VALUES];
    uint64_t bytes;
};

struct record {
    uint64_t id; /* 0 = the record is unused. */
    int64_t arrived_us;
    int64_t arrived_unix_ms;
    int64_t ended_us;
    char client_id[GATEWAY_CLIENT_ID_BYTES];
    char answer_id[GATEWAY_CLIENT_ID_BYTES + 16];
    char key[LIMIT_KEY_NAME_BYTES];
    char model[64];
    uint32_t prompt_tokens, cached_tokens, answer_tokens, resumed;
    uint32_t first_us; /* From its arrival until the first token; 0 = no token. */
    enum history_end end;
    uint8_t finish; /* enum message_finish */
    char end_text[128];
    uint8_t prompt_machine, token_machine; /* Of its latest generation. */
    uint32_t machine_count;
    char machines[MACHINES][LIMIT_NAME_BYTES];
    uint32_t event_count; /* Events ever. */
    struct event events[EVENTS];
};

struct history {
    uint32_t count;
    uint64_t begun; /* Requests ever. */
    struct record records[];
};

enum status history_open(uint32_t requests_max, struct history **out)
{
    struct history *h = calloc(1, sizeof(*h) + requests_max * sizeof(h->records[0]));
    if (h == NULL)
        return ST_NO_MEMORY;
    h->count = requests_max;
    *out = h;
    return ST_OK;
}

void history_close(struct history *h)
{
    free(h);
}

/* Returns the request's record; NULL = none, or it was replaced. */
static struct record *record_of(struct history *h, const struct gateway_request *r)
{
    if (h == NULL)
        return NULL;
    struct record *record = &h->records[r->history_number % h->count];
    return record->id == r->id ? record : NULL;
}

static int64_t unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

uint64_t history_begin(struct history *h, const struct gateway_request *r,
                       const struct gateway_submit *submit, int64_t now_us)
{
    if (h == NULL)
        return 0;
    uint64_t number = h->begun++;
    struct record *record = &h->records[number % h->count];
    int64_t arrived_us = r->life.entered_us[REQUEST_QUEUED];
    *record = (struct record){.id = r->id,
                              .arrived_us = arrived_us,
                              .arrived_unix_ms = unix_ms() - (now_us - arrived_us) / 1000,
                              .prompt_machine = NO_MACHINE,
                              .token_machine = NO_MACHINE,
                              .prompt_tokens = r->prompt_count};
    snprintf(record->client_id, sizeof(record->client_id), "%s", r->client_id);
    snprintf(record->answer_id, sizeof(record->answer_id), "%s",
             submit->answer_id != NULL ? submit->answer_id : "");
    snprintf(record->key, sizeof(record->key), "%s",
             submit->key_name != NULL ? submit->key_name : "");
    snprintf(record->model, sizeof(record->model), "%s",
             submit->model_name != NULL ? submit->model_name : "");
    if (r->state == GATEWAY_REQUEST_ENDING) {
        record->end = history_end_of(r->end);
        record->ended_us = now_us;
        snprintf(record->end_text, sizeof(record->end_text), "%.127s", r->end_text);
    }
    return number;
}

/* Returns the number of a machine's name in the record. */
static uint8_t machine_number(struct record *record, const char *name)
{
    if (name == NULL)
        return NO_MACHINE;
    for (uint32_t i = 0; i < record->machine_count; i++)
        if (strcmp(record->machines[i], name) == 0)
            return (uint8_t)i;
    if (record->machine_count == MACHINES)
        return OTHER_MACHINE;
    snprintf(record->machines[record->machine_count], LIMIT_NAME_BYTES, "%s", name);
    return (uint8_t)record->machine_count++;
}

void history_event(struct history *h, const struct gateway_request *r,
                   const struct gateway_event *event)
{
    struct record *record = record_of(h, r);
    if (record == NULL)
        return;
    uint32_t number = record->event_count++;
    if (number >= EVENTS)
        number = EVENTS_FIRST + (number - EVENTS_FIRST) % EVENTS_LATEST;
    struct event *kept = &record->events[number];
    *kept = (struct event){.kind = (uint8_t)event->kind,
                           .resume = (uint8_t)event->resume_reason,
                           .prompt_machine = machine_number(record, event->prompt_machine),
                           .token_machine = machine_number(record, event->token_machine),
                           .after_us = event->after_us,
                           .generation = event->generation,
                           .tokens = event->delivered};
    record->answer_tokens = event->delivered;
    record->resumed = event->generation;
    if (event->kind == GATEWAY_EVENT_ROUTED) {
        record->prompt_machine = kept->prompt_machine;
        record->token_machine = kept->token_machine;
    }
    if (event->token != NULL) {
        kept->values[0] = event->token->wait_us;
        kept->values[1] = event->token->run_us;
        kept->values[2] = event->token->cached_tokens;
        if (record->first_us == 0) {
            record->cached_tokens = event->token->cached_tokens;
            record->first_us = event->after_us > 0 ? event->after_us : 1;
        }
    }
    if (event->transfer != NULL) {
        kept->values[0] = event->transfer->queue_us;
        kept->values[1] = event->transfer->prefill_us;
        kept->values[2] = event->transfer->transfer_us;
        kept->values[3] = event->transfer->exposed_us;
        kept->bytes = event->transfer->bytes;
    }
}

void history_end(struct history *h, const struct gateway_request *r, enum history_end end,
                 const char *reason, int64_t now_us)
{
    struct record *record = record_of(h, r);
    if (record == NULL)
        return;
    record->end = end;
    record->finish = r->finish;
    record->answer_tokens = r->delivered;
    record->resumed = r->generation;
    record->ended_us = now_us;
    snprintf(record->end_text, sizeof(record->end_text), "%s", reason);
}

/* ---- for the head-room ---- */

static bool record_served(const struct record *record)
{
    bool ended = record->end == HISTORY_DONE || record->end == HISTORY_STOPPED;
    return record->id != 0 && (ended || record->answer_tokens > 0 || record->end == HISTORY_OPEN) &&
           record->end != HISTORY_REFUSED && record->end != HISTORY_FAILED;
}

uint32_t history_answers(const struct history *h, int64_t after_us,
                         struct headroom_answer out[HEADROOM_ANSWERS])
{
    uint64_t kept = h->begun < h->count ? h->begun : h->count;
    uint64_t first = h->begun, ended = 0, tokens = 0;
    uint32_t count = 0;
    for (; kept > 0 && count < HEADROOM_ANSWERS; kept--) {
        const struct record *record = &h->records[(first - 1) % h->count];
        if (record->arrived_us < after_us)
            break;
        first--;
        count += record_served(record);
        ended += record_served(record) && record->end != HISTORY_OPEN;
        tokens += record_served(record) && record->end != HISTORY_OPEN ? record->answer_tokens : 0;
    }
    uint32_t mean = ended > 0 ? (uint32_t)(tokens / ended) : 1;
    count = 0;
    for (; first < h->begun; first++) {
        const struct record *record = &h->records[first % h->count];
        if (!record_served(record))
            continue;
        uint32_t least = record->end == HISTORY_OPEN && mean > 1 ? mean : 1;
        out[count++] = (struct headroom_answer){
            .arrived_us = record->arrived_us,
            .prompt_tokens = record->prompt_tokens,
            .computed_tokens = record->prompt_tokens > record->cached_tokens
                                   ? record->prompt_tokens - record->cached_tokens
                                   : 1,
            .answer_tokens = record->answer_tokens > least ? record->answer_tokens : least};
    }
    return count;
}

/* ---- JSON ---- */

static void member_add(struct text *out, const char *name, const char *value)
{
    if (value[0] == 0)
        return;
    text_format_add(out, ",\"%s\":", name);
    text_add_json_string(out, value, strlen(value));
}

static void machine_add(struct text *out, const char *name, const struct record *record,
                        uint8_t number)
{
    if (number != NO_MACHINE)
        member_add(out, name, number == OTHER_MACHINE ? "another" : record->machines[number]);
}

static void event_add(struct text *out, const struct record *record, const struct event *event)
{
    const uint32_t *v = event->values;
    text_format_add(out, "{\"event\":\"%s\",\"after_us\":%u,\"generation\":%u,\"tokens\":%u",
                    gateway_event_name((enum gateway_event_kind)event->kind), event->after_us,
                    event->generation, event->tokens);
    machine_add(out, "prompt_machine", record, event->prompt_machine);
    machine_add(out, "token_machine", record, event->token_machine);
    if (event->kind == GATEWAY_EVENT_RESUMING)
        member_add(out, "reason", gateway_resume_name((enum gateway_resume)event->resume));
    if (event->kind == GATEWAY_EVENT_FIRST_TOKEN)
        text_format_add(out, ",\"wait_us\":%u,\"run_us\":%u,\"cached_tokens\":%u", v[0], v[1],
                        v[2]);
    if (event->kind == GATEWAY_EVENT_TRANSFERRED)
        text_format_add(out,
                        ",\"queue_us\":%u,\"prefill_us\":%u,\"transfer_us\":%u,\"exposed_us\":%u"
                        ",\"bytes\":%llu",
                        v[0], v[1], v[2], v[3], (unsigned long long)event->bytes);
    text_string_add(out, "}");
}

static void events_add(struct text *out, const struct record *record)
{
    uint32_t count = record->event_count;
    uint32_t left_out = count > EVENTS ? count - EVENTS : 0;
    text_string_add(out, ",\"events\":[");
    for (uint32_t i = 0; i < count - left_out; i++) {
        uint32_t at = i;
        if (i >= EVENTS_FIRST && left_out > 0)
            at = EVENTS_FIRST + (i + left_out - EVENTS_FIRST) % EVENTS_LATEST;
        text_string_add(out, i > 0 ? "," : "");
        event_add(out, record, &record->events[at]);
    }
    text_format_add(out, "],\"events_left_out\":%u", left_out);
}

static const char *state_of(const struct record *record)
{
    static const char *const ends[HISTORY_END_COUNT] = {[HISTORY_STOPPED] = "stop",
                                                        [HISTORY_LEFT] = "left",
                                                        [HISTORY_FAILED] = "failed",
                                                        [HISTORY_REFUSED] = "refused"};
    if (record->end == HISTORY_OPEN && record->event_count == 0)
        return "queued";
    if (record->end == HISTORY_OPEN) {
        uint32_t last = record->event_count - 1;
        if (last >= EVENTS)
            last = EVENTS_FIRST + (last - EVENTS_FIRST) % EVENTS_LATEST;
        return gateway_event_name((enum gateway_event_kind)record->events[last].kind);
    }
    if (record->end == HISTORY_DONE)
        return record->finish == FINISH_STOP ? "stop" : "length";
    return ends[record->end];
}

static void record_add(struct text *out, const struct record *record, bool events, int64_t now_us)
{
    bool open = record->end == HISTORY_OPEN;
    text_format_add(out,
                    "{\"arrived_unix_ms\":%lld,\"request\":", (long long)record->arrived_unix_ms);
    text_add_json_string(out, record->client_id, strlen(record->client_id));
    member_add(out, "answer", record->answer_id);
    text_format_add(out, ",\"machine_request\":\"%llx\"", (unsigned long long)record->id);
    member_add(out, "key", record->key);
    member_add(out, "model", record->model);
    text_format_add(out, ",\"open\":%s,\"state\":\"%s\"", open ? "true" : "false",
                    state_of(record));
    machine_add(out, "prompt_machine", record, record->prompt_machine);
    machine_add(out, "token_machine", record, record->token_machine);
    text_format_add(out,
                    ",\"prompt_tokens\":%u,\"cached_tokens\":%u,\"answer_tokens\":%u,\"resumed\":%u"
                    ",\"first_token_us\":%u,\"total_us\":%lld",
                    record->prompt_tokens, record->cached_tokens, record->answer_tokens,
                    record->resumed, record->first_us,
                    (long long)((open ? now_us : record->ended_us) - record->arrived_us));
    member_add(out, "why", record->end_text);
    if (events)
        events_add(out, record);
    text_string_add(out, "}");
}

static bool matches(const struct record *record, const char *id)
{
    char number[20];
    snprintf(number, sizeof(number), "%llx", (unsigned long long)record->id);
    return id == NULL || strcmp(record->client_id, id) == 0 || strcmp(record->answer_id, id) == 0 ||
           strcmp(number, id) == 0;
}

void history_write(const struct history *h, const struct history_query *query, int64_t now_us,
                   struct text *out)
{
    uint64_t kept = h->begun < h->count ? h->begun : h->count;
    uint32_t written = 0,
             most = query->requests_max < WRITTEN_MAX ? query->requests_max : WRITTEN_MAX;
    for (uint64_t i = 0; i < kept && written < most; i++) {
        const struct record *record = &h->records[(h->begun - 1 - i) % h->count];
        if (!matches(record, query->id))
            continue;
        text_string_add(out, written++ > 0 ? query->separator : "");
        record_add(out, record, query->with_events, now_us);
    }
}
