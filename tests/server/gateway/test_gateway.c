/* Goal: a request takes the right way through the machines, its client gets each token once and in
 * order, and work that is no longer needed is cancelled with the right writes_pending. Method: a
 * gateway over the loopback transport and machines that the test moves step by step
 * (fake_cluster.h); the client checks each token. */
#include "tests/check.h"
#include "tests/server/gateway/fake_cluster.h"

#include <string.h>

/* A request that has come as far as `stage` on p0 and t0, and no further. */
static void advance_on(struct fake_cluster *c, struct fake_machine *t, uint64_t id,
                       enum fake_state stage)
{
    struct fake_machine *p = fake_machine(c, "p0");
    fake_reserved(t, fake_token_side(t, id));
    fake_flush(c);
    if (stage == FAKE_PROMPT)
        return;
    fake_sample(p, fake_prompt_side(p, id));
    fake_flush(c);
    if (stage == FAKE_SAMPLED)
        return;
    fake_hand_over(p, fake_prompt_side(p, id));
    fake_flush(c);
}

static void advance(struct fake_cluster *c, uint64_t id, enum fake_state stage)
{
    advance_on(c, fake_machine(c, "t0"), id, stage);
}

/* The value of a family with one sample. */
static double metric(const struct fake_cluster *c, const char *name)
{
    size_t bytes;
    char *page = metrics_render(c->metrics, &bytes);
    char begin[80];
    snprintf(begin, sizeof(begin), "\n%s{", name);
    const char *line = strstr(page, begin);
    CHECKF(line != NULL, "%s", name);
    double value = strtod(strchr(line, '}') + 1, NULL);
    free(page);
    return value;
}

/* Requests that are open, as /metrics shows them. */
static void check_open(const struct fake_cluster *c, double running, double waiting)
{
    double shown[] = {metric(c, "vllm:num_requests_running"),
                      metric(c, "vllm:num_requests_waiting")};
    CHECKF(shown[0] == running && shown[1] == waiting, "%.0f running, %.0f waiting", shown[0],
           shown[1]);
}

static void test_flow(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_machine *t = fake_machine(c, "t0");
    CHECK(!gateway_ready(c->gateway));
    char text[200];
    gateway_health_text(c->gateway, text, sizeof(text));
    CHECKF(strstr(text, "prompt machine p0 is missing: it has not started yet") != NULL, "%s",
           text);
    fake_start_all(c);
    CHECK(gateway_ready(c->gateway));
    gateway_health_summary(c->gateway, text, sizeof(text));
    CHECKF(strcmp(text, "2 of 2 machines serve") == 0, "%s", text);
    for (uint32_t i = 0; i < 2; i++)
        gateway_machine_phase_set(c->gateway, &c->fleet->machines[i], FLEET_DRAINING);
    fake_settle(c);
    gateway_health_summary(c->gateway, text, sizeof(text));
    CHECKF(!gateway_ready(c->gateway) && strcmp(text, "0 of 2 machines serve") == 0, "%s", text);
    gateway_health_text(c->gateway, text, sizeof(text));
    CHECKF(strcmp(text, "prompt machine p0 drains; token machine t0 drains") == 0, "%s", text);
    for (uint32_t i = 0; i < 2; i++)
        gateway_machine_phase_set(c->gateway, &c->fleet->machines[i], FLEET_SERVING);
    fake_settle(c);
    CHECK(gateway_ready(c->gateway));
    CHECK(p->peers == 1u << t->index && t->peers == 0);
    CHECK(gateway_context_tokens(c->gateway, GATEWAY_CURRENT) ==
          64 * FAKE_BLOCK_TOKENS); /* less than the model's */

    struct fake_client client = {0};
    CHECK(fake_submit(c, &client, 100, 40, 5, false) == ST_OK);
    CHECK(t->reserves == 0); /* the turn does it */
    fake_settle(c);
    CHECK(t->reserves == 1 && p->prefills == 0);
    check_open(c, 0, 1);
    struct fake_request *r = fake_first_request(t);
    CHECK(r->generation == 0 && r->prompt_tokens == 40 && strcmp(r->partner, "p0") == 0);
    CHECK(r->sampling.output_tokens_max == 5 && r->sampling.seed == 100);
    advance(c, r->id, FAKE_HANDED);
    CHECK(client.answered == 1);
    check_open(c, 1, 0);
    while (r->id != 0) {
        fake_decode(t, r);
        fake_flush(c);
    }
    CHECK(client.ended && client.end == GATEWAY_DONE && client.answered == 5);
    check_open(c, 0, 0);
    CHECK(client.finish == FINISH_LENGTH);
    CHECKF(strcmp(client.events, "RPFT") == 0, "%s", client.events);
    CHECK(p->cancels == 0 && t->cancels == 0); /* machines know of an end that they said */
    gateway_machine_shutdown(c->gateway, fake_record(p));
    fake_settle(c);
    CHECK(p->shutdowns == 1 && t->shutdowns == 0);
    fake_cluster_close(c);
}

