/* Goal: a request that loses a machine in any state continues elsewhere from where it was: no token
 * is lost or sent twice; a request that can never work ends with one clear error. Method: two
 * machines of each pool; the one that serves is killed, or fails the request, at each stage; the
 * rest of the cluster then runs by itself. The client checks each token against the model. */
#include "server/gateway/blame.h"
#include "tests/check.h"
#include "tests/server/gateway/fake_steps.h"

#include <string.h>

static struct fake_request *bring(struct fake_cluster *c, struct fake_client *client,
                                  enum moment moment)
{
    return fake_bring(c, client, moment, true);
}

/* What the resumed generation was asked for. */
static void check_resumed(struct fake_cluster *c, const struct fake_client *client, uint64_t id)
{
    for (uint32_t i = 0; i < c->fleet->count; i++) {
        struct fake_machine *m = &c->machines[i];
        struct fake_request *r = m->transport != NULL ? fake_token_side(m, id) : NULL;
        if (r == NULL || r->generation != 1)
            continue;
        CHECK(r->prompt_tokens == 20 + client->answered);
        CHECK(r->sampling.output_tokens_max == 12 - client->answered);
        CHECK(r->sampling.seed == 1000);
        return;
    }
    CHECKF(false, "nobody has generation 1");
}

enum hand_over { HANDED_OVER, DIES_BEFORE, DIES_AFTER, TOO_SHORT, SCORED, HAND_OVER_COUNT };

/* t0 drains while it decodes: t0 computes the prompt again, and t1 decodes. */
static void test_hand_over(enum hand_over what)
{
    struct fake_cluster *c = fake_cluster_open(1, 2, 0, 64, 8);
    struct fake_machine *from = fake_machine(c, "t0");
    struct fake_machine *to = fake_machine(c, "t1");
    struct fake_client client = {0};
    c->config.scheduler.handover_tokens_min = what == TOO_SHORT ? 8 : 7; /* 7 are left */
    fake_start_all(c);
    uint64_t id = fake_bring(c, &client, AT_DECODE, what == SCORED)->id;
    gateway_machine_phase_set(c->gateway, fake_record(from), FLEET_DRAINING);
    fake_flush(c);
    c->now_us += 60000;
    fake_flush(c);
    if (what == TOO_SHORT || what == SCORED) {
        CHECK(from->cancels == 0 && fake_request_count(to) == 0);
    } else {
        CHECK(from->cancels == 1 && fake_token_side(from, id) == NULL);
        struct fake_request *r = fake_token_side(to, id);
        CHECK(r != NULL && strcmp(r->partner, "t0") == 0);
        check_resumed(c, &client, id);
        if (what == DIES_BEFORE)
            fake_kill(from);
        fake_reserved(to, r);
        fake_flush(c);
        CHECK((fake_prompt_side(from, id) != NULL) == (what != DIES_BEFORE));
        if (what == DIES_AFTER)
            fake_kill(from);
        fake_flush(c);
    }
    fake_run_all(c);
    CHECKF(client.ended && client.end == GATEWAY_DONE, "hand-over %d: %s", what, client.text);
    for (uint32_t i = 0; i < c->fleet->count; i++)
        CHECK(fake_request_count(&c->machines[i]) == 0);
    fake_cluster_close(c);
}

static void test_death(bool prompt_dies, enum moment moment)
{
    struct fake_cluster *c = fake_cluster_open(2, 2, 0, 64, 8);
    fake_start_all(c);
    struct fake_client client = {0};
    uint64_t id = bring(c, &client, moment)->id;
    fake_kill(fake_machine(c, prompt_dies ? "p0" : "t0"));
    fake_flush(c);
    bool needed = !prompt_dies || moment < AT_DECODE;
    struct fake_machine *survivor = fake_machine(c, prompt_dies ? "t0" : "p0");
    if (needed) {
        check_resumed(c, &client, id);
        CHECK(survivor->cancels == (moment == AT_RESERVE && !prompt_dies  ? 0
                                    : moment == AT_DECODE && !prompt_dies ? 0
                                                                          : 1));
    } else {
        CHECK(survivor->cancels == 0 && fake_token_side(survivor, id)->generation == 0);
    }
    fake_run_all(c);
    CHECKF(client.ended && client.end == GATEWAY_DONE, "moment %d: %s", moment, client.text);
    for (uint32_t i = 0; i < c->fleet->count; i++)
        CHECK(fake_request_count(&c->machines[i]) == 0);
    fake_cluster_close(c);
}

