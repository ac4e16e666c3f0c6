/* gateway_versions: the served models: one, and a second one during an update. serve_update.c
 * decides which of them new requests get, and when a version opens and closes.
 *
 * Models with equal metadata (new weights in the same tensors) differ only in model_hash. The
 * gateway reads no weights, so it learns the hash from machines: the first machine of a version
 * determines the version's weights, and a machine that matches two versions belongs to the one with
 * its weights. */
#include "server/gateway/internal.h"

#include <stdio.h>

static struct requests_version *requests_of(const struct gateway *g,
                                            const struct gateway_version *version)
{
    return requests_version(g->requests, (uint32_t)(version - g->versions));
}

/* ---- opening and closing ---- */

static enum status version_open(struct gateway *g, struct gateway_version *version, uint32_t number,
                                const struct gateway_model *model, struct error *error)
{
    struct gateway_version opened = {.number = number,
                                     .metadata_hash = model->metadata_hash,
                                     .context_tokens = model->context_tokens,
                                     .groups = model->groups,
                                     .kv = model->kv};
    struct sched_cluster_options options = gateway_sched_options(g, &opened);
    enum status status = sched_cluster_open(&options, &opened.scheduler);
    if (status != ST_OK)
        return error_set(error, status, "cluster scheduler: %s", status_name(status));
    *version = opened;
    return ST_OK;
}

enum status gateway_versions_open(struct gateway *g, struct error *error)
{
    uint32_t wanted = g->options.config->scheduler.context_tokens_max;
    uint32_t context = g->options.context_tokens;
    if (wanted > 0 && (context == 0 || wanted < context))
        context = wanted;
    struct gateway_model model = {.metadata_hash = g->options.metadata_hash,
                                  .context_tokens = context,
                                  .groups = g->options.groups,
                                  .kv = g->options.config->kv};
    g->current = &g->versions[0];
    return version_open(g, g->current, EVENT_VERSION_FIRST, &model, error);
}

void gateway_versions_close(struct gateway *g)
{
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++)
        sched_cluster_close(g->versions[i].scheduler);
}

/* Tells the transport which model machines must have. With two models, any model is accepted there,
 * and gateway_version_match compares. */
static void models_expect(struct gateway *g)
{
    uint64_t hash = g->current->metadata_hash;
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++)
        if (g->versions[i].number > 0 && g->versions[i].metadata_hash != hash)
            hash = 0;
    connections_model_expect(g->connections, hash);
}

enum status gateway_version_open(struct gateway *g, uint32_t number,
                                 const struct gateway_model *model, struct error *error)
{
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++) {
        struct gateway_version *version = &g->versions[i];
        assert(version->number != number);
        if (version->number > 0)
            continue;
        enum status status = version_open(g, version, number, model, error);
        if (status != ST_OK)
            return status;
        *requests_of(g, version) = (struct requests_version){.open = 0};
        const struct sched_cluster_options options = gateway_sched_options(g, version);
        gateway_event_version(g, version, &options);
        models_expect(g);
        return ST_OK;
    }
    return error_set(error, ST_NO_RESOURCE, "%d models are served already", GATEWAY_VERSIONS);
}

bool gateway_version_paired(const struct gateway *g, uint32_t number)
{
    return sched_cluster_paired(gateway_version_at(g, number)->scheduler);
}

void gateway_version_use(struct gateway *g, uint32_t number)
{
    g->current = gateway_version_at(g, number);
}

uint32_t gateway_version_requests(const struct gateway *g, uint32_t number)
{
    return requests_of(g, gateway_version_at(g, number))->open;
}

uint64_t gateway_version_requests_total(const struct gateway *g, uint32_t number)
{
    return requests_of(g, gateway_version_at(g, number))->total;
}

void gateway_version_stop(struct gateway *g, uint32_t number, const char *text)
{
    const struct gateway_version *version = gateway_version_at(g, number);
    requests_version_stop(g->requests, (uint32_t)(version - g->versions), text);
}

void gateway_version_close(struct gateway *g, uint32_t number)
{
    struct gateway_version *version = gateway_version_at(g, number);
    assert(version != g->current && requests_of(g, version)->open == 0);
    for (struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m)) {
        if (m->version != version)
            continue;
        connections_drop(g->connections, m, "its model is not served any more");
        m->fixed_version = 0;
        gateway_machine_version_change(g, m, g->current);
    }
    gateway_event_version_gone(g, version);
    sched_cluster_close(version->scheduler);
    *version = (struct gateway_version){.number = 0};
    models_expect(g);
}

