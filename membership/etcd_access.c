/* etcd_access: see the header. */
#include "membership/etcd_access.h"

#include "common/secret.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY_FILE_BYTES_MAX ((size_t)1 << 20)
#define TOKEN_BYTES_MAX    4096
#define HEADER             "Authorization: "

static enum status path_take(const struct config *config, const char *file,
                             char out[LIMIT_PATH_BYTES], struct error *error)
{
    out[0] = 0;
    return file[0] != 0 ? config_file_path(config, file, out, error) : ST_OK;
}

static enum status readable_check(const char *path, struct error *error)
{
    if (path[0] == 0 || access(path, R_OK) == 0)
        return ST_OK;
    return error_set(error, ST_IO, "%s: %s", path, strerror(errno));
}

static enum status files_check(const struct etcd_access *access, struct error *error)
{
    char *password;
    int key;
    enum status status = readable_check(access->ca_file, error);
    if (status == ST_OK)
        status = readable_check(access->certificate_file, error);
    if (status == ST_OK && access->key_file[0] != 0) {
        status = secret_file_open(access->key_file, KEY_FILE_BYTES_MAX, &key, error);
        if (status == ST_OK)
            close(key);
    }
    if (status == ST_OK && access->user[0] != 0) {
        status = secret_password_read(access->password_file, &password, error);
        if (status == ST_OK)
            secret_password_free(password);
    }
    return status;
}

enum status etcd_access_open(const struct config *config, struct etcd_access *out,
                             struct error *error)
{
    memset(out, 0, sizeof(*out));
    memcpy(out->user, config->cluster.etcd_user, sizeof(out->user));
    enum status status =
        path_take(config, config->cluster.etcd_password_file, out->password_file, error);
    if (status == ST_OK)
        status = path_take(config, config->cluster.etcd_ca_file, out->ca_file, error);
    if (status == ST_OK)
        status =
            path_take(config, config->cluster.etcd_certificate_file, out->certificate_file, error);
    if (status == ST_OK)
        status = path_take(config, config->cluster.etcd_key_file, out->key_file, error);
    return status == ST_OK ? files_check(out, error) : status;
}

enum status etcd_access_tls_set(const struct etcd_access *access, CURL *curl, int *key_fd_out,
                                struct error *error)
{
    char path[32];
    *key_fd_out = -1;
    /* Without this option, curl would trust the certificate authorities of the host. */
    if (access->ca_file[0] != 0 &&
        curl_easy_setopt(curl, CURLOPT_CAINFO, access->ca_file) != CURLE_OK)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    if (access->key_file[0] == 0)
        return ST_OK;
    enum status status = secret_file_open(access->key_file, KEY_FILE_BYTES_MAX, key_fd_out, error);
    if (status != ST_OK)
        return status;
    /* The file that was checked, not one that has replaced it since. curl copies the text. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", *key_fd_out);
    if (curl_easy_setopt(curl, CURLOPT_SSLCERT, access->certificate_file) != CURLE_OK ||
        curl_easy_setopt(curl, CURLOPT_SSLKEY, path) != CURLE_OK)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    return ST_OK;
}

json_t *etcd_access_login_body(const struct etcd_access *access, struct error *error)
{
    char *password;
    if (secret_password_read(access->password_file, &password, error) != ST_OK)
        return NULL;
    json_t *body = json_pack("{s:s, s:s}", "name", access->user, "password", password);
    if (body == NULL) /* jansson takes only UTF-8. */
        error_set(error, ST_INVALID, "%s: the password is not UTF-8", access->password_file);
    secret_password_free(password);
    return body;
}

char *etcd_access_token_header(const json_t *reply)
{
    const char *token = json_string_value(json_object_get(reply, "token"));
    size_t bytes = token != NULL ? strlen(token) : 0;
    if (bytes == 0 || bytes > TOKEN_BYTES_MAX)
        return NULL;
    for (size_t i = 0; i < bytes; i++) /* It becomes part of a header. */
        if (token[i] <= ' ' || token[i] >= 127)
            return NULL;
    char *header = malloc(sizeof(HEADER) + bytes);
    if (header != NULL)
        snprintf(header, sizeof(HEADER) + bytes, HEADER "%s", token);
    return header;
}
