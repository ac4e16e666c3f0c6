/* profile_read: reads a profile from JSON. Every value is checked where it is read. An error names
 * the value's path, such as devices[0].layers[2].prompt.us[3][1]. */
#include "profile/profile.h"

#include "common/json.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A year in microseconds and an exabyte: a larger number is a mistake. */
#define US_MAX    3.2e13
#define WATTS_MAX 1e6
#define BYTES_MAX 1e18
/* Sums of LIMIT_LAYERS weights, and the KV of a billion blocks, do not overflow. */
#define WEIGHTS_MAX 1e16
#define TOKEN_MAX   1e9
#define ROWS_MAX    1e9
#define EXPERTS_MAX 65536 /* Experts of a layer. */

struct reader {
    const char *file;
    char path[256];
    struct error *error;
    bool short_of_memory;
};

/* Appends to the path. Returns the length to which the caller truncates it afterwards. */
static size_t path_push(struct reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static size_t path_push(struct reader *r, const char *format, ...)
{
    size_t length = strlen(r->path);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->path + length, sizeof(r->path) - length, format, arguments);
    va_end(arguments);
    return length;
}

static size_t path_key(struct reader *r, const char *key)
{
    return path_push(r, "%s%s", r->path[0] != 0 ? "." : "", key);
}

static void path_pop(struct reader *r, size_t length)
{
    r->path[length] = 0;
}

/* Reports a value as JSON, possibly truncated; `wanted` says what should be there. */
static bool fault(const struct reader *r, const json_t *value, const char *wanted)
{
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    const char *shown = text != NULL ? text : "missing";
    error_set(r->error, ST_INVALID, "%s: %s%s%.60s%s: want %s", r->file,
              r->path[0] != 0 ? r->path : "the file", text != NULL ? " = " : " is ", shown,
              strlen(shown) > 60 ? "…" : "", wanted);
    free(text);
    return false;
}

static bool number(const struct reader *r, const json_t *value, double minimum, double maximum,
                   double *out)
{
    char wanted[64];
    if (json_is_number(value) && json_number_value(value) >= minimum &&
        json_number_value(value) <= maximum) {
        *out = json_number_value(value);
        return true;
    }
    snprintf(wanted, sizeof(wanted), "a number from %g to %g", minimum, maximum);
    return fault(r, value, wanted);
}

static bool whole_number_read(const struct reader *r, const json_t *value, uint64_t minimum,
                              uint64_t maximum, uint64_t *out)
{
    char wanted[64];
    if (json_is_integer(value) && json_integer_value(value) >= (json_int_t)minimum &&
        json_integer_value(value) <= (json_int_t)maximum) {
        *out = (uint64_t)json_integer_value(value);
        return true;
    }
    snprintf(wanted, sizeof(wanted), "a whole number from %" PRIu64 " to %" PRIu64, minimum,
             maximum);
    return fault(r, value, wanted);
}

static bool number_at(struct reader *r, const json_t *object, const char *key, double minimum,
                      double maximum, double *out)
{
    size_t length = path_key(r, key);
    bool good = number(r, json_object_get(object, key), minimum, maximum, out);
    path_pop(r, length);
    return good;
}

static bool whole_at(struct reader *r, const json_t *object, const char *key, uint64_t minimum,
                     uint64_t maximum, uint64_t *out)
{
    size_t length = path_key(r, key);
    bool good = whole_number_read(r, json_object_get(object, key), minimum, maximum, out);
    path_pop(r, length);
    return good;
}

static bool u32_at(struct reader *r, const json_t *object, const char *key, uint32_t minimum,
                   uint32_t maximum, uint32_t *out)
{
    uint64_t value = 0;
    bool good = whole_at(r, object, key, minimum, maximum, &value);
    *out = (uint32_t)value;
    return good;
}

static bool bool_at(struct reader *r, const json_t *object, const char *key, bool *out)
{
    const json_t *value = json_object_get(object, key);
    size_t length = path_key(r, key);
    bool good = json_is_boolean(value) || fault(r, value, "true or false");
    path_pop(r, length);
    *out = json_is_true(value);
    return good;
}

