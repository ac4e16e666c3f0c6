/* api_openapi: writes the description of the HTTP API that clients read at /openapi.json, as
 * OpenAPI 3.1. server/http/routes.c calls the function on the gateway's event loop thread. The
 * function keeps no state. The description leaves out the bodies of answers. */
#ifndef SERVER_API_OPENAPI_H
#define SERVER_API_OPENAPI_H

#include "common/text.h"

#include <stdbool.h>
#include <stddef.h>

/* One endpoint. */
struct api_path {
    const char *path;
    bool post;         /* true: the method is POST; false: GET. */
    bool needs_no_key; /* No API key is needed. */
};

/* Appends the description, a JSON object with these endpoints. */
void api_openapi_write(const struct api_path *paths, size_t count, struct text *out);

#endif
