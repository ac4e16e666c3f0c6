/* fuzz_members: for any answers of etcd in any order, a gateway reports a machine as gone only if
 * it has reported it as present, and never reports a machine with a wrong name or address. A
 * machine that registers itself survives every answer. Method: an input is a list of lines; each is
 * an event of etcd: a list or a change with keys and values, any JSON, a failure, or time that
 * passes. The client of etcd (membership/etcd.c) is replaced by one that keeps the calls. */
#include "membership/etcd.h"
#include "membership/registration.h"
#include "membership/watch.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"

#define CALLS_MAX 8
#define NAMES_MAX 64
#define LINES_MAX 64

struct etcd_call {
    struct etcd *etcd; /* NULL = unused. */
    etcd_line line;
    etcd_done done;
    void *self;
};

struct etcd {
    struct etcd_call calls[CALLS_MAX];
};

static struct etcd *opened; /* The client that was opened last. */

/* ---- the client that keeps calls ---- */

enum status etcd_open(const struct config *config, const struct clock *clock, struct etcd **out,
                      struct error *error)
{
    (void)config, (void)clock, (void)error;
    *out = calloc(1, sizeof(**out));
    CHECK(*out != NULL);
    opened = *out;
    return ST_OK;
}

void etcd_close(struct etcd *e)
{
    free(e);
}

struct etcd_call *etcd_call_begin(struct etcd *e, const char *path, json_t *body, etcd_line line,
                                  etcd_done done, void *self)
{
    CHECK(path[0] == '/' && json_is_object(body));
    json_decref(body);
    for (int i = 0; i < CALLS_MAX; i++)
        if (e->calls[i].etcd == NULL) {
            e->calls[i] = (struct etcd_call){e, line, done, self};
            return &e->calls[i];
        }
    CHECKF(false, "more than %d calls at a time", CALLS_MAX);
    return NULL;
}

void etcd_call_cancel(struct etcd_call *call)
{
    if (call != NULL)
        call->etcd = NULL;
}

int etcd_fd(const struct etcd *e)
{
    (void)e;
    return -1;
}

int etcd_turn(struct etcd *e)
{
    (void)e;
    return -1;
}

const char *etcd_endpoint(const struct etcd *e)
{
    (void)e;
    return "http://etcd:2379";
}

/* ---- what the two sides report ---- */

static char names[NAMES_MAX][LIMIT_NAME_BYTES]; /* Machines that are reported as present. */
static int64_t now_us;

static int64_t read_clock(void *self)
{
    (void)self;
    return now_us;
}

static char *name_find(const char *name)
{
    for (int i = 0; i < NAMES_MAX; i++)
        if (strcmp(names[i], name) == 0)
            return names[i];
    return NULL;
}

static void on_joined(void *self, const struct member *member)
{
    (void)self;
    size_t bytes = strnlen(member->name, LIMIT_NAME_BYTES);
    CHECK(bytes > 0 && bytes < LIMIT_NAME_BYTES && strchr(member->address, ':') != NULL);
    char *at = name_find(member->name);
    if (at == NULL)
        at = name_find("");
    CHECK(at != NULL);
    memcpy(at, member->name, bytes + 1);
    char *text = member_encode(member);
    struct member again;
    struct error error;
    CHECK(text != NULL && member_decode(member->name, text, &again, &error) == ST_OK);
    CHECK(strcmp(again.address, member->address) == 0 && again.pool == member->pool);
    free(text);
}

static void on_left(void *self, const char *name)
{
    (void)self;
    char *at = name_find(name);
    CHECKF(name[0] != 0 && at != NULL, "'%s' has left but was not reported", name);
    at[0] = 0;
}

static void on_text(void *self, const char *text)
{
    (void)self;
    CHECK(text[0] != 0);
}

static void on_state(void *self, bool connected, const char *text)
{
    (void)self, (void)connected;
    CHECK(text[0] != 0);
}

/* ---- events of etcd ---- */

/* Returns {"key", "value", "mod_revision"} for NAME=VALUE. */
static json_t *entry_json(const char *text, size_t bytes, int revision)
{
    char key[600], number[24];
    const char *equal = memchr(text, '=', bytes);
    size_t name = equal != NULL ? (size_t)(equal - text) : bytes;
    int length =
        snprintf(key, sizeof(key), "/c/machines/%.*s", (int)(name < 400 ? name : 400), text);
    snprintf(number, sizeof(number), "%d", revision);
    json_t *entry = json_pack("{s:o, s:s}", "key", etcd_text_encode(key, (size_t)length),
                              "mod_revision", number);
    if (equal != NULL && bytes - name > 1)
        json_object_set_new(entry, "value", etcd_text_encode(equal + 1, bytes - name - 1));
    return entry;
}

/* Returns a list of the entries, which are separated by bars. The first character is the
 * revision. */
static json_t *list_json(const char *text, size_t bytes)
{
    json_t *kvs = json_array();
    int revision = bytes > 0 ? (unsigned char)text[0] : 0;
    for (size_t at = 1; at < bytes;) {
        const char *bar = memchr(text + at, '|', bytes - at);
        size_t end = bar != NULL ? (size_t)(bar - text) : bytes;
        json_array_append_new(kvs, entry_json(text + at, end - at, revision - (int)(at % 3)));
        at = end + 1;
    }
    return json_pack("{s:{s:i}, s:o}", "header", "revision", revision, "kvs", kvs);
}

