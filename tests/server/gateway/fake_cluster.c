/* fake_cluster: see the header. */
#include "tests/server/gateway/fake_cluster.h"

#include "common/random.h"
#include "tests/check.h"
#include "tests/transport/loopback.h"

#include <string.h>

static int64_t fake_now(void *self)
{
    return ((struct fake_cluster *)self)->now_us;
}

uint32_t fake_next(const uint32_t *tokens, uint32_t count)
{
    return fake_next_of(FAKE_MODEL, tokens, count);
}

uint32_t fake_next_of(uint64_t model, const uint32_t *tokens, uint32_t count)
{
    uint64_t hash = count + model - FAKE_MODEL;
    for (uint32_t i = 0; i < count; i++)
        hash = random_at(hash, tokens[i]);
    return (uint32_t)(hash % 50);
}

static uint64_t model_of(const struct fake_machine *m)
{
    return m->model != 0 ? m->model : FAKE_MODEL;
}

/* ---- the cluster ---- */

struct fake_cluster *fake_cluster_open(uint32_t prompt, uint32_t token, uint32_t mixed,
                                       uint32_t kv_blocks, uint32_t queue_requests_max)
{
    struct fake_cluster *c = calloc(1, sizeof(*c));
    CHECK(c != NULL && prompt + token + mixed <= FAKE_MACHINES);
    gateway_parts_config(prompt, token, mixed, queue_requests_max, &c->config);
    for (uint32_t i = 0; i < c->config.machine_count; i++) {
        c->machines[i].cluster = c;
        c->machines[i].block_tokens = FAKE_BLOCK_TOKENS;
        c->machines[i].index = i;
        memcpy(c->machines[i].name, c->config.machines[i].name, sizeof(c->machines[i].name));
    }
    c->now_us = 1000000;
    c->clock = (struct clock){.now_us = fake_now, .self = c};
    c->kv_blocks = kv_blocks;
    c->links_at_once = true;
    gateway_parts_open(&c->config, &c->clock, &c->fleet, &c->metrics, &c->gateway);
    return c;
}

void fake_cluster_close(struct fake_cluster *c)
{
    gateway_close(c->gateway);
    for (uint32_t i = 0; i < c->fleet->count; i++) {
        if (c->machines[i].transport != NULL)
            fake_kill(&c->machines[i]);
        message_buffer_done(&c->machines[i].buffer);
    }
    metrics_close(c->metrics);
    fleet_close(c->fleet);
    free(c);
}

struct fake_machine *fake_machine(struct fake_cluster *c, const char *name)
{
    for (uint32_t i = 0; i < c->fleet->count; i++)
        if (strcmp(c->machines[i].name, name) == 0)
            return &c->machines[i];
    CHECKF(false, "no machine %s", name);
    return NULL;
}

struct fleet_machine *fake_record(const struct fake_machine *m)
{
    return &m->cluster->fleet->machines[m->index];
}

/* ---- saying ---- */

static void outbox_add(struct fake_machine *m)
{
    CHECK(m->outbox_count < FAKE_OUTBOX);
    struct fake_outgoing *out = &m->outbox[(m->outbox_first + m->outbox_count++) % FAKE_OUTBOX];
    out->bytes = m->buffer.bytes;
    out->data = malloc(m->buffer.bytes);
    CHECK(out->data != NULL);
    memcpy(out->data, m->buffer.data, m->buffer.bytes);
}

static void say(struct fake_machine *m, const struct message *message)
{
    CHECK(message_encode(message, TRANSPORT_PROTOCOL_VERSION, &m->buffer) == ST_OK);
    outbox_add(m);
}

void fake_send_one(struct fake_machine *m)
{
    if (m->outbox_count == 0 || m->transport == NULL)
        return;
    struct fake_outgoing *out = &m->outbox[m->outbox_first];
    if (m->gateway != NULL)
        transport_send(m->transport, m->gateway, out->data, out->bytes);
    free(out->data);
    m->outbox_first = (m->outbox_first + 1) % FAKE_OUTBOX;
    m->outbox_count--;
}

