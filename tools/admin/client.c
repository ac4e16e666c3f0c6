/* admin_client: see the header. */
#include "tools/admin/client.h"

#include "common/json.h"
#include "common/secret.h"
#include "common/text.h"

#include <curl/curl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_BYTES_MAX (64u << 20)
#define KEY_BYTES        8192
#define NAME_BYTES       512

struct gateway {
    CURL *easy;
    char socket[LIMIT_PATH_BYTES]; /* Empty = over TCP. */
    char url[NAME_BYTES];          /* Without a slash at its end. */
    char name[NAME_BYTES + 80];
    struct curl_slist *resolve; /* The address that the host's name stands for; NULL = any. */
};

struct admin_client {
    unsigned count;
    struct gateway gateways[ADMIN_GATEWAYS_MAX];
    struct curl_slist *headers;
    const char *ca_file;
    long timeout_ms;
};

/* ---- opening ---- */

static enum status no_memory(struct error *error)
{
    return error_set(error, ST_NO_MEMORY, "out of memory");
}

static enum status gateway_add(struct admin_client *client, const char *socket_path,
                               const char *url, const char *address, struct error *error)
{
    if (client->count == ADMIN_GATEWAYS_MAX)
        return error_set(error, ST_TOO_LARGE, "more than %d gateways", ADMIN_GATEWAYS_MAX);
    struct gateway *g = &client->gateways[client->count];
    size_t bytes = strlen(url);
    while (bytes > 0 && url[bytes - 1] == '/')
        bytes--;
    if (strlen(socket_path) >= sizeof(g->socket) || bytes >= sizeof(g->url))
        return error_set(error, ST_TOO_LARGE, "%.60s…: the address of a gateway is too long", url);
    snprintf(g->socket, sizeof(g->socket), "%s", socket_path);
    snprintf(g->url, sizeof(g->url), "%.*s", (int)bytes, url);
    if (socket_path[0] != 0)
        snprintf(g->name, sizeof(g->name), "%.*s", NAME_BYTES, socket_path);
    else if (address[0] != 0)
        snprintf(g->name, sizeof(g->name), "%.*s (%.64s)", (int)bytes, url, address);
    else
        snprintf(g->name, sizeof(g->name), "%.*s", (int)bytes, url);
    g->easy = curl_easy_init();
    if (g->easy == NULL)
        return no_memory(error);
    client->count++;
    return ST_OK;
}

/* Splits SCHEME://HOST:PORT/… into host and port. */
static bool url_split(const char *url, char host[256], char port[8])
{
    const char *at = strstr(url, "://");
    if (at == NULL)
        return false;
    snprintf(port, 8, "%s", strncmp(url, "https", 5) == 0 ? "443" : "80");
    at += 3;
    size_t length = strcspn(at, at[0] == '[' ? "]" : ":/");
    size_t begin = at[0] == '[';
    if (length - begin == 0 || length - begin >= 256)
        return false;
    snprintf(host, 256, "%.*s", (int)(length - begin), at + begin);
    at += length + begin;
    if (*at == ':')
        snprintf(port, 8, "%.*s", (int)strcspn(at + 1, "/"), at + 1);
    return true;
}

/* Adds a gateway for each address of the URL's host. */
static enum status addresses_add(struct admin_client *client, const char *url, struct error *error)
{
    char host[256], port[8], address[NI_MAXHOST], entry[NI_MAXHOST + 300];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (!url_split(url, host, port))
        return error_set(error, ST_USAGE, "--url = \"%.60s\": want http://HOST:PORT", url);
    int code = getaddrinfo(host, port, &hints, &found);
    if (code != 0)
        return error_set(error, ST_UNREACHABLE, "%s: %s", host, gai_strerror(code));
    enum status status = ST_OK;
    for (struct addrinfo *at = found; at != NULL && status == ST_OK; at = at->ai_next) {
        if (getnameinfo(at->ai_addr, at->ai_addrlen, address, sizeof(address), NULL, 0,
                        NI_NUMERICHOST) != 0)
            continue;
        status = gateway_add(client, "", url, address, error);
        if (status != ST_OK)
            break;
        struct gateway *g = &client->gateways[client->count - 1];
        snprintf(entry, sizeof(entry), "%s:%s:%s%s%s", host, port, strchr(address, ':') ? "[" : "",
                 address, strchr(address, ':') ? "]" : "");
        g->resolve = curl_slist_append(NULL, entry);
        status = g->resolve != NULL ? ST_OK : no_memory(error);
    }
    freeaddrinfo(found);
    return status;
}

