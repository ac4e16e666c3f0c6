/* Goal: two gateways on the same machines do not disturb each other, each is told how much work
 * the other has there, and a dead gateway's resources are freed. Method: real machines in one
 * thread, the scripted gateway of cluster.h, and a second gateway of this test that sends single
 * messages. */
#include "machine/state.h"
#include "tests/check.h"
#include "tests/machine/cluster.h"

#include "tests/transport/loopback.h"

#include <string.h>

struct second { /* A second gateway, which sends single messages. */
    struct transport *transport;
    /* Peers of the machines that it is connected to. */
    struct transport_peer *peers[CLUSTER_MACHINES_MAX];
    uint32_t count;
    uint32_t down;
    uint32_t reserved;
    uint32_t tokens;
    bool link_down; /* A machine has reported that a link is down. */
    struct message_others others;
    struct cluster_reported_prefixes told; /* Reports of all machines that it is connected to. */
    struct message_buffer buffer;
};

static void on_up(void *self, struct transport_peer *peer)
{
    struct second *s = self;
    s->peers[s->count++] = peer;
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    (void)peer, (void)why, (void)text;
    ((struct second *)self)->down++;
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    (void)peer;
    struct second *s = self;
    struct message message;
    struct message_token token;
    struct error error;
    CHECK(message_decode(data, bytes, &message, &error) == ST_OK);
    CHECKF(message.kind != MESSAGE_FAILED, "%s", message.failed.text);
    if (message.kind == MESSAGE_RESERVED)
        s->reserved++;
    else if (message.kind == MESSAGE_TOKENS)
        while (message_tokens_next(&message.tokens, &token))
            s->tokens++;
    else if (message.kind == MESSAGE_OTHERS)
        s->others = message.others;
    else if (message.kind == MESSAGE_PREFIXES)
        cluster_prefixes_take(&s->told, &message.prefixes);
    else if (message.kind == MESSAGE_LINK)
        s->link_down |= !message.link.up;
}

static void second_open(struct second *s, struct cluster *c, const char *name)
{
    struct error error;
    *s = (struct second){0};
    struct transport_options options = {
        .identity = {.role = TRANSPORT_GATEWAY,
                     .metadata_hash = machine_metadata_hash(c->machines[0])},
        .events = {.peer_up = on_up, .peer_down = on_down, .message = on_message},
        .self = s,
    };
    snprintf(options.identity.name, sizeof(options.identity.name), "%s", name);
    CHECK(transport_open(&transport_loopback, &options, &s->transport, &error) == ST_OK);
}

static void settle(struct second *s, struct cluster *c)
{
    for (int i = 0; i < 40; i++) {
        cluster_clock_skip(c, 20000); /* STATS and OTHERS are sent at most ten times per second. */
        cluster_turn(c, 1);
        transport_progress(s->transport);
    }
}

static void second_connect(struct second *s, struct cluster *c, uint32_t machine)
{
    struct transport_peer *peer;
    struct error error;
    uint32_t count = s->count;
    CHECK(transport_connect(s->transport, c->addresses[machine], NULL, &peer, &error) >= 0);
    for (int i = 0; i < 1000 && s->count == count; i++)
        settle(s, c);
    CHECK(s->count == count + 1);
}

static void second_close(struct second *s)
{
    transport_close(s->transport);
    message_buffer_done(&s->buffer);
}

static void send(struct second *s, uint32_t peer, const struct message *message)
{
    CHECK(message_encode(message, TRANSPORT_PROTOCOL_VERSION, &s->buffer) == ST_OK);
    CHECK(transport_send(s->transport, s->peers[peer], s->buffer.data, s->buffer.bytes) == ST_OK);
}

static void reserve(struct second *s, uint32_t peer, uint64_t id, uint32_t prompt_tokens,
                    uint32_t output_tokens)
{
    struct message message = {.kind = MESSAGE_RESERVE,
                              .reserve = {.request = {.id = id, .generation = 1},
                                          .prompt_machine = "m0",
                                          .prompt_tokens = prompt_tokens,
                                          .sampling = cluster_sampling(output_tokens)}};
    send(s, peer, &message);
}

static const struct cluster_options two = {
    .machine_count = 2,
    .kv_tokens = {1024, 1024},
    .pools = {POOL_PROMPT, POOL_TOKEN},
    .prompt_batch_tokens = 64,
    .threads = 1,
};

static struct cluster *open_two(const char *model)
{
    struct cluster_options options = two;
    options.model = model;
    options.transport = &transport_loopback;
    return cluster_open(&options);
}

