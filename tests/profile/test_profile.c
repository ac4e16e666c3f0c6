/* Goal: a profile is read as it was written; its times between the points are those of the header's
 * formula and never decrease; every bad value is refused with file, position and value. Method: an
 * example with times known by hand; random grids at random points; a table of edits of the example.
 */
#include "profile/profile.h"

#include "common/random.h"
#include "tests/check.h"
#include "tests/profile/profile_example.h"
#include "tests/scarce_memory.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed, drawn;

static double below(double limit)
{
    return (double)random_unit_at(seed, drawn++) * limit;
}

static struct profile *parse(const char *text, size_t bytes)
{
    struct profile *p = NULL;
    struct error error = {""};
    CHECKF(profile_parse(text, bytes, "p.json", &p, &error) == ST_OK, "%s", error.text);
    return p;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
}

static void check_content(const struct profile *p)
{
    const struct profile_device *cpu = profile_device_find_on(p, "cpu", 2, 1, "");
    const struct profile_device *gpu = profile_device_find_on(p, "cuda:0", 0, 1, "");
    CHECK(p->model.metadata_hash == 0xdeadbeef && strcmp(p->model.name, "tiny") == 0);
    CHECK(p->model.layer_count == 3 && p->model.hidden == 64 && p->model.vocab == 512);
    CHECK(p->model.kv_bytes_per_token == 132 && p->model.boundary_bytes_per_token == 256);
    CHECK(cpu == &p->devices[0] && gpu == &p->devices[1] && p->device_count == 2);
    CHECK(profile_device_find_on(p, "cpu", 1, 1, "") == NULL);
    CHECK(cpu->layer_count == 1 && gpu->layer_count == 3);
    CHECK(strcmp(cpu->description, "two \"threads\"") == 0 && cpu->memory_bytes == 1000000);
    CHECK(cpu->check_count == 1 && cpu->checks[0].prompt && cpu->checks[0].predicted_us == 158.5);
    CHECK(near(cpu->layers[0].prompt.spread, 0.02) && cpu->disturbed == 0.125);
    CHECK(cpu->prompt_w == 200 && cpu->token_w == 50.5);
    /* Equals any prompt's, because the file says nothing else. */
    CHECK(gpu->last_layer_prompt.us[0][0] == 4);
    CHECK(p->link_count == 3);
    CHECK(profile_link_find(p, "b", "a", NULL) == &p->links[1]);
    CHECK(profile_link_find(p, "a", "a", NULL) == &p->links[0]); /* The faster link. */
    CHECK(profile_link_find(p, "a", "a", "tcp") == &p->links[2]);
    CHECK(profile_link_find(p, "b", "b", NULL) == NULL);
    CHECK(p->links[0].size_count == 2 && p->links[0].sizes_us[1] == 102);
    CHECK(near(profile_link_us(&p->links[0], 1e6), 102));
    /* The tied matrix counts once, and the final norm's 100 bytes count. */
    CHECK(profile_tied_bytes(p) == 400 && profile_stage_weight_bytes(p, 0, 3) == 4000 &&
          profile_stage_weight_bytes(p, 1, 2) == 1000);
    CHECK(profile_stage_weight_bytes(p, 0, 2) == 2400 &&
          profile_stage_weight_bytes(p, 2, 3) == 2000);
}

