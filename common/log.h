/* log: writes one line per event to stderr: time, level, process, then lower-case words, name then
 * value (`request 42 machine prompt-0 died, resumes at token 17`). Only machine/ and server/ call
 * it, on any thread; the folders below return a status instead. It writes no files and rotates
 * nothing.
 *
 * A line is written as a whole or not at all, and never waits: a line that stderr does not take at
 * once is lost, and the next one that it takes says how many were. One cause (one format string)
 * writes at most 1,000 lines at once and 100 a second on average; the next line of that cause says
 * how many were not logged. Lines of log_audit have no such limit. Control characters are written
 * as \xNN. */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
/* The names of the levels, in their order. */
#define LOG_LEVEL_NAMES "debug", "info", "warn", "error"

/* Stores the level that the text names: "debug", "info", "warn" or "error". Returns false, and
 * stores nothing, for any other text. */
bool log_level_parse(const char *text, enum log_level *out);

/* Sets the process name that each line contains ("gateway", "prompt-0"; copied), and the lowest
 * level that is written. Call it once, before other threads exist. */
void log_open(const char *process_name, enum log_level least);

/* Writes one line, unless the level is too low, stderr does not take the line at once, or the
 * line's cause is over its limit. Never blocks, and never fails for the caller. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes one line at the level "info". Neither the lowest level nor the limit of a cause withholds
 * it, so call it only for acts of administrators, which strangers cannot repeat. */
void log_audit(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
