/* http_routes: the endpoints. Each takes an exchange whose body has arrived and answers it. */
#include "server/http/internal.h"

#include "server/api/openapi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum MHD_Result answer_completions(struct exchange *x)
{
    return http_answer_completion(x, &http_text_completion);
}

static enum MHD_Result answer_chat(struct exchange *x)
{
    return http_answer_completion(x, &http_text_chat);
}

static enum MHD_Result answer_responses(struct exchange *x)
{
    return http_answer_completion(x, &http_text_responses);
}

static enum MHD_Result answer_messages(struct exchange *x)
{
    return http_answer_completion(x, &http_text_messages);
}

static enum MHD_Result answer_embeddings(struct exchange *x)
{
    return http_answer_completion(x, &http_text_embeddings);
}

static enum MHD_Result answer_count(struct exchange *x)
{
    return http_text_begin(x, &http_text_count);
}

static void write_model(struct text *out, const struct http *h, uint32_t adapter)
{
    text_string_add(out, "{\"id\":");
    const struct served_model *model = h->completions.model;
    const char *name = served_model_name(model, adapter);
    text_add_json_string(out, name, strlen(name));
    if (adapter > 0) {
        text_string_add(out, ",\"parent\":");
        text_add_json_string(out, model->name, strlen(model->name));
    }
    text_format_add(
        out, ",\"object\":\"model\",\"created\":0,\"owned_by\":\"cleave\",\"max_model_len\":%u}",
        gateway_context_tokens(h->options.gateway, model->version));
}

static enum MHD_Result answer_models(struct exchange *x)
{
    struct text body = {0};
    text_string_add(&body, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i <= x->http->completions.model->adapter_count; i++) {
        text_string_add(&body, i > 0 ? "," : "");
        write_model(&body, x->http, i);
    }
    text_string_add(&body, "]}\n");
    return http_answer_json(x, 200, &body);
}

static enum MHD_Result answer_model(struct exchange *x)
{
    struct text body = {0};
    write_model(&body, x->http, (uint32_t)strtoul(x->path_tail, NULL, 10));
    text_string_add(&body, "\n");
    return http_answer_json(x, 200, &body);
}

static enum MHD_Result answer_health(struct exchange *x)
{
    struct gateway *gateway = x->http->options.gateway;
    struct text body = {0};
    char why[1024];
    bool draining = x->http->draining;
    bool ready = gateway_ready(gateway) && !draining;
    http_health_text(x, why, sizeof(why));
    text_format_add(&body, "{\"status\":\"%s\",\"detail\":",
                    draining ? "draining"
                    : ready  ? "ready"
                             : "not ready");
    text_add_json_string(&body, why, strlen(why));
    text_string_add(&body, "}\n");
    return http_answer_json(x, ready ? 200 : 503, &body);
}

/* Reports that this process is alive, independent of its machines. */
static enum MHD_Result answer_ping(struct exchange *x)
{
    return http_answer(x, 200, "application/json", "{\"status\":\"alive\"}\n", 19);
}

static enum MHD_Result answer_version(struct exchange *x)
{
    static const char body[] = "{\"version\":\"" CLEAVE_VERSION "\"}\n";
    return http_answer(x, 200, "application/json", body, sizeof(body) - 1);
}

static enum MHD_Result answer_metrics(struct exchange *x)
{
    size_t bytes = 0;
    char *page = metrics_render(x->http->options.metrics, &bytes);
    if (page == NULL)
        return MHD_NO;
    enum MHD_Result result = http_answer(x, 200, METRICS_CONTENT_TYPE, page, bytes);
    free(page);
    return result;
}

static enum MHD_Result answer_tokenize(struct exchange *x)
{
    return http_text_begin(x, &http_text_tokenize);
}

static enum MHD_Result answer_detokenize(struct exchange *x)
{
    return http_text_begin(x, &http_text_detokenize);
}

static enum MHD_Result answer_openapi(struct exchange *x);

static const struct route page_route = {"/", HTTP_OPEN, "GET, HEAD", http_page_answer};