/* ---- the version of a machine ---- */

void gateway_machine_version_change(struct gateway *g, struct fleet_machine *m,
                                    struct gateway_version *version)
{
    struct sched_event event = {.now_us = gateway_now(g), .machine = m->index};
    if (m->version == version)
        return;
    event.kind = SCHED_MACHINE_UNDRAIN;
    if (fleet_machine_draining(m))
        gateway_schedule(g, m->version, &event);
    gateway_machine_links_forget(g, m);
    m->version = version;
    m->links = (struct machine_bits){{0}};
    m->kv_tokens = 0;
    event.kind = SCHED_MACHINE_DRAIN;
    if (fleet_machine_draining(m))
        gateway_schedule(g, m->version, &event);
}

/* Returns a machine of the version that is up; NULL = none. */
static const struct fleet_machine *machine_up(const struct gateway *g,
                                              const struct gateway_version *version)
{
    const struct fleet_machine *m = fleet_next(g->fleet, NULL);
    while (m != NULL && (!fleet_machine_up(m) || m->version != version))
        m = fleet_next(g->fleet, m);
    return m;
}

/* True if a machine with other weights may define the version's weights again: none are known yet,
 * or the version is the only one and has no machine and no request. */
static bool weights_free(const struct gateway *g, const struct gateway_version *version)
{
    bool alone = g->versions[0].number == 0 || g->versions[1].number == 0;
    return digest_is_none(&version->model_hash) ||
           (alone && requests_of(g, version)->open == 0 && machine_up(g, version) == NULL);
}

static void weights_complain(const struct gateway *g, struct fleet_machine *m,
                             const struct gateway_version *version,
                             const struct transport_identity *identity)
{
    char known[LIMIT_NAME_BYTES], texts[2][DIGEST_SHORT_BYTES];
    const struct fleet_machine *up = machine_up(g, version);
    if (up != NULL)
        snprintf(known, sizeof(known), "%s", up->config.name);
    else
        snprintf(known, sizeof(known), "version %u", version->number);
    snprintf(m->connection.down_reason, sizeof(m->connection.down_reason),
             "%s and %s do not match: model_hash is %s and %s", known, identity->name,
             digest_write(&version->model_hash, texts[0], sizeof(texts[0])),
             digest_write(&identity->model_hash, texts[1], sizeof(texts[1])));
}

static void metadata_complain(const struct gateway *g, struct fleet_machine *m,
                              const struct transport_identity *identity)
{
    size_t used = (size_t)snprintf(m->connection.down_reason, sizeof(m->connection.down_reason),
                                   "gateway and %s do not match: metadata_hash is", identity->name);
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++)
        if (g->versions[i].number > 0 && (m->fixed_version == 0 || m->version == &g->versions[i]))
            used += (size_t)snprintf(
                m->connection.down_reason + used, sizeof(m->connection.down_reason) - used,
                " %016llx (version %u)", (unsigned long long)g->versions[i].metadata_hash,
                g->versions[i].number);
    snprintf(m->connection.down_reason + used, sizeof(m->connection.down_reason) - used,
             " and %016llx", (unsigned long long)identity->metadata_hash);
}

struct gateway_version *gateway_version_match(struct gateway *g, struct fleet_machine *m,
                                              const struct transport_identity *identity)
{
    struct gateway_version *found = NULL;
    m->connection.down_reason[0] = 0;
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++) {
        struct gateway_version *version = &g->versions[i];
        if (version->number == 0 || version->metadata_hash != identity->metadata_hash ||
            (m->fixed_version > 0 && m->version != version))
            continue;
        bool same = digest_equal(&version->model_hash, &identity->model_hash);
        if (!same && !weights_free(g, version))
            weights_complain(g, m, version, identity);
        else if (found == NULL || same || version == g->current)
            found = version;
        if (same)
            break;
    }
    if (found != NULL)
        found->model_hash = identity->model_hash;
    else if (m->connection.down_reason[0] == 0)
        metadata_complain(g, m, identity);
    return found;
}
