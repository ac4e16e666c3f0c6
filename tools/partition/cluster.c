/* partition_cluster: see the header. Every value is checked where it is read. An error names the
 * position in the file, e.g. hosts[0].devices[1].memory. */
#include "tools/partition/cluster.h"

#include "common/json.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define BANDWIDTH_MIN 1e3
#define BANDWIDTH_MAX 1e15
#define LATENCY_MAX   1e9 /* Microseconds. */
#define MEMORY_MAX    (1ull << 60)

struct reader {
    const char *file;
    const struct profile *profile;
    struct partition_cluster *out;
    struct error *error;
};

/* The message quotes the value as JSON, at most 60 bytes of it. `wanted` says what should be there.
 */
static enum status fault(const struct reader *r, const char *path, const json_t *value,
                         const char *wanted)
{
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    const char *shown = text != NULL ? text : "missing";
    error_set(r->error, ST_INVALID, "%s: %s%s%.60s%s: want %s", r->file, path,
              text != NULL ? " = " : " is ", shown, strlen(shown) > 60 ? "…" : "", wanted);
    free(text);
    return ST_INVALID;
}

/* Checks that the object has no keys except `keys`. */
static enum status only(const struct reader *r, const char *path, json_t *object, const char *keys)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return fault(r, path, object, "an object");
    json_object_foreach(object, key, value)
    {
        size_t length = strlen(key);
        const char *at = keys;
        while (at[0] != 0 && (strncmp(at, key, length) != 0 || (at[length] != ' ' && at[length])))
            at += strcspn(at, " ") + (at[strcspn(at, " ")] == ' ');
        if (at[0] == 0 || length == 0)
            return error_set(r->error, ST_INVALID, "%s: %s has an unknown key \"%.40s\": want %s",
                             r->file, path[0] != 0 ? path : "the file", key, keys);
    }
    return ST_OK;
}

static enum status read_count(const struct reader *r, const char *path, const json_t *value,
                              uint32_t *out)
{
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "a whole number from 1 to %u", PARTITION_DEVICES_MAX);
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > PARTITION_DEVICES_MAX)
        return fault(r, path, value, wanted);
    *out = (uint32_t)json_integer_value(value);
    return ST_OK;
}

bool partition_size_parse(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (*end != 0) {
        const char *unit = strchr(units, *end);
        if (unit == NULL || strcmp(end + 1, "iB") != 0)
            return false;
        shift = 10 * (unsigned)(unit - units + 1);
    }
    if (errno != 0 || number > UINT64_MAX >> shift)
        return false;
    *out = (uint64_t)number << shift;
    return true;
}

static enum status read_memory(const struct reader *r, const char *path, const json_t *value,
                               uint64_t *out)
{
    bool read = json_is_string(value) && partition_size_parse(json_string_value(value), out);
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
        read = true;
    }
    return read && *out <= MEMORY_MAX ? ST_OK : fault(r, path, value, "a size, such as \"8GiB\"");
}

static enum status read_real(const struct reader *r, const char *path, const json_t *value,
                             double low, double high, double *out)
{
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "a number from %g to %g", low, high);
    if (!json_is_number(value) || !(json_number_value(value) >= low) ||
        !(json_number_value(value) <= high))
        return fault(r, path, value, wanted);
    *out = json_number_value(value);
    return ST_OK;
}

/* Finds or adds the kind of a device: devices with the same profile entry and the same memory are
 * of one kind. */
static enum status kind_of(const struct reader *r, const struct profile_device *device,
                           uint64_t memory_bytes, uint32_t *out)
{
    struct partition_cluster *c = r->out;
    uint32_t k = 0;
    while (k < c->kind_count &&
           (c->kinds[k].device != device || c->kinds[k].memory_bytes != memory_bytes))
        k++;
    if (k == PARTITION_KINDS_MAX)
        return error_set(r->error, ST_TOO_LARGE, "%s: more than %u kinds of devices", r->file,
                         PARTITION_KINDS_MAX);
    if (k == c->kind_count)
        c->kinds[c->kind_count++] = (struct cluster_kind){device, memory_bytes};
    *out = k;
    return ST_OK;
}

