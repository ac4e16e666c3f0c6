/* Goal: a gateway counts the work of other gateways on its machines, takes over the home pool that
 * another gateway gave a machine (and never an older decision), and leads only where no other
 * gateway does. Method: fake machines send OTHERS; the routes of requests, ROLE and /metrics show
 * the result. */
#include "tests/check.h"
#include "tests/server/gateway/fake_cluster.h"

#include <string.h>

static struct fake_machine *any_reserve(struct fake_cluster *c, uint32_t key)
{
    static struct fake_client clients[64];
    static uint32_t count;
    uint32_t before[FAKE_MACHINES] = {0};
    for (uint32_t i = 0; i < c->fleet->count; i++)
        before[i] = c->machines[i].reserves;
    CHECK(fake_submit(c, &clients[count++], key, 20, 4, false) == ST_OK);
    fake_settle(c);
    for (uint32_t i = 0; i < c->fleet->count; i++)
        if (c->machines[i].reserves > before[i])
            return &c->machines[i];
    CHECK(false);
    return NULL;
}

static void tell(struct fake_machine *m, struct message_others others)
{
    fake_others(m, &others);
    fake_flush(m->cluster);
}

static void test_load(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 2, 0, 64, 8);
    struct fake_machine *t0 = fake_machine(c, "t0");
    struct fake_machine *t1 = fake_machine(c, "t1");
    fake_start_all(c);
    CHECK(any_reserve(c, 100) == t0); /* the first of equals; then the other one */
    CHECK(any_reserve(c, 200) == t1);
    tell(t0, (struct message_others){.gateways = 2, .kv_tokens = 100, .decodes = 2});
    CHECK(any_reserve(c, 300) == t1);
    CHECK(any_reserve(c, 400) == t1); /* 48 of ours there against 24, and 100 of others */
    tell(t0, (struct message_others){.gateways = 2, .kv_tokens = 10, .decodes = 1});
    CHECK(any_reserve(c, 500) == t0);
    /* It is gone with the connection. */
    tell(t1, (struct message_others){.gateways = 2, .kv_tokens = 500, .decodes = 1});
    CHECK(any_reserve(c, 600) == t0);
    size_t bytes;
    char *page = metrics_render(c->metrics, &bytes);
    CHECK(strstr(page, "cleave_machine_others_kv_tokens{machine=\"t1\",pool=\"token\"} 500\n"));
    CHECK(strstr(page, "cleave_machine_gateways{machine=\"t0\",pool=\"token\"} 2\n"));
    free(page);
    fake_kill(t1);
    fake_settle(c);
    page = metrics_render(c->metrics, &bytes);
    CHECK(strstr(page, "cleave_machine_others_kv_tokens{machine=\"t1\"") == NULL);
    free(page);
    fake_start(t1);
    c->now_us += 3000000;
    fake_flush(c);
    CHECK(any_reserve(c, 700) == t1);
    fake_cluster_close(c);
}

static void test_home(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 2, 0, 64, 8);
    struct fake_machine *t1 = fake_machine(c, "t1");
    fake_start_all(c);
    CHECK(t1->pool == POOL_TOKEN && t1->home == POOL_TOKEN && t1->home_serial == 0);
    /* Another gateway has said so, twice. */
    tell(t1, (struct message_others){.gateways = 2, .home_pool = POOL_PROMPT, .home_serial = 2});
    CHECK(t1->pool == POOL_PROMPT && t1->home == POOL_PROMPT && t1->home_serial == 2);
    CHECK((t1->peers & 1u << fake_machine(c, "t0")->index) != 0);
    /* The operator of this one says another thing later; what the other said before is old then. */
    gateway_machine_home_set(c->gateway, fake_record(t1), POOL_TOKEN);
    fake_settle(c);
    CHECK(t1->pool == POOL_TOKEN && t1->home == POOL_TOKEN && t1->home_serial == 3);
    tell(t1, (struct message_others){.gateways = 2, .home_pool = POOL_PROMPT, .home_serial = 2});
    CHECK(t1->pool == POOL_TOKEN);
    /* Both spoke at once, and the machine took the other one's word. */
    tell(t1, (struct message_others){.gateways = 2, .home_pool = POOL_PROMPT, .home_serial = 3});
    CHECK(t1->pool == POOL_PROMPT && t1->home_serial == 3);
    /* A machine that starts anew hears it again. */
    fake_kill(t1);
    fake_settle(c);
    fake_start(t1);
    c->now_us += 3000000;
    fake_flush(c);
    CHECK(t1->pool == POOL_PROMPT && t1->home == POOL_PROMPT && t1->home_serial == 3);
    fake_cluster_close(c);
}

