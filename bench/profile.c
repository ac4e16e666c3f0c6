/* profile: options, the order of measurements (links first: they fork), progress, the file. */
#include "bench/profile.h"

#include "bench/profile_device.h"
#include "bench/profile_link.h"
#include "common/clock.h"
#include "common/config.h"
#include "common/cores.h"
#include "compute/compute.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES_MAX   8
#define EXIT_USAGE    2
#define SECONDS       48 /* of all devices and links: loading and writing take the rest of a minute */
#define LINK_SECONDS  4
#define SECONDS_QUICK 2
/* To a file: a line after so long. */
#define PROGRESS_US 5000000ll

struct options {
    const char *model; /* NULL: the config's default */
    const char *device;
    const char *out;
    uint32_t threads[DEVICES_MAX];
    uint32_t threads_count;
    double seconds; /* 0: SECONDS */
    bool quick;
    bool links;
};

struct progress {
    char label[64];  /* of the part that runs */
    double before_s; /* that the parts before it took */
    double after_s;  /* that the parts after it may take */
    int64_t shown_us;
    bool terminal;
};

static int usage(FILE *file)
{
    fprintf(
        file,
        "usage: cleave profile [option]...\n\n"
        "Measures a model on this computer, layer by layer, and writes what the partitioner and\n"
        "the simulator read (docs/profile.md).\n\n"
        "  --model FILE     a GGUF file (default: the default config's)\n"
        "  --device DEVICE  as in a config (default: cpu)\n"
        "  --threads N      threads of the device; again for one more (default: all cores, and "
        "1)\n"
        "  --out FILE       (default: profile.json; -: standard output)\n"
        "  --seconds S      for all of it, 1 to 3600 (default: %d)\n"
        "  --no-links       no transfers between processes\n"
        "  --quick          few points, once: a trial\n",
        SECONDS);
    return file == stdout ? 0 : EXIT_USAGE;
}

static bool number_read(const char *text, double minimum, double maximum, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == 0 && *out >= minimum && *out <= maximum;
}

static int refuse(const char *option, const char *value, const char *wanted)
{
    fprintf(stderr, "cleave profile: --%s = \"%s\": want %s\n", option, value, wanted);
    return EXIT_USAGE;
}

static int threads_add(struct options *options, const char *text)
{
    double value;
    if (options->threads_count == DEVICES_MAX)
        return refuse("threads", text, "8 of them at most");
    if (!number_read(text, 1, 1024, &value) || value != floor(value))
        return refuse("threads", text, "a whole number from 1 to 1024");
    options->threads[options->threads_count++] = (uint32_t)value;
    return -1;
}