/* Whatever comes twice, from an old generation, from a stranger or too late changes nothing. */
static void test_repeated(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 2, 0, 64, 8);
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_machine *t = fake_machine(c, "t0");
    struct fake_machine *stranger = fake_machine(c, "t1");
    fake_start_all(c);
    struct fake_client client = {0};
    fake_submit(c, &client, 200, 20, 6, false);
    fake_settle(c);
    uint64_t id = fake_first_request(t)->id;
    advance(c, id, FAKE_HANDED);
    CHECK(client.answered == 1);
    fake_token_send(p, id, 0, 0, 1, FINISH_NONE);               /* again */
    fake_token_send(stranger, id, 0, 1, 1, FINISH_NONE);        /* not its machine */
    fake_token_send(t, id, 1, 1, 1, FINISH_NONE);               /* a generation that is not */
    fake_token_send(t, id + (1 << 13), 0, 1, 1, FINISH_LENGTH); /* the slot's next request */
    fake_token_send(t, 12345, 0, 1, 1, FINISH_LENGTH);
    fake_flush(c);
    CHECK(client.answered == 1 && !client.ended);
    struct fake_request *r = fake_token_side(t, id);
    while (r->id != 0)
        fake_decode(t, r);
    fake_token_send(t, id, 0, 6, 1, FINISH_NONE); /* after the end */
    fake_flush(c);
    CHECK(client.ended && client.end == GATEWAY_DONE && client.answered == 6);
    fake_cluster_close(c);
}

/* The token machine's connection may be the faster one. */
static void test_overtaking(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_machine *t = fake_machine(c, "t0");
    fake_start_all(c);
    struct fake_client client = {0};
    fake_submit(c, &client, 300, 20, 6, false);
    fake_settle(c);
    struct fake_request *r = fake_first_request(t);
    advance(c, r->id, FAKE_PROMPT);
    struct fake_request *prompt = fake_prompt_side(p, r->id);
    fake_sample(p, prompt); /* stays in the outbox */
    fake_hand_over(p, prompt);
    while (r->id != 0) {
        fake_decode(t, r);
        fake_send_one(t);
        fake_settle(c);
    }
    CHECK(client.answered == 0 && !client.ended);
    fake_flush(c);
    CHECK(client.ended && client.end == GATEWAY_DONE && client.answered == 6);
    fake_cluster_close(c);
}

/* No token machine for one token, none for scores; one machine for both phases. */
static void test_short_ways(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_machine *t = fake_machine(c, "t0");
    fake_start_all(c);
    struct fake_client one = {0};
    struct fake_client scores = {0};
    struct fake_client nothing = {0};
    fake_submit(c, &one, 400, 20, 1, false);
    fake_submit(c, &scores, 500, 20, 0, true);
    fake_submit(c, &nothing, 600, 1, 0, true); /* the first position has no score */
    CHECK(!nothing.ended);
    fake_settle(c);
    CHECK(nothing.ended && nothing.end == GATEWAY_DONE);
    CHECK(p->prefills == 2 && t->reserves == 0);
    while (fake_first_request(p) != NULL)
        fake_sample(p, fake_first_request(p));
    fake_flush(c);
    CHECK(one.ended && one.end == GATEWAY_DONE && one.answered == 1);
    CHECK(scores.ended && scores.end == GATEWAY_DONE && scores.scored_next == 20);
    CHECK(p->cancels == 0 && t->cancels == 0);
    fake_cluster_close(c);

    c = fake_cluster_open(0, 0, 1, 64, 8);
    struct fake_machine *m = fake_machine(c, "m0");
    fake_start_all(c);
    CHECK(gateway_ready(c->gateway) && m->peers == 0);
    struct fake_client client = {0};
    fake_submit(c, &client, 700, 30, 4, true);
    fake_settle(c);
    struct fake_request *r = fake_first_request(m);
    CHECK(strcmp(r->partner, "m0") == 0);
    fake_reserved(m, r);
    fake_flush(c);
    struct fake_request *prompt = fake_prompt_side(m, r->id);
    CHECK(strcmp(prompt->partner, "m0") == 0 && prompt->score_prompt);
    fake_sample(m, prompt);
    fake_hand_over(m, prompt);
    while (r->id != 0)
        fake_decode(m, r);
    fake_flush(c);
    CHECK(client.ended && client.end == GATEWAY_DONE && client.answered == 4);
    fake_cluster_close(c);
}

