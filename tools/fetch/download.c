/* fetch_download: one file over HTTP. The data goes into ".NAME.partial". ".NAME.partial.from"
 * beside it has the URL and the server's validator (ETag or Last-Modified) of its data: a later
 * attempt continues only data from the same URL, and only if the server says that its file is the
 * same, or if a checksum will tell. */
#include "tools/fetch/fetch.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define REDIRECTS_MAX     5
#define CONNECT_S         20
#define ROOM_LEFT_BYTES   (64ull << 20) /* Stays free. */
#define PAUSE_NS          500000000
#define ATTEMPT_BYTES_MIN (64u << 10) /* An attempt that brings less counts as failed. */
#define SHOW_MS           500
#define SHOW_PERCENT      10
#define SIZE_UNKNOWN      UINT64_MAX
#define VALIDATOR_BYTES   256

/* ---- names and files ---- */

bool fetch_name_good(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= FETCH_NAME_BYTES - 32 || name[0] == '.')
        return false;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] <= ' ' || name[i] == 127 || name[i] == '/' || name[i] == '\\')
            return false;
    return true;
}

enum status fetch_url_name(const char *url, char out[FETCH_NAME_BYTES], struct error *error)
{
    const char *host = strstr(url, "://");
    const char *path = host != NULL ? strchr(host + 3, '/') : NULL;
    size_t end = strcspn(url, "?#"), length = 0;
    while (path != NULL && end > (size_t)(path - url) && url[end - 1] == '/')
        end--;
    if (path == NULL || end <= (size_t)(path - url))
        return error_set(error, ST_INVALID, "%.200s: the URL has no file name: want one, or --name",
                         url);
    size_t begin = end;
    while (begin > 0 && url[begin - 1] != '/')
        begin--;
    for (size_t i = begin; i < end && length < FETCH_NAME_BYTES - 1; i++) {
        int high = url[i] == '%' && i + 2 < end ? hex_digit_value(url[i + 1]) : -1;
        int low = high >= 0 ? hex_digit_value(url[i + 2]) : -1;
        out[length++] = low >= 0 ? (char)(high * 16 + low) : url[i];
        i += low >= 0 ? 2 : 0;
        if (out[length - 1] == 0)
            out[length - 1] = ' '; /* No good name has a space. */
    }
    out[length] = 0;
    return fetch_name_good(out)
               ? ST_OK
               : error_set(error, ST_INVALID,
                           "%.200s: \"%.60s\" is no plain file name: give --name", url, out);
}

enum status fetch_path(const char *folder, const char *prefix, const char *name, const char *suffix,
                       char out[LIMIT_PATH_BYTES], struct error *error)
{
    int bytes = snprintf(out, LIMIT_PATH_BYTES, "%s/%s%s%s", folder, prefix, name, suffix);
    return bytes > 0 && bytes < LIMIT_PATH_BYTES
               ? ST_OK
               : error_set(error, ST_TOO_LARGE, "%.200s: the path is too long", folder);
}

enum status fetch_room_check(const char *folder, uint64_t bytes, struct error *error)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) != 0)
        return error_set(error, ST_IO, "%s: %s", folder, strerror(errno));
    uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (bytes <= room && room - bytes >= ROOM_LEFT_BYTES)
        return ST_OK;
    return error_set(error, ST_NO_RESOURCE, "%s: %llu MB are free: want %llu MB, and 64 MB left",
                     folder, (unsigned long long)room / 1000000,
                     (unsigned long long)bytes / 1000000 + 1);
}

enum status fetch_sha256(const char *path, char out[DIGEST_TEXT_BYTES], struct error *error)
{
    struct digest digest;
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        error_set(error, ST_IO, "%s: %s", path, fd < 0 ? strerror(errno) : "not a file");
        if (fd >= 0)
            close(fd);
        return ST_IO;
    }
    size_t bytes = (size_t)info.st_size;
    void *data = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (data == MAP_FAILED)
        return error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    secret_hash(bytes > 0 ? data : "", bytes, digest.bytes);
    if (bytes > 0)
        munmap(data, bytes);
    digest_write(&digest, out, DIGEST_TEXT_BYTES);
    return ST_OK;
}

