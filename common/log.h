/* log: writes one line per event to stderr: date and time (UTC), level, process, text (`request 42
 * machine prompt-0 died, resumes at token 17`). Only machine/ and server/ call it, on any thread;
 * the other folders return a status instead. It opens no log files and rotates nothing.
 *
 * A line is written as a whole or not at all, without waiting. If stderr does not take a line at
 * once, the line is lost, and the next line that stderr takes reports the number of lost lines. All
 * lines with the same format string have one budget: at most 1,000 lines at once, and 100 a second
 * on average. Further lines are not logged, and the next line within the budget reports their
 * number. Lines of log_audit have no budget. A line is cut after about 1,000 bytes. Control
 * characters are written as \xNN. */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
/* The names of the levels, in their order. */
#define LOG_LEVEL_NAMES "debug", "info", "warn", "error"

/* Stores the level that the text names: "debug", "info", "warn" or "error". Returns false, and
 * stores nothing, for any other text. */
bool log_level_parse(const char *text, enum log_level *out);

/* Sets the process name that each line contains ("gateway", "prompt-0"; copied, cut after 31
 * bytes), and the lowest level that is written (`minimum`). Requires that no other thread exists.
 */
void log_open(const char *process_name, enum log_level minimum);

/* Writes one line, unless its level is too low, stderr does not take it at once, or the budget of
 * its format string is used up. Errors are not reported to the caller. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes one line with the level "info", also if the lowest level is higher, and without a budget.
 * Only for acts of administrators, which other clients cannot cause. */
void log_audit(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