/* The first token is the end: the token machine's blocks are given back. */
/* What the client is told of a request that waits, loses its token machine, and ends. */
static void test_events(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 2, 0, 64, 8);
    fake_start(fake_machine(c, "t0")); /* no prompt machine: the request waits */
    fake_start(fake_machine(c, "t1"));
    fake_flush(c);
    struct fake_client waiting = {0};
    CHECK(fake_submit(c, &waiting, 101, 50, 5, false) == ST_OK);
    CHECK(waiting.events[0] == 0);
    fake_flush(c);
    CHECKF(strcmp(waiting.events, "Q") == 0, "%s", waiting.events);
    fake_start(fake_machine(c, "p0"));
    fake_flush(c);
    struct fake_machine *t = fake_machine(c, "t0");
    if (fake_first_request(t) == NULL)
        t = fake_machine(c, "t1");
    advance_on(c, t, fake_first_request(t)->id, FAKE_HANDED);
    CHECKF(strcmp(waiting.events, "QRPFT") == 0, "%s", waiting.events);
    fake_kill(t);
    fake_flush(c);
    t = fake_machine(c, strcmp(t->name, "t0") == 0 ? "t1" : "t0");
    advance_on(c, t, fake_first_request(t)->id, FAKE_HANDED);
    CHECKF(strcmp(waiting.events, "QRPFTLRPFT") == 0, "%s", waiting.events);
    CHECK(waiting.generation == 1 && waiting.answered == 2);
    struct fake_request *r = fake_first_request(t);
    while (r->id != 0) {
        fake_decode(t, r);
        fake_flush(c);
    }
    CHECK(waiting.ended && waiting.end == GATEWAY_DONE && waiting.answered == 5);
    fake_cluster_close(c);
}

/* Each phase of a request that loses its token machine has the time that it took. */
static void test_summary(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 2, 0, 64, 8);
    struct fake_machine *p = fake_machine(c, "p0"), *t = fake_machine(c, "t0");
    struct fake_client client = {0};
    fake_start(t);
    fake_start(fake_machine(c, "t1"));
    fake_flush(c);
    CHECK(fake_submit(c, &client, 101, 50, 5, false) == ST_OK);
    fake_flush(c);
    c->now_us += 1000; /* It waits for a prompt machine, */
    fake_start(p);
    fake_flush(c);
    if (fake_first_request(t) == NULL)
        t = fake_machine(c, "t1");
    uint64_t id = fake_first_request(t)->id;
    c->now_us += 200; /* then for memory, */
    fake_reserved(t, fake_token_side(t, id));
    fake_flush(c);
    c->now_us += 30; /* then for its first token, */
    fake_sample(p, fake_prompt_side(p, id));
    fake_flush(c);
    CHECK(client.answered == 1);
    fake_hand_over(p, fake_prompt_side(p, id));
    fake_flush(c);
    c->now_us += 4000; /* then for the second one, */
    fake_decode(t, fake_token_side(t, id));
    fake_flush(c);
    fake_kill(t);
    fake_flush(c);
    c->now_us += 50000; /* then for another token machine. */
    t = fake_machine(c, strcmp(t->name, "t0") == 0 ? "t1" : "t0");
    advance_on(c, t, fake_first_request(t)->id, FAKE_HANDED);
    struct fake_request *r = fake_first_request(t);
    while (r->id != 0) {
        c->now_us += 7;
        fake_decode(t, r);
        fake_flush(c);
    }
    const struct gateway_summary *s = &client.summary;
    CHECK(client.ended && client.end == GATEWAY_DONE && client.overs == 1 && s->id == id);
    CHECKF(s->queue_us == 1000 && s->reserve_us == 200 && s->prompt_us == 30, "%lld %lld %lld",
           (long long)s->queue_us, (long long)s->reserve_us, (long long)s->prompt_us);
    CHECKF(s->resume_us == 50000 && s->transfer_us + s->decode_us == 4000 + 2 * 7, "%lld %lld %lld",
           (long long)s->resume_us, (long long)s->transfer_us, (long long)s->decode_us);
    CHECK(strcmp(s->prompt_machine, "p0") == 0 && strcmp(s->token_machine, t->name) == 0 &&
          s->resumed == 1);
    fake_cluster_close(c);
}

