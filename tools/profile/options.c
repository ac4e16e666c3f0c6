/* profile_options: the table of options, and the checks between options. */
#include "tools/profile/options.h"

#include "common/cores.h"
#include "common/device_name.h"
#include "tools/profile/busy.h"

#include <string.h>
#include <unistd.h>

#define FIELD(member) offsetof(struct profile_options, member)

/* Time for all devices and links; loading and writing take the rest of a minute. */
#define SECONDS       48
#define SECONDS_QUICK 2
#define LINKS_MAX     8

#define TEXT_OF(number)  #number
#define TEXT(definition) TEXT_OF(definition)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    /* name, value, type, field, lowest, highest (of texts: most of them), choices, default, help */
    {"model", "PATH", OPTION_TEXT, FIELD(model), 0, 0, {NULL}, NULL,
     "the model: a GGUF file or a folder (default: the default config's model)"},
    {"device", "DEVICE", OPTION_TEXT, FIELD(device), 0, 0, {NULL}, "cpu",
     "device to measure, as in a config"},
    {"threads", "N", OPTION_WHOLES, FIELD(threads), 1, 1024, {NULL}, NULL,
     "threads of the device; may be repeated to measure several numbers (default: all cores, and 1)"},
    {"ranks", "N", OPTION_WHOLES, FIELD(ranks), 1, LIMIT_RANKS, {NULL}, NULL,
     "measure N ranks that share the threads and compute each layer together (tensor_parallel); may be repeated (default: 1)"},
    {"beside", "N", OPTION_WHOLE, FIELD(busy_devices), 1, PROFILE_BUSY_MAX, {NULL}, NULL,
     "measure each device also while N more devices of its kind are busy: the devices of a computer share its memory and caches"},
    {"out", "FILE", OPTION_TEXT, FIELD(out), 0, 0, {NULL}, "profile.json",
     "write the profile to FILE; \"-\": to standard output"},
    {"add", "FILE", OPTION_TEXT, FIELD(add), 0, 0, {NULL}, NULL,
     "begin with the contents of this profile"},
    {"host", "NAME", OPTION_TEXT, FIELD(host_name), 0, 0, {NULL}, NULL,
     "name of this computer in the profile (default: its host name)"},
    {"seconds", "S", OPTION_REAL, FIELD(seconds), 1, 3600, {NULL}, NULL,
     "time of all measurements together (default: " TEXT(SECONDS) ", with --quick " TEXT(SECONDS_QUICK) ")"},
    {"no-devices", NULL, OPTION_FLAG, FIELD(no_devices), 0, 0, {NULL}, NULL,
     "measure links only; needs --add"},
    {"no-links", NULL, OPTION_FLAG, FIELD(no_links), 0, 0, {NULL}, NULL,
     "do not measure transfers between processes of this computer"},
    {"link", "HOST:PORT", OPTION_TEXTS, FIELD(peers), 0, LINKS_MAX, {NULL}, NULL,
     "measure the link to another computer, where cleave profile --serve-link runs; may be repeated"},
    {"serve-link", "ADDR:PORT", OPTION_TEXT, FIELD(serve_link), 0, 0, {NULL}, NULL,
     "serve as the other end of such a link, without measuring"},
    {"key-file", "FILE", OPTION_TEXT, FIELD(key_file), 0, 0, {NULL}, NULL,
     "file with the key of both ends of such a link"},
    {"tls", "NAMES", OPTION_TEXT, FIELD(ucx_tls), 0, 0, {NULL}, NULL,
     "transports that UCX may use for such a link, such as tcp"},
    {"quick", NULL, OPTION_FLAG, FIELD(quick), 0, 0, {NULL}, NULL,
     "measure few points, each once, as a trial"},
};
/* clang-format on */

static void threads_default(struct profile_options *options)
{
    uint32_t cores = device_name_gpu(options->device, NULL) ? 1 : cores_usable();
    options->threads.numbers[options->threads.count++] = cores; /* A GPU has its own threads. */
    if (cores > 1)
        options->threads.numbers[options->threads.count++] = 1;
}

static enum status check(void *out, struct error *error)
{
    struct profile_options *options = out;
    const char *name = options->host_name;
    if (name != NULL && (name[0] == 0 || strlen(name) >= LIMIT_NAME_BYTES))
        return error_set(error, ST_USAGE, "--host = \"%.60s\": want a name of 1 to 31 bytes", name);
    if (options->no_devices && options->add == NULL)
        return error_set(error, ST_USAGE, "--no-devices: want --add with a profile that has some");
    if (options->busy_devices > 0 && device_name_gpu(options->device, NULL))
        return error_set(error, ST_USAGE,
                         "--beside %llu: GPUs cannot be measured with --beside, whose processes "
                         "would share the measured GPU",
                         (unsigned long long)options->busy_devices);
    for (uint32_t i = 0; i < options->ranks.count; i++) {
        const unsigned long long ranks = options->ranks.numbers[i];
        if (ranks > 1 && (options->busy_devices > 0 || device_name_gpu(options->device, NULL)))
            return error_set(error, ST_USAGE, "--ranks %llu: ranks cannot be measured %s", ranks,
                             options->busy_devices > 0 ? "with --beside" : "on GPUs");
    }
    if (name != NULL)
        snprintf(options->host, sizeof(options->host), "%s", name);
    else
        gethostname(options->host, LIMIT_NAME_BYTES);
    options->host[LIMIT_NAME_BYTES - 1] = 0; /* The length that the handshake of a link carries. */
    if (options->threads.count == 0)
        threads_default(options);
    if (options->ranks.count == 0)
        options->ranks.numbers[options->ranks.count++] = 1;
    if (options->seconds == 0)
        options->seconds = options->quick ? SECONDS_QUICK : SECONDS;
    return ST_OK;
}

const struct option_table profile_options_table = {
    .command = "profile",
    .usage = "[--option value]…",
    .about = "Measures a model on this computer, layer by layer, and writes a profile for the "
             "partitioner and the\nsimulator (docs/profile.md).\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .check = check};
