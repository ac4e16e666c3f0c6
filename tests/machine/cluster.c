/* cluster: see the header. */
#include "tests/machine/cluster.h"

#include "tests/device/fake_compute.h"

#include "machine/state.h"
#include "model/file/model_file.h"
#include "model/forward/model.h"
#include "tests/check.h"
#include "tests/model/forward/synthetic.h"
#include "tests/transport/loopback.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t cluster_now_us(void *self)
{
    const struct cluster *c = self;
    return (c->clock_stopped_us != 0 ? c->clock_stopped_us : clock_now_us(&clock_system)) +
           c->skipped_us;
}

static struct cluster_request *request_of(struct cluster *c, uint64_t id, uint32_t generation)
{
    CHECK(id >= 1 && id <= c->request_count);
    struct cluster_request *request = &c->requests[id - 1];
    CHECK(request->attempt.generation == generation);
    return request;
}

static uint32_t machine_of(const struct transport_peer *peer)
{
    return (uint32_t)(uintptr_t)transport_peer_user(peer) - 1;
}

void cluster_send(struct cluster *c, uint32_t machine, const struct message *message)
{
    CHECK(message_encode(message, TRANSPORT_PROTOCOL_VERSION, &c->buffer) == ST_OK);
    if (c->peers[machine] != NULL && c->up[machine])
        transport_send(c->gateway, c->peers[machine], c->buffer.data, c->buffer.bytes);
}

static void send_prefill(struct cluster *c, struct cluster_request *request,
                         const struct message_reserved *reserved)
{
    struct message message = {
        .kind = MESSAGE_PREFILL,
        .prefill = {.request = request->attempt,
                    .score_prompt = request->score,
                    .transfer_mode = request->transfer_mode,
                    .sampling = request->sampling,
                    .path = (uint8_t)reserved->path,
                    .held_span_count = reserved->held_span_count,
                    .block_count = reserved->block_count,
                    .blocks = reserved->blocks,
                    .prompt_count = request->prompt_count,
                    .prompt = request->prompt},
    };
    if (request->token_machine != CLUSTER_NONE)
        snprintf(message.prefill.token_machine, LIMIT_NAME_BYTES, "m%u", request->token_machine);
    request->prefill_sent = true;
    cluster_send(c, request->prompt_machine, &message);
}

static void take_token(struct cluster *c, uint32_t machine, const struct message_token *token)
{
    struct cluster_request *request = request_of(c, token->request, token->generation);
    if (request->cancelled)
        return;
    CHECK(!request->done && !request->failed);
    if (token->scored) {
        CHECK(machine == request->prompt_machine && token->index == request->score_count + 1);
        request->scores[request->score_count++] = *token;
        return;
    }
    CHECKF(token->index == request->token_count, "request %" PRIu64 " token %u, want %u",
           token->request, token->index, request->token_count);
    CHECK(request->token_count < request->sampling.output_tokens_max);
    CHECK(machine == (token->index == 0 ? request->prompt_machine : request->token_machine));
    request->tokens[request->token_count++] = *token;
    request->done = token->finish != FINISH_NONE;
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct cluster *c = self;
    struct message message;
    struct error error;
    struct message_token token;
    struct cluster_request *request;
    uint32_t machine = machine_of(peer);
    c->message_us = clock_now_us(&clock_system);
    CHECKF(message_decode(data, bytes, &message, &error) == ST_OK, "%s", error.text);
    switch (message.kind) {
    case MESSAGE_RESERVED:
        if (message.reserved.request.generation == CLUSTER_COPY_GENERATION)
            return;
        request = request_of(c, message.reserved.request.id, message.reserved.request.generation);
        request->reserved = true;
        request->reserved_order = ++c->reserved_count;
        request->held_count = message.reserved.held_span_count;
        if (!request->cancelled)
            send_prefill(c, request, &message.reserved);
        return;
    case MESSAGE_TOKENS:
        while (message_tokens_next(&message.tokens, &token))
            take_token(c, machine, &token);
        return;
    case MESSAGE_PREFILLED:
        request = request_of(c, message.prefilled.request.id, message.prefilled.request.generation);
        CHECK(!request->prefilled);
        request->prefilled = true;
        request->figures = message.prefilled;
        request->figures.layer_us = NULL; /* It points into the message. */
        return;
    case MESSAGE_PROGRESS:
        request = request_of(c, message.progress.request.id, message.progress.request.generation);
        CHECK(message.progress.tokens < request->prompt_count);
        return;
    case MESSAGE_FAILED:
        request = request_of(c, message.failed.request.id, message.failed.request.generation);
        if (!request->failed)
            memcpy(request->failed_text, message.failed.text, sizeof(request->failed_text));
        request->failed = true;
        return;
    case MESSAGE_STATS:
        c->stats[machine] = message.stats;
        c->stats_count++;
        return;
    case MESSAGE_PREFIXES:
        cluster_prefixes_take(&c->reported_prefixes[machine], &message.prefixes);
        return;
    case MESSAGE_ABOUT:
        c->about[machine] = message.about;
        return;
    case MESSAGE_OTHERS:
        c->others[machine] = message.others;
        return;
    case MESSAGE_LOADS: /* Loads of the machine's stages. */
        CHECK(c->options.stages[machine] != NULL);
        return;
    case MESSAGE_LINK:
        c->links[machine][message.link.name[1] - '0'] = message.link.up;
        memcpy(c->link_text, message.link.text, sizeof(c->link_text));
        return;
    default:
        CHECKF(false, "a machine sent %s", message_kind_name(message.kind));
    }
}