/* minimum 1 = the text is required. */
static bool text_at(struct reader *r, const json_t *object, const char *key, size_t minimum,
                    char *out, size_t capacity)
{
    const json_t *value = json_object_get(object, key);
    size_t bytes = json_string_length(value);
    char wanted[64];
    out[0] = 0;
    if (value == NULL && minimum == 0)
        return true;
    size_t length = path_key(r, key);
    snprintf(wanted, sizeof(wanted), "a text of %zu to %zu bytes", minimum, capacity - 1);
    bool good =
        (json_is_string(value) && bytes >= minimum && bytes < capacity) || fault(r, value, wanted);
    path_pop(r, length);
    if (good)
        memcpy(out, json_string_value(value), bytes + 1);
    return good;
}

/* Checks the keys of an object. The reader's path is the object's. `known`: names with a space
 * after each. */
static bool object_known(struct reader *r, const json_t *object, const char *known)
{
    const char *key;
    json_t *value;
    char name[64], wanted[320];
    if (!json_is_object(object))
        return fault(r, object, "an object");
    json_object_foreach((json_t *)object, key, value)
    {
        snprintf(name, sizeof(name), "%s ", key);
        const char *at = strstr(known, name);
        while (at != NULL && at != known && at[-1] != ' ')
            at = strstr(at + 1, name);
        if (at != NULL && strchr(key, ' ') == NULL && key[0] != 0)
            continue;
        size_t length = path_push(r, "%s%.60s", r->path[0] != 0 ? "." : "", key);
        snprintf(wanted, sizeof(wanted), "one of the keys %s", known);
        wanted[strlen(wanted) - 1] = 0;
        fault(r, value, wanted);
        path_pop(r, length);
        return false;
    }
    return true;
}

/* Checks for a list of `minimum` to `maximum` values. The reader's path is the list's. */
static bool list_sized(struct reader *r, const json_t *list, size_t minimum, size_t maximum)
{
    char wanted[64];
    if (json_is_array(list) && json_array_size(list) >= minimum && json_array_size(list) <= maximum)
        return true;
    snprintf(wanted, sizeof(wanted), "a list of %zu to %zu", minimum, maximum);
    return fault(r, list, wanted);
}

/* Reads numbers that ascend, strictly or not. */
static bool ascending(struct reader *r, const json_t *list, size_t minimum, size_t maximum,
                      double limit, bool strictly, double *out)
{
    if (!list_sized(r, list, minimum, maximum))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t length = path_push(r, "[%zu]", i);
        const json_t *value = json_array_get(list, i);
        if (!number(r, value, 0, limit, &out[i]))
            return false;
        if (i > 0 && (strictly ? out[i] <= out[i - 1] : out[i] < out[i - 1]))
            return fault(r, value,
                         strictly ? "more than the one before" : "no less than the one before");
        path_pop(r, length);
    }
    return true;
}

static bool ascending_at(struct reader *r, const json_t *object, const char *key, size_t minimum,
                         size_t maximum, double limit, bool strictly, double *out,
                         uint32_t *count_out)
{
    const json_t *list = json_object_get(object, key);
    size_t length = path_key(r, key);
    if (!ascending(r, list, minimum, maximum, limit, strictly, out))
        return false;
    path_pop(r, length);
    if (count_out != NULL)
        *count_out = (uint32_t)json_array_size(list);
    return true;
}

static bool grid_times(struct reader *r, const json_t *list, struct profile_grid *out)
{
    if (!list_sized(r, list, out->row_count, out->row_count))
        return false;
    for (uint32_t i = 0; i < out->row_count; i++) {
        const json_t *row = json_array_get(list, i);
        size_t length = path_push(r, "[%u]", i);
        if (!ascending(r, row, out->context_count, out->context_count, US_MAX, false, out->us[i]))
            return false;
        for (uint32_t c = 0; c < out->context_count && i > 0; c++) {
            if (out->us[i][c] >= out->us[i - 1][c])
                continue;
            path_push(r, "[%u]", c);
            return fault(r, json_array_get(row, c), "no less than with fewer rows");
        }
        path_pop(r, length);
    }
    return true;
}