static const struct route routes[] = {
    {"/v1/completions", HTTP_KEY, "POST", answer_completions},
    {"/v1/chat/completions", HTTP_KEY, "POST", answer_chat},
    {"/v1/responses", HTTP_KEY, "POST", answer_responses},
    {"/v1/messages", HTTP_KEY, "POST", answer_messages},
    {"/v1/messages/count_tokens", HTTP_KEY, "POST", answer_count},
    {"/v1/embeddings", HTTP_KEY, "POST", answer_embeddings},
    {"/v1/models", HTTP_KEY, "GET, HEAD", answer_models},
    {"/health", HTTP_OPEN, "GET, HEAD", answer_health},
    {"/ping", HTTP_OPEN, "GET, HEAD", answer_ping},
    {"/openapi.json", HTTP_OPEN, "GET, HEAD", answer_openapi},
    {"/version", HTTP_KEY, "GET, HEAD", answer_version},
    {"/metrics", HTTP_METRICS, "GET, HEAD", answer_metrics},
    {"/tokenize", HTTP_KEY, "POST", answer_tokenize},
    {"/detokenize", HTTP_KEY, "POST", answer_detokenize},
    {"/v1/tokenize", HTTP_KEY, "POST", answer_tokenize},
    {"/v1/detokenize", HTTP_KEY, "POST", answer_detokenize},
    {"/admin/state", HTTP_ADMIN, "GET, HEAD", http_answer_state},
    {"/admin/requests", HTTP_ADMIN, "GET, HEAD", http_answer_requests},
    {"/admin/decisions", HTTP_ADMIN, "GET, HEAD", http_answer_decisions},
    {"/admin/config", HTTP_ADMIN, "GET, HEAD", http_answer_config},
    {"/admin/log", HTTP_ADMIN, "GET, HEAD", http_answer_log},
    {"/admin/reload", HTTP_ADMIN, "POST", http_answer_reload},
    {"/admin/reload/dry-run", HTTP_ADMIN, "POST", http_answer_reload_dry},
    {"/admin/machines", HTTP_ADMIN, "POST", http_answer_machine_add},
    {"/admin/machines/", HTTP_ADMIN, "DELETE", http_answer_machine_remove},
    {"/admin/drain/", HTTP_ADMIN, "POST", http_answer_drain},
    {"/admin/undrain/", HTTP_ADMIN, "POST", http_answer_undrain},
};

static const struct route model_route = {"/v1/models/…", HTTP_KEY, "GET, HEAD", answer_model};

/* Describes the routes that are not for administrators. */
static enum MHD_Result answer_openapi(struct exchange *x)
{
    struct api_path paths[sizeof(routes) / sizeof(routes[0])];
    size_t count = 0;
    struct text body = {0};
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        if (routes[i].access != HTTP_ADMIN)
            paths[count++] = (struct api_path){.path = routes[i].path,
                                               .post = http_route_allows(&routes[i], "POST"),
                                               .needs_no_key = routes[i].access == HTTP_OPEN};
    api_openapi_write(paths, count, &body);
    return http_answer_json(x, 200, &body);
}

/* Matches "/admin/drain/NAME" for the route "/admin/drain/", and copies NAME to `path_tail`. */
static bool route_with_tail(const struct route *route, const char *url, size_t length,
                            char tail[LIMIT_NAME_BYTES])
{
    size_t front = strlen(route->path);
    if (route->path[front - 1] != '/' || length <= front || memcmp(route->path, url, front) != 0 ||
        length - front >= LIMIT_NAME_BYTES || memchr(url + front, '/', length - front) != NULL)
        return false;
    memcpy(tail, url + front, length - front);
    tail[length - front] = 0;
    return true;
}

const struct route *http_route_find(const struct http *h, const char *url,
                                    char tail[LIMIT_NAME_BYTES])
{
    if (strcmp(url, "/") == 0)
        return http_page_served(h) ? &page_route : NULL;
    size_t length = strlen(url);
    while (length > 1 && url[length - 1] == '/')
        length--;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        const struct route *route = &routes[i];
        if (strlen(route->path) == length && memcmp(route->path, url, length) == 0)
            return route;
        if (route_with_tail(route, url, length, tail))
            return route;
    }
    static const char models[] = "/v1/models/";
    const size_t front = sizeof(models) - 1;
    char name[ADAPTER_NAME_BYTES]; /* A name of the model is not longer. */
    uint32_t adapter;
    if (length <= front || length - front >= sizeof(name) || memcmp(url, models, front) != 0)
        return NULL;
    snprintf(name, sizeof(name), "%.*s", (int)(length - front), url + front);
    if (served_model_find(h->completions.model, name, &adapter)) {
        snprintf(tail, LIMIT_NAME_BYTES, "%u", adapter);
        return &model_route;
    }
    return NULL;
}

/* `allow` is a comma-separated list of words. */
bool http_route_allows(const struct route *route, const char *method)
{
    const char *at = strstr(route->allow, method);
    size_t length = strlen(method);
    return at != NULL && (at == route->allow || at[-1] == ' ') &&
           (at[length] == 0 || at[length] == ',');
}