static void on_up(void *self, struct transport_peer *peer)
{
    struct cluster *c = self;
    c->up[machine_of(peer)] = true;
}

static void on_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct cluster *c = self;
    (void)why;
    printf("gateway: m%u is down: %s\n", machine_of(peer), text);
    c->peers[machine_of(peer)] = NULL;
    c->up[machine_of(peer)] = false;
}

static void on_flushed(void *self, struct transport_peer *peer, uint64_t cookie, enum status status)
{
    (void)self, (void)peer, (void)cookie, (void)status;
    CHECK(false);
}

static void config_fill(struct cluster *c)
{
    struct config *config = &c->config;
    config_default(config);
    snprintf(config->model, sizeof(config->model), "%s", c->options.model);
    config->scheduler.prompt_batch_tokens = c->options.prompt_batch_tokens;
    config->scheduler.mixed_prompt_tokens = c->options.prompt_batch_tokens / 2;
    config->kv.layerwise_threshold_tokens = 64;
    if (c->options.tls != NULL)
        snprintf(config->transport.ucx_transports, sizeof(config->transport.ucx_transports), "%s",
                 c->options.tls);
    config->machine_count = c->options.machine_count;
    for (uint32_t i = 0; i < c->options.machine_count; i++) {
        struct config_machine *machine = &config->machines[i];
        *machine = (struct config_machine){.pool = c->options.pools[i],
                                           .local = true,
                                           .device = "cpu",
                                           .threads = c->options.threads};
        snprintf(machine->name, sizeof(machine->name), "m%u", i);
        if (c->options.stages[i] != NULL)
            snprintf(machine->stages, sizeof(machine->stages), "%s", c->options.stages[i]);
    }
}

/* Returns the bytes of the KV of `tokens` tokens of this model. */
static uint64_t kv_bytes(const struct cluster *c, uint32_t tokens)
{
    struct model_file *file;
    struct model_hyper hyper;
    struct error error;
    CHECKF(model_file_open(c->options.model, &file, &error) == ST_OK, "%s", error.text);
    CHECK(model_hyper_read(file, &hyper, &error) == ST_OK);
    model_file_close(file);
    uint32_t block_tokens = c->config.kv.block_tokens;
    return (uint64_t)(tokens / block_tokens) * hyper.layer_count *
           compute_kv_block_bytes(block_tokens, hyper.kv_head_count, hyper.head_dim,
                                  COMPUTE_KV_I16);
}

static const struct compute_ops *compute_of(uint32_t machine)
{
    const char *devices = getenv("CLEAVE_TEST_DEVICES");
    bool fake = devices != NULL && strlen(devices) > machine && devices[machine] == '1';
    return fake ? &fake_compute_ops : &compute_cpu;
}

/* Opens the machine's stages, and waits until the machine can serve. */
static void stages_start(struct cluster *c, uint32_t machine)
{
    struct config_stages stages;
    char bound[LIMIT_ADDRESS_BYTES];
    struct error error;
    config_stages(&c->config.machines[machine], &stages);
    CHECK(stages.count <= CLUSTER_STAGES_MAX);
    for (uint32_t i = 0; i < stages.count; i++) {
        struct stage **stage = &c->stages[c->stage_count];
        const struct stage_options options = {.config = &c->config,
                                              .machine_name = c->config.machines[machine].name,
                                              .process_index = i,
                                              .transport = c->options.transport,
                                              .compute = compute_of(machine),
                                              .clock = &c->clock};
        CHECKF(stage_open(&options, stage, &error) == ST_OK, "%s", error.text);
        CHECKF(stage_listen(*stage, stages.stages[i].address, bound, &error) == ST_OK, "%s",
               error.text);
        c->stage_count++;
    }
    for (int turn = 0; turn < 5000 && !machine_ready(c->machines[machine]); turn++) {
        CHECKF(machine_failure(c->machines[machine], &error) == ST_OK, "%s", error.text);
        cluster_turn(c, 5);
    }
    CHECK(machine_ready(c->machines[machine]));
}