static void test_failed(enum status status, enum moment moment, bool token_side)
{
    struct fake_cluster *c = fake_cluster_open(2, 2, 0, 64, 8);
    fake_start_all(c);
    struct fake_client client = {0};
    struct fake_request *r = bring(c, &client, moment);
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_machine *t = fake_machine(c, "t0");
    fake_fail(token_side ? t : p, token_side ? r : fake_prompt_side(p, r->id), status);
    fake_flush(c);
    bool hopeless = status == ST_INVALID || status == ST_TOO_LARGE;
    bool full = status == ST_NO_RESOURCE && moment <= AT_PROMPT;
    if (hopeless || full) {
        bool refused = moment <= AT_PROMPT && status != ST_INVALID;
        CHECK(client.ended && client.end == (refused ? GATEWAY_REFUSED : GATEWAY_FAILED));
        CHECK((client.retry_after_s > 0) == full);
        CHECKF(strstr(client.text, token_side ? "t0" : "p0") != NULL, "%s", client.text);
    } else {
        CHECK(!client.ended);
        fake_run_all(c);
        CHECK(client.ended && client.end == GATEWAY_DONE);
    }
    for (uint32_t i = 0; i < c->fleet->count; i++)
        CHECK(fake_request_count(&c->machines[i]) == 0);
    fake_cluster_close(c);
}

/* Loses the request `times` times by failures of this status; it must come back each time. */
static void lose(struct fake_cluster *c, struct fake_client *client, enum status status,
                 uint32_t times)
{
    struct fake_machine *t = fake_machine(c, "t0");
    for (uint32_t i = 0; i < times; i++) {
        CHECK(!client->ended);
        struct fake_request *r = fake_first_request(t);
        CHECK(r != NULL);
        fake_fail(t, r, status);
        fake_flush(c);
        fake_flush(c); /* The answers to PROBE. */
    }
}

/* Eight deaths in a row end a request, not four, seven links that break and, after a token, seven
 * deaths more. */
static void test_lost_too_often(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    fake_start_all(c);
    struct fake_client client = {0};
    fake_submit(c, &client, 1000, 20, 12, false);
    fake_settle(c);
    lose(c, &client, ST_IO, 4);
    lose(c, &client, ST_UNREACHABLE, 7);
    lose(c, &client, ST_TIMED_OUT, 7);
    lose(c, &client, ST_IO, 2);
    CHECK(!client.ended && client.answered == 0);
    struct fake_machine *t = fake_machine(c, "t0"), *p = fake_machine(c, "p0");
    fake_reserved(t, fake_first_request(t));
    fake_flush(c);
    fake_sample(p, fake_first_request(p));
    fake_flush(c);
    CHECK(client.answered == 1 && !client.ended);
    lose(c, &client, ST_IO, 7);
    CHECK(!client.ended);
    lose(c, &client, ST_IO, 1);
    CHECK(client.ended && client.end == GATEWAY_FAILED);
    CHECKF(strstr(client.text, "lost 8 times in a row") != NULL, "%s", client.text);
    fake_cluster_close(c);
}

/* What happens to the machine that another one has reported as gone. */
enum fate { DIES, LIVES, IS_LEFT, FATE_COUNT };

/* A request's machine dies, and its other machine notices that before the gateway does. The request
 * is not sent to the dead machine again, so that one death costs one resumption. If the machine
 * lives, or the client leaves, nothing waits for ever. */
