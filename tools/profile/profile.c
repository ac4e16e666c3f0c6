/* profile: the order of the measurements (links first, because they fork), the progress, and the
 * file. */
#include "tools/profile/profile.h"

#include "common/clock.h"
#include "common/device_name.h"
#include "common/secret.h"
#include "compute/compute.h"
#include "config/config.h"
#include "host/energy.h"
#include "tools/profile/device.h"
#include "tools/profile/link.h"
#include "tools/profile/options.h"
#include "transport/transport.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINK_SECONDS       4
#define LINK_SECONDS_QUICK 0.2
/* Time between two lines of progress in a file. */
#define PROGRESS_US 5000000ll

struct progress {
    char label[64];  /* Name of the current part. */
    double before_s; /* Seconds that the finished parts took. */
    double after_s;  /* Seconds that the later parts may take. */
    int64_t shown_us;
    bool terminal;
};

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

static enum status open_model(const struct profile_options *options, struct model_file **out,
                              struct error *error)
{
    static struct config config; /* Too large for a stack. */
    char path[LIMIT_PATH_BYTES];
    if (options->model != NULL)
        return model_file_open(options->model, out, error);
    config_default(&config);
    enum status status = config_model_path(&config, path, error);
    return status == ST_OK ? model_file_open(path, out, error) : status;
}

static double link_seconds(const struct profile_options *options)
{
    return options->quick ? LINK_SECONDS_QUICK : LINK_SECONDS;
}

/* Measures the links. All links inside this host are one part; each link to another host is a part.
 */
static enum status measure_links(const struct profile_options *options,
                                 const struct secret_keys *keys, struct progress *progress,
                                 struct profile *p, struct error *error)
{
    const struct profile_link_options links = {
        .host = options->host,
        .ucx_tls = options->ucx_tls,
        .keys = keys,
        .device = device_name_gpu(options->device, NULL) ? options->device : NULL,
        .quick = options->quick,
        .seconds = link_seconds(options),
        .progress = on_progress,
        .self = progress};
    enum status status = ST_OK;
    snprintf(progress->label, sizeof(progress->label), "links");
    if (!options->no_links) {
        progress->after_s -= links.seconds;
        status = profile_links_measure(p, &links, error);
        progress->before_s += links.seconds;
    }
    for (uint32_t i = 0; i < options->peers.count && status == ST_OK; i++) {
        progress->after_s -= links.seconds;
        status = profile_link_measure(p, &links, options->peers.texts[i], error);
        progress->before_s += links.seconds;
    }
    return status;
}

/* The devices to measure: a number of ranks with a number of threads each. */
struct variants {
    uint32_t count;
    struct {
        uint32_t threads, ranks;
    } all[PROFILE_DEVICES_MAX];
};

/* The ranks of a device share its threads, each has at least one. So several numbers of threads may
 * mean the same device. */
static void variant_add(struct variants *v, uint32_t threads, uint32_t ranks)
{
    threads = threads > ranks ? threads / ranks * ranks : ranks;
    for (uint32_t i = 0; i < v->count; i++)
        if (v->all[i].threads == threads && v->all[i].ranks == ranks)
            return;
    if (v->count == PROFILE_DEVICES_MAX)
        return;
    v->all[v->count].threads = threads;
    v->all[v->count++].ranks = ranks;
}

static struct variants variants_of(const struct profile_options *options)
{
    struct variants v = {.count = 0};
    for (uint32_t r = 0; r < options->ranks.count && !options->no_devices; r++)
        for (uint32_t t = 0; t < options->threads.count; t++)
            variant_add(&v, (uint32_t)options->threads.numbers[t],
                        (uint32_t)options->ranks.numbers[r]);
    return v;
}

/* Returns the share of the time for one device: with few threads everything takes longer. */
static double device_share(const struct variants *v, uint32_t index)
{
    double sum = 0;
    for (uint32_t i = 0; i < v->count; i++)
        sum += 1.0 / v->all[i].threads;
    return 1.0 / v->all[index].threads / sum;
}

static enum status measure_device(const struct profile_options *options, const struct variants *v,
                                  uint32_t index, struct model_file *file,
                                  struct progress *progress, double seconds, struct profile *p,
                                  struct error *error)
{
    int64_t begin_us = clock_now_us(&clock_system);
    char ranks[24] = "";
    const struct profile_device_options device = {.file = file,
                                                  .device = options->device,
                                                  .host = options->host,
                                                  .threads = v->all[index].threads,
                                                  .ranks = v->all[index].ranks,
                                                  .busy_devices = (uint32_t)options->busy_devices,
                                                  .budget_seconds = seconds,
                                                  .quick = options->quick,
                                                  .energy_folder = ENERGY_FOLDER,
                                                  .progress = on_progress,
                                                  .self = progress};
    if (device.ranks > 1)
        snprintf(ranks, sizeof(ranks), ", %u ranks", device.ranks);
    snprintf(progress->label, sizeof(progress->label), "%.20s, %u thread%s%s", options->device,
             device.threads, device.threads == 1 ? "" : "s", ranks);
    progress->after_s -= seconds;
    enum status status = profile_device_measure(&device, p, error);
    progress->before_s += (double)(clock_now_us(&clock_system) - begin_us) * 1e-6;
    return status;
}

