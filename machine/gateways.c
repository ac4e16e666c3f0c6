/* machine_gateways: the connected gateways. Several gateways may use one machine at the same time.
 * Each decides alone where it sends its requests, so the machine reports to each one the load of
 * the others (OTHERS), when that has changed, at most as often as STATS.
 *
 * If gateways disagree about the machine: it keeps memory for both phases while any of them has it
 * in the mixed pool; its home pool is the one with the highest serial (message_role.serial); and
 * the gateway with the least name leads, which means that it alone changes home pools to follow the
 * demand. */
#include "machine/state.h"

#include "common/build_info.h"
#include "common/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *name_of(const struct machine_gateway *gateway)
{
    return transport_peer_identity(gateway->peer)->name;
}

static struct machine_gateway *gateway_find(struct machine *m, const struct transport_peer *peer)
{
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        if (m->gateways[i].peer == peer)
            return &m->gateways[i];
    return NULL;
}

struct transport_peer *machine_gateway_named(struct machine *m, const char *name)
{
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        if (m->gateways[i].peer != NULL && strcmp(name_of(&m->gateways[i]), name) == 0)
            return m->gateways[i].peer;
    return NULL;
}

bool machine_gateway_add(struct machine *m, struct transport_peer *peer)
{
    struct machine_gateway *gateway = gateway_find(m, NULL);
    if (gateway == NULL)
        return false;
    *gateway = (struct machine_gateway){.peer = peer, .pool = POOL_PROMPT};
    m->gateway_count++;
    if (m->leaving)
        machine_send(m, peer, &(struct message){.kind = MESSAGE_LEAVING});
    return true;
}

/* The machine keeps memory for both phases while any gateway may send both; without a gateway, as
 * the config says. */
static void mixed_update(struct machine *m)
{
    bool mixed = m->gateway_count == 0 && m->config_entry->pool == POOL_MIXED;
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        mixed |= m->gateways[i].peer != NULL && m->gateways[i].pool == POOL_MIXED;
    token_pool_mixed_set(m->token_pool, mixed);
}

void machine_gateway_remove(struct machine *m, struct transport_peer *peer)
{
    struct machine_gateway *gateway = gateway_find(m, peer);
    if (gateway == NULL)
        return;
    prompt_links_gateway_gone(m->links, machine_gateway_index(m, peer));
    *gateway = (struct machine_gateway){.peer = NULL};
    m->gateway_count--;
    mixed_update(m);
}

uint32_t machine_gateway_index(struct machine *m, const struct transport_peer *peer)
{
    return (uint32_t)(gateway_find(m, peer) - m->gateways);
}

void machine_gateway_role(struct machine *m, const struct transport_peer *peer,
                          const struct message_role *role)
{
    gateway_find(m, peer)->pool = (enum pool)role->pool;
    if (role->serial > m->home_serial) {
        m->home_pool = (enum pool)role->home;
        m->home_serial = role->serial;
    }
    mixed_update(m);
}

void machine_gateway_demand_add(struct machine *m, const struct transport_peer *peer,
                                uint32_t prompt_tokens, uint32_t answers)
{
    struct machine_gateway *gateway = gateway_find(m, peer);
    gateway->demand.prompt_tokens += prompt_tokens;
    gateway->demand.answers += answers;
    m->demand.prompt_tokens += prompt_tokens;
    m->demand.answers += answers;
}

/* ---- leaving ---- */

void machine_leave(struct machine *m)
{
    if (m->leaving || m->stopping)
        return;
    m->leaving = true;
    m->leave_by_us = m->now_us + (int64_t)m->options.config->server.drain_ms * 1000;
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        if (m->gateways[i].peer != NULL)
            machine_send(m, m->gateways[i].peer, &(struct message){.kind = MESSAGE_LEAVING});
    machine_leave_turn(m);
}

void machine_gateway_shutdown(struct machine *m, const struct transport_peer *peer)
{
    struct machine_gateway *gateway = gateway_find(m, peer);
    if (!m->leaving) {
        log_info("gateway %s asks to stop", name_of(gateway));
        machine_stop(m);
        return;
    }
    gateway->has_left = true;
    log_info("gateway %s has no request here any more", name_of(gateway));
}