static void test_told_first(bool prompt_dies, enum moment moment, enum fate fate)
{
    struct fake_cluster *c = fake_cluster_open(prompt_dies ? 1 : 2, prompt_dies ? 2 : 1, 0, 64, 8);
    fake_start_all(c);
    struct fake_client client = {0};
    struct fake_request *r = bring(c, &client, moment);
    struct fake_machine *dead = fake_machine(c, prompt_dies ? "p0" : "t0");
    struct fake_machine *other = fake_machine(c, prompt_dies ? "t0" : "p0");
    c->links_at_once = false; /* A machine that is dead answers nothing. */
    fake_fail(other, prompt_dies ? r : fake_prompt_side(other, r->id), ST_UNREACHABLE);
    fake_outbox_send(c, other);
    CHECK(client.generation == 1);
    for (uint32_t i = 0; i < c->fleet->count; i++)
        CHECK(fake_request_count(&c->machines[i]) == 0);
    if (fate == IS_LEFT) {
        gateway_release(c->gateway, client.request, GATEWAY_CLIENT_GONE);
        fake_flush(c);
        fake_cluster_close(c);
        return;
    }
    c->links_at_once = true;
    if (fate == DIES) {
        fake_kill(dead);
        fake_settle(c);
        fake_start(dead);
    }
    fake_flush(c);
    fake_run_all(c);
    CHECKF(client.ended && client.end == GATEWAY_DONE, "%s", client.text);
    CHECK(client.generation == 1);
    fake_cluster_close(c);
}

/* The answer to a PROBE says nothing about reports that came after the PROBE was sent. */
static void test_old_answer(void)
{
    struct fake_cluster *c = fake_cluster_open(2, 1, 0, 64, 8);
    fake_start_all(c);
    struct fake_client clients[2] = {{0}};
    struct fake_machine *t = fake_machine(c, "t0");
    uint64_t ids[2];
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(fake_submit(c, &clients[i], 1000 * (i + 1), 20, 12, false) == ST_OK);
        fake_settle(c);
        ids[i] = t->requests[i].id;
        fake_reserved(t, &t->requests[i]);
        fake_flush(c);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct fake_machine *p = fake_machine(c, "p0");
        struct fake_request *r = fake_prompt_side(p, ids[i]);
        if (r == NULL) {
            p = fake_machine(c, "p1");
            r = fake_prompt_side(p, ids[i]);
        }
        fake_fail(p, r, ST_UNREACHABLE);
        fake_outbox_send(c, p);
        CHECK(clients[i].generation == 1 && t->outbox_count == i + 1);
    }
    fake_send_one(t);
    fake_settle(c);
    CHECK(fake_token_side(t, ids[0]) != NULL && fake_token_side(t, ids[1]) == NULL);
    fake_kill(t);
    fake_settle(c);
    fake_start(t);
    fake_run_all(c);
    CHECK(clients[0].ended && clients[0].end == GATEWAY_DONE && clients[0].generation == 2);
    CHECK(clients[1].ended && clients[1].end == GATEWAY_DONE && clients[1].generation == 1);
    fake_cluster_close(c);
}

/* Local machines that are killed from outside count against no request. */
static void test_killed_often(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    fake_start_all(c);
    struct fake_client client = {0};
    fake_submit(c, &client, 1000, 20, 12, false);
    fake_settle(c);
    for (int i = 0; i < 40; i++) {
        struct fake_machine *m = fake_machine(c, i % 2 == 0 ? "t0" : "p0");
        fake_kill(m);
        fake_settle(c);
        fake_start(m);
        for (int n = 0; n < 8; n++)
            fake_flush(c);
        fake_link(fake_machine(c, "p0"), "t0", true);
        fake_flush(c);
        CHECK(!client.ended);
    }
    fake_run_all(c);
    CHECKF(client.ended && client.end == GATEWAY_DONE, "%s", client.text);
    fake_cluster_close(c);
}