enum status fetch_publish(const char *folder, const char *partial, const char *path,
                          struct error *error)
{
    int fd = open(partial, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    if (!good || rename(partial, path) != 0)
        return error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    return ST_OK;
}

/* ---- the transfer ---- */

struct transfer {
    const struct fetch_options *options;
    const struct fetch_file *file;
    struct error *error;
    char partial[LIMIT_PATH_BYTES];
    char from[LIMIT_PATH_BYTES];
    int fd;
    uint64_t have;  /* Bytes in the partial file. */
    uint64_t total; /* Size of the whole file; SIZE_UNKNOWN until the server says it. */
    char validator[VALIDATOR_BYTES]; /* Of the bytes in the partial file; empty = none. */
    /* Of the latest response: */
    long code;
    uint64_t range_begin;
    uint64_t range_total;
    uint64_t length;
    char etag[VALIDATOR_BYTES];
    char modified[VALIDATOR_BYTES];
    bool begun;         /* Its body has begun, and its headers were judged. */
    bool accepted;      /* The body is the file. */
    enum status status; /* Not ST_OK: the write callback refused the data. */
    uint64_t got;       /* Bytes of the file in this attempt. */
    int64_t shown_ms;
    uint64_t shown_bytes;
    uint32_t shown_percent;
    bool is_terminal;
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void line_show(struct transfer *t, int64_t ms, bool end)
{
    double speed = ms > t->shown_ms
                       ? (double)(t->have - t->shown_bytes) / 1e3 / (double)(ms - t->shown_ms)
                       : 0;
    fprintf(stderr, "%s%s: %.1f", t->is_terminal ? "\r" : "", t->file->name, (double)t->have / 1e6);
    if (t->total != SIZE_UNKNOWN)
        fprintf(stderr, " of %.1f", (double)t->total / 1e6);
    fprintf(stderr, " MB, %.1f MB/s", speed);
    if (!end && t->total != SIZE_UNKNOWN && speed > 0.01)
        fprintf(stderr, ", %.0f s left", (double)(t->total - t->have) / 1e6 / speed);
    fprintf(stderr, "%s%s", t->is_terminal ? "    " : "", t->is_terminal && !end ? "" : "\n");
}

/* A terminal gets a line that changes; anything else a line for each tenth. */
static void progress_show(struct transfer *t, bool end)
{
    int64_t ms = now_ms();
    uint32_t percent =
        t->total != SIZE_UNKNOWN && t->total > 0 ? (uint32_t)(t->have * 100 / t->total) : 0;
    bool due =
        t->is_terminal ? ms >= t->shown_ms + SHOW_MS : percent >= t->shown_percent + SHOW_PERCENT;
    if (t->file->small || (!due && !(end && t->is_terminal)))
        return;
    line_show(t, ms, end);
    t->shown_percent = percent;
    if (!t->is_terminal)
        return; /* Its lines have the mean speed. */
    t->shown_ms = ms;
    t->shown_bytes = t->have;
}

static bool header_is(const char *line, size_t bytes, const char *name, char *out, size_t capacity)
{
    size_t length = strlen(name);
    if (bytes <= length || strncasecmp(line, name, length) != 0 || line[length] != ':')
        return false;
    const char *at = line + length + 1, *end = line + bytes;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    size_t copied = (size_t)(end - at) < capacity ? (size_t)(end - at) : 0; /* too long: none */
    memcpy(out, at, copied);
    out[copied] = 0;
    return true;
}

/* "bytes 100-199/1000"; after an error 416 a star instead of the range. */
static void range_parse(struct transfer *t, const char *text)
{
    unsigned long long begin, total;
    if (sscanf(text, "bytes %llu-%*u/%llu", &begin, &total) == 2) {
        t->range_begin = begin;
        t->range_total = total;
    } else if (sscanf(text, "bytes */%llu", &total) == 1) {
        t->range_total = total;
    }
}

static size_t on_header(char *line, size_t size, size_t count, void *self)
{
    struct transfer *t = self;
    size_t bytes = size * count;
    char value[VALIDATOR_BYTES];
    if (bytes > 5 && strncmp(line, "HTTP/", 5) == 0) {
        t->code = 0;
        t->range_begin = t->range_total = t->length = SIZE_UNKNOWN;
        t->etag[0] = t->modified[0] = 0;
        const char *space = memchr(line, ' ', bytes);
        if (space != NULL)
            t->code = strtol(space, NULL, 10);
    } else if (header_is(line, bytes, "Content-Range", value, sizeof(value))) {
        range_parse(t, value);
    } else if (header_is(line, bytes, "Content-Length", value, sizeof(value))) {
        t->length = strtoull(value, NULL, 10);
    } else if (header_is(line, bytes, "ETag", value, sizeof(value))) {
        memcpy(t->etag, value, sizeof(value)); /* A weak one says nothing about bytes. */
        t->etag[0] = strncmp(value, "W/", 2) == 0 ? 0 : t->etag[0];
    } else {
        (void)header_is(line, bytes, "Last-Modified", t->modified, sizeof(t->modified));
    }
    return bytes;
}

/* Forgets the data of earlier attempts. */
static bool partial_clear(struct transfer *t)
{
    t->have = 0;
    return ftruncate(t->fd, 0) == 0;
}

/* Notes where the data comes from. */
static enum status from_write(struct transfer *t)
{
    FILE *file = fopen(t->from, "w");
    snprintf(t->validator, sizeof(t->validator), "%s", t->etag[0] != 0 ? t->etag : t->modified);
    bool good = file != NULL && fprintf(file, "%s\n%s\n", t->file->url, t->validator) > 0;
    if (file != NULL && fclose(file) != 0)
        good = false;
    return good ? ST_OK : error_set(t->error, ST_IO, "%s: %s", t->from, strerror(errno));
}

/* Decides from the headers whether the body is the file, or its rest. */
static enum status body_begin(struct transfer *t)
{
    if (t->code == 206) {
        if (t->range_begin != t->have || t->range_total == SIZE_UNKNOWN)
            return error_set(t->error, ST_INVALID,
                             "%.200s: the server sent another part than the one that was asked for",
                             t->file->url);
        t->total = t->range_total;
    } else if (t->code == 200) { /* Also from a server that knows no ranges, or has a new file. */
        if (!partial_clear(t))
            return error_set(t->error, ST_IO, "%s: %s", t->partial, strerror(errno));
        t->total = t->length;
    } else {
        return ST_OK; /* The body of an error is not read. */
    }
    t->accepted = true;
    if (t->total == SIZE_UNKNOWN && !t->file->small)
        return error_set(t->error, ST_INVALID,
                         "%.200s: the server does not say how large the file is", t->file->url);
    if (t->file->small && t->total != SIZE_UNKNOWN && t->total > FETCH_SMALL_BYTES)
        return error_set(t->error, ST_TOO_LARGE, "%.200s: %llu bytes: want at most %u",
                         t->file->url, (unsigned long long)t->total, FETCH_SMALL_BYTES);
    enum status status = fetch_room_check(
        t->options->folder, t->total == SIZE_UNKNOWN ? FETCH_SMALL_BYTES : t->total - t->have,
        t->error);
    return status == ST_OK ? from_write(t) : status;
}

static bool all_written(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t wrote = write(fd, data, bytes);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        data += wrote;
        bytes -= (size_t)wrote;
    }
    return true;
}

static size_t on_data(char *data, size_t size, size_t count, void *self)
{
    struct transfer *t = self;
    size_t bytes = size * count;
    if (!t->begun) {
        t->begun = true;
        t->status = body_begin(t);
    }
    uint64_t most = t->total == SIZE_UNKNOWN ? FETCH_SMALL_BYTES : t->total;
    if (t->status == ST_OK && t->accepted && bytes > most - t->have)
        t->status =
            error_set(t->error, ST_TOO_LARGE, "%.200s: the server sends more than %llu bytes",
                      t->file->url, (unsigned long long)most);
    if (t->status == ST_OK && t->accepted && !all_written(t->fd, data, bytes))
        t->status = error_set(t->error, ST_IO, "%s: %s", t->partial, strerror(errno));
    if (t->status != ST_OK || !t->accepted)
        return 0; /* libcurl ends the transfer. */
    t->have += bytes;
    t->got += bytes;
    progress_show(t, false);
    return bytes;
}

/* ---- one file ---- */

/* Opens the partial file, which only this process may write, and finds how much of it can be
 * kept. */
static enum status partial_open(struct transfer *t)
{
    char url[FETCH_URL_BYTES + 2] = "", validator[VALIDATOR_BYTES + 2] = "";
    struct stat info;
    t->fd = open(t->partial, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (t->fd < 0)
        return error_set(t->error, ST_IO, "%s: %s", t->partial, strerror(errno));
    if (flock(t->fd, LOCK_EX | LOCK_NB) != 0)
        return error_set(t->error, ST_NO_RESOURCE, "%s: another process fetches this file",
                         t->partial);
    if (fstat(t->fd, &info) != 0 || !S_ISREG(info.st_mode))
        return error_set(t->error, ST_IO, "%s: not a file", t->partial);
    t->have = (uint64_t)info.st_size;
    FILE *file = fopen(t->from, "r");
    bool same = file != NULL && fgets(url, sizeof(url), file) != NULL &&
                fgets(validator, sizeof(validator), file) != NULL;
    if (file != NULL)
        fclose(file);
    url[strcspn(url, "\n")] = validator[strcspn(validator, "\n")] = 0;
    same = same && strcmp(url, t->file->url) == 0 && (t->file->sha256 != NULL || validator[0] != 0);
    if (t->have > 0 && !same && !partial_clear(t))
        return error_set(t->error, ST_IO, "%s: %s", t->partial, strerror(errno));
    snprintf(t->validator, sizeof(t->validator), "%s", t->have > 0 ? validator : "");
    return ST_OK;
}

static void curl_prepare(CURL *curl, struct transfer *t, char *why)
{
    const bool secure = strncasecmp(t->file->url, "https://", 8) == 0;
    curl_easy_setopt(curl, CURLOPT_URL, t->file->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https,http");
    /* What was asked for over TLS does not arrive without it. */
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "https,http");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)t->options->stall_s);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "cleave");
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
}

