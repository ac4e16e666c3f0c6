/* Goal: in any order of events, each client gets each right token once and in order, and in the end
 * no machine knows a request that no client wants. Method: random steps from a printed seed over
 * six machines: clients connect and disconnect, machines work, die, return, fail requests and
 * preempt them, links break, messages of different machines overtake each other, and one model
 * follows another with other tokens. Then everything recovers, all open requests must end, and
 * every machine must be empty. After each step, what the gateway knows of each request fits the
 * request's state. */
#include "common/random.h"
#include "server/gateway/internal.h"
#include "tests/check.h"
#include "tests/server/gateway/fake_cluster.h"
#include "tools/simulate/replay_log.h"

#include <string.h>
#include <unistd.h>

#define CLIENTS 48
#define STEPS   30000

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static struct {
    uint64_t submitted, done, failed, refused, released, kills, versions;
} counts;

/* The models that are served: version n has FAKE_MODEL + n - 1. `other` 0: there is one. */
static uint32_t current = 1, other, last = 1;

static uint64_t model_of(uint32_t version)
{
    return FAKE_MODEL + version - 1;
}

/* A new version comes, takes over or goes; one that has requests may be cut. */
static void version_step(struct fake_cluster *c)
{
    struct error error;
    if (other == 0) {
        other = ++last;
        struct gateway_model model = {.metadata_hash = FAKE_METADATA(model_of(other)),
                                      .kv = c->config.kv};
        CHECK(gateway_version_open(c->gateway, other, &model, &error) == ST_OK);
    } else if (gateway_version_paired(c->gateway, other) && draw(3) != 0) {
        uint32_t was = current;
        current = other;
        other = was;
        gateway_version_use(c->gateway, current);
        c->model = model_of(current);
    } else if (gateway_version_requests(c->gateway, other) > 0) {
        if (draw(4) == 0)
            gateway_version_stop(c->gateway, other, "cut");
    } else {
        gateway_version_close(c->gateway, other);
        for (uint32_t i = 0; i < c->fleet->count; i++)
            if (c->machines[i].transport != NULL && c->machines[i].model == model_of(other))
                fake_kill(&c->machines[i]);
        other = 0;
        counts.versions++;
    }
}

static void client_step(struct fake_cluster *c, struct fake_client *client)
{
    if (client->request != NULL) {
        if (draw(40) != 0)
            return;
        gateway_release(c->gateway, client->request,
                        draw(2) != 0 ? GATEWAY_CLIENT_GONE : GATEWAY_STOPPED);
        client->request = NULL;
        counts.released++;
        return;
    }
    if (client->ended) {
        counts.done += client->end == GATEWAY_DONE;
        counts.failed += client->end == GATEWAY_FAILED;
        counts.refused += client->end == GATEWAY_REFUSED;
    }
    client->release_at = draw(8) == 0 ? 1 + draw(10) : 0;
    uint32_t output_max = draw(10) == 0 ? draw(2) : 2 + draw(60);
    CHECK(fake_submit(c, client, draw(1000), 1 + draw(120), output_max, draw(4) == 0) == ST_OK);
    counts.submitted++;
}

/* One step of one request that the machine knows of. */
static void work_step(struct fake_machine *m, bool may_fail)
{
    struct fake_request *r = &m->requests[draw(FAKE_REQUESTS)];
    for (int i = 0; i < FAKE_REQUESTS && r->id == 0; i++)
        r = &m->requests[(r - m->requests + 1) % FAKE_REQUESTS];
    if (r->id == 0 || m->outbox_count > FAKE_OUTBOX / 2)
        return;
    if (may_fail && draw(300) == 0) {
        fake_fail(m, r, draw(2) == 0 ? ST_IO : ST_UNREACHABLE);
        return;
    }
    if (r->state == FAKE_DECODING && may_fail && draw(60) == 0)
        fake_preempt(m, r);
    else
        fake_work(m, r);
}

