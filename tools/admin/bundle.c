/* admin_bundle: `cleave bundle`: collects what a bug report needs from running gateways into a tar
 * file: version, config, state, metrics, latest requests, decisions and log lines, and the log
 * lines of machines and gateways on this host. Gateways give administrators no keys, prompts or
 * answers, so the file has none. What one gateway does not give (an earlier release) is missing,
 * and errors.txt says so. */
#include "tools/admin/admin.h"
#include "tools/admin/client.h"
#include "tools/admin/host_logs.h"

#include "common/build_info.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define TAR_BLOCK 512

struct bundle_options {
    struct admin_target target;
    const char *file;
};

#define FIELD(member) offsetof(struct bundle_options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    ADMIN_OPTIONS(bundle_options, target),
};
/* clang-format on */

static const struct option_table table = {
    .command = "bundle",
    .usage = "FILE [--option value]…",
    .about =
        "Collects what a bug report needs from running gateways into a new tar file: version, "
        "config, state,\nmetrics, the latest requests, decisions and log lines; and the latest "
        "log lines of all machines and\ngateways on this host, from files and systemd's journal. "
        "It has names of machines, hosts, files and API\nkeys, and ids of requests, but no keys, "
        "prompts or answers. Exit status: 1 = something is missing.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .operands = {{"FILE", FIELD(file), true}}};

/* What is asked of each gateway. */
static const struct {
    const char *file;
    const char *path;
} parts[] = {
    {"state.json", "/admin/state"},
    {"config.json", "/admin/config"},
    {"metrics.txt", "/metrics"},
    {"requests.json", "/admin/requests?count=4096&events=1"},
    {"decisions.json", "/admin/decisions"},
    {"log.txt", "/admin/log"},
};

/* ---- the tar file (POSIX ustar) ---- */

struct tar_head {
    char name[100], mode[8], uid[8], gid[8], size[12], time[12], sum[8], type, link[100], magic[6],
        version[2], user[32], group[32], major[8], minor[8], prefix[155], padding[12];
};

_Static_assert(sizeof(struct tar_head) == TAR_BLOCK, "a head is one block");

static bool file_add(FILE *out, const char *name, const char *data, size_t bytes)
{
    static const char zeros[TAR_BLOCK];
    struct tar_head head;
    unsigned sum = 0;
    memset(&head, 0, sizeof(head));
    snprintf(head.name, sizeof(head.name), "%s", name);
    snprintf(head.mode, sizeof(head.mode), "%07o", 0600u);
    snprintf(head.uid, sizeof(head.uid), "%07o", 0u);
    snprintf(head.gid, sizeof(head.gid), "%07o", 0u);
    snprintf(head.size, sizeof(head.size), "%011llo", (unsigned long long)bytes);
    snprintf(head.time, sizeof(head.time), "%011llo", (unsigned long long)time(NULL));
    memcpy(head.magic, "ustar", 6);
    memcpy(head.version, "00", 2);
    head.type = '0';
    memset(head.sum, ' ', sizeof(head.sum)); /* As the sum counts itself. */
    for (size_t i = 0; i < sizeof(head); i++)
        sum += ((const unsigned char *)&head)[i];
    snprintf(head.sum, sizeof(head.sum), "%06o", sum);
    size_t rest = (TAR_BLOCK - bytes % TAR_BLOCK) % TAR_BLOCK;
    return fwrite(&head, sizeof(head), 1, out) == 1 && fwrite(data, 1, bytes, out) == bytes &&
           fwrite(zeros, 1, rest, out) == rest;
}

static bool text_file_add(FILE *out, const char *name, const struct text *text)
{
    if (text->broken) {
        errno = ENOMEM;
        return false;
    }
    return file_add(out, name, text->bytes > 0 ? text->data : "", text->bytes);
}

static bool end_add(FILE *out)
{
    static const char zeros[2 * TAR_BLOCK];
    return fwrite(zeros, sizeof(zeros), 1, out) == 1;
}

/* ---- contents ---- */

static bool about_add(FILE *out, const struct admin_client *client)
{
    struct text text = {0};
    struct utsname host;
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    text_format_add(&text, "made      %04d-%02d-%02dT%02d:%02d:%02dZ\n", utc.tm_year + 1900,
                    utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
    text_format_add(&text, "cleave    %s %s (%s)\n", build_info_release(), build_info_commit(),
                    build_info_options());
    if (uname(&host) == 0)
        text_format_add(&text, "host      %s: %s %s %s\n", host.nodename, host.sysname,
                        host.release, host.machine);
    for (unsigned i = 0; i < admin_client_count(client); i++)
        text_format_add(&text, "gateway-%u %s\n", i + 1, admin_client_name(client, i));
    bool good = text_file_add(out, "cleave-bundle/about.txt", &text);
    text_done(&text);
    return good;
}

/* Adds the parts of all gateways. What is missing is described in `errors`. */
static bool gateways_add(FILE *out, struct admin_client *client, struct text *errors)
{
    char name[100], *text;
    struct error error;
    bool good = true;
    for (unsigned i = 0; i < admin_client_count(client); i++) {
        for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]) && good; k++) {
            snprintf(name, sizeof(name), "cleave-bundle/gateway-%u/%s", i + 1, parts[k].file);
            if (admin_client_text(client, i, "GET", parts[k].path, NULL, &text, &error) != ST_OK) {
                text_format_add(errors, "%s: %s\n", name, error.text);
                continue;
            }
            good = file_add(out, name, text, strlen(text));
            free(text);
        }
    }
    return good;
}

/* Adds the log lines of this host. */
static bool host_add(FILE *out)
{
    struct host_log logs[HOST_LOGS_FILES + 1];
    char name[100];
    bool good = true;
    unsigned count = host_logs_read(logs);
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "cleave-bundle/host/%s", logs[i].name);
        good = good && text_file_add(out, name, &logs[i].text);
        text_done(&logs[i].text);
    }
    return good;
}

int bundle_main(int argc, char **argv)
{
    struct bundle_options options = {.file = NULL};
    struct admin_client *client = NULL;
    struct error error = {""};
    struct text errors = {0};
    int result = options_start(&table, argc, argv, &options);
    if (result >= 0)
        return result;
    enum status status = admin_client_open(&options.target, &client, &error);
    if (status != ST_OK)
        return options_fail(&table, status, &error);
    int fd = open(options.file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out == NULL) {
        error_set(&error, ST_IO, "%s: %s", options.file, strerror(errno));
        admin_client_close(client);
        return options_fail(&table, ST_IO, &error);
    }
    bool good = about_add(out, client) && gateways_add(out, client, &errors) && host_add(out);
    if (good && errors.bytes > 0)
        good = text_file_add(out, "cleave-bundle/errors.txt", &errors);
    good = good && end_add(out);
    int failed = errno;
    if (fclose(out) != 0) { /* Most of a small file is written only now. */
        failed = good ? errno : failed;
        good = false;
    }
    result = errors.bytes > 0 ? 1 : 0;
    fprintf(stderr, "%.*s", (int)errors.bytes, errors.bytes > 0 ? errors.data : "");
    if (!good) {
        unlink(options.file);
        error_set(&error, ST_IO, "%s: %s", options.file, strerror(failed));
        result = options_fail(&table, ST_IO, &error);
    } else {
        printf("%s: version, config, state, metrics, requests, decisions and log of %u gateway%s\n",
               options.file, admin_client_count(client),
               admin_client_count(client) == 1 ? "" : "s");
    }
    text_done(&errors);
    admin_client_close(client);
    return result;
}