static enum status read_profile_name(const struct reader *r, const char *path, const json_t *value,
                                     const struct profile_device **out)
{
    char wanted[256] = "the name of a device in the profile:";
    for (uint32_t i = 0; i < r->profile->device_count; i++) {
        const struct profile_device *device = &r->profile->devices[i];
        if (json_is_string(value) && strcmp(json_string_value(value), device->name) == 0) {
            *out = device;
            return ST_OK;
        }
        size_t used = strlen(wanted);
        snprintf(wanted + used, sizeof(wanted) - used, "%s %s", i > 0 ? "," : "", device->name);
    }
    return fault(r, path, value, wanted);
}

static enum status read_device(const struct reader *r, const char *path, json_t *entry,
                               struct partition_host *host)
{
    char place[160];
    const struct profile_device *device = NULL;
    uint32_t count = 1;
    enum status status = only(r, path, entry, "profile count memory");
    if (status != ST_OK)
        return status;
    snprintf(place, sizeof(place), "%s.profile", path);
    status = read_profile_name(r, place, json_object_get(entry, "profile"), &device);
    if (status != ST_OK)
        return status;
    uint64_t memory_bytes = device->memory_bytes;
    json_t *value = json_object_get(entry, "count");
    snprintf(place, sizeof(place), "%s.count", path);
    if (value != NULL && (status = read_count(r, place, value, &count)) != ST_OK)
        return status;
    value = json_object_get(entry, "memory");
    snprintf(place, sizeof(place), "%s.memory", path);
    if (value != NULL && (status = read_memory(r, place, value, &memory_bytes)) != ST_OK)
        return status;
    uint32_t kind = 0;
    status = kind_of(r, device, memory_bytes, &kind);
    if (status == ST_OK)
        host->devices[kind] += count;
    return status;
}

static enum status read_devices(const struct reader *r, const char *path, json_t *devices,
                                struct partition_host *host)
{
    char place[128];
    enum status status = ST_OK;
    if (!json_is_array(devices) || json_array_size(devices) == 0)
        return fault(r, path, devices, "a list of devices");
    for (size_t i = 0; i < json_array_size(devices) && status == ST_OK; i++) {
        snprintf(place, sizeof(place), "%s[%zu]", path, i);
        status = read_device(r, place, json_array_get(devices, i), host);
    }
    return status;
}

static enum status read_host(const struct reader *r, const char *path, json_t *entry)
{
    struct partition_cluster *c = r->out;
    char place[128];
    struct partition_host *host = &c->hosts[c->host_count];
    enum status status = only(r, path, entry, "name count devices");
    if (status != ST_OK)
        return status;
    host->count = 1;
    const json_t *name = json_object_get(entry, "name");
    snprintf(place, sizeof(place), "%s.name", path);
    if (!json_is_string(name) || json_string_length(name) == 0 ||
        json_string_length(name) >= LIMIT_NAME_BYTES)
        return fault(r, place, name, "a text of 1 to 31 bytes");
    for (uint32_t i = 0; i < c->host_count; i++)
        if (strcmp(c->host_names[i], json_string_value(name)) == 0)
            return fault(r, place, name, "a name that no other kind of host has");
    strcpy(c->host_names[c->host_count], json_string_value(name));
    snprintf(place, sizeof(place), "%s.count", path);
    json_t *count = json_object_get(entry, "count");
    if (count != NULL && (status = read_count(r, place, count, &host->count)) != ST_OK)
        return status;
    snprintf(place, sizeof(place), "%s.devices", path);
    status = read_devices(r, place, json_object_get(entry, "devices"), host);
    c->host_count++;
    return status;
}

static enum status read_link(const struct reader *r, const char *name, json_t *links,
                             struct cluster_link *out)
{
    char path[64];
    json_t *link = json_object_get(links, name);
    if (link == NULL)
        return ST_OK;
    snprintf(path, sizeof(path), "links.%s", name);
    enum status status = only(r, path, link, "bandwidth_bytes_per_s latency_us");
    if (status != ST_OK)
        return status;
    snprintf(path, sizeof(path), "links.%s.bandwidth_bytes_per_s", name);
    status = read_real(r, path, json_object_get(link, "bandwidth_bytes_per_s"), BANDWIDTH_MIN,
                       BANDWIDTH_MAX, &out->bandwidth_bytes_per_s);
    snprintf(path, sizeof(path), "links.%s.latency_us", name);
    if (status == ST_OK)
        status = read_real(r, path, json_object_get(link, "latency_us"), 0, LATENCY_MAX,
                           &out->latency_us);
    return status;
}