/* The machine crashes while it computes these requests, and is there again. */
static void crash(struct fake_cluster *c, const uint64_t *ids, uint32_t count)
{
    struct fake_machine *m = fake_machine(c, "m0");
    fake_kill(m);
    fake_settle(c);
    gateway_machine_crashed(c->gateway, fake_record(m), "signal 11, Segmentation fault", ids,
                            count);
    fake_start(m);
    for (int n = 0; n < 8; n++)
        fake_flush(c);
}

/* Lets the request that machines have generate `tokens` tokens. */
static void advance(struct fake_cluster *c, uint64_t id, uint32_t tokens)
{
    struct fake_machine *m = fake_machine(c, "m0");
    struct fake_request *r = fake_token_side(m, id);
    r->sampling.output_tokens_min = r->sampling.output_tokens_max;
    fake_reserved(m, r);
    fake_flush(c);
    struct fake_request *prompt = fake_prompt_side(m, id);
    prompt->sampling.output_tokens_min = prompt->sampling.output_tokens_max;
    fake_sample(m, prompt);
    fake_flush(c);
    fake_hand_over(m, prompt);
    for (uint32_t i = 1; i < tokens; i++)
        fake_decode(m, r);
    fake_flush(c);
}

/* Three requests share a batch when the machine crashes. Only one suspect at a time is on machines,
 * beside a request that is no suspect; the one that goes on crashing the machine fails at the third
 * crash, and the others get their whole answers. */
static void test_crashes(void)
{
    struct fake_cluster *c = fake_cluster_open(0, 0, 1, 64, 8);
    c->config.scheduler.crashes_max = 3;
    fake_start_all(c);
    struct fake_client clients[4] = {{0}};
    struct fake_machine *m = fake_machine(c, "m0");
    uint64_t ids[3];
    for (uint32_t i = 0; i < 3; i++) {
        fake_submit(c, &clients[i], 1000 + i, 20, 40, false);
        fake_settle(c);
        ids[i] = m->requests[i].id;
        CHECK(ids[i] != 0);
    }
    crash(c, ids, 3);
    CHECK(fake_token_side(m, ids[1]) == NULL && fake_token_side(m, ids[2]) == NULL);
    CHECK(fake_token_side(m, ids[0]) != NULL);
    fake_submit(c, &clients[3], 2000, 20, 4, false); /* No suspect: it does not wait. */
    fake_settle(c);
    CHECK(fake_request_count(m) == 2);
    crash(c, ids, 1);
    CHECK(!clients[0].ended && fake_token_side(m, ids[0]) != NULL);
    advance(c, ids[0], 5); /* Too little to be cleared. */
    CHECK(clients[0].answered == 5 && fake_token_side(m, ids[1]) == NULL);
    crash(c, ids, 1);
    CHECK(clients[0].ended && clients[0].end == GATEWAY_BLAMED);
    CHECKF(strstr(clients[0].text, "crashed 3 times") != NULL, "%s", clients[0].text);
    CHECKF(strstr(clients[0].text, "machine m0 crashed (signal 11") != NULL, "%s", clients[0].text);
    CHECK(fake_token_side(m, ids[1]) != NULL);
    CHECK(fake_token_side(m, ids[2]) == NULL);
    advance(c, ids[1], BLAME_CLEAR_TOKENS);
    CHECK(fake_token_side(m, ids[2]) != NULL);
    fake_run_all(c);
    for (int i = 1; i < 4; i++)
        CHECKF(clients[i].ended && clients[i].end == GATEWAY_DONE, "%d: %s", i, clients[i].text);
    fake_cluster_close(c);
}

/* A crash costs each request one resumption, whether the gateway sees the end of the connection or
 * the end of the process first. */
