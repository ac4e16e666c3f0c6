/* log: writes one line per event to stderr: date and time (UTC, RFC 3339), level, process, text
 * (`request 42 machine prompt-0 died, resumes at token 17`). machine/ and server/ call it, on any
 * thread; the other folders return a status instead. It opens no log files and rotates nothing.
 * With the format LOG_JSON, each line is a JSON object:
 *
 *   {"time":"2026-11-26T10:00:00.123Z","level":"info","process":"prompt-0","text":"…"}
 *   {"time":…,"level":…,"process":…,"audit":{…}}                       (log_object)
 *
 * A line is written as a whole or not at all, without waiting. If stderr does not take a line at
 * once, the line is lost, and the next line that stderr takes reports the number of lost lines. All
 * lines with the same format string have one budget: at most 1,000 lines at once, and 100 a second
 * on average. Further lines are not logged, and the next line within the budget reports their
 * number. Lines of log_audit have no budget. A text is cut after about 1,000 bytes. Control
 * characters are written as \xNN, in JSON as \u00NN. If stderr is systemd's journal, each line
 * begins with its priority (<6>), which the journal takes away. */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
/* The names of the levels, in their order. */
#define LOG_LEVEL_NAMES "debug", "info", "warn", "error"

/* Stores the level that the text names: "debug", "info", "warn" or "error". Returns false, and
 * stores nothing, for any other text. */
bool log_level_parse(const char *text, enum log_level *out);

enum log_format { LOG_TEXT, LOG_JSON };

/* Sets the process name that each line contains ("gateway", "prompt-0"), and the lowest level that
 * is written (`minimum`). The name is copied and cut after 31 bytes; control characters, quotation
 * marks and backslashes in it become "?". Requires that no other thread exists. */
void log_open(const char *process_name, enum log_level minimum);

/* Change the lowest level that is written, and the form of the lines (at first LOG_TEXT). Any
 * thread may call them at any time. */
void log_level_set(enum log_level minimum);
void log_format_set(enum log_format format);
enum log_level log_level_now(void);

/* From now on, keeps the latest lines in memory, up to `bytes` bytes, for log_kept_write; also
 * lines that stderr does not take. If there is no memory, no lines are kept. Call log_keep once,
 * while no other thread exists. */
void log_keep(size_t bytes);
struct text;
/* Appends the kept lines, each with its line feed. */
void log_kept_write(struct text *out);

/* Writes one line, unless its level is too low, stderr does not take it at once, or the budget of
 * its format string is used up. Errors are not reported to the caller. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes one line with the level "info", also if the lowest level is higher, and without a budget.
 * The line is still lost if stderr does not take it at once. Only for actions of administrators,
 * which other clients cannot cause, and for lines that the config asks for, one line per answer. */
void log_audit(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes a line whose content is a JSON object: `NAME: {…}`, or with LOG_JSON the member NAME. The
 * object is not cut: an object of more than LOG_OBJECT_BYTES is replaced by `{}`. limited = true:
 * the line is written only if its level is high enough and the budget of `name` allows it; false:
 * always, as log_audit does. `name` is a constant; json is valid JSON without line feeds. */
#define LOG_OBJECT_BYTES 3600
void log_object(enum log_level level, bool limited, const char *name, const char *json,
                size_t bytes);

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
