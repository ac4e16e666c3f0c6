/* Goal: a file of KV gives back each record as it was stored, or none: after a restart, when the
 * file is full, shorter than it was, damaged, of another model, or in use by another process. A
 * file with another size keeps the records that fit.
 * Method: one file in a scratch folder, closed and opened again; random records against a model
 * that keeps every record; bytes of the file are changed between. Records are made and checked by
 * tier_record, as in the product. */
#include "common/random.h"
#include "kvcache/tiers/tier_file.h"
#include "kvcache/tiers/tier_record.h"
#include "tests/check.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RECORD 5000 /* Bytes: not a multiple of a page. */
#define PLACES 16
#define NAMES  60
#define GROUP  512 /* Places behind one index. */
#define INDEX  32768

static uint64_t seed;
static char path[64];
static struct tier_backend *file;
static struct error error;

static const struct digest identity_a = {{1}};
static const struct digest identity_b = {{2}};

static struct digest name_of(uint32_t number)
{
    struct digest name = {{0}};
    digest_add(&name, &number, sizeof(number));
    return name;
}

static void record_make(uint32_t number, const uint8_t *key, uint8_t *out)
{
    const struct digest name = name_of(number);
    for (uint32_t i = TIER_RECORD_HEADER_BYTES; i < RECORD; i++)
        out[i] = (uint8_t)random_at(seed + number, i);
    CHECK(tier_record_seal(key, &name, out, RECORD, &error) == ST_OK);
}

static enum status file_open(const struct digest *identity, uint64_t bytes)
{
    CHECK(tier_file_make(path, bytes, &file) == ST_OK);
    error.text[0] = 0;
    return file->ops->open(file, identity, RECORD, 0, &error);
}

static uint64_t bytes_of(uint32_t places)
{
    return 4096 + (places + GROUP - 1) / GROUP * INDEX + places * 8192ull;
}

static void reopen(const struct digest *identity)
{
    file->ops->close(file);
    CHECKF(file_open(identity, bytes_of(PLACES)) == ST_OK, "%s", error.text);
}

/* Opens the file with another size. Returns what was said about it. */
static const char *resize(uint64_t bytes)
{
    file->ops->close(file);
    CHECKF(file_open(&identity_b, bytes) == ST_OK, "%s", error.text);
    return error.text;
}

static void put(uint32_t number)
{
    uint8_t record[RECORD];
    const struct digest name = name_of(number);
    record_make(number, NULL, record);
    CHECKF(file->ops->put(file, &name, record, 0, &error) == ST_OK, "%s", error.text);
}

static enum status get(uint32_t number)
{
    uint8_t record[RECORD], wanted[RECORD];
    const struct digest name = name_of(number);
    enum status status = file->ops->get(file, &name, record, 0, &error);
    if (status == ST_OK)
        status = tier_record_open(NULL, &name, record, RECORD, &error);
    if (status != ST_OK)
        return status;
    record_make(number, NULL, wanted);
    CHECK(memcmp(record + TIER_RECORD_HEADER_BYTES, wanted + TIER_RECORD_HEADER_BYTES,
                 RECORD - TIER_RECORD_HEADER_BYTES) == 0);
    return ST_OK;
}

static bool has(uint32_t number)
{
    const struct digest name = name_of(number);
    uint32_t count;
    CHECK(file->ops->stored_count(file, &name, 1, 0, &count, &error) == ST_OK);
    return count == 1;
}

static uint32_t held(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < NAMES; i++)
        count += has(i) ? 1 : 0;
    return count;
}

/* The records that were stored last, and those that were used, are there; all of them also after a
 * restart. */
static void test_replacement(void)
{
    for (uint32_t i = 0; i < PLACES; i++)
        put(i);
    CHECK(get(3) == ST_OK);
    put(PLACES); /* takes the place of 0 */
    put(PLACES + 1);
    put(PLACES + 2);
    put(PLACES + 3); /* 3 was read: 4 goes */
    CHECK(!has(0) && !has(1) && !has(2) && has(3) && !has(4) && held() == PLACES);
    reopen(&identity_a);
    CHECK(get(3) == ST_OK && get(PLACES + 3) == ST_OK);
    put(PLACES + 4); /* the hand is behind the record that was written last */
    CHECK(!has(5) && has(3) && held() == PLACES);
    const struct digest names[] = {name_of(6), name_of(7), name_of(5), name_of(8)};
    uint32_t count;
    CHECK(file->ops->stored_count(file, names, 4, 0, &count, &error) == ST_OK && count == 2);
}

/* Random calls, with restarts: each record that the file has is right, and as many are there as
 * there is room for. */
