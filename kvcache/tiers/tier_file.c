/* tier_file: the file has a header, then groups of GROUP_PLACES places. A group has an index with
 * one entry for each of its places, then the places, each with one record. So the offset of a place
 * does not depend on the size of the file, and a file that is made larger or smaller keeps the
 * records in the places that it still has. An index is contiguous, so that it is read quickly when
 * the machine starts. A record is written before its entry: if the machine ends in between, the
 * place has another record than the entry says, and tier_record_open refuses it. */
#include "kvcache/tiers/tier_file.h"

#include "common/siphash.h"
#include "kvcache/tiers/tier_index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC        "cleaveTF"
#define VERSION      2
#define PAGE         4096
#define PLACES_MIN   4
#define GROUP_PLACES 512
#define INDEX_BYTES  (GROUP_PLACES * sizeof(struct entry)) /* Of a group. */

struct file_header {
    char magic[8];
    uint64_t version;
    uint64_t record_bytes;
    struct digest identity;
};

struct entry { /* In the file. All zeros = the place is empty. */
    struct digest name;
    uint64_t number; /* Records are numbered from 1 in the order in which they were written. */
    uint64_t check;  /* SipHash of the members before. */
    uint64_t padding[2];
};
_Static_assert(sizeof(struct entry) == 64, "entries do not cross a page");

struct tier_file {
    struct tier_backend backend;
    uint64_t bytes;
    uint64_t record_bytes;
    uint64_t place_bytes;
    uint64_t number;          /* Number of the latest record. */
    uint32_t count;           /* Places. */
    struct tier_index *index; /* NULL = the file is not open. */
    int fd;
    char path[];
};

static struct tier_file *file_of(struct tier_backend *b)
{
    return (struct tier_file *)(void *)b;
}

static enum status fail(const struct tier_file *f, const char *what, struct error *error)
{
    return error_set(error, ST_IO, "%s: %s: %s", f->path, what, strerror(errno));
}

/* ---- reading and writing ---- */

static enum status too_short(const struct tier_file *f, struct error *error)
{
    return error_set(error, ST_IO, "%s: the file was made shorter than %llu bytes", f->path,
                     (unsigned long long)f->bytes);
}

static enum status file_read(const struct tier_file *f, void *to, size_t bytes, uint64_t at,
                             struct error *error)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(f->fd, (char *)to + done, bytes - done, (off_t)(at + done));
        if (got == 0)
            return too_short(f, error);
        if (got < 0 && errno != EINTR)
            return fail(f, "cannot be read", error);
        done += got > 0 ? (size_t)got : 0;
    }
    return ST_OK;
}

static enum status file_write(const struct tier_file *f, const void *from, size_t bytes,
                              uint64_t at, struct error *error)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got =
            pwrite(f->fd, (const char *)from + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno != EINTR)
            return fail(f, "cannot be written", error);
        done += got > 0 ? (size_t)got : 0;
    }
    return ST_OK;
}

static uint64_t group_bytes(const struct tier_file *f)
{
    return INDEX_BYTES + GROUP_PLACES * f->place_bytes;
}

static uint64_t entry_offset(const struct tier_file *f, uint32_t place)
{
    return PAGE + place / GROUP_PLACES * group_bytes(f) +
           place % GROUP_PLACES * sizeof(struct entry);
}

static uint64_t place_offset(const struct tier_file *f, uint32_t place)
{
    return PAGE + place / GROUP_PLACES * group_bytes(f) + INDEX_BYTES +
           place % GROUP_PLACES * f->place_bytes;
}

static uint64_t entry_check(const struct entry *entry)
{
    static const uint64_t key[2] = {0};
    return siphash(key, entry, offsetof(struct entry, check));
}

static enum status entry_write(const struct tier_file *f, uint32_t place, const struct digest *name,
                               uint64_t number, struct error *error)
{
    struct entry entry = {.number = number};
    if (name != NULL) {
        entry.name = *name;
        entry.check = entry_check(&entry);
    }
    return file_write(f, &entry, sizeof(entry), entry_offset(f, place), error);
}

/* ---- opening ---- */