static void test_ends_at_once(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_machine *t = fake_machine(c, "t0");
    fake_start_all(c);
    struct fake_client client = {0};
    uint32_t key = 0; /* of a prompt whose first token is an end */
    for (uint32_t prompt[10];; key++) {
        for (uint32_t i = 0; i < 10; i++)
            prompt[i] = key + i;
        if (fake_next(prompt, 10) == FAKE_END_TOKEN)
            break;
    }
    fake_submit(c, &client, key, 10, 50, false);
    fake_settle(c);
    uint64_t id = fake_first_request(t)->id;
    advance(c, id, FAKE_SAMPLED);
    CHECK(client.ended && client.end == GATEWAY_DONE && client.finish == FINISH_STOP);
    CHECK(t->cancels == 1 && t->cancel_writes_pending && p->cancels == 1);
    CHECK(fake_request_count(t) == 0 && fake_request_count(p) == 0);
    fake_cluster_close(c);
}

/* A client that goes away at each stage. */
static void test_release(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_machine *t = fake_machine(c, "t0");
    fake_start_all(c);
    struct stage {
        bool advanced;
        enum fake_state stage;
        uint32_t prompt_cancels;
        uint32_t token_cancels;
        bool writer;
    } stages[] = {
        {false, FAKE_RESERVED, 0, 1, false},
        {true, FAKE_PROMPT, 1, 1, true},
        {true, FAKE_SAMPLED, 1, 1, true},
        {true, FAKE_HANDED, 0, 1, true}, /* the prompt machine has no part in it any more */
    };
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        struct fake_client client = {0};
        fake_submit(c, &client, 800, 20, 30, false);
        fake_settle(c);
        if (stages[i].advanced)
            advance(c, fake_first_request(t)->id, stages[i].stage);
        p->cancels = t->cancels = 0;
        gateway_release(c->gateway, client.request, GATEWAY_CLIENT_GONE);
        fake_flush(c);
        CHECK(!client.ended);
        CHECKF(p->cancels == stages[i].prompt_cancels && t->cancels == stages[i].token_cancels,
               "stage %zu: %u %u", i, p->cancels, t->cancels);
        CHECK(t->cancel_writes_pending == stages[i].writer);
        CHECK(fake_request_count(p) == 0 && fake_request_count(t) == 0);
        check_open(c, 0, 0);
    }
    struct fake_client client = {0}; /* before the turn that would have sent it */
    fake_submit(c, &client, 800, 20, 30, false);
    t->reserves = 0;
    gateway_release(c->gateway, client.request, GATEWAY_CLIENT_GONE);
    fake_flush(c);
    CHECK(t->reserves == 0 && !client.ended);

    client.release_at = 2; /* a stop string, found inside the callback */
    fake_submit(c, &client, 800, 20, 30, false);
    fake_settle(c);
    struct fake_request *r = fake_first_request(t);
    advance(c, r->id, FAKE_HANDED);
    t->cancels = p->cancels = 0;
    for (int i = 0; i < 6; i++) /* all in one turn: those behind the stop are dropped */
        fake_decode(t, r);
    fake_flush(c);
    CHECK(client.answered == 3 && client.request == NULL && !client.ended);
    CHECK(t->cancels == 1 && p->cancels == 0 && fake_request_count(t) == 0);
    fake_cluster_close(c);
}