static void check_times(const struct profile *p)
{
    const struct profile_device *cpu = &p->devices[0], *gpu = &p->devices[1];
    const struct profile_grid *g = &cpu->layers[0].prompt;
    CHECK(near(profile_grid_us(g, 10, 100), 30) && near(profile_grid_us(g, 1, 0), 10));
    CHECK(near(profile_grid_us(g, 0.5, 0), 10));    /* Fewer rows than the first point. */
    CHECK(near(profile_grid_us(g, 15, 50), 37.5));  /* The mean of four corners. */
    CHECK(near(profile_grid_us(g, 25, 0), 50));     /* 2 us per further row. */
    CHECK(near(profile_grid_us(g, 20, 150), 70));   /* 0.2 us per further token of context. */
    CHECK(near(profile_grid_us(g, 25, 150), 87.5)); /* 60 + 5 * 3 + 50 * 0.2 + 5 * 50 * 0.01. */
    CHECK(near(profile_grid_us(g, 20, -10), 38));
    CHECK(near(profile_prompt_us(p, cpu, 0, 2, 10, 0), 40));
    CHECK(near(profile_prompt_us(p, cpu, 0, 3, 10, 0), 53));
    CHECK(near(profile_prompt_us(p, cpu, 2, 3, 20, 77), 23));
    CHECK(profile_prompt_us(p, cpu, 1, 1, 10, 0) == 0 &&
          profile_prompt_us(p, cpu, 3, 3, 10, 0) == 0);
    /* The context counts as at least minus half of the rows. */
    CHECK(near(profile_prompt_us(p, cpu, 0, 1, 20, -1000), 38));
    CHECK(near(profile_token_us(p, cpu, 0, 3, 4, 50), 30));
    CHECK(near(profile_token_us(p, gpu, 0, 3, 1, 0), 321));
    CHECK(near(profile_prompt_us(p, gpu, 1, 3, 1, 0), 6));
    CHECK(near(profile_stage_prompt_us(p, cpu, 0, 3, 10, 0, 2), 53 + 3.25 + 0.5 + 110));
    CHECK(near(profile_stage_prompt_us(p, cpu, 0, 3, 10, 0, 0), 53 + 3.25 + 0.5));
    CHECK(near(profile_stage_prompt_us(p, cpu, 1, 2, 10, 0, 2), 20 + 3.25));
    CHECK(near(profile_stage_token_us(p, cpu, 1, 3, 1, 0), 10 + 3.25 + 100));
    CHECK(near(profile_stage_token_us(p, gpu, 0, 1, 2, 0), 1 + 1.5));
    /* 8 prompt tokens at context 5 and 2 decodes: 10 rows that read 8 * (5 + 4) positions, which is
     * one prompt of 10 tokens at context 2.2; and the attention of the decodes. */
    const struct profile_work mixed = {8, 5, 1, 2, 40}, none = {0};
    CHECK(near(profile_stage_us(p, cpu, 0, 3, &mixed),
               profile_stage_prompt_us(p, cpu, 0, 3, 10, 2.2, 3) +
                   profile_token_us(p, cpu, 0, 3, 2, 40) - profile_token_us(p, cpu, 0, 3, 2, 0)));
    CHECK(near(profile_stage_us(p, cpu, 0, 3, &(struct profile_work){10, 0, 2, 0, 0}),
               profile_stage_prompt_us(p, cpu, 0, 3, 10, 0, 2)));
    CHECK(near(profile_stage_us(p, cpu, 1, 3, &(struct profile_work){0, 0, 0, 1, 0}),
               profile_stage_token_us(p, cpu, 1, 3, 1, 0)));
    CHECK(profile_stage_us(p, cpu, 0, 3, &none) == 0);
    CHECK(near(profile_curve_us(&cpu->vocabulary, 4), 130) &&
          near(profile_curve_us(&cpu->vocabulary, 0), 100));
}

static void check_batch_context(void)
{
    static const uint32_t one[] = {100}, deep[] = {30}, two[] = {100, 100}, none[] = {0, 0};
    CHECK(near(profile_batch_context(one, deep, 1), 30));
    CHECK(
        /* Two triangles are half of a large one. */
        near(profile_batch_context(two, none, 2), -50));
    CHECK(profile_batch_context(one, none, 0) == 0);
}

static void check_round_trip(const struct profile *p)
{
    char *text[2] = {NULL, NULL};
    size_t bytes[2];
    struct error error;
    for (int i = 0; i < 2; i++) {
        struct profile *again = i > 0 ? parse(text[0], bytes[0]) : NULL;
        FILE *file = open_memstream(&text[i], &bytes[i]);
        CHECK(file != NULL);
        CHECK(profile_write(i > 0 ? again : p, file, &error) == ST_OK);
        fclose(file);
        if (again != NULL) {
            check_content(again);
            check_times(again);
        }
        profile_close(again);
    }
    CHECK(bytes[0] == bytes[1] && memcmp(text[0], text[1], bytes[0]) == 0);
    FILE *full = fopen("/dev/full", "w");
    CHECK(full == NULL || profile_write(p, full, &error) == ST_IO);
    if (full != NULL)
        fclose(full);
    free(text[0]);
    free(text[1]);
}