void fake_settle(struct fake_cluster *c)
{
    for (int round = 0; round < 8; round++) {
        gateway_turn(c->gateway);
        for (uint32_t i = 0; i < c->fleet->count; i++)
            if (c->machines[i].transport != NULL)
                transport_progress(c->machines[i].transport);
    }
    gateway_turn(c->gateway);
}

void fake_flush(struct fake_cluster *c)
{
    fake_settle(c);
    for (uint32_t i = 0; i < c->fleet->count; i++)
        while (c->machines[i].outbox_count > 0 && c->machines[i].transport != NULL)
            fake_send_one(&c->machines[i]);
    fake_settle(c);
}

/* ---- knowing ---- */

static bool is_token_side(const struct fake_request *r)
{
    return r->state <= FAKE_DECODING;
}

static struct fake_request *find(struct fake_machine *m, uint64_t id, bool token_side)
{
    for (uint32_t i = 0; i < FAKE_REQUESTS; i++)
        if (m->requests[i].id == id && is_token_side(&m->requests[i]) == token_side)
            return &m->requests[i];
    return NULL;
}

struct fake_request *fake_token_side(struct fake_machine *m, uint64_t id)
{
    return find(m, id, true);
}

struct fake_request *fake_prompt_side(struct fake_machine *m, uint64_t id)
{
    return find(m, id, false);
}

uint32_t fake_request_count(const struct fake_machine *m)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < FAKE_REQUESTS; i++)
        count += m->requests[i].id != 0;
    return count;
}

struct fake_request *fake_first_request(struct fake_machine *m)
{
    for (uint32_t i = 0; i < FAKE_REQUESTS; i++)
        if (m->requests[i].id != 0)
            return &m->requests[i];
    return NULL;
}

static struct fake_request *request_add(struct fake_machine *m, struct message_request name)
{
    for (uint32_t i = 0; i < FAKE_REQUESTS; i++) {
        if (m->requests[i].id != 0)
            continue;
        memset(&m->requests[i], 0, sizeof(m->requests[i]));
        m->requests[i].id = name.id;
        m->requests[i].generation = name.generation;
        return &m->requests[i];
    }
    CHECKF(false, "machine %u is full", m->index);
    return NULL;
}

/* ---- hearing ---- */

static uint32_t blocks_for(uint32_t tokens)
{
    return (tokens + FAKE_BLOCK_TOKENS - 1) / FAKE_BLOCK_TOKENS;
}

static void check_constraint(const struct fake_machine *m, const char *constraint, uint32_t bytes)
{
    const char *want = m->cluster->constraint != NULL ? m->cluster->constraint : "";
    CHECK(bytes == strlen(want) && (bytes == 0 || memcmp(constraint, want, bytes) == 0));
}

/* A machine answers at once. */
static void hear_copy(struct fake_machine *m, const struct message_reserve *reserve)
{
    static uint32_t blocks[FAKE_TOKENS / FAKE_BLOCK_TOKENS];
    const struct message_request name = reserve->request;
    CHECK(reserve->prompt_count == reserve->prompt_tokens &&
          reserve->prompt_count % FAKE_BLOCK_TOKENS == 0);
    m->copies_stored++;
    if (m->cluster->copies_refused)
        say(m, &(struct message){.kind = MESSAGE_FAILED,
                                 .failed = {.request = name, .status = ST_NO_RESOURCE}});
    else
        say(m, &(struct message){.kind = MESSAGE_RESERVED,
                                 .reserved = {.request = name,
                                              .block_count = blocks_for(reserve->prompt_tokens),
                                              .blocks = blocks}});
}

