/* metrics_problems: see the header. Each check below is the expression of an alarm. Rates over a
 * window are sums that fade: a sum loses the part 1 - exp(-t/window) of itself in the time t. */
#include "server/metrics/problems.h"

#include "server/api/keys.h"
#include "server/metrics/internal.h"
#include "transport/message_tier.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN_US     1000000
#define CHANGE_US   (600 * 1000000ll) /* A change counts as recent for this long. */
#define LEDGER_S    60                /* Lines of the ledger may wait for this long. */
#define FILES_TURNS 10                /* Turns between looks at /proc. */
#define EXPIRES_S   (14 * 86400)
#define WHAT_BYTES  400

/* A counter's recent growth: a sum that fades. */
struct growth {
    uint64_t last;
    double sum;
};

/* When a counter last grew. */
struct change {
    uint64_t last;
    int64_t at_us; /* 0 = it has not grown yet. */
};

struct machine_past {
    struct growth transfers, exposed_us; /* 5 minutes */
    struct growth preemptions;           /* 10 minutes */
    struct growth losses, starts;        /* 30 minutes */
    struct change transfers_failed, crashes;
};

struct key_past {
    struct growth tokens, requests; /* 10 minutes */
};

struct metrics_problems {
    int64_t turned_us; /* The latest turn; 0 = none. */
    int64_t unix_s;    /* Unix time of the latest turn. */
    uint32_t turns;
    struct machine_past machines[LIMIT_MACHINES];
    struct key_past keys[API_KEY_INDICES];
    struct growth slo_missed, slo_all;            /* 30 minutes */
    struct growth refused[METRICS_REFUSAL_COUNT]; /* 5 minutes */
    struct growth resumed;                        /* 10 minutes */
    struct change blamed, stalled, members_refused, events_lost, access_lost, ledger_lost;
    double unrouted;         /* The queue, on average over a minute. */
    int64_t ledger_since_us; /* Since when lines of the ledger wait; 0 = no line waits. */
    double files_share;      /* Open files / most open files. */
    /* Since when the condition holds; 0 = it does not. [0] for the scope GATEWAY. */
    int64_t since_us[METRICS_PROBLEM_COUNT][LIMIT_MACHINES];
};

enum scope { GATEWAY, MACHINE };