/* A gateway that connects later gets all prefixes that the machine holds; after that both gateways
 * get the changes. */
static void test_prefixes(const char *model)
{
    struct cluster *c = open_two(model);
    struct second s;
    uint32_t prompt[300] = {1};
    const struct sampling sampling = cluster_sampling(5);
    cluster_submit(c, prompt, 300, &sampling, 0, 1, TRANSFER_AUTO, false);
    cluster_finish(c);
    second_open(&s, c, "gateway-2");
    second_connect(&s, c, 1);
    settle(&s, c);
    CHECK(cluster_prefixes_match(c, 1, &c->reported_prefixes[1]) &&
          c->reported_prefixes[1].count == 2);
    CHECK(cluster_prefixes_match(c, 1, &s.told) && s.told.count == 2 && s.told.whole_reports == 1);
    prompt[0] = 2;
    cluster_submit(c, prompt, 300, &sampling, 0, 1, TRANSFER_AUTO, false);
    cluster_finish(c);
    settle(&s, c);
    CHECK(cluster_prefixes_match(c, 1, &c->reported_prefixes[1]) &&
          c->reported_prefixes[1].count == 4);
    CHECK(cluster_prefixes_match(c, 1, &s.told) && s.told.count == 4 && s.told.whole_reports == 1);
    for (prompt[0] = 3; prompt[0] < 7; prompt[0]++) { /* More prefixes than fit into memory. */
        cluster_submit(c, prompt, 300, &sampling, 0, 1, TRANSFER_AUTO, false);
        cluster_finish(c);
    }
    settle(&s, c);
    CHECK(cluster_prefixes_match(c, 1, &s.told) && s.told.removed_count > 0 &&
          s.told.whole_reports == 1);
    second_close(&s);
    cluster_wait_free(c, 2);
    cluster_close(c);
}

/* Each gateway is told the load of the other one, never its own. The load of a gateway that has
 * died is subtracted. */
static void test_load(const char *model)
{
    struct cluster *c = open_two(model);
    struct second s;
    uint32_t prompt[100] = {1};
    const struct sampling sampling = cluster_sampling(50);
    second_open(&s, c, "gateway-2");
    second_connect(&s, c, 1);
    CHECK(s.others.gateways == 2 && strcmp(s.others.leader, "gateway") == 0);
    CHECK(s.others.kv_tokens == 0 && c->others[1].kv_tokens == 0);
    CHECK(c->others[1].gateways == 2 && strcmp(c->others[1].leader, "gateway") == 0);
    reserve(&s, 0, 77ull << 32, 100, 60);
    reserve(&s, 0, 78ull << 32, 30, 10);
    settle(&s, c);
    CHECK(s.reserved == 2 && s.others.kv_tokens == 0 && s.others.decodes == 0);
    CHECK(c->others[1].kv_tokens == 200 && c->others[1].decodes == 2);
    CHECK(c->others[1].answers_taken == 2 && c->others[0].answers_taken == 0);
    cluster_submit(c, prompt, 100, &sampling, 0, 1, TRANSFER_AUTO, false);
    cluster_finish(c); /* While the other gateway's request runs. */
    settle(&s, c);
    CHECK(s.others.kv_tokens == 0 && s.others.answers_taken == 1);
    CHECK(c->others[1].kv_tokens == 200 && s.tokens == 0);
    second_close(&s);
    cluster_wait_free(c, 70); /* No message says that PREFILL was never sent: the lease ends. */
    cluster_clock_skip(c, 200000);
    for (int i = 0; i < 20; i++)
        cluster_turn(c, 1);
    CHECK(c->others[1].kv_tokens == 0 && c->others[1].gateways == 1);
    cluster_close(c);
}

/* A machine keeps a share of its memory for prompts while any gateway says that it is in the
 * mixed pool. All gateways are told the latest home pool. A reservation of nearly all of the
 * memory waits, which shows the share. */
