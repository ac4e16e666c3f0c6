/* Goal: the policy splitwise-compat gives the results of the public simulator of the Splitwise
 * paper, and different results are detected. Method: the small cases of tests/data, each request to
 * 1e-9 s; then results with one number changed, one row missing, or one row too many; in a long run
 * also the large cases of CLEAVE_SHARED. */
#include "tools/simulate/splitwise/reference.h"

#include "tests/check.h"
#include "tests/scarce_memory.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct seen {
    uint32_t cases;
    uint32_t same;
    uint64_t displaced;
    uint64_t moves;
    uint32_t unended;
};

static void look(void *self, const struct reference_result *result)
{
    struct seen *seen = self;
    printf("%-28s %6" PRIu64 " requests, differences %.1e %.1e %.1e s, %" PRIu64
           " in one only, %" PRIu64 " displaced, %" PRIu64 " moves\n",
           result->name, result->requests, result->ttft_difference_s, result->tbt_difference_s,
           result->e2e_difference_s, result->missing, result->totals.displaced,
           result->totals.moves);
    CHECKF(!result->slo_known || result->slo_met == result->reference_slo_met, "%s: the SLO",
           result->name);
    seen->cases++;
    seen->same += result->same;
    seen->displaced += result->totals.displaced;
    seen->moves += result->totals.moves;
    seen->unended += result->totals.unended_requests;
}