static void test_refused(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 4, 2);
    fake_start(fake_machine(c, "t0")); /* no prompt machine: everything waits */
    fake_settle(c);
    struct fake_client clients[3] = {0};
    for (int i = 0; i < 3; i++)
        CHECK(fake_submit(c, &clients[i], 900, 10, 4, false) == ST_OK);
    fake_settle(c);
    CHECK(!clients[0].ended && !clients[1].ended);
    CHECK(clients[2].ended && clients[2].end == GATEWAY_REFUSED && clients[2].retry_after_s > 0);
    CHECK(strcmp(clients[0].events, "Q") == 0 && clients[2].events[0] == 0);
    fake_start(fake_machine(c, "p0"));
    fake_settle(c);
    CHECK(fake_machine(c, "t0")->reserves == 2); /* they did not wait in vain */

    struct fake_client large = {0};
    fake_submit(c, &large, 900, 60, 10, false); /* 4 blocks hold 64 tokens */
    fake_settle(c);
    CHECK(large.ended && large.end == GATEWAY_REFUSED && large.retry_after_s == 0);
    fake_cluster_close(c);
    CHECK(clients[0].ended && clients[0].end == GATEWAY_FAILED); /* the server stops */
}

static void test_table_full(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, LIMIT_CLUSTER_REQUESTS);
    struct fake_client *clients = calloc(LIMIT_CLUSTER_REQUESTS + 1, sizeof(*clients));
    CHECK(clients != NULL);
    for (uint32_t i = 0; i < LIMIT_CLUSTER_REQUESTS; i++)
        CHECK(fake_submit(c, &clients[i], 1, 1, 2, false) == ST_OK);
    CHECK(fake_submit(c, &clients[LIMIT_CLUSTER_REQUESTS], 1, 1, 2, false) == ST_NO_RESOURCE);
    gateway_release(c->gateway, clients[17].request, GATEWAY_CLIENT_GONE);
    CHECK(fake_submit(c, &clients[17], 1, 1, 2, false) == ST_OK);
    gateway_turn(c->gateway);
    c->now_us += 29900000;
    gateway_turn(c->gateway);
    CHECK(!clients[0].ended);
    c->now_us += 100000; /* nobody came to serve them for 30 s */
    gateway_turn(c->gateway);
    for (uint32_t i = 0; i < LIMIT_CLUSTER_REQUESTS; i++)
        CHECK(clients[i].ended && clients[i].end == GATEWAY_FAILED);
    CHECKF(strstr(clients[0].text, "machine p0 is missing") != NULL, "%s", clients[0].text);
    fake_cluster_close(c);
    free(clients);
}

/* A machine drains, leaves, another one takes its index, and one changes its pool, while requests
 * run. */
