/* Goal: no text crashes the reader of clusters, and an accepted cluster can be given to the
 * partitioner, which finds a plan or reports why there is none. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/profile/profile_example.h"
#include "tools/partition/cost.h"

#include <string.h>

static const char seed_text[] =
    "{\"hosts\": [{\"name\": \"x\", \"count\": 2, \"devices\": [{\"profile\": \"cpu-2\", "
    "\"count\": "
    "2, \"memory\": \"1MiB\"}]}, {\"name\": \"y\", \"devices\": [{\"profile\": \"gpu\"}]}],\n"
    "\"links\": {\"inside\": {\"bandwidth_bytes_per_s\": 1e9, \"latency_us\": 2}}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct profile *profile;
    static struct partition_cluster cluster;
    static struct partition_costs costs;
    struct partition *partition;
    struct error error = {0};
    if (profile == NULL)
        CHECK(profile_parse(profile_example, sizeof(profile_example) - 1, "example", &profile,
                            &error) == ST_OK);
    if (partition_cluster_parse((const char *)data, size, "text", profile, &cluster, &error) !=
        ST_OK) {
        CHECK(error.text[0] != 0);
        return 0;
    }
    const struct partition_work work = {
        .is_prompt_phase = true, .micro_batch_tokens = 8, .prompt_tokens = 20, .replicas = true};
    partition_costs_of(profile, &cluster, &work, &costs);
    if (partition_open(&costs.problem, &partition, &error) != ST_OK) {
        CHECK(error.text[0] != 0);
        return 0;
    }
    struct partition_plan plan;
    CHECKF(partition_solve(partition, &costs.goal, &plan, &error) == ST_OK, "%s", error.text);
    partition_close(partition);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    if (index > 0 || sizeof(seed_text) - 1 > capacity)
        return 0;
    memcpy(buffer, seed_text, sizeof(seed_text) - 1);
    return sizeof(seed_text) - 1;
}
