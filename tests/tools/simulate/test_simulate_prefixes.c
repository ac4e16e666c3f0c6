/* Goal: in a simulation, prompts that begin alike are found in the machines' prefix caches as in a
 * cluster. Method: one machine is compared with a plain list of spans in the order of their last
 * use; times are calculated by hand, also of loads from tiers; with policy "prefix" prompts go
 * where their beginnings are; random clusters with small memory, windows, copies and failures end
 * all requests, and no machine loses a block (kv_pool_close asserts that). */
#include "tools/simulate/replay_log.h"
#include "tools/simulate/sim_run.h"

#include "common/random.h"
#include "tests/check.h"
#include "tests/tools/simulate/paper.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_S    0.001
#define BLOCK_TOKENS 16
#define ROWS_MAX     400
#define IDS_MAX      64

/* ---- one simulation ---- */

struct row {
    double at_s;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t id_count; /* Ids of BLOCK_TOKENS tokens each. */
    int64_t ids[IDS_MAX];
};

static struct row rows[ROWS_MAX];
static struct config config;
static struct sim_machines hosts;
static struct sim_report report;
static struct sim_run_totals totals;
static struct sim_run_options options;

static void rows_write(uint32_t count)
{
    FILE *file = fopen(scratch_path("trace.jsonl"), "w");
    CHECK(file != NULL);
    for (uint32_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        fprintf(file,
                "{\"timestamp\":%.3f,\"input_length\":%u,\"output_length\":%u,\"block_tokens\":%u,"
                "\"hash_ids\":[",
                row->at_s * 1e3, row->prompt_tokens, row->output_tokens, BLOCK_TOKENS);
        for (uint32_t k = 0; k < row->id_count; k++)
            fprintf(file, "%s%lld", k > 0 ? "," : "", (long long)row->ids[k]);
        fprintf(file, "]}\n");
    }
    CHECK(fclose(file) == 0);
}

static void cluster_open(const char *machines)
{
    struct error error = {""};
    char list[64], *rest = list;
    config_default(&config);
    memset(&hosts, 0, sizeof(hosts));
    config.scheduler.prompt_batch_tokens = 512;
    snprintf(list, sizeof(list), "%s", machines);
    for (const char *each; (each = strtok_r(rest, " ", &rest)) != NULL;) {
        char spec[1400];
        snprintf(spec, sizeof(spec), "%s:%s/h100.json", each, hardware);
        CHECKF(sim_machines_add(&hosts, spec, table, "bloom-176b", &config, &error) == ST_OK, "%s",
               error.text);
    }
    hosts.context_tokens = 4096;
    options = (struct sim_run_options){
        .machines = &hosts, .config = &config, .message_s = MESSAGE_S, .repair_s = 2, .seed = seed};
}

static void cluster_run(uint32_t count)
{
    struct error error = {""};
    struct sim_trace trace;
    rows_write(count);
    CHECKF(sim_trace_open(&trace, scratch_path("trace.jsonl"), false, 0, &error) == ST_OK, "%s",
           error.text);
    CHECK(sim_report_open(&report, NULL, false, &error) == ST_OK);
    CHECKF(sim_run(&options, &trace, &report, &totals, &error) == ST_OK, "%s", error.text);
    sim_trace_close(&trace);
    uint64_t ends = 0;
    for (int i = 0; i < SIM_OUTCOMES; i++)
        ends += report.outcomes[i];
    CHECKF(ends == count, "%llu of %u ended", (unsigned long long)ends, count);
    CHECK(totals.prefix_hit_tokens <= totals.prefix_query_tokens);
}

static double prompt_s(uint32_t tokens)
{
    double sum = 0;
    for (; tokens > 512; tokens -= 512)
        sum += cost_curve_prompts_s(&hosts.curves[0], 512);
    return sum + cost_curve_prompts_s(&hosts.curves[0], tokens);
}

static struct row row_of(double at_s, uint32_t prompt_tokens, uint32_t output_tokens,
                         uint32_t shared_tokens)
{
    struct row row = {.at_s = at_s,
                      .prompt_tokens = prompt_tokens,
                      .output_tokens = output_tokens,
                      .id_count = shared_tokens / BLOCK_TOKENS};
    for (uint32_t i = 0; i < row.id_count; i++)
        row.ids[i] = 1 + i;
    return row;
}

/* ---- times by hand ---- */

/* The second prompt is computed from its first token that no machine has: 4 messages and the rest
 * of the prompt pass before its first token. Without ids or without a prefix cache, all is
 * computed. */