static const struct {
    enum scope scope;
    uint32_t hold_s;
    const char *severity, *alarm, *what_to_do;
} kinds[] = {
#define KIND(name, scope, severity, hold_s, alarm, what_to_do)                                     \
    [METRICS_PROBLEM_##name] = {scope, hold_s, #severity, #alarm, what_to_do},
    METRICS_PROBLEMS(KIND)
#undef KIND
};

/* ---- the past ---- */

/* Adds the growth since the last turn. A counter that has become smaller belongs to another
 * machine or key, and starts again. */
static void growth_add(struct growth *g, uint64_t value, double kept)
{
    double more = value > g->last && g->last > 0 ? (double)(value - g->last) : 0;
    g->sum = value < g->last ? 0 : g->sum * kept + more;
    g->last = value;
}

/* The same for counters that are 0 at first, whose first growth counts, too. */
static void growth_from_zero_add(struct growth *g, uint64_t value, double kept)
{
    g->sum = value < g->last ? 0 : g->sum * kept + (double)(value - g->last);
    g->last = value;
}

static void change_note(struct change *c, uint64_t value, int64_t now_us)
{
    if (value > c->last)
        c->at_us = now_us;
    c->last = value;
}

static bool change_recent(const struct metrics_problems *p, const struct change *c)
{
    return c->at_us > 0 && p->turned_us - c->at_us < CHANGE_US;
}

static void machine_turn(const struct metrics *m, uint32_t i, int64_t now_us, double s)
{
    const struct fleet_machine *fleet = &m->fleet->machines[i];
    struct machine_past *past = &m->problems->machines[i];
    struct message_stats sum = metrics_counters(m, i);
    growth_from_zero_add(&past->transfers, sum.transfers_layerwise + sum.transfers_one_piece,
                         exp(-s / 300));
    growth_from_zero_add(&past->exposed_us, sum.transfer_exposed_us, exp(-s / 300));
    growth_from_zero_add(&past->preemptions, sum.preemptions, exp(-s / 600));
    growth_from_zero_add(&past->losses, m->machines[i].losses, exp(-s / 1800));
    growth_add(&past->starts, fleet->process.starts, exp(-s / 1800));
    change_note(&past->transfers_failed, sum.transfers_failed, now_us);
    change_note(&past->crashes, fleet->crashes, now_us);
}

static void keys_turn(const struct metrics *m, double s)
{
    for (uint32_t key = 0; key < api_keys_index_count(m->keys); key++) {
        struct key_past *past = &m->problems->keys[key];
        if (api_keys_settings(m->keys, key) == NULL) {
            *past = (struct key_past){.tokens = {0, 0}};
            continue;
        }
        const struct api_key_counts *counts = api_keys_counts(m->keys, key);
        growth_from_zero_add(&past->tokens, counts->prompt_tokens + counts->generated_tokens,
                             exp(-s / 600));
        growth_from_zero_add(&past->requests, counts->requests, exp(-s / 600));
    }
}

static void gateway_turn(const struct metrics *m, int64_t now_us, double s)
{
    struct metrics_problems *p = m->problems;
    const uint64_t *slo = m->slo_answers[METRICS_SLO_COUNT], *values = m->values;
    growth_from_zero_add(&p->slo_missed, slo[0], exp(-s / 1800));
    growth_from_zero_add(&p->slo_all, slo[0] + slo[1], exp(-s / 1800));
    for (int why = 0; why < METRICS_REFUSAL_COUNT; why++)
        growth_from_zero_add(&p->refused[why], m->refused[why], exp(-s / 300));
    growth_from_zero_add(&p->resumed, values[METRICS_REQUESTS_RESUMED], exp(-s / 600));
    change_note(&p->blamed, values[METRICS_REQUESTS_BLAMED], now_us);
    change_note(&p->stalled, m->stalls, now_us);
    change_note(&p->members_refused, values[METRICS_ETCD_REFUSED], now_us);
    change_note(&p->events_lost, values[METRICS_EVENTS_DROPPED], now_us);
    change_note(&p->access_lost, values[METRICS_ACCESS_DROPPED], now_us);
    change_note(&p->ledger_lost, values[METRICS_LEDGER_LOST], now_us);
    p->unrouted += ((double)values[METRICS_REQUESTS_UNROUTED] - p->unrouted) * (1 - exp(-s / 60));
    if (values[METRICS_LEDGER_WAITING] == 0)
        p->ledger_since_us = 0;
    else if (p->ledger_since_us == 0)
        p->ledger_since_us = now_us;
    if (p->turns++ % FILES_TURNS == 0)
        p->files_share = metrics_process_files();
}

/* ---- the conditions ---- */

/* Each check writes what the operator reads, if the condition holds. Of two problems with one cause
 * only that is listed which names the cause. */
#define SAY(...) (snprintf(what, WHAT_BYTES, __VA_ARGS__) > 0)

static bool check_not_ready(const struct metrics *m, char *what)
{
    return m->values[METRICS_READY] == 0 &&
           SAY("no machines can serve a request together; requests wait, then fail");
}

static bool check_machine_down(const struct metrics *m, uint32_t i, char *what)
{
    const struct fleet_machine *machine = &m->fleet->machines[i];
    const char *why = machine->connection.down_reason;
    if (m->machines[i].up || fleet_machine_leaving(machine) || machine->connection.mismatch)
        return false;
    if (machine->process.state == PROCESS_GIVEN_UP)
        return SAY("its process is not started again: %s", why);
    return SAY("the gateway is not connected to it: %s",
               why[0] != 0 ? why : "it has not started yet");
}

static bool check_machine_restarts(const struct metrics *m, uint32_t i, char *what)
{
    const struct machine_past *past = &m->problems->machines[i];
    double times = fmax(past->losses.sum, past->starts.sum);
    return times > 3 &&
           SAY("it starts again and again: about %.0f times in the last half hour", times);
}

static bool check_machine_mismatch(const struct metrics *m, uint32_t i, char *what)
{
    const struct fleet_connection *connection = &m->fleet->machines[i].connection;
    return connection->mismatch && SAY("it is not used: %s", connection->down_reason);
}

static bool check_member_mismatch(const struct metrics *m, char *what)
{
    return change_recent(m->problems, &m->problems->members_refused) &&
           SAY("an entry in etcd is not used, such as one with another model: the log names it");
}

static bool check_machine_on_cpu(const struct metrics *m, uint32_t i, char *what)
{
    const struct message_about *about = &m->machines[i].about;
    return m->machines[i].up && about->fell_back &&
           SAY("it computes on %s instead of its device", about->device);
}

static bool check_machine_crashes(const struct metrics *m, uint32_t i, char *what)
{
    const struct fleet_machine *machine = &m->fleet->machines[i];
    return change_recent(m->problems, &m->problems->machines[i].crashes) &&
           SAY("its process crashed, %u times since the gateway's start: %s", machine->crashes,
               machine->crash_reason);
}

/* Links of a machine that is down are not listed: CleaveMachineDown is. */
static bool check_link_down(const struct metrics *m, uint32_t i, char *what)
{
    const struct fleet_machine *machine = &m->fleet->machines[i];
    uint32_t down = 0, first = 0;
    for (uint32_t to = m->fleet->count; to-- > 0;) {
        if (m->links[i][to] != METRICS_LINK_DOWN || !m->machines[i].up || !m->machines[to].up)
            continue;
        first = to;
        down++;
    }
    return down > 0 &&
           SAY("it cannot write KV to %s%s: %s", m->fleet->machines[first].config.name,
               down > 1 ? " and others" : "",
               machine->link_down_reason[0] != 0 ? machine->link_down_reason : "its log says why");
}

static bool check_link_slow(const struct metrics *m, uint32_t i, char *what)
{
    const struct machine_past *past = &m->problems->machines[i];
    double limit_s = m->slo_s[METRICS_SLO_TBT];
    double late_s = past->exposed_us.sum * 1e-6 / past->transfers.sum;
    return past->transfers.sum > 0.5 && late_s > limit_s &&
           SAY("its KV arrives %.3f s after the first token, on average (slo/tbt_ms: %.3f s)",
               late_s, limit_s);
}

static bool check_transfers_fail(const struct metrics *m, uint32_t i, char *what)
{
    const struct change *failed = &m->problems->machines[i].transfers_failed;
    return change_recent(m->problems, failed) &&
           SAY("KV transfers failed, %" PRIu64 " in all; those prompts were computed again",
               failed->last);
}

static bool check_kv_full(const struct metrics *m, char *what)
{
    double used = metrics_kv_usage(m);
    return used > 0.95 && SAY("%.0f %% of the token machines' KV blocks are in use", used * 100);
}

static bool check_preemptions(const struct metrics *m, uint32_t i, char *what)
{
    double sum = m->problems->machines[i].preemptions.sum;
    return sum > 60 && SAY("it took KV memory from about %.0f answers in the last ten minutes; "
                           "they are computed twice",
                           sum);
}

static bool check_kv_quarantined(const struct metrics *m, uint32_t i, char *what)
{
    uint32_t blocks = m->machines[i].latest_stats.kv_blocks[5];
    return m->machines[i].gauges_known && blocks > 0 &&
           SAY("%u KV blocks wait for a writer that is silent", blocks);
}

/* hold_s leaves out the moment in which a machine that has just started opens its tiers. */
static bool check_kv_tier_down(const struct metrics *m, uint32_t i, char *what)
{
    char tiers[64] = "";
    size_t bytes = 0;
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++)
        if (message_stats_tier(&m->machines[i].latest_stats, (enum tier_kind)kind).state ==
            MESSAGE_TIER_BROKEN)
            bytes +=
                (size_t)snprintf(tiers + bytes, sizeof(tiers) - bytes, "%s%s",
                                 bytes > 0 ? " or " : "", tier_kind_name((enum tier_kind)kind));
    return m->machines[i].gauges_known && bytes > 0 &&
           SAY("it cannot use KV tier %s; it computes what it would load there", tiers);
}

