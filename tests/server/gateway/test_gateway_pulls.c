/* Goal: KV that a machine has kept of a lost prompt travels to another prompt machine where the
 * measured links make that faster, and the request is served whatever fails on the way; each
 * decision is shown with its estimate and its outcome. Method: fake machines; one that has a part
 * of the KV, and one that dies at each step. */
#include "scheduler/layerwise.h"
#include "tests/check.h"
#include "tests/server/gateway/fake_steps.h"

#include <string.h>

enum pull { PULLED, PULL_REFUSED, PULL_FAILS, SOURCE_DIES, TARGET_DIES, PULL_LEFT, PULL_COUNT };

/* The prompt machine dies in the middle of a prompt. The token machine has kept a part, and decodes
 * other answers; so it sends the part to another prompt machine, which gets the request after that.
 * If something fails on the way, the request is served without. */
static void others_say(struct fake_machine *m, uint32_t decodes, uint64_t prompt_tokens)
{
    struct message_others others = {.gateways = 2,
                                    .decodes = decodes,
                                    .prompts = prompt_tokens > 0 ? 1 : 0,
                                    .prompt_tokens = prompt_tokens};
    snprintf(others.leader, sizeof(others.leader), "%s", fake_gateway_name(m));
    fake_others(m, &others);
}

/* True if the gateway's state, or its latest decisions, contain the text. */
static bool shown(const struct fake_cluster *c, bool decisions, const char *want)
{
    struct text text = {0};
    if (decisions)
        gateway_decisions_write(c->gateway, &text);
    else
        gateway_state_write(c->gateway, &text);
    text_add(&text, "", 1);
    CHECK(!text.broken);
    bool found = strstr(text.data, want) != NULL;
    text_done(&text);
    return found;
}

static struct fake_cluster *pull_cluster_open(void)
{
    struct fake_cluster *c = fake_cluster_open(2, 2, 0, 256, 8);
    c->config.scheduler.adaptive_pools = true; /* Links from token machines, too. */
    c->config.scheduler.prompt_batch_tokens = 200;
    gateway_configure(c->gateway);
    fake_start_all(c);
    fake_stats(fake_machine(c, "p1"), &(struct message_stats){.prompt_batches = 10,
                                                              .prompt_batch_rows = 1000,
                                                              .prompt_batch_us = 1000000});
    fake_flush(c);
    return c;
}

static void test_pull(enum pull what)
{
    struct fake_cluster *c = pull_cluster_open();
    struct fake_machine *p0 = fake_machine(c, "p0"), *p1 = fake_machine(c, "p1");
    struct fake_machine *t = fake_machine(c, "t0");
    struct fake_client client = {0};
    c->copies_refused = what == PULL_REFUSED;
    c->copies_fail = what == PULL_FAILS;
    CHECK(fake_submit(c, &client, 1000, 200, 12, false) == ST_OK);
    fake_settle(c);
    struct fake_request *r = fake_first_request(t);
    CHECK(r != NULL && strcmp(r->partner, "p0") == 0);
    const uint64_t id = r->id;
    others_say(t, 8, 0);
    fake_reserved(t, r);
    fake_flush(c);
    CHECK(fake_request_count(p0) == 1);
    fake_progress(t, r, 112);
    fake_flush(c);
    fake_kill(p0);
    fake_settle(c);
    CHECK(p1->copies_stored == 1 && p1->prefills == 0 && fake_request_count(t) == 0);
    fake_outbox_send(c, p1);
    CHECK(t->copies_sent == (what == PULL_REFUSED ? 0 : 1));
    CHECK((fake_token_side(t, id) == NULL) == (what != PULL_REFUSED));
    if (what == PULL_LEFT) {
        gateway_release(c->gateway, client.request, GATEWAY_CLIENT_GONE);
        fake_flush(c);
        CHECK(p1->cancels == 1 && fake_request_count(t) == 0);
        fake_cluster_close(c);
        return;
    }
    if (what == SOURCE_DIES || what == TARGET_DIES)
        fake_kill(what == SOURCE_DIES ? t : p1);
    else
        fake_outbox_send(c, t);
    fake_settle(c);
    if (what <= PULL_FAILS)
        CHECK(strcmp(fake_token_side(t, id)->partner, "p1") == 0 && p1->copies_stored == 1);
    fake_run_all(c);
    CHECKF(client.ended && client.end == GATEWAY_DONE, "%d: %s", what, client.text);
    CHECK(client.generation == (what == SOURCE_DIES || what == TARGET_DIES ? 2 : 1));
    /* The decision has an estimate and an outcome. */
    CHECK(shown(c, true, "\"decision.move_us\":") && shown(c, true, "\"decision.keep_us\":"));
    CHECK(shown(c, true, what > PULL_FAILS ? "\"outcome\":\"left\"" : "\"outcome\":\"computed\"") &&
          shown(c, true, "\"choice\":\"move\""));
    fake_cluster_close(c);
}

/* The token machine dies; the prompt machine, which has the KV, has a long queue, so another one
 * gets the KV and the request. The first prompt machine dies before or after it has sent the KV. */
