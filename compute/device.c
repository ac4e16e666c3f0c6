/* device: finds the backend that a config's device name means, and its options. */
#include "compute/compute.h"

#include "common/device_name.h"
#include "compute/plugin.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* No model has a layer of ten seconds. */
#define WAIT_US_MAX 1e7

/* Reads digits with or without a decimal point; strtod would also accept signs, exponents, hex and
 * "inf". */
static bool microseconds_read(const char **at, int64_t *ns_out)
{
    const char *end = *at;
    while (isdigit((unsigned char)*end))
        end++;
    bool digits = end > *at;
    if (digits && *end == '.') {
        const char *point = end++;
        while (isdigit((unsigned char)*end))
            end++;
        digits = end > point + 1;
    }
    double us = digits ? strtod(*at, NULL) : -1;
    if (us < 0 || us > WAIT_US_MAX)
        return false;
    *at = end;
    *ns_out = (int64_t)(us * 1e3 + 0.5);
    return true;
}

static bool wait_read(const char *at, struct compute_options *options)
{
    int64_t layer_ns, row_ns;
    if (!microseconds_read(&at, &layer_ns) || *at++ != '+' || !microseconds_read(&at, &row_ns) ||
        *at != 0)
        return false;
    options->wait_layer_ns = layer_ns;
    options->wait_row_ns = row_ns;
    return true;
}

enum status compute_device_find(const char *device, const struct compute_ops **ops_out,
                                struct compute_options *options_out, struct error *error)
{
    static const char wait[] = "wait:";
    if (strcmp(device, "cpu") == 0) {
        *ops_out = &compute_cpu;
        return ST_OK;
    }
    if (strncmp(device, wait, strlen(wait)) == 0 && wait_read(device + strlen(wait), options_out)) {
        *ops_out = &compute_wait;
        return ST_OK;
    }
    if (device_name_gpu(device, &options_out->device)) {
        enum status status = compute_plugin_open(ops_out, error);
        if (status != ST_OK)
            error_prefix(error, "device %s", device);
        return status;
    }
    return error_set(error, ST_INVALID,
                     "device = \"%s\": want \"cpu\", \"cuda:N\" (the N-th GPU, from 0), or "
                     "\"wait:LAYER_US+ROW_US\" with up to %.0f microseconds each, such as "
                     "\"wait:2000+10\"",
                     device, WAIT_US_MAX);
}

enum status compute_device_open(const char *device, bool fallback,
                                const struct compute_options *options,
                                const struct compute_ops **ops_out, struct compute **out,
                                struct error *fallback_reason_out, struct error *error)
{
    struct compute_options found = *options;
    const struct compute_ops *ops = NULL;
    fallback_reason_out->text[0] = 0;
    enum status status = compute_device_find(device, &ops, &found, error);
    if (status == ST_INVALID)
        return status;
    if (status == ST_OK) {
        status = ops->open(&found, out, error);
        if (status != ST_OK && ops != &compute_cpu && ops != &compute_wait)
            error_prefix(error, "device %s", device);
    }
    bool gpu = ops != &compute_cpu && ops != &compute_wait;
    if (status != ST_OK && gpu && fallback) {
        *fallback_reason_out = *error;
        ops = &compute_cpu;
        status = ops->open(options, out, error);
    }
    if (status == ST_OK)
        *ops_out = ops;
    return status;
}
