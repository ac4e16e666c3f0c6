/* Goal: the event log takes lines without ever waiting; a full disk or a slow reader loses lines,
 * which are counted, and has no other effect; written lines can be read back to the same structs.
 * Method: a scratch file, /dev/full, a FIFO without a reader; random events. (test_gateway_random
 * checks that the lines replay to the same actions.) */
#include "events/event_log.h"
#include "events/event_text.h"
#include "tests/check.h"

#include "common/clock.h"
#include "common/random.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[] = "/tmp/cleave-events-XXXXXX";

static struct event_log *log_open_at(const char *at)
{
    struct event_log *log;
    struct error error;
    CHECKF(event_log_open(at, &log, &error) == ST_OK, "%s", error.text);
    return log;
}

static void wait_for(struct event_log *log, uint64_t lines)
{
    struct event_log_counts counts = event_log_counts(log);
    for (int i = 0; i < 10000 && counts.written + counts.dropped < lines; i++) {
        usleep(1000);
        counts = event_log_counts(log);
    }
    CHECK(counts.written + counts.dropped >= lines);
}

static void test_lines(void)
{
    struct event_log *log = log_open_at(path);
    enum { LINES = 20000 };
    char line[64];
    int64_t begun_us = clock_now_us(&clock_system);
    int64_t worst_us = 0;
    for (int i = 0; i < LINES; i++) {
        int64_t before_us = clock_now_us(&clock_system);
        event_log_add(log, line,
                      (size_t)snprintf(line, sizeof(line), "{\"line\":%d,\"x\":%d}", i, i));
        int64_t took_us = clock_now_us(&clock_system) - before_us;
        worst_us = took_us > worst_us ? took_us : worst_us;
    }
    printf("a line costs the loop %.2f us, the worst %lld us\n",
           (double)(clock_now_us(&clock_system) - begun_us) / LINES, (long long)worst_us);
    event_log_close(log); /* Writes the rest. */
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    int count = 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        char want[64];
        snprintf(want, sizeof(want), "{\"line\":%d,\"x\":%d}\n", count, count);
        CHECKF(strcmp(line, want) == 0, "%s", line);
        count++;
    }
    CHECK(count == LINES);
    fclose(file);
    struct stat info;
    CHECK(stat(path, &info) == 0 && (info.st_mode & 077) == 0);
}

/* A log that is opened again has another file only if the first file was moved. */
static void test_moved(void)
{
    char moved[sizeof(path) + 2];
    snprintf(moved, sizeof(moved), "%s.1", path);
    struct event_log *first = log_open_at(path), *again = log_open_at(path);
    CHECK(event_log_same_file(first, again));
    event_log_close(again);
    CHECK(rename(path, moved) == 0);
    again = log_open_at(path);
    CHECK(!event_log_same_file(first, again));
    event_log_close(again);
    event_log_close(first);
    CHECK(unlink(moved) == 0);
}

static void test_full_disk(void)
{
    struct event_log *log = log_open_at("/dev/full");
    for (int i = 0; i < 10; i++)
        event_log_add(log, "{}", 2);
    wait_for(log, 10);
    struct event_log_counts counts = event_log_counts(log);
    CHECK(counts.written == 0 && counts.dropped == 10);
    CHECKF(strstr(counts.drop_reason, "No space left") != NULL, "%s", counts.drop_reason);
    event_log_close(log);
}

/* The reader is slow, then reads again: it gets whole lines only, and the gaps are marked. */
static void test_slow_reader(void)
{
    struct error error;
    struct event_log *log;
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    /* No process reads: this is an error, not a wait. */
    CHECK(event_log_open(path, &log, &error) == ST_IO);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    log = log_open_at(path);
    char line[200];
    memset(line, 'x', sizeof(line));
    enum { LINES = 30000 };
    for (int i = 0; i < LINES; i++)
        event_log_add(log, line, sizeof(line));
    wait_for(log, 5000);
    struct event_log_counts counts = event_log_counts(log);
    CHECK(counts.dropped > 0 && counts.drop_reason[0] != 0);
    static char all[1 << 24];
    size_t bytes = 0;
    uint64_t gaps = 0;
    for (int i = 0; i < 5000 && gaps == 0; i++) {
        ssize_t got;
        while ((got = read(reader, all + bytes, sizeof(all) - 1 - bytes)) > 0)
            bytes += (size_t)got;
        event_log_add(log, line, sizeof(line));
        usleep(1000);
        all[bytes] = 0;
        gaps = strstr(all, "{\"dropped\":") != NULL;
    }
    CHECK(gaps == 1);
    close(reader);
    event_log_close(log);
    CHECK(unlink(path) == 0);
}

