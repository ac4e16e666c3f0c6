/* Goal: every example in deploy/ is a valid config and means what deploy/README.md says. Method:
 * reads each *.json of the folder (argument), and counts the machines of each pool and those that
 * `cleave serve` would start. A file that is missing in the table below fails the test, and so does
 * an entry without a file. */
#include "config/config.h"
#include "tests/check.h"

#include <dirent.h>
#include <string.h>

struct example {
    const char *file;
    uint32_t pools[3]; /* Indexed by enum pool. */
    uint32_t local;
    int seen;
};

static struct example examples[] = {
    {"embedded.json", {1, 1, 0}, 2, 0},   {"two-hosts.json", {1, 1, 0}, 1, 0},
    {"pools-4p2t.json", {4, 2, 0}, 6, 0}, {"etcd.json", {0, 0, 0}, 0, 0},
    {"mixed.json", {0, 0, 1}, 1, 0},      {"gpu-prompts.json", {2, 1, 0}, 3, 0},
};
#define EXAMPLE_COUNT (sizeof(examples) / sizeof(examples[0]))

static void example_check(const char *folder, struct example *example)
{
    static struct config config;
    char path[1024];
    struct error error = {0};
    uint32_t pools[3] = {0}, local = 0;
    snprintf(path, sizeof(path), "%s/%s", folder, example->file);
    CHECKF(config_load(path, &config, &error) == ST_OK, "%s", error.text);
    for (uint32_t i = 0; i < config.machine_count; i++) {
        pools[config.machines[i].pool]++;
        local += config.machines[i].local;
        CHECK(config.machines[i].local || config.machines[i].address[0] != 0);
    }
    CHECKF(memcmp(pools, example->pools, sizeof(pools)) == 0, "%s: %u prompt, %u token, %u mixed",
           example->file, pools[0], pools[1], pools[2]);
    CHECKF(local == example->local, "%s: %u local", example->file, local);
    example->seen = 1;
}

/* The file that documents the default config must equal the default. */
static void embedded_check(const char *folder)
{
    static struct config from_file, built_in;
    char path[1024], *texts[2];
    size_t bytes[2];
    struct error error = {0};
    snprintf(path, sizeof(path), "%s/embedded.json", folder);
    CHECK(config_load(path, &from_file, &error) == ST_OK);
    config_default(&built_in);
    memcpy(from_file.source, built_in.source, sizeof(built_in.source));
    const struct config *configs[2] = {&from_file, &built_in};
    for (int i = 0; i < 2; i++) {
        FILE *file = open_memstream(&texts[i], &bytes[i]);
        CHECK(file != NULL && config_write(configs[i], file) == ST_OK);
        fclose(file);
    }
    CHECKF(strcmp(texts[0], texts[1]) == 0, "\n%s\n%s", texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    DIR *folder = opendir(argv[1]);
    CHECK(folder != NULL);
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        size_t length = strlen(entry->d_name), i = 0;
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        while (i < EXAMPLE_COUNT && strcmp(examples[i].file, entry->d_name) != 0)
            i++;
        CHECKF(i < EXAMPLE_COUNT, "%s is not in this test's table", entry->d_name);
        example_check(argv[1], &examples[i]);
    }
    closedir(folder);
    for (size_t i = 0; i < EXAMPLE_COUNT; i++)
        CHECKF(examples[i].seen, "%s is gone", examples[i].file);
    embedded_check(argv[1]);
    return 0;
}