static enum status measure(const struct profile_options *options, const struct secret_keys *keys,
                           struct model_file *file, struct profile *p, struct error *error)
{
    const struct variants v = variants_of(options);
    const double links_s = link_seconds(options) * (!options->no_links + options->peers.count);
    const double devices_s = options->seconds > links_s ? options->seconds - links_s : 0;
    struct progress progress = {.terminal = isatty(STDERR_FILENO),
                                .after_s = links_s + (options->no_devices ? 0 : devices_s)};
    enum status status = measure_links(options, keys, &progress, p, error);
    for (uint32_t i = 0; i < v.count && status == ST_OK; i++)
        status = measure_device(options, &v, i, file, &progress, devices_s * device_share(&v, i), p,
                                error);
    if (progress.terminal)
        fprintf(stderr, "\r\033[K");
    return status;
}

/* Opens the profile of --add, which must be of the same model, or an empty one. */
static enum status open_profile(const struct profile_options *options,
                                const struct model_file *file, struct profile **out,
                                struct error *error)
{
    if (options->add == NULL) {
        *out = calloc(1, sizeof(**out));
        return *out != NULL ? ST_OK : error_set(error, ST_NO_MEMORY, "out of memory");
    }
    enum status status = profile_load(options->add, out, error);
    if (status != ST_OK || (*out)->model.metadata_hash == model_file_metadata_hash(file))
        return status;
    profile_close(*out);
    *out = NULL;
    return error_set(error, ST_MISMATCH, "%s: model.metadata_hash: the profile is of another model",
                     options->add);
}

static enum status load_keys(const struct profile_options *options, struct secret_keys *room,
                             const struct secret_keys **out, struct error *error)
{
    *out = options->key_file != NULL ? room : NULL;
    return options->key_file != NULL ? secret_keys_read(options->key_file, room, error) : ST_OK;
}

static enum status serve_link(const struct profile_options *options, const struct secret_keys *keys,
                              struct error *error)
{
    const struct profile_link_options link = {
        .host = options->host, .ucx_tls = options->ucx_tls, .keys = keys, .quick = options->quick};
    if (keys == NULL && !config_address_is_loopback(options->serve_link))
        return error_set(error, ST_INVALID,
                         "listen on %s: other computers reach it: want --key-file",
                         options->serve_link);
    return profile_link_serve(&link, options->serve_link, stdout, error);
}

/* Checks before the measurements that the file can be written. A new file is removed again. */
static enum status check_out(const struct profile_options *options, struct error *error)
{
    if (strcmp(options->out, "-") == 0)
        return ST_OK;
    bool is_new = access(options->out, F_OK) != 0;
    FILE *file = fopen(options->out, "a");
    if (file == NULL)
        return error_set(error, ST_IO, "%s: %s", options->out, strerror(errno));
    fclose(file);
    if (is_new)
        unlink(options->out);
    return ST_OK;
}

static enum status write_out(const struct profile_options *options, const struct profile *p,
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

static enum status run_open(const struct profile_options *options, const struct secret_keys *keys,
                            struct model_file **file, struct profile **p, struct error *error)
{
    const struct compute_ops *ops;
    struct compute_options unused = {0};
    enum status status = compute_device_find(options->device, &ops, &unused, error);
    if (status == ST_OK)
        status = open_model(options, file, error);
    if (status == ST_OK)
        status = open_profile(options, *file, p, error);
    if (status == ST_OK)
        status = check_out(options, error);
    return status == ST_OK ? measure(options, keys, *file, *p, error) : status;
}

static enum status run(const struct profile_options *options, struct error *error)
{
    struct model_file *file = NULL;
    struct profile *p = NULL;
    struct secret_keys room;
    const struct secret_keys *keys;
    int64_t begin_us = clock_now_us(&clock_system);
    FILE *tables = strcmp(options->out, "-") == 0 ? stderr : stdout;
    enum status status = load_keys(options, &room, &keys, error);
    if (status == ST_OK)
        status = options->serve_link != NULL ? serve_link(options, keys, error)
                                             : run_open(options, keys, &file, &p, error);
    if (status == ST_OK)
        status = write_out(options, p, error);
    if (status == ST_OK) {
        profile_print(p, tables);
        fprintf(tables, "\n%s, in %.1f s\n", options->out,
                (double)(clock_now_us(&clock_system) - begin_us) * 1e-6);
    }
    secret_wipe(&room, sizeof(room));
    model_file_close(file);
    profile_close(p);
    return status;
}

int profile_main(int argc, char **argv)
{
    struct profile_options options = {.model = NULL};
    struct error error = {""};
    int exit_status = options_start(&profile_options_table, argc, argv, &options);
    if (exit_status >= 0)
        return exit_status;
    enum status status = run(&options, &error);
    return status == ST_OK ? 0 : options_fail(&profile_options_table, status, &error);
}
