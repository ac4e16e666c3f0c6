/* fuzz_gateway: machines that send any messages at any time, about any request, do not stop a
 * gateway: each client gets its tokens in order and one end, and in the end no request is left.
 * Method: the real gateway over the loopback transport; an input is a list of events. Machines
 * remember the requests that they were sent, and answer with messages whose fields come from the
 * input: valid ones about these requests, valid ones about others, and any bytes.
 *
 * Each input opens a gateway. So that this takes less time than the events, the gateway's
 * schedulers get small tables. */
#include "common/log.h"
#include "scheduler/options.h"
#include "server/gateway/internal.h"
#include "tests/check.h"
#include "tests/fuzz.h"
#include "tests/fuzz_input.h"
#include "tests/server/gateway/gateway_parts.h"
#include "tests/transport/loopback.h"
#include "tests/transport/message_example.h"

#define MACHINES   3
#define CLIENTS    8
#define KNOWN      8 /* Requests that a machine remembers. */
#define EVENTS_MAX 300

struct machine {
    struct transport *transport; /* NULL = dead. */
    struct transport_peer *gateway;
    struct message_request known[KNOWN];
    uint32_t known_next;
    uint32_t starts;
};

struct client {
    struct gateway_request *request; /* NULL = none. */
    uint32_t tokens, scored;
};

static struct cluster {
    struct config config;
    struct clock clock;
    int64_t now_us;
    struct fleet *fleet;
    struct metrics *metrics;
    struct gateway *gateway;
} cluster;
static struct machine machines[MACHINES];
static struct client clients[CLIENTS];

/* ---- the cluster ---- */

struct sched_cluster_options
__real_sched_cluster_options_make(const struct config *config,
                                  const struct sched_cluster_facts *facts);
struct sched_cluster_options
__wrap_sched_cluster_options_make(const struct config *config,
                                  const struct sched_cluster_facts *facts);
ssize_t __wrap_getrandom(void *buffer, size_t bytes, unsigned flags);

struct sched_cluster_options
__wrap_sched_cluster_options_make(const struct config *config,
                                  const struct sched_cluster_facts *facts)
{
    struct sched_cluster_options options = __real_sched_cluster_options_make(config, facts);
    options.machine_count = MACHINES;
    options.request_count = 256;
    options.prefix_count = 64;
    return options;
}

/* The gateway's name and ids do not change the path of an input. */
ssize_t __wrap_getrandom(void *buffer, size_t bytes, unsigned flags)
{
    (void)flags;
    memset(buffer, 0x5a, bytes);
    return (ssize_t)bytes;
}

static int64_t now_of(void *self)
{
    return ((const struct cluster *)self)->now_us;
}

static void cluster_open(void)
{
    struct cluster *c = &cluster;
    memset(c, 0, sizeof(*c));
    gateway_parts_config(1, 1, 1, 16, &c->config);
    c->now_us = 1000000;
    c->clock = (struct clock){.now_us = now_of, .self = c};
    gateway_parts_open(&c->config, &c->clock, &c->fleet, &c->metrics, &c->gateway);
}

static void cluster_close(void)
{
    gateway_close(cluster.gateway);
    metrics_close(cluster.metrics);
    fleet_close(cluster.fleet);
}

/* ---- clients ---- */

static void on_token(void *self, const struct message_token *token)
{
    struct client *client = self;
    CHECK(client->request != NULL && token->top_count <= LIMIT_LOGPROBS);
    if (token->scored)
        CHECK(token->index == ++client->scored);
    else
        CHECK(token->index == client->tokens++);
}

static void on_ended(void *self, enum gateway_end end, const char *text, uint32_t retry_after_s)
{
    struct client *client = self;
    (void)retry_after_s;
    CHECK(client->request != NULL && (end == GATEWAY_DONE || text[0] != 0));
    client->request = NULL;
}

static void submit(struct client *client, struct fuzz_input *in)
{
    uint32_t prompt[300];
    uint8_t flags = fuzz_byte(in);
    const struct gateway_submit submit = {
        .prompt = prompt,
        .prompt_count = 1 + fuzz_byte(in),
        .sampling = {.output_tokens_max = flags % 8, .top_p = 1, .logprobs = -1},
        .score_prompt = flags >> 3 & 1,
        .transfer_mode = (uint8_t)((flags >> 4) % 3),
        .priority = (int8_t)fuzz_byte(in),
        .key = flags >> 6,
        .client = {.token = on_token, .ended = on_ended, .self = client}};
    if (client->request != NULL)
        return;
    for (uint32_t i = 0; i < 300; i++)
        prompt[i] = i / 20 % (1 + flags % 3);
    *client = (struct client){0};
    if (gateway_submit(cluster.gateway, &submit, &client->request) != ST_OK)
        client->request = NULL;
}

