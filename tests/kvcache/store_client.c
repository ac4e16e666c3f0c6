/* A client of the shared store, for test_tier_store.py: it reads calls of the backend from standard
 * input, one a line, makes them, and writes a line with each result.
 *
 *   open                  ok, and ": " and the remark if there is one; or the name of the status,
 *                         ": " and the error's text
 *   put NAME | get NAME | drop NAME   as above; get also checks the bytes
 *   limit MS              the following calls have this time; no answer
 *   has NAME NAME …       as above, but "ok COUNT"
 *
 * Arguments: servers, user, password file, CA file ("-" = no TLS, "" = the system's), expire_s,
 * deadline_ms, bytes of a record. */
#include "kvcache/tiers/tier_store.h"

#include "common/clock.h"
#include "common/random.h"
#include "tests/check.h"

#define NAMES_MAX  2000
#define CALL_US    600000000
#define LINE_BYTES 65536

static size_t record_bytes;

static struct digest name_of(const char *text)
{
    struct digest name;
    secret_hash(text, strlen(text), name.bytes);
    return name;
}

/* A record's bytes depend on its name. */
static void record_fill(const struct digest *name, uint8_t *record)
{
    uint64_t key;
    memcpy(&key, name->bytes, sizeof(key));
    for (size_t i = 0; i < record_bytes; i++)
        record[i] = (uint8_t)random_at(key, i);
}

static enum status record_get(struct tier_backend *b, const struct digest *name,
                              int64_t deadline_us, struct error *error)
{
    uint8_t *got = malloc(record_bytes), *want = malloc(record_bytes);
    CHECK(got != NULL && want != NULL);
    enum status status = b->ops->get(b, name, got, deadline_us, error);
    record_fill(name, want);
    CHECKF(status != ST_OK || memcmp(got, want, record_bytes) == 0, "another record");
    free(got);
    free(want);
    return status;
}

static enum status record_put(struct tier_backend *b, const struct digest *name,
                              int64_t deadline_us, struct error *error)
{
    uint8_t *record = malloc(record_bytes);
    CHECK(record != NULL);
    record_fill(name, record);
    enum status status = b->ops->put(b, name, record, deadline_us, error);
    free(record);
    return status;
}

static void call(struct tier_backend *b, char *line)
{
    static struct digest names[NAMES_MAX];
    static const struct digest identity = {{1}};
    struct error error = {0};
    enum status status;
    uint32_t count = 0, found = 0;
    static int64_t call_us = CALL_US;
    const int64_t deadline_us = clock_now_us(&clock_system) + call_us;
    const char *verb = strtok(line, " \n");
    CHECK(verb != NULL);
    if (strcmp(verb, "limit") == 0) {
        call_us = atoll(strtok(NULL, " \n")) * 1000;
        return;
    }
    for (const char *word; (word = strtok(NULL, " \n")) != NULL; count++) {
        CHECK(count < NAMES_MAX);
        names[count] = name_of(word);
    }
    if (strcmp(verb, "open") == 0)
        status = b->ops->open(b, &identity, record_bytes, deadline_us, &error);
    else if (strcmp(verb, "put") == 0)
        status = record_put(b, &names[0], deadline_us, &error);
    else if (strcmp(verb, "get") == 0)
        status = record_get(b, &names[0], deadline_us, &error);
    else if (strcmp(verb, "drop") == 0)
        status = b->ops->drop(b, &names[0], deadline_us, &error);
    else
        status = b->ops->stored_count(b, names, count, deadline_us, &found, &error);
    if (status != ST_OK)
        printf("%s: %s\n", status_name(status), error.text);
    else if (strcmp(verb, "has") == 0)
        printf("ok %u\n", found);
    else if (strcmp(verb, "open") == 0 && error.text[0] != 0)
        printf("ok: %s\n", error.text);
    else
        printf("ok\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static char line[LINE_BYTES];
    static struct config config;
    struct tier_backend *b;
    struct error error = {0};
    CHECK(argc == 8);
    config_default(&config);
    snprintf(config.kv.tiers.store.user, sizeof(config.kv.tiers.store.user), "%s", argv[2]);
    snprintf(config.kv.tiers.store.password_file, LIMIT_PATH_BYTES, "%s", argv[3]);
    config.kv.tiers.store.tls = strcmp(argv[4], "-") != 0;
    snprintf(config.kv.tiers.store.ca_file, LIMIT_PATH_BYTES, "%s", argv[4]);
    config.kv.tiers.store.expire_s = (uint32_t)strtoul(argv[5], NULL, 10);
    config.kv.tiers.store.deadline_ms = (uint32_t)strtoul(argv[6], NULL, 10);
    record_bytes = strtoul(argv[7], NULL, 10);
    enum status status = tier_store_make(&config, argv[1], &b, &error);
    if (status == ST_UNSUPPORTED)
        test_skip(error.text);
    if (status != ST_OK) {
        printf("%s: %s\n", status_name(status), error.text);
        return 1;
    }
    while (fgets(line, sizeof(line), stdin) != NULL)
        call(b, line);
    b->ops->close(b);
    return 0;
}