static void test_random(void)
{
    bool stored[NAMES] = {false};
    reopen(&identity_b);
    CHECK(held() == 0);
    for (uint32_t i = 0; i < 2000; i++) {
        const uint32_t number = (uint32_t)(random_at(seed, i) % NAMES);
        const uint64_t action = random_at(seed ^ 1, i) % 16;
        const struct digest name = name_of(number);
        uint32_t distinct = 0;
        if (action == 0) {
            CHECK(file->ops->drop(file, &name, 0, &error) == ST_OK && !has(number));
            stored[number] = false;
        } else if (action == 1) {
            reopen(&identity_b);
        } else if (action < 8) {
            put(number);
            stored[number] = true;
            CHECK(has(number));
        } else {
            const enum status status = get(number);
            CHECK(status == (has(number) ? ST_OK : ST_NOT_FOUND));
            CHECK(status != ST_OK || stored[number]);
        }
        for (uint32_t n = 0; n < NAMES; n++)
            distinct += stored[n] ? 1 : 0;
        CHECK(held() <= PLACES && held() <= distinct);
    }
}

static void flip(off_t at)
{
    uint8_t byte;
    const int fd = open(path, O_RDWR);
    CHECK(pread(fd, &byte, 1, at) == 1);
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

/* A flipped bit anywhere makes at most its own record absent or damaged. */
static void test_damage(void)
{
    const off_t place = 4096 + INDEX;
    reopen(&identity_a);
    reopen(&identity_b);
    for (uint32_t i = 0; i < PLACES; i++)
        put(i);
    flip(place + 8192 * 2 + 3000); /* payload of 2 */
    flip(place + 8192 * 3 + 20);   /* header of 3 */
    flip(4096 + 64 * 4 + 5);       /* entry of 4 */
    reopen(&identity_b);
    for (uint32_t i = 0; i < PLACES; i++) {
        const enum status status = get(i);
        CHECKF(status == (i == 2 || i == 3 ? ST_INVALID
                          : i == 4         ? ST_NOT_FOUND
                                           : ST_OK),
               "%u: %s", i, status_name(status));
    }
    const struct digest name = name_of(2);
    CHECK(file->ops->drop(file, &name, 0, &error) == ST_OK);
    reopen(&identity_b);
    CHECK(get(2) == ST_NOT_FOUND);
    flip(3); /* the file's header: it counts as another file's */
    reopen(&identity_b);
    CHECK(held() == 0);
}

/* Checks that exactly the records [first, end) of `count` are there, and none is damaged. */
static void expect_held(uint32_t first, uint32_t end, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const enum status status = get(i);
        CHECKF(status == (i >= first && i < end ? ST_OK : ST_NOT_FOUND), "%u: %s", i,
               status_name(status));
    }
}

/* A smaller file keeps the records in the places that it still has, and says once how many it does
 * not keep. A larger file keeps all records, and fills the new places first. A record that was
 * dropped does not come back when the file gets its old size again. */
static void test_resize(void)
{
    static const uint32_t smaller[] = {GROUP + 50, GROUP, GROUP - 1, 40};
    const uint32_t most = GROUP + 100;
    reopen(&identity_a);
    CHECKF(strstr(resize(bytes_of(most)), "was emptied") != NULL, "%s", error.text);
    for (uint32_t i = 0; i < most; i++)
        put(i);
    for (uint32_t i = 0; i < sizeof(smaller) / sizeof(smaller[0]); i++) {
        char wanted[64];
        const uint32_t before = i == 0 ? most : smaller[i - 1];
        snprintf(wanted, sizeof(wanted), "%u records are kept, %u are dropped", smaller[i],
                 before - smaller[i]);
        CHECKF(strstr(resize(bytes_of(smaller[i])), wanted) != NULL, "%s", error.text);
        expect_held(0, smaller[i], most);
        CHECKF(resize(bytes_of(smaller[i]))[0] == 0, "%s", error.text);
    }
    CHECKF(resize(bytes_of(most))[0] == 0, "%s", error.text);
    expect_held(0, 40, most);
    for (uint32_t i = 40; i < most; i++)
        put(i);
    expect_held(0, most, most);
    put(most); /* the file was full again */
    CHECK(!has(0) && has(most));
    CHECKF(resize(bytes_of(most) + 4096 + 20)[0] == 0, "%s", error.text); /* no place more */
    CHECKF(resize(bytes_of(GROUP) + 4096)[0] != 0, "%s", error.text);     /* a part of an index */
    expect_held(1, GROUP, most);
    CHECKF(resize(bytes_of(most))[0] == 0, "%s", error.text);
    expect_held(1, GROUP, most);
    reopen(&identity_b);
}

/* About the largest size for these records, which have up to 2^32 places. */
#define LARGEST (1ull << 44)

/* Returns the size of the file system with the file, which must exist. */
static uint64_t disk_bytes(void)
{
    struct statvfs state;
    CHECK(statvfs(path, &state) == 0);
    return (uint64_t)state.f_blocks * state.f_frsize;
}