void machine_leave_turn(struct machine *m)
{
    uint32_t waits = 0;
    if (!m->leaving || m->stopping)
        return;
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        waits += m->gateways[i].peer != NULL && !m->gateways[i].has_left;
    /* The KV of a computed prompt may still be on its way to a token machine. */
    if ((waits > 0 || prompt_pool_count(m->prompt_pool) > 0) && m->now_us < m->leave_by_us)
        return;
    if (waits > 0)
        log_warn("gateways that still had requests here after server/drain_ms: %u", waits);
    machine_stop(m);
}

static const char *leader_name(const struct machine *m)
{
    const char *least = NULL;
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++) {
        const struct machine_gateway *gateway = &m->gateways[i];
        if (gateway->peer != NULL && (least == NULL || strcmp(name_of(gateway), least) < 0))
            least = name_of(gateway);
    }
    return least;
}

/* Returns the number of connected gateways with a lower name. */
static uint8_t rank_of(const struct machine *m, const struct machine_gateway *gateway)
{
    uint8_t rank = 0;
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        if (m->gateways[i].peer != NULL && strcmp(name_of(&m->gateways[i]), name_of(gateway)) < 0)
            rank++;
    return rank;
}

static void others_sum(const struct machine *m, const struct machine_gateway *gateway,
                       struct message_others *out)
{
    *out = (struct message_others){.gateways = m->gateway_count,
                                   .rank = rank_of(m, gateway),
                                   .home_pool = (uint8_t)m->home_pool,
                                   .home_serial = m->home_serial,
                                   .prompt_tokens_taken =
                                       m->demand.prompt_tokens - gateway->demand.prompt_tokens,
                                   .answers_taken = m->demand.answers - gateway->demand.answers};
    memcpy(out->leader, leader_name(m), strlen(leader_name(m)) + 1);
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++)
        out->is_in_mixed_pool |= m->gateways[i].peer != NULL && &m->gateways[i] != gateway &&
                                 m->gateways[i].pool == POOL_MIXED;
    prompt_pool_load_add(m->prompt_pool, gateway->peer, out);
    token_pool_load_add(m->token_pool, gateway->peer, out);
}

/* Tells a new gateway where and with what this machine computes. */
static void about_send(struct machine *m, struct transport_peer *peer)
{
    struct message message = {.kind = MESSAGE_ABOUT};
    struct message_about *about = &message.about;
    const char *commit = build_info_commit();
    snprintf(about->device, sizeof(about->device), "%s", m->executor->ops->describe(m->executor));
    if (gethostname(about->host, sizeof(about->host) - 1) != 0)
        about->host[0] = 0;
    snprintf(about->build, sizeof(about->build), "%s%s%.40s%s", build_info_release(),
             commit[0] != 0 ? " (" : "", commit, commit[0] != 0 ? ")" : "");
    about->fell_back = m->executor->fell_back;
    machine_send(m, peer, &message);
}

void machine_gateways_report(struct machine *m, const struct message_stats *stats)
{
    const struct message figures = {.kind = MESSAGE_STATS, .stats = *stats};
    struct message_load loads[LIMIT_STAGE_PROCESSES];
    const struct message stages = {
        .kind = MESSAGE_LOADS,
        .loads = {.count = m->executor->ops->process_loads(m->executor, loads), .loads = loads}};
    for (uint32_t i = 0; i < MACHINE_GATEWAYS_MAX; i++) {
        struct machine_gateway *gateway = &m->gateways[i];
        struct message message;
        if (gateway->peer == NULL)
            continue;
        if (!gateway->about_sent)
            about_send(m, gateway->peer);
        gateway->about_sent = true;
        machine_send(m, gateway->peer, &figures);
        if (stages.loads.count > 0)
            machine_send(m, gateway->peer, &stages);
        memset(&message, 0, sizeof(message)); /* padding too, because it is compared */
        message.kind = MESSAGE_OTHERS;
        others_sum(m, gateway, &message.others);
        if (memcmp(&message.others, &gateway->others_sent, sizeof(gateway->others_sent)) == 0)
            continue;
        gateway->others_sent = message.others;
        machine_send(m, gateway->peer, &message);
    }
}