static bool check_slo_missed(const struct metrics *m, char *what)
{
    double missed = m->problems->slo_missed.sum, all = m->problems->slo_all.sum;
    return all >= 5 && missed > all * 0.1 &&
           SAY("%.0f %% of the answers of the last half hour missed the SLO", missed / all * 100);
}

static bool check_requests_refused(const struct metrics *m, char *what)
{
    int most = 0;
    for (int why = 1; why < METRICS_REFUSAL_COUNT; why++)
        most = m->problems->refused[why].sum > m->problems->refused[most].sum ? why : most;
    double sum = m->problems->refused[most].sum;
    return sum > 0.1 * 300 && SAY("about %.0f requests in the last five minutes were refused: %s",
                                  sum, metrics_refusal_name((enum metrics_refusal)most));
}

static bool check_requests_resumed(const struct metrics *m, char *what)
{
    double sum = m->problems->resumed.sum;
    return sum > 0.1 * 600 && SAY("about %.0f requests in the last ten minutes lost their machines "
                                  "and resumed on others",
                                  sum);
}

static bool check_requests_blamed(const struct metrics *m, char *what)
{
    const struct change *blamed = &m->problems->blamed;
    return change_recent(m->problems, blamed) &&
           SAY("machines crash whenever they compute a certain request; failed so far: %" PRIu64,
               blamed->last);
}