static void hear_reserve(struct fake_machine *m, const struct message_reserve *reserve)
{
    if (reserve->copy) {
        hear_copy(m, reserve);
        return;
    }
    m->reserves++;
    CHECK(fake_token_side(m, reserve->request.id) == NULL); /* the old generation was cancelled */
    CHECK(reserve->sampling.output_tokens_max > 1);
    CHECK(fleet_find(m->cluster->fleet, reserve->prompt_machine) != NULL);
    struct fake_request *r = request_add(m, reserve->request);
    r->state = FAKE_RESERVED;
    r->sampling = reserve->sampling;
    r->prompt_tokens = reserve->prompt_tokens;
    r->rank = reserve->rank;
    check_constraint(m, reserve->constraint, reserve->constraint_bytes);
    r->answer_count = reserve->answer_count;
    memcpy(r->tokens, reserve->answer, reserve->answer_count * sizeof(uint32_t));
    snprintf(r->partner, sizeof(r->partner), "%s", reserve->prompt_machine);
}

static void hear_prefill(struct fake_machine *m, const struct message_prefill *prefill)
{
    if (prefill->copied_generation > 0) {
        CHECK(prefill->block_count == blocks_for(prefill->prompt_count));
        m->copies_sent++;
        if (m->cluster->copies_fail) {
            say(m,
                &(struct message){.kind = MESSAGE_FAILED,
                                  .failed = {.request = prefill->request, .status = ST_NOT_FOUND}});
            return;
        }
        say(m, &(struct message){.kind = MESSAGE_PREFILLED,
                                 .prefilled = {.request = prefill->request}});
        return;
    }
    m->prefills++;
    CHECK(fake_prompt_side(m, prefill->request.id) == NULL);
    CHECK(prefill->prompt_count >= 1 && prefill->prompt_count < FAKE_TOKENS);
    struct fake_request *r = request_add(m, prefill->request);
    r->state = FAKE_PROMPT;
    r->sampling = prefill->sampling;
    r->score_prompt = prefill->score_prompt;
    r->transfer_mode = prefill->transfer_mode;
    r->rank = prefill->rank;
    check_constraint(m, prefill->constraint, prefill->constraint_bytes);
    r->answer_count = prefill->answer_count;
    r->block_count = prefill->block_count;
    memcpy(r->tokens, prefill->prompt, prefill->prompt_count * sizeof(uint32_t));
    r->count = prefill->prompt_count;
    snprintf(r->partner, sizeof(r->partner), "%s", prefill->token_machine);
    if (r->partner[0] == 0) {
        CHECK(prefill->sampling.output_tokens_max <= 1 && prefill->block_count == 0);
        return;
    }
    CHECK(prefill->block_count == blocks_for(prefill->prompt_count));
    for (uint32_t i = 0; i < prefill->block_count; i++)
        CHECK(prefill->blocks[i] == i + prefill->prompt_count);
    struct fake_request *there =
        fake_token_side(fake_machine(m->cluster, r->partner), prefill->request.id);
    if (there != NULL && there->generation == r->generation) {
        CHECK(there->state == FAKE_ANSWERED);
        CHECK(there->prompt_tokens == r->count);
    }
}

