/* fuzz_driver: see fuzz.h. Every round is a pure function of (seed, round) and of the corpus, so a
 * crash can be repeated alone. Built with CLEAVE_LIBFUZZER it only writes the seeds for libFuzzer,
 * which has its own main. */
#include "tests/fuzz.h"

#include "common/random.h"
#include "tests/check.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define SEEDS_MAX      1024 /* Including the files of the corpus. */
#define SEED_BYTES_MAX (256u << 10)
#define HANG_SECONDS   120 /* For one input. Ends only a target that hangs. */

struct input {
    uint8_t *data;
    size_t bytes;
};

static struct input seeds[SEEDS_MAX];
static unsigned seed_count;

static void seeds_load(void)
{
    uint8_t *buffer = malloc(SEED_BYTES_MAX);
    CHECK(buffer != NULL);
    for (seed_count = 0; seed_count < SEEDS_MAX; seed_count++) {
        struct input *seed = &seeds[seed_count];
        seed->bytes = fuzz_seed(seed_count, buffer, SEED_BYTES_MAX);
        if (seed->bytes == 0)
            break;
        CHECK(seed->bytes <= SEED_BYTES_MAX);
        seed->data = malloc(seed->bytes);
        CHECK(seed->data != NULL);
        memcpy(seed->data, buffer, seed->bytes);
    }
    free(buffer);
}

static void seeds_write(const char *directory)
{
    for (unsigned i = 0; i < seed_count; i++) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/seed-%u", directory, i);
        FILE *file = fopen(path, "wb");
        CHECKF(file != NULL, "cannot write %s", path);
        CHECK(fwrite(seeds[i].data, 1, seeds[i].bytes, file) == seeds[i].bytes);
        fclose(file);
    }
}

#ifdef CLEAVE_LIBFUZZER

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    const char *directory = getenv("CLEAVE_FUZZ_SEEDS");
    if (directory != NULL) {
        seeds_load();
        seeds_write(directory);
    }
    return 0;
}

#else

static volatile uint64_t current_round;

/* ---- the corpus of the tree ---- */

static void input_read(const char *path, struct input *out)
{
    FILE *file = fopen(path, "rb");
    out->data = malloc(SEED_BYTES_MAX);
    CHECKF(file != NULL, "cannot read %s", path);
    CHECK(out->data != NULL);
    out->bytes = fread(out->data, 1, SEED_BYTES_MAX, file);
    fclose(file);
    uint8_t *exact = realloc(out->data, out->bytes > 0 ? out->bytes : 1);
    CHECK(exact != NULL);
    out->data = exact;
}

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Adds the files of tests/data/fuzz/TARGET to the seeds, in the order of their names. Only a new
 * target has no such folder. */
static void corpus_load(void)
{
    static const char prefix[] = "fuzz_";
    const char *source = getenv("CLEAVE_SOURCE");
    const char *target = program_invocation_short_name;
    char folder[1024], path[2048];
    struct dirent **entries;
    if (strncmp(target, prefix, sizeof(prefix) - 1) == 0)
        target += sizeof(prefix) - 1;
    snprintf(folder, sizeof(folder), "%s/tests/data/fuzz/%s", source != NULL ? source : ".",
             target);
    int count = scandir(folder, &entries, is_input, alphasort);
    if (count < 0) {
        printf("no folder %s\n", folder);
        return;
    }
    for (int i = 0; i < count; i++) {
        CHECKF(seed_count < SEEDS_MAX, "more than %d seeds and files in %s", SEEDS_MAX, folder);
        snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        input_read(path, &seeds[seed_count]);
        CHECKF(seeds[seed_count++].bytes > 0, "%s is empty", path);
        free(entries[i]);
    }
    free(entries);
    printf("%d inputs in %s\n", count, folder);
}

/* ---- mutation ---- */

struct draw {
    uint64_t key;
    uint64_t counter;
};

static uint64_t draw(struct draw *d, uint64_t below)
{
    uint64_t r = random_at(d->key, d->counter++);
    return below == 0 ? r : r % below;
}

/* Returns values that break lengths, counts and offsets. */
static uint64_t odd_number(struct draw *d, size_t bytes)
{
    switch (draw(d, 8)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX - draw(d, 16);
    case 2:
        return (uint64_t)1 << draw(d, 64);
    case 3:
        return ((uint64_t)1 << draw(d, 64)) - 1;
    case 4:
        return bytes + draw(d, 9) - 4;
    case 5:
        return draw(d, bytes + 1);
    case 6:
        return INT64_MAX - draw(d, 4);
    default:
        return draw(d, 256);
    }
}

static void change_number(struct draw *d, struct input *in)
{
    size_t width = (size_t)1 << draw(d, 4);
    uint64_t value = 0;
    if (in->bytes < width)
        return;
    size_t at = draw(d, in->bytes - width + 1);
    if (draw(d, 2) != 0)
        at -= at % width;
    memcpy(&value, in->data + at, width);
    value = draw(d, 3) == 0 ? value + draw(d, 33) - 16 : odd_number(d, in->bytes);
    memcpy(in->data + at, &value, width);
}

/* Replaces data[at..at + cut) by `count` bytes from `from`, which may be a part of the input
 * itself. */
static void replace(struct input *in, size_t at, size_t cut, const uint8_t *from, size_t count)
{
    uint8_t *data = malloc(in->bytes - cut + count + 1);
    CHECK(data != NULL);
    memcpy(data, in->data, at);
    if (count > 0)
        memcpy(data + at, from, count);
    memcpy(data + at + count, in->data + at + cut, in->bytes - at - cut);
    free(in->data);
    in->data = data;
    in->bytes = in->bytes - cut + count;
}

