/* machine_prefixes: reports to the gateways which prefixes of prompts this machine holds the KV of,
 * so that gateways send prompts where they cost least. Gateways get the changes since the last
 * report, at most as often as STATS. A new gateway gets all prefixes; so do all gateways after more
 * than CHANGES_MAX changes. A missing report costs time, but never changes an answer. */
#include "machine/state.h"

#include "common/prefix_hash.h"

#include <stdlib.h>

#define CHANGES_MAX 1024 /* between two reports; after more, all prefixes are sent again */

struct machine_prefixes {
    struct machine *machine;
    uint32_t count;
    uint64_t hashes[LIMIT_PREFIXES]; /* Changes; while all prefixes are sent, all of them. */
    uint32_t held[LIMIT_PREFIXES];
};

static void on_changed(void *self, uint64_t hash, bool held)
{
    struct machine_prefixes *prefixes = self;
    if (prefixes->count < CHANGES_MAX) {
        prefixes->hashes[prefixes->count] = hash;
        prefixes->held[prefixes->count] = held;
        prefixes->count++;
        return;
    }
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        prefixes->machine->gateways[i].prefixes_sent = false;
}

enum status machine_prefixes_open(struct machine *m)
{
    m->prefixes = calloc(1, sizeof(*m->prefixes));
    if (m->prefixes == NULL)
        return ST_NO_MEMORY;
    m->prefixes->machine = m;
    const struct kv_prefix_listener ear = {.step_spans = prefix_step_blocks(m->arena.block_tokens),
                                           .changed = on_changed,
                                           .self = m->prefixes};
    kv_prefix_listen(m->prefix, &ear);
    return ST_OK;
}

void machine_prefixes_close(struct machine *m)
{
    free(m->prefixes);
    m->prefixes = NULL;
}

/* Sends the changes to the gateways that know the earlier state (all = false), or all prefixes to
 * the others (all = true). */
static void prefixes_send(struct machine *m, bool all)
{
    const struct machine_prefixes *prefixes = m->prefixes;
    const struct message message = {.kind = MESSAGE_PREFIXES,
                                    .prefixes = {.replaces_all = all,
                                                 .count = prefixes->count,
                                                 .hashes = prefixes->hashes,
                                                 .held = prefixes->held}};
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        if (m->gateways[i].peer != NULL && m->gateways[i].prefixes_sent != all)
            machine_send(m, m->gateways[i].peer, &message);
}

void machine_prefixes_report(struct machine *m)
{
    struct machine_prefixes *prefixes = m->prefixes;
    bool news = false;
    if (prefixes == NULL)
        return;
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        news |= m->gateways[i].peer != NULL && !m->gateways[i].prefixes_sent;
    if (prefixes->count > 0)
        prefixes_send(m, false);
    if (news) {
        prefixes->count = kv_prefix_list(m->prefix, prefixes->hashes, LIMIT_PREFIXES);
        for (uint32_t i = 0; i < prefixes->count; i++)
            prefixes->held[i] = 1;
        prefixes_send(m, true);
    }
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        m->gateways[i].prefixes_sent = m->gateways[i].peer != NULL;
    prefixes->count = 0;
}