static void beginning_is_not_computed(const char *machines)
{
    double first_s, both_s;
    rows[0] = row_of(0, 800, 2, 512);
    rows[1] = row_of(10, 700, 2, 512);
    cluster_open(machines);
    cluster_run(2);
    first_s = 4 * MESSAGE_S + prompt_s(800);
    both_s = first_s + 4 * MESSAGE_S + prompt_s(700 - 512);
    CHECKF(fabs(report.ttft.sum - both_s) < 1e-9, "%.9f, want %.9f", report.ttft.sum, both_s);
    CHECK(totals.prefixes && totals.prefix_query_tokens == 1500 && totals.prefix_hit_tokens == 512);
    config.kv.prefix_cache = false;
    cluster_run(2);
    both_s = first_s + 4 * MESSAGE_S + prompt_s(700);
    CHECKF(fabs(report.ttft.sum - both_s) < 1e-9, "%.9f, want %.9f", report.ttft.sum, both_s);
    CHECK(!totals.prefixes && totals.prefix_query_tokens == 0);
    config.kv.prefix_cache = true;
    rows[0].id_count = rows[1].id_count = 0;
    cluster_run(2);
    CHECK(!totals.prefixes && fabs(report.ttft.sum - both_s) < 1e-9);
}

/* The token machine has the beginning's KV, too, so it is not sent again: on a slow link, the
 * second transfer takes the time of the other tokens. */
static void beginning_is_not_sent(void)
{
    const double link = 1e9, token_s = 4014080.0 / link;
    rows[0] = row_of(0, 512, 2, 512);
    rows[1] = row_of(100, 640, 2, 512);
    cluster_open("1:prompt 1:token");
    snprintf(config.kv.transfer, sizeof(config.kv.transfer), "one-piece");
    snprintf(config.scheduler.placement, sizeof(config.scheduler.placement), "split");
    for (uint32_t i = 0; i < hosts.count; i++)
        hosts.machines[i].link_bytes_per_s = link;
    cluster_run(2);
    double want_s = (512 + 128) * token_s;
    CHECKF(fabs(report.transfer.sum - want_s) < 0.01 * want_s, "%.6f, want %.6f",
           report.transfer.sum, want_s);
}

/* ---- a plain model of one machine ---- */

/* The spans that the machine has, from the least to the most recently used. */
static struct {
    uint32_t count;
    uint64_t keys[8192];
} lru;

static bool lru_remove(uint64_t key)
{
    for (uint32_t i = 0; i < lru.count; i++)
        if (lru.keys[i] == key) {
            lru.count--;
            memmove(lru.keys + i, lru.keys + i + 1, (lru.count - i) * sizeof(lru.keys[0]));
            return true;
        }
    return false;
}

/* Serves the rows one after the other with `blocks` blocks. Returns the tokens that are found. */
static uint64_t model_run(uint32_t count, uint32_t blocks)
{
    uint64_t hits = 0;
    lru.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        uint64_t keys[512];
        uint64_t key = 0;
        uint32_t cached = 0;
        uint32_t spans = (row->prompt_tokens + row->output_tokens - 1) / BLOCK_TOKENS;
        for (uint32_t k = 0; k < spans; k++)
            keys[k] = key =
                random_at(key, k < row->id_count ? (uint64_t)row->ids[k] : (uint64_t)(i + 1) << 32);
        while (cached < (row->prompt_tokens - 1) / BLOCK_TOKENS && lru_remove(keys[cached]))
            cached++;
        hits += (uint64_t)cached * BLOCK_TOKENS;
        uint32_t all = (row->prompt_tokens + row->output_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
        while (lru.count + all > blocks)
            lru_remove(lru.keys[0]);
        for (uint32_t k = spans; k-- > 0;) { /* The end of a chain is displaced first. */
            lru_remove(keys[k]);
            lru.keys[lru.count++] = keys[k];
        }
    }
    return hits;
}

/* Conversations that continue, begin alike, or begin anew. */
static void rows_draw(uint32_t count, double gap_s)
{
    int64_t id_next = 1;
    for (uint32_t i = 0; i < count; i++) {
        struct row *row = &rows[i];
        *row = (struct row){.at_s = (i > 0 ? rows[i - 1].at_s : 0) + gap_s * (1 + draw(100)) / 50};
        const struct row *before = i > 0 ? &rows[i - 1 - draw(i < 20 ? i : 20)] : NULL;
        if (before != NULL && draw(4) > 0) {
            row->id_count = before->id_count > 0 ? 1 + draw(before->id_count) : 0;
            memcpy(row->ids, before->ids, row->id_count * sizeof(row->ids[0]));
        }
        for (uint32_t more = draw(12); more > 0 && row->id_count < IDS_MAX; more--)
            row->ids[row->id_count++] = id_next++;
        row->prompt_tokens = row->id_count * BLOCK_TOKENS + 1 + draw(40);
        row->output_tokens = 2 + draw(60);
    }
}