/* Takes the links from the profile. Inside a host: the fastest link of the first device's host.
 * Between hosts: the slowest of the best links of all pairs, since it is not known which hosts a
 * pipeline will use. */
static void links_of_profile(const struct profile *profile, struct partition_cluster *c)
{
    const char *host = c->kinds[0].device->host;
    const struct profile_link *inside = profile_link_find(profile, host, host, NULL);
    if (inside != NULL)
        c->inside_host = (struct cluster_link){inside->bandwidth_bytes_per_s, inside->latency_us};
    for (uint32_t i = 0; i < profile->link_count; i++) {
        const struct profile_link *link = &profile->links[i];
        const struct profile_link *best = profile_link_find(profile, link->from, link->to, NULL);
        if (strcmp(link->from, link->to) != 0 &&
            (c->between_hosts.bandwidth_bytes_per_s == 0 ||
             best->bandwidth_bytes_per_s < c->between_hosts.bandwidth_bytes_per_s))
            c->between_hosts = (struct cluster_link){best->bandwidth_bytes_per_s, best->latency_us};
    }
}

/* Checks the links. A link that no pipeline can use may be missing; it gets the other's values. */
static enum status check_links(const struct reader *r)
{
    struct partition_cluster *c = r->out;
    uint32_t hosts = 0;
    bool several = false;
    for (uint32_t t = 0; t < c->host_count; t++) {
        uint32_t devices = 0;
        for (uint32_t k = 0; k < c->kind_count; k++)
            devices += c->hosts[t].devices[k];
        hosts += c->hosts[t].count;
        several = several || devices > 1;
    }
    if (c->inside_host.bandwidth_bytes_per_s == 0 && several)
        return error_set(r->error, ST_INVALID,
                         "%s: links.inside is missing: the profile has no link inside host %s",
                         r->file, c->kinds[0].device->host);
    if (c->between_hosts.bandwidth_bytes_per_s == 0 && hosts > 1)
        return error_set(r->error, ST_INVALID,
                         "%s: links.between is missing: the profile has no link between two hosts",
                         r->file);
    if (hosts == 1)
        c->between_hosts = c->inside_host;
    if (!several)
        c->inside_host = c->between_hosts;
    if (c->inside_host.latency_us > c->between_hosts.latency_us)
        return error_set(r->error, ST_INVALID,
                         "%s: links.inside.latency_us is %g, links.between.latency_us %g: want no "
                         "more inside",
                         r->file, c->inside_host.latency_us, c->between_hosts.latency_us);
    return ST_OK;
}

static enum status read_all(const struct reader *r, json_t *root)
{
    char path[32];
    enum status status = only(r, "", root, "hosts links");
    if (status != ST_OK)
        return status;
    json_t *hosts = json_object_get(root, "hosts");
    if (!json_is_array(hosts) || json_array_size(hosts) == 0 ||
        json_array_size(hosts) > PARTITION_HOSTS_MAX)
        return fault(r, "hosts", hosts, "a list of 1 to 16 kinds of hosts");
    for (size_t i = 0; i < json_array_size(hosts) && status == ST_OK; i++) {
        snprintf(path, sizeof(path), "hosts[%zu]", i);
        status = read_host(r, path, json_array_get(hosts, i));
    }
    if (status != ST_OK)
        return status;
    links_of_profile(r->profile, r->out);
    json_t *links = json_object_get(root, "links");
    if (links != NULL)
        status = only(r, "links", links, "inside between");
    if (status == ST_OK)
        status = read_link(r, "inside", links, &r->out->inside_host);
    if (status == ST_OK)
        status = read_link(r, "between", links, &r->out->between_hosts);
    return status == ST_OK ? check_links(r) : status;
}

