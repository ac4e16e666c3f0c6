/* partition_paths: the shortest path through (state, layers done) whose stages keep a bound. States
 * are visited in the order of their numbers, so all labels of a row are known when the row is
 * visited. A label is not followed if
 * - a state that uses less reaches the same layers as cheaply (rows are lowered by the rows below),
 * - the unused devices cannot run the rest, or
 * - the pipeline cannot end below the best known value, even with unlimited devices of every
 *   kind. */
#include "tools/partition/solver/state.h"

#include <assert.h>
#include <string.h>

#define NONE UINT64_MAX

struct paths {
    struct partition *p;
    const struct partition_bound *bound;
    bool fits[2];                    /* [inside]: whether the link keeps the bound. */
    uint64_t rest[LIMIT_LAYERS + 1]; /* Lower bound of the value from each layer to the end. */
    uint64_t best;                   /* Only pipelines below this value count. */
    uint32_t best_state;
    bool found;
};

static uint64_t *row_of(const struct partition *p, uint32_t state)
{
    return p->best_score + (size_t)(state - (p->slots - 1)) * p->width;
}

static struct partition_label *label_of(const struct partition *p, uint32_t state, uint32_t end)
{
    return p->label + (size_t)(state - (p->slots - 1)) * p->width + end;
}

static void fill_rest(struct paths *s)
{
    const struct partition *p = s->p;
    uint64_t link = s->fits[1] && p->inside_host.delay_ns < p->between_hosts.delay_ns
                        ? p->inside_host.delay_ns
                        : p->between_hosts.delay_ns;
    s->rest[p->layers] = 0;
    for (uint32_t at = p->layers; at-- > 0;) {
        s->rest[at] = NONE;
        for (uint32_t k = 0; k < p->kinds; k++) {
            uint32_t far = partition_reach_of(p, k, at)[p->replicas_max[k]];
            for (uint32_t end = at + 1; end <= far; end++) {
                if (s->rest[end] == NONE)
                    continue;
                uint64_t ns = partition_run_ns(p, k, at, end) + (at > 0 ? link : 0);
                uint64_t value = (ns << 8) + 1 + s->rest[end];
                s->rest[at] = value < s->rest[at] ? value : s->rest[at];
            }
        }
    }
}

static bool hopeless(const struct paths *s, uint64_t value, uint32_t at)
{
    return s->rest[at] == NONE || value >= s->best || s->rest[at] >= s->best - value;
}

/* Records that a pipeline with layers up to `end` reaches `state`. */
static void arrive(struct paths *s, uint32_t state, uint32_t end, uint64_t value,
                   struct partition_label label)
{
    uint64_t *row = row_of(s->p, state);
    if (end < s->p->rest_first[state] || value >= row[end] || hopeless(s, value, end))
        return;
    row[end] = value;
    if (end > s->p->furthest_end[state])
        s->p->furthest_end[state] = (uint16_t)end;
    *label_of(s->p, state, end) = label;
    if (end == s->p->layers) {
        s->best = value;
        s->best_state = state;
        s->found = true;
    }
}

static void follow_move(struct paths *s, const struct partition_place *place,
                        const struct partition_move *move, uint32_t at, uint64_t value)
{
    const struct partition *p = s->p;
    uint64_t back_ns = 0;
    if (at > 0) {
        if (!s->fits[move->on_open_host])
            return;
        value += (move->on_open_host ? p->inside_host.delay_ns : p->between_hosts.delay_ns) << 8;
        back_ns = move->on_open_host && place->hosts == 1 ? p->return_inside_host_ns
                                                          : p->return_between_hosts_ns;
    }
    /* If the number of stages is given, each later stage needs a layer, and the last one gets the
     * rest. */
    uint32_t after = p->stages > 0 ? p->stages - place->stage - 1 : 0;
    uint32_t end_max = p->layers - after;
    uint32_t end_min = p->stages > 0 && after == 0 ? p->layers : at + 1;
    struct partition_label label = {.from_state = place->state,
                                    .first = (uint8_t)at,
                                    .kind = (uint8_t)move->kind,
                                    .host_kind = (uint8_t)move->host_kind};
    const uint16_t *reach = partition_reach_of(p, move->kind, at);
    uint32_t end = at; /* End of the longest run with fewer replicas. */
    for (uint32_t r = 1; r <= move->replicas_max && end < end_max; r++) {
        uint32_t far = reach[r] < end_max ? reach[r] : end_max;
        if (far == end)
            continue;
        uint32_t target = partition_move_target(p, move, r);
        label.replicas = (uint8_t)r;
        for (end = end + 1 > end_min ? end + 1 : end_min; end <= far; end++) {
            uint64_t ns = partition_run_ns(p, move->kind, at, end);
            ns += end == p->layers ? back_ns : 0;
            arrive(s, target, end, value + (ns << 8) + r, label);
        }
        end = far;
    }
}

static void follow(struct paths *s, const struct partition_place *place,
                   const struct partition_move *moves, uint32_t count, uint32_t at, uint64_t value)
{
    if (hopeless(s, value, at))
        return;
    if (place->host_use > 0)
        arrive(s, partition_place_closed(s->p, place), at, value,
               (struct partition_label){.from_state = place->state, .first = (uint8_t)at});
    for (uint32_t m = 0; m < count; m++)
        follow_move(s, place, &moves[m], at, value);
}