static void machine_step(struct fake_cluster *c, struct fake_machine *m)
{
    if (m->transport == NULL) {
        if (draw(20) != 0)
            return;
        m->model = model_of(other != 0 && draw(2) != 0 ? other : current);
        fake_start(m);
        return;
    }
    uint32_t what = draw(2000);
    if (what == 0) {
        uint64_t ids[FAKE_REQUESTS];
        uint32_t id_count = 0;
        for (uint32_t i = 0; i < FAKE_REQUESTS; i++)
            if (m->requests[i].id != 0 && draw(2) == 0)
                ids[id_count++] = m->requests[i].id;
        fake_kill(m);
        counts.kills++;
        if (draw(2) == 0)
            gateway_machine_crashed(c->gateway, fake_record(m), "signal 11", ids, id_count);
        if (draw(2) != 0) /* else the gateway finds out by itself */
            gateway_machine_ended(c->gateway, fake_record(m), "it has ended");
        return;
    }
    if (what == 1 && m->gateway != NULL && m->peers != 0) {
        uint32_t peer = (uint32_t)__builtin_ctzll(m->peers);
        fake_link(m, c->fleet->machines[peer].config.name, draw(3) != 0);
        return;
    }
    for (uint32_t n = draw(4); n > 0; n--)
        work_step(m, true);
    for (uint32_t n = draw(8); n > 0; n--)
        fake_send_one(m);
    transport_progress(m->transport);
}

static uint64_t states_seen[GATEWAY_REQUEST_STATE_COUNT];

static void check_states(const struct fake_cluster *c)
{
    uint32_t begun = 0;
    const struct gateway_request *r = NULL;
    while ((r = requests_next(c->gateway->requests, r)) != NULL) {
        enum request_state life = r->life.state;
        bool waits = life == REQUEST_QUEUED || life == REQUEST_RESUMING;
        states_seen[r->state]++;
        CHECK(r->state == GATEWAY_REQUEST_ENDING || !request_state_ended(life));
        switch (r->state) {
        case GATEWAY_REQUEST_ARRIVING:
        case GATEWAY_REQUEST_SUSPECTED:
        case GATEWAY_REQUEST_DOUBTED:
        case GATEWAY_REQUEST_SCHEDULED:
            CHECK(r->prompt_machine == NULL && r->token_machine == NULL && waits);
            break;
        case GATEWAY_REQUEST_PULLING:
            CHECK(r->prompt_machine != NULL && r->pull_source != NULL && waits);
            break;
        case GATEWAY_REQUEST_RESERVING:
            CHECK(r->prompt_machine != NULL && r->token_machine != NULL && waits);
            break;
        case GATEWAY_REQUEST_PREFILLING:
        case GATEWAY_REQUEST_PREFILLED:
            CHECK(r->prompt_machine != NULL && !waits && life != REQUEST_RESERVED);
            begun++;
            break;
        default:
            CHECK(r->state == GATEWAY_REQUEST_ENDING);
        }
    }
    CHECK(requests_counts(c->gateway->requests).prompts_sent == begun);
}

static void mend_and_drain(struct fake_cluster *c, struct fake_client *clients)
{
    for (uint32_t i = 0; i < c->fleet->count; i++) { /* m0 and m1 can do all of it */
        struct fake_machine *m = &c->machines[i];
        uint64_t model = model_of(other != 0 && i % 2 != 0 ? other : current);
        if (m->transport != NULL && m->model != model) {
            fake_flush(c); /* nobody is to hear of the address that it had */
            fake_kill(m);
        }
        m->model = model;
        if (m->transport == NULL)
            fake_start(m);
        fake_flush(c);
    }
    for (uint32_t i = 0; i < c->fleet->count; i++)
        for (uint32_t to = 0; to < c->fleet->count; to++)
            if (c->machines[i].peers >> to & 1)
                fake_link(&c->machines[i], c->fleet->machines[to].config.name, true);
    bool open = true;
    for (int round = 0; open && round < 20000; round++) {
        c->now_us += 1000;
        for (uint32_t i = 0; i < c->fleet->count; i++)
            for (int n = 0; n < 16; n++)
                work_step(&c->machines[i], false);
        fake_flush(c);
        open = false;
        for (int i = 0; i < CLIENTS; i++)
            open = open || clients[i].request != NULL;
    }
    CHECK(!open);
}

