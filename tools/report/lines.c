/* lines: see the header. */
#include "tools/report/lines.h"

enum status lines_end_check(FILE *file, const char *name, struct error *error)
{
    if (ferror(file)) /* Such as a folder. */
        return error_set(error, ST_IO, "%s: cannot be read", name);
    if (!feof(file)) /* getline found no memory, and does not mark the file. */
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", name);
    return ST_OK;
}
