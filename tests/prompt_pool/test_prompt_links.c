/* Goal: a link that a gateway has requested is set up, reconnects with back-off, and reports in one
 * line why it is down. Method: one transport with links, and token machines that appear and
 * disappear over the loopback transport; the test sets the time. */
#include "tests/check.h"
#include "tests/transport/loopback.h"

#include "prompt_pool/prompt_links.h"
#include "transport/peer_user.h"

#include <string.h>

static struct prompt_links *links;
static struct transport *ours;
static int64_t now_us = 1000000;
static struct message_link reported;
static uint32_t asked_count, report_count, lost_count, drop_count;
static bool later;                   /* `prepare` does not report at once. */
static uint32_t target;              /* The target of the last call. */
static struct transport_peer *to_us; /* The token machine's side of the connection. */

static struct message_link measured;
static uint32_t measured_count;

static void on_report(void *self, const struct message_link *link)
{
    (void)self;
    reported = *link;
    report_count++;
}

static void on_asked(void *self, const struct message_link *link)
{
    (void)self;
    CHECK(link->up && strcmp(link->name, reported.name) == 0);
    asked_count++;
}

static void on_measured(void *self, const struct message_link *link)
{
    (void)self;
    measured = *link;
    measured_count++;
}

static void on_lost(void *self, struct transport_peer *peer, const char *text)
{
    (void)self;
    CHECK(peer != NULL && text[0] != 0);
    lost_count++;
}

static void on_prepare(void *self, uint32_t number, const struct message_peer *machine,
                       struct transport_peer *peer, const struct message_stages *stages)
{
    (void)self, (void)peer;
    CHECK(stages->count == 1 && strcmp(machine->name, "t0") == 0 && machine->address[0] != 0);
    target = number;
    if (!later)
        prompt_links_target_prepared(links, number, true, "prepared", now_us);
}

static void on_drop(void *self, uint32_t number)
{
    (void)self;
    CHECK(number < LIMIT_MACHINES);
    drop_count++;
}

static void say_stages(struct transport *t, struct transport_peer *peer)
{
    const struct message_stage whole = {.paths = 1, .end_layer = 4, .end_head = 1};
    const struct message message = {.kind = MESSAGE_STAGES,
                                    .stages = {.count = 1, .stages = &whole}};
    struct message_buffer buffer = {0};
    CHECK(message_encode(&message, TRANSPORT_PROTOCOL_VERSION, &buffer) == ST_OK);
    transport_send(t, peer, buffer.data, buffer.bytes);
    message_buffer_done(&buffer);
}

/* Machines that links connect to report their layers. */
static void on_up(void *self, struct transport_peer *peer)
{
    if (transport_peer_user(peer) != NULL) {
        prompt_links_peer_up(links, peer, now_us);
        return;
    }
    to_us = peer;
    say_stages(*(struct transport **)self, peer);
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    (void)self, (void)why;
    if (transport_peer_user(peer) != NULL)
        prompt_links_peer_down(links, peer, text, now_us);
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct message message;
    struct error error;
    (void)self;
    CHECK(peer_kind_of(peer) == PEER_LINK);
    CHECK(message_decode(data, bytes, &message, &error) == ST_OK);
    prompt_links_stages_take(links, peer, &message.stages, now_us);
}

static void on_flushed(void *self, struct transport_peer *peer, uint64_t cookie, enum status status)
{
    (void)self, (void)peer, (void)cookie, (void)status;
}

static struct transport *machine_open_as(const char *name, const char *address)
{
    static struct transport *opened[16];
    static uint32_t count;
    struct transport **t = &opened[count++];
    struct error error;
    char bound[LIMIT_ADDRESS_BYTES];
    struct transport_options options = {.identity = {.role = TRANSPORT_MACHINE},
                                        .events = {on_up, on_down, on_message, on_flushed, NULL},
                                        .self = t,
                                        .region_bytes = 4096};
    snprintf(options.identity.name, LIMIT_NAME_BYTES, "%s", name);
    CHECK(transport_open(&transport_loopback, &options, t, &error) == ST_OK);
    CHECK(transport_listen(*t, address, bound, &error) == ST_OK);
    return *t;
}

/* Lets time pass in steps of 10 ms. */
static void pass(int64_t us, struct transport *other)
{
    for (int64_t until_us = now_us + us; now_us < until_us; now_us += 10000) {
        prompt_links_turn(links, now_us);
        transport_progress(ours);
        if (other != NULL)
            transport_progress(other);
    }
}

/* A transfer of `bytes` bytes that takes us microseconds. */
static void transfer(uint32_t number, uint64_t bytes, int64_t us)
{
    static uint64_t cookie;
    prompt_links_written(links, number, bytes, now_us);
    prompt_links_flush_begun(links, number, ++cookie);
    now_us += us;
    prompt_links_flushed(links, number, cookie, now_us);
}

/* The first measurement is reported at once, a changed one after a second, an unchanged one not at
 * all. The link's state keeps it, until the KV travels another way. */
static void test_speed(uint32_t number)
{
    transfer(number, 1000000, 1000);
    CHECK(measured_count == 1 && measured.up && strcmp(measured.name, "t0") == 0);
    CHECK(measured.latency_us == 0 && measured.bytes_per_s == 1000000000);
    for (uint32_t i = 0; i < 50; i++)
        transfer(number, 1000000, 2000);
    CHECK(measured_count == 1);
    now_us += 1000000;
    transfer(number, 1000000, 2000);
    CHECK(measured_count == 2 && measured.bytes_per_s < 600000000);
    now_us += 1000000;
    transfer(number, 1000000, 2000);
    CHECK(measured_count == 2);
    const char *why;
    struct transport_peer *peer = prompt_links_find(links, "t0", &number, &why);
    prompt_links_transport_changed(links, peer, "another way");
    CHECK(reported.up && strcmp(reported.text, "another way") == 0 && reported.bytes_per_s == 0);
    prompt_links_transport_changed(links, peer, "prepared");
}