static void hear_cancel(struct fake_machine *m, const struct message_cancel *cancel)
{
    m->cancels++;
    m->cancel_writes_pending = cancel->writes_pending;
    struct fake_request *r = fake_token_side(m, cancel->request.id);
    if (r != NULL && r->generation == cancel->request.generation) {
        /* PREFILL follows RESERVED at once: a writer knows of the blocks only after it. */
        CHECK(!cancel->writes_pending || r->state != FAKE_RESERVED);
        r->id = 0;
    }
    r = fake_prompt_side(m, cancel->request.id);
    if (r != NULL && r->generation == cancel->request.generation) {
        CHECK(cancel->writes_pending);
        r->id = 0;
    }
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    (void)peer;
    struct fake_machine *m = self;
    struct message message;
    struct error error;
    CHECK(message_decode(data, bytes, &message, &error) == ST_OK);
    switch (message.kind) {
    case MESSAGE_RESERVE:
        hear_reserve(m, &message.reserve);
        break;
    case MESSAGE_PREFILL:
        hear_prefill(m, &message.prefill);
        break;
    case MESSAGE_CANCEL:
        hear_cancel(m, &message.cancel);
        break;
    case MESSAGE_PEER: {
        struct fake_machine *other = fake_machine(m->cluster, message.peer.name);
        if (message.peer.address[0] == 0) { /* it is no machine any more */
            m->peers &= ~(1ull << other->index);
            break;
        }
        const char *start = strrchr(message.peer.address, ':'); /* it may have died since */
        CHECK(start != NULL && strtoul(start + 1, NULL, 10) <= other->starts);
        if (strcmp(other->address, message.peer.address) != 0)
            break;
        m->peers |= 1ull << other->index;
        if (m->cluster->links_at_once) {
            fake_link(m, message.peer.name, true);
            while (m->outbox_count > 0)
                fake_send_one(m);
        }
        break;
    }
    case MESSAGE_ROLE:
        m->pool = message.role.pool;
        m->home = message.role.home;
        m->home_serial = message.role.serial;
        break;
    case MESSAGE_PROBE:
        say(m, &message);
        break;
    case MESSAGE_SHUTDOWN:
        m->shutdowns++;
        break;
    default:
        CHECKF(false, "a machine got %s", message_kind_name(message.kind));
    }
}

/* ---- living ---- */

static void on_peer_up(void *self, struct transport_peer *peer)
{
    ((struct fake_machine *)self)->gateway = peer;
}

static void outbox_clear(struct fake_machine *m)
{
    for (; m->outbox_count > 0; m->outbox_count--) {
        free(m->outbox[m->outbox_first].data);
        m->outbox_first = (m->outbox_first + 1) % FAKE_OUTBOX;
    }
}

static void on_peer_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    (void)peer, (void)why, (void)text;
    struct fake_machine *m = self; /* a machine drops the requests of a gateway that is gone */
    m->gateway = NULL;
    memset(m->requests, 0, sizeof(m->requests));
    outbox_clear(m);
}

void fake_start(struct fake_machine *m)
{
    CHECK(m->transport == NULL);
    struct transport_options options = {
        .identity = {.role = TRANSPORT_MACHINE,
                     .metadata_hash = FAKE_METADATA(model_of(m)),
                     .model_hash = {{(uint8_t)(model_of(m) + (m->has_other_weights ? 1 : 0))}},
                     .block_tokens = m->block_tokens,
                     .block_bytes = FAKE_BLOCK_BYTES,
                     .layer_count = 1},
        .events = {.peer_up = on_peer_up, .peer_down = on_peer_down, .message = on_message},
        .self = m,
        .block_count = m->cluster->kv_blocks,
    };
    snprintf(m->name, sizeof(m->name), "%s", fake_record(m)->config.name);
    snprintf(options.identity.name, sizeof(options.identity.name), "%s", m->name);
    struct error error;
    CHECK(transport_open(&transport_loopback, &options, &m->transport, &error) == ST_OK);
    char want[LIMIT_ADDRESS_BYTES];
    snprintf(want, sizeof(want), "%s:%u", m->name, ++m->starts);
    CHECK(transport_listen(m->transport, want, m->address, &error) == ST_OK);
    gateway_machine_address_set(m->cluster->gateway, fake_record(m), m->address);
}

void fake_start_all(struct fake_cluster *c)
{
    for (uint32_t i = 0; i < c->fleet->count; i++)
        fake_start(&c->machines[i]);
    fake_settle(c);
}

void fake_kill(struct fake_machine *m)
{
    transport_close(m->transport);
    m->transport = NULL;
    m->gateway = NULL;
    m->peers = 0;
    memset(m->requests, 0, sizeof(m->requests));
    outbox_clear(m);
}

/* ---- a machine's steps ---- */

void fake_link(struct fake_machine *from, const char *to, bool up)
{
    struct message message = {.kind = MESSAGE_LINK, .link = {.up = up}};
    snprintf(message.link.name, sizeof(message.link.name), "%s", to);
    snprintf(message.link.text, sizeof(message.link.text), "%s", up ? "loopback" : "pulled");
    say(from, &message);
}

