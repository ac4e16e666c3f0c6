/* serve_check: what `cleave check` finds out about a gateway before it starts. It uses the
 * functions of the start, but goes on after an error. */
#include "server/serve_internal.h"

#include "common/date.h"

#include "common/secret.h"
#include "kvcache/tiers/tier_store.h"
#include "transport/address.h"

#include <errno.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define EXPIRES_SOON_S (14 * 86400)

void check_say(const struct check_report *report, enum check_level level, const char *key,
               const char *format, ...)
{
    char text[sizeof(((struct error *)0)->text)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    report->say(report->self, level, key, text);
}

static void set_check(const struct config *config, const struct api_key_set *set,
                      const struct check_report *report)
{
    static const char key[] = "server/api_keys_file";
    bool quotas = false;
    for (uint32_t i = 0; i < api_key_set_count(set); i++) {
        const struct api_key_settings *settings = api_key_set_settings(set, i);
        enum api_key_expiry expiry = api_key_expiry_of(settings, time(NULL));
        char date[DATE_BYTES];
        date_text(settings->expires, date);
        quotas = quotas || settings->tokens_per_day > 0 || settings->requests_per_day > 0;
        if (expiry != API_KEY_VALID)
            check_say(report, CHECK_WARNING, key, "API key %s %s at %s", settings->name,
                      expiry == API_KEY_EXPIRED ? "expired" : "expires", date);
    }
    if (quotas && config->log.ledger_file[0] == 0)
        check_say(report, CHECK_WARNING, key,
                  "keys have limits of a day, which a restart of the gateway forgets without "
                  "log/ledger_file");
    check_say(report, CHECK_GOOD, key, "API keys are required (%u)", api_key_set_count(set));
}

static void keys_check(const struct config *config, const struct check_report *report)
{
    static const char key[] = "server/api_keys_file";
    struct api_key_set *set = NULL;
    struct error error;
    if (config->server.api_keys_file[0] == 0)
        return;
    if (serve_keys_read(config, &set, &error) != ST_OK)
        check_say(report, CHECK_ERROR, key, "%s", error.text);
    else
        set_check(config, set, report);
    api_key_set_free(set);
}

static void certificate_check(const struct config *config, const struct check_report *report)
{
    static const char key[] = "server/tls_certificate_file";
    struct http_certificate *certificate = NULL;
    struct error error;
    char date[32];
    struct tm utc;
    if (config->server.tls_certificate_file[0] == 0)
        return;
    if (serve_certificate_read(config, &certificate, &error) != ST_OK) {
        check_say(report, CHECK_ERROR, key, "%s", error.text);
        return;
    }
    const time_t expires = http_certificate_expires(certificate), now = time(NULL);
    gmtime_r(&expires, &utc);
    strftime(date, sizeof(date), "%Y-%m-%d", &utc);
    if (expires < now)
        check_say(report, CHECK_ERROR, key, "the certificate expired on %s: clients will refuse it",
                  date);
    else
        check_say(report, expires < now + EXPIRES_SOON_S ? CHECK_WARNING : CHECK_GOOD, key,
                  "the certificate expires on %s", date);
    http_certificate_free(certificate);
}

static void cluster_keys_check(const struct config *config, const struct check_report *report)
{
    static const char key[] = "cluster/key_file";
    char path[LIMIT_PATH_BYTES], ids[SECRET_KEYS_TEXT_BYTES];
    struct secret_keys keys;
    struct error error;
    if (config->cluster.key_file[0] == 0)
        return;
    enum status status = config_file_path(config, config->cluster.key_file, path, &error);
    if (status == ST_OK)
        status = secret_keys_read(path, &keys, &error);
    if (status != ST_OK) {
        check_say(report, CHECK_ERROR, key, "%s (to make one: openssl rand -hex 32)", error.text);
        return;
    }
    secret_keys_text(&keys, ids);
    check_say(report, CHECK_GOOD, key, "keys %s", ids);
    secret_wipe(&keys, sizeof(keys));
}

/* Checks the key and the folder of KV tiers. */
static void tiers_check(const struct config *config, const struct check_report *report)
{
    static const char key[] = "kv/tiers/key_file", folder_key[] = "kv/tiers/file/path";
    char path[LIMIT_PATH_BYTES];
    struct secret_keys keys;
    struct error error;
    struct stat folder;
    if (config->kv.tiers.key_file[0] != 0) {
        enum status status = config_file_path(config, config->kv.tiers.key_file, path, &error);
        if (status == ST_OK)
            status = secret_keys_read(path, &keys, &error);
        check_say(report, status == ST_OK ? CHECK_GOOD : CHECK_ERROR, key, "%s",
                  status == ST_OK ? "stored KV is encrypted" : error.text);
        secret_wipe(&keys, sizeof(keys));
    }
    if (config->kv.tiers.file.path[0] == 0)
        return;
    if (config_file_path(config, config->kv.tiers.file.path, path, &error) != ST_OK)
        check_say(report, CHECK_ERROR, folder_key, "%s", error.text);
    else if (stat(path, &folder) != 0)
        check_say(report, CHECK_ERROR, folder_key, "%s: %s: want a folder on each machine's host",
                  path, strerror(errno));
    else if (!S_ISDIR(folder.st_mode) || access(path, W_OK | X_OK) != 0)
        check_say(report, CHECK_ERROR, folder_key, "%s: want a folder that can be written", path);
    else
        check_say(report, CHECK_GOOD, folder_key, "%s can be written", path);
}

/* Makes the backend as a machine does; deep: connects to each server and logs in. */
static void store_check(const struct config *config, bool is_deep,
                        const struct check_report *report)
{
    static const char key[] = "kv/tiers/store/servers";
    static const struct digest none;
    const char *at = config->kv.tiers.store.servers;
    char address[LIMIT_ADDRESS_BYTES];
    while (config_address_next(&at, address)) {
        const int64_t limit_us = config->kv.tiers.store.deadline_ms * 1000ll;
        struct tier_backend *store;
        struct error error;
        enum status status = tier_store_make(config, address, &store, &error);
        if (status != ST_OK) {
            check_say(report, CHECK_ERROR, key, "%s", error.text);
            return;
        }
        if (is_deep)
            status =
                store->ops->open(store, &none, 1, clock_now_us(&clock_system) + limit_us, &error);
        if (status != ST_OK) /* It may start later. */
            check_say(report, CHECK_WARNING, key, "%s", error.text);
        else
            check_say(report, CHECK_GOOD, key, "%s %s", address,
                      is_deep ? "answers" : "can be used");
        store->ops->close(store);
    }
}

/* Checks that a file can be made, or written if it is there. bytes_max: longest path; 0 = any. */
static void writable_check(const struct config *config, const char *key, const char *file,
                           size_t bytes_max, const struct check_report *report)
{
    char path[LIMIT_PATH_BYTES], folder[LIMIT_PATH_BYTES];
    struct error error;
    struct stat found;
    if (file[0] == 0)
        return;
    if (config_file_path(config, file, path, &error) != ST_OK) {
        check_say(report, CHECK_ERROR, key, "%s", error.text);
        return;
    }
    memcpy(folder, path, sizeof(folder));
    const char *above = dirname(folder);
    if (bytes_max > 0 && strlen(path) > bytes_max)
        check_say(report, CHECK_ERROR, key, "%s: the path has %zu bytes: want at most %zu", path,
                  strlen(path), bytes_max);
    else if (access(above, W_OK | X_OK) != 0)
        check_say(report, CHECK_ERROR, key, "%s: no file can be made in %s: %s", path, above,
                  strerror(errno));
    else if (access(path, F_OK) == 0 && access(path, W_OK) != 0)
        check_say(report, CHECK_ERROR, key, "%s: %s", path, strerror(errno));
    else if (stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        check_say(report, CHECK_ERROR, key, "%s is a folder: want a file", path);
    else
        check_say(report, CHECK_GOOD, key, "%s can be written", path);
}

static void listen_check(const struct config *config, const struct check_report *report)
{
    static const char key[] = "http/listen";
    char bound[LIMIT_ADDRESS_BYTES];
    struct error error;
    int fd;
    errno = 0;
    if (address_listen(config->http.listen, &fd, bound, &error) == ST_OK) {
        close(fd);
        check_say(report, CHECK_GOOD, key, "%s is free", config->http.listen);
    } else if (errno == EADDRINUSE) {
        check_say(report, CHECK_WARNING, key, "%s (if that is the running gateway, all is well)",
                  error.text);
    } else {
        check_say(report, CHECK_ERROR, key, "%s", error.text);
    }
}

static void files_check(const struct config *config, const struct check_report *report)
{
    struct rlimit limit;
    const rlim_t want = serve_files_of(config->machine_count) + config->http.connections_max;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < want)
        check_say(
            report, CHECK_WARNING, "http/connections_max",
            "%u connections need %llu open files, and %llu are allowed (ulimit -n, LimitNOFILE=)",
            config->http.connections_max, (unsigned long long)want,
            (unsigned long long)limit.rlim_max);
}

static void draft_check(const struct config *config, int machine_index, struct model_file *file,
                        struct serve_version *version, const struct check_report *report)
{
    const char *key = config_draft_key(config);
    struct error error;
    if (key == NULL)
        return;
    if (config->scheduler.speculative_tokens == 0)
        check_say(report, CHECK_WARNING, key,
                  "it is not used, because scheduler/speculative_tokens is 0");
    if (serve_version_draft_read(config, machine_index, file, version, &error) != ST_OK)
        check_say(report, CHECK_ERROR, key, "%s", error.text);
    else if (version->file_bytes.draft > 0)
        check_say(report, CHECK_GOOD, key, "%s: %llu MiB, the vocabulary of the model",
                  config->scheduler.draft_model,
                  (unsigned long long)(version->file_bytes.draft >> 20));
}

static void model_check(const struct config *config, int machine_index, bool is_deep,
                        const struct check_report *report, struct config_model_bytes *bytes_out)
{
    struct serve_version version = {.number = 0};
    struct model_file *file = NULL;
    struct error error;
    enum status status = serve_version_open(config, 1, &version, &file, &error);
    if (status == ST_OK && is_deep)
        status = serve_version_text_read(&version, file, &error);
    if (status == ST_OK) {
        check_say(report, CHECK_GOOD, "model", "%s: %llu MiB, context %u%s", version.config.model,
                  (unsigned long long)(version.file_bytes.model >> 20), version.context_tokens,
                  is_deep ? "; tokenizer and chat template are read" : "");
        if (!is_deep && version.template_path[0] != 0 && access(version.template_path, R_OK) != 0)
            check_say(report, CHECK_ERROR, "chat_template_file", "%s: %s", version.template_path,
                      strerror(errno));
        draft_check(config, machine_index, file, &version, report);
        *bytes_out = version.file_bytes;
    } else {
        check_say(report, CHECK_ERROR, "model", "%s", error.text);
    }
    serve_version_done(&version);
    model_file_close(file);
}

void serve_check_machine_files(const struct config *config, int machine_index, bool is_deep,
                               const struct check_report *report,
                               struct config_model_bytes *bytes_out)
{
    *bytes_out = (struct config_model_bytes){0};
    model_check(config, machine_index, is_deep, report, bytes_out);
    cluster_keys_check(config, report);
}

void serve_check(const struct config *config, bool is_deep, const struct check_report *report,
                 struct config_model_bytes *bytes_out)
{
    serve_check_machine_files(config, -1, is_deep, report, bytes_out);
    listen_check(config, report);
    keys_check(config, report);
    tiers_check(config, report);
    store_check(config, is_deep, report);
    certificate_check(config, report);
    writable_check(config, "http/admin_socket", config->http.admin_socket,
                   sizeof(((struct sockaddr_un *)0)->sun_path) - 1, report);
    writable_check(config, "log/events_file", config->log.events_file, 0, report);
    writable_check(config, "log/ledger_file", config->log.ledger_file, 0, report);
    if (strcmp(config->log.access_file, "-") != 0)
        writable_check(config, "log/access_file", config->log.access_file, 0, report);
    files_check(config, report);
}
