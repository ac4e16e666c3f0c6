/* fuzz_api_keys: an API-key file with any bytes is read as a whole or refused with an error that
 * names the file; files in any order keep the table in order: a client's key is found if and only
 * if it is in the file that was applied last. Method: an input is one or more files, divided by a
 * line with "--", which are applied one after the other; in between, answers begin and end. */
#include "server/api/keys.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 8

static uint32_t changes;

static void on_change(void *self, const char *name, const char *how)
{
    (void)self;
    CHECK(name[0] != 0 && how[0] != 0);
    changes++;
}

static void use_keys(struct api_keys *keys, int64_t now_us)
{
    static const char *const clients[] = {
        "Bearer sk-alpha-0123456789", "bearer  sk-beta-0123456789", "Basic abc", "Bearer", NULL};
    struct api_error error;
    for (size_t i = 0; i < sizeof(clients) / sizeof(clients[0]); i++) {
        struct api_key_shown shown;
        if (!api_keys_find(keys, clients[i], clients[i], &shown))
            continue;
        const uint32_t key = shown.key_index;
        const struct api_key_settings *settings = api_keys_settings(keys, key);
        CHECK(settings != NULL && settings->name[0] != 0 && settings->weight >= 1);
        uint64_t before = api_keys_counts(keys, key)->in_flight;
        if (api_keys_answers_begin(keys, key, 2, 10, now_us, &error)) {
            CHECK(api_keys_counts(keys, key)->in_flight == before + 2);
            api_keys_tokens_charge(keys, key, 5);
            api_keys_answer_end(keys, key, 5);
            if (now_us % 2 == 0) /* Else it is in flight when the next file is applied. */
                api_keys_answer_end(keys, key, 5);
        } else {
            CHECK(error.message[0] != 0);
        }
    }
}

static void apply_file(struct api_keys *keys, const uint8_t *data, size_t bytes)
{
    char path[40];
    struct api_key_set *set = NULL;
    struct error error = {""};
    int fd = memfd_create("keys", MFD_CLOEXEC);
    CHECK(fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, data, bytes) == (ssize_t)bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (api_key_set_read(path, &set, &error) == ST_OK) {
        CHECK(api_key_set_diff(keys, set, on_change, NULL) == ST_OK);
        api_keys_apply(keys, set);
    } else {
        CHECK(set == NULL && strncmp(error.text, path, strlen(path)) == 0);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct api_keys *keys;
    const uint8_t *at = data, *end = data + size;
    CHECK(api_keys_open(&keys) == ST_OK);
    for (int i = 0; i < FILES_MAX && at < end; i++) {
        const uint8_t *stop = memmem(at, (size_t)(end - at), "\n--\n", 4);
        apply_file(keys, at, (size_t)((stop != NULL ? stop : end) - at));
        use_keys(keys, 1000000 * i + i);
        at = stop != NULL ? stop + 4 : end;
    }
    api_keys_apply(keys, NULL);
    CHECK(!api_keys_configured(keys));
    api_keys_close(keys);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char *const seeds[] = {
        "{\"keys\": [{\"name\": \"a\", \"key\": \"sk-alpha-0123456789\", \"weight\": 3, "
        "\"requests_max\": 5, \"tokens_per_minute\": 1000, \"priority_best\": -5, \"admin\": true, "
        "\"metrics\": false, \"cache_group\": \"g\"}]}\n--\n"
        "{\"keys\": [{\"name\": \"b\", \"key\": \"sk-alpha-0123456789\"}, {\"name\": \"a\", "
        "\"key\": "
        "\"sk-beta-0123456789\"}]}\n--\n"
        "{\"keys\": [{\"name\": \"a\", \"sha256\": "
        "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}]}",
        "{\"keys\": [{\"name\": \"a\", \"key\": \"short\"}]}",
    };
    return fuzz_seed_text(seeds, sizeof(seeds) / sizeof(seeds[0]), index, buffer, capacity);
}