/* rows_key: "tokens" or "batches". */
static bool grid(struct reader *r, const json_t *object, const char *rows_key,
                 struct profile_grid *out)
{
    char known[64];
    snprintf(known, sizeof(known), "%s contexts us spread ", rows_key);
    if (!object_known(r, object, known) ||
        !ascending_at(r, object, rows_key, 1, PROFILE_ROWS_MAX, ROWS_MAX, true, out->rows,
                      &out->row_count) ||
        !ascending_at(r, object, "contexts", 1, PROFILE_CONTEXTS_MAX, ROWS_MAX, true, out->contexts,
                      &out->context_count))
        return false;
    size_t length = path_key(r, "us");
    if (!grid_times(r, json_object_get(object, "us"), out))
        return false;
    path_pop(r, length);
    return json_object_get(object, "spread") == NULL ||
           number_at(r, object, "spread", 0, 1e6, &out->spread);
}

static bool grid_at(struct reader *r, const json_t *object, const char *key, const char *rows_key,
                    struct profile_grid *out)
{
    size_t length = path_key(r, key);
    bool good = grid(r, json_object_get(object, key), rows_key, out);
    if (good)
        path_pop(r, length);
    return good;
}

static bool curve_at(struct reader *r, const json_t *object, const char *key,
                     struct profile_curve *out)
{
    const json_t *value = json_object_get(object, key);
    size_t length = path_key(r, key);
    if (!object_known(r, value, "rows us ") ||
        !ascending_at(r, value, "rows", 1, PROFILE_ROWS_MAX, ROWS_MAX, true, out->rows,
                      &out->row_count) ||
        !ascending_at(r, value, "us", out->row_count, out->row_count, US_MAX, false, out->us, NULL))
        return false;
    path_pop(r, length);
    return true;
}

static bool layers(struct reader *r, const json_t *object, uint32_t model_layers,
                   struct profile_device *out)
{
    bool alike;
    const json_t *list = json_object_get(object, "layers");
    if (!bool_at(r, object, "layers_alike", &alike))
        return false;
    size_t length = path_key(r, "layers");
    out->layer_count = alike ? 1 : model_layers;
    if (!list_sized(r, list, out->layer_count, out->layer_count))
        return false;
    out->layers = calloc(out->layer_count, sizeof(*out->layers));
    if (out->layers == NULL) {
        r->short_of_memory = true;
        return false;
    }
    for (uint32_t i = 0; i < out->layer_count; i++) {
        const json_t *layer = json_array_get(list, i);
        size_t inner = path_push(r, "[%u]", i);
        if (!object_known(r, layer, "prompt token ") ||
            !grid_at(r, layer, "prompt", "tokens", &out->layers[i].prompt) ||
            !grid_at(r, layer, "token", "batches", &out->layers[i].token))
            return false;
        path_pop(r, inner);
    }
    path_pop(r, length);
    return true;
}

static bool checks(struct reader *r, const json_t *list, struct profile_device *out)
{
    size_t length = path_key(r, "checks");
    if (list != NULL && !list_sized(r, list, 0, PROFILE_CHECKS_MAX))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *object = json_array_get(list, i);
        struct profile_check *check = &out->checks[out->check_count++];
        char phase[8];
        size_t inner = path_push(r, "[%zu]", i);
        if (!object_known(r, object, "phase rows context decodes measured_us sum_us ") ||
            !text_at(r, object, "phase", 1, phase, sizeof(phase)) ||
            !number_at(r, object, "rows", 1, ROWS_MAX, &check->rows) ||
            !number_at(r, object, "context", 0, ROWS_MAX, &check->context) ||
            !(json_object_get(object, "decodes") == NULL ||
              u32_at(r, object, "decodes", 0, LIMIT_BATCH_SEQUENCES, &check->decodes)) ||
            !number_at(r, object, "measured_us", 0, US_MAX, &check->measured_us) ||
            !number_at(r, object, "sum_us", 0, US_MAX, &check->predicted_us))
            return false;
        check->prompt = strcmp(phase, "prompt") == 0;
        path_key(r, "phase");
        if (!check->prompt && strcmp(phase, "token") != 0)
            return fault(r, json_object_get(object, "phase"), "\"prompt\" or \"token\"");
        path_pop(r, inner);
    }
    path_pop(r, length);
    return true;
}