static void test_crash_resumes_once(bool process_first)
{
    struct fake_cluster *c = fake_cluster_open(0, 0, 1, 64, 8);
    fake_start_all(c);
    struct fake_client clients[2] = {{0}};
    struct fake_machine *m = fake_machine(c, "m0");
    uint64_t ids[2];
    for (uint32_t i = 0; i < 2; i++) {
        fake_submit(c, &clients[i], 1000 + i, 20, 8, false);
        fake_settle(c);
        ids[i] = m->requests[i].id;
    }
    if (process_first) {
        gateway_machine_crashed(c->gateway, fake_record(m), "signal 11", ids, 2);
        fake_settle(c);
        fake_kill(m);
    } else {
        fake_kill(m);
        fake_settle(c);
        gateway_machine_crashed(c->gateway, fake_record(m), "signal 11", ids, 2);
    }
    fake_start(m);
    fake_run_all(c);
    for (int i = 0; i < 2; i++)
        CHECKF(clients[i].ended && clients[i].end == GATEWAY_DONE && clients[i].generation == 1,
               "%d: generation %u, %s", i, clients[i].generation, clients[i].text);
    fake_cluster_close(c);
}

/* A machine that crashes can blame only requests that were sent to it: in their present generation,
 * or in the one before. */
static void test_crash_of_others(void)
{
    struct fake_cluster *c = fake_cluster_open(2, 2, 0, 64, 8);
    c->config.scheduler.crashes_max = 1;
    fake_start_all(c);
    struct fake_client client = {0};
    const uint64_t id = bring(c, &client, AT_DECODE)->id;
    struct fake_machine *m = fake_machine(c, "t0"), *other = fake_machine(c, "t1");
    gateway_machine_crashed(c->gateway, fake_record(other), "signal 11", &id, 1);
    fake_settle(c);
    CHECK(!client.ended && fake_token_side(m, id) != NULL);
    fake_kill(other);
    fake_start(other);
    fake_flush(c);
    fake_kill(m); /* The gateway sees the end of the connection first. */
    fake_settle(c);
    CHECK(!client.ended && fake_token_side(other, id) != NULL);
    gateway_machine_crashed(c->gateway, fake_record(m), "signal 11", &id, 1);
    fake_settle(c);
    CHECK(client.ended && client.end == GATEWAY_BLAMED);
    fake_cluster_close(c);
}

/* A gap in a machine's tokens is a fault of that machine: the request goes on with another
 * generation. */
static void test_gap(void)
{
    struct fake_cluster *c = fake_cluster_open(2, 2, 0, 64, 8);
    fake_start_all(c);
    struct fake_client client = {0};
    struct fake_request *r = bring(c, &client, AT_DECODE);
    fake_token_send(fake_machine(c, "t0"), r->id, 0, 9, 1, FINISH_NONE);
    fake_flush(c);
    CHECK(!client.ended && client.answered == 5);
    fake_run_all(c);
    CHECK(client.ended && client.end == GATEWAY_DONE);
    fake_cluster_close(c);
}

/* The connection to a machine ends; its process lives, and so does its link to its peer. */
static void test_reconnect(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    struct fake_machine *t = fake_machine(c, "t0");
    struct fake_machine *p = fake_machine(c, "p0");
    fake_start_all(c);
    c->links_at_once = false; /* the link to t0 did not change: p0 has nothing to say of it */
    transport_disconnect(t->transport, t->gateway);
    t->gateway = NULL;
    fake_settle(c);
    CHECK(!fleet_machine_up(fake_record(t)));
    char text[200];
    gateway_health_text(c->gateway, text, sizeof(text));
    CHECKF(gateway_ready(c->gateway) && strstr(text, "token machine t0 is missing") != NULL, "%s",
           text);
    c->now_us += 49000;
    fake_settle(c);
    CHECK(!fleet_machine_up(fake_record(t)));
    c->now_us += 2000; /* the first try is after 50 ms */
    fake_settle(c);
    gateway_health_text(c->gateway, text, sizeof(text));
    CHECKF(strcmp(text, "ready") == 0, "%s", text);
    struct fake_client client = {0};
    fake_submit(c, &client, 100, 20, 5, false);
    fake_settle(c);
    CHECK(t->reserves == 1 && strcmp(fake_first_request(t)->partner, "p0") == 0);
    fake_link(p, "t0", false);
    fake_flush(c);
    CHECK(gateway_ready(c->gateway)); /* one of them does both */
    fake_cluster_close(c);
}

