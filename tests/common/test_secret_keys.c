/* Goal: a key file has one meaning. A file with one key per line gives these keys in this order;
 * any other file of 32 bytes or more is one key; every mistake is one line that names file and
 * line. A file that shares no key with the present ones is refused. Method: texts and files with
 * known results; random changes of a good text. */
#include "common/random.h"
#include "common/secret_keys.h"
#include "tests/check.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define A "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define B "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100"
#define C "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define W "c2l4dHktZm91ciBjaGFyYWN0ZXJzIG9mIGJhc2U2NCwgYXMgb3BlbnNzbCB3cmFw"

static struct secret_keys of(const char *text)
{
    struct secret_keys keys = {.count = 0};
    struct error error = {""};
    enum status status = secret_keys_parse(text, strlen(text), "f", &keys, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    return keys;
}

/* Returns whether the key is that of the whole text. */
static bool is(const struct secret_key *key, const char *text)
{
    uint8_t hash[SECRET_HASH_BYTES];
    secret_hash(text, strlen(text), hash);
    return memcmp(hash, key->bytes, sizeof(hash)) == 0;
}

static void test_good(void)
{
    static const struct {
        const char *text;
        uint32_t count;
        const char *keys[SECRET_KEYS_MAX];
    } cases[] = {
        {A "\n", 1, {A}},
        {A, 1, {A}},
        {A "\n" B "\n", 2, {A, B}},
        {B "\r\n\n" A "  \n\n", 2, {B, A}},
        {C "\n" A "\n" B, 3, {C, A, B}},
        {A A "\n" B, 2, {A A, B}},
        {"\n" A "\n", 1, {A}},
        /* One key: the first line alone is not a key. */
        {"a key with spaces, 32 bytes or more\n", 1, {"a key with spaces, 32 bytes or more"}},
        {"a key of two lines\n" A "\n", 1, {"a key of two lines\n" A}},
        {W "\n" C "\n", 1, {W "\n" C}},
        {A "0", 1, {A "0"}}, /* An odd number of digits. */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct secret_keys keys = of(cases[i].text);
        CHECKF(keys.count == cases[i].count, "case %zu: %u keys", i, keys.count);
        for (uint32_t k = 0; k < keys.count; k++)
            CHECKF(is(&keys.keys[k], cases[i].keys[k]), "case %zu, key %u", i, k);
    }
    /* A key has the same value alone and as a line, so that files can grow and shrink. */
    struct secret_keys one = of(B), two = of(A "\n" B "\n"), made;
    CHECK(secret_keys_find(&two, one.keys[0].id) == &two.keys[1]);
    CHECK(secret_keys_find(&one, two.keys[0].id) == NULL);
    secret_keys_set(&made, one.keys[0].bytes);
    CHECK(secret_keys_equal(&made, &one) && !secret_keys_equal(&one, &two));
    CHECK(memcmp(one.keys[0].id, one.keys[0].bytes, sizeof(one.keys[0].id)) != 0);
    char text[SECRET_KEYS_TEXT_BYTES], want[64] = "";
    for (int i = 0; i < SECRET_KEY_ID_BYTES; i++)
        snprintf(want + 2 * i, 3, "%02x", one.keys[0].id[i]);
    secret_keys_text(&one, text);
    CHECK(strcmp(text, want) == 0);
    struct secret_keys most = of(A "\n" B "\n" C "\n" A B "\n");
    secret_keys_text(&most, text);
    CHECK(strlen(text) == 4 * 16 + strlen(", also , , ") && strstr(text, want) != NULL);
}

static void test_mistakes(void)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "f: 0 bytes: want a key of at least 32"},
        {"\n \n\t", "f: 0 bytes: want a key of at least 32"},
        {"short\n", "f: 5 bytes: want a key of at least 32 (openssl rand -hex 32 > f)"},
        {A "\n" B "\n" A "\n", "f:3: this key is there twice"},
        {A "\nnot a key\n", "f:2: not a key as in the first line: want 64 or more hexadecimal"},
        {A "\n\n0" B "\n", "f:3: not a key as in the first line"},
        {A "\n" B "\n" C "\n" A A "\n" B B "\n", "f:5: more than 4 keys"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct secret_keys keys = {.count = 77};
        struct error error = {""};
        CHECK(secret_keys_parse(cases[i].text, strlen(cases[i].text), "f", &keys, &error) < 0);
        CHECKF(strncmp(error.text, cases[i].says, strlen(cases[i].says)) == 0, "%s", error.text);
        CHECK(strchr(error.text, '\n') == NULL && keys.count == 77);
    }
}

static void file_write(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0 && chmod(path, mode) == 0);
}

static void test_files(void)
{
    char path[] = "/tmp/cleave-keys-XXXXXX";
    struct secret_keys present = of(A), next = {.count = 77};
    struct error error = {""};
    close(mkstemp(path));
    file_write(path, A "\n" B "\n", 0644);
    CHECK(secret_keys_read_again(path, &present, &next, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "mode 0644 lets other users read a secret") != NULL, "%s",
           error.text);
    file_write(path, B "\n", 0600);
    CHECK(secret_keys_read_again(path, &present, &next, &error) == ST_INVALID && next.count == 77);
    CHECKF(strstr(error.text, "none of the keys in use") != NULL, "%s", error.text);
    file_write(path, B "\n" A "\n", 0600);
    CHECK(secret_keys_read_again(path, &present, &next, &error) == ST_OK && next.count == 2);
    CHECK(is(&next.keys[0], B) && is(&next.keys[1], A));
    unlink(path);
    CHECK(secret_keys_read(path, &next, &error) == ST_NOT_FOUND);
}

/* For any bytes, the result has 1 to 4 different keys, or is an error of one line. */
static void test_random(uint64_t seed)
{
    static const char good[] = A "\n" B "\n" C "\n";
    static const char bytes[] = "\n\r \t0f=gZ\0\xff";
    for (uint64_t round = 0; round < 20000; round++) {
        char text[sizeof(good)];
        struct secret_keys keys = {.count = 0};
        struct error error = {""};
        memcpy(text, good, sizeof(good));
        for (uint64_t i = 0; i < 1 + round % 5; i++)
            text[random_at(seed, 16 * round + 2 * i) % (sizeof(good) - 1)] =
                bytes[random_at(seed, 16 * round + 2 * i + 1) % (sizeof(bytes) - 1)];
        size_t used = random_at(seed, 16 * round + 15) % sizeof(good);
        if (secret_keys_parse(text, used, "f", &keys, &error) != ST_OK) {
            CHECK(error.text[0] != 0 && strchr(error.text, '\n') == NULL);
            continue;
        }
        CHECK(keys.count >= 1 && keys.count <= SECRET_KEYS_MAX);
        for (uint32_t i = 0; i < keys.count; i++)
            CHECK(secret_keys_find(&keys, keys.keys[i].id) == &keys.keys[i]);
    }
}

int main(void)
{
    test_good();
    test_mistakes();
    test_files();
    test_random(test_seed());
    printf("key files: one key, several keys, mistakes\n");
    return 0;
}
