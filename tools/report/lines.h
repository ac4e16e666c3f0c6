/* lines: tells apart why getline has returned -1, which says nothing but that there is no line.
 * Readers of files in tools/ call the function; it keeps no state. */
#ifndef TOOLS_REPORT_LINES_H
#define TOOLS_REPORT_LINES_H

#include "common/status.h"

#include <stdio.h>

/* Call it after the last getline of `file`. Returns ST_OK at the end of the file, ST_IO if the file
 * cannot be read, and ST_NO_MEMORY if memory ran out for a line. name: the file's name in the
 * error. */
enum status lines_end_check(FILE *file, const char *name, struct error *error);

#endif