static enum status gateways_find(struct admin_client *client, const struct admin_target *target,
                                 struct error *error)
{
    const struct option_texts *given = &target->gateways;
    enum status status = ST_OK;
    if (given->count == 0 && access(ADMIN_SOCKET, F_OK) == 0)
        return gateway_add(client, ADMIN_SOCKET, "http://localhost", "", error);
    if (given->count == 0)
        return gateway_add(client, "", ADMIN_URL, "", error);
    for (uint32_t i = 0; i < given->count && status == ST_OK; i++) {
        const char *text = given->texts[i];
        if (strcmp(given->names[i], "socket") == 0)
            status = gateway_add(client, text, "http://localhost", "", error);
        else if (strncmp(text, "http://", 7) != 0 && strncmp(text, "https://", 8) != 0)
            status =
                error_set(error, ST_USAGE,
                          "--url = \"%.60s\": want http://HOST:PORT or https://HOST:PORT", text);
        else if (target->every_address)
            status = addresses_add(client, text, error);
        else
            status = gateway_add(client, "", text, "", error);
    }
    return status;
}

static enum status header_add(struct admin_client *client, const char *line, struct error *error)
{
    struct curl_slist *more = curl_slist_append(client->headers, line);
    if (more == NULL)
        return no_memory(error);
    client->headers = more;
    return ST_OK;
}

static enum status headers_make(struct admin_client *client, const struct admin_target *target,
                                struct error *error)
{
    char key[KEY_BYTES], line[KEY_BYTES + 32];
    enum status status = header_add(client, "Content-Type: application/json", error);
    if (status != ST_OK || target->api_key_file == NULL)
        return status;
    status = secret_api_key_read(target->api_key_file, key, sizeof(key), error);
    if (status == ST_OK) {
        snprintf(line, sizeof(line), "Authorization: Bearer %s", key);
        status = header_add(client, line, error);
    }
    secret_wipe(key, sizeof(key));
    secret_wipe(line, sizeof(line));
    return status;
}

enum status admin_client_open(const struct admin_target *target, struct admin_client **out,
                              struct error *error)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(error, ST_UNSUPPORTED,
                         "libcurl is not installed (Debian: apt install libcurl4)");
    struct admin_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        curl_global_cleanup();
        return no_memory(error);
    }
    client->ca_file = target->ca_file;
    client->timeout_ms = (long)(target->timeout_s * 1000);
    enum status status = gateways_find(client, target, error);
    if (status == ST_OK)
        status = headers_make(client, target, error);
    if (status != ST_OK) {
        admin_client_close(client);
        return status;
    }
    *out = client;
    return ST_OK;
}

void admin_client_close(struct admin_client *client)
{
    if (client == NULL)
        return;
    for (unsigned i = 0; i < client->count; i++) {
        curl_easy_cleanup(client->gateways[i].easy);
        curl_slist_free_all(client->gateways[i].resolve);
    }
    curl_slist_free_all(client->headers);
    free(client);
    curl_global_cleanup();
}

unsigned admin_client_count(const struct admin_client *client)
{
    return client->count;
}

const char *admin_client_name(const struct admin_client *client, unsigned gateway)
{
    return client->gateways[gateway].name;
}

/* ---- asking ---- */

static size_t answer_arrived(char *bytes, size_t one, size_t size, void *self)
{
    struct text *answer = self;
    (void)one; /* Always 1. */
    if (size > ANSWER_BYTES_MAX - answer->bytes)
        return 0;
    text_add(answer, bytes, size);
    return answer->broken ? 0 : size;
}

/* The gateway's message in {"error": {"message": …}}, as one line of printable characters. */
static enum status refused(const struct gateway *g, long http_status, const struct text *answer,
                           struct error *error)
{
    json_error_t why; /* An answer that is not JSON has no message. */
    json_t *root;
    json_text_load(answer->data, answer->bytes, 0, &root, &why);
    const char *message =
        json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    enum status status = http_status == 404 ? ST_NOT_FOUND : ST_INVALID;
    error_set(error, status, "%s: HTTP %ld%s%.400s", g->name, http_status,
              message != NULL ? ": " : "", message != NULL ? message : "");
    json_decref(root);
    return status;
}

