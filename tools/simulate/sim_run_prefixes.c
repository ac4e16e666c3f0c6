/* sim_run, the prefixes that requests share: what the spans of a request contain, by the hash ids
 * of the trace; the hashes by which the scheduler finds the machines that hold a prompt's beginning
 * (arrivals_schedule in server/gateway/schedule.c); and the machines' reports on their prefix
 * caches (machine/prefixes.c). */
#include "tools/simulate/sim_run_state.h"

#include "common/prefix_hash.h"

#include <stdlib.h>

#define REPORT_PERIOD_S 0.1  /* Machines report changes at most this often. */
#define OWN_KEY         0x6f /* Key of contents that no other request has. */

/* ---- what spans contain ---- */

/* Returns a number for the tokens of a span, equal for two requests if the tokens are. Tokens
 * beyond the ids, and those of the answer, occur in no other request, as in `cleave replay`. */
static uint32_t span_content(const struct sim_arrival *arrival, uint64_t number, uint64_t first,
                             uint64_t end)
{
    uint64_t content = 0;
    uint64_t known = (uint64_t)arrival->block_count * arrival->block_tokens;
    known = known < arrival->prompt_tokens ? known : arrival->prompt_tokens;
    for (uint64_t at = first; at < end && at < known;) {
        uint64_t block = at / arrival->block_tokens;
        content = random_at(content, (uint64_t)arrival->blocks[block]);
        at = (block + 1) * arrival->block_tokens;
    }
    if (end > known)
        content = random_at(content ^ OWN_KEY, number);
    return (uint32_t)content;
}

bool run_contents_open(struct run *r, struct run_request *q)
{
    const uint32_t block_tokens = r->options.config->kv.block_tokens;
    const uint32_t spans = (q->arrival.prompt_tokens + q->arrival.output_tokens) / block_tokens;
    if (!r->prefixes)
        return true;
    q->contents = malloc((spans + 1) * sizeof(q->contents[0]));
    if (q->contents == NULL)
        return false;
    for (uint32_t i = 0; i < spans; i++)
        q->contents[i] = span_content(&q->arrival, q->number, (uint64_t)i * block_tokens,
                                      (uint64_t)(i + 1) * block_tokens);
    return true;
}

void run_contents_close(struct run_request *q)
{
    free(q->contents);
    q->contents = NULL;
}

/* ---- the scheduler's hashes ---- */

uint32_t run_prefix_step(const struct run *r)
{
    return r->prefixes && r->sched_options.prefix_saves
               ? prefix_step_blocks(r->options.config->kv.block_tokens)
               : 0;
}

uint32_t run_prefix_hashes(const struct run *r, const struct run_request *q,
                           uint64_t out[SCHED_PREFIX_MAX])
{
    const uint32_t step = run_prefix_step(r);
    const uint32_t spans = q->attempt_prompt_tokens / r->options.config->kv.block_tokens;
    uint64_t hash = 0;
    uint32_t count = 0;
    while (step > 0 && count < SCHED_PREFIX_MAX && (count + 1) * step <= spans) {
        hash = prefix_hash(hash, q->contents + (size_t)count * step, step);
        out[count++] = hash;
    }
    return count;
}

/* ---- the machines' reports ---- */

void run_prefix_changed(struct run *r, uint32_t machine, uint64_t hash, bool held)
{
    if (r->change_count == r->change_capacity) {
        uint32_t room = r->change_capacity > 0 ? 2 * r->change_capacity : 1024;
        struct run_prefix_change *grown = realloc(r->changes, room * sizeof(grown[0]));
        if (grown == NULL) {
            r->status = error_set(r->error, ST_NO_MEMORY, "out of memory");
            return;
        }
        r->changes = grown;
        r->change_capacity = room;
    }
    if (r->change_count == 0)
        event_heap_put(&r->events, event_prefixes(r), r->now_s + REPORT_PERIOD_S);
    r->changes[r->change_count++] =
        (struct run_prefix_change){.hash = hash, .machine = machine, .held = held};
}

void run_prefixes_forget(struct run *r, uint32_t machine)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->change_count; i++)
        if (r->changes[i].machine != machine)
            r->changes[kept++] = r->changes[i];
    r->change_count = kept;
    if (kept == 0)
        event_heap_remove(&r->events, event_prefixes(r));
}

/* Sends one event for each run of changes of the same kind. */
void run_prefixes_report(struct run *r)
{
    uint64_t hashes[SCHED_PREFIX_MAX];
    for (uint32_t i = 0; i < r->change_count;) {
        const struct run_prefix_change first = r->changes[i];
        uint32_t count = 0;
        while (i < r->change_count && count < SCHED_PREFIX_MAX &&
               r->changes[i].machine == first.machine && r->changes[i].held == first.held)
            hashes[count++] = r->changes[i++].hash;
        run_event_apply(r, &(struct sched_event){.kind = first.held ? SCHED_CACHED : SCHED_EVICTED,
                                                 .machine = first.machine,
                                                 .prefix = {.hashes = hashes, .count = count}});
    }
    r->change_count = 0;
}
