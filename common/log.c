/* log: formats one line into a stack buffer and writes it with a single call that never waits, so
 * that lines of processes that share a terminal do not mix, and a reader of stderr that has stopped
 * cannot stop an event loop. */
#include "common/log.h"

#include "common/line_ring.h"
#include "common/status.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    TEXT_BYTES = 1024,
    LINE_BYTES = 4096, /* Less than PIPE_BUF: lines of several processes do not mix. */
    TAIL_BYTES = 160,  /* Counts of withheld and lost lines. */
    /* What one cause (one format string) may write: LINES_AT_ONCE lines at once, and
     * LINES_PER_SECOND on average. Strangers can cause some lines as often as they like. */
    LINES_AT_ONCE = 1000,
    LINES_PER_SECOND = 100,
    CAUSES_BITS = 9,
    CAUSES = 1 << CAUSES_BITS, /* More than there are format strings. */
};

struct cause {
    const char *format; /* NULL = the slot is free. */
    int64_t spent_us;   /* The budget is what has gathered since then; see cause_take. */
    uint64_t withheld;  /* Lines not written since the last one that was. */
};

static char process[32] = "cleave";
static atomic_int level_min = LOG_INFO;
static atomic_int format_now = LOG_TEXT;

/* Guards everything below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cause causes[CAUSES];
static uint64_t lost; /* Lines that stderr did not take since the last one that it took. */
/* A descriptor of its own for a stderr that is a pipe or a terminal: it can be made non-blocking
 * without changing what other processes that share stderr see. -1 = use stderr itself. */
static int own_fd = -1;

static bool to_journal; /* stderr is systemd's journal: a line begins with its priority. */

static struct line_ring *kept; /* NULL = lines are not kept. */

static const char *const names[] = {LOG_LEVEL_NAMES};

bool log_level_parse(const char *text, enum log_level *out)
{
    for (int level = LOG_DEBUG; level <= LOG_ERROR; level++) {
        if (strcmp(text, names[level]) != 0)
            continue;
        *out = (enum log_level)level;
        return true;
    }
    return false;
}

/* The journal names its socket by device and inode in JOURNAL_STREAM, see systemd.exec(5). */
static bool is_journal(const struct stat *stderr_stat)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    return stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           device == (unsigned long long)stderr_stat->st_dev &&
           inode == (unsigned long long)stderr_stat->st_ino;
}

void log_open(const char *process_name, enum log_level minimum)
{
    struct stat stat;
    snprintf(process, sizeof(process), "%s", process_name);
    for (char *at = process; *at != 0; at++) /* It stands in JSON, too. */
        if ((unsigned char)*at < ' ' || *at == '"' || *at == '\\')
            *at = '?';
    level_min = (int)minimum;
    if (own_fd >= 0)
        close(own_fd);
    own_fd = -1;
    bool open_now = fstat(STDERR_FILENO, &stat) == 0;
    to_journal = open_now && is_journal(&stat);
    if (open_now && (S_ISFIFO(stat.st_mode) || S_ISCHR(stat.st_mode)))
        own_fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* Writes one line without waiting; returns false if stderr did not take it. */
static bool line_write(const char *line, size_t bytes)
{
    if (own_fd >= 0)
        return write(own_fd, line, bytes) == (ssize_t)bytes;
    ssize_t sent = send(STDERR_FILENO, line, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0 || errno != ENOTSOCK)
        return sent == (ssize_t)bytes;
    struct pollfd writable = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&writable, 1, 0) <= 0)
        return false;
    return write(STDERR_FILENO, line, bytes) == (ssize_t)bytes;
}

/* Returns the slot of a format string, and takes a free one for a new string. If all slots are
 * taken, strings whose hashes are equal share one. */
static struct cause *cause_of(const char *format)
{
    const uintptr_t hash = (uintptr_t)format * (uintptr_t)0x9e3779b97f4a7c15u;
    const uint32_t first = (uint32_t)(hash >> (sizeof(hash) * 8 - CAUSES_BITS));
    for (uint32_t i = 0; i < CAUSES; i++) {
        struct cause *cause = &causes[(first + i) % CAUSES];
        if (cause->format == NULL)
            cause->format = format;
        if (cause->format == format)
            return cause;
    }
    return &causes[first];
}

/* Takes one line from the budget of its cause. Returns how many lines of the cause were withheld
 * before this one, or -1 if this line must be withheld too. */
static int64_t cause_take(const char *format, int64_t now_us)
{
    struct cause *cause = cause_of(format);
    int64_t whole_us = (int64_t)LINES_AT_ONCE * 1000000 / LINES_PER_SECOND;
    int64_t line_us = 1000000 / LINES_PER_SECOND;
    /* A line costs line_us of the time that has passed since spent_us. At most whole_us gathers. */
    if (cause->spent_us < now_us - whole_us)
        cause->spent_us = now_us - whole_us;
    if (cause->spent_us + line_us > now_us) {
        cause->withheld++;
        return -1;
    }
    cause->spent_us += line_us;
    int64_t withheld = (int64_t)cause->withheld;
    cause->withheld = 0;
    return withheld;
}

/* Copies `text` as the inside of a JSON string: control characters are written as \u00NN, and each
 * byte that is not UTF-8 as \ufffd. Returns the bytes written. */