static void cache_is_that_of_the_model(void)
{
    static const uint32_t blocks[] = {8000, 300, 150, 90};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        cluster_open("1:mixed");
        rows_draw(ROWS_MAX, 30); /* No two requests at the same time. */
        hosts.machines[0].kv_tokens = blocks[i] * BLOCK_TOKENS;
        hosts.context_tokens = 1200;
        config.scheduler.growth_tokens = 64; /* All blocks are taken at the beginning. */
        cluster_run(ROWS_MAX);
        CHECK(report.outcomes[SIM_DONE] == ROWS_MAX);
        uint64_t hits = model_run(ROWS_MAX, blocks[i]);
        printf("%u blocks: %llu of %llu tokens found\n", blocks[i], (unsigned long long)hits,
               (unsigned long long)totals.prefix_query_tokens);
        CHECKF(totals.prefix_hit_tokens == hits, "%llu, want %llu",
               (unsigned long long)totals.prefix_hit_tokens, (unsigned long long)hits);
    }
}

/* ---- tiers ---- */

/* Random spans in a tier, compared with the list of the plain model. */
static void tier_is_that_of_the_model(void)
{
    struct sim_tier *tier;
    for (uint32_t room = 0; room < 40; room += 13) {
        CHECK(sim_tier_open(room, &tier) == ST_OK);
        lru.count = 0;
        for (uint32_t i = 0; i < 20000; i++) {
            const uint64_t name = sim_tier_name(draw(3), draw(30));
            const uint32_t what = draw(200);
            const bool found = what > 0 && lru_remove(name);
            if (what == 0) {
                sim_tier_clear(tier);
                lru.count = 0;
            } else if (what < 100) {
                CHECK(sim_tier_use(tier, name) == found);
                lru.keys[lru.count] = name;
                lru.count += found;
            } else {
                sim_tier_put(tier, name);
                if (room > 0 && !found && lru.count == room)
                    lru_remove(lru.keys[0]);
                lru.keys[lru.count] = name;
                lru.count += room > 0;
            }
        }
        sim_tier_close(tier);
    }
}

#define TOKEN_BYTES 4014080.0

static void tier_set(enum tier_kind kind, double bytes_per_s)
{
    options.tiers[kind] = (struct sim_tier_kind){
        .bytes = 4096 * TOKEN_BYTES, .bytes_per_s = bytes_per_s, .fixed_s = 0.01};
}

/* One machine, whose memory holds one request. Two prompts with other beginnings take turns, so
 * that memory never has the beginning of 512 tokens, but the file has it. A load of it takes 10 ms
 * + 512 tokens / bandwidth. A prompt waits at most wait_ms, for a part of it. The first one is
 * always tried; the next one only if it was faster than the machine computes. */
static void beginning_is_loaded(enum tier_kind kind, bool fast, uint32_t wait_ms)
{
    const bool late = wait_ms < 2000;
    const double span_s = BLOCK_TOKENS * TOKEN_BYTES / (fast ? 100e9 : 1e9);
    const uint32_t some = (uint32_t)((wait_ms / 1e3 - 0.01) / span_s) * BLOCK_TOKENS;
    const double rate = fast ? 100e9 : 1e9, load_s = 0.01 + 512 * TOKEN_BYTES / rate;
    double want_s = 0;
    for (uint32_t i = 0; i < 6; i++) {
        rows[i] = row_of(i * 4, 700, 2, 512);
        for (uint32_t k = 0; k < rows[i].id_count; k++)
            rows[i].ids[k] += 1000 * (i % 2);
    }
    cluster_open("1:mixed");
    hosts.machines[0].kv_tokens = 44 * BLOCK_TOKENS;
    hosts.context_tokens = 704;
    config.kv.tiers.wait_ms = wait_ms;
    tier_set(kind, rate);
    for (uint32_t i = 0; i < 6; i++)
        want_s += 4 * MESSAGE_S + (i == 2 && late ? wait_ms / 1e3 + prompt_s(700 - some)
                                   : i == 2 || (i > 2 && fast) ? load_s + prompt_s(700 - 512)
                                                               : prompt_s(700));
    cluster_run(6);
    CHECKF(totals.tier_tokens[kind] == (fast   ? 4 * 512
                                        : late ? some
                                               : 512),
           "%llu tokens loaded", (unsigned long long)totals.tier_tokens[kind]);
    CHECKF(totals.prefix_hit_tokens == totals.tier_tokens[kind], "%llu tokens found",
           (unsigned long long)totals.prefix_hit_tokens);
    CHECKF(fabs(report.ttft.sum - want_s) < 1e-6, "%.9f, want %.9f", report.ttft.sum, want_s);
}

