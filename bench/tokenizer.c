/* bench-tokenizer MODEL [FILE…]: measures how fast texts are tokenized by one thread, in MB/s. The
 * texts are the files, or by default this repository's pages and sources (CLEAVE_SOURCE, else the
 * current folder) and generated texts (corpus.h), which include the worst known ones. Also measures
 * opening the tokenizer and the first text after that. Times are CPU times of the thread, so other
 * processes have little influence.
 *
 * Every repeat runs all texts in turn, so a slow period of the computer affects all texts. */
#include "model/text/tokenizer.h"
#include "bench/corpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define REPEATS     9
#define TEXT_BYTES  (1u << 20)
#define CORPORA_MAX 64
#define SEED        1

struct run {
    struct corpus corpus;
    size_t tokens;
    double rates[REPEATS]; /* MB/s. */
};

/* Returns this thread's CPU time, which excludes the time that other processes have the core. */
static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int failed(const char *what, enum status status, const struct error *error)
{
    fprintf(stderr, "bench-tokenizer: %s: %s\n", what,
            error->text[0] != 0 ? error->text : status_name(status));
    return 1;
}

static enum status open_tokenizer(const char *path, struct tokenizer **out, struct error *error)
{
    struct model_file *g;
    enum status status = model_file_open(path, &g, error);
    if (status != ST_OK)
        return status;
    double ms[REPEATS];
    *out = NULL;
    for (int i = 0; i < REPEATS && status == ST_OK; i++) {
        tokenizer_close(*out);
        *out = NULL;
        int64_t begin = now_us();
        status = tokenizer_open(g, out, error);
        ms[i] = (double)(now_us() - begin) * 1e-3;
    }
    model_file_close(g);
    if (status != ST_OK)
        return status;
    qsort(ms, REPEATS, sizeof(ms[0]), by_value);
    printf("opening: median %.1f ms, %.1f to %.1f\n", ms[REPEATS / 2], ms[0], ms[REPEATS - 1]);
    return ST_OK;
}

static uint32_t corpora_open(int count, char **files, struct run *runs)
{
    uint32_t made = 0;
    char pattern[4096];
    const char *source = getenv("CLEAVE_SOURCE");
    source = source != NULL ? source : ".";
    for (int i = 0; i < count && made < CORPORA_MAX; i++)
        made += corpus_read(files[i], files[i], 1, &runs[made].corpus) == ST_OK;
    if (count > 0)
        return made;
    snprintf(pattern, sizeof(pattern), "%s/{README,docs/*}.md", source);
    made += corpus_read("pages (*.md)", pattern, TEXT_BYTES, &runs[made].corpus) == ST_OK;
    snprintf(pattern, sizeof(pattern), "%s/{*/*.[ch],compute/cpu/*.[ch]}", source);
    made += corpus_read("code (*.c)", pattern, TEXT_BYTES, &runs[made].corpus) == ST_OK;
    for (int kind = 0; kind < CORPUS_KIND_COUNT; kind++)
        made += corpus_make((enum corpus_kind)kind, TEXT_BYTES, SEED, &runs[made].corpus) == ST_OK;
    return made;
}

static enum status measure(const struct tokenizer *t, struct run *run, int repeat,
                           struct error *error)
{
    static const struct tokenizer_encode_options options = {.parse_special = true};
    static uint32_t *ids;
    static size_t capacity;
    int64_t begin = now_us();
    enum status status = tokenizer_encode(t, run->corpus.text, run->corpus.bytes, &options, &ids,
                                          &capacity, &run->tokens, error);
    run->rates[repeat] = (double)run->corpus.bytes / (double)(now_us() - begin + 1);
    return status;
}

int main(int argc, char **argv)
{
    struct tokenizer *t;
    struct error error = {""};
    static struct run runs[CORPORA_MAX];
    if (argc < 2) {
        fprintf(stderr, "usage: bench-tokenizer MODEL [FILE…]\n");
        return 2;
    }
    enum status status = open_tokenizer(argv[1], &t, &error);
    if (status != ST_OK)
        return failed(argv[1], status, &error);
    uint32_t count = corpora_open(argc - 2, argv + 2, runs);
    if (count == 0 || (int)count < argc - 2)
        return failed("files", ST_NOT_FOUND, &error);
    double first_rate = 0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (uint32_t i = 0; i < count; i++) {
            status = measure(t, &runs[i], repeat, &error);
            if (status != ST_OK)
                return failed(runs[i].corpus.name, status, &error);
        }
        first_rate = repeat == 0 ? runs[0].rates[0] : first_rate;
    }
    printf("%-20s %8s %12s %8s %18s\n", "text", "MB", "bytes/token", "MB/s", "range");
    for (uint32_t i = 0; i < count; i++) {
        struct run *run = &runs[i];
        qsort(run->rates, REPEATS, sizeof(run->rates[0]), by_value);
        printf("%-20s %8.2f %12.2f %8.1f %8.1f to %6.1f\n", run->corpus.name,
               (double)run->corpus.bytes * 1e-6, (double)run->corpus.bytes / (double)run->tokens,
               run->rates[REPEATS / 2], run->rates[0], run->rates[REPEATS - 1]);
        corpus_done(&run->corpus);
    }
    printf("the first text after opening: %.1f MB/s\n", first_rate);
    tokenizer_close(t);
    return 0;
}
