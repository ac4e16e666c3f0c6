/* device: from a config's text to the backend that computes, and its options. */
#include "compute/compute.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A layer of ten seconds is no model's. */
#define WAIT_US_MAX 1e7

/* Digits with a decimal point or none: strtod alone takes signs, exponents, hex and "inf" too. */
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
    return error_set(error, ST_INVALID,
                     "device = \"%s\": want \"cpu\", or \"wait:LAYER_US+ROW_US\" with up to %.0f "
                     "microseconds each, such as \"wait:2000+10\"",
                     device, WAIT_US_MAX);
}