void fake_link_speed(struct fake_machine *from, const char *to, uint32_t latency_us,
                     uint32_t tokens_per_s)
{
    struct message message = {
        .kind = MESSAGE_LINK,
        .link = {.up = true,
                 .latency_us = latency_us,
                 .bytes_per_s = (uint64_t)tokens_per_s * FAKE_BLOCK_BYTES / FAKE_BLOCK_TOKENS,
                 .error_percent = 7}};
    snprintf(message.link.name, sizeof(message.link.name), "%s", to);
    snprintf(message.link.text, sizeof(message.link.text), "loopback");
    say(from, &message);
}

void fake_stats(struct fake_machine *m, const struct message_stats *stats)
{
    struct message message = {.kind = MESSAGE_STATS, .stats = *stats};
    say(m, &message);
}

void fake_others(struct fake_machine *m, const struct message_others *others)
{
    struct message message = {.kind = MESSAGE_OTHERS, .others = *others};
    say(m, &message);
}

const char *fake_gateway_name(const struct fake_machine *m)
{
    return transport_peer_identity(m->gateway)->name;
}

void fake_reserved(struct fake_machine *m, struct fake_request *r)
{
    CHECK(r->state == FAKE_RESERVED);
    uint32_t blocks[FAKE_TOKENS / FAKE_BLOCK_TOKENS + 1];
    uint32_t count = blocks_for(r->prompt_tokens);
    for (uint32_t i = 0; i < count; i++)
        blocks[i] = i + r->prompt_tokens;
    struct message message = {
        .kind = MESSAGE_RESERVED,
        .reserved = {.request = {r->id, r->generation}, .block_count = count, .blocks = blocks}};
    say(m, &message);
    r->state = FAKE_ANSWERED;
}

static void token_say(struct fake_machine *m, const struct message_token *token)
{
    message_tokens_begin(&m->buffer);
    CHECK(message_tokens_add(&m->buffer, token) == ST_OK);
    outbox_add(m);
}

void fake_token_send(struct fake_machine *m, uint64_t id, uint32_t generation, uint32_t index,
                     uint32_t token, uint8_t finish)
{
    struct message_token t = {
        .request = id, .generation = generation, .index = index, .id = token, .finish = finish};
    token_say(m, &t);
}

/* Appends the next token and says it. True: the answer has ended with it. */
static bool token_step(struct fake_machine *m, struct fake_request *r)
{
    uint32_t token = fake_next_of(model_of(m), r->tokens, r->count);
    uint8_t finish = FINISH_NONE;
    if (token == FAKE_END_TOKEN && r->index + 1 >= r->sampling.output_tokens_min)
        finish = FINISH_STOP;
    else if (r->index + 1 == r->sampling.output_tokens_max)
        finish = FINISH_LENGTH;
    CHECK(r->count < FAKE_TOKENS);
    r->tokens[r->count++] = token;
    fake_token_send(m, r->id, r->generation, r->index++, token, finish);
    return finish != FINISH_NONE;
}

void fake_sample(struct fake_machine *m, struct fake_request *r)
{
    CHECK(r->state == FAKE_PROMPT);
    for (uint32_t i = 1; r->score_prompt && i < r->count; i++) {
        struct message_token t = {.request = r->id,
                                  .generation = r->generation,
                                  .index = i,
                                  .id = r->tokens[i],
                                  .scored = true,
                                  .has_logprob = true};
        token_say(m, &t);
    }
    r->state = FAKE_SAMPLED;
    if (r->sampling.output_tokens_max == 0 || token_step(m, r))
        r->id = 0;
}