static void release(struct client *client, bool stopped)
{
    if (client->request != NULL)
        gateway_release(cluster.gateway, client->request,
                        stopped ? GATEWAY_STOPPED : GATEWAY_CLIENT_GONE);
    client->request = NULL;
}

/* ---- machines ---- */

static void on_up(void *self, struct transport_peer *peer)
{
    ((struct machine *)self)->gateway = peer;
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    (void)peer, (void)why, (void)text;
    ((struct machine *)self)->gateway = NULL;
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct machine *m = self;
    struct message message;
    struct error error;
    (void)peer;
    CHECKF(message_decode(data, bytes, &message, &error) == ST_OK, "%s", error.text);
    if (message.kind == MESSAGE_RESERVE || message.kind == MESSAGE_PREFILL ||
        message.kind == MESSAGE_CANCEL)
        m->known[m->known_next++ % KNOWN] = message.reserve.request;
}

static void start(uint32_t index, uint8_t flags)
{
    struct machine *m = &machines[index];
    struct fleet_machine *record = &cluster.fleet->machines[index];
    struct transport_options options = {
        .identity = {.role = TRANSPORT_MACHINE,
                     .metadata_hash = FAKE_METADATA(FAKE_MODEL),
                     .model_hash = {{FAKE_MODEL + (flags % 8 == 7)}},
                     .block_tokens = FAKE_BLOCK_TOKENS},
        .events = {.peer_up = on_up, .peer_down = on_down, .message = on_message},
        .self = m,
        .block_count = 40};
    char want[LIMIT_ADDRESS_BYTES], bound[LIMIT_ADDRESS_BYTES];
    struct error error;
    if (m->transport != NULL)
        return;
    snprintf(options.identity.name, sizeof(options.identity.name), "%s", record->config.name);
    snprintf(want, sizeof(want), "%s:%u", record->config.name, ++m->starts);
    CHECK(transport_open(&transport_loopback, &options, &m->transport, &error) == ST_OK);
    CHECK(transport_listen(m->transport, want, bound, &error) == ST_OK);
    gateway_machine_address_set(cluster.gateway, record, bound);
}

static void stop(uint32_t index)
{
    transport_close(machines[index].transport);
    machines[index].transport = NULL;
    machines[index].gateway = NULL;
}

static void settle(void)
{
    for (int round = 0; round < 3; round++) {
        gateway_turn(cluster.gateway);
        for (uint32_t i = 0; i < MACHINES; i++)
            if (machines[i].transport != NULL)
                transport_progress(machines[i].transport);
    }
    gateway_turn(cluster.gateway);
}

/* A request that the machine knows, perhaps of another generation, or any. */
static struct message_request name_choose(const struct machine *m, struct fuzz_input *in)
{
    uint8_t choice = fuzz_byte(in);
    struct message_request name = m->known[choice % KNOWN];
    if (choice >= 240)
        name.id = fuzz_byte(in);
    if (choice % 32 == 31)
        name.generation += 1u + choice / 64;
    return name;
}

static void say_tokens(struct machine *m, struct fuzz_input *in, struct message_buffer *buffer)
{
    message_tokens_begin(buffer);
    for (uint32_t left = 1 + fuzz_below(in, 4); left > 0; left--) {
        struct message_request name = name_choose(m, in);
        uint8_t flags = fuzz_byte(in);
        struct message_token token = {.request = name.id,
                                      .generation = name.generation,
                                      .index = fuzz_byte(in) % 16u,
                                      .id = flags,
                                      .finish = flags % 3,
                                      .scored = flags >> 3 & 1,
                                      .has_logprob = flags >> 4 & 1,
                                      .top_count = (uint8_t)(flags >> 6),
                                      .cached_tokens = flags >> 5 & 1 ? 1000 : 0};
        CHECK(message_tokens_add(buffer, &token) == ST_OK);
    }
}

