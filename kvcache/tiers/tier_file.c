/* tier_file: the file has a header, then an index with one entry for each place, then the places,
 * each with one record. The index is small and contiguous, so that it is read quickly when the
 * machine starts. A record is written before its entry: if the machine ends in between, the place
 * has another record than the entry says, and tier_record_open refuses it. */
#include "kvcache/tiers/tier_file.h"

#include "common/siphash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC      "cleaveTF"
#define VERSION    1
#define PAGE       4096
#define PLACES_MIN 4
#define NONE       UINT32_MAX

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

struct place {        /* In memory. */
    uint64_t name[2]; /* The first bytes of the name. tier_record_open compares the whole name. */
    uint32_t next;    /* Next place of the bucket. */
    bool used;
    bool was_read; /* Since the hand passed. */
};

struct tier_file {
    struct tier_backend backend;
    uint64_t bytes;
    uint64_t record_bytes;
    uint64_t place_bytes;
    uint64_t first_place; /* Offset of place 0 in the file. */
    uint64_t number;      /* Number of the latest record. */
    uint32_t count;       /* Places. */
    uint32_t hand;        /* The next record is written here or later. */
    uint32_t bucket_mask;
    uint32_t *buckets;
    struct place *places;
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

static uint64_t place_offset(const struct tier_file *f, uint32_t place)
{
    return f->first_place + place * f->place_bytes;
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
    return file_write(f, &entry, sizeof(entry), PAGE + place * sizeof(entry), error);
}

/* ---- the index in memory ---- */

static uint32_t *bucket_of(const struct tier_file *f, const uint64_t name[2])
{
    return &f->buckets[name[0] & f->bucket_mask];
}

static uint32_t place_find(const struct tier_file *f, const struct digest *name)
{
    uint64_t key[2];
    memcpy(key, name->bytes, sizeof(key));
    uint32_t place = *bucket_of(f, key);
    while (place != NONE && memcmp(f->places[place].name, key, sizeof(key)) != 0)
        place = f->places[place].next;
    return place;
}

static void place_add(struct tier_file *f, uint32_t place, const struct digest *name)
{
    struct place *p = &f->places[place];
    memcpy(p->name, name->bytes, sizeof(p->name));
    uint32_t *bucket = bucket_of(f, p->name);
    p->used = true;
    p->was_read = false;
    p->next = *bucket;
    *bucket = place;
}

static void place_remove(struct tier_file *f, uint32_t place)
{
    struct place *p = &f->places[place];
    uint32_t *link = bucket_of(f, p->name);
    while (*link != place)
        link = &f->places[*link].next;
    *link = p->next;
    p->used = false;
}

/* Returns the place of the next record, and moves the hand behind it. */
static uint32_t place_take(struct tier_file *f)
{
    while (f->places[f->hand].used && f->places[f->hand].was_read) {
        f->places[f->hand].was_read = false;
        f->hand = (f->hand + 1) % f->count;
    }
    const uint32_t place = f->hand;
    f->hand = (f->hand + 1) % f->count;
    if (f->places[place].used)
        place_remove(f, place);
    return place;
}

/* ---- opening ---- */

static uint64_t pages(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static enum status sizes_set(struct tier_file *f, size_t record_bytes, struct error *error)
{
    f->record_bytes = record_bytes;
    f->place_bytes = pages(record_bytes);
    const uint64_t needed = 2 * PAGE + PLACES_MIN * (f->place_bytes + sizeof(struct entry));
    const uint64_t most = (f->bytes - PAGE) / (f->place_bytes + sizeof(struct entry));
    if (f->bytes < needed || most >= NONE)
        return error_set(error, ST_INVALID, "%s: %llu bytes: want at least %llu for this model",
                         f->path, (unsigned long long)f->bytes, (unsigned long long)needed);
    f->count = (uint32_t)most;
    f->first_place = PAGE + pages(f->count * sizeof(struct entry));
    if (f->first_place + f->count * f->place_bytes > f->bytes) {
        f->count--;
        f->first_place = PAGE + pages(f->count * sizeof(struct entry));
    }
    return ST_OK;
}

static enum status index_open(struct tier_file *f, struct error *error)
{
    uint32_t buckets = 1;
    while (buckets < f->count && buckets < 1u << 31)
        buckets *= 2;
    f->bucket_mask = buckets - 1;
    f->places = calloc(f->count, sizeof(f->places[0]));
    f->buckets = malloc(buckets * sizeof(f->buckets[0]));
    if (f->places == NULL || f->buckets == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: no memory for its index", f->path);
    memset(f->buckets, 0xff, buckets * sizeof(f->buckets[0])); /* NONE */
    return ST_OK;
}

/* Gives the file its size, and its space on the disk where the file system can. */
static enum status file_resize(const struct tier_file *f, struct error *error)
{
    struct stat state;
    if (fstat(f->fd, &state) != 0)
        return fail(f, "cannot be read", error);
    if (!S_ISREG(state.st_mode))
        return error_set(error, ST_INVALID, "%s: want a regular file", f->path);
    if (ftruncate(f->fd, (off_t)f->bytes) != 0)
        return fail(f, "cannot be made so large", error);
    if (fallocate(f->fd, 0, 0, (off_t)f->bytes) == 0 || errno == EOPNOTSUPP)
        return ST_OK;
    const int failed = errno;
    (void)!ftruncate(f->fd, 0); /* the disk is full: gives back what was allocated */
    return error_set(error, ST_IO, "%s: no space for %llu bytes: %s", f->path,
                     (unsigned long long)f->bytes, strerror(failed));
}

/* Reads the entries of the index. Takes records in the order of places; the hand goes behind the
 * latest record. */
static enum status index_read(struct tier_file *f, struct error *error)
{
    struct entry entries[PAGE / sizeof(struct entry)];
    const uint32_t step = sizeof(entries) / sizeof(entries[0]);
    for (uint32_t first = 0; first < f->count; first += step) {
        const uint32_t count = f->count - first < step ? f->count - first : step;
        const enum status status = file_read(f, entries, count * sizeof(entries[0]),
                                             PAGE + first * sizeof(entries[0]), error);
        if (status != ST_OK)
            return status;
        for (uint32_t i = 0; i < count; i++) {
            const struct entry *entry = &entries[i];
            if (entry->number == 0 || entry->check != entry_check(entry) ||
                place_find(f, &entry->name) != NONE)
                continue;
            place_add(f, first + i, &entry->name);
            if (entry->number > f->number) {
                f->number = entry->number;
                f->hand = (first + i + 1) % f->count;
            }
        }
    }
    return ST_OK;
}

/* Reads the records of an earlier start; those of another identity are removed. */
static enum status content_open(struct tier_file *f, const struct digest *identity,
                                struct error *error)
{
    const struct file_header header = {
        .magic = MAGIC, .version = VERSION, .record_bytes = f->record_bytes, .identity = *identity};
    struct file_header found;
    const ssize_t got = pread(f->fd, &found, sizeof(found), 0);
    const bool known = got == (ssize_t)sizeof(found) && memcmp(&found, &header, sizeof(found)) == 0;
    if (!known && ftruncate(f->fd, 0) != 0)
        return fail(f, "cannot be emptied", error);
    enum status status = file_resize(f, error);
    if (status == ST_OK && !known)
        status = file_write(f, &header, sizeof(header), 0, error);
    if (status == ST_OK) /* Only now, because a file of this size may be impossible. */
        status = index_open(f, error);
    return status == ST_OK && known ? index_read(f, error) : status;
}

static void content_close(struct tier_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->buckets);
    free(f->places);
    f->fd = -1;
    f->buckets = NULL;
    f->places = NULL;
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

static enum status file_has(struct tier_backend *b, const struct digest *names, uint32_t count,
                            int64_t deadline_us, uint32_t *count_out, struct error *error)
{
    const struct tier_file *f = file_of(b);
    uint32_t found = 0;
    (void)deadline_us;
    (void)error;
    while (found < count && place_find(f, &names[found]) != NONE)
        found++;
    *count_out = found;
    return ST_OK;
}

static enum status file_get(struct tier_backend *b, const struct digest *name, void *record_out,
                            int64_t deadline_us, struct error *error)
{
    struct tier_file *f = file_of(b);
    const uint32_t place = place_find(f, name);
    (void)deadline_us;
    if (place == NONE)
        return ST_NOT_FOUND;
    f->places[place].was_read = true;
    return file_read(f, record_out, f->record_bytes, place_offset(f, place), error);
}

static enum status file_put(struct tier_backend *b, const struct digest *name, const void *record,
                            int64_t deadline_us, struct error *error)
{
    struct tier_file *f = file_of(b);
    uint32_t place = place_find(f, name);
    struct stat state;
    (void)deadline_us;
    if (place != NONE) {
        f->places[place].was_read = true;
        return ST_OK;
    }
    if (fstat(f->fd, &state) != 0)
        return fail(f, "cannot be read", error);
    if ((uint64_t)state.st_size < f->bytes) /* Writing would make it longer, with zeros between. */
        return too_short(f, error);
    place = place_take(f);
    enum status status = file_write(f, record, f->record_bytes, place_offset(f, place), error);
    if (status == ST_OK)
        status = entry_write(f, place, name, ++f->number, error);
    if (status == ST_OK)
        place_add(f, place, name);
    return status;
}

static enum status file_drop(struct tier_backend *b, const struct digest *name, int64_t deadline_us,
                             struct error *error)
{
    struct tier_file *f = file_of(b);
    const uint32_t place = place_find(f, name);
    (void)deadline_us;
    if (place == NONE)
        return ST_OK;
    place_remove(f, place);
    return entry_write(f, place, NULL, 0, error);
}

static void file_close(struct tier_backend *b)
{
    content_close(file_of(b));
    free(b);
}

enum status tier_file_make(const char *path, uint64_t bytes, struct tier_backend **out)
{
    static const struct tier_backend_ops ops = {.kind = "file",
                                                .open = file_open,
                                                .has = file_has,
                                                .get = file_get,
                                                .put = file_put,
                                                .drop = file_drop,
                                                .close = file_close};
    const size_t path_bytes = strlen(path) + 1;
    struct tier_file *f = calloc(1, sizeof(*f) + path_bytes);
    if (f == NULL)
        return ST_NO_MEMORY;
    f->backend.ops = &ops;
    f->bytes = bytes;
    f->fd = -1;
    memcpy(f->path, path, path_bytes);
    *out = &f->backend;
    return ST_OK;
}