void fake_hand_over(struct fake_machine *m, struct fake_request *r)
{
    CHECK(r->state == FAKE_SAMPLED);
    struct fake_machine *to = fake_machine(m->cluster, r->partner);
    struct fake_request *there = to->transport != NULL ? fake_token_side(to, r->id) : NULL;
    if (there != NULL && there->generation == r->generation) {
        memcpy(there->tokens, r->tokens, sizeof(r->tokens));
        there->count = r->count;
        there->index = 1;
        there->state = FAKE_DECODING;
    }
    struct message message = {.kind = MESSAGE_PREFILLED,
                              .prefilled = {.request = {r->id, r->generation}}};
    say(m, &message);
    r->id = 0;
}

void fake_decode(struct fake_machine *m, struct fake_request *r)
{
    CHECK(r->state == FAKE_DECODING);
    if (token_step(m, r))
        r->id = 0;
}

void fake_work(struct fake_machine *m, struct fake_request *r)
{
    if (r->state == FAKE_RESERVED)
        fake_reserved(m, r);
    else if (r->state == FAKE_PROMPT)
        fake_sample(m, r);
    else if (r->state == FAKE_SAMPLED && r->partner[0] != 0)
        fake_hand_over(m, r);
    else if (r->state == FAKE_DECODING)
        fake_decode(m, r);
}

void fake_preempt(struct fake_machine *m, struct fake_request *r)
{
    CHECK(r->state == FAKE_DECODING || r->state == FAKE_ANSWERED);
    struct message message = {.kind = MESSAGE_PREEMPTED,
                              .preempted = {.request = {r->id, r->generation}, .text = "full"}};
    message.preempted.generated = r->state == FAKE_DECODING ? r->index : 0;
    say(m, &message);
    r->id = 0;
}

void fake_progress(struct fake_machine *m, const struct fake_request *r, uint32_t tokens)
{
    say(m, &(struct message){.kind = MESSAGE_PROGRESS,
                             .progress = {.request = {r->id, r->generation}, .tokens = tokens}});
}

void fake_fail(struct fake_machine *m, struct fake_request *r, enum status status)
{
    struct message message = {.kind = MESSAGE_FAILED,
                              .failed = {.request = {r->id, r->generation}, .status = status}};
    say(m, &message);
    r->id = 0;
}

/* ---- a client ---- */

static void client_event(void *self, const struct gateway_event *event)
{
    struct fake_client *client = self;
    CHECK(client->request != NULL && !client->ended);
    CHECK(event->delivered == client->answered && event->after_us >= client->after_us);
    CHECK(event->generation >= client->generation);
    bool routed = event->kind == GATEWAY_EVENT_ROUTED || event->kind == GATEWAY_EVENT_PREFILLING ||
                  event->kind == GATEWAY_EVENT_FIRST_TOKEN ||
                  event->kind == GATEWAY_EVENT_TRANSFERRED;
    CHECK((event->prompt_machine != NULL) == routed);
    CHECK(event->token_machine == NULL || event->prompt_machine != NULL);
    CHECK((event->token != NULL) == (event->kind == GATEWAY_EVENT_FIRST_TOKEN));
    CHECK((event->transfer != NULL) == (event->kind == GATEWAY_EVENT_TRANSFERRED));
    client->generation = event->generation;
    client->after_us = event->after_us;
    size_t count = strlen(client->events);
    if (count + 1 < sizeof(client->events))
        client->events[count] = event->kind == GATEWAY_EVENT_RESUMING ? "LMH"[event->resume_reason]
                                                                      : "QRPFT"[event->kind];
}

static void client_token(void *self, const struct message_token *token)
{
    struct fake_client *client = self;
    CHECK(client->request != NULL && !client->ended);
    if (token->scored) {
        CHECK(client->score && token->index == client->scored_next);
        CHECK(token->index < client->prompt_count && token->id == client->tokens[token->index]);
        client->scored_next++;
        return;
    }
    CHECK(client->finish == FINISH_NONE);
    CHECK(client->answered < client->output_max);
    CHECK(!client->score || client->scored_next == client->prompt_count); /* scores come first */
    CHECKF(token->index == client->answered, "index %u, want %u", token->index, client->answered);
    uint32_t count = client->prompt_count + client->answered;
    uint32_t want = fake_next_of(client->model, client->tokens, count);
    CHECKF(token->id == want, "token %u at %u, want %u", token->id, token->index, want);
    client->tokens[count] = token->id;
    client->answered++;
    client->finish = token->finish;
    if (client->release_at > 0 && token->index == client->release_at) {
        gateway_release(client->cluster->gateway, client->request, GATEWAY_STOPPED);
        client->request = NULL;
    }
}