/* Adds "If-Range", so that a server whose file has changed sends all of it. */
static struct curl_slist *range_headers(const struct transfer *t)
{
    char line[VALIDATOR_BYTES + 16];
    if (t->have == 0 || t->validator[0] == 0)
        return NULL;
    snprintf(line, sizeof(line), "If-Range: %s", t->validator);
    return curl_slist_append(NULL, line);
}

/* Returns ST_OK when the file is whole, ST_TIMED_OUT if another attempt may help. */
static enum status response_judge(struct transfer *t, CURLcode code, const char *why)
{
    const char *url = t->file->url;
    if (t->status != ST_OK)
        return t->status;
    if (t->code == 404 && t->file->optional)
        return ST_NOT_FOUND;
    if (t->code == 416 && t->have > 0 && t->range_total == t->have)
        return ST_OK;                    /* All of it was there. */
    if (t->code == 416 && t->have > 0) { /* It is not that file. */
        partial_clear(t);
        return error_set(t->error, ST_TIMED_OUT, "%.200s: HTTP 416", url);
    }
    if (code == CURLE_OK && (t->code == 200 || t->code == 206)) {
        if (!t->begun) { /* An empty file. */
            t->begun = true;
            t->status = body_begin(t);
        }
        if (t->status == ST_OK && t->total != SIZE_UNKNOWN && t->have != t->total)
            return error_set(t->error, ST_TIMED_OUT, "%.200s: %llu of %llu bytes came", url,
                             (unsigned long long)t->have, (unsigned long long)t->total);
        return t->status;
    }
    if (t->code >= 400)
        return error_set(t->error, t->code >= 500 || t->code == 429 ? ST_TIMED_OUT : ST_NOT_FOUND,
                         "%.200s: HTTP %ld", url, t->code);
    bool again = code == CURLE_PARTIAL_FILE || code == CURLE_OPERATION_TIMEDOUT ||
                 code == CURLE_RECV_ERROR || code == CURLE_COULDNT_CONNECT ||
                 code == CURLE_GOT_NOTHING || code == CURLE_SEND_ERROR || code == CURLE_HTTP2 ||
                 code == CURLE_HTTP2_STREAM;
    return error_set(t->error, again ? ST_TIMED_OUT : ST_IO, "%.200s: %.200s", url,
                     why[0] != 0 ? why : curl_easy_strerror(code));
}

