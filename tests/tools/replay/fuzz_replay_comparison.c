/* Goal: no file of times crashes the comparison. Method: the input is written to a file, opened as
 * rows or as a summary, joined with a few requests, and every result is printed. Seeds: a CSV of
 * `cleave simulate`, a CSV with outcomes, and a summary. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tools/replay/comparison.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void say_all(struct replay_comparison *times)
{
    char text[8000];
    FILE *out = fmemopen(text, sizeof(text), "w");
    CHECK(out != NULL);
    for (uint64_t id = 0; id < 4; id++)
        CHECK(replay_comparison_add(times, id, (double[]){100, 10, 500}, id % 2 == 0) == ST_OK);
    CHECK(replay_comparison_count_within_limits(times) <= 4);
    replay_comparison_print_errors(times, out);
    replay_comparison_print_slowdowns(times, out);
    json_decref(replay_comparison_json_errors(times));
    json_decref(replay_comparison_json_slowdowns(times));
    fclose(out);
    replay_comparison_close(times);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[40];
    struct replay_comparison *times;
    struct error error;
    int fd = memfd_create("times", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (replay_comparison_open(path, size % 2 == 0, &times, &error) == ST_OK)
        say_all(times);
    close(fd);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char *const seeds[] = {
        "request_id,ttft_s,tbt_s,e2e_s\n0,0.1,0.02,0.5\n1,0.2,0.03,0.9\n3,0.5,0,0.5\n",
        "tbt_s,request_id,outcome,e2e_s,ttft_s\n0.02,2,done,0.5,0.1\n,1,failed,,\n",
        "{\"done\":3,\"ttft_s\":{\"p50\":0.5,\"p90\":1,\"p99\":2},\"tbt_s\":{\"p50\":0.1},\"e2e_"
        "s\":{}}",
        "{\"summary\":{\"ttft_ms\":{\"p50\":5},\"tbt_ms\":{\"p50\":1},\"e2e_ms\":{\"p99\":9}}}",
    };
    if (index >= sizeof(seeds) / sizeof(seeds[0]) || strlen(seeds[index]) > capacity)
        return 0;
    memcpy(buffer, seeds[index], strlen(seeds[index]));
    return strlen(seeds[index]);
}