static void mutate_once(struct draw *d, struct input *in)
{
    static const uint8_t odd_bytes[] = "\0\xff\x80\x7f\"\\{}[]:,-.0 \n\r\t/%<|>";
    const struct input *other = &seeds[draw(d, seed_count)];
    if (in->bytes == 0) {
        replace(in, 0, 0, other->data, other->bytes);
        return;
    }
    size_t at = draw(d, in->bytes);
    size_t rest = in->bytes - at;
    size_t length = 1 + draw(d, draw(d, 2) != 0 ? (rest < 16 ? rest : 16) : rest);
    size_t from = draw(d, other->bytes);
    size_t count = 1 + draw(d, other->bytes - from);
    switch (draw(d, 10)) {
    case 0:
    case 1:
        in->data[at] ^= (uint8_t)(1u << draw(d, 8));
        break;
    case 2:
        in->data[at] = (uint8_t)draw(d, 256);
        break;
    case 3:
        in->data[at] = odd_bytes[draw(d, sizeof(odd_bytes))];
        break;
    case 4:
    case 5:
        change_number(d, in);
        break;
    case 6: /* Cut the end. */
        replace(in, at, rest, NULL, 0);
        break;
    case 7: /* Remove a piece. */
        replace(in, at, length, NULL, 0);
        break;
    case 8: /* Repeat a piece of the input. */
        if (in->bytes + length <= SEED_BYTES_MAX)
            replace(in, draw(d, in->bytes + 1), 0, in->data + at, length);
        break;
    default: /* Replace a piece by a piece of another seed. */
        if (in->bytes + count <= SEED_BYTES_MAX)
            replace(in, at, draw(d, 2) != 0 ? length : 0, other->data + from, count);
        break;
    }
}

static void run_round(uint64_t seed, uint64_t round)
{
    struct input in;
    current_round = round;
    alarm(HANG_SECONDS);
    const struct input *base =
        &seeds[round < seed_count ? round : random_at(seed, round) % seed_count];
    in.bytes = base->bytes;
    in.data = malloc(in.bytes > 0 ? in.bytes : 1);
    CHECK(in.data != NULL);
    memcpy(in.data, base->data, in.bytes);
    if (round >= seed_count) {
        struct draw d = {random_at(seed ^ 1, round), 0};
        for (uint64_t left = 1 + draw(&d, 1 + draw(&d, 8)); left > 0; left--)
            mutate_once(&d, &in);
        uint8_t *exact = realloc(in.data, in.bytes > 0 ? in.bytes : 1);
        CHECK(exact != NULL);
        in.data = exact;
    }
    LLVMFuzzerTestOneInput(in.data, in.bytes);
    free(in.data);
}

/* ---- the test ---- */

/* Uses only write(2), because it runs in a signal handler or while a sanitizer ends the process. */
static void report(void)
{
    char digits[24];
    size_t at = sizeof(digits);
    uint64_t round = current_round;
    static const char text[] =
        "\nfuzz: died in this round; run it alone with CLEAVE_SEED and CLEAVE_FUZZ_ROUND=";
    digits[--at] = '\n';
    do {
        digits[--at] = (char)('0' + round % 10);
        round /= 10;
    } while (round != 0);
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0 ||
        write(STDERR_FILENO, digits + at, sizeof(digits) - at) < 0)
        _exit(1);
}

static void on_signal(int number)
{
    report();
    signal(number, SIG_DFL);
    raise(number);
}

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void catch_crashes(void)
{
    static const int fatal[] = {SIGABRT, SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    bool sanitized = __sanitizer_set_death_callback != NULL;
    if (sanitized)
        __sanitizer_set_death_callback(
            report); /* The sanitizers' own handlers of SIGSEGV and similar signals stay. */
    for (size_t i = 0; i < (sanitized ? 2 : sizeof(fatal) / sizeof(fatal[0])); i++)
        signal(fatal[i], on_signal);
}

static void run_file(const char *path)
{
    struct input in;
    input_read(path, &in);
    printf("%s: %zu bytes\n", path, in.bytes);
    fflush(stdout);
    LLVMFuzzerTestOneInput(in.data, in.bytes);
    free(in.data);
}

int main(int argc, char **argv)
{
    const char *seconds_text = getenv("CLEAVE_FUZZ_SECONDS");
    const char *round_text = getenv("CLEAVE_FUZZ_ROUND");
    unsigned seconds = seconds_text != NULL ? (unsigned)strtoul(seconds_text, NULL, 10) : 1;
    struct timespec now;
    for (int i = 1; i < argc; i++)
        run_file(argv[i]);
    if (argc > 1)
        return 0;
    seeds_load();
    CHECKF(seed_count > 0, "the target has no seed input");
    if (getenv("CLEAVE_FUZZ_SEEDS") != NULL)
        seeds_write(getenv("CLEAVE_FUZZ_SEEDS"));
    corpus_load();
    uint64_t seed = test_seed();
    fflush(stdout);
    catch_crashes();
    if (round_text != NULL) {
        run_round(seed, strtoull(round_text, NULL, 10));
        return 0;
    }

    uint64_t rounds = 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const struct timespec end = {now.tv_sec + (time_t)seconds, now.tv_nsec};
    while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec) ||
           rounds < seed_count) {
        for (unsigned i = 0; i < 16; i++)
            run_round(seed, rounds++);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    printf("%" PRIu64 " inputs from %u seeds in %u s\n", rounds, seed_count, seconds);
    for (unsigned i = 0; i < seed_count; i++)
        free(seeds[i].data);
    return 0;
}

#endif