static bool device(struct reader *r, const json_t *object, const struct profile *p,
                   struct profile_device *out)
{
    static const char known[] =
        "name kind host description threads ranks beside memory_bytes layers_alike "
        "layers last_layer_prompt first last batch_us disturbed prompt_w token_w checks ";
    out->ranks = 1;
    if (!object_known(r, object, known) ||
        !text_at(r, object, "name", 1, out->name, sizeof(out->name)) ||
        !text_at(r, object, "kind", 1, out->kind, sizeof(out->kind)) ||
        !text_at(r, object, "host", 1, out->host, sizeof(out->host)) ||
        !text_at(r, object, "description", 0, out->description, sizeof(out->description)) ||
        !u32_at(r, object, "threads", 0, 65536, &out->threads) ||
        !(json_object_get(object, "ranks") == NULL ||
          u32_at(r, object, "ranks", 1, LIMIT_RANKS, &out->ranks)) ||
        !(json_object_get(object, "beside") == NULL ||
          u32_at(r, object, "beside", 0, 65536, &out->busy_devices)) ||
        !whole_at(r, object, "memory_bytes", 0, (uint64_t)BYTES_MAX, &out->memory_bytes) ||
        !layers(r, object, p->model.layer_count, out) ||
        !curve_at(r, object, "first", &out->embedding) ||
        !curve_at(r, object, "last", &out->vocabulary) ||
        !number_at(r, object, "batch_us", 0, US_MAX, &out->batch_us) ||
        !(json_object_get(object, "disturbed") == NULL ||
          number_at(r, object, "disturbed", 0, 1, &out->disturbed)) ||
        !(json_object_get(object, "prompt_w") == NULL ||
          number_at(r, object, "prompt_w", 0, WATTS_MAX, &out->prompt_w)) ||
        !(json_object_get(object, "token_w") == NULL ||
          number_at(r, object, "token_w", 0, WATTS_MAX, &out->token_w)) ||
        !checks(r, json_object_get(object, "checks"), out))
        return false;
    for (uint32_t i = 0; i < p->device_count; i++) {
        if (strcmp(p->devices[i].name, out->name) != 0)
            continue;
        path_key(r, "name");
        return fault(r, json_object_get(object, "name"), "a name that no other device has");
    }
    if (json_object_get(object, "last_layer_prompt") != NULL)
        return grid_at(r, object, "last_layer_prompt", "tokens", &out->last_layer_prompt);
    out->last_layer_prompt = out->layers[out->layer_count - 1].prompt;
    return true;
}

static bool link_sizes(struct reader *r, const json_t *list, struct profile_link *out)
{
    size_t length = path_key(r, "writes");
    if (list != NULL && !list_sized(r, list, 0, PROFILE_SIZES_MAX))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *object = json_array_get(list, i);
        uint32_t n = out->size_count++;
        size_t inner = path_push(r, "[%zu]", i);
        if (!object_known(r, object, "bytes us ") ||
            !number_at(r, object, "bytes", n > 0 ? out->sizes_bytes[n - 1] + 1 : 1, BYTES_MAX,
                       &out->sizes_bytes[n]) ||
            !number_at(r, object, "us", 0, US_MAX, &out->sizes_us[n]))
            return false;
        path_pop(r, inner);
    }
    path_pop(r, length);
    return true;
}

static bool link_read(struct reader *r, const json_t *object, struct profile_link *out)
{
    static const char known[] = "from to transport path bandwidth_bytes_per_s latency_us writes ";
    return object_known(r, object, known) &&
           text_at(r, object, "from", 1, out->from, sizeof(out->from)) &&
           text_at(r, object, "to", 1, out->to, sizeof(out->to)) &&
           text_at(r, object, "transport", 1, out->transport, sizeof(out->transport)) &&
           text_at(r, object, "path", 0, out->path, sizeof(out->path)) &&
           number_at(r, object, "bandwidth_bytes_per_s", 1, BYTES_MAX,
                     &out->bandwidth_bytes_per_s) &&
           number_at(r, object, "latency_us", 0, US_MAX, &out->latency_us) &&
           link_sizes(r, json_object_get(object, "writes"), out);
}

/* One number for all layers, or a list. */
static bool layer_weights(struct reader *r, const json_t *value, struct profile *p)
{
    size_t length = path_key(r, "layer_weight_bytes");
    const bool list = json_is_array(value);
    if (list && !list_sized(r, value, p->model.layer_count, p->model.layer_count))
        return false;
    for (uint32_t i = 0; i < p->model.layer_count; i++) {
        size_t inner = list ? path_push(r, "[%u]", i) : strlen(r->path);
        if (!whole_number_read(r, list ? json_array_get(value, i) : value, 0, (uint64_t)WEIGHTS_MAX,
                               &p->model.layer_weight_bytes[i]))
            return false;
        path_pop(r, inner);
    }
    path_pop(r, length);
    return true;
}