/* Draws ascending axes, and times that never decrease. */
static void draw_grid(struct profile_grid *g)
{
    *g = (struct profile_grid){.row_count = 1 + (uint32_t)below(5),
                               .context_count = 1 + (uint32_t)below(5)};
    double at = 0;
    for (uint32_t i = 0; i < g->row_count; i++)
        g->rows[i] = at += 1 + below(100);
    at = below(2) < 1 ? -1 : 20;
    for (uint32_t c = 0; c < g->context_count; c++)
        g->contexts[c] = at += 1 + below(1000);
    for (uint32_t i = 0; i < g->row_count; i++)
        for (uint32_t c = 0; c < g->context_count; c++) {
            double least = fmax(i > 0 ? g->us[i - 1][c] : 0, c > 0 ? g->us[i][c - 1] : 0);
            g->us[i][c] = least + (below(3) < 1 ? 0 : below(100));
        }
}

static void check_monotone(void)
{
    for (int round = 0; round < 2000; round++) {
        struct profile_grid g;
        draw_grid(&g);
        for (uint32_t i = 0; i < g.row_count; i++)
            for (uint32_t c = 0; c < g.context_count; c++)
                CHECK(near(profile_grid_us(&g, g.rows[i], g.contexts[c]), g.us[i][c]));
        for (int k = 0; k < 100; k++) {
            double rows = below(600), context = g.contexts[0] + below(6000);
            double at = profile_grid_us(&g, rows, context);
            double more = profile_grid_us(&g, rows + below(100), context);
            double deeper = profile_grid_us(&g, rows, context + below(1000));
            double next = profile_grid_us(&g, rows + 1e-7, context + 1e-7);
            CHECKF(isfinite(at) && at >= 0 && more >= at - 1e-6 && deeper >= at - 1e-6,
                   "%g rows, context %g: %g, with more rows %g, with more context %g", rows,
                   context, at, more, deeper);
            CHECKF(next - at < 0.1, "a jump from %g to %g", at, next);
        }
    }
}

/* Checks that the example with `from` replaced by `to` is refused with an error that has all of
 * `parts`, which "|" separates. */
static void check_bad(const char *from, const char *to, const char *parts)
{
    static char text[sizeof(profile_example) + 256];
    struct profile *p = NULL;
    struct error error = {""};
    char part[256];
    const char *at = strstr(profile_example, from);
    CHECKF(at != NULL, "%s is not in the example", from);
    int bytes = snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - profile_example),
                         profile_example, to, at + strlen(from));
    CHECKF(profile_parse(text, (size_t)bytes, "p.json", &p, &error) == ST_INVALID && p == NULL,
           "%s was taken", to);
    CHECKF(strncmp(error.text, "p.json:", 7) == 0, "%s", error.text);
    for (const char *next = parts; next != NULL;) {
        const char *end = strchr(next, '|');
        snprintf(part, sizeof(part), "%.*s", end != NULL ? (int)(end - next) : 255, next);
        CHECKF(strstr(error.text, part) != NULL, "\"%s\" is not in: %s", part, error.text);
        next = end != NULL ? end + 1 : NULL;
    }
}