/* The machine that has computed the beginning dies. Another machine loads it from the store; the
 * same machine loads it from its file after the repair, and has lost its memory. */
static void beginning_survives(const char *machines, enum tier_kind kind, uint32_t tokens)
{
    const struct sim_kill kill = {.at_s = 5, .machine = 0};
    rows[0] = row_of(0, 800, 2, 512);
    rows[1] = row_of(10, 700, 2, 512);
    cluster_open(machines);
    options.kills = &kill;
    options.kill_count = 1;
    options.repair_s = hosts.count == 1 ? 2 : 1e6;
    tier_set(kind, 100e9);
    cluster_run(2);
    CHECKF(totals.tier_tokens[kind] == tokens && totals.prefix_hit_tokens == tokens,
           "%s, tier %s: %llu tokens loaded, want %u", machines, tier_kind_name(kind),
           (unsigned long long)totals.tier_tokens[kind], tokens);
}

static void option_is_read(void)
{
    struct option_texts texts = {.count = 2, .texts = {"file:2:0.5:300", "store:1.5:4:0"}};
    struct sim_tier_kind kinds[TIER_KIND_COUNT] = {{0}};
    struct error error;
    CHECK(sim_tier_kinds_read(&texts, kinds, &error) == ST_OK);
    CHECK(kinds[TIER_KIND_MEMORY].bytes <= 0 && kinds[TIER_KIND_FILE].bytes == 2147483648.0 &&
          kinds[TIER_KIND_FILE].bytes_per_s == 5e8 && kinds[TIER_KIND_FILE].fixed_s == 3e-4 &&
          kinds[TIER_KIND_STORE].bytes == 1610612736.0 && kinds[TIER_KIND_STORE].fixed_s <= 0);
    static const char *const wrong[] = {"disk:1:1:1", "file:1:1",    "file:0:1:1",
                                        "file:1:0:1", "file:1:1:-1", "file:1:1:1:1",
                                        "",           "file",        "file:nan:1:1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        texts = (struct option_texts){.count = 1, .texts = {wrong[i]}};
        CHECKF(sim_tier_kinds_read(&texts, kinds, &error) == ST_INVALID, "%s", wrong[i]);
    }
}

/* ---- policies ---- */

/* Requests of eight conversations come faster than one machine serves them. */
static uint64_t hits_with(const char *policy)
{
    seed = 7;
    draws = 0;
    cluster_open("4:mixed");
    snprintf(config.scheduler.policy, sizeof(config.scheduler.policy), "%s", policy);
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        rows[i] = row_of(i * 0.05, 1100, 20, 960);
        int64_t conversation = draw(8);
        for (uint32_t k = 0; k < rows[i].id_count; k++)
            rows[i].ids[k] += 1000 * conversation;
    }
    cluster_run(ROWS_MAX);
    CHECK(report.outcomes[SIM_DONE] == ROWS_MAX);
    return totals.prefix_hit_tokens;
}

static void prompts_go_to_their_prefixes(void)
{
    uint64_t with = hits_with("prefix");
    double with_s = quantiles_mean(&report.ttft);
    uint64_t without = hits_with("jsq");
    double without_s = quantiles_mean(&report.ttft);
    printf("policy prefix: %llu of %u tokens found, TTFT %.3f s; jsq: %llu, %.3f s\n",
           (unsigned long long)with, ROWS_MAX * 1100, with_s, (unsigned long long)without,
           without_s);
    CHECK(with > without && with_s < without_s);
}

/* ---- random clusters ---- */

static void events_replay(void)
{
    struct replay_log_totals replayed;
    struct error error = {""};
    FILE *file = fopen(scratch_path("events"), "r");
    CHECK(file != NULL);
    CHECKF(replay_log(file, "events", NULL, &replayed, &error) == ST_OK, "%s", error.text);
    CHECK(replayed.events > 0 && replayed.differing == 0);
    fclose(file);
}