static bool metadata_hash(struct reader *r, const json_t *object, struct profile *p)
{
    char text[32], *end = text;
    if (!text_at(r, object, "metadata_hash", 0, text, sizeof(text)))
        return false;
    if (text[0] == 0)
        return true;
    bool digits = strlen(text) <= 16 && strspn(text, "0123456789abcdef") == strlen(text);
    p->model.metadata_hash = digits ? strtoull(text, &end, 16) : 0;
    size_t length = path_key(r, "metadata_hash");
    bool good = digits || fault(r, json_object_get(object, "metadata_hash"), "up to 16 hex digits");
    path_pop(r, length);
    return good;
}

/* {"count": 6, "windowed": [0, 1, 2, 3, 4], "window_tokens": 512}; missing = no layer has a
 * window. */
static bool layer_groups(struct reader *r, const json_t *object, struct profile *p)
{
    struct layer_groups *out = &p->model.groups;
    const json_t *windowed = json_object_get(object, "windowed");
    size_t length = path_key(r, "layer_groups");
    if (object != NULL) {
        uint32_t most =
            p->model.layer_count < LAYER_GROUPS_MAX ? p->model.layer_count : LAYER_GROUPS_MAX;
        if (!object_known(r, object, "count windowed window_tokens ") ||
            !u32_at(r, object, "count", 1, most, &out->count) ||
            !u32_at(r, object, "window_tokens", 1, LIMIT_CONTEXT_TOKENS, &out->window_tokens))
            return false;
        size_t list = path_key(r, "windowed");
        if (!list_sized(r, windowed, 1, out->count))
            return false;
        for (uint32_t i = 0; i < json_array_size(windowed); i++) {
            uint64_t group;
            size_t inner = path_push(r, "[%u]", i);
            if (!whole_number_read(r, json_array_get(windowed, i), 0, out->count - 1, &group))
                return false;
            out->windowed |= 1u << group;
            path_pop(r, inner);
        }
        path_pop(r, list);
    }
    path_pop(r, length);
    return true;
}

/* {"count": 128, "used": 8, "bytes": 2654208, "rows": [1, 8], "chosen": [8, 51.6]}; missing = the
 * model has no experts. `rows` and `chosen` may be missing together. */
static bool experts(struct reader *r, const json_t *object, struct profile_experts *out)
{
    if (object == NULL)
        return true;
    size_t length = path_key(r, "experts");
    const bool measured =
        json_object_get(object, "rows") != NULL || json_object_get(object, "chosen") != NULL;
    if (!object_known(r, object, "count used bytes rows chosen ") ||
        !u32_at(r, object, "count", 1, EXPERTS_MAX, &out->count) ||
        !u32_at(r, object, "used", 1, out->count, &out->used) ||
        !whole_at(r, object, "bytes", 1, (uint64_t)WEIGHTS_MAX / EXPERTS_MAX, &out->bytes))
        return false;
    if (measured && (!ascending_at(r, object, "rows", 1, PROFILE_ROWS_MAX, ROWS_MAX, true,
                                   out->rows, &out->row_count) ||
                     !ascending_at(r, object, "chosen", out->row_count, out->row_count, out->count,
                                   false, out->chosen, NULL)))
        return false;
    path_pop(r, length);
    return true;
}

/* Profiles of earlier releases lack the key. */
static bool vocabulary_layers(struct reader *r, const json_t *object, struct profile *p)
{
    const double layer = (double)p->model.layer_weight_bytes[0];
    p->model.vocabulary_layers = layer > 0 ? (double)p->model.vocabulary_bytes / layer : 0;
    return json_object_get(object, "vocabulary_layers") == NULL ||
           number_at(r, object, "vocabulary_layers", 0, (double)WEIGHTS_MAX,
                     &p->model.vocabulary_layers);
}