static void check_refusals(void)
{
    check_bad("{\"version\": 1,", "{\"version\": 1,,", "p.json:1: not JSON");
    check_bad("\"version\": 1,", "\"version\": 2,", "version = 2|1 to 1");
    check_bad("\"version\": 1,", "", "version is missing");
    check_bad("\"version\": 1,", "\"version\": 1, \"model\": {},", "not JSON|duplicate");
    check_bad("\"links\": [", "\"link\": [", "link = |one of the keys version model devices links");
    check_bad("\"hidden\": 64", "\"hidden\": 64.5", "model.hidden = 64.5|a whole number");
    check_bad("\"hidden\": 64", "\"hidden\": 0", "model.hidden = 0|from 1");
    check_bad("\"layer_count\": 3", "\"layer_count\": 257", "model.layer_count = 257|1 to 256");
    check_bad("\"layer_count\": 3", "\"layer_count\": 4",
              "model.layer_weight_bytes|a list of 4 to 4");
    check_bad("[1000, 1000, 1500]", "[1000, -1, 1500]", "model.layer_weight_bytes[1] = -1");
    check_bad("\"kv_bytes_per_token\": 132", "\"kv_bytes_per_token\": 72057594037927936",
              "model.kv_bytes_per_token = 72057594037927936");
    check_bad("[1000, 1000, 1500]", "\"1000\"", "model.layer_weight_bytes = \"1000\"");
    check_bad("00000000deadbeef", "xyz", "model.metadata_hash = \"xyz\"|hex");
    check_bad("\"tied\": true", "\"tied\": 1", "model.tied = 1|true or false");
    check_bad("\"name\": \"gpu\"", "\"name\": \"cpu-2\"", "devices[1].name = \"cpu-2\"|no other");
    check_bad("\"name\": \"gpu\"", "\"name\": \"\"", "devices[1].name = \"\"|1 to 31 bytes");
    check_bad("\"threads\": 2", "\"thread\": 2", "devices[0].thread = 2|threads");
    check_bad("\"layers_alike\": true", "\"layers_alike\": false",
              "devices[0].layers|a list of 3 to 3");
    check_bad("[1, 10, 20]", "[1, 10, 10]",
              "devices[0].layers[0].prompt.tokens[2] = 10|more than the one before");
    check_bad("[1, 10, 20]", "[]", "devices[0].layers[0].prompt.tokens = []|a list of 1 to 32");
    check_bad("[20, 30]", "[20, 19]", "devices[0].layers[0].prompt.us[1][1] = 19|no less");
    check_bad("[20, 30]", "[9, 30]", "devices[0].layers[0].prompt.us[1][0] = 9|fewer rows");
    check_bad("[20, 30]", "[20, null]", "devices[0].layers[0].prompt.us[1][1] = null|a number");
    check_bad("[20, 30]", "[20, 30, 40]", "devices[0].layers[0].prompt.us[1]|a list of 2 to 2");
    check_bad("[20, 30]", "[20, 1e40]", "devices[0].layers[0].prompt.us[1][1] = 1e40|from 0");
    check_bad("[20, 30]", "[20, 1e999]", "not JSON");
    check_bad("      [40, 60]]", "      [40, 60], [50, 60]]",
              "devices[0].layers[0].prompt.us|a list of 3 to 3");
    check_bad("[[300]]", "[[-300]]", "devices[1].layers[2].token.us[0][0] = -300");
    check_bad("\"us\": [0.5]", "\"us\": []", "devices[0].first.us = []|a list of 1 to 1");
    check_bad("\"us\": [100, 110]", "\"us\": [100, 90]", "devices[0].last.us[1] = 90");
    check_bad("\"batch_us\": 3.25", "\"batch_us\": -1", "devices[0].batch_us = -1");
    check_bad("\"phase\": \"prompt\"", "\"phase\": \"both\"",
              "devices[0].checks[0].phase = \"both\"");
    check_bad("\"spread\": 0.02", "\"spread\": -1", "devices[0].layers[0].prompt.spread = -1");
    check_bad("1e+10", "0", "links[0].bandwidth_bytes_per_s = 0");
    check_bad("\"latency_us\": 20", "\"latency_us\": \"20\"", "links[1].latency_us = \"20\"");
    check_bad("{\"bytes\": 1000000", "{\"bytes\": 100", "links[0].writes[1].bytes = 100");
    check_bad("\"to\": \"b\"", "\"to\": 7", "links[1].to = 7|a text");
}

/* Writes the profile to `text`, and returns the number of bytes. */
static int write_again(const struct profile *p, char *text, size_t size)
{
    char *written;
    size_t bytes;
    struct error error;
    FILE *file = open_memstream(&written, &bytes);
    CHECK(file != NULL && profile_write(p, file, &error) == ST_OK && fclose(file) == 0);
    CHECK(bytes < size);
    memcpy(text, written, bytes + 1);
    free(written);
    return (int)bytes;
}

#define GROUPS "\"tied\": true, \"layer_groups\": "

