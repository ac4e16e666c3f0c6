/* Goal: the accepting side takes the key that the connecting side names, and only keys that it has;
 * keys that were replaced serve the sessions that have begun; both sides change the key that they
 * encrypt with after a number of bytes, and after a number of records, and lose nothing. Method:
 * two sessions in memory. The encrypted records are counted by their sizes: a KeyUpdate has 22
 * bytes, and no other record of this test has. */
#include "transport/tls.h"

#include "tests/check.h"

#include <string.h>

#define KEY_UPDATE_BYTES 22 /* Message 5, type 1, tag 16. */
#define PIPE_BYTES       ((size_t)1 << 20)

struct end {
    struct tls *tls;
    struct end *other;
    uint8_t *in; /* Encrypted bytes that have arrived. */
    size_t head, tail;
    uint32_t updates; /* KeyUpdates that this end has sent. */
};

static bool on_send(void *self, const void *data, size_t bytes)
{
    struct end *end = self;
    struct end *to = end->other;
    const uint8_t *at = data;
    for (size_t i = 0; i + 5 <= bytes;) {
        size_t record = (size_t)at[i + 3] << 8 | at[i + 4];
        end->updates += at[i] == 23 && record == KEY_UPDATE_BYTES;
        i += 5 + record;
    }
    CHECK(to->tail + bytes <= PIPE_BYTES);
    memcpy(to->in + to->tail, data, bytes);
    to->tail += bytes;
    return true;
}

static size_t on_take(void *self, void *data, size_t capacity)
{
    struct end *end = self;
    size_t bytes = end->tail - end->head < capacity ? end->tail - end->head : capacity;
    memcpy(data, end->in + end->head, bytes);
    end->head += bytes;
    if (end->head == end->tail)
        end->head = end->tail = 0;
    return bytes;
}

/* Opens both ends; the first one connects. */
static void ends_open(struct end *ends, struct tls_keys *connecting, struct tls_keys *accepting,
                      uint64_t rekey_bytes, uint64_t rekey_records)
{
    memset(ends, 0, 2 * sizeof(*ends));
    for (int i = 0; i < 2; i++) {
        const struct tls_options options = {.keys = i == 0 ? connecting : accepting,
                                            .accepting = i == 1,
                                            .send = on_send,
                                            .take = on_take,
                                            .self = &ends[i],
                                            .rekey_bytes = rekey_bytes,
                                            .rekey_records = rekey_records};
        ends[i].other = &ends[1 - i];
        ends[i].in = malloc(PIPE_BYTES);
        CHECK(ends[i].in != NULL && tls_open(&options, &ends[i].tls) == ST_OK);
    }
}

static void ends_close(struct end *ends)
{
    for (int i = 0; i < 2; i++) {
        tls_close(ends[i].tls);
        free(ends[i].in);
    }
}

/* Returns the worse of the two results. */
static enum status shake_hands(struct end *ends)
{
    struct error error;
    enum status status[2] = {ST_IN_PROGRESS, ST_IN_PROGRESS};
    for (int i = 0; i < 20; i++)
        if (status[i % 2] == ST_IN_PROGRESS)
            status[i % 2] = tls_handshake(ends[i % 2].tls, &error);
    for (int i = 0; i < 2; i++) {
        ends[i].updates = 0; /* A record of the hand-shake may have this size. */
        CHECK(status[i] != ST_IN_PROGRESS);
    }
    return status[0] < status[1] ? status[0] : status[1];
}

static void send_all(struct end *end, const uint8_t *data, size_t bytes)
{
    static uint8_t got[PIPE_BYTES];
    struct error error = {""};
    size_t used = 0, more;
    CHECKF(tls_write(end->tls, data, bytes, &error) == ST_OK, "%s", error.text);
    while (tls_read(end->other->tls, got + used, sizeof(got) - used, &more, &error) == ST_OK)
        used += more;
    CHECKF(used == bytes && memcmp(got, data, bytes) == 0, "%zu of %zu bytes: %s", used, bytes,
           error.text);
}

static struct tls_keys *keys_of(const char *which)
{
    struct secret_keys keys = {.count = (uint32_t)strlen(which)};
    struct tls_keys *out;
    struct error error;
    for (uint32_t i = 0; i < keys.count; i++) {
        struct secret_keys one;
        uint8_t key[SECRET_HASH_BYTES];
        memset(key, which[i], sizeof(key));
        secret_keys_set(&one, key);
        keys.keys[i] = one.keys[0];
    }
    CHECK(tls_keys_open(&keys, &out, &error) == ST_OK);
    return out;
}

static void test_keys(void)
{
    static const struct {
        const char *connecting, *accepting;
        bool good;
    } cases[] = {
        {"a", "a", true},    {"a", "ab", true},  {"a", "bcda", true}, {"ba", "ab", true},
        {"a", "b", false},   {"ab", "b", false}, /* Only the first key connects. */
        {"a", "bcd", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct end ends[2];
        struct tls_keys *keys[2] = {keys_of(cases[i].connecting), keys_of(cases[i].accepting)};
        uint8_t channels[2][TLS_CHANNEL_BINDING_BYTES], first[SECRET_HASH_BYTES];
        struct secret_keys want;
        ends_open(ends, keys[0], keys[1], 0, 0);
        for (int k = 0; k < 2; k++) /* The sessions keep the keys. */
            tls_keys_close(keys[k]);
        enum status status = shake_hands(ends);
        CHECKF((status == ST_OK) == cases[i].good, "case %zu: %d", i, status);
        CHECK(status == ST_OK || status == ST_MISMATCH);
        for (int k = 0; k < 2 && status == ST_OK; k++) {
            memset(first, cases[i].connecting[0], sizeof(first));
            secret_keys_set(&want, first);
            CHECK(memcmp(tls_key_id(ends[k].tls), want.keys[0].id, SECRET_KEY_ID_BYTES) == 0);
            tls_channel_binding(ends[k].tls, channels[k]);
            send_all(&ends[k], (const uint8_t *)"some bytes", 10);
        }
        CHECK(status != ST_OK || memcmp(channels[0], channels[1], TLS_CHANNEL_BINDING_BYTES) == 0);
        ends_close(ends);
    }
}

/* Sends in both directions by turns. Returns the number of key changes of the first end. */
static uint32_t send_under_limit(uint64_t bytes_max, uint64_t records_max, size_t bytes, int count)
{
    static uint8_t data[PIPE_BYTES / 2];
    struct end ends[2];
    struct tls_keys *keys = keys_of("a");
    ends_open(ends, keys, keys, bytes_max, records_max);
    tls_keys_close(keys);
    CHECK(shake_hands(ends) == ST_OK);
    for (int i = 0; i < 2 * count; i++) {
        memset(data, i, bytes);
        send_all(&ends[i % 2], data, bytes);
    }
    uint32_t updates = ends[0].updates;
    CHECK(ends[1].updates == updates);
    ends_close(ends);
    return updates;
}

static void test_rekey(void)
{
    CHECK(send_under_limit(0, 0, 100000, 10) == 0);
    /* Each write takes seven records of 16 KiB, the last one shorter; the key changes before the
     * third write, and so on. */
    uint32_t updates = send_under_limit(199999, 0, 100000, 9);
    CHECKF(updates == 4, "%u changes of the key by bytes", updates);
    updates = send_under_limit(0, 49, 100, 201); /* Each write is one record. */
    CHECKF(updates == 4, "%u changes of the key by records", updates);
}

int main(void)
{
    test_keys();
    test_rekey();
    printf("the named key is taken, and keys change in time\n");
    return 0;
}