static uint64_t pages(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Returns the number of places in a file of `bytes` bytes. */
static uint64_t places_of(const struct tier_file *f, uint64_t bytes)
{
    const uint64_t room = bytes > PAGE ? bytes - PAGE : 0, rest = room % group_bytes(f);
    return room / group_bytes(f) * GROUP_PLACES +
           (rest > INDEX_BYTES ? (rest - INDEX_BYTES) / f->place_bytes : 0);
}

static enum status sizes_set(struct tier_file *f, size_t record_bytes, struct error *error)
{
    f->record_bytes = record_bytes;
    f->place_bytes = pages(record_bytes);
    const uint64_t needed = PAGE + INDEX_BYTES + PLACES_MIN * f->place_bytes;
    const uint64_t places = places_of(f, f->bytes);
    if (f->bytes < needed || places >= TIER_INDEX_NONE)
        return error_set(error, ST_INVALID, "%s: %llu bytes: want at least %llu for this model",
                         f->path, (unsigned long long)f->bytes, (unsigned long long)needed);
    f->count = (uint32_t)places;
    return ST_OK;
}

static enum status file_size(const struct tier_file *f, uint64_t *bytes_out, struct error *error)
{
    struct stat state;
    if (fstat(f->fd, &state) != 0)
        return fail(f, "cannot be read", error);
    if (!S_ISREG(state.st_mode))
        return error_set(error, ST_INVALID, "%s: want a regular file", f->path);
    *bytes_out = (uint64_t)state.st_size;
    return ST_OK;
}

/* Gives the file its size, and its space on the disk where the file system can. `before`: the
 * bytes of the file's content that is kept. */
static enum status file_resize(const struct tier_file *f, uint64_t before, struct error *error)
{
    if (ftruncate(f->fd, (off_t)f->bytes) != 0)
        return fail(f, "cannot be made so large", error);
    if (fallocate(f->fd, 0, 0, (off_t)f->bytes) == 0 || errno == EOPNOTSUPP)
        return ST_OK;
    const int failed = errno;
    if (before < f->bytes) /* the disk is full: gives back what was allocated */
        (void)!ftruncate(f->fd, (off_t)before);
    return error_set(error, ST_IO, "%s: no space for %llu bytes: %s", f->path,
                     (unsigned long long)f->bytes, strerror(failed));
}

/* What the file held when it was opened. */
struct found {
    uint64_t bytes;
    uint32_t places;  /* Places that the file had and still has. */
    uint32_t records; /* In these places. */
    uint32_t dropped; /* Records in other places. */
};

/* Takes a record in the order of places; the next record goes behind the latest one. */
static void entry_take(struct tier_file *f, const struct entry *entry, uint32_t place,
                       struct found *found)
{
    if (entry->number == 0 || entry->check != entry_check(entry) ||
        tier_index_find(f->index, &entry->name) != TIER_INDEX_NONE)
        return;
    if (place >= found->places) {
        found->dropped++;
        return;
    }
    found->records++;
    tier_index_add(f->index, place, &entry->name);
    if (entry->number > f->number) {
        f->number = entry->number;
        tier_index_latest_set(f->index, place);
    }
}

/* Reads the entries of all indexes that the file has. */
static enum status index_read(struct tier_file *f, struct found *found, struct error *error)
{
    struct entry entries[PAGE / sizeof(struct entry)];
    const uint32_t step = sizeof(entries) / sizeof(entries[0]);
    _Static_assert(GROUP_PLACES % (PAGE / sizeof(struct entry)) == 0, "a step is in one index");
    for (uint32_t first = 0;
         first < TIER_INDEX_NONE - step && entry_offset(f, first) + sizeof(entries) <= found->bytes;
         first += step) {
        const enum status status =
            file_read(f, entries, sizeof(entries), entry_offset(f, first), error);
        if (status != ST_OK)
            return status;
        for (uint32_t i = 0; i < step; i++)
            entry_take(f, &entries[i], first + i, found);
    }
    return ST_OK;
}

/* The kept places may end inside a group, whose index then has entries of further places: places
 * that a file of another size had, or will have when it is made larger. Removes these entries. */
static enum status entries_clear(const struct tier_file *f, const struct found *found,
                                 struct error *error)
{
    static const struct entry none[GROUP_PLACES];
    const uint64_t first = entry_offset(f, found->places);
    uint64_t end = place_offset(f, found->places / GROUP_PLACES * GROUP_PLACES);
    if (end > f->bytes)
        end = f->bytes;
    return first < end ? file_write(f, none, end - first, first, error) : ST_OK;
}

/* Reads the records of an earlier start, and makes a larger file smaller. If the file was full and
 * has become larger, the next record goes to the first new place. */
static enum status content_read(struct tier_file *f, struct found *found, struct error *error)
{
    const uint64_t before = places_of(f, found->bytes);
    found->places = before < f->count ? (uint32_t)before : f->count;
    enum status status = index_read(f, found, error);
    if (status == ST_OK && found->bytes > f->bytes)
        status = file_resize(f, found->bytes, error);
    if (status == ST_OK && found->bytes != f->bytes)
        status = entries_clear(f, found, error);
    if (status != ST_OK)
        return status;
    if (found->places < f->count && found->places == found->records && found->places > 0)
        tier_index_latest_set(f->index, found->places - 1);
    if (found->dropped > 0)
        error_set(error, ST_OK, "%s has become smaller: %u records are kept, %u are dropped",
                  f->path, found->records, found->dropped);
    return ST_OK;
}

/* Removes what the file has, and says so in *error if there was something. */
static enum status content_remove(const struct tier_file *f, struct found *found,
                                  struct error *error)
{
    if (ftruncate(f->fd, 0) != 0)
        return fail(f, "cannot be emptied", error);
    if (found->bytes > 0)
        error_set(error, ST_OK, "%s had no KV of this model, type and release: it was emptied",
                  f->path);
    found->bytes = 0;
    return ST_OK;
}

/* Reads the records of an earlier start; those of another identity are removed. */
static enum status content_open(struct tier_file *f, const struct digest *identity,
                                struct error *error)
{
    const struct file_header header = {
        .magic = MAGIC, .version = VERSION, .record_bytes = f->record_bytes, .identity = *identity};
    struct file_header in_file;
    struct found found = {0};
    enum status status = file_size(f, &found.bytes, error);
    if (status != ST_OK)
        return status;
    const ssize_t got = pread(f->fd, &in_file, sizeof(in_file), 0);
    const bool known =
        got == (ssize_t)sizeof(in_file) && memcmp(&in_file, &header, sizeof(in_file)) == 0;
    if (!known)
        status = content_remove(f, &found, error);
    if (status == ST_OK && found.bytes <= f->bytes)
        status = file_resize(f, found.bytes, error);
    if (status == ST_OK && !known)
        status = file_write(f, &header, sizeof(header), 0, error);
    if (status == ST_OK && tier_index_open(f->count, &f->index) != ST_OK)
        status = error_set(error, ST_NO_MEMORY, "%s: no memory for its index", f->path);
    return status == ST_OK && known ? content_read(f, &found, error) : status;
}

static void content_close(struct tier_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    tier_index_close(f->index);
    f->fd = -1;
    f->index = NULL;
}

static enum status file_open(struct tier_backend *b, const struct digest *identity,
                             size_t record_bytes, int64_t deadline_us, struct error *error)
{
    struct tier_file *f = file_of(b);
    (void)deadline_us;
    enum status status = sizes_set(f, record_bytes, error);
    if (status != ST_OK)
        return status;
    f->fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (f->fd < 0)
        return fail(f, "cannot be opened", error);
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK
                     ? error_set(error, ST_UNREACHABLE, "%s: another process uses it", f->path)
                     : fail(f, "cannot be locked", error);
    if (status == ST_OK)
        status = content_open(f, identity, error);
    if (status != ST_OK)
        content_close(f);
    return status;
}

/* ---- records ---- */

static enum status file_stored_count(struct tier_backend *b, const struct digest *names,
                                     uint32_t count, int64_t deadline_us, uint32_t *count_out,
                                     struct error *error)
{
    (void)deadline_us;
    (void)error;
    *count_out = tier_index_count(file_of(b)->index, names, count);
    return ST_OK;
}

static enum status file_get(struct tier_backend *b, const struct digest *name, void *record_out,
                            int64_t deadline_us, struct error *error)
{
    struct tier_file *f = file_of(b);
    const uint32_t place = tier_index_find(f->index, name);
    (void)deadline_us;
    if (place == TIER_INDEX_NONE)
        return ST_NOT_FOUND;
    tier_index_use(f->index, place);
    return file_read(f, record_out, f->record_bytes, place_offset(f, place), error);
}

static enum status file_put(struct tier_backend *b, const struct digest *name, const void *record,
                            int64_t deadline_us, struct error *error)
{
    struct tier_file *f = file_of(b);
    uint32_t place = tier_index_find(f->index, name);
    struct stat state;
    (void)deadline_us;
    if (place != TIER_INDEX_NONE) {
        tier_index_use(f->index, place);
        return ST_OK;
    }
    if (fstat(f->fd, &state) != 0)
        return fail(f, "cannot be read", error);
    if ((uint64_t)state.st_size < f->bytes) /* Writing would make it longer, with zeros between. */
        return too_short(f, error);
    place = tier_index_take(f->index);
    enum status status = file_write(f, record, f->record_bytes, place_offset(f, place), error);
    if (status == ST_OK)
        status = entry_write(f, place, name, ++f->number, error);
    if (status == ST_OK)
        tier_index_add(f->index, place, name);
    return status;
}

static enum status file_drop(struct tier_backend *b, const struct digest *name, int64_t deadline_us,
                             struct error *error)
{
    struct tier_file *f = file_of(b);
    const uint32_t place = tier_index_find(f->index, name);
    (void)deadline_us;
    if (place == TIER_INDEX_NONE)
        return ST_OK;
    tier_index_remove(f->index, place);
    return entry_write(f, place, NULL, 0, error);
}

static void file_close(struct tier_backend *b)
{
    content_close(file_of(b));
    free(b);
}

enum status tier_file_make(const char *path, uint64_t file_bytes, struct tier_backend **out)
{
    static const struct tier_backend_ops ops = {.kind = TIER_KIND_FILE,
                                                .open = file_open,
                                                .stored_count = file_stored_count,
                                                .get = file_get,
                                                .put = file_put,
                                                .drop = file_drop,
                                                .close = file_close};
    const size_t path_bytes = strlen(path) + 1;
    struct tier_file *f = calloc(1, sizeof(*f) + path_bytes);
    if (f == NULL)
        return ST_NO_MEMORY;
    f->backend.ops = &ops;
    f->bytes = file_bytes;
    f->fd = -1;
    memcpy(f->path, path, path_bytes);
    *out = &f->backend;
    return ST_OK;
}