static bool check_hot_tenant(const struct metrics *m, char *what)
{
    const struct metrics_problems *p = m->problems;
    double all = 0;
    uint32_t busy = 0, hottest = 0;
    for (uint32_t key = 0; key < api_keys_index_count(m->keys); key++) {
        all += p->keys[key].tokens.sum;
        busy += p->keys[key].requests.sum > 0.01;
        hottest = p->keys[key].tokens.sum > p->keys[hottest].tokens.sum ? key : hottest;
    }
    double share = all > 0 ? p->keys[hottest].tokens.sum / all : 0;
    const struct api_key_settings *settings =
        m->keys != NULL ? api_keys_settings(m->keys, hottest) : NULL;
    return busy > 1 && share > 0.8 && p->unrouted > 1 && settings != NULL &&
           SAY("API key %s takes %.0f %% of the tokens while requests wait, %.1f on average",
               settings->name, share * 100, p->unrouted);
}

static bool check_loop_stalled(const struct metrics *m, char *what)
{
    return change_recent(m->problems, &m->problems->stalled) &&
           SAY("the gateway's event loop stood still; the latest time it was %.1f s",
               (double)m->stall_us * 1e-6);
}

static bool check_files_short(const struct metrics *m, char *what)
{
    double share = m->problems->files_share;
    return share > 0.9 && SAY("%.0f %% of the gateway's files are open", share * 100);
}

static bool check_log_loses_lines(const struct metrics *m, char *what)
{
    const struct metrics_problems *p = m->problems;
    const char *how = "its disk is full or slow";
    if (change_recent(p, &p->events_lost))
        return SAY("log/events_file lost lines, %" PRIu64 " in all: %s", p->events_lost.last, how);
    if (change_recent(p, &p->access_lost))
        return SAY("log/access_file lost lines, %" PRIu64 " in all: %s", p->access_lost.last, how);
    if (change_recent(p, &p->ledger_lost))
        return SAY("log/ledger_file lost lines, %" PRIu64 " in all: %s", p->ledger_lost.last, how);
    return p->ledger_since_us > 0 && p->turned_us - p->ledger_since_us > LEDGER_S * 1000000ll &&
           SAY("%" PRIu64 " lines of log/ledger_file wait: %s", m->values[METRICS_LEDGER_WAITING],
               how);
}

static bool check_reload_failed(const struct metrics *m, char *what)
{
    return m->reloaded && m->values[METRICS_RELOAD_GOOD] == 0 &&
           SAY("the latest reload had a mistake, so the old config serves");
}

