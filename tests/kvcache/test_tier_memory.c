/* Goal: memory of the host gives back each record as it was stored, or none, holds as many records
 * as its bytes allow, takes no memory before it has records, and keeps what is used. The index that
 * it shares with the file finds what it has. Method: random calls against a model that keeps every
 * record; sizes around those of four records; resident memory before and after. */
#include "common/memory.h"
#include "common/random.h"
#include "kvcache/tiers/tier_index.h"
#include "kvcache/tiers/tier_memory.h"
#include "tests/check.h"

#include <string.h>

#define RECORD 5000 /* Bytes: not a multiple of a cache line. */
#define PLACE  5056
#define PLACES 16
#define NAMES  60
#define MIB    (1ull << 20)

/* ThreadSanitizer keeps four bytes of its own for each byte that was written. */
#ifdef __SANITIZE_THREAD__
#define RESIDENT_FACTOR 5
#else
#define RESIDENT_FACTOR 1
#endif

static uint64_t seed;
static struct tier_backend *memory;
static struct error error;

static const struct digest identity = {{1}};

static struct digest name_of(uint32_t number)
{
    struct digest name = {{0}};
    digest_add(&name, &number, sizeof(number));
    return name;
}

static void record_fill(uint32_t number, uint8_t *out)
{
    for (uint32_t i = 0; i < RECORD; i++)
        out[i] = (uint8_t)random_at(seed + number, i);
}

static enum status memory_open(uint64_t bytes, size_t record_bytes)
{
    CHECK(tier_memory_make(bytes, &memory) == ST_OK);
    return memory->ops->open(memory, &identity, record_bytes, 0, &error);
}

/* Returns the bytes that the records and the index of this many places need. */
static uint64_t bytes_of(uint32_t places)
{
    return (places * PLACE + 4095) / 4096 * 4096 + tier_index_bytes(places);
}

static void put(uint32_t number)
{
    uint8_t record[RECORD];
    const struct digest name = name_of(number);
    record_fill(number, record);
    CHECK(memory->ops->put(memory, &name, record, 0, &error) == ST_OK);
}

static enum status get(uint32_t number)
{
    uint8_t record[RECORD], wanted[RECORD];
    const struct digest name = name_of(number);
    const enum status status = memory->ops->get(memory, &name, record, 0, &error);
    record_fill(number, wanted);
    CHECK(status != ST_OK || memcmp(record, wanted, RECORD) == 0);
    return status;
}

/* Returns how many of the records have a place, and uses them. */
static uint32_t held(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < NAMES; i++) {
        const struct digest name = name_of(i);
        uint32_t found;
        CHECK(memory->ops->stored_count(memory, &name, 1, 0, &found, &error) == ST_OK);
        count += found;
    }
    return count;
}

/* As many records as there is room for, and not one more; a byte less holds one record less. */
static void test_bounds(void)
{
    for (uint32_t places = 4; places < 40; places++) {
        CHECKF(memory_open(bytes_of(places), RECORD) == ST_OK, "%s", error.text);
        for (uint32_t i = 0; i < NAMES; i++)
            put(i);
        CHECKF(held() == places, "%u of %u", held(), places);
        memory->ops->close(memory);
        const enum status status = memory_open(bytes_of(places) - 1, RECORD);
        CHECK(status == (places == 4 ? ST_INVALID : ST_OK));
        for (uint32_t i = 0; i < NAMES && status == ST_OK; i++)
            put(i);
        CHECK(status != ST_OK || held() == places - 1);
        memory->ops->close(memory);
    }
    CHECKF(strstr(error.text, "want at least") != NULL, "%s", error.text);
    CHECK(tier_memory_make(MIB, &memory) == ST_OK);
    memory->ops->close(memory); /* never opened */
}

/* The oldest record that was not used goes. */
static void test_replacement(void)
{
    const struct digest names[] = {name_of(1), name_of(2), name_of(99), name_of(3)};
    uint32_t count;
    CHECK(memory_open(bytes_of(PLACES), RECORD) == ST_OK);
    for (uint32_t i = 0; i < PLACES; i++)
        put(i);
    CHECK(get(0) == ST_OK); /* used */
    CHECK(memory->ops->stored_count(memory, names, 4, 0, &count, &error) == ST_OK && count == 2);
    put(4);      /* used: it is there already */
    put(PLACES); /* takes the place of 3, the first that was not used */
    CHECK(get(3) == ST_NOT_FOUND && get(0) == ST_OK && get(1) == ST_OK && get(2) == ST_OK);
    put(PLACES + 1); /* 4 was used: 5 goes */
    CHECK(get(5) == ST_NOT_FOUND && get(4) == ST_OK && get(6) == ST_OK);
    memory->ops->close(memory);
}

/* Random calls: each record that is there is right, and as many are there as there is room for. */
static void test_random(void)
{
    bool stored[NAMES] = {false};
    CHECK(memory_open(bytes_of(PLACES), RECORD) == ST_OK);
    for (uint32_t i = 0; i < 5000; i++) {
        const uint32_t number = (uint32_t)(random_at(seed, i) % NAMES);
        const uint64_t action = random_at(seed ^ 1, i) % 16;
        const struct digest name = name_of(number);
        if (action == 0) {
            CHECK(memory->ops->drop(memory, &name, 0, &error) == ST_OK);
            CHECK(get(number) == ST_NOT_FOUND);
            stored[number] = false;
        } else if (action < 8) {
            put(number);
            CHECK(get(number) == ST_OK);
            stored[number] = true;
        } else {
            CHECK(get(number) != ST_OK || stored[number]);
        }
        CHECK(i % 64 != 0 || held() <= PLACES);
    }
    for (uint32_t i = 0; i < NAMES; i++)
        put(i);
    CHECK(held() == PLACES);
    memory->ops->close(memory);
}

/* A large tier takes memory when records come, at most its bytes, and gives it back. */
static void test_lazy(void)
{
    enum { LARGE_RECORD = 1 << 20, LARGE_PLACES = 64 };
    static uint8_t record[LARGE_RECORD];
    memset(record, 7, sizeof(record));
    const uint64_t before = memory_resident();
    const enum status status = memory_open(1ull << 40, sizeof(record)); /* more than there is */
    if (status == ST_NO_MEMORY) {
        printf("skipped: this computer promises no memory that it does not have: %s\n", error.text);
        memory->ops->close(memory);
        return;
    }
    CHECK(status == ST_OK);
    const uint64_t opened = memory_resident();
    for (uint32_t i = 0; i < LARGE_PLACES; i++) {
        const struct digest name = name_of(i);
        CHECK(memory->ops->put(memory, &name, record, 0, &error) == ST_OK);
    }
    const uint64_t filled = memory_resident();
    memory->ops->close(memory);
    const uint64_t closed = memory_resident();
    printf("resident MiB: %.1f, opened %.1f, filled %.1f, closed %.1f\n", (double)before / MIB,
           (double)opened / MIB, (double)filled / MIB, (double)closed / MIB);
    CHECK(opened - before < 64 * MIB);
    CHECK(filled - opened >= LARGE_PLACES * MIB - 4 * MIB &&
          filled - opened < 2 * LARGE_PLACES * MIB * RESIDENT_FACTOR);
    CHECK(closed < opened + 16 * MIB);
}

int main(void)
{
    seed = test_seed();
    test_bounds();
    test_replacement();
    test_random();
    test_lazy();
    printf("ok\n");
    return 0;
}