static void test_refusals(void)
{
    struct tier_backend *other;
    struct stat state;
    put(1);
    CHECK(tier_file_make(path, bytes_of(PLACES), &other) == ST_OK);
    CHECK(other->ops->open(other, &identity_b, RECORD, 0, &error) == ST_UNREACHABLE);
    CHECKF(strstr(error.text, "another process uses it") != NULL, "%s", error.text);
    other->ops->close(other);
    CHECK(truncate(path, 4096 + INDEX) == 0);
    CHECK(get(1) == ST_IO);
    CHECKF(strstr(error.text, "shorter than") != NULL, "%s", error.text);
    reopen(&identity_b); /* has its size again; the record is lost */
    CHECKF(strstr(error.text, "0 records are kept, 16 are dropped") != NULL, "%s", error.text);
    CHECK(get(1) == ST_NOT_FOUND && stat(path, &state) == 0 &&
          state.st_size == (off_t)bytes_of(PLACES));
    file->ops->close(file);
    CHECK(file_open(&identity_b, 10000) == ST_INVALID);
    CHECKF(strstr(error.text, "want at least") != NULL, "%s", error.text);
    file->ops->close(file);
    if (disk_bytes() < LARGEST) {
        CHECK(file_open(&identity_b, LARGEST) == ST_IO);
        file->ops->close(file);
    }
    CHECK(unlink(path) == 0 && mkdir(path, 0700) == 0);
    CHECK(file_open(&identity_b, bytes_of(PLACES)) == ST_IO);
    file->ops->close(file);
    CHECK(rmdir(path) == 0 && symlink("/dev/null", path) == 0);
    CHECK(file_open(&identity_b, bytes_of(PLACES)) == ST_IO);
    file->ops->close(file);
    CHECK(unlink(path) == 0);
}

/* With a key, a record has nothing readable, and opens with the right key and name only. */
static void test_encryption(void)
{
    const uint8_t key[TIER_KEY_BYTES] = {7}, other_key[TIER_KEY_BYTES] = {8};
    const uint32_t tokens[32] = {1, 2, 3};
    const struct digest name = name_of(1), other = name_of(2);
    struct digest names[2][2];
    uint8_t plain[RECORD], sealed[RECORD], copy[RECORD];
    record_make(1, NULL, plain);
    record_make(1, key, sealed);
    uint32_t equal = 0;
    for (uint32_t i = TIER_RECORD_HEADER_BYTES; i < RECORD; i++)
        equal += plain[i] == sealed[i] ? 1 : 0;
    CHECKF(equal < 100, "%u bytes are as in the plain record", equal); /* 1 of 256 by chance */
    memcpy(copy, sealed, RECORD);
    CHECK(tier_record_open(other_key, &name, copy, RECORD, &error) == ST_INVALID);
    memcpy(copy, sealed, RECORD);
    CHECK(tier_record_open(key, &other, copy, RECORD, &error) == ST_INVALID);
    memcpy(copy, sealed, RECORD);
    CHECK(tier_record_open(NULL, &name, copy, RECORD, &error) == ST_INVALID);
    memcpy(copy, plain, RECORD);
    CHECK(tier_record_open(key, &name, copy, RECORD, &error) == ST_INVALID);
    for (uint32_t at = 0; at < RECORD; at += at < 200 || at >= RECORD - 97 ? 1 : 97) {
        memcpy(copy, sealed, RECORD);
        copy[at] ^= 1;
        CHECKF(tier_record_open(key, &name, copy, RECORD, &error) == ST_INVALID, "byte %u", at);
        memcpy(copy, plain, RECORD);
        copy[at] ^= 1;
        CHECKF(tier_record_open(NULL, &name, copy, RECORD, &error) == ST_INVALID, "byte %u", at);
    }
    CHECK(tier_record_open(key, &name, sealed, RECORD, &error) == ST_OK);
    CHECK(memcmp(sealed + TIER_RECORD_HEADER_BYTES, plain + TIER_RECORD_HEADER_BYTES,
                 RECORD - TIER_RECORD_HEADER_BYTES) == 0);
    /* Names depend on identity, key, salt, and all tokens before. */
    tier_names_make(&identity_a, NULL, 0, tokens, 16, 2, names[0]);
    CHECK(!digest_equal(&names[0][0], &names[0][1]));
    for (int i = 0; i < 4; i++) {
        uint32_t changed[32];
        memcpy(changed, tokens, sizeof(changed));
        changed[15] += i == 3 ? 1 : 0;
        tier_names_make(i == 0 ? &identity_b : &identity_a, i == 1 ? key : NULL, i == 2 ? 5 : 0,
                        changed, 16, 2, names[1]);
        for (int n = 0; n < 4; n++)
            CHECK(!digest_equal(&names[0][n / 2], &names[1][n % 2]));
    }
}

int main(void)
{
    char folder[] = "/tmp/cleave-tier-XXXXXX";
    seed = test_seed();
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/kv", folder);
    CHECKF(file_open(&identity_a, bytes_of(PLACES)) == ST_OK, "%s", error.text);
    test_replacement();
    test_random();
    test_damage();
    test_resize();
    test_refusals();
    test_encryption();
    CHECK(rmdir(folder) == 0);
    printf("ok\n");
    return 0;
}