static enum status attempt(struct transfer *t)
{
    char why[CURL_ERROR_SIZE] = "", range[32];
    CURL *curl = curl_easy_init();
    if (curl == NULL)
        return error_set(t->error, ST_NO_MEMORY, "%.200s: out of memory", t->file->url);
    struct curl_slist *headers = range_headers(t);
    t->begun = t->accepted = false;
    t->status = ST_OK;
    t->got = 0;
    t->code = 0;
    curl_prepare(curl, t, why);
    if (t->have > 0) {
        snprintf(range, sizeof(range), "%llu-", (unsigned long long)t->have);
        curl_easy_setopt(curl, CURLOPT_RANGE, range);
    }
    if (headers != NULL)
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    CURLcode code = curl_easy_perform(curl);
    enum status status = response_judge(t, code, why);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return status;
}

/* Attempts until the file is whole, or until several attempts in a row bring hardly anything. */
static enum status transfer_run(struct transfer *t)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    uint32_t idle = 0;
    for (;;) {
        enum status status = attempt(t);
        if (status != ST_TIMED_OUT)
            return status;
        idle = t->got >= ATTEMPT_BYTES_MIN ? 0 : idle + 1;
        if (idle >= t->options->attempts_max)
            break;
        fprintf(stderr, "%s; trying again\n", t->error->text);
        nanosleep(&pause, NULL);
    }
    size_t used = strlen(t->error->text);
    snprintf(t->error->text + used, sizeof(t->error->text) - used,
             "; the next call continues after %llu bytes", (unsigned long long)t->have);
    return ST_IO;
}