static size_t json_escape(const char *text, char *out, size_t capacity)
{
    size_t used = 0, left = strlen(text);
    const unsigned char *at = (const unsigned char *)text;
    while (left > 0) {
        size_t bytes = *at < 0x80 ? 1 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : 4;
        bool good = bytes <= left && text_utf8_check((const char *)at, bytes) == bytes;
        bool c1 = good && *at == 0xc2 && at[1] < 0xa0;
        unsigned code = !good ? 0xfffd : c1 ? at[1] : *at;
        bool plain = good && !c1 && *at >= 0x20 && *at != 0x7f && *at != '"' && *at != '\\';
        if (used + (plain ? bytes : 6) >= capacity)
            break;
        if (plain)
            memcpy(out + used, at, bytes);
        else
            snprintf(out + used, capacity - used, "\\u%04x", code);
        used += plain ? bytes : 6;
        at += good ? bytes : 1;
        left -= good ? bytes : 1;
    }
    out[used] = 0;
    return used;
}

/* Writes date, level and process. Returns the bytes written. */
static size_t head_write(enum log_level level, enum log_format form, char *line, size_t capacity)
{
    static const char *const heads[] = {
        [LOG_TEXT] = "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %-5s %s: ",
        [LOG_JSON] = "{\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\",\"level\":\"%s\","
                     "\"process\":\"%s\",\""};
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    return (size_t)snprintf(line, capacity, heads[form], utc.tm_year + 1900, utc.tm_mon + 1,
                            utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                            (int)(now.tv_nsec / 1000000), names[level], process);
}

/* Writes a whole line, for the journal with its priority before it (sd-daemon(3)). Returns false if
 * stderr did not take it. */
static bool line_send(enum log_level level, const char *line, size_t bytes)
{
    static const char *const priorities[] = {"<7>", "<6>", "<4>", "<3>"}; /* By level. */
    char whole[LINE_BYTES + 4];
    if (!to_journal)
        return line_write(line, bytes);
    memcpy(whole, priorities[level], 3);
    memcpy(whole + 3, line, bytes);
    return line_write(whole, bytes + 3);
}

/* Writes a line that has everything except its end. cause: identifies the budget; NULL = none. The
 * line has room for TAIL_BYTES more. */
static void line_finish(char *line, size_t length, enum log_level level, const char *cause,
                        enum log_format form)
{
    struct timespec since_start;
    bool json = form == LOG_JSON;
    clock_gettime(CLOCK_MONOTONIC, &since_start);
    pthread_mutex_lock(&lock);
    int64_t withheld = 0;
    if (cause != NULL)
        withheld =
            cause_take(cause, (int64_t)since_start.tv_sec * 1000000 + since_start.tv_nsec / 1000);
    if (withheld >= 0) {
        if (withheld > 0)
            length += (size_t)snprintf(line + length, TAIL_BYTES / 2,
                                       json ? ",\"not_logged\":%" PRId64
                                            : " (%" PRId64 " such lines not logged)",
                                       withheld);
        if (lost > 0)
            length += (size_t)snprintf(line + length, TAIL_BYTES / 2,
                                       json ? ",\"lines_lost\":%" PRIu64
                                            : " (%" PRIu64 " lines lost, stderr was full)",
                                       lost);
        if (json)
            line[length++] = '}';
        if (kept != NULL)
            line_ring_add(kept, line, length);
        line[length++] = '\n';
        lost = line_send(level, line, length) ? 0 : lost + 1;
    }
    pthread_mutex_unlock(&lock);
}

static void line_log(enum log_level level, bool limited, const char *format, va_list args)
{
    char text[TEXT_BYTES], line[LINE_BYTES];
    enum log_format form = (enum log_format)format_now;
    vsnprintf(text, sizeof(text), format, args);
    size_t length = head_write(level, form, line, sizeof(line));
    if (form == LOG_JSON) {
        length += (size_t)snprintf(line + length, sizeof(line) - length, "text\":\"");
        length += json_escape(text, line + length, LINE_BYTES - TAIL_BYTES - length);
        line[length++] = '"';
    } else {
        length += controls_escape(text, line + length, TEXT_BYTES - length);
    }
    line_finish(line, length, level, limited ? format : NULL, form);
}

void log_keep(size_t bytes)
{
    if (kept == NULL)
        (void)line_ring_open(bytes, &kept);
}

void log_kept_write(struct text *out)
{
    pthread_mutex_lock(&lock);
    if (kept != NULL && line_ring_lines(kept) > 0) {
        line_ring_write(kept, "\n", out);
        text_string_add(out, "\n");
    }
    pthread_mutex_unlock(&lock);
}

void log_level_set(enum log_level minimum)
{
    level_min = (int)minimum;
}

void log_format_set(enum log_format format)
{
    format_now = (int)format;
}

enum log_level log_level_min(void)
{
    return (enum log_level)level_min;
}

void log_line(enum log_level level, const char *format, ...)
{
    if ((int)level < level_min)
        return;
    va_list args;
    va_start(args, format);
    line_log(level, true, format, args);
    va_end(args);
}

void log_audit(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    line_log(LOG_INFO, false, format, args);
    va_end(args);
}

void log_object(enum log_level level, bool limited, const char *name, const char *json,
                size_t bytes)
{
    char line[LINE_BYTES];
    enum log_format form = (enum log_format)format_now;
    if (limited && (int)level < level_min)
        return;
    if (bytes > LOG_OBJECT_BYTES) {
        json = "{}";
        bytes = 2;
    }
    size_t length = head_write(level, form, line, sizeof(line));
    length += (size_t)snprintf(line + length, sizeof(line) - length,
                               form == LOG_JSON ? "%s\":%.*s" : "%s: %.*s", name, (int)bytes, json);
    line_finish(line, length, level, limited ? name : NULL, form);
}