static void test_pull_source_dies(bool sent)
{
    struct fake_cluster *c = pull_cluster_open();
    struct fake_client client = {0};
    struct fake_machine *p0 = fake_machine(c, "p0"), *p1 = fake_machine(c, "p1");
    const uint64_t id = fake_bring(c, &client, AT_FIRST_TOKEN, false)->id;
    others_say(p0, 0, 100000);
    fake_flush(c);
    fake_kill(fake_machine(c, "t0"));
    fake_settle(c);
    CHECK(p1->copies_stored == 1 && fake_token_side(fake_machine(c, "t1"), id) == NULL);
    fake_outbox_send(c, p1);
    CHECK(p0->copies_sent == 1);
    if (sent)
        fake_outbox_send(c, p0);
    fake_kill(p0);
    fake_settle(c);
    CHECK(p1->cancels == (sent ? 0 : 1));
    CHECK(strcmp(fake_token_side(fake_machine(c, "t1"), id)->partner, "p1") == 0);
    fake_run_all(c);
    CHECKF(client.ended && client.end == GATEWAY_DONE, "%s", client.text);
    CHECK(client.generation == 1);
    fake_cluster_close(c);
}

/* The prompt length from which on KV is sent layer by layer is shown. p1 computes 1000 tokens a
 * second. */
static void layerwise_check(struct fake_cluster *c)
{
    char want[64];
    snprintf(c->config.kv.transfer, sizeof(c->config.kv.transfer), "auto");
    c->config.kv.layerwise_threshold_tokens = CONFIG_AUTO;
    fake_link_speed(fake_machine(c, "p1"), "t0", 5000, 1000000);
    fake_flush(c);
    const struct sched_layerwise speeds = {
        .send_token_us = 1, .prompt_token_us = 1000, .layer_count = 1};
    snprintf(want, sizeof(want), "\"layerwise_tokens\":%u}", sched_layerwise_tokens(&speeds));
    CHECKF(shown(c, false, want), "%s", want);
    c->config.kv.layerwise_threshold_tokens = 77;
    CHECK(shown(c, false, "\"layerwise_tokens\":77}"));
    snprintf(c->config.kv.transfer, sizeof(c->config.kv.transfer), "one-piece");
    CHECK(!shown(c, false, "layerwise_tokens"));
}

/* A link's speed is shown, and decides: over a link of 1000 tokens a second, which a machine has
 * measured, the token machine computes the rest itself. */
static void test_link_speed(void)
{
    struct fake_cluster *c = pull_cluster_open();
    struct fake_machine *t = fake_machine(c, "t0");
    struct fake_client client = {0};
    CHECK(!shown(c, false, "kv_tokens_per_s"));
    layerwise_check(c);
    fake_link_speed(t, "p1", 5000, 1000);
    fake_flush(c);
    CHECK(shown(c, false,
                "{\"from\":\"t0\",\"to\":\"p1\",\"up\":true,\"latency_us\":5000"
                ",\"kv_tokens_per_s\":1000,\"error_percent\":7}"));
    CHECK(fake_submit(c, &client, 1000, 200, 12, false) == ST_OK);
    fake_settle(c);
    struct fake_request *r = fake_first_request(t);
    others_say(t, 1, 0);
    fake_reserved(t, r);
    fake_flush(c);
    fake_progress(t, r, 192);
    fake_flush(c);
    fake_kill(fake_machine(c, "p0"));
    fake_settle(c);
    CHECK(fake_machine(c, "p1")->copies_stored == 0 && !shown(c, true, "\"choice\":\""));
    fake_run_all(c);
    CHECK(client.ended && client.end == GATEWAY_DONE && shown(c, true, "\"choice\":\"keep\""));
    fake_cluster_close(c);
}

static void decodes_report(struct fake_cluster *c, struct message_stats *stats, uint32_t rows,
                           uint32_t batch_us)
{
    stats->token_batches += 10;
    stats->token_batch_rows += 10 * rows;
    stats->token_batch_us += 10 * batch_us;
    fake_stats(fake_machine(c, "t0"), stats);
    fake_flush(c);
}

/* The decode rate of full batches is shown when the time of a further row was measured. */
static void test_decode_rate(void)
{
    struct fake_cluster *c = pull_cluster_open();
    struct message_stats stats = {0};
    decodes_report(c, &stats, 1, 2500);
    CHECK(shown(c, false, "\"output_tokens_per_s\":0,\"step_us\":2"));
    decodes_report(c, &stats, 2, 2450);
    CHECK(shown(c, false, "\"output_tokens_per_s\":0,\"step_us\":2"));
    decodes_report(c, &stats, 4, 4500);
    CHECK(shown(c, false, "\"step_us_per_answer\":7"));
    CHECK(!shown(c, false, "\"output_tokens_per_s\":0,\"step_us\":1"));
    fake_cluster_close(c);
}

int main(void)
{
    for (int what = 0; what < PULL_COUNT; what++)
        test_pull((enum pull)what);
    test_pull_source_dies(false);
    test_pull_source_dies(true);
    test_link_speed();
    test_decode_rate();
    return 0;
}