static void visit(struct paths *s, const struct partition_place *place)
{
    struct partition *p = s->p;
    uint64_t *row = row_of(p, place->state);
    uint64_t floor[LIMIT_LAYERS + 1];
    uint32_t below[PARTITION_HOSTS_MAX + PARTITION_KINDS_MAX];
    uint32_t below_count = partition_states_below(p, place, below);
    uint32_t low = p->rest_first[place->state];
    uint32_t high = p->furthest_end[place->state];
    for (uint32_t b = 0; b < below_count; b++)
        high = p->furthest_end[below[b]] > high ? p->furthest_end[below[b]] : high;
    high = high < p->layers ? high + 1 : p->layers; /* Exclusive, without the model's end. */
    p->furthest_end[place->state] = (uint16_t)(high - 1);
    for (uint32_t at = low; at < high; at++)
        floor[at] = NONE;
    for (uint32_t b = 0; b < below_count; b++) {
        const uint64_t *lower = row_of(p, below[b]);
        for (uint32_t at = low; at < high; at++)
            floor[at] = lower[at] < floor[at] ? lower[at] : floor[at];
    }
    struct partition_move moves[PARTITION_MOVES_MAX];
    uint32_t count = UINT32_MAX;
    for (uint32_t at = low; at < high; at++) {
        if (row[at] >= floor[at]) {
            row[at] = floor[at];
            continue;
        }
        if (count == UINT32_MAX)
            count = partition_moves(p, place, moves);
        follow(s, place, moves, count, at, row[at]);
    }
}

/* Computes the times and bytes of the plan's stages, and from these its bottleneck, pace and
 * devices. On entry, stage->next_on_other_host is about the link before the stage; on return, about
 * the link after the stage. */
static void measure(const struct partition *p, struct partition_plan *plan)
{
    plan->bottleneck = (struct partition_interval){.ns = 0, .divisor = 1};
    for (uint32_t i = 0; i < plan->stage_count; i++) {
        struct partition_stage *stage = &plan->stages[i];
        bool last = i + 1 == plan->stage_count;
        stage->next_on_other_host = !last && plan->stages[i + 1].next_on_other_host;
        stage->time_ns = partition_run_ns(p, stage->kind, stage->first, stage->end);
        stage->bytes = partition_run_bytes(p, stage->first, stage->end);
        const struct partition_link *link =
            stage->next_on_other_host ? &p->between_hosts : &p->inside_host;
        uint64_t busy_ns = last ? 0 : link->busy_ns;
        const struct partition_interval intervals[2] = {
            {.ns = stage->time_ns, .divisor = stage->replicas}, {.ns = busy_ns, .divisor = 1}};
        for (int r = 0; r < 2; r++) {
            if (partition_interval_compare(intervals[r], plan->bottleneck) > 0)
                plan->bottleneck = intervals[r];
            plan->pace_ns = intervals[r].ns > plan->pace_ns ? intervals[r].ns : plan->pace_ns;
        }
        plan->devices += stage->replicas;
    }
}

/* Builds the plan from the labels, from the end to the start, then numbers the hosts in the order
 * of the pipeline. */
static void trace(const struct paths *s, struct partition_plan *plan)
{
    const struct partition *p = s->p;
    memset(plan, 0, sizeof(*plan));
    plan->latency_ns = s->best >> 8;
    uint32_t begin = PARTITION_DEVICES_MAX; /* Stages are filled in from the back. */
    uint32_t state = s->best_state;
    for (uint32_t end = p->layers; end > 0;) {
        const struct partition_label *label = label_of(p, state, end);
        state = label->from_state;
        if (label->replicas == 0)
            continue;
        assert(begin > 0 && label->first < end);
        plan->stages[--begin] = (struct partition_stage){
            .first = label->first,
            .end = end,
            .kind = label->kind,
            .replicas = label->replicas,
            .host_kind = label->host_kind,
            /* For now the link before the stage. */
            .next_on_other_host = state % p->slots == p->slots - 1,
        };
        end = label->first;
    }
    plan->stage_count = PARTITION_DEVICES_MAX - begin;
    memmove(plan->stages, plan->stages + begin, plan->stage_count * sizeof(plan->stages[0]));
    uint32_t used[PARTITION_HOSTS_MAX] = {0};
    for (uint32_t i = 0; i < plan->stage_count; i++) {
        struct partition_stage *stage = &plan->stages[i];
        uint32_t per_host = p->hosts[stage->host_kind].devices[stage->kind];
        stage->host_count = stage->next_on_other_host ? (stage->replicas - 1) / per_host + 1 : 1;
        if (stage->next_on_other_host)
            used[stage->host_kind] += stage->host_count;
        stage->host = used[stage->host_kind] - stage->host_count;
    }
    measure(p, plan);
}

bool partition_shortest_find(struct partition *p, const struct partition_bound *bound,
                             uint64_t cutoff, struct partition_plan *plan_out)
{
    struct paths s = {.p = p, .bound = bound, .best = cutoff};
    if (!partition_need_fill(p, bound))
        return false;
    s.fits[0] = partition_link_fits(&p->between_hosts, bound);
    s.fits[1] = partition_link_fits(&p->inside_host, bound);
    fill_rest(&s);
    /* From now on: the last end in each row. */
    memset(p->furthest_end, 0, p->states * sizeof(p->furthest_end[0]));
    memset(p->best_score, 0xff,
           (size_t)(p->states - (p->slots - 1)) * p->width * sizeof(p->best_score[0]));
    struct partition_place place;
    partition_place_first(p, &place);
    row_of(p, place.state)[0] = 0;
    do
        visit(&s, &place);
    while (partition_place_next(p, &place));
    if (s.found)
        trace(&s, plan_out);
    return s.found;
}