static void test_roles(const char *model)
{
    struct cluster *c = open_two(model);
    struct second s;
    second_open(&s, c, "gateway-2");
    second_connect(&s, c, 1);
    struct message role = {.kind = MESSAGE_ROLE,
                           .role = {.pool = POOL_MIXED, .home = POOL_MIXED, .serial = 0}};
    send(&s, 0, &role);
    settle(&s, c);
    CHECK(c->others[1].is_in_mixed_pool && !s.others.is_in_mixed_pool);
    CHECK(c->others[1].home_pool == POOL_TOKEN && c->others[1].home_serial == 0);
    struct message plain = {.kind = MESSAGE_ROLE,
                            .role = {.pool = POOL_TOKEN, .home = POOL_PROMPT, .serial = 5}};
    cluster_send(c, 1, &plain); /* Does not cancel the other gateway's report. */
    settle(&s, c);
    CHECK(c->others[1].is_in_mixed_pool && s.others.home_pool == POOL_PROMPT &&
          s.others.home_serial == 5);
    plain.role.home = POOL_MIXED;
    cluster_send(c, 1, &plain); /* Not newer than the last report. */
    settle(&s, c);
    CHECK(s.others.home_pool == POOL_PROMPT);
    reserve(&s, 0, 1ull << 32, 100, 10);
    settle(&s, c);
    CHECK(s.reserved == 1);
    uint32_t prompt[400] = {1};
    const struct sampling sampling = cluster_sampling(200);
    struct cluster_request *large =
        cluster_submit(c, prompt, 400, &sampling, 0, 1, TRANSFER_AUTO, false);
    settle(&s, c);
    /* 600 tokens beside 110 are more than the half that is not kept for prompts. */
    CHECK(!large->reserved);
    second_close(&s); /* The gateway's report and its blocks go with it. */
    cluster_finish(c);
    CHECK(large->done);
    cluster_wait_free(c, 70);
    cluster_close(c);
}

/* A link stays while one gateway wants it, and uses the address that works. */
static void test_links(const char *model)
{
    struct cluster *c = open_two(model);
    struct second s;
    second_open(&s, c, "gateway-2");
    second_connect(&s, c, 0);
    struct message peer = {.kind = MESSAGE_PEER, .peer = {.name = "m1", .address = "elsewhere:1"}};
    send(&s, 0, &peer);
    settle(&s, c);
    CHECK(c->links[0][1] && !s.link_down);
    peer.peer.address[0] = 0;
    send(&s, 0, &peer); /* The machine no longer belongs to this gateway's cluster. */
    settle(&s, c);
    CHECK(c->links[0][1] && !s.link_down);
    cluster_send(c, 0, &peer);
    settle(&s, c);
    CHECK(!c->links[0][1] && s.link_down);
    second_close(&s);
    cluster_close(c);
}

/* A gateway connects again before its old connection is known to be dead. The new connection
 * replaces the old one. */
static void test_again(const char *model)
{
    struct cluster *c = open_two(model);
    struct second s;
    second_open(&s, c, "gateway-2");
    second_connect(&s, c, 1);
    reserve(&s, 0, 7ull << 32, 100, 60);
    settle(&s, c);
    CHECK(s.reserved == 1 && c->others[1].kv_tokens == 160);
    second_connect(&s, c, 1);
    settle(&s, c);
    CHECK(s.down == 1 && c->others[1].gateways == 2);
    reserve(&s, 1, 8ull << 32, 100, 60);
    settle(&s, c);
    CHECK(s.reserved == 2);
    second_close(&s);
    cluster_wait_free(c, 70);
    cluster_close(c);
}

/* More gateways connect at once than a machine takes. The machine disconnects all that are too
 * many, and serves the others. */
static void test_too_many(const char *model)
{
    enum { GATEWAYS = 40 };
    static struct second many[GATEWAYS];
    struct cluster *c = open_two(model);
    struct transport_peer *peer;
    struct error error;
    char name[24];
    uint32_t served = 0;
    for (uint32_t i = 0; i < GATEWAYS; i++) {
        snprintf(name, sizeof(name), "gateway-%u", i);
        second_open(&many[i], c, name);
        CHECK(transport_connect(many[i].transport, c->addresses[1], NULL, &peer, &error) >= 0);
    }
    for (int turn = 0; turn < 3; turn++) {
        for (uint32_t i = 0; i < GATEWAYS; i++)
            transport_progress(many[i].transport);
        cluster_turn(c, 1);
    }
    for (uint32_t i = 0; i < GATEWAYS; i++) {
        CHECK(many[i].count == 1);
        served += many[i].down == 0;
    }
    CHECKF(served == MACHINE_GATEWAYS_MAX - 1, "%u gateways are connected, and that of the cluster",
           served);
    for (uint32_t i = 0; i < GATEWAYS; i++)
        second_close(&many[i]);
    cluster_close(c);
}

int main(void)
{
    const char *model = cluster_synthetic_model();
    test_prefixes(model);
    test_load(model);
    test_roles(model);
    test_links(model);
    test_again(model);
    test_too_many(model);
    return 0;
}
