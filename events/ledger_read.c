/* ledger_read: the latest lines of a ledger, from the end of the file backwards. A line is found by
 * its members' names: quotes in values are escaped, so no value can look like a member. */
#include "events/ledger.h"

#include "common/date.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES (256u << 10)
#define LINE_BYTES  4096u /* Longer than any line. */

/* Copies the text of a member; false = the line has no such member. */
static bool member_text(const char *line, const char *name, char *out, size_t capacity)
{
    const char *at = strstr(line, name);
    const char *end = at != NULL ? strchr(at + strlen(name), '"') : NULL;
    if (end == NULL)
        return false;
    at += strlen(name);
    if ((size_t)(end - at) >= capacity)
        return false;
    memcpy(out, at, (size_t)(end - at));
    out[end - at] = 0;
    return true;
}

static uint64_t member_number(const char *line, const char *name)
{
    const char *at = strstr(line, name);
    return at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static int64_t member_date(const char *line, const char *name)
{
    char text[40];
    int64_t date;
    return member_text(line, name, text, sizeof(text)) && date_parse(text, &date) ? date : -1;
}

struct reading {
    int64_t from_s;
    void (*on_answer)(void *self, const char *key_name, int64_t began_s, uint64_t tokens);
    void *self;
};

/* Reports the answer of a line. Returns false if this line and those before it are too old. */
static bool line_take(const struct reading *r, const char *line)
{
    char key[LIMIT_KEY_NAME_BYTES];
    int64_t began_s = member_date(line, ",\"began\":\"");
    int64_t ended_s = member_date(line, ",\"ended\":\"");
    if (ended_s >= 0 && ended_s < r->from_s)
        return false;
    if (began_s >= r->from_s && member_text(line, ",\"key\":\"", key, sizeof(key)))
        r->on_answer(r->self, key, began_s,
                     member_number(line, ",\"prompt_tokens\":") +
                         member_number(line, ",\"answer_tokens\":"));
    return true;
}

/* Takes the complete lines of data[0, bytes), the last first. first: data begins at the beginning
 * of the file. Stores the bytes of the incomplete line at the beginning. */
static bool lines_take(const struct reading *r, char *data, size_t bytes, bool first,
                       size_t *left_out)
{
    while (bytes > 0) {
        size_t begin = bytes;
        while (begin > 0 && data[begin - 1] != '\n')
            begin--;
        if (begin == 0 && !first)
            break;
        data[bytes] = 0;
        if (bytes > begin && !line_take(r, data + begin))
            return false;
        bytes = begin > 0 ? begin - 1 : 0;
        if (begin == 0)
            break;
    }
    *left_out = bytes;
    return true;
}

/* Returns false on an error of the file, with errno set. */
static bool file_read(const struct reading *r, int fd, off_t size)
{
    char *data = malloc(BLOCK_BYTES + LINE_BYTES + 1);
    size_t left = 0; /* Bytes at `size` that belong to a line that begins before. */
    bool good = data != NULL;
    while (good && size > 0) {
        size_t bytes = size < (off_t)BLOCK_BYTES ? (size_t)size : BLOCK_BYTES;
        if (left > LINE_BYTES)
            left = 0; /* No line of a ledger. */
        memmove(data + bytes, data, left);
        size -= (off_t)bytes;
        good = pread(fd, data, bytes, size) == (ssize_t)bytes;
        if (good && !lines_take(r, data, bytes + left, size == 0, &left))
            break;
    }
    free(data);
    return good;
}

enum status ledger_read_since(const char *path, int64_t from_s,
                              void (*on_answer)(void *self, const char *key_name, int64_t began_s,
                                                uint64_t tokens),
                              void *self, struct error *error)
{
    const struct reading r = {from_s, on_answer, self};
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? ST_NOT_FOUND
                               : error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    enum status status = ST_OK;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && !file_read(&r, fd, info.st_size))
        status = error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    close(fd);
    return status;
}