static void random_cluster(uint64_t round)
{
    static const char *const some[] = {"1:mixed", "2:mixed", "1:prompt 1:token", "2:prompt 2:token",
                                       "1:prompt 2:token 1:mixed"};
    static const char *const modes[] = {"off", "idle", "always"};
    seed = 100 + round;
    draws = 0;
    cluster_open(some[draw(5)]);
    rows_draw(200, 0.2 + 0.1 * draw(20));
    bool windows = draw(2) == 0;
    for (uint32_t i = 0; i < hosts.count; i++) {
        hosts.machines[i].kv_tokens = draw(2) == 0 ? 100000 : 3000 + draw(4000);
        if (!windows)
            continue;
        hosts.machines[i].cost.groups =
            (struct layer_groups){.count = 3, .windowed = 3, .window_tokens = 1 + draw(300)};
        hosts.machines[i].cost.windowed_layers = 2 * hosts.machines[i].cost.layer_count / 3;
        hosts.machines[i].kv_tokens *= 3;
    }
    for (uint32_t i = 1; i < hosts.count; i++)
        hosts.machines[i].cost.groups = hosts.machines[0].cost.groups;
    hosts.context_tokens = 1200;
    options.failure_s = draw(2) == 0 ? 0 : 5 + draw(30);
    snprintf(config.scheduler.policy, sizeof(config.scheduler.policy), "%s",
             draw(3) == 0 ? "jsq" : "prefix");
    snprintf(config.kv.checkpoint, sizeof(config.kv.checkpoint), "%s", modes[draw(3)]);
    config.kv.checkpoint_ms = draw(3) * 300;
    config.scheduler.growth_tokens = 1 + draw(64);
    config.scheduler.preemptions_max = draw(4);
    config.scheduler.adaptive_pools = draw(4) > 0;
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++)
        if (draw(2) == 0)
            options.tiers[kind] = (struct sim_tier_kind){.bytes = TOKEN_BYTES * (10 + draw(20000)),
                                                         .bytes_per_s = 1e9 * (1 + draw(200)),
                                                         .fixed_s = 0.001 * draw(20)};
    config.kv.tiers.wait_ms = draw(2) == 0 ? 1 + draw(300) : 60000;
    options.events = fopen(scratch_path("events"), "w");
    CHECK(options.events != NULL);
    cluster_run(200);
    CHECK(fclose(options.events) == 0);
    events_replay();
    CHECK(totals.prefixes && totals.prefix_hit_tokens > 0);
}

/* A trace is read once: each row of a pipe arrives, although none has hash ids. */
static void trace_of_a_pipe(void)
{
    static const char row[] = "{\"timestamp\":0,\"input_length\":16,\"output_length\":1}\n";
    const uint32_t wanted = 500; /* More than one buffer of stdio, less than a pipe holds. */
    struct error error = {""};
    struct sim_trace trace;
    struct sim_arrival arrival;
    uint32_t count = 0;
    int ends[2];
    char name[32];
    CHECK(pipe(ends) == 0);
    for (uint32_t i = 0; i < wanted; i++)
        CHECK(write(ends[1], row, sizeof(row) - 1) == (ssize_t)sizeof(row) - 1);
    snprintf(name, sizeof(name), "/dev/fd/%d", ends[0]);
    CHECK(close(ends[1]) == 0);
    CHECKF(sim_trace_open(&trace, name, false, 0, &error) == ST_OK, "%s", error.text);
    for (bool end = false; !end; count += !end)
        CHECKF(sim_trace_next(&trace, &arrival, &end, &error) == ST_OK, "%s", error.text);
    CHECKF(count == wanted, "%u rows of %u", count, wanted);
    CHECK(trace.has_prefixes);
    sim_trace_close(&trace);
    CHECK(close(ends[0]) == 0);
}

int main(void)
{
    paper_open();
    trace_of_a_pipe();
    beginning_is_not_computed("1:mixed");
    beginning_is_not_computed("1:prompt 1:token");
    beginning_is_not_sent();
    cache_is_that_of_the_model();
    tier_is_that_of_the_model();
    option_is_read();
    beginning_is_loaded(TIER_KIND_FILE, true, 5000);
    beginning_is_loaded(TIER_KIND_FILE, false, 5000);
    beginning_is_loaded(TIER_KIND_FILE, false, 500);
    beginning_is_loaded(TIER_KIND_STORE, true, 5000);
    beginning_survives("2:mixed", TIER_KIND_STORE, 512);
    beginning_survives("2:mixed", TIER_KIND_FILE, 0);
    beginning_survives("1:mixed", TIER_KIND_FILE, 512);
    beginning_survives("1:mixed", TIER_KIND_MEMORY, 0);
    prompts_go_to_their_prefixes();
    for (uint64_t round = 0; round < 60; round++)
        random_cluster(round);
    CHECK(remove(scratch_path("trace.jsonl")) == 0 && remove(scratch_path("events")) == 0);
    CHECK(rmdir(scratch) == 0);
    return 0;
}