static void test_text(void)
{
    uint64_t seed = test_seed();
    struct text text = {0};
    struct event_line line;
    struct error error;
    for (uint64_t i = 0; i < 2000; i++) {
        struct sched_event event;
        memset(&event, 0, sizeof(event)); /* The padding is compared as well. */
        event.kind = (enum sched_event_kind)(random_at(seed, 8 * i) % (SCHED_TICK + 1));
        event.now_us = (int64_t)i;
        event.request = (uint32_t)random_at(seed, 8 * i + 1) % 3;
        event.prompt_tokens = (uint32_t)random_at(seed, 8 * i + 2);
        event.machine = (uint32_t)random_at(seed, 8 * i + 3) % 64;
        event.pool = (enum pool)(random_at(seed, 8 * i + 4) % 3);
        event.key_index = i % 2 ? UINT32_MAX : 7;
        event.weight = 3;
        event.priority = (int32_t)(i % 5) - 2;
        event.kv_tokens = random_at(seed, 8 * i + 5) >> 1;
        event.kv =
            (struct sched_kv){.capacity_tokens = i,
                              .groups = {.count = i % 16, .windowed = 3, .window_tokens = 40},
                              .block_tokens = 16,
                              .kept_spans = {4, 5}};
        event.resumed = i % 7 == 0;
        uint64_t hashes[2] = {random_at(seed, 8 * i + 6), random_at(seed, 8 * i + 7)};
        uint32_t hash_count = (uint32_t)(i % 3);
        event.prefix.hashes = hashes;
        event.prefix.count = hash_count;
        struct sched_actions actions;
        memset(&actions, 0, sizeof(actions));
        actions.count = (uint32_t)(i % 3);
        for (uint32_t j = 0; j < actions.count; j++) {
            actions.items[j].kind = (enum sched_action_kind)j;
            actions.items[j].request = (uint32_t)i;
            actions.items[j].token_machine = SCHED_NO_MACHINE;
            actions.items[j].retry_after_ms = j;
        }
        text_clear(&text);
        event_text_event(&text, EVENT_VERSION_FIRST, event.now_us, &event, &actions);
        CHECKF(event_text_read(text.data, text.bytes, &line, &error) == ST_OK, "%s", error.text);
        CHECK(line.event.prefix.count == hash_count);
        CHECK(memcmp(line.hashes, hashes, hash_count * sizeof(hashes[0])) == 0);
        memset(&line.event.prefix, 0, sizeof(line.event.prefix));
        memset(&event.prefix, 0, sizeof(event.prefix));
        CHECK(line.kind == EVENT_LINE_EVENT && memcmp(&line.event, &event, sizeof(event)) == 0);
        CHECK(memcmp(&line.actions, &actions, sizeof(actions)) == 0);
    }
    for (uint32_t version = 1; version <= 2; version++) {
        text_clear(&text);
        event_text_request(&text, version, 5, "a \"client's\" id");
        CHECKF(event_text_read(text.data, text.bytes, &line, &error) == ST_OK, "%s", error.text);
        CHECK(line.kind == EVENT_LINE_REQUEST && line.version == version);
    }
    static const char *const wrong[] = {
        "{\"id\":\"x\"}",
        "",
        "{",
        "[]",
        "{\"t\":1,\"event\":\"x\",\"actions\":[]}",
        "{\"t\":1,\"event\":\"ended\"}",
        "{\"t\":1,\"event\":\"ended\",\"request\":-1,\"actions\":[]}",
        "{\"t\":1,\"event\":\"ended\",\"actions\":[{\"do\":\"y\"}]}",
        "{\"some\":1}"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECKF(event_text_read(wrong[i], strlen(wrong[i]), &line, &error) == ST_INVALID, "%s",
               wrong[i]);
    /* The error quotes no byte behind the line. */
    CHECK(event_text_read("{}secret", 2, &line, &error) == ST_INVALID &&
          strstr(error.text, "secret") == NULL);
    text_done(&text);
}

int main(void)
{
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    test_text();
    test_lines();
    test_moved();
    test_full_disk();
    test_slow_reader();
    return 0;
}
