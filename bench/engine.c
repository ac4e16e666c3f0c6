/* bench-engine MODEL [options]: measures the tokens/s of the engine alone: prompts of several
 * lengths, and decoding at several batch sizes and depths, with each number of threads.
 *
 * Every repeat runs all cases in turn, and every sample lies between two measurements of the
 * machine's limits (roofline.h). So a slow period of the computer affects all cases, and their
 * limits too. Several runs can add their samples to one file, so that runs of other programs can be
 * made in between. */
#include "bench/engine_bound.h"
#include "bench/engine_results.h"
#include "bench/engine_run.h"
#include "bench/roofline.h"
#include "common/clock.h"
#include "common/cores.h"
#include "tools/report/table.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREAD_COUNTS_MAX 4
#define EXIT_USAGE        2

struct options {
    const char *model;
    uint32_t threads[THREAD_COUNTS_MAX];
    uint32_t threads_count;
    uint32_t repeats;
    const char *only;    /* Part of the names of the cases to run; NULL = all. */
    const char *json;    /* NULL = none. */
    const char *compare; /* NULL = none. */
};

struct bench {
    struct options options;
    struct engine_run *run;
    struct roofline_memory *memory;
    struct engine_results *results;
    struct engine_results *before;
};

static int usage(void)
{
    fprintf(stderr,
            "usage: bench-engine MODEL [option]...\n"
            "  --threads N,...  numbers of threads (default: 1 and this computer's cores)\n"
            "  --repeats N      of every case, 0 to %d (default: 5; 0 only prints --json's)\n"
            "  --only TEXT      cases whose name has it, such as \"prompt\" or \"depth 0\"\n"
            "  --json FILE      add the samples to this file's, and print the tables of all\n"
            "  --compare FILE   print each median's ratio to that of such a file\n",
            ENGINE_SAMPLES_MAX);
    return EXIT_USAGE;
}

static bool threads_read(struct options *options, const char *text)
{
    options->threads_count = 0;
    for (const char *at = text;; at++) {
        char *end;
        unsigned long value = strtoul(at, &end, 10);
        if (end == at || value < 1 || value > ROOFLINE_THREADS_MAX ||
            options->threads_count == THREAD_COUNTS_MAX)
            return false;
        options->threads[options->threads_count++] = (uint32_t)value;
        at = end;
        if (*at != ',')
            return *at == 0;
    }
}

/* 1, and the number of threads that the engine chooses by itself. */
static void threads_default(struct options *options)
{
    uint32_t count = cores_usable();
    options->threads[0] = 1;
    options->threads[1] = count;
    options->threads_count = count > 1 && count <= ROOFLINE_THREADS_MAX ? 2 : 1;
}

static bool options_read(struct options *options, int argc, char **argv)
{
    static const struct option known[] = {
        {"threads", required_argument, NULL, 't'}, {"repeats", required_argument, NULL, 'r'},
        {"only", required_argument, NULL, 'o'},    {"json", required_argument, NULL, 'j'},
        {"compare", required_argument, NULL, 'c'}, {0}};
    int option;
    char *end = "";
    *options = (struct options){.repeats = 5};
    threads_default(options);
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'r')
            options->repeats = (uint32_t)strtoul(optarg, &end, 10);
        else if (option == 'o')
            options->only = optarg;
        else if (option == 'j')
            options->json = optarg;
        else if (option == 'c')
            options->compare = optarg;
        if (option == '?' || *end != 0 || (option == 't' && !threads_read(options, optarg)))
            return false;
    }
    options->model = argv[optind];
    return optind + 1 == argc && options->repeats <= ENGINE_SAMPLES_MAX;
}

static enum status bench_open(struct bench *bench, struct error *error)
{
    const struct options *options = &bench->options;
    enum status status = engine_results_open(&bench->results);
    if (status == ST_OK && options->json != NULL && access(options->json, F_OK) == 0)
        status = engine_results_read(bench->results, options->json, error);
    if (status == ST_OK && options->compare != NULL) {
        status = engine_results_open(&bench->before);
        if (status == ST_OK)
            status = engine_results_read(bench->before, options->compare, error);
    }
    if (status == ST_OK)
        status = engine_run_open(options->model, options->threads, options->threads_count,
                                 &bench->run, error);
    if (status == ST_OK)
        status = roofline_memory_open(engine_run_weight_bytes(bench->run), &bench->memory);
    return status;
}

static void bench_close(struct bench *bench)
{
    roofline_memory_close(bench->memory);
    engine_run_close(bench->run);
    engine_results_close(bench->before);
    engine_results_close(bench->results);
}

/* Takes one sample of a case, between two measurements of the machine. */
static enum status sample_take(struct bench *bench, uint32_t index, const struct engine_case *c)
{
    struct engine_sample sample;
    struct roofline before, after;
    uint32_t threads = bench->options.threads[index];
    enum status status = roofline_measure(bench->memory, threads, &before);
    sample.tokens_a_second = engine_run_measure(bench->run, index, c);
    if (status == ST_OK)
        status = roofline_measure(bench->memory, threads, &after);
    if (status != ST_OK)
        return status;
    sample.roofline = roofline_mean(&before, &after);
    return engine_results_add(bench->results, c, threads, &sample);
}

static enum status bench_measure(struct bench *bench)
{
    const struct options *options = &bench->options;
    bool terminal = isatty(STDERR_FILENO);
    for (uint32_t repeat = 0; repeat < options->repeats; repeat++) {
        for (size_t i = 0; i < engine_case_count; i++) {
            const struct engine_case *c = &engine_cases[i];
            if (options->only != NULL && strstr(c->name, options->only) == NULL)
                continue;
            if (terminal)
                fprintf(stderr, "\r\033[Krepeat %u of %u: %s", repeat + 1, options->repeats,
                        c->name);
            for (uint32_t index = 0; index < options->threads_count; index++) {
                enum status status = sample_take(bench, index, c);
                if (status != ST_OK)
                    return status;
            }
        }
    }
    if (terminal)
        fprintf(stderr, "\r\033[K");
    return ST_OK;
}

static void bench_print(const struct bench *bench)
{
    const struct model_hyper *hyper = engine_run_hyper(bench->run);
    size_t weight_bytes = engine_run_weight_bytes(bench->run);
    printf("%s, weights of %.1f MB in memory, i16 KV; %s.\n", hyper->name,
           (double)weight_bytes / 1e6, engine_run_describe(bench->run, 0));
    for (uint32_t i = 0; i < bench->options.threads_count; i++) {
        printf("\n");
        engine_results_print(bench->results, bench->before, bench->options.threads[i], hyper,
                             weight_bytes, stdout);
    }
    printf("\n");
    engine_results_print_roofline(bench->results, bench->options.threads,
                                  bench->options.threads_count, stdout);
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    struct error error = {0};
    if (!options_read(&bench.options, argc, argv))
        return usage();
    enum status status = bench_open(&bench, &error);
    if (status == ST_OK)
        status = bench_measure(&bench);
    if (status == ST_OK && bench.options.json != NULL && bench.options.repeats > 0)
        status = engine_results_write(bench.results, bench.options.json, &error);
    if (status == ST_OK)
        bench_print(&bench);
    else
        fprintf(stderr, "bench-engine: %s\n",
                error.text[0] != 0 ? error.text : status_name(status));
    bench_close(&bench);
    return status == ST_OK ? 0 : 1;
}
