/* serve_files: the files that the config names and that a reload reads again: API keys,
 * certificate; and the cluster's key, which stays. */
#include "server/serve_internal.h"

#include "common/secret.h"
#include "server/http_tls.h"

#include <time.h>

enum status serve_keys_read(struct serve *s, struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    struct api_key_set *set = NULL;
    enum status status = api_keys_open(&s->keys);
    if (status != ST_OK)
        return error_set(error, status, "API keys: out of memory");
    if (s->config->server.api_keys_file[0] == 0)
        return ST_OK;
    status = config_file_path(s->config, s->config->server.api_keys_file, path, error);
    if (status == ST_OK)
        status = api_key_set_read(path, &set, error);
    if (status == ST_OK)
        api_keys_apply(s->keys, set);
    return status;
}

enum status serve_certificate_read(struct serve *s, struct error *error)
{
    char chain[LIMIT_PATH_BYTES];
    char key[LIMIT_PATH_BYTES];
    struct http_certificate *certificate;
    if (s->config->server.tls_certificate_file[0] == 0)
        return ST_OK;
    enum status status =
        config_file_path(s->config, s->config->server.tls_certificate_file, chain, error);
    if (status == ST_OK)
        status = config_file_path(s->config, s->config->server.tls_key_file, key, error);
    if (status == ST_OK)
        status = http_certificate_read(chain, key, &certificate, error);
    if (status != ST_OK)
        return status;
    if (http_certificate_expires(certificate) < time(NULL))
        log_warn("the certificate in %s has expired: clients will refuse it", chain);
    http_tls_use(certificate, serve_now_us());
    s->tls = true;
    return ST_OK;
}

/* Machines that are all our own prove a key that nobody else can know; others have it from a file.
 */
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
    s->has_cluster_key = true;
    for (uint32_t i = 0; i < s->config->machine_count; i++)
        s->has_cluster_key = s->has_cluster_key && s->config->machines[i].local;
    if (s->has_cluster_key)
        secret_random(s->cluster_key, sizeof(s->cluster_key));
    return ST_OK;
}
