/* date: dates as text, in the form of RFC 3339, such as 2027-01-31T18:00:00Z. Any folder may call
 * the functions, on any thread; they keep no state. They know no names of time zones and no leap
 * seconds. */
#ifndef COMMON_DATE_H
#define COMMON_DATE_H

#include <stdbool.h>
#include <stdint.h>

#define DATE_BYTES 24 /* A date as date_text writes it, with its NUL. */

/* Stores the Unix time, in seconds, of a date such as "2027-01-31T18:00:00Z". The text may have a
 * lower-case t or z, a space instead of T, and an offset such as +02:00 instead of Z. A fraction of
 * a second is ignored. Returns false for any other text and for a date that does not exist. */
bool date_parse(const char *text, int64_t *out);
/* Writes the date of a Unix time, in UTC; "" if the year is not 1000 to 9999. */
void date_text(int64_t unix_s, char out[DATE_BYTES]);

#endif