/* Checks the whole partial file and gives it its name. */
static enum status partial_finish(struct transfer *t, const char *path)
{
    char found[DIGEST_TEXT_BYTES];
    enum status status = fetch_sha256(t->partial, found, t->error);
    if (status != ST_OK)
        return status;
    if (t->file->sha256 != NULL && strcmp(found, t->file->sha256) != 0) {
        unlink(t->partial);
        unlink(t->from);
        return error_set(t->error, ST_INVALID,
                         "%.200s: the SHA-256 of %s is %s: want %s; it was removed", t->file->url,
                         t->file->name, found, t->file->sha256);
    }
    if (t->file->sha256 == NULL && !t->file->small)
        fprintf(stderr, "%s: no checksum was given; its SHA-256 is %s\n", t->file->name, found);
    status = fetch_publish(t->options->folder, t->partial, path, t->error);
    if (status == ST_OK)
        unlink(t->from);
    return status;
}

/* Returns ST_OK if the file is there already, ST_NOT_FOUND if it is not, and an error if another
 * file has its name. */
static enum status present(const struct fetch_file *file, const char *path, struct error *error)
{
    char found[DIGEST_TEXT_BYTES];
    if (access(path, F_OK) != 0)
        return ST_NOT_FOUND;
    if (file->sha256 == NULL)
        return error_set(error, ST_INVALID, "%s exists: remove it, or give --sha256 to check it",
                         path);
    enum status status = fetch_sha256(path, found, error);
    if (status != ST_OK || strcmp(found, file->sha256) == 0)
        return status;
    return error_set(error, ST_INVALID, "%s exists, and its SHA-256 is %s: want %s", path, found,
                     file->sha256);
}

enum status fetch_download(const struct fetch_options *options, const struct fetch_file *file,
                           struct error *error)
{
    struct transfer t = {.options = options, .file = file, .error = error, .fd = -1};
    char path[LIMIT_PATH_BYTES];
    t.total = SIZE_UNKNOWN;
    t.is_terminal = isatty(STDERR_FILENO);
    t.shown_ms = now_ms();
    enum status status = fetch_path(options->folder, "", file->name, "", path, error);
    if (status == ST_OK)
        status = fetch_path(options->folder, ".", file->name, ".partial", t.partial, error);
    if (status == ST_OK)
        status = fetch_path(options->folder, ".", file->name, ".partial.from", t.from, error);
    if (status == ST_OK)
        status = present(file, path, error);
    if (status != ST_NOT_FOUND)
        return status;
    status = partial_open(&t);
    if (status == ST_OK) {
        t.shown_bytes = t.have;
        status = transfer_run(&t);
        progress_show(&t, true);
    }
    if (status == ST_OK)
        status = partial_finish(&t, path);
    if (status == ST_NOT_FOUND && file->optional)
        unlink(t.partial);
    if (t.fd >= 0)
        close(t.fd);
    return status;
}