static void test_operated(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 2, 0, 64, 8);
    struct gateway *g = c->gateway;
    fake_start_all(c);
    struct fake_machine *p = fake_machine(c, "p0"), *t0 = fake_machine(c, "t0");
    struct fake_machine *t1 = fake_machine(c, "t1");
    struct fake_client first = {0}, second = {0};
    fake_submit(c, &first, 800, 20, 4, false);
    fake_settle(c);
    CHECK(t0->reserves == 1 && !gateway_machine_idle(g, fake_record(t0)));
    gateway_machine_phase_set(g, fake_record(t0), FLEET_DRAINING);
    CHECK(fleet_machine_draining(fake_record(t0)) && !fleet_machine_draining(fake_record(t1)));
    fake_submit(c, &second, 900, 20, 4, false);
    fake_settle(c);
    CHECK(t0->reserves == 1 && t1->reserves == 1); /* though it has more to do */
    struct fake_request *r = fake_first_request(t0);
    advance(c, r->id, FAKE_HANDED);
    while (first.request != NULL) {
        fake_decode(t0, r);
        fake_flush(c);
    }
    CHECK(first.ended && first.end == GATEWAY_DONE && first.answered == 4);
    CHECK(gateway_machine_idle(g, fake_record(t0)) && !gateway_machine_idle(g, fake_record(t1)));
    /* It leaves; its index is good for another one, which does not drain. */
    gateway_machine_remove(g, fake_record(t0));
    fake_settle(c);
    CHECK(!fleet_machine_up(fake_record(t0)) && !fleet_machine_draining(fake_record(t0)));
    CHECK((p->peers >> t0->index & 1) == 0);
    fake_kill(t0);
    struct config_machine next = {.name = "t9", .pool = POOL_TOKEN, .local = true};
    CHECK(fleet_add(c->fleet, &next) == fake_record(t0));
    gateway_machine_add(g, fake_record(t0), 0);
    fake_start(t0);
    fake_settle(c);
    CHECK(fleet_machine_up(fake_record(t0)) && (p->peers >> t0->index & 1) != 0);
    fake_link(p, "t9", true);
    fake_settle(c);
    struct fake_client third = {0};
    fake_submit(c, &third, 700, 20, 4, false);
    fake_settle(c);
    CHECK(t0->reserves == 2);
    /* t1 becomes a prompt machine: it hears of t9, and finishes what it decodes. */
    gateway_machine_home_set(g, fake_record(t1), POOL_PROMPT);
    fake_settle(c);
    CHECK((t1->peers >> t0->index & 1) != 0);
    r = fake_first_request(t1);
    advance_on(c, t1, r->id, FAKE_HANDED);
    while (second.request != NULL) {
        fake_decode(t1, r);
        fake_flush(c);
    }
    CHECK(second.end == GATEWAY_DONE && second.answered == 4);
    /* A smaller queue counts for those that come. */
    c->config.scheduler.queue_requests_max = 0;
    gateway_configure(g);
    for (uint32_t i = 0; i < c->fleet->count; i++) /* else one of them would do it all */
        gateway_machine_phase_set(g, &c->fleet->machines[i], FLEET_DRAINING);
    struct fake_client fourth = {0};
    fake_submit(c, &fourth, 600, 20, 4, false);
    fake_settle(c);
    CHECK(fourth.ended && fourth.end == GATEWAY_REFUSED && fourth.retry_after_s > 0);
    fake_cluster_close(c);
}

/* Each generation of a constrained request brings the constraint and the delivered tokens. A
 * machine that cannot follow the constraint ends the request with an error. */
static void test_constrained(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 2, 0, 64, 8);
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_client client = {0};
    c->constraint = "regex:[a-z]*";
    fake_start_all(c);
    fake_submit(c, &client, 200, 20, 9, false);
    fake_settle(c);
    struct fake_machine *t =
        fake_machine(c, fake_first_request(fake_machine(c, "t0")) != NULL ? "t0" : "t1");
    struct fake_machine *other =
        fake_machine(c, t->index == fake_machine(c, "t0")->index ? "t1" : "t0");
    uint64_t id = fake_first_request(t)->id;
    CHECK(fake_token_side(t, id)->answer_count == 0);
    advance_on(c, t, id, FAKE_PROMPT);
    CHECK(fake_prompt_side(p, id)->answer_count == 0);
    fake_sample(p, fake_prompt_side(p, id));
    fake_flush(c);
    fake_hand_over(p, fake_prompt_side(p, id));
    fake_flush(c);
    fake_decode(t, fake_token_side(t, id));
    fake_flush(c);
    CHECK(client.answered == 2);
    fake_kill(t);
    fake_settle(c);
    struct fake_request *r = fake_token_side(other, id);
    CHECK(r != NULL && r->answer_count == 2);
    CHECK(memcmp(r->tokens, client.tokens + 20, 2 * sizeof(uint32_t)) == 0);
    advance_on(c, other, id, FAKE_PROMPT);
    CHECK(fake_prompt_side(p, id)->answer_count == 2);
    fake_token_send(p, id, 1, 0, 0, FINISH_CONSTRAINT);
    fake_flush(c);
    CHECK(client.ended && client.end == GATEWAY_FAILED && client.answered == 2);
    CHECK(strstr(client.text, "constraint") != NULL);
    CHECK(fake_request_count(other) == 0 && fake_request_count(p) == 0);
    fake_cluster_close(c);
}

int main(void)
{
    test_constrained();
    test_operated();
    test_flow();
    test_repeated();
    test_overtaking();
    test_short_ways();
    test_events();
    test_summary();
    test_ends_at_once();
    test_release();
    test_refused();
    test_table_full();
    return 0;
}
