/* Goal: logging blocks no thread when no process reads standard error, and lost lines are counted;
 * one repeated cause cannot fill a disk; text from outside cannot end a line or control a
 * terminal. */
#include "common/log.h"
#include "common/status.h"
#include "common/text.h"
#include "tests/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* More than the budget of one cause; see common/log.h. */
enum { FLOOD = 5000 };

static char seen[8 << 20];

/* Reads all bytes that `fd` has now into `seen` as a text. */
static void read_seen(int fd)
{
    size_t used = 0;
    ssize_t got;
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    while ((got = read(fd, seen + used, sizeof(seen) - 1 - used)) > 0)
        used += (size_t)got;
    seen[used] = 0;
}

static int count(const char *what)
{
    int found = 0;
    for (const char *at = strstr(seen, what); at != NULL; at = strstr(at + 1, what))
        found++;
    return found;
}

static void stderr_is(int fd)
{
    CHECK(dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    log_open("test", LOG_INFO);
}

/* Fills stderr's pipe with lines of two causes, then reads it and logs once more. */
static void test_full(int reader, int writer)
{
    stderr_is(writer);
    for (int i = 0; i < 500;
         i++) { /* Below the budgets, so that lines are lost only because stderr is full. */
        log_info("a machine of %d says %0100d", reader, i);
        log_warn("another of %d says %0100d", reader, i);
    }
    read_seen(reader);
    int took = count("\n");
    CHECKF(took > 0 && took < 1000, "%d lines fitted", took);
    log_error("it reads again");
    read_seen(reader);
    char want[64];
    snprintf(want, sizeof(want), "it reads again (%d lines lost, stderr was full)\n", 1000 - took);
    CHECKF(strstr(seen, want) != NULL, "%s: want %s", seen, want);
    log_error("it still reads");
    read_seen(reader);
    int year = 0, month = 0, day = 0, second = 0;
    char zone = 0, level[8] = "";
    CHECKF(sscanf(seen, "%4d-%2d-%2dT%*2d:%*2d:%2d.%*3d%c %7s test: it", &year, &month, &day,
                  &second, &zone, level) == 6,
           "%s", seen);
    CHECK(year >= 1970 && month >= 1 && month <= 12 && day >= 1 && zone == 'Z' &&
          strcmp(level, "error") == 0);
    CHECK(strstr(seen, "it still reads\n") != NULL);
}

static void test_full_pipe(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
    test_full(ends[0], ends[1]);
    /* Other processes that share the pipe still block when they write. */
    CHECK((fcntl(ends[1], F_GETFL) & O_NONBLOCK) == 0);
    close(ends[0]);
    close(ends[1]);
}

static void test_full_socket(void)
{
    int ends[2], bytes = 4096;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0);
    test_full(ends[0], ends[1]);
    close(ends[0]);
    close(ends[1]);
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void test_one_cause_is_limited(void)
{
    int file = memfd_create("log", MFD_CLOEXEC);
    CHECK(file >= 0);
    stderr_is(file);
    int64_t begin_us = now_us();
    int64_t most = 0;
    for (int i = 0; i <= FLOOD; i++) {
        if (i == FLOOD) { /* A last line, once the budget allows one again. */
            most = 1000 + (now_us() - begin_us) / 10000 + 1;
            usleep(50000);
        }
        log_warn("a stranger did it: %d", i);
    }
    log_info("somebody else");
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    read_seen(file);
    int written = count("a stranger did it");
    CHECKF(written >= 1001 && written <= most + 1, "%d lines, want 1001 to %d", written,
           (int)most + 1);
    int withheld = 0;
    for (const char *at = strstr(seen, " ("); at != NULL; at = strstr(at + 1, " ("))
        withheld += atoi(at + 2);
    CHECKF(written + withheld == FLOOD + 1, "%d lines, %d not logged", written, withheld);
    CHECK(strstr(seen, "such lines not logged)\n") != NULL || written == FLOOD + 1);
    CHECK(count("somebody else\n") == 1);
    close(file);
}

/* The slot that common/log.c tries first for a cause. */
static uintptr_t slot_of(const char *cause)
{
    return (uintptr_t)cause * (uintptr_t)0x9e3779b97f4a7c15u >> (sizeof(uintptr_t) * 8 - 9);
}

/* Causes whose hashes are equal do not share a budget. */
static void test_causes_are_apart(void)
{
    static char names[1 << 16];
    size_t other = 2;
    int file = memfd_create("log", MFD_CLOEXEC);
    CHECK(file >= 0);
    stderr_is(file);
    while (other < sizeof(names) - 2 && slot_of(names + other) != slot_of(names))
        other++;
    CHECK(slot_of(names + other) == slot_of(names));
    names[0] = 'a';
    names[other] = 'b';
    for (int i = 0; i < FLOOD; i++)
        log_object(LOG_INFO, true, names, "{}", 2);
    log_object(LOG_INFO, true, names + other, "{}", 2);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    read_seen(file);
    CHECK(count("test: a: {}") < FLOOD && count("test: b: {}\n") == 1);
    close(file);
}

/* Lines about administrative acts are all written, at every level. */
static void test_audit_is_not_limited(void)
{
    int file = memfd_create("log", MFD_CLOEXEC);
    CHECK(file >= 0);
    stderr_is(file);
    log_open("test", LOG_ERROR);
    for (int i = 0; i < FLOOD; i++)
        log_audit("an administrator did it: %d", i);
    log_open("test", LOG_INFO);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    read_seen(file);
    CHECK(count("info  test: an administrator did it") == FLOOD);
    CHECK(strstr(seen, "not logged") == NULL);
    close(file);
}

static void test_controls_are_escaped(void)
{
    int file = memfd_create("log", MFD_CLOEXEC);
    CHECK(file >= 0);
    stderr_is(file);
    log_info("a name: %s", "x\n00:00:00.000 ERROR gateway: \x1b[31m\xc2\x9b"
                           "31m\x7f na\xc3\xafve");
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    read_seen(file);
    CHECKF(strstr(seen, "a name: x\\x0a00:00:00.000 ERROR gateway: \\x1b[31m\\x9b31m\\x7f "
                        "na\xc3\xafve\n") != NULL,
           "%s", seen);
    CHECK(count("\n") == 1);
    close(file);
    struct error error;
    error_set(&error, ST_INVALID, "the model is \"%s\"", "x\n\x1b[31m");
    error_prefix(&error, "%s", "file\r");
    CHECKF(strcmp(error.text, "file\\x0d: the model is \"x\\x0a\\x1b[31m\"") == 0, "%s",
           error.text);
}

/* As JSON, every line is one object with the same members, whatever its text contains. */
static void test_json(void)
{
    static const char *const wants[] = {
        "\"level\":\"info\",\"process\":\"te?st\",\"text\":\"a name: x\\u000a\\u0022,\\u0022"
        "level\\u0022:\\u001b\\u009b\\ufffd\\u005c na\xc3\xafve\"}\n",
        "\"level\":\"info\",\"process\":\"te?st\",\"audit\":{\"a\":1}}\n",
        "\"level\":\"info\",\"process\":\"te?st\",\"access\":{}}\n"};
    static char large[LOG_OBJECT_BYTES + 1];
    int file = memfd_create("log", MFD_CLOEXEC);
    CHECK(file >= 0);
    stderr_is(file);
    log_open("te\"st", LOG_ERROR);
    log_format_set(LOG_JSON);
    log_info("below the level");
    log_level_set(LOG_INFO);
    log_info("a name: %s", "x\n\",\"level\":\x1b\xc2\x9b\xff\\ na\xc3\xafve");
    log_object(LOG_INFO, true, "audit", "{\"a\":1}", 7);
    log_object(LOG_INFO, false, "access", large, sizeof(large));
    log_info("cut: %01500d \xc3\xaf", 7);
    log_format_set(LOG_TEXT);
    log_object(LOG_WARN, false, "access", "{}", 2);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    read_seen(file);
    CHECK(count("\n") == 5 && count("{\"time\":\"2") == 4 && count("below the level") == 0);
    for (size_t i = 0; i < 3; i++)
        CHECKF(strstr(seen, wants[i]) != NULL, "want %s in %s", wants[i], seen);
    CHECKF(strstr(seen, "Z warn  te?st: access: {}\n") != NULL, "%s", seen);
    close(file);
}

/* The latest lines are kept as they were written, also lines that stderr did not take. */
static void test_kept(void)
{
    struct text text = {0};
    int file = memfd_create("log", MFD_CLOEXEC);
    CHECK(file >= 0);
    stderr_is(file);
    log_info("before");
    log_keep(150);
    log_kept_write(&text);
    CHECK(text.bytes == 0);
    for (int i = 0; i < 9; i++)
        log_info("line %d", i);
    log_kept_write(&text);
    text_add(&text, "", 1);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    read_seen(file);
    CHECKF(strncmp(strstr(text.data, "Z info  test: line 6\n"), "Z info  test: line 6\n", 21) ==
                   0 &&
               strstr(seen, text.data) != NULL && strstr(text.data, "line 5") == NULL,
           "%s", text.data);
    text_done(&text);
    close(file);
}

/* A line for the journal begins with its priority; the same line for another stderr does not. */
static void test_journal(void)
{
    int ends[2];
    struct stat stat;
    char stream[64];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && fstat(ends[1], &stat) == 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)stat.st_dev,
             (unsigned long long)stat.st_ino);
    CHECK(setenv("JOURNAL_STREAM", stream, 1) == 0);
    stderr_is(ends[1]);
    log_info("one");
    log_warn("two");
    log_error("three");
    read_seen(ends[0]);
    CHECKF(strncmp(seen, "<6>2", 4) == 0 && count("\n<4>2") == 1 && count("\n<3>2") == 1, "%s",
           seen);
    CHECK(setenv("JOURNAL_STREAM", "1:1", 1) == 0);
    stderr_is(ends[1]);
    log_warn("four");
    read_seen(ends[0]);
    CHECKF(seen[0] == '2', "%s", seen);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    alarm(120); /* A log that waits for its reader would wait for ever. */
    test_full_pipe();
    test_full_socket();
    test_one_cause_is_limited();
    test_causes_are_apart();
    test_audit_is_not_limited();
    test_controls_are_escaped();
    test_json();
    test_kept();
    test_journal();
    return 0;
}