/* The phases are not negative, and add up to the time until the latest token. */
static void client_over(void *self, const struct gateway_summary *summary)
{
    struct fake_client *client = self;
    CHECK(client->request != NULL && !client->ended && client->overs++ == 0);
    int64_t now = client->cluster->now_us;
    int64_t until = summary->first_us >= 0 ? summary->first_us : now;
    int64_t before = summary->queue_us + summary->reserve_us + summary->prompt_us;
    int64_t after = summary->transfer_us + summary->resume_us + summary->decode_us;
    CHECKF(summary->queue_us >= 0 && summary->reserve_us >= 0 && summary->prompt_us >= 0 &&
               summary->transfer_us >= 0 && summary->resume_us >= 0 && summary->decode_us >= 0,
           "queue %lld reserve %lld prompt %lld transfer %lld resume %lld decode %lld",
           (long long)summary->queue_us, (long long)summary->reserve_us,
           (long long)summary->prompt_us, (long long)summary->transfer_us,
           (long long)summary->resume_us, (long long)summary->decode_us);
    CHECKF(before == until - client->submitted_us, "%lld of %lld", (long long)before,
           (long long)(until - client->submitted_us));
    CHECK(summary->first_us >= 0 ? after <= now - until : after == 0);
    CHECK((summary->first_us >= 0) == (client->answered > 0));
    CHECK(summary->resumed == client->generation && summary->id != 0);
    client->summary = *summary;
}

static void client_ended(void *self, enum gateway_end end, const char *text, uint32_t retry_after_s)
{
    struct fake_client *client = self;
    CHECK(client->request != NULL && !client->ended);
    bool at_once = (client->output_max == 0 && !client->score) || client->events[0] == 0;
    CHECK(client->overs == 1 || at_once);
    client->request = NULL;
    client->ended = true;
    client->end = end;
    client->retry_after_s = retry_after_s;
    snprintf(client->text, sizeof(client->text), "%s", text);
    if (end == GATEWAY_REFUSED)
        CHECK(client->answered == 0 && client->scored_next == 1);
    if (end != GATEWAY_DONE)
        return;
    CHECK(client->output_max == 0 || client->finish != FINISH_NONE);
    CHECK(!client->score || client->scored_next == client->prompt_count);
}

enum status fake_submit(struct fake_cluster *c, struct fake_client *client, uint32_t key,
                        uint32_t prompt_count, uint32_t output_max, bool score)
{
    CHECK(prompt_count + output_max <= FAKE_TOKENS);
    uint32_t release_at = client->release_at;
    memset(client, 0, sizeof(*client));
    client->release_at = release_at;
    client->cluster = c;
    client->prompt_count = prompt_count;
    client->scored_next = 1;
    client->submitted_us = c->now_us;
    client->output_max = output_max;
    client->score = score;
    client->model = c->model != 0 ? c->model : FAKE_MODEL;
    for (uint32_t i = 0; i < prompt_count; i++)
        client->tokens[i] = key + i;
    struct gateway_submit submit = {
        .prompt = client->tokens,
        .prompt_count = prompt_count,
        .sampling = {.top_p = 1, .seed = key, .logprobs = -1, .output_tokens_max = output_max},
        .score_prompt = score,
        .constraint = c->constraint,
        .constraint_bytes = c->constraint != NULL ? (uint32_t)strlen(c->constraint) : 0,
        .client = {.token = client_token,
                   .event = client_event,
                   .summarise = client_over,
                   .ended = client_ended,
                   .self = client},
    };
    return gateway_submit(c->gateway, &submit, &client->request);
}
