/* date: see the header. */
#include "common/date.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Reads exactly `digits` digits, and `after` behind them (0 = anything). */
static bool read_digits(const char **text, int digits, char after, int *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++, (*text)++) {
        if (**text < '0' || **text > '9')
            return false;
        *out = *out * 10 + (**text - '0');
    }
    return after == 0 || *(*text)++ == after;
}

/* Reads "Z", "+02:00" or "-02:00" at the end of the text. */
static bool read_offset(const char *text, int64_t *seconds_out)
{
    int hours, minutes;
    char sign = *text++;
    *seconds_out = 0;
    if (sign == 'Z' || sign == 'z')
        return *text == 0;
    if ((sign != '+' && sign != '-') || !read_digits(&text, 2, ':', &hours) ||
        !read_digits(&text, 2, 0, &minutes) || *text != 0 || hours > 23 || minutes > 59)
        return false;
    *seconds_out = (sign == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
    return true;
}

bool date_parse(const char *text, int64_t *out)
{
    struct tm tm = {0};
    int64_t offset_s;
    if (!read_digits(&text, 4, '-', &tm.tm_year) || !read_digits(&text, 2, '-', &tm.tm_mon) ||
        !read_digits(&text, 2, 0, &tm.tm_mday) || *text == 0 || strchr("Tt ", *text) == NULL)
        return false;
    text++;
    if (!read_digits(&text, 2, ':', &tm.tm_hour) || !read_digits(&text, 2, ':', &tm.tm_min) ||
        !read_digits(&text, 2, 0, &tm.tm_sec))
        return false;
    if (*text == '.') {
        size_t digits = strspn(text + 1, "0123456789");
        if (digits == 0)
            return false;
        text += 1 + digits;
    }
    if (!read_offset(text, &offset_s) || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 59)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    const struct tm read = tm;
    time_t seconds = timegm(&tm); /* Changes a date that does not exist, such as 31 April. */
    if (tm.tm_year != read.tm_year || tm.tm_mon != read.tm_mon || tm.tm_mday != read.tm_mday)
        return false;
    *out = (int64_t)seconds - offset_s;
    return true;
}

void date_text(int64_t unix_s, char out[DATE_BYTES])
{
    time_t seconds = (time_t)unix_s;
    struct tm utc;
    out[0] = 0;
    if (gmtime_r(&seconds, &utc) == NULL || utc.tm_year < 1000 - 1900 || utc.tm_year > 9999 - 1900)
        return;
    if (strftime(out, DATE_BYTES, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        out[0] = 0;
}