/* Layers with a window are counted, and their groups are read and written. */
static void check_windows(void)
{
    static char text[2 * sizeof(profile_example)];
    const char *at = strstr(profile_example, "\"tied\": true");
    int bytes =
        snprintf(text, sizeof(text),
                 "%.*s" GROUPS "{\"count\": 2, \"windowed\": [1], \"window_tokens\": 32}%s",
                 (int)(at - profile_example), profile_example, at + strlen("\"tied\": true"));
    for (int i = 0; i < 2; i++) {
        struct profile *p = parse(text, (size_t)bytes);
        CHECK(p->model.groups.count == 2 && p->model.groups.windowed == 2 &&
              p->model.groups.window_tokens == 32);
        CHECK(profile_windowed_layers(p) == 1); /* Of the layers 0, 1 and 2. */
        CHECK(profile_kv_block_token_bytes(p) == 2 * 132);
        bytes = write_again(p, text, sizeof(text));
        profile_close(p);
    }
    check_bad("\"tied\": true", GROUPS "7", "model.layer_groups = 7|an object");
    check_bad("\"tied\": true", GROUPS "{\"count\": 4}", "model.layer_groups.count = 4|1 to 3");
    check_bad("\"tied\": true", GROUPS "{\"count\": 2, \"window_tokens\": 0}",
              "model.layer_groups.window_tokens = 0|from 1");
    check_bad("\"tied\": true", GROUPS "{\"count\": 2, \"window_tokens\": 5, \"windowed\": []}",
              "model.layer_groups.windowed = []|a list of 1 to 2");
    check_bad("\"tied\": true", GROUPS "{\"count\": 2, \"window_tokens\": 5, \"windowed\": [2]}",
              "model.layer_groups.windowed[0] = 2|0 to 1");
    check_bad("\"tied\": true", GROUPS "{\"count\": 2, \"wide\": 5}",
              "model.layer_groups.wide = 5|count windowed window_tokens");
}

#define EXPERTS "\"tied\": true, \"experts\": "

/* Batches read the experts that they choose: measured between the given rows, as with uniform
 * routing beyond them and without measurements. */
static void check_experts(void)
{
    static char text[2 * sizeof(profile_example)];
    static const char measured[] =
        "{\"count\": 8, \"used\": 2, \"bytes\": 150, \"rows\": [1, 3], \"chosen\": [2, 4]}";
    const char *at = strstr(profile_example, "\"tied\": true");
    int bytes = snprintf(text, sizeof(text), "%.*s" EXPERTS "%s%s", (int)(at - profile_example),
                         profile_example, measured, at + strlen("\"tied\": true"));
    for (int i = 0; i < 2; i++) { /* The second time as profile_write has written it. */
        struct profile *p = parse(text, (size_t)bytes);
        CHECK(p->model.experts.count == 8 && p->model.experts.used == 2 &&
              p->model.experts.bytes == 150 && p->model.experts.row_count == 2);
        CHECK(near(profile_experts_expected(p, 1), 2) &&
              near(profile_experts_expected(p, 2), 8 * (1 - 0.75 * 0.75)));
        CHECK(near(profile_experts_chosen(p, 1), 2) && near(profile_experts_chosen(p, 2), 3));
        CHECK(near(profile_experts_chosen(p, 4), 4 + 8 * (0.421875 - 0.31640625)));
        CHECK(profile_experts_chosen(p, 1000) <= 8);
        /* Between steps of 1 and 4 sequences, which take 5 and 8 us, the time grows like the
         * experts: 2, 3.5 and 5.46875 for 1, 2 and 4. */
        const double place = (3.5 - 2) / (8 * (1 - 0.31640625) - 2);
        CHECK(near(profile_token_us(p, &p->devices[0], 0, 1, 2, 0), 5 + 3 * place));
        CHECK(near(profile_token_us(p, &p->devices[0], 0, 1, 4, 0), 8));
        /* Layer 2 has 1500 bytes, of which 1200 are experts; layer 0 is too small for experts. */
        CHECK(near(profile_layer_read_bytes(p, 2, 2), 300 + 3 * 150));
        CHECK(near(profile_layer_read_bytes(p, 0, 2), 1000));
        bytes = write_again(p, text, sizeof(text));
        p->model.experts.row_count = 0;
        CHECK(near(profile_experts_chosen(p, 2), profile_experts_expected(p, 2)));
        profile_close(p);
    }
    check_bad("\"tied\": true", EXPERTS "{\"count\": 0}", "model.experts.count = 0|1 to");
    check_bad("\"tied\": true", EXPERTS "{\"count\": 8, \"used\": 9}",
              "model.experts.used = 9|1 to 8");
    check_bad("\"tied\": true",
              EXPERTS "{\"count\": 8, \"used\": 2, \"bytes\": 1, \"rows\": [1, 2]}",
              "model.experts.chosen is missing|a list of 2 to 2");
    check_bad("\"tied\": true",
              EXPERTS "{\"count\": 8, \"used\": 2, \"bytes\": 1, \"rows\": [1], \"chosen\": [9]}",
              "model.experts.chosen[0] = 9|0 to 8");
}