/* A valid message of any kind that a machine sends to a gateway. */
static bool message_choose(struct machine *m, struct fuzz_input *in, struct message_buffer *buffer)
{
    static const uint32_t kinds[] = {
        MESSAGE_RESERVED,  MESSAGE_TOKENS,   MESSAGE_PREFILLED, MESSAGE_RESERVED, MESSAGE_TOKENS,
        MESSAGE_PREFILLED, MESSAGE_FAILED,   MESSAGE_PREEMPTED, MESSAGE_STATS,    MESSAGE_PREFIXES,
        MESSAGE_ABOUT,     MESSAGE_OTHERS,   MESSAGE_LINK,      MESSAGE_LOADS,    MESSAGE_KV_READY,
        MESSAGE_CANCEL,    MESSAGE_PROGRESS, MESSAGE_PROBE};
    uint32_t kind = kinds[fuzz_below(in, sizeof(kinds) / sizeof(kinds[0]))];
    union any_message any;
    struct draws draws = {.seed = fuzz_byte(in)};
    if (kind == MESSAGE_TOKENS) {
        say_tokens(m, in, buffer);
        return true;
    }
    message_example(&draws, kind, &any);
    if (kind == MESSAGE_RESERVED || kind == MESSAGE_PREFILLED || kind == MESSAGE_FAILED ||
        kind == MESSAGE_PREEMPTED || kind == MESSAGE_KV_READY || kind == MESSAGE_CANCEL ||
        kind == MESSAGE_PROGRESS)
        any.control.reserved.request = name_choose(m, in);
    static uint32_t blocks[32];
    uint8_t choice = fuzz_byte(in);
    if (kind == MESSAGE_RESERVED && choice < 200) {
        any.control.reserved.blocks = blocks;
        any.control.reserved.block_count = choice % 32;
        any.control.reserved.held_span_count = choice / 100;
        any.control.reserved.path = 0;
    }
    if (kind == MESSAGE_LINK && choice < 200)
        snprintf(any.control.link.name, sizeof(any.control.link.name), "%s",
                 cluster.fleet->machines[choice % MACHINES].config.name);
    return any_encode(&any, kind, buffer) == ST_OK;
}

static void say(struct machine *m, struct fuzz_input *in)
{
    static struct message_buffer buffer;
    if (m->gateway != NULL && message_choose(m, in, &buffer))
        transport_send(m->transport, m->gateway, buffer.data, buffer.bytes);
}

static void say_bytes(struct machine *m, struct fuzz_input *in)
{
    size_t bytes;
    const uint8_t *data = fuzz_bytes(in, fuzz_byte(in), &bytes);
    if (m->gateway != NULL)
        transport_send(m->transport, m->gateway, data, bytes);
}

static void event(struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    uint32_t index = what / 16 % MACHINES;
    struct machine *m = &machines[index];
    switch (what % 16) {
    case 0:
    case 1:
        submit(&clients[what / 16 % CLIENTS], in);
        break;
    case 2:
        release(&clients[what / 16 % CLIENTS], what >= 128);
        break;
    case 3:
        start(index, what / 16);
        break;
    case 4:
        if (m->transport != NULL && what >= 128)
            stop(index);
        break;
    case 5:
        cluster.now_us += (int64_t)1 << fuzz_below(in, 26);
        break;
    case 6:
        say_bytes(m, in);
        break;
    case 7:
        return; /* Several messages arrive at a time. */
    default:
        say(m, in);
        if (what % 16 >= 13)
            return;
    }
    settle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    log_open("fuzz", LOG_ERROR);
    memset(machines, 0, sizeof(machines));
    memset(clients, 0, sizeof(clients));
    cluster_open();
    uint8_t up = fuzz_byte(&in);
    for (uint32_t i = 0; i < MACHINES; i++)
        if ((up >> i & 1) == 0)
            start(i, 0);
    settle();
    for (int i = 0; i < EVENTS_MAX && in.size > 0; i++)
        event(&in);
    for (uint32_t i = 0; i < CLIENTS; i++)
        release(&clients[i], i % 2 != 0);
    settle();
    for (uint32_t i = 0; i < MACHINES; i++)
        if (machines[i].transport != NULL)
            stop(i);
    settle();
    CHECK(requests_next(cluster.gateway->requests, NULL) == NULL);
    cluster_close();
    return 0;
}

/* A life without faults; then random events. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const uint8_t life[] = {
        0,                              /* all machines start */
        8 + 0x00, 11, 1,  201, 1,       /* p0: LINK to t0 */
        0x00,     5,  30, 0,            /* a request of five tokens */
        8 + 0x10, 0,  1,  0,   2,       /* t0: RESERVED */
        8 + 0x00, 1,  0,  0,   0, 0, 0, /* p0: token 0 */
        8 + 0x00, 2,  1,  0,   0,       /* p0: PREFILLED */
        8 + 0x10, 1,  0,  0,   0, 0, 1, /* t0: token 1 */
        8 + 0x10, 1,  0,  0,   0, 1, 2, /* t0: the last token */
    };
    if (index == 0) {
        memcpy(buffer, life, sizeof(life));
        return sizeof(life);
    }
    size_t bytes = 64u << index % 4;
    if (index >= 16 || bytes > capacity)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = (uint8_t)random_at(index, i);
    buffer[0] = 0;
    return bytes;
}