/* Tries come at 50, 100, 200 ms … and then every two seconds. */
static void test_back_off(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    gateway_machine_address_set(c->gateway, &c->fleet->machines[0], "no-such-host:1");
    int64_t waits[8];
    gateway_turn(c->gateway); /* begins the first try */
    for (int i = 0; i < 8; i++) {
        int wait_ms = 0;
        for (int turn = 0; turn < 4; turn++)
            wait_ms = gateway_turn(c->gateway);
        waits[i] = wait_ms;
        c->now_us += (int64_t)wait_ms * 1000;
        gateway_turn(c->gateway);
    }
    const int64_t want[8] = {50, 100, 200, 400, 800, 1600, 2000, 2000};
    for (int i = 0; i < 8; i++)
        CHECKF(waits[i] == want[i], "try %d after %d ms", i, (int)waits[i]);
    gateway_machine_address_set(c->gateway, &c->fleet->machines[0],
                                ""); /* its process is dead: no more tries */
    CHECK(gateway_turn(c->gateway) == -1);
    fake_cluster_close(c);
}

/* Another machine listens where t0 should. */
static void test_wrong_name(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 2, 0, 64, 8);
    fake_start(fake_machine(c, "t1"));
    gateway_machine_address_set(c->gateway, fake_record(fake_machine(c, "t0")),
                                fake_machine(c, "t1")->address);
    fake_settle(c);
    char text[400];
    gateway_health_text(c->gateway, text, sizeof(text));
    CHECKF(strstr(text, "answers as \"t1\", want \"t0\"") != NULL, "%s", text);
    fake_cluster_close(c);
}

/* The gateway would divide by a block size of 0. */
static void test_hello_without_blocks(uint32_t block_tokens)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    fake_machine(c, "t0")->block_tokens = block_tokens;
    fake_start_all(c);
    char text[400];
    gateway_health_text(c->gateway, text, sizeof(text));
    CHECKF(strstr(text, "its KV layout is not possible") != NULL, "%s", text);
    fake_cluster_close(c);
}

/* Two machines that could each serve alone, with different weights: only one of them may. */
static void test_other_weights(void)
{
    struct fake_cluster *c = fake_cluster_open(0, 0, 2, 64, 8);
    char text[400];
    fake_machine(c, "m1")->has_other_weights = true;
    fake_start(fake_machine(c, "m0"));
    fake_settle(c);
    fake_start(fake_machine(c, "m1"));
    fake_settle(c);
    CHECK(fleet_machine_up(fake_record(fake_machine(c, "m0"))));
    CHECK(!fleet_machine_up(fake_record(fake_machine(c, "m1"))));
    fake_kill(fake_machine(c, "m0")); /* nobody is up now: the other one may come */
    for (int turn = 0; turn < 16; turn++) {
        c->now_us += 2000000;
        fake_settle(c);
    }
    gateway_health_text(c->gateway, text, sizeof(text));
    CHECKF(fleet_machine_up(fake_record(fake_machine(c, "m1"))), "%s", text);
    fake_start(fake_machine(c, "m0"));
    fake_settle(c);
    CHECK(!fleet_machine_up(fake_record(fake_machine(c, "m0"))));
    fake_cluster_close(c);
}

/* A preempted request continues at its last token, as after a machine's death. Its machines are
 * told how often it was preempted. The number of preemptions has no limit here: the machines
 * limit it. */
