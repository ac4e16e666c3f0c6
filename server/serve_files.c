/* serve_files: the files that the config names and that a reload reads again (API keys,
 * certificate, event log), and the cluster key, which a reload does not change. */
#include "server/serve_internal.h"

#include "common/secret.h"
#include "server/http/tls.h"

#include <time.h>

enum status serve_keys_read(const struct config *config, struct api_key_set **set_out,
                            struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    *set_out = NULL;
    if (config->server.api_keys_file[0] == 0)
        return ST_OK;
    enum status status = config_file_path(config, config->server.api_keys_file, path, error);
    return status == ST_OK ? api_key_set_read(path, set_out, error) : status;
}

enum status serve_certificate_read(const struct config *config, struct http_certificate **out,
                                   struct error *error)
{
    char chain[LIMIT_PATH_BYTES];
    char key[LIMIT_PATH_BYTES];
    *out = NULL;
    if (config->server.tls_certificate_file[0] == 0)
        return ST_OK;
    enum status status =
        config_file_path(config, config->server.tls_certificate_file, chain, error);
    if (status == ST_OK)
        status = config_file_path(config, config->server.tls_key_file, key, error);
    if (status == ST_OK)
        status = http_certificate_read(chain, key, out, error);
    if (status == ST_OK && http_certificate_expires(*out) < time(NULL))
        log_warn("the certificate in %s has expired: clients will refuse it", chain);
    return status;
}

enum status serve_events_open(const struct config *config, struct event_log **out,
                              struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    *out = NULL;
    if (config->log.events_file[0] == 0)
        return ST_OK;
    enum status status = config_file_path(config, config->log.events_file, path, error);
    return status == ST_OK ? event_log_open(path, out, error) : status;
}

enum status serve_cluster_key_find(struct serve *s, struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    if (s->config->cluster.key_file[0] != 0) {
        enum status status = config_file_path(s->config, s->config->cluster.key_file, path, error);
        if (status == ST_OK)
            status = secret_key_read(path, s->cluster_key, error);
        s->has_cluster_key = status == ST_OK;
        return status;
    }
    s->has_cluster_key = s->is_loopback && !config_has_etcd(s->config);
    if (s->has_cluster_key)
        secret_random(s->cluster_key, sizeof(s->cluster_key));
    return ST_OK;
}