static bool check_key_expires(const struct metrics *m, char *what)
{
    const struct api_key_settings *first = NULL;
    for (uint32_t key = 0; key < api_keys_index_count(m->keys); key++) {
        const struct api_key_settings *settings = api_keys_settings(m->keys, key);
        if (settings != NULL && settings->expires > 0 && api_keys_present(m->keys, key) &&
            (first == NULL || settings->expires < first->expires))
            first = settings;
    }
    if (first == NULL || api_key_expiry_of(first, m->problems->unix_s) == API_KEY_VALID)
        return false;
    double days = (double)(first->expires - m->problems->unix_s) / 86400;
    return days < 0 ? SAY("API key %s expired %.1f days ago", first->name, -days)
                    : SAY("API key %s expires in %.1f days", first->name, days);
}

static bool check_certificate_expires(const struct metrics *m, char *what)
{
    int64_t left_s = (int64_t)m->values[METRICS_CERTIFICATE_EXPIRES] - m->problems->unix_s;
    if (m->values[METRICS_CERTIFICATE_EXPIRES] == 0 || left_s >= EXPIRES_S)
        return false;
    if (left_s < 0)
        return SAY("the TLS certificate ended %.1f days ago", (double)-left_s / 86400);
    return SAY("the TLS certificate ends in %.1f days", (double)left_s / 86400);
}

static bool check_etcd_lost(const struct metrics *m, char *what)
{
    return m->has_etcd && m->values[METRICS_ETCD_UP] == 0 &&
           SAY("no endpoint of etcd answers; the known machines serve on");
}

#undef SAY

static const struct {
    bool (*of_gateway)(const struct metrics *, char *);
    bool (*of_machine)(const struct metrics *, uint32_t, char *);
} checks[METRICS_PROBLEM_COUNT] = {
    [METRICS_PROBLEM_NOT_READY] = {check_not_ready, NULL},
    [METRICS_PROBLEM_MACHINE_DOWN] = {NULL, check_machine_down},
    [METRICS_PROBLEM_MACHINE_RESTARTS] = {NULL, check_machine_restarts},
    [METRICS_PROBLEM_MACHINE_MISMATCH] = {NULL, check_machine_mismatch},
    [METRICS_PROBLEM_MEMBER_MISMATCH] = {check_member_mismatch, NULL},
    [METRICS_PROBLEM_MACHINE_ON_CPU] = {NULL, check_machine_on_cpu},
    [METRICS_PROBLEM_MACHINE_CRASHES] = {NULL, check_machine_crashes},
    [METRICS_PROBLEM_LINK_DOWN] = {NULL, check_link_down},
    [METRICS_PROBLEM_LINK_SLOW] = {NULL, check_link_slow},
    [METRICS_PROBLEM_TRANSFERS_FAIL] = {NULL, check_transfers_fail},
    [METRICS_PROBLEM_KV_FULL] = {check_kv_full, NULL},
    [METRICS_PROBLEM_PREEMPTIONS] = {NULL, check_preemptions},
    [METRICS_PROBLEM_KV_QUARANTINED] = {NULL, check_kv_quarantined},
    [METRICS_PROBLEM_KV_TIER_DOWN] = {NULL, check_kv_tier_down},
    [METRICS_PROBLEM_SLO_MISSED] = {check_slo_missed, NULL},
    [METRICS_PROBLEM_REQUESTS_REFUSED] = {check_requests_refused, NULL},
    [METRICS_PROBLEM_REQUESTS_RESUMED] = {check_requests_resumed, NULL},
    [METRICS_PROBLEM_REQUESTS_BLAMED] = {check_requests_blamed, NULL},
    [METRICS_PROBLEM_HOT_TENANT] = {check_hot_tenant, NULL},
    [METRICS_PROBLEM_LOOP_STALLED] = {check_loop_stalled, NULL},
    [METRICS_PROBLEM_FILES_SHORT] = {check_files_short, NULL},
    [METRICS_PROBLEM_LOG_LOSES_LINES] = {check_log_loses_lines, NULL},
    [METRICS_PROBLEM_RELOAD_FAILED] = {check_reload_failed, NULL},
    [METRICS_PROBLEM_KEY_EXPIRES] = {check_key_expires, NULL},
    [METRICS_PROBLEM_CERTIFICATE_EXPIRES] = {check_certificate_expires, NULL},
    [METRICS_PROBLEM_ETCD_LOST] = {check_etcd_lost, NULL},
};

