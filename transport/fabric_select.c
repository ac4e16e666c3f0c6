/* fabric_selection_make: which transports and network devices UCX may use. See fabric_internal.h.
 *
 * UCX over TCP has no access control: a client that reaches its port needs no key to read and write
 * any address of the process. So UCX gets shared memory, which the kernel protects, and RDMA
 * hardware, which checks the key of each access. Everything else has to be named by the caller. */
#include "transport/fabric_internal.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RDMA_FOLDER "/sys/class/infiniband"

/* Names that UCX_TLS may contain without opening a port that strangers can use. */
static const char *const closed_names[] = {
    "none",     "self",     "sysv",    "posix", "cma",       "xpmem",    "knem",
    "mm",       "sm",       "shm",     "ib",    "rc",        "rc_v",     "rc_x",
    "rc_verbs", "rc_mlx5",  "dc",      "dc_x",  "dc_mlx5",   "ud",       "ud_v",
    "ud_x",     "ud_verbs", "ud_mlx5", "cuda",  "cuda_copy", "cuda_ipc", "gdr_copy",
};

static bool name_closed(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof(closed_names) / sizeof(closed_names[0]); i++)
        if (strlen(closed_names[i]) == length && strncmp(closed_names[i], name, length) == 0)
            return true;
    return false;
}

/* Unknown names, "all" and lists of exceptions ("^sysv") count as exposing. */
bool transport_ucx_exposes(const char *ucx_tls)
{
    for (const char *at = ucx_tls; at != NULL && *at != 0;) {
        size_t length = strcspn(at, ",");
        if (!name_closed(at, length))
            return true;
        at += length + (at[length] == ',');
    }
    return false;
}

static bool port_active(const char *device, const char *port)
{
    char path[320];
    char text[32] = "";
    snprintf(path, sizeof(path), RDMA_FOLDER "/%.64s/ports/%.16s/state", device, port);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool active = fgets(text, sizeof(text), file) != NULL && strstr(text, "ACTIVE") != NULL;
    fclose(file);
    return active;
}

/* Appends "device:port" for each active port of a device. */
static void ports_add(const char *device, char *out, size_t capacity)
{
    char path[320];
    snprintf(path, sizeof(path), RDMA_FOLDER "/%.64s/ports", device);
    DIR *folder = opendir(path);
    for (struct dirent *port; folder != NULL && (port = readdir(folder)) != NULL;) {
        size_t used = strlen(out);
        if (port->d_name[0] == '.' || !port_active(device, port->d_name) ||
            used + strlen(device) + strlen(port->d_name) + 3 > capacity)
            continue;
        snprintf(out + used, capacity - used, "%s%s:%s", used > 0 ? "," : "", device, port->d_name);
    }
    if (folder != NULL)
        closedir(folder);
}

/* True if one of the RDMA devices is soft-RoCE: only its driver has this file. */
static bool soft_roce_find(void)
{
    char path[320];
    bool found = false;
    DIR *folder = opendir(RDMA_FOLDER);
    for (struct dirent *device; folder != NULL && !found && (device = readdir(folder)) != NULL;) {
        snprintf(path, sizeof(path), RDMA_FOLDER "/%.64s/parent", device->d_name);
        found = device->d_name[0] != '.' && access(path, R_OK) == 0;
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

/* True if UCX_TLS has a name of an RDMA transport: rc…, dc…, ud… or ib. */
static bool rdma_named(const char *tls)
{
    static const char *const names[] = {"rc", "dc", "ud", "ib"};
    for (const char *at = tls; *at != 0; at += *at == ',') {
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (strncmp(at, names[i], 2) == 0)
                return true;
        at += strcspn(at, ",");
    }
    return false;
}

static void rdma_find(char *out, size_t capacity)
{
    DIR *folder = opendir(RDMA_FOLDER);
    out[0] = 0;
    for (struct dirent *device; folder != NULL && (device = readdir(folder)) != NULL;)
        if (device->d_name[0] != '.')
            ports_add(device->d_name, out, capacity);
    if (folder != NULL)
        closedir(folder);
}

void fabric_selection_make(const struct fabric_options *options, struct fabric_selection *out)
{
    const char *devices = options->ucx_devices;
    bool named = options->ucx_tls != NULL;
    bool gpu = options->device != NULL && options->device->is_cuda;
    *out = (struct fabric_selection){.transports_named = named};
    if (options->one_host)
        snprintf(out->devices, sizeof(out->devices), "lo");
    else if (devices != NULL && devices[0] != 0)
        snprintf(out->devices, sizeof(out->devices), "%s", devices);
    else if (!named)
        rdma_find(out->devices, sizeof(out->devices));
    bool rdma = !options->one_host && out->devices[0] != 0;
    if (named)
        snprintf(out->tls, sizeof(out->tls), "%s", options->ucx_tls);
    else
        snprintf(out->tls, sizeof(out->tls), "sysv,self%s%s", gpu ? ",cuda" : "",
                 rdma ? ",rc,dc" : "");
    out->rdma = named ? !options->one_host && rdma_named(out->tls) : rdma;
    /* Named transports may use all devices. */
    out->soft_roce = (rdma || (named && !options->one_host)) && soft_roce_find();
    out->ucx_off = strcmp(out->tls, "none") == 0;
}
