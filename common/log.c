/* log: formats one line into a stack buffer and writes it with a single write(2), so that lines of
 * processes that share a terminal never mix. */
#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char process[32] = "cleave";
static enum log_level least_level = LOG_INFO;

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

void log_open(const char *process_name, enum log_level least)
{
    snprintf(process, sizeof(process), "%s", process_name);
    least_level = least;
}

void log_line(enum log_level level, const char *format, ...)
{
    if (level < least_level)
        return;
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    char line[1024];
    int used =
        snprintf(line, sizeof(line), "%02d:%02d:%02d.%03d %-5s %s: ", utc.tm_hour, utc.tm_min,
                 utc.tm_sec, (int)(now.tv_nsec / 1000000), names[level], process);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, args);
    va_end(args);
    size_t length = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (length > sizeof(line) - 2)
        length = sizeof(line) - 2;
    line[length++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, length); /* A full disk must not stop a request. */
    (void)ignored;
}