/* libcurl's text for a failed connection does not say why; errno does. */
static enum status unreachable(const struct gateway *g, CURLcode code, struct error *error)
{
    long number = 0;
    if (code == CURLE_COULDNT_CONNECT)
        curl_easy_getinfo(g->easy, CURLINFO_OS_ERRNO, &number);
    if (number != 0)
        return error_set(error, ST_UNREACHABLE, "%s: cannot connect: %s", g->name,
                         strerror((int)number));
    return error_set(error, ST_UNREACHABLE, "%s: %s", g->name, curl_easy_strerror(code));
}

enum status admin_client_text(struct admin_client *client, unsigned gateway, const char *method,
                              const char *path, const char *body, char **text_out,
                              struct error *error)
{
    struct gateway *g = &client->gateways[gateway];
    struct text answer = {0};
    char url[NAME_BYTES + 256];
    long http_status = 0;
    if (snprintf(url, sizeof(url), "%s%s", g->url, path) >= (int)sizeof(url))
        return error_set(error, ST_TOO_LARGE, "%.60s…: the path is too long", path);
    curl_easy_setopt(g->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(g->easy, CURLOPT_PROXY, ""); /* not even where http_proxy is set */
    curl_easy_setopt(g->easy, CURLOPT_URL, url);
    curl_easy_setopt(g->easy, CURLOPT_HTTPHEADER, client->headers);
    curl_easy_setopt(g->easy, CURLOPT_TIMEOUT_MS, client->timeout_ms);
    curl_easy_setopt(g->easy, CURLOPT_WRITEFUNCTION, answer_arrived);
    curl_easy_setopt(g->easy, CURLOPT_WRITEDATA, &answer);
    curl_easy_setopt(g->easy, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(g->easy, CURLOPT_POSTFIELDS,
                     strcmp(method, "POST") == 0 && body == NULL ? "" : body);
    if (body == NULL && strcmp(method, "POST") != 0)
        curl_easy_setopt(g->easy, CURLOPT_HTTPGET, 1L);
    if (g->socket[0] != 0)
        curl_easy_setopt(g->easy, CURLOPT_UNIX_SOCKET_PATH, g->socket);
    if (g->resolve != NULL)
        curl_easy_setopt(g->easy, CURLOPT_RESOLVE, g->resolve);
    if (client->ca_file != NULL)
        curl_easy_setopt(g->easy, CURLOPT_CAINFO, client->ca_file);
    CURLcode code = curl_easy_perform(g->easy);
    curl_easy_getinfo(g->easy, CURLINFO_RESPONSE_CODE, &http_status);
    enum status status = ST_OK;
    if (answer.broken || code == CURLE_OUT_OF_MEMORY)
        status = error_set(error, ST_NO_MEMORY, "%s: no memory for the answer", g->name);
    else if (code != CURLE_OK)
        status = unreachable(g, code, error);
    else if (http_status > 299)
        status = refused(g, http_status, &answer, error);
    else if (answer.bytes == 0)
        status = error_set(error, ST_IO, "%s: the answer is empty", g->name);
    text_add(&answer, "", 1); /* Ends the string. */
    if (status == ST_OK && answer.broken)
        status = error_set(error, ST_NO_MEMORY, "%s: no memory for the answer", g->name);
    if (status == ST_OK)
        *text_out = answer.data;
    else
        text_done(&answer);
    return status;
}

enum status admin_client_json(struct admin_client *client, unsigned gateway, const char *method,
                              const char *path, const char *body, json_t **root_out,
                              struct error *error)
{
    char *text;
    enum status status = admin_client_text(client, gateway, method, path, body, &text, error);
    if (status != ST_OK)
        return status;
    json_error_t why;
    json_t *root;
    status = json_text_load(text, strlen(text), 0, &root, &why);
    free(text);
    if (status == ST_NO_MEMORY)
        return error_set(error, status, "%s: no memory for the answer",
                         client->gateways[gateway].name);
    if (!json_is_object(root)) {
        json_decref(root);
        return error_set(error, ST_IO, "%s: the answer is no JSON object: is this a gateway?",
                         client->gateways[gateway].name);
    }
    *root_out = root;
    return ST_OK;
}

bool admin_machine_path(const char *path_start, const char *name, char out[LIMIT_NAME_BYTES + 32],
                        struct error *error)
{
    size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");
    if (good == 0 || name[good] != 0 || good >= LIMIT_NAME_BYTES) {
        error_set(error, ST_USAGE, "\"%.60s\": want the name of a machine", name);
        return false;
    }
    snprintf(out, LIMIT_NAME_BYTES + 32, "%s%s", path_start, name);
    return true;
}