static bool leads(const struct fake_cluster *c)
{
    size_t bytes;
    char *page = metrics_render(c->metrics, &bytes);
    bool found = strstr(page, "cleave_gateway_leads 1\n") != NULL;
    CHECK(found || strstr(page, "cleave_gateway_leads 0\n") != NULL);
    free(page);
    return found;
}

static void test_leader(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_machine *t = fake_machine(c, "t0");
    fake_start_all(c);
    CHECK(leads(c));
    const struct message_others first = {.gateways = 2, .leader = "gateway"}; /* before all names */
    tell(p, first);
    CHECK(!leads(c));
    tell(t, first);
    CHECK(!leads(c));
    struct message_others own = {.gateways = 1};
    snprintf(own.leader, sizeof(own.leader), "%s", fake_gateway_name(p));
    tell(p, own);
    CHECK(!leads(c)); /* the other one is still on t0 */
    fake_kill(t);
    fake_settle(c);
    CHECK(leads(c));
    fake_cluster_close(c);
}

static bool share_is(struct fake_cluster *c, uint32_t gateways, uint32_t rank)
{
    struct gateway_share share = gateway_share(c->gateway);
    return share.gateways == gateways && share.rank == rank;
}

/* A gateway takes its smaller share of the API keys' limits at once, and a larger one only when the
 * other gateway has been away from all machines for a while. */
static void test_share(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 1, 0, 64, 8);
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_machine *t = fake_machine(c, "t0");
    CHECK(share_is(c, 1, 0));
    fake_start_all(c);
    CHECK(share_is(c, 1, 0));
    tell(p, (struct message_others){.gateways = 3, .rank = 2});
    CHECK(share_is(c, 3, 2));
    tell(t, (struct message_others){.gateways = 2, .rank = 1}); /* one of them has not reached t0 */
    CHECK(share_is(c, 3, 2));
    tell(p, (struct message_others){.gateways = 2, .rank = 1});
    CHECK(share_is(c, 3, 2));
    c->now_us += GATEWAY_SHARE_HOLD_US - 1;
    CHECK(share_is(c, 3, 2));
    c->now_us += 1;
    CHECK(share_is(c, 2, 1));
    /* It is away from one machine, and then from both for less than the time. */
    tell(p, (struct message_others){.gateways = 1});
    c->now_us += GATEWAY_SHARE_HOLD_US;
    CHECK(share_is(c, 2, 1));
    tell(t, (struct message_others){.gateways = 1});
    CHECK(share_is(c, 2, 1));
    c->now_us += GATEWAY_SHARE_HOLD_US - 1;
    CHECK(share_is(c, 2, 1));
    tell(t, (struct message_others){.gateways = 2}); /* another name: now this one is first */
    c->now_us += GATEWAY_SHARE_HOLD_US;
    CHECK(share_is(c, 2, 0));
    /* Without machines nothing is known: the share stays. */
    fake_kill(p);
    fake_kill(t);
    fake_settle(c);
    c->now_us += 2 * GATEWAY_SHARE_HOLD_US;
    CHECK(share_is(c, 2, 0));
    /* A machine that says what cannot be is not believed. */
    fake_start(t);
    c->now_us += 3000000;
    fake_flush(c);
    fake_settle(c);
    tell(t, (struct message_others){.gateways = 2, .rank = 2});
    CHECK(share_is(c, 2, 0));
    fake_cluster_close(c);
}

/* What does not fit the share of a mixed machine goes to no machine that another gateway has in the
 * mixed pool. */
static void test_mixed(void)
{
    struct fake_cluster *c = fake_cluster_open(1, 2, 0, 8, 8); /* 128 tokens; mixed ones share 64 */
    struct fake_machine *t0 = fake_machine(c, "t0");
    struct fake_machine *t1 = fake_machine(c, "t1");
    fake_start_all(c);
    tell(t0, (struct message_others){.gateways = 2, .is_in_mixed_pool = true});
    struct fake_client large = {0};
    struct fake_client again = {0};
    CHECK(fake_submit(c, &large, 100, 80, 10, false) == ST_OK);
    fake_settle(c);
    CHECK(t0->reserves == 0 && t1->reserves == 1);
    /* It becomes one while a large request waits for its KV there: that one goes elsewhere. */
    tell(t0, (struct message_others){.gateways = 2});
    tell(t1, (struct message_others){.gateways = 2, .is_in_mixed_pool = true});
    CHECK(t1->cancels == 1 && t0->reserves == 1);
    tell(t1, (struct message_others){.gateways = 1});
    CHECK(fake_submit(c, &again, 200, 80, 10, false) == ST_OK);
    fake_settle(c);
    CHECK(t1->reserves == 2);
    fake_cluster_close(c);
}

int main(void)
{
    test_load();
    test_home();
    test_leader();
    test_share();
    test_mixed();
    return 0;
}
