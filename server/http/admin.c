/* http_admin: the endpoints under /admin: converts HTTP requests to calls of struct http_admin, and
 * their results to JSON. */
#include "server/http/internal.h"

#include "common/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS_LISTED 100 /* Unless the query says another number. */

static enum MHD_Result answer(struct exchange *x, unsigned code, bool good, struct text *body,
                              const struct api_error *error)
{
    if (good) {
        text_string_add(body, "\n");
        return http_answer_json(x, code, body);
    }
    text_done(body);
    return http_answer_error(x, error);
}

enum MHD_Result http_answer_state(struct exchange *x)
{
    const struct http_admin *admin = &x->http->options.admin;
    struct text body = {0};
    admin->state(admin->self, &body);
    return answer(x, 200, true, &body, NULL);
}

static enum MHD_Result view(struct exchange *x, const struct http_admin_view *view)
{
    const struct http_admin *admin = &x->http->options.admin;
    struct text body = {0};
    admin->view(admin->self, view, &body);
    return answer(x, 200, true, &body, NULL);
}

/* In the query, `id` chooses requests, `count` is the most requests listed, and `events=1` lists
 * their events. */
enum MHD_Result http_answer_requests(struct exchange *x)
{
    static const enum MHD_ValueKind query = MHD_GET_ARGUMENT_KIND;
    const char *count = MHD_lookup_connection_value(x->connection, query, "count");
    const char *events = MHD_lookup_connection_value(x->connection, query, "events");
    struct http_admin_view requests = {.kind = HTTP_ADMIN_REQUESTS,
                                       .id =
                                           MHD_lookup_connection_value(x->connection, query, "id"),
                                       .requests_max = REQUESTS_LISTED};
    unsigned long wanted = count != NULL ? strtoul(count, NULL, 10) : 0;
    if (wanted > 0)
        requests.requests_max = wanted < UINT32_MAX ? (uint32_t)wanted : UINT32_MAX;
    requests.with_events = requests.id != NULL || (events != NULL && strcmp(events, "1") == 0);
    return view(x, &requests);
}

enum MHD_Result http_answer_decisions(struct exchange *x)
{
    return view(x, &(struct http_admin_view){.kind = HTTP_ADMIN_DECISIONS});
}

enum MHD_Result http_answer_config(struct exchange *x)
{
    return view(x, &(struct http_admin_view){.kind = HTTP_ADMIN_CONFIG});
}

enum MHD_Result http_answer_log(struct exchange *x)
{
    const struct http_admin *admin = &x->http->options.admin;
    struct text body = {0};
    admin->view(admin->self, &(struct http_admin_view){.kind = HTTP_ADMIN_LOG}, &body);
    enum MHD_Result result = MHD_NO;
    if (!body.broken)
        result = http_answer(x, 200, "text/plain; charset=utf-8", body.bytes > 0 ? body.data : "\n",
                             body.bytes > 0 ? body.bytes : 1);
    text_done(&body);
    return result;
}

static enum MHD_Result answer_reload(struct exchange *x, bool dry)
{
    const struct http_admin *admin = &x->http->options.admin;
    struct text body = {0};
    struct api_error error = {0};
    struct audit_actor actor;
    http_audit_actor(x, &actor);
    bool good = admin->reload(admin->self, dry, &actor, &body, &error);
    return answer(x, 200, good, &body, &error);
}

enum MHD_Result http_answer_reload(struct exchange *x)
{
    return answer_reload(x, false);
}

enum MHD_Result http_answer_reload_dry(struct exchange *x)
{
    return answer_reload(x, true);
}

static enum MHD_Result answer_machine(struct exchange *x, enum http_admin_verb verb, unsigned code)
{
    const struct http_admin *admin = &x->http->options.admin;
    struct text body = {0};
    struct api_error error = {0};
    bool good =
        admin->machine(admin->self, verb, x->path_tail, x->body.data, x->body.bytes, &body, &error);
    return answer(x, code, good, &body, &error);
}

enum MHD_Result http_answer_drain(struct exchange *x)
{
    return answer_machine(x, HTTP_ADMIN_DRAIN, 200);
}

enum MHD_Result http_answer_undrain(struct exchange *x)
{
    return answer_machine(x, HTTP_ADMIN_UNDRAIN, 200);
}

enum MHD_Result http_answer_machine_add(struct exchange *x)
{
    json_error_t why; /* The gateway reads the body again, and reports the error. */
    json_t *root;
    json_text_load(x->body.data, x->body.bytes, 0, &root, &why);
    const char *name = json_string_value(json_object_get(root, "name"));
    if (name != NULL)
        http_audit_target_set(x, name);
    json_decref(root);
    return answer_machine(x, HTTP_ADMIN_ADD, 202);
}

enum MHD_Result http_answer_machine_remove(struct exchange *x)
{
    return answer_machine(x, HTTP_ADMIN_REMOVE, 202);
}
