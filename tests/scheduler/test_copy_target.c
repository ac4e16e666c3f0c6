/* Goal: the copy of an answer's KV (kv/checkpoint) goes to a machine that can keep it and that is
 * not the machine that it protects from: never the token machine itself, no machine that is down,
 * drains, has no link from the token machine or no memory left. Machines on another host go first;
 * then the prompt machine, because it has the prompt already; then the machine with the least
 * scheduled memory, and of equal ones the first. Method: scenes in virtual time with results worked
 * out by hand: two prompt machines (0, 1), three token machines (2, 3, 4) and, in one scene, mixed
 * machines only. */
#include "scheduler/cluster/cluster.h"
#include "tests/check.h"

#define PROMPTS  2
#define MACHINES 5
#define KV       10000
#define PROMPT   600
#define ANSWER   400

static struct sched_cluster *sc;
static struct sched_action route;

static const struct sched_cluster_options options = {
    .request_count = 16, .machine_count = MACHINES, .queue_requests_max = 16, .adaptive = true};

static void tell(struct sched_event event)
{
    struct sched_actions actions;
    sched_cluster_event(sc, &event, &actions);
    for (uint32_t i = 0; i < actions.count; i++)
        if (actions.items[i].kind == SCHED_ROUTE)
            route = actions.items[i];
}

static void up(uint32_t machine, enum pool pool)
{
    tell((struct sched_event){
        .kind = SCHED_MACHINE_UP, .machine = machine, .pool = pool, .kv_tokens = KV});
}

static void link_set(uint32_t from, uint32_t to, bool is_up)
{
    tell((struct sched_event){
        .kind = is_up ? SCHED_LINK_UP : SCHED_LINK_DOWN, .machine = from, .peer = to});
}

static void cluster_open(bool mixed)
{
    CHECK(sched_cluster_open(&options, &sc) == ST_OK);
    for (uint32_t i = 0; i < MACHINES; i++)
        up(i, mixed ? POOL_MIXED : i < PROMPTS ? POOL_PROMPT : POOL_TOKEN);
    for (uint32_t i = 0; i < MACHINES; i++)
        for (uint32_t k = 0; k < MACHINES; k++)
            if (i != k)
                link_set(i, k, true);
}

/* KV tokens of other gateways' requests on the machine. */
static void load(uint32_t machine, uint64_t kv_tokens)
{
    tell((struct sched_event){
        .kind = SCHED_MACHINE_LOAD, .machine = machine, .others = {.kv_tokens = kv_tokens}});
}

static void arrive(uint32_t id, uint32_t answer)
{
    route = (struct sched_action){.machine = SCHED_NO_MACHINE};
    tell((struct sched_event){
        .kind = SCHED_ARRIVED, .request = id, .prompt_tokens = PROMPT, .output_tokens = answer});
    CHECK(route.machine != SCHED_NO_MACHINE && route.request == id);
}

static void check_target(uint32_t want, const char *scene)
{
    uint32_t found = sched_cluster_copy_target(sc, 0);
    CHECKF(found == want, "%s: machine %u, want %u", scene, found, want);
}

/* Request 0 on prompt machine 0, which has finished with it, and token machine 2. */
static void scene_open(void)
{
    cluster_open(false);
    arrive(0, ANSWER);
    CHECK(route.machine == 0 && route.token_machine == 2);
    tell((struct sched_event){.kind = SCHED_PREFILLED, .request = 0});
}

static void test_prompt_machine_first(void)
{
    scene_open();
    load(0, KV - PROMPT - ANSWER); /* The copy just fits, and every other machine is empty. */
    check_target(0, "the prompt machine has room for the longest answer");
    load(0, KV - PROMPT - ANSWER + 1);
    check_target(1, "the prompt machine is full");
    sched_cluster_close(sc);
}

static void test_least_memory(void)
{
    scene_open();
    link_set(2, 0, false);
    check_target(1, "machines 1, 3 and 4 are equal");
    load(1, 1);
    check_target(3, "machines 3 and 4 have the least");
    load(3, 2);
    check_target(4, "machine 4 has the least");
    load(4, KV);
    check_target(1, "machine 4 is full");
    load(1, 3);
    check_target(3, "machine 3 has less than machine 1");
    arrive(1, ANSWER); /* This scheduler's own requests count, too. */
    CHECK(route.token_machine == 3);
    check_target(1, "machine 3 has got a request");
    sched_cluster_close(sc);
}