static enum status read_machine(const struct reader *r, const char *name, json_t *root)
{
    struct partition_cluster *c = r->out;
    json_t *links = json_object_get(root, "links");
    snprintf(c->host_names[0], sizeof(c->host_names[0]), "%s", name);
    c->hosts[0].count = c->host_count = 1;
    enum status status = read_devices(r, "devices", json_object_get(root, "devices"), &c->hosts[0]);
    if (status != ST_OK)
        return status;
    links_of_profile(r->profile, c);
    if (links != NULL)
        status = only(r, "links", links, "inside");
    if (status == ST_OK)
        status = read_link(r, "inside", links, &c->inside_host);
    return status == ST_OK ? check_links(r) : status;
}

/* Sets the error of a file or text whose loading returned `status`. */
static enum status load_fail(enum status status, const char *name, const json_error_t *why,
                             struct error *error)
{
    return status == ST_INVALID ? error_set(error, status, "%s:%d: %s", name, why->line, why->text)
                                : error_set(error, status, "%s: %s", name, why->text);
}

/* `root` and `why` are the results of loading the JSON, which returned `status`. */
static enum status read_root(enum status status, json_t *root, const json_error_t *why,
                             const char *name, const struct profile *profile,
                             struct partition_cluster *out, struct error *error)
{
    const struct reader r = {name, profile, out, error};
    memset(out, 0, sizeof(*out));
    if (status != ST_OK)
        return load_fail(status, name, why, error);
    status = read_all(&r, root);
    json_decref(root);
    return status;
}

enum status partition_cluster_parse(const char *text, size_t bytes, const char *name,
                                    const struct profile *profile, struct partition_cluster *out,
                                    struct error *error)
{
    json_error_t why;
    json_t *root;
    enum status status = json_text_load(text, bytes, JSON_REJECT_DUPLICATES, &root, &why);
    return read_root(status, root, &why, name, profile, out, error);
}

enum status partition_cluster_load(const char *path, const struct profile *profile,
                                   struct partition_cluster *out, struct error *error)
{
    json_error_t why;
    json_t *root;
    enum status status = json_file_load(path, JSON_REJECT_DUPLICATES, &root, &why);
    return read_root(status, root, &why, path, profile, out, error);
}

enum status partition_cluster_of_machine(const char *path, const char *name,
                                         const struct profile *profile,
                                         struct partition_cluster *out, struct error *error)
{
    const struct reader r = {path, profile, out, error};
    json_error_t why;
    json_t *root;
    enum status status = json_file_load(path, JSON_REJECT_DUPLICATES, &root, &why);
    memset(out, 0, sizeof(*out));
    if (status != ST_OK)
        return load_fail(status, path, &why, error);
    status = read_machine(&r, name, root);
    json_decref(root);
    return status;
}

/* ---- what a profile was measured on ---- */

/* True if another entry of the same CPU was measured with more threads. */
static bool lesser_choice(const struct profile *profile, const struct profile_device *device)
{
    for (uint32_t i = 0; i < profile->device_count; i++) {
        const struct profile_device *other = &profile->devices[i];
        if (strcmp(other->host, device->host) == 0 && strcmp(other->kind, device->kind) == 0 &&
            other->threads > device->threads && other->ranks == 1 && other->busy_devices == 0)
            return true;
    }
    return false;
}

enum status partition_cluster_of_profile(const struct profile *profile,
                                         struct partition_cluster *out, struct error *error)
{
    const struct reader r = {"without --cluster", profile, out, error};
    memset(out, 0, sizeof(*out));
    for (uint32_t i = 0; i < profile->device_count; i++) {
        const struct profile_device *device = &profile->devices[i];
        uint32_t t = 0, kind = 0;
        if (device->ranks > 1 || device->busy_devices > 0 || lesser_choice(profile, device))
            continue;
        while (t < out->host_count && strcmp(out->host_names[t], device->host) != 0)
            t++;
        if (t == PARTITION_HOSTS_MAX)
            return error_set(error, ST_TOO_LARGE, "%s: more than %u hosts in the profile", r.file,
                             PARTITION_HOSTS_MAX);
        enum status status = kind_of(&r, device, device->memory_bytes, &kind);
        if (status != ST_OK)
            return status;
        if (t == out->host_count) {
            out->host_count++;
            out->hosts[t].count = 1;
            strcpy(out->host_names[t], device->host);
        }
        out->hosts[t].devices[kind]++;
    }
    if (out->kind_count == 0)
        return error_set(error, ST_INVALID, "%s: the profile has no device", r.file);
    links_of_profile(profile, out);
    return check_links(&r);
}