#define RANKS "\"threads\": 2, \"ranks\": "

/* A device of two ranks is found only by its number of ranks, and written as it was read. */
static void check_ranks(void)
{
    static char text[2 * sizeof(profile_example)];
    const char *at = strstr(profile_example, "\"threads\": 2");
    int bytes = snprintf(text, sizeof(text), "%.*s" RANKS "2%s", (int)(at - profile_example),
                         profile_example, at + strlen("\"threads\": 2"));
    for (int i = 0; i < 2; i++) {
        struct profile *p = parse(text, (size_t)bytes);
        const struct profile_device *d = &p->devices[0];
        const struct profile_device single = {.kind = "cpu", .host = "a", .threads = 1, .ranks = 1};
        const struct profile_device *gpu = profile_device_find_on(p, "cuda:0", 0, 1, "");
        CHECK(d->ranks == 2 && d->threads == 2 && gpu != NULL && gpu->ranks == 1);
        CHECK(profile_device_find_on(p, "cpu", 2, 1, "") == NULL);
        CHECK(profile_device_find_on(p, "cpu", 2, 2, "a") == d);
        CHECK(profile_device_find_on(p, "cpu", 2, 2, "b") == NULL);
        CHECK(profile_device_find_ranks(p, &single, 2) == d);
        CHECK(profile_device_find_ranks(p, &single, 3) == NULL);
        CHECK(p->model.kv_copied == (i > 0));
        p->model.kv_copied = true;
        bytes = write_again(p, text, sizeof(text));
        profile_close(p);
    }
    check_bad("\"threads\": 2", RANKS "0", "devices[0].ranks = 0|1 to 16");
    check_bad("\"threads\": 2", RANKS "17", "devices[0].ranks = 17|1 to 16");
}

static void check_files(void)
{
    struct profile *p = NULL;
    struct error error = {""};
    CHECK(profile_load("/nowhere/p.json", &p, &error) == ST_IO);
    CHECKF(strstr(error.text, "/nowhere/p.json") != NULL &&
               strstr(error.text, "No such file") != NULL,
           "%s", error.text);
    char path[] = "/tmp/cleave-test-profile-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    CHECK(file != NULL && fputs(profile_example, file) >= 0 && fclose(file) == 0);
    CHECKF(profile_load(path, &p, &error) == ST_OK, "%s", error.text);
    check_content(p);
    profile_close(p);
    remove(path);
    CHECK(profile_parse("", 0, "p.json", &p, &error) == ST_INVALID);
    CHECK(profile_parse("[]", 2, "p.json", &p, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "the file = []: want an object") != NULL, "%s", error.text);
    profile_close(NULL);
}

/* The file is not to blame if there is no memory for the JSON tree. */
static void check_no_memory(void)
{
    static const char text[] = "{\"model\": [1, \"a\"]}";
    struct profile *p = NULL;
    struct error error = {""};
    enum status status = ST_NO_MEMORY;
    json_set_alloc_funcs(scarce_malloc, free);
    uint32_t count = 0;
    for (; status == ST_NO_MEMORY; count++) {
        scarce_allocations_left = count;
        error.text[0] = 0;
        status = profile_parse(text, sizeof(text) - 1, "p.json", &p, &error);
        CHECKF(status == ST_INVALID || strcmp(error.text, "p.json: out of memory") == 0, "%s",
               error.text);
    }
    json_set_alloc_funcs(malloc, free);
    CHECKF(count > 5 && strstr(error.text, "version is missing") != NULL, "%u: %s", count,
           error.text);
}

int main(void)
{
    seed = test_seed();
    struct profile *p = parse(profile_example, sizeof(profile_example) - 1);
    check_content(p);
    check_times(p);
    check_round_trip(p);
    profile_close(p);
    check_batch_context();
    check_monotone();
    check_refusals();
    check_windows();
    check_experts();
    check_ranks();
    check_files();
    check_no_memory();
    return 0;
}
