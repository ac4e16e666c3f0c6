/* profile_options: the parser, with a one-line message for a wrong option. */
#include "bench/profile_options.h"

#include "bench/profile_beside.h"
#include "common/cores.h"
#include "common/device_name.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_USAGE 2
/* Time for all devices and links; loading and writing take the rest of a minute. */
#define SECONDS       48
#define SECONDS_QUICK 2

static int usage(FILE *file)
{
    fprintf(
        file,
        "usage: cleave profile [option]...\n\n"
        "Measures a model on this computer, layer by layer, and writes what the partitioner and\n"
        "the simulator read (docs/profile.md).\n\n"
        "  --model FILE     a GGUF file (default: the default config's)\n"
        "  --device DEVICE  as in a config (default: cpu)\n"
        "  --threads N      threads of the device; again for one more (default: all cores, and 1)\n"
        "  --beside N       measure each also while N more of it are busy, 1 to 64: a computer's\n"
        "                   has several, which share its memory and caches\n"
        "  --out FILE       (default: profile.json; -: standard output)\n"
        "  --add FILE       begin with what this profile has\n"
        "  --host NAME      this computer's in the profile (default: its name)\n"
        "  --seconds S      for all of it, 1 to 3600 (default: %d)\n"
        "  --no-devices     links only (with --add)\n"
        "  --no-links       no transfers between processes of this computer\n"
        "  --link HOST:PORT the link to the computer where this is the address of …\n"
        "  --serve-link ADDR:PORT   … the other end, which measures nothing itself\n"
        "  --key-file FILE  the key that both ends of such a link have\n"
        "  --tls TLS        what UCX may take for it, such as tcp\n"
        "  --quick          few points, once: a trial\n",
        SECONDS);
    return file == stdout ? 0 : EXIT_USAGE;
}

static int refuse(const char *option, const char *value, const char *wanted)
{
    fprintf(stderr, "cleave profile: --%s = \"%s\": want %s\n", option, value, wanted);
    return EXIT_USAGE;
}

static bool number_read(const char *text, double minimum, double maximum, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == 0 && *out >= minimum && *out <= maximum;
}

static int threads_add(struct profile_options *options, const char *text)
{
    double value;
    if (options->threads_count == PROFILE_OPTIONS_MAX)
        return refuse("threads", text, "8 of them at most");
    if (!number_read(text, 1, 1024, &value) || value != floor(value))
        return refuse("threads", text, "a whole number from 1 to 1024");
    options->threads[options->threads_count++] = (uint32_t)value;
    return -1;
}

static int beside_set(struct profile_options *options, const char *text)
{
    double value;
    if (!number_read(text, 1, PROFILE_BESIDE_MAX, &value) || value != floor(value))
        return refuse("beside", text, "a whole number from 1 to 64");
    options->beside = (uint32_t)value;
    return -1;
}

static int peer_add(struct profile_options *options, const char *text)
{
    if (options->peers_count == PROFILE_OPTIONS_MAX)
        return refuse("link", text, "8 of them at most");
    options->peers[options->peers_count++] = text;
    return -1;
}

static int host_set(struct profile_options *options, const char *text)
{
    if (text[0] == 0 || strlen(text) >= LIMIT_NAME_BYTES)
        return refuse("host", text, "a name of 1 to 31 bytes");
    snprintf(options->host, sizeof(options->host), "%s", text);
    return -1;
}

/* Returns the field of an option that is a plain text; NULL = another option. */
static const char **text_field(struct profile_options *options, int option)
{
    switch (option) {
    case 'm':
        return &options->model;
    case 'd':
        return &options->device;
    case 'o':
        return &options->out;
    case 'a':
        return &options->add;
    case 'S':
        return &options->serve_link;
    case 'k':
        return &options->key_file;
    case 'T':
        return &options->tls;
    default:
        return NULL;
    }
}

/* Returns -1, or the exit status. */
static int option_read(struct profile_options *options, int option)
{
    const char **text = text_field(options, option);
    if (text != NULL) {
        *text = optarg;
        return -1;
    }
    switch (option) {
    case 't':
        return threads_add(options, optarg);
    case 'b':
        return beside_set(options, optarg);
    case 'l':
        return peer_add(options, optarg);
    case 'H':
        return host_set(options, optarg);
    case 's':
        return number_read(optarg, 1, 3600, &options->seconds)
                   ? -1
                   : refuse("seconds", optarg, "a number from 1 to 3600");
    case 'n':
        options->links = false;
        return -1;
    case 'D':
        options->devices = false;
        return -1;
    case 'q':
        options->quick = true;
        return -1;
    case 'h':
        return usage(stdout);
    default:
        return usage(stderr);
    }
}

static void defaults_fill(struct profile_options *options)
{
    if (options->threads_count == 0 && device_name_gpu(options->device, NULL)) {
        options->threads[options->threads_count++] = 1; /* A GPU has its own threads. */
    } else if (options->threads_count == 0) {
        uint32_t cores = cores_usable();
        options->threads[options->threads_count++] = cores;
        if (cores > 1)
            options->threads[options->threads_count++] = 1;
    }
    if (options->seconds == 0)
        options->seconds = options->quick ? SECONDS_QUICK : SECONDS;
    if (options->host[0] == 0)
        gethostname(options->host, LIMIT_NAME_BYTES);
    options->host[LIMIT_NAME_BYTES - 1] = 0; /* The length that the handshake of a link carries. */
}

int profile_options_read(int argc, char **argv, struct profile_options *out)
{
    static const struct option known[] = {{"model", required_argument, NULL, 'm'},
                                          {"device", required_argument, NULL, 'd'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"beside", required_argument, NULL, 'b'},
                                          {"out", required_argument, NULL, 'o'},
                                          {"add", required_argument, NULL, 'a'},
                                          {"host", required_argument, NULL, 'H'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"no-links", no_argument, NULL, 'n'},
                                          {"no-devices", no_argument, NULL, 'D'},
                                          {"link", required_argument, NULL, 'l'},
                                          {"key-file", required_argument, NULL, 'k'},
                                          {"serve-link", required_argument, NULL, 'S'},
                                          {"tls", required_argument, NULL, 'T'},
                                          {"quick", no_argument, NULL, 'q'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int option, exit_status = -1;
    *out = (struct profile_options){
        .device = "cpu", .out = "profile.json", .links = true, .devices = true};
    optind = 1;
    while (exit_status < 0 && (option = getopt_long(argc, argv, "", known, NULL)) != -1)
        exit_status = option_read(out, option);
    if (exit_status >= 0)
        return exit_status;
    if (optind < argc) {
        fprintf(stderr, "cleave profile: \"%s\": no such argument\n", argv[optind]);
        return usage(stderr);
    }
    if (!out->devices && out->add == NULL) {
        fprintf(stderr, "cleave profile: --no-devices: want --add with a profile that has some\n");
        return EXIT_USAGE;
    }
    defaults_fill(out);
    return -1;
}
