/* api_error: see the header. */
#include "server/api/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool api_error_set(struct api_error *error, unsigned status, const char *param, const char *format,
                   ...)
{
    memset(error, 0, sizeof(*error));
    error->status = status;
    if (param != NULL)
        snprintf(error->param, sizeof(error->param), "%s", param);
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof(error->message), format, args);
    va_end(args);
    return false;
}

static const char *error_type(const struct api_error *error)
{
    const unsigned status = error->status;
    if (error->code != NULL && strcmp(error->code, "insufficient_quota") == 0)
        return error->code; /* As OpenAI does. */
    switch (status) {
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void api_error_write(const struct api_error *error, struct text *out)
{
    text_string_add(out, "{\"error\":{\"message\":");
    text_add_json_string(out, error->message, strlen(error->message));
    text_format_add(out, ",\"type\":\"%s\",\"param\":", error_type(error));
    if (error->param[0] != 0)
        text_add_json_string(out, error->param, strlen(error->param));
    else
        text_string_add(out, "null");
    if (error->code != NULL)
        text_format_add(out, ",\"code\":\"%s\"}}", error->code);
    else
        text_format_add(out, ",\"code\":%u}}", error->status);
}

static const char *anthropic_type(unsigned status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

void api_error_write_anthropic(const struct api_error *error, const char *request_id,
                               struct text *out)
{
    text_format_add(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
                    anthropic_type(error->status));
    text_add_json_string(out, error->message, strlen(error->message));
    text_string_add(out, "},\"request_id\":");
    text_add_json_string(out, request_id, strlen(request_id));
    text_string_add(out, "}");
}