static void machine_start(struct cluster *c, uint32_t i)
{
    char address[LIMIT_ADDRESS_BYTES];
    struct error error;
    const struct machine_options options = {
        .config = &c->config,
        .name = c->config.machines[i].name,
        .transport = c->options.transport,
        .compute = i == 0 && c->options.compute != NULL ? c->options.compute : compute_of(i),
        .clock = &c->clock};
    c->config.machines[i].kv_memory_bytes = kv_bytes(c, c->options.kv_tokens[i]);
    CHECKF(machine_open(&options, &c->machines[i], &error) == ST_OK, "%s", error.text);
    stages_start(c, i);
    snprintf(address, sizeof(address), "%s",
             c->options.transport == &transport_loopback ? c->config.machines[i].name
                                                         : "127.0.0.1:0");
    CHECKF(machine_listen(c->machines[i], address, c->addresses[i], &error) == ST_OK, "%s",
           error.text);
}

static bool all_linked(const struct cluster *c)
{
    for (uint32_t i = 0; i < c->options.machine_count; i++)
        for (uint32_t j = 0; j < c->options.machine_count; j++)
            if (!c->links[i][j])
                return false;
    return true;
}

void cluster_reconnect(struct cluster *c, uint32_t machine)
{
    struct error error;
    CHECK(transport_connect(c->gateway, c->addresses[machine], (void *)(uintptr_t)(machine + 1),
                            &c->peers[machine], &error) >= 0);
    while (!c->up[machine])
        cluster_turn(c, 1);
}

static void connect_all(struct cluster *c)
{
    for (uint32_t i = 0; i < c->options.machine_count; i++)
        cluster_reconnect(c, i);
    for (uint32_t i = 0; i < c->options.machine_count; i++)
        for (uint32_t j = 0; j < c->options.machine_count; j++) {
            struct message message = {.kind = MESSAGE_PEER};
            memcpy(message.peer.name, c->config.machines[j].name, LIMIT_NAME_BYTES);
            memcpy(message.peer.address, c->addresses[j], LIMIT_ADDRESS_BYTES);
            cluster_send(c, i, &message);
        }
    while (!all_linked(c))
        cluster_turn(c, 1);
}

struct cluster *cluster_open(const struct cluster_options *options)
{
    struct cluster *c = calloc(1, sizeof(*c));
    struct error error;
    CHECK(c != NULL);
    c->options = *options;
    c->clock = (struct clock){cluster_now_us, c};
    config_fill(c);
    for (uint32_t i = 0; i < options->machine_count; i++)
        machine_start(c, i);
    struct transport_options gateway = {
        .identity = {.name = "gateway",
                     .role = TRANSPORT_GATEWAY,
                     .metadata_hash = machine_metadata_hash(c->machines[0])},
        .events = {on_up, on_down, on_message, on_flushed, NULL},
        .self = c,
    };
    CHECKF(transport_open(options->transport, &gateway, &c->gateway, &error) == ST_OK, "%s",
           error.text);
    connect_all(c);
    return c;
}

void cluster_close(struct cluster *c)
{
    struct error error;
    for (uint32_t i = 0; i < c->options.machine_count; i++) {
        const struct kv_pool *kv = c->machines[i]->kv;
        CHECKF(machine_kv_check(c->machines[i], &error), "m%u: %s", i, error.text);
        CHECKF(kv_pool_available(kv) == kv_pool_block_count(kv),
               "m%u: %u of %u blocks are free or cached", i, kv_pool_available(kv),
               kv_pool_block_count(kv));
    }
    transport_close(c->gateway);
    for (uint32_t i = 0; i < c->options.machine_count; i++)
        machine_close(c->machines[i]);
    for (uint32_t i = 0; i < c->stage_count; i++)
        stage_close(c->stages[i]);
    CHECK(fake_compute_count() == 0); /* All device memory has been freed. */
    for (uint32_t i = 0; i < c->request_count; i++) {
        free(c->requests[i].prompt);
        free(c->requests[i].tokens);
        free(c->requests[i].scores);
    }
    message_buffer_done(&c->buffer);
    free(c);
}