static void test_preempted(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    fake_start_all(c);
    struct fake_client client = {0};
    struct fake_machine *t = fake_machine(c, "t0");
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_request *r = bring(c, &client, AT_DECODE);
    uint64_t id = r->id;
    CHECK(r->rank.preemptions == 0);
    for (uint32_t times = 1; times <= 6; times++) {
        uint32_t answered = client.answered;
        c->now_us += 50000;
        fake_preempt(t, r);
        fake_flush(c);
        r = fake_token_side(t, id);
        CHECK(r != NULL && r->generation == times && r->state == FAKE_RESERVED);
        CHECK(r->rank.preemptions == times && r->rank.waited_ms >= 50 * times);
        CHECK(r->prompt_tokens == 20 + answered && client.answered == answered);
        CHECK(r->sampling.output_tokens_max == 12 - answered && t->cancels == 0);
        fake_reserved(t, r);
        fake_flush(c);
        struct fake_request *prompt = fake_prompt_side(p, id);
        CHECK(prompt != NULL && prompt->rank.preemptions == times);
        r->sampling.output_tokens_min = r->sampling.output_tokens_max;
        prompt->sampling.output_tokens_min = prompt->sampling.output_tokens_max;
        fake_sample(p, prompt); /* one token is all that it gets */
        fake_hand_over(p, prompt);
        fake_flush(c);
        CHECK(client.answered == answered + 1);
    }
    fake_token_send(t, id, 0, 5, 1, FINISH_NONE); /* a word of an old generation */
    fake_run_all(c);
    CHECKF(client.ended && client.end == GATEWAY_DONE && client.answered == 12, "%s", client.text);
    CHECK(fake_request_count(t) == 0 && fake_request_count(p) == 0);
    fake_cluster_close(c);
}

/* One whose memory is given up before its KV has come goes on too: its prompt is cancelled, and it
 * has not been preempted, for its answer had nothing. */
static void test_given_up(enum moment moment)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    fake_start_all(c);
    struct fake_client client = {0};
    struct fake_machine *t = fake_machine(c, "t0");
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_request *r = bring(c, &client, moment);
    uint64_t id = r->id;
    fake_preempt(t, r);
    fake_flush(c);
    CHECK(p->cancels == 1 && t->cancels == 0 && fake_prompt_side(p, id) == NULL);
    r = fake_token_side(t, id);
    CHECK(r != NULL && r->generation == 1 && r->rank.preemptions == 0);
    CHECK(r->prompt_tokens == 20 + client.answered);
    fake_run_all(c);
    CHECKF(client.ended && client.end == GATEWAY_DONE, "%s", client.text);
    CHECK(fake_request_count(t) == 0 && fake_request_count(p) == 0);
    fake_cluster_close(c);
}

int main(void)
{
    for (int what = 0; what < HAND_OVER_COUNT; what++)
        test_hand_over((enum hand_over)what);
    for (enum moment moment = AT_RESERVE; moment < MOMENT_COUNT; moment++) {
        test_death(false, moment);
        test_death(true, moment);
        test_failed(ST_IO, moment, true);
        test_failed(ST_TOO_LARGE, moment, true);
        test_failed(ST_INVALID, moment, true);
        test_failed(ST_NO_RESOURCE, moment, true);
    }
    test_failed(ST_IO, AT_PROMPT, false);
    test_failed(ST_NO_RESOURCE, AT_PROMPT, false);
    test_failed(ST_UNREACHABLE, AT_FIRST_TOKEN, false);
    test_preempted();
    test_given_up(AT_PROMPT);
    test_given_up(AT_FIRST_TOKEN);
    for (int fate = DIES; fate < FATE_COUNT; fate++) {
        test_told_first(false, AT_PROMPT, (enum fate)fate);
        test_told_first(false, AT_FIRST_TOKEN, (enum fate)fate);
        test_told_first(true, AT_PROMPT, (enum fate)fate);
        test_told_first(true, AT_FIRST_TOKEN, (enum fate)fate);
    }
    test_old_answer();
    test_lost_too_often();
    test_killed_often();
    test_crashes();
    test_crash_resumes_once(false);
    test_crash_resumes_once(true);
    test_crash_of_others();
    test_gap();
    test_reconnect();
    test_back_off();
    test_wrong_name();
    test_hello_without_blocks(0);
    test_hello_without_blocks(LIMIT_BLOCK_TOKENS + 1);
    test_other_weights();
    return 0;
}