int main(void)
{
    const char *why = NULL;
    uint32_t number = 0;
    ours = machine_open_as("p0", "p0");
    const struct prompt_links_options options = {
        .name = "p0",
        .transport = ours,
        .link_changed = on_report,
        .link_asked = on_asked,
        .link_measured = on_measured,
        .peer_lost = on_lost,
        .target_prepare = on_prepare,
        .target_drop = on_drop,
    };
    CHECK(prompt_links_open(&options, &links) == ST_OK);
    /* There is nothing to do, so there are no wake-ups. */
    CHECK(prompt_links_turn(links, now_us) == INT64_MAX);
    CHECK(prompt_links_find(links, "t0", &number, &why) == NULL &&
          strstr(why, "no gateway") != NULL);

    struct message_peer self = {.name = "p0", .address = "p0"};
    CHECK(prompt_links_peer_set(links, 0, &self, now_us) == ST_OK);
    CHECK(reported.up && strcmp(reported.name, "p0") == 0);

    struct message_peer peer = {.name = "t0", .address = "nowhere"};
    CHECK(prompt_links_peer_set(links, 0, &peer, now_us) == ST_OK);
    report_count = 0;
    pass(10000000, NULL);
    CHECK(report_count == 1 && !reported.up &&
          strstr(reported.text, "refused") != NULL); /* The reason is reported once. */
    int64_t next_us = prompt_links_turn(links, now_us);
    /* The link is still tried, but not too often. */
    CHECK(next_us > now_us && next_us <= now_us + 2000000);
    CHECK(prompt_links_find(links, "t0", &number, &why) == NULL && strstr(why, "refused") != NULL);
    CHECK(prompt_links_peer_set(links, 0, &peer, now_us) ==
          ST_OK); /* A request for the same link is tried and reported again. */
    CHECK(report_count == 1 && prompt_links_turn(links, now_us) > now_us);
    pass(50000, NULL);
    CHECK(report_count == 2 && !reported.up && strstr(reported.text, "refused") != NULL);

    struct transport *t0 = machine_open_as("t0", "here");
    memcpy(peer.address, "here", 5);
    /* A new address is tried at once. */
    CHECK(prompt_links_peer_set(links, 0, &peer, now_us) == ST_OK);
    pass(50000, t0);
    CHECK(reported.up && prompt_links_find(links, "t0", &number, &why) != NULL);
    report_count = 0;
    /* Requested again: the gateway gets an answer, but the link has not changed. */
    CHECK(asked_count == 0 && prompt_links_peer_set(links, 0, &peer, now_us) == ST_OK);
    CHECK(asked_count == 1 && report_count == 0 && reported.up);

    test_speed(number);
    CHECK(prompt_links_has_path(links, number, 0) && !prompt_links_has_path(links, number, 1));
    const struct message_peer nameless = {.address = "here"};
    CHECK(prompt_links_peer_set(links, 0, &nameless, now_us) == ST_INVALID);

    /* Flushes to the processes of the first report are never reported once the target names other
     * processes. */
    lost_count = drop_count = 0;
    say_stages(t0, to_us);
    pass(20000, t0);
    CHECK(lost_count == 1 && drop_count == 1 && !reported.up);
    CHECK(strcmp(reported.text, "it has sent the places of its layers twice") == 0);
    pass(300000, t0);
    CHECK(reported.up && prompt_links_find(links, "t0", &number, &why) != NULL);

    /* The prepared connections are no longer valid: all of them begin again, and the link is up
     * when all of them are up. */
    later = true;
    lost_count = drop_count = 0;
    prompt_links_target_prepared(links, target, false, "a stage is gone", now_us);
    CHECK(!reported.up && strcmp(reported.text, "a stage is gone") == 0);
    CHECK(lost_count == 1 && drop_count == 1);
    pass(300000, t0);
    CHECK(!reported.up && prompt_links_find(links, "t0", &number, &why) == NULL);
    later = false;
    prompt_links_target_prepared(links, target, true, "prepared", now_us);
    CHECK(reported.up && prompt_links_find(links, "t0", &number, &why) != NULL);
    CHECK(number == target);

    transport_close(t0); /* The machine dies, and returns. */
    lost_count = 0;
    pass(50000, NULL);
    CHECK(lost_count == 1 && !reported.up && prompt_links_find(links, "t0", &number, &why) == NULL);
    t0 = machine_open_as("t0", "here");
    pass(300000, t0);
    CHECK(reported.up);
    transport_close(t0);
    pass(50000, NULL);

    t0 = machine_open_as("someone", "here"); /* Another machine at the same address. */
    pass(3000000, t0);
    CHECK(!reported.up && strstr(reported.text, "is machine \"someone\", want \"t0\"") != NULL);
    printf("%s\n", reported.text);

    for (uint32_t i = 1; i < LIMIT_MACHINES; i++) {
        struct message_peer more = {.address = "nowhere"};
        snprintf(more.name, sizeof(more.name), "x%u", i);
        CHECK(prompt_links_peer_set(links, 0, &more, now_us) == ST_OK);
    }
    struct message_peer over = {.name = "over", .address = "nowhere"};
    CHECK(prompt_links_peer_set(links, 0, &over, now_us) == ST_NO_RESOURCE);
    prompt_links_close(links);
    transport_close(ours);
    transport_close(t0);
    return 0;
}