static json_t *change_json(const char *text, size_t bytes)
{
    int revision = bytes > 0 ? (unsigned char)text[0] : 0;
    size_t skip = bytes > 0 ? 1 : 0;
    json_t *entry = entry_json(text + skip, bytes - skip, revision);
    const char *type = json_object_get(entry, "value") != NULL ? "PUT" : "DELETE";
    return json_pack("{s:{s:{s:i}, s:[{s:s, s:o}]}}", "result", "header", "revision", revision,
                     "events", "type", type, "kv", entry);
}

/* Answers the first call that is a stream, or (stream false) the first that is not. */
static void answer(struct etcd *e, bool stream, json_t *json, const char *why)
{
    for (int i = 0; i < CALLS_MAX; i++) {
        struct etcd_call call = e->calls[i];
        if (call.etcd == NULL || (call.line != NULL) != stream)
            continue;
        if (stream && why == NULL) {
            call.line(call.self, json);
            break;
        }
        e->calls[i].etcd = NULL;
        call.done(call.self, json, json != NULL ? NULL : why != NULL ? why : "no answer");
        break;
    }
    json_decref(json);
}

struct sides {
    struct watch *watch;
    struct registration *registration;
    struct etcd *watch_etcd, *registration_etcd;
};

static void take_line(struct sides *sides, const char *line, size_t bytes)
{
    const char *text = line + 1;
    size_t rest = bytes - 1;
    json_error_t error;
    switch (line[0]) {
    case 'l':
        answer(sides->watch_etcd, false, list_json(text, rest), NULL);
        break;
    case 'c':
        answer(sides->watch_etcd, true, change_json(text, rest), NULL);
        break;
    case 'L':
        answer(sides->watch_etcd, false, json_loadb(text, rest, 0, &error), NULL);
        break;
    case 'C':
        answer(sides->watch_etcd, true, json_loadb(text, rest, 0, &error), NULL);
        break;
    case 'f':
        answer(sides->watch_etcd, rest > 0, NULL, "refused");
        break;
    case 'a':
        watch_report_again(sides->watch);
        break;
    case 'r':
        answer(sides->registration_etcd, false, json_loadb(text, rest, 0, &error), NULL);
        break;
    case 'k':
        answer(sides->registration_etcd, false,
               json_pack("{s:[o]}", "kvs", entry_json(text, rest, 7)), NULL);
        break;
    case 'q':
        registration_remove(sides->registration);
        break;
    default:
        now_us += 100000 * (int64_t)(unsigned char)line[0];
    }
    (void)watch_turn(sides->watch);
    (void)registration_turn(sides->registration);
}

static void sides_open(struct sides *sides)
{
    static const struct clock clock = {read_clock, NULL};
    static const struct member member = {.name = "m0", .address = "127.0.0.1:7000"};
    static struct config config;
    struct error error;
    const struct watch_options watch = {.config = &config,
                                        .prefix = "/c/",
                                        .clock = &clock,
                                        .events = {on_joined, on_left, on_text, on_state}};
    const struct registration_options registration = {.config = &config,
                                                      .prefix = "/c/",
                                                      .lease_s = 5,
                                                      .clock = &clock,
                                                      .member = &member,
                                                      .state_changed = on_state};
    CHECK(watch_open(&watch, &sides->watch, &error) == ST_OK);
    sides->watch_etcd = opened;
    CHECK(registration_open(&registration, &sides->registration, &error) == ST_OK);
    sides->registration_etcd = opened;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sides sides;
    const char *at = (const char *)data, *end = at + size;
    memset(names, 0, sizeof(names));
    now_us = 1000000;
    sides_open(&sides);
    (void)watch_turn(sides.watch);
    (void)registration_turn(sides.registration);
    for (int i = 0; at < end && i < LINES_MAX; i++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((newline != NULL ? newline : end) - at);
        if (bytes > 0)
            take_line(&sides, at, bytes);
        at += bytes + 1;
    }
    watch_close(sides.watch);
    registration_close(sides.registration);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
#define VALUE(port)                                                                                \
    "{\"address\":\"127.0.0.1:" port "\",\"pool\":\"prompt\","                                     \
    "\"metadata_hash\":\"0123456789abcdef\",\"model_hash\":"                                       \
    "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}"
    static const char *const seeds[] = {
        "l0p0=" VALUE("7001") "|t0=" VALUE("7002") "\nc1p1=" VALUE(
            "7003") "\nc2p0\nc3t0=bad\na\n"
                    "l4p1=" VALUE("7003") "\nf\n\xff\nf1\n",
        "r{\"ID\":\"77\"}\nr{\"succeeded\":true}\n\xff\nr{\"result\":{\"TTL\":\"5\"}}\nr{"
        "\"succeeded\":"
        "false,\"responses\":[{\"response_range\":{\"kvs\":[{\"lease\":\"77\"}]}}]}\n\xff\nr{"
        "\"result\""
        ":{}}\nr{\"ID\":5}\nq\nr{}\n",
        "L{\"header\":{\"revision\":\"12\"},\"kvs\":[{\"key\":\"L2MvbWFjaGluZXMvcDA=\",\"value\":"
        "\"e30="
        "\",\"mod_revision\":3}]}\nC{\"result\":{\"canceled\":true}}\n\xff\nL{}\nC{\"result\":{"
        "\"events\":["
        "{\"type\":\"DELETE\",\"kv\":{\"key\":\"eA==\"}}]}}\n",
    };
    return fuzz_seed_text(seeds, sizeof(seeds) / sizeof(seeds[0]), index, buffer, capacity);
}
