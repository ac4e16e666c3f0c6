/* Goal: an event log is replayed to the same decisions, differences of another scheduler are found,
 * and a file that is not an event log gives one error with its line. Method: a log is written by
 * hand with the decisions of a scheduler; then its lines are changed. */
#include "tools/simulate/replay_log.h"

#include "events/event_text.h"
#include "tests/check.h"
#include "tests/scarce_lines.h"

#include <string.h>

static const struct sched_cluster_options options = {
    .request_count = 8, .machine_count = 2, .queue_requests_max = 4, .adaptive = true};

struct log {
    struct text text;
    struct sched_cluster *sc;
    int64_t now_us;
};

static void log_open(struct log *log, bool whole, const struct sched_cluster_options *with)
{
    *log = (struct log){.now_us = 1000};
    CHECK(sched_cluster_open(with, &log->sc) == ST_OK);
    event_text_begin(&log->text, whole, with);
    text_string_add(&log->text, "\n");
}

static void log_begin(struct log *log, bool whole)
{
    log_open(log, whole, &options);
}

static void tell(struct log *log, struct sched_event event)
{
    struct sched_actions actions = {.count = 0};
    event.now_us = log->now_us += 10;
    sched_cluster_event(log->sc, &event, &actions);
    event_text_event(&log->text, EVENT_VERSION_FIRST, log->now_us, &event, &actions);
    text_string_add(&log->text, "\n");
}

static void machines_up(struct log *log)
{
    tell(log,
         (struct sched_event){.kind = SCHED_MACHINE_UP, .pool = POOL_PROMPT, .kv_tokens = 4096});
    tell(log, (struct sched_event){
                  .kind = SCHED_MACHINE_UP, .machine = 1, .pool = POOL_TOKEN, .kv_tokens = 4096});
    tell(log, (struct sched_event){.kind = SCHED_LINK_UP, .peer = 1});
}

static void arrive(struct log *log, uint32_t request)
{
    tell(log, (struct sched_event){.kind = SCHED_ARRIVED,
                                   .request = request,
                                   .prompt_tokens = 100,
                                   .output_tokens = 10,
                                   .key_index = UINT32_MAX,
                                   .identity = 1 + request,
                                   .weight = 1});
}

static void log_end(struct log *log)
{
    sched_cluster_close(log->sc);
    text_done(&log->text);
}

struct seen {
    uint32_t count;
    uint64_t line;
};

static void on_differs(void *self, uint64_t line, const char *logged, const char *decided)
{
    struct seen *seen = self;
    CHECK(strcmp(logged, decided) != 0);
    seen->line = seen->count++ == 0 ? line : seen->line;
}

static enum status replay(const char *text, size_t bytes, struct seen *seen,
                          struct replay_log_totals *totals, struct error *error)
{
    const struct replay_log_calls calls = {.differs = on_differs, .self = seen};
    FILE *file = fmemopen((void *)text, bytes, "r");
    CHECK(file != NULL);
    enum status status = replay_log(file, "log", &calls, totals, error);
    fclose(file);
    return status;
}

static void test_same(void)
{
    struct log log;
    struct replay_log_totals totals;
    struct seen seen = {0};
    struct error error;
    log_begin(&log, true);
    machines_up(&log);
    for (uint32_t i = 0; i < 4; i++)
        arrive(&log, i);
    tell(&log, (struct sched_event){.kind = SCHED_ENDED, .request = 2, .output_tokens = 3});
    arrive(&log, 2);
    tell(&log, (struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 1});
    event_text_begin(&log.text, false, &options); /* Another gateway, whose log was opened later. */
    text_string_add(&log.text, "\n{\"t\":1,\"event\":\"ended\",\"request\":5,\"actions\":[]}\n");
    /* The gateway was killed while it wrote this line. */
    text_string_add(&log.text, "{\"t\":1,\"event\":\"end");
    CHECKF(replay(log.text.data, log.text.bytes, &seen, &totals, &error) == ST_OK, "%s",
           error.text);
    CHECK(totals.starts == 2 && totals.events == 10 && totals.skipped == 1);
    CHECK(totals.routes == 5 && totals.lost > 0 && totals.differing == 0 && seen.count == 0);
    CHECK(totals.last_us - totals.first_us == 90);
    log_end(&log);
}

static void test_differs(void)
{
    struct log log;
    struct replay_log_totals totals;
    struct seen seen = {0};
    struct error error;
    log_begin(&log, true);
    machines_up(&log);
    arrive(&log, 0);
    arrive(&log, 1);
    text_add(&log.text, "", 1);
    char *route = strstr(log.text.data, "\"route\"");
    CHECK(route != NULL);
    memcpy(route, "\"moved\"", 7);
    CHECK(replay(log.text.data, log.text.bytes - 1, &seen, &totals, &error) == ST_OK);
    CHECK(totals.differing == 1 && seen.count == 1 && seen.line == 5);
    log_end(&log);
}