/* -1, or the exit status. */
static int option_read(struct options *options, int option)
{
    switch (option) {
    case 'm':
        options->model = optarg;
        return -1;
    case 'd':
        options->device = optarg;
        return -1;
    case 'o':
        options->out = optarg;
        return -1;
    case 't':
        return threads_add(options, optarg);
    case 's':
        return number_read(optarg, 1, 3600, &options->seconds)
                   ? -1
                   : refuse("seconds", optarg, "a number from 1 to 3600");
    case 'n':
        options->links = false;
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

static int options_read(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {{"model", required_argument, NULL, 'm'},
                                          {"device", required_argument, NULL, 'd'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"out", required_argument, NULL, 'o'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"no-links", no_argument, NULL, 'n'},
                                          {"quick", no_argument, NULL, 'q'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    *options = (struct options){.device = "cpu", .out = "profile.json", .links = true};
    int option, exit_status = -1;
    optind = 1;
    while (exit_status < 0 && (option = getopt_long(argc, argv, "", known, NULL)) != -1)
        exit_status = option_read(options, option);
    if (exit_status < 0 && optind < argc) {
        fprintf(stderr, "cleave profile: \"%s\": no such argument\n", argv[optind]);
        return usage(stderr);
    }
    if (options->threads_count == 0) {
        uint32_t cores = cores_usable();
        options->threads[options->threads_count++] = cores;
        if (cores > 1)
            options->threads[options->threads_count++] = 1;
    }
    if (options->seconds == 0)
        options->seconds = options->quick ? SECONDS_QUICK : SECONDS;
    return exit_status;
}

static void on_progress(void *self, const char *what, double done, double seconds)
{
    struct progress *p = self;
    int64_t now_us = clock_now_us(&clock_system);
    if (now_us - p->shown_us < (p->terminal ? 100000 : PROGRESS_US))
        return;
    p->shown_us = now_us;
    double all = p->before_s + seconds + p->after_s, used = p->before_s + done * seconds;
    fprintf(stderr, "%sprofile: %s: %s: %.0f %%, %.0f s left%s", p->terminal ? "\r\033[K" : "",
            p->label, what, 100 * used / all, ceil(all - used), p->terminal ? "" : "\n");
}

static enum status open_model(const struct options *options, struct gguf **out, struct error *error)
{
    static struct config config; /* too large for a stack */
    char path[LIMIT_PATH_BYTES];
    if (options->model != NULL)
        return gguf_open(options->model, out, error);
    config_default(&config);
    enum status status = config_model_path(&config, path, error);
    return status == ST_OK ? gguf_open(path, out, error) : status;
}

static enum status measure_links(const struct options *options, struct progress *progress,
                                 double seconds, struct profile *p, struct error *error)
{
    int64_t begin_us = clock_now_us(&clock_system);
    snprintf(progress->label, sizeof(progress->label), "links");
    progress->after_s = options->seconds - seconds;
    enum status status =
        profile_links_measure(p, options->quick, seconds, on_progress, progress, error);
    progress->before_s += (double)(clock_now_us(&clock_system) - begin_us) * 1e-6;
    return status;
}

/* Few threads take longer for the same. */
static double device_share(const struct options *options, uint32_t index)
{
    double sum = 0;
    for (uint32_t i = 0; i < options->threads_count; i++)
        sum += 1.0 / options->threads[i];
    return 1.0 / options->threads[index] / sum;
}

static enum status measure_device(const struct options *options, uint32_t index, struct gguf *gguf,
                                  struct progress *progress, double seconds, struct profile *p,
                                  struct error *error)
{
    int64_t begin_us = clock_now_us(&clock_system);
    const struct profile_device_options device = {.gguf = gguf,
                                                  .device = options->device,
                                                  .threads = options->threads[index],
                                                  .seconds = seconds,
                                                  .quick = options->quick,
                                                  .progress = on_progress,
                                                  .self = progress};
    snprintf(progress->label, sizeof(progress->label), "%.20s, %u thread%s", options->device,
             device.threads, device.threads == 1 ? "" : "s");
    progress->after_s -= seconds;
    enum status status = profile_device_measure(&device, p, error);
    progress->before_s += (double)(clock_now_us(&clock_system) - begin_us) * 1e-6;
    return status;
}

static enum status measure(const struct options *options, struct gguf *gguf, struct profile *p,
                           struct error *error)
{
    struct progress progress = {.terminal = isatty(STDERR_FILENO)};
    const double link_s = options->links ? options->quick ? 0.2 : LINK_SECONDS : 0;
    const double device_s = options->seconds > link_s ? options->seconds - link_s : 0;
    enum status status =
        options->links ? measure_links(options, &progress, link_s, p, error) : ST_OK;
    progress.after_s = device_s;
    for (uint32_t i = 0; i < options->threads_count && status == ST_OK; i++)
        status = measure_device(options, i, gguf, &progress, device_s * device_share(options, i), p,
                                error);
    if (progress.terminal)
        fprintf(stderr, "\r\033[K");
    return status;
}

/* Before the measurements, not after them. */
static enum status check_out(const struct options *options, struct error *error)
{
    if (strcmp(options->out, "-") == 0)
        return ST_OK;
    FILE *file = fopen(options->out, "a");
    if (file == NULL)
        return error_set(error, ST_IO, "%s: %s", options->out, strerror(errno));
    fclose(file);
    return ST_OK;
}

static enum status write_out(const struct options *options, const struct profile *p,
                             struct error *error)
{
    const bool standard = strcmp(options->out, "-") == 0;
    FILE *file = standard ? stdout : fopen(options->out, "w");
    if (file == NULL)
        return error_set(error, ST_IO, "%s: %s", options->out, strerror(errno));
    enum status status = profile_write(p, file, error);
    if (!standard && fclose(file) != 0 && status == ST_OK)
        status = error_set(error, ST_IO, "%s", strerror(errno));
    if (status != ST_OK)
        error_prefix(error, "%s", options->out);
    return status;
}

static enum status run(const struct options *options, struct profile *p, struct error *error)
{
    struct gguf *gguf = NULL;
    const struct compute_ops *ops;
    struct compute_options unused = {0};
    int64_t begin_us = clock_now_us(&clock_system);
    enum status status = compute_device_find(options->device, &ops, &unused, error);
    if (status == ST_OK)
        status = open_model(options, &gguf, error);
    if (status == ST_OK)
        status = check_out(options, error);
    if (status == ST_OK)
        status = measure(options, gguf, p, error);
    gguf_close(gguf);
    if (status == ST_OK)
        status = write_out(options, p, error);
    if (status != ST_OK)
        return status;
    FILE *tables = strcmp(options->out, "-") == 0 ? stderr : stdout;
    profile_print(p, tables);
    fprintf(tables, "\n%s, in %.1f s\n", options->out,
            (double)(clock_now_us(&clock_system) - begin_us) * 1e-6);
    return ST_OK;
}

int profile_main(int argc, char **argv)
{
    struct options options;
    struct error error = {""};
    int exit_status = options_read(argc, argv, &options);
    if (exit_status >= 0)
        return exit_status;
    struct profile *p = calloc(1, sizeof(*p));
    enum status status =
        p != NULL ? run(&options, p, &error) : error_set(&error, ST_NO_MEMORY, "out of memory");
    if (status != ST_OK)
        fprintf(stderr, "cleave profile: %s\n", error.text);
    profile_close(p);
    return status == ST_OK ? 0 : 1;
}