static struct seen run(const char *directory)
{
    struct seen seen = {0};
    struct error error = {""};
    enum status status = reference_run(directory, look, &seen, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    CHECK(seen.cases > 0);
    return seen;
}

/* ---- what differs is seen ---- */

static char scratch[] = "/tmp/test_reference.XXXXXX";

static FILE *scratch_open(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", scratch, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    return file;
}

static void copy(const char *from, const char *name, const char *to)
{
    char path[1200];
    char text[4096];
    size_t bytes;
    snprintf(path, sizeof(path), "%s/%s", from, name);
    FILE *in = fopen(path, "r");
    CHECK(in != NULL);
    FILE *out = scratch_open(to);
    while ((bytes = fread(text, 1, sizeof(text), in)) > 0)
        CHECK(fwrite(text, 1, bytes, out) == bytes);
    fclose(in);
    CHECK(fclose(out) == 0);
}

enum change { AS_IT_IS, ONE_NUMBER, ONE_LESS, ONE_MORE };

static void results_write(const char *data, enum change change)
{
    char path[1200];
    char line[256];
    snprintf(path, sizeof(path), "%s/conv_2_1.csv", data);
    FILE *in = fopen(path, "r");
    CHECK(in != NULL);
    FILE *out = scratch_open("conv_2_1.csv");
    for (int number = 0; fgets(line, sizeof(line), in) != NULL; number++) {
        double ttft_s, tbt_s, e2e_s;
        if (number == 40 && change == ONE_LESS)
            continue;
        if (number == 40 && change == ONE_NUMBER) {
            CHECK(sscanf(line, "39,%lf,%lf,%lf", &ttft_s, &tbt_s, &e2e_s) == 3);
            fprintf(out, "39,%.12f,%.12f,%.12f\n", ttft_s, tbt_s, e2e_s + 2e-9);
            continue;
        }
        fputs(line, out);
    }
    if (change == ONE_MORE)
        fputs("122,1,1,1\n", out);
    fclose(in);
    CHECK(fclose(out) == 0);
}

static void differences(const char *data)
{
    CHECK(mkdtemp(scratch) != NULL);
    char traces[64];
    snprintf(traces, sizeof(traces), "%s/traces", scratch);
    CHECK(mkdir(traces, 0700) == 0);
    copy(data, "perf_model.csv", "perf_model.csv");
    copy(data, "traces/conv.csv", "traces/conv.csv");
    FILE *cases = scratch_open("cases.json");
    fputs("[{\"case\": \"conv_2_1\", \"trace\": \"conv.csv\", \"arguments\": {"
          "\"applications.0.scheduler\": \"mixed_pool\", \"cluster\": \"half_half\", "
          "\"cluster.servers.0.count\": \"0\", \"cluster.servers.1.count\": \"3\", "
          "\"start_state.prompt.num_instances\": \"2\"}}]",
          cases);
    CHECK(fclose(cases) == 0);
    for (int change = AS_IT_IS; change <= ONE_MORE; change++) {
        results_write(data, (enum change)change);
        CHECK(run(scratch).same == (change == AS_IT_IS ? 1 : 0));
    }
}

static void bad_cases(void)
{
    static const struct {
        const char *text;
        const char *error;
    } bad[] = {
        {"[{\"case\": \"x\"}]", "item 0: want \"case\", \"trace\" and \"arguments\""},
        {"{}", "want an array of cases"},
        {"[", "cases.json:1: "},
        {"[{\"case\": \"x\", \"trace\": \"../y\", \"arguments\": {}}]", "item 0: want"},
        {"[{\"case\": \"x\", \"trace\": \"y\", \"arguments\": {\"applications.0.scheduler\": "
         "\"jsq\"}}]",
         "x: applications.0.scheduler = \"jsq\": want mixed_pool or token_jsq"},
        {"[{\"case\": \"x\", \"trace\": \"y\", \"arguments\": {\"applications.0.scheduler\": "
         "\"mixed_pool\", \"cluster.servers.0.count\": \"many\"}}]",
         "x: cluster.servers.0.count = \"many\": want a number of machines"},
        {"[{\"case\": \"x\", \"trace\": \"y\", \"arguments\": {\"applications.0.scheduler\": "
         "\"mixed_pool\", \"cluster.servers.0.count\": 25}}]",
         "x: cluster.servers.0.count: want a text"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct seen seen = {0};
        struct error error = {""};
        FILE *cases = scratch_open("cases.json");
        fputs(bad[i].text, cases);
        CHECK(fclose(cases) == 0);
        CHECK(reference_run(scratch, look, &seen, &error) != ST_OK);
        CHECKF(strstr(error.text, bad[i].error) != NULL, "%s", error.text);
    }
}

/* A file for which memory is short is not called malformed. */
static void scarce_memory(void)
{
    struct error error;
    struct seen seen = {0};
    FILE *cases = scratch_open("cases.json");
    fputs("[{\"a\": [1, {\"b\": \"c\"}]}]", cases);
    CHECK(fclose(cases) == 0);
    json_set_alloc_funcs(scarce_malloc, free);
    for (size_t count = 0;; count++) {
        scarce_allocations_left = count;
        enum status status = reference_run(scratch, look, &seen, &error);
        if (status == ST_INVALID && strstr(error.text, "item 0: want") != NULL) {
            CHECK(count > 4);
            break;
        }
        CHECKF(status == ST_NO_MEMORY && strstr(error.text, "out of memory") != NULL,
               "%zu allocations: %s: %s", count, status_name(status), error.text);
    }
    json_set_alloc_funcs(malloc, free);
}

static void scratch_remove(void)
{
    static const char *const names[] = {"traces/conv.csv", "traces", "perf_model.csv",
                                        "conv_2_1.csv", "cases.json"};
    char path[256];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", scratch, names[i]);
        CHECK(remove(path) == 0);
    }
    CHECK(rmdir(scratch) == 0);
}

int main(void)
{
    char data[1024];
    const char *source = getenv("CLEAVE_SOURCE");
    snprintf(data, sizeof(data), "%s/tests/data/splitwise", source != NULL ? source : ".");
    struct seen small = run(data);
    CHECK(small.same == small.cases);
    /* These cases overload the machines. */
    CHECK(small.displaced > 5000 && small.moves > 0 && small.unended > 0);
    differences(data);
    bad_cases();
    scarce_memory();
    scratch_remove();
    const char *cases = test_shared_path("reference/splitwise/cases.json");
    if (cases == NULL)
        return 0;
    char shared[1024];
    snprintf(shared, sizeof(shared), "%s", cases);
    *strrchr(shared, '/') = 0;
    struct seen all = run(shared);
    CHECK(all.same == all.cases);
    return 0;
}