struct cluster_request *cluster_submit(struct cluster *c, const uint32_t *prompt,
                                       uint32_t prompt_count, const struct sampling *sampling,
                                       uint32_t prompt_machine, uint32_t token_machine,
                                       uint8_t transfer_mode, bool score)
{
    CHECK(c->request_count < CLUSTER_REQUESTS_MAX);
    struct cluster_request *request = &c->requests[c->request_count++];
    *request = (struct cluster_request){
        .attempt = {.id = c->request_count, .generation = 1},
        .prompt = malloc(prompt_count * sizeof(prompt[0])),
        .prompt_count = prompt_count,
        .sampling = *sampling,
        .prompt_machine = prompt_machine,
        .token_machine = token_machine,
        .transfer_mode = transfer_mode,
        .score = score,
        .tokens = calloc(sampling->output_tokens_max + 1, sizeof(struct message_token)),
        .scores = calloc(prompt_count, sizeof(struct message_token)),
    };
    memcpy(request->prompt, prompt, prompt_count * sizeof(prompt[0]));
    if (token_machine == CLUSTER_NONE) {
        send_prefill(c, request, &(struct message_reserved){.blocks = prompt});
        return request;
    }
    struct message message = {.kind = MESSAGE_RESERVE,
                              .reserve = {.request = request->attempt,
                                          .prompt_tokens = prompt_count,
                                          .sampling = *sampling}};
    if (!score) {
        message.reserve.prompt_count = prompt_count;
        message.reserve.prefix_cache = true;
        message.reserve.prompt = prompt;
    }
    snprintf(message.reserve.prompt_machine, LIMIT_NAME_BYTES, "m%u", prompt_machine);
    cluster_send(c, token_machine, &message);
    return request;
}

void cluster_cancel(struct cluster *c, struct cluster_request *request)
{
    struct message message = {
        .kind = MESSAGE_CANCEL,
        .cancel = {.request = request->attempt, .writes_pending = request->prefill_sent}};
    if (cluster_request_over(request))
        return;
    request->cancelled = true;
    if (request->token_machine != CLUSTER_NONE)
        cluster_send(c, request->token_machine, &message);
    if (request->prefill_sent && request->prompt_machine != request->token_machine)
        cluster_send(c, request->prompt_machine, &message);
}

void cluster_turn(struct cluster *c, int wait_ms)
{
    struct pollfd fds[CLUSTER_MACHINES_MAX * (1 + CLUSTER_STAGES_MAX) + 1];
    nfds_t count = 0;
    int timeout_ms = wait_ms;
    for (uint32_t i = 0; i < c->options.machine_count && c->machines[i] != NULL; i++) {
        int wanted_ms = machine_turn(c->machines[i]);
        timeout_ms = wanted_ms >= 0 && wanted_ms < timeout_ms ? wanted_ms : timeout_ms;
        fds[count++] = (struct pollfd){.fd = machine_fd(c->machines[i]), .events = POLLIN};
    }
    for (uint32_t i = 0; i < c->stage_count; i++) {
        int wanted_ms = stage_turn(c->stages[i]);
        timeout_ms = wanted_ms >= 0 && wanted_ms < timeout_ms ? wanted_ms : timeout_ms;
        fds[count++] = (struct pollfd){.fd = stage_fd(c->stages[i]), .events = POLLIN};
    }
    if (c->gateway != NULL) {
        transport_progress(c->gateway);
        fds[count++] = (struct pollfd){.fd = transport_fd(c->gateway), .events = POLLIN};
    }
    poll(fds, count, timeout_ms);
}

bool cluster_request_over(const struct cluster_request *request)
{
    bool scored = !request->score || request->score_count + 1 == request->prompt_count;
    bool answered = request->done || request->sampling.output_tokens_max == 0;
    return request->failed || request->cancelled || (answered && scored && request->prefilled);
}

void cluster_finish(struct cluster *c)
{
    int64_t began_us = clock_now_us(&clock_system);
    for (uint32_t i = 0; i < c->request_count; i++)
        while (!cluster_request_over(&c->requests[i])) {
            int64_t last_us = c->message_us > began_us ? c->message_us : began_us;
            CHECKF(clock_now_us(&clock_system) < last_us + 60000000,
                   "request %u hangs: %u tokens, reserved %d prefilled %d", i + 1,
                   c->requests[i].token_count, c->requests[i].reserved, c->requests[i].prefilled);
            cluster_turn(c, 5);
        }
}

static bool all_free(const struct cluster *c)
{
    for (uint32_t i = 0; i < c->options.machine_count; i++)
        if (kv_pool_available(c->machines[i]->kv) != kv_pool_block_count(c->machines[i]->kv))
            return false;
    return true;
}

