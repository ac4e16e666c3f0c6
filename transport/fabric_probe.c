/* fabric_probe: implements ucx_probe.h. UCX before 1.14 lists its resources only as text for
 * people. */
#include "transport/fabric_internal.h"
#include "transport/ucx_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REGION_BYTES ((uint64_t)1 << 20)

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

static void memory_types_read(const struct fabric *fabric, struct ucx_probe *out)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    if (ucp_context_query(fabric->context, &attr) != UCS_OK)
        return;
    out->cuda = (attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
    size_t at = 0;
    for (int type = 0; type < UCS_MEMORY_TYPE_LAST; type++)
        if ((attr.memory_types & UCS_BIT(type)) != 0 && at < sizeof(out->memory_types))
            at += (size_t)snprintf(out->memory_types + at, sizeof(out->memory_types) - at, "%s%s",
                                   at > 0 ? " " : "", ucs_memory_type_names[type]);
}

enum status ucx_probe(const char *tls, const char *devices, struct ucx_probe *out,
                      struct error *error)
{
    const struct fabric_options options = {
        .region_bytes = REGION_BYTES, .ucx_tls = tls, .ucx_devices = devices};
    struct fabric *fabric;
    char *text = NULL;
    size_t bytes = 0;
    *out = (struct ucx_probe){.cuda = false};
    snprintf(out->version, sizeof(out->version), "%s", ucp_get_version_string());
    enum status status = fabric_open(&options, &fabric, error);
    if (status != ST_OK)
        return status;
    memory_types_read(fabric, out);
    FILE *stream = open_memstream(&text, &bytes);
    if (stream != NULL) {
        ucp_context_print_info(fabric->context, stream);
        fclose(stream);
        resources_read(text, out);
    }
    free(text);
    fabric_close(fabric);
    return ST_OK;
}
