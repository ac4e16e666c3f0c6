/* log: writes lines to stderr. A line has date and time (UTC, RFC 3339), level, process and text
 * (`request 42 machine prompt-0 died, resumes at token 17`). machine/ and server/ write lines; the
 * other folders return a status instead. Any thread may call the functions, unless a comment says
 * otherwise. The log has no files. With the format LOG_JSON, a line is a JSON object:
 *
 *   {"time":"2026-11-26T10:00:00.123Z","level":"info","process":"prompt-0","text":"…"}
 *   {"time":…,"level":…,"process":…,"audit":{…}}                       (log_object)
 *
 * The log does not wait: a line that stderr does not take at once is lost, and the next line
 * reports the number of lost lines. The lines of log_line with one format string share a budget:
 * 1,000 lines at once, and 100 lines a second on average. Lines beyond the budget are not written;
 * the next line within the budget reports their number. The text of a line is cut after about 1,000
 * bytes. Control characters in this text are written as \xNN, in JSON as \u00NN. */
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
 * is written (`minimum`). The name is copied and cut after 31 bytes; bytes below 0x20, quotation
 * marks and backslashes in it become "?". Requires that no other thread exists. */
void log_open(const char *process_name, enum log_level minimum);

/* Changes the lowest level that is written. */
void log_level_set(enum log_level minimum);
/* Changes the form of the lines. Before the first call, the form is LOG_TEXT. */
void log_format_set(enum log_format format);
/* Returns the lowest level that is written. */
enum log_level log_level_min(void);

/* Makes the log keep the latest lines in memory, up to `bytes` bytes, including lines that stderr
 * did not take. If memory is short, no lines are kept. Call this function once, before other
 * threads exist. */
void log_keep(size_t bytes);
struct text;
/* Appends the lines that log_keep keeps to *out, each with a line feed at its end. */
void log_kept_write(struct text *out);

/* Writes one line, if its level is high enough and the budget of its format string is not used
 * up. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes one line of level "info", even if the lowest level is higher, and without a budget. */
void log_audit(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes a line with a JSON object: `NAME: {…}`, or with LOG_JSON a member NAME of the line. Writes
 * `{}` instead of an object of more than LOG_OBJECT_BYTES. If `limited` is true, writes the line
 * only if its level is high enough and the budget of `name` is not used up. Requires that `name` is
 * a string constant and that `json` is valid JSON without line feeds. */
#define LOG_OBJECT_BYTES 3600
void log_object(enum log_level level, bool limited, const char *name, const char *json,
                size_t bytes);

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