static bool model(struct reader *r, const json_t *object, struct profile *p)
{
    static const char known[] =
        "name metadata_hash layer_count hidden vocab layer_weight_bytes embedding_bytes "
        "vocabulary_bytes vocabulary_layers tied kv_bytes_per_token kv_copied layer_groups experts "
        "boundary_bytes_per_token ";
    const uint64_t limit = (uint64_t)WEIGHTS_MAX;
    const uint64_t token = (uint64_t)TOKEN_MAX;
    size_t length = path_key(r, "model");
    bool good = object_known(r, object, known) &&
                text_at(r, object, "name", 0, p->model.name, sizeof(p->model.name)) &&
                metadata_hash(r, object, p) &&
                u32_at(r, object, "layer_count", 1, LIMIT_LAYERS, &p->model.layer_count) &&
                u32_at(r, object, "hidden", 1, UINT32_MAX, &p->model.hidden) &&
                u32_at(r, object, "vocab", 1, UINT32_MAX, &p->model.vocab) &&
                layer_weights(r, json_object_get(object, "layer_weight_bytes"), p) &&
                whole_at(r, object, "embedding_bytes", 0, limit, &p->model.embedding_bytes) &&
                whole_at(r, object, "vocabulary_bytes", 0, limit, &p->model.vocabulary_bytes) &&
                vocabulary_layers(r, object, p) && bool_at(r, object, "tied", &p->model.tied) &&
                whole_at(r, object, "kv_bytes_per_token", 1, token, &p->model.kv_bytes_per_token) &&
                (json_object_get(object, "kv_copied") == NULL ||
                 bool_at(r, object, "kv_copied", &p->model.kv_copied)) &&
                layer_groups(r, json_object_get(object, "layer_groups"), p) &&
                experts(r, json_object_get(object, "experts"), &p->model.experts) &&
                whole_at(r, object, "boundary_bytes_per_token", 1, token,
                         &p->model.boundary_bytes_per_token);
    if (good)
        path_pop(r, length);
    return good;
}

static bool read_all(struct reader *r, const json_t *root, struct profile *p)
{
    uint64_t version;
    const json_t *devices = json_object_get(root, "devices");
    const json_t *links = json_object_get(root, "links");
    if (!object_known(r, root, "version model devices links ") ||
        !whole_at(r, root, "version", PROFILE_VERSION, PROFILE_VERSION, &version) ||
        !model(r, json_object_get(root, "model"), p))
        return false;
    path_key(r, "devices");
    if (!list_sized(r, devices, 1, PROFILE_DEVICES_MAX))
        return false;
    for (size_t i = 0; i < json_array_size(devices); i++) {
        size_t length = path_push(r, "[%zu]", i);
        bool good = device(r, json_array_get(devices, i), p, &p->devices[i]);
        p->device_count++; /* Counted even if it has failed, so that its layers are freed. */
        if (!good)
            return false;
        path_pop(r, length);
    }
    path_pop(r, 0);
    path_key(r, "links");
    if (!list_sized(r, links, 0, PROFILE_LINKS_MAX))
        return false;
    for (size_t i = 0; i < json_array_size(links); i++) {
        size_t length = path_push(r, "[%zu]", i);
        if (!link_read(r, json_array_get(links, i), &p->links[p->link_count++]))
            return false;
        path_pop(r, length);
    }
    return true;
}

/* `root` and `why` are the results of loading the JSON, which returned `status`. */
static enum status read_json(enum status status, json_t *root, const json_error_t *why,
                             const char *name, struct profile **out, struct error *error)
{
    struct reader reader = {.file = name, .error = error};
    if (status == ST_INVALID)
        return error_set(error, status, "%s:%d: not JSON: %s", name, why->line, why->text);
    if (status != ST_OK)
        return error_set(error, status, "%s: %s", name, why->text);
    struct profile *p = calloc(1, sizeof(*p));
    bool good = p != NULL && read_all(&reader, root, p);
    json_decref(root);
    if (good) {
        *out = p;
        return ST_OK;
    }
    status = p == NULL || reader.short_of_memory
                 ? error_set(error, ST_NO_MEMORY, "%s: out of memory", name)
                 : ST_INVALID;
    profile_close(p);
    return status;
}

enum status profile_load(const char *path, struct profile **out, struct error *error)
{
    json_error_t why;
    json_t *root;
    enum status status = json_file_load(path, JSON_REJECT_DUPLICATES, &root, &why);
    return read_json(status, root, &why, path, out, error);
}

enum status profile_parse(const char *text, size_t bytes, const char *name, struct profile **out,
                          struct error *error)
{
    json_error_t why;
    json_t *root;
    enum status status = json_text_load(text, bytes, JSON_REJECT_DUPLICATES, &root, &why);
    return read_json(status, root, &why, name, out, error);
}