static void test_links(void)
{
    scene_open();
    for (uint32_t i = 0; i < MACHINES; i++)
        if (i != 2)
            link_set(2, i, false);
    check_target(SCHED_NO_MACHINE, "the token machine can write to no machine");
    for (uint32_t i = 0; i < MACHINES; i++)
        if (i != 2)
            link_set(i, 2, true);
    check_target(SCHED_NO_MACHINE, "links to the token machine do not count");
    link_set(2, 4, true);
    check_target(4, "one link");
    sched_cluster_close(sc);
}

static void test_away(void)
{
    scene_open();
    tell((struct sched_event){.kind = SCHED_MACHINE_DRAIN, .machine = 0});
    check_target(1, "the prompt machine drains");
    tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = 1});
    check_target(3, "machine 1 is down");
    tell((struct sched_event){.kind = SCHED_MACHINE_DRAIN, .machine = 3});
    tell((struct sched_event){.kind = SCHED_MACHINE_DRAIN, .machine = 4});
    check_target(SCHED_NO_MACHINE, "no machine is left");
    tell((struct sched_event){.kind = SCHED_MACHINE_UNDRAIN, .machine = 4});
    check_target(4, "machine 4 does not drain any longer");
    /* A machine that is up again has no links until they are reported. */
    up(1, POOL_PROMPT);
    tell((struct sched_event){.kind = SCHED_MACHINE_DRAIN, .machine = 4});
    check_target(SCHED_NO_MACHINE, "machine 1 is up without a link");
    link_set(2, 1, true);
    check_target(1, "machine 1 is up");
    sched_cluster_close(sc);
}

/* A draining token machine is protected as well: its answers may stay there. */
static void test_source_drains(void)
{
    scene_open();
    tell((struct sched_event){.kind = SCHED_MACHINE_DRAIN, .machine = 2});
    check_target(0, "the token machine drains");
    sched_cluster_close(sc);
}

static void host_set(uint32_t machine, uint32_t host)
{
    tell((struct sched_event){.kind = SCHED_MACHINE_HOST, .machine = machine, .host = host});
}

/* One host's death should not lose both: a machine on another host goes before the prompt machine
 * and before machines with less memory in use. */
static void test_hosts(void)
{
    scene_open();
    host_set(2, 5);
    host_set(0, 5);
    check_target(1, "the prompt machine is on the token machine's host");
    load(1, 9);
    check_target(3, "machines 1, 3 and 4 are on unknown hosts, machine 3 has less memory in use");
    for (uint32_t i = 1; i < MACHINES; i++)
        host_set(i, 5);
    check_target(0, "all machines are on one host");
    load(0, KV);
    check_target(3, "all are on one host, and the prompt machine is full");
    host_set(4, 6);
    load(4, KV - PROMPT - ANSWER);
    check_target(4, "machine 4 is on another host");
    load(4, KV - PROMPT - ANSWER + 1);
    check_target(3, "the machine on the other host is full");
    load(0, 0);
    host_set(0, 6);
    host_set(1, 6);
    load(1, 0);
    check_target(0, "the prompt machine and machine 1 are on another host");
    sched_cluster_close(sc);
}

/* One machine does both phases: it is prompt machine and token machine, and gets no copy. */
static void test_mixed(void)
{
    cluster_open(true);
    arrive(0, ANSWER);
    CHECK(route.machine == route.token_machine);
    uint32_t self = route.token_machine;
    check_target(self == 0 ? 1 : 0, "a machine with both phases");
    for (uint32_t i = 0; i < MACHINES; i++)
        if (i != self)
            tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = i});
    check_target(SCHED_NO_MACHINE, "the machine with both phases is alone");
    sched_cluster_close(sc);
}

static void test_no_answer_on_a_machine(void)
{
    cluster_open(false);
    check_target(SCHED_NO_MACHINE, "a request that did not arrive");
    arrive(0, 0);
    check_target(SCHED_NO_MACHINE, "a prompt without a token machine");
    tell((struct sched_event){.kind = SCHED_ENDED, .request = 0});
    arrive(0, ANSWER);
    check_target(0, "a routed request");
    tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = route.token_machine});
    check_target(SCHED_NO_MACHINE, "a request that was lost");
    tell((struct sched_event){.kind = SCHED_ENDED, .request = 0});
    for (uint32_t i = 0; i < MACHINES; i++)
        tell((struct sched_event){.kind = SCHED_MACHINE_DOWN, .machine = i});
    tell((struct sched_event){
        .kind = SCHED_ARRIVED, .request = 0, .prompt_tokens = PROMPT, .output_tokens = ANSWER});
    check_target(SCHED_NO_MACHINE, "a request that waits");
    sched_cluster_close(sc);
}

int main(void)
{
    test_prompt_machine_first();
    test_least_memory();
    test_links();
    test_away();
    test_source_drains();
    test_hosts();
    test_mixed();
    test_no_answer_on_a_machine();
    return 0;
}