void cluster_wait_free(struct cluster *c, uint32_t seconds_max)
{
    int64_t until_us = clock_now_us(&clock_system) + 60000000;
    for (uint32_t step = 0; !all_free(c); step++) {
        CHECKF(clock_now_us(&clock_system) < until_us, "blocks do not come back within %u s",
               seconds_max);
        cluster_turn(c, 5);
        if (step >= 20 && step < 20 + 10 * seconds_max)
            cluster_clock_skip(c, 100000);
    }
}

void cluster_clock_skip(struct cluster *c, int64_t us)
{
    c->skipped_us += us;
}

void cluster_clock_stop(struct cluster *c, bool stopped)
{
    c->clock_stopped_us = stopped ? clock_now_us(&clock_system) : 0;
}

static uint32_t reported_at(const struct cluster_reported_prefixes *reported, uint64_t hash)
{
    uint32_t at = 0;
    while (at < reported->count && reported->hashes[at] != hash)
        at++;
    return at;
}

void cluster_prefixes_take(struct cluster_reported_prefixes *reported,
                           const struct message_prefixes *prefixes)
{
    if (prefixes->replaces_all)
        reported->count = 0;
    reported->whole_reports += prefixes->replaces_all;
    for (uint32_t i = 0; i < prefixes->count; i++) {
        uint32_t at = reported_at(reported, prefixes->hashes[i]);
        CHECK((at == reported->count) ==
              (prefixes->held[i] != 0)); /* Each report changes something. */
        CHECK(at < sizeof(reported->hashes) / sizeof(reported->hashes[0]));
        if (prefixes->held[i] != 0)
            reported->hashes[reported->count++] = prefixes->hashes[i];
        else
            reported->hashes[at] = reported->hashes[--reported->count];
        reported->removed_count += prefixes->held[i] == 0;
    }
}

bool cluster_prefixes_match(const struct cluster *c, uint32_t machine,
                            const struct cluster_reported_prefixes *reported)
{
    uint64_t hashes[sizeof(reported->hashes) / sizeof(reported->hashes[0])];
    uint32_t count = kv_prefix_list(c->machines[machine]->prefix, hashes, reported->count + 1);
    for (uint32_t i = 0; i < count && count == reported->count; i++)
        if (reported_at(reported, hashes[i]) == reported->count)
            return false;
    return count == reported->count;
}

#define HOST(port) "\"threads\": 1, \"host\": \"127.0.0.1:" #port "\""

const char *cluster_stages(const char *which, uint32_t machine)
{
    static const char *const split[3] = {
        "[{" HOST(1) "}, {" HOST(2) "}, {" HOST(3) "}]",
        "[{\"layers\": \"0-1\", " HOST(4) "}, "
                                          "{\"layers\": \"2-2\", " HOST(5) "}]"};
    static const char *const replicas[3] = {
        "[{\"layers\": \"0-0\", " HOST(1) "}, {\"layers\": \"0-0\", \"speed\": 50, " HOST(
            2) "}, "
               "{\"layers\": \"1-2\", " HOST(3) "}]",
        "[{" HOST(4) "}, {" HOST(5) "}]"};
    static const char *const ranks[3] = {
        "[{\"tensor_parallel\": 2, " HOST(1) "}]",
        "[{\"layers\": \"0-0\", " HOST(3) "}, {\"layers\": \"1-2\", \"tensor_parallel\": 2, " HOST(
            4) "}]"};
    return strcmp(which, "stages") == 0     ? split[machine]
           : strcmp(which, "replicas") == 0 ? replicas[machine]
           : strcmp(which, "ranks") == 0    ? ranks[machine]
                                            : NULL;
}

static char synthetic_path[64];

static void synthetic_remove(void)
{
    unlink(synthetic_path);
}

const char *cluster_synthetic_model(void)
{
    struct synthetic synthetic = synthetic_default();
    size_t bytes;
    synthetic.layers = 3;
    synthetic.vocab = 300;
    synthetic.context = 1024;
    uint8_t *image = synthetic_image(&synthetic, &bytes);
    snprintf(synthetic_path, sizeof(synthetic_path), "/tmp/cleave-test-XXXXXX");
    int fd = mkstemp(synthetic_path);
    CHECK(fd >= 0 && write(fd, image, bytes) == (ssize_t)bytes);
    close(fd);
    free(image);
    atexit(synthetic_remove);
    return synthetic_path;
}

struct sampling cluster_sampling(uint32_t output_tokens)
{
    return (struct sampling){.top_p = 1, .logprobs = -1, .output_tokens_max = output_tokens};
}