/* A scheduler that gets the logged events decides what the log says. */
static void replay(const char *path)
{
    struct replay_log_totals totals;
    struct error error;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    CHECKF(replay_log(file, path, NULL, &totals, &error) == ST_OK, "%s", error.text);
    fclose(file);
    printf("replayed %" PRIu64 " lines of the event log: the same %" PRIu64 " actions\n",
           totals.lines, totals.actions);
    CHECK(totals.starts == 1 && totals.skipped == 0 && totals.differing == 0);
    CHECK(totals.actions > 100 && totals.routes > 0 && totals.lost > 0);
}

int main(void)
{
    seed = test_seed();
    struct fake_cluster *c = fake_cluster_open(2, 2, 2, 24, 8);
    struct fake_client *clients = calloc(CLIENTS, sizeof(*clients));
    CHECK(clients != NULL);
    char path[] = "/tmp/cleave-random-XXXXXX";
    struct event_log *log;
    struct error error;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0 && event_log_open(path, &log, &error) == ST_OK);
    gateway_events_set(c->gateway, log, true);
    for (uint32_t i = 0; i < c->fleet->count; i++)
        c->machines[i].model = FAKE_MODEL;
    c->config.scheduler.prompt_batch_tokens = 200;
    fake_start_all(c);
    for (uint32_t i = 0; i < c->fleet->count; i++) /* Computing takes longer than sending. */
        fake_stats(&c->machines[i], &(struct message_stats){.prompt_batches = 10,
                                                            .prompt_batch_rows = 1000,
                                                            .prompt_batch_us = 1000000});
    for (int step = 0; step < STEPS; step++) {
        c->now_us += draw(3000);
        if (draw(3) == 0)
            client_step(c, &clients[draw(CLIENTS)]);
        machine_step(c, &c->machines[draw(c->fleet->count)]);
        if (draw(200) == 0)
            gateway_machine_phase_set(c->gateway, &c->fleet->machines[draw(c->fleet->count)],
                                      draw(8) == 0 ? FLEET_DRAINING : FLEET_SERVING);
        if (draw(1000) == 0) {
            c->config.scheduler.queue_requests_max = 8 + draw(8);
            gateway_configure(c->gateway);
        }
        if (draw(600) == 0)
            version_step(c);
        check_states(c);
        if (draw(2) == 0)
            gateway_turn(c->gateway);
        check_states(c);
    }
    printf("requests that were seen in a pull: %" PRIu64 "\n",
           states_seen[GATEWAY_REQUEST_PULLING]); /* Too rare to be sure: see test_pull. */
    for (uint32_t i = GATEWAY_REQUEST_ARRIVING; i < GATEWAY_REQUEST_STATE_COUNT; i++)
        CHECKF(states_seen[i] > 0 || i == GATEWAY_REQUEST_PULLING, "no request was in state %u", i);
    for (uint32_t i = 0; i < c->fleet->count; i++)
        gateway_machine_phase_set(c->gateway, &c->fleet->machines[i], FLEET_SERVING);
    mend_and_drain(c, clients);
    for (uint32_t i = 0; i < c->fleet->count; i++)
        CHECKF(fake_request_count(&c->machines[i]) == 0, "machine %u knows %u requests", i,
               fake_request_count(&c->machines[i]));
    printf("submitted %" PRIu64 " done %" PRIu64 " released %" PRIu64 " refused %" PRIu64
           " failed %" PRIu64 " kills %" PRIu64 " versions that went %" PRIu64 "\n",
           counts.submitted, counts.done, counts.released, counts.refused, counts.failed,
           counts.kills, counts.versions);
    CHECK(counts.done > counts.submitted / 20 && counts.kills > 0 && counts.versions > 0);
    fake_cluster_close(c);
    event_log_close(log);
    replay(path);
    unlink(path);
    free(clients);
    return 0;
}