/* A request that has waited too long for memory of its machine is refused. It gets a place, and the
 * next refused request is told a later time, so the event changes later decisions. */
static void test_overdue(void)
{
    struct log log;
    struct replay_log_totals totals;
    struct seen seen = {0};
    struct error error;
    struct sched_cluster_options limited = options;
    limited.queue_us_max = 3000000;
    limited.machine_tokens_max = 200;
    log_open(&log, true, &limited);
    machines_up(&log);
    for (uint32_t i = 0; i < 4; i++)
        arrive(&log, i);
    log.now_us += limited.queue_us_max / 2;
    size_t at = log.text.bytes;
    tell(&log, (struct sched_event){.kind = SCHED_OVERDUE, .request = 1});
    size_t bytes = log.text.bytes - at;
    text_add(&log.text, "", 1);
    log.text.bytes--;
    const char *refusal = strstr(log.text.data + at, "\"do\":\"refuse\",\"request\":1");
    CHECK(refusal != NULL && strstr(refusal, "retry_after_ms") != NULL);
    tell(&log, (struct sched_event){.kind = SCHED_ENDED, .request = 1}); /* As the gateway does. */
    log.now_us += limited.queue_us_max; /* The others have waited for too long, too. */
    tell(&log, (struct sched_event){.kind = SCHED_TICK});
    arrive(&log, 1);
    CHECKF(replay(log.text.data, log.text.bytes, &seen, &totals, &error) == ST_OK, "%s",
           error.text);
    CHECK(totals.refusals > 1 && totals.differing == 0 && seen.count == 0);
    /* Without the event, other times are told. */
    memmove(log.text.data + at, log.text.data + at + bytes, log.text.bytes - at - bytes);
    CHECK(replay(log.text.data, log.text.bytes - bytes, &seen, &totals, &error) == ST_OK);
    CHECK(totals.differing > 0);
    log_end(&log);
}

static void check_wrong(const char *line, const char *want)
{
    struct log log;
    struct replay_log_totals totals;
    struct seen seen = {0};
    struct error error;
    log_begin(&log, true);
    machines_up(&log);
    arrive(&log, 0);
    text_string_add(&log.text, line);
    text_string_add(&log.text, "\n");
    CHECKF(replay(log.text.data, log.text.bytes, &seen, &totals, &error) == ST_INVALID, "%s", line);
    CHECKF(strncmp(error.text, "log:6: ", 7) == 0 && strstr(error.text, want) != NULL, "%s: %s",
           line, error.text);
    log_end(&log);
}

static void test_wrong(void)
{
    check_wrong("nonsense", "not JSON");
    check_wrong("{\"t\":2,\"event\":\"ended\",\"request\":8,\"actions\":[]}", "request 8");
    check_wrong("{\"t\":2,\"event\":\"machine_up\",\"machine\":2,\"actions\":[]}", "machine 2");
    check_wrong("{\"t\":2,\"event\":\"machine_up\",\"pool\":3,\"actions\":[]}", "pool 3");
    check_wrong("{\"t\":2,\"event\":\"link_up\",\"peer\":2,\"actions\":[]}", "peer 2");
    check_wrong("{\"t\":2,\"event\":\"link_up\",\"actions\":[]}", "a link to itself");
    check_wrong("{\"t\":2,\"event\":\"arrived\",\"request\":1,\"actions\":[]}", "prompt_tokens 0");
    check_wrong("{\"t\":2,\"event\":\"arrived\",\"prompt_tokens\":5,\"weight\":1,\"actions\":[]}",
                "arrives again before it has ended");
    check_wrong("{\"t\":2,\"event\":\"tick\",\"version\":3,\"actions\":[]}", "version 3");
}

/* The log does not end where memory runs out. */
static void test_no_memory(void)
{
    struct log log;
    struct replay_log_totals totals;
    struct seen seen = {0};
    struct error error = {""};
    log_begin(&log, true);
    machines_up(&log);
    scarce_lines_left = 2;
    enum status status = replay(log.text.data, log.text.bytes, &seen, &totals, &error);
    scarce_lines_left = SIZE_MAX;
    CHECK(status == ST_NO_MEMORY && totals.lines == 2);
    CHECKF(strcmp(error.text, "log: out of memory") == 0, "%s", error.text);
    log_end(&log);
}

int main(void)
{
    test_same();
    test_differs();
    test_overdue();
    test_wrong();
    test_no_memory();
    return 0;
}