static bool check(const struct metrics *m, int kind, uint32_t i, char *what)
{
    if (kinds[kind].scope == GATEWAY)
        return checks[kind].of_gateway(m, what);
    return fleet_machine_present(&m->fleet->machines[i]) && checks[kind].of_machine(m, i, what);
}

/* The number of places where the kind can be. */
static uint32_t places(const struct metrics *m, int kind)
{
    return kinds[kind].scope == GATEWAY ? 1 : m->fleet->count;
}

/* ---- the list ---- */

enum status metrics_problems_open(struct metrics *m)
{
    m->problems = calloc(1, sizeof(*m->problems));
    return m->problems != NULL ? ST_OK : ST_NO_MEMORY;
}

void metrics_problems_close(struct metrics *m)
{
    free(m->problems);
}

void metrics_problems_forget(struct metrics *m, uint32_t machine)
{
    struct metrics_problems *p = m->problems;
    memset(&p->machines[machine], 0, sizeof(p->machines[machine]));
    for (int kind = 0; kind < METRICS_PROBLEM_COUNT; kind++)
        if (kinds[kind].scope == MACHINE)
            p->since_us[kind][machine] = 0;
}

int metrics_problems_turn(struct metrics *m, int64_t now_us, int64_t unix_s)
{
    struct metrics_problems *p = m->problems;
    char what[WHAT_BYTES];
    if (p->turned_us > 0 && now_us - p->turned_us < TURN_US)
        return (int)((p->turned_us + TURN_US - now_us) / 1000) + 1;
    double s = p->turned_us > 0 ? (double)(now_us - p->turned_us) * 1e-6 : 0;
    p->turned_us = now_us;
    p->unix_s = unix_s;
    for (uint32_t i = 0; i < m->fleet->count; i++)
        if (fleet_machine_present(&m->fleet->machines[i]))
            machine_turn(m, i, now_us, s);
    keys_turn(m, s);
    gateway_turn(m, now_us, s);
    for (int kind = 0; kind < METRICS_PROBLEM_COUNT; kind++)
        for (uint32_t i = 0; i < places(m, kind); i++) {
            int64_t *since_us = &p->since_us[kind][i];
            if (!check(m, kind, i, what))
                *since_us = 0;
            else if (*since_us == 0)
                *since_us = now_us;
        }
    return TURN_US / 1000;
}

static void problem_add(struct text *out, const struct metrics *m, int kind, uint32_t i,
                        int64_t now_us, const char *before)
{
    char what[WHAT_BYTES];
    const char *where =
        kinds[kind].scope == MACHINE ? m->fleet->machines[i].config.name : "gateway";
    if (!check(m, kind, i, what)) /* It has ended since the latest turn. */
        return;
    double age_s = (double)(now_us - m->problems->since_us[kind][i]) * 1e-6;
    text_format_add(out, "%s{\"name\":\"%s\",\"severity\":\"%s\",\"where\":", before,
                    kinds[kind].alarm, kinds[kind].severity);
    text_add_json_string(out, where, strlen(where));
    text_string_add(out, ",\"what\":");
    text_add_json_string(out, what, strlen(what));
    text_format_add(out, ",\"since_s\":%.1f,\"what_to_do\":", age_s);
    text_add_json_string(out, kinds[kind].what_to_do, strlen(kinds[kind].what_to_do));
    text_format_add(out, ",\"page\":\"docs/operation.md#at-three-oclock, %s\"}", kinds[kind].alarm);
}

void metrics_problems_write(const struct metrics *m, int64_t now_us, struct text *out)
{
    const struct metrics_problems *p = m->problems;
    size_t begun = out->bytes;
    for (int kind = 0; kind < METRICS_PROBLEM_COUNT; kind++)
        for (uint32_t i = 0; i < places(m, kind); i++)
            if (p->since_us[kind][i] > 0 &&
                now_us - p->since_us[kind][i] >= kinds[kind].hold_s * 1000000ll)
                problem_add(out, m, kind, i, now_us, out->bytes > begun ? "," : "");
}
