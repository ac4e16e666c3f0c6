/* fabric_probe: implements ucx_probe.h. UCX before 1.14 lists its resources only as text for
 * users. */
#include "transport/ucx_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

/* Reads lines such as "#      resource 1  :  md 1  dev 1  flags -- tcp/lo". */
static void resources_read(const char *text, struct ucx_probe *out)
{
    static const char mark[] = "flags ";
    for (const char *line = text; line != NULL; line = strchr(line + 1, '\n')) {
        const char *name = strstr(line, mark);
        const char *end = strchr(line + 1, '\n');
        if (name == NULL || strstr(line, "resource ") == NULL || (end != NULL && name > end))
            continue;
        name = strchr(name + strlen(mark), ' ');
        if (name == NULL || out->resource_count == UCX_PROBE_RESOURCES_MAX)
            return;
        size_t length = strcspn(name + 1, " \n");
        char *to = out->resources[out->resource_count];
        snprintf(to, sizeof(out->resources[0]), "%.*s", (int)length, name + 1);
        if (strchr(to, '/') != NULL)
            out->resource_count++;
    }
}

static void memory_types_read(ucp_context_h context, struct ucx_probe *out)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    if (ucp_context_query(context, &attr) != UCS_OK)
        return;
    out->cuda = (attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
    size_t at = 0;
    for (int type = 0; type < UCS_MEMORY_TYPE_LAST; type++)
        if ((attr.memory_types & UCS_BIT(type)) != 0 && at < sizeof(out->memory_types))
            at += (size_t)snprintf(out->memory_types + at, sizeof(out->memory_types) - at, "%s%s",
                                   at > 0 ? " " : "", ucs_memory_type_names[type]);
}

/* Opens UCX's context without a worker, so that no port is opened. */
static ucs_status_t context_open(ucp_context_h *out)
{
    ucp_config_t *config;
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP,
    };
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return status;
    if (getenv("UCX_LOG_LEVEL") == NULL)
        (void)ucp_config_modify(config, "LOG_LEVEL", "fatal");
    status = ucp_init(&params, config, out);
    ucp_config_release(config);
    return status;
}

enum status ucx_probe(struct ucx_probe *out, struct error *error)
{
    ucp_context_h context;
    char *text = NULL;
    size_t bytes = 0;
    *out = (struct ucx_probe){.cuda = false};
    snprintf(out->version, sizeof(out->version), "%s", ucp_get_version_string());
    ucs_status_t status = context_open(&context);
    if (status != UCS_OK)
        return error_set(error, ST_IO, "ucx: %s", ucs_status_string(status));
    memory_types_read(context, out);
    FILE *stream = open_memstream(&text, &bytes);
    if (stream != NULL) {
        ucp_context_print_info(context, stream);
        fclose(stream);
        resources_read(text, out);
    }
    free(text);
    ucp_cleanup(context);
    return ST_OK;
}
