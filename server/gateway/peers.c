/* gateway_peers: tells the machines their pools, and which machines should be able to write KV to
 * which.
 *
 * A machine that computes prompts learns of every machine that generates tokens by a PEER message
 * as soon as both are connected here, and reports by LINK when it can write there. The latest
 * report is kept, so a token machine that lost its connection to the gateway, but not to its peers,
 * is usable again at once. */
#include "server/gateway/internal.h"

#include <stdio.h>

/* Machines of an adaptive cluster may get work of both phases; a draining machine pushes the KV of
 * its answers. */
static bool computes_prompts(const struct gateway *g, const struct fleet_machine *m)
{
    return g->options.config->scheduler.adaptive_pools || fleet_machine_draining(m) ||
           m->home != POOL_TOKEN;
}

bool gateway_machine_may_decode(const struct gateway *g, const struct fleet_machine *m)
{
    return g->options.config->scheduler.adaptive_pools || m->home != POOL_PROMPT;
}

void gateway_machine_role_send(struct gateway *g, struct fleet_machine *m)
{
    struct message message = {
        .kind = MESSAGE_ROLE,
        .role = {.pool = (uint8_t)m->pool, .home = (uint8_t)m->home, .serial = m->home_serial}};
    connections_send(g->connections, m, &message);
}

void gateway_machine_peer_send(struct gateway *g, struct fleet_machine *prompt,
                               const struct fleet_machine *token)
{
    if (prompt == token || !fleet_machine_up(prompt) || !fleet_machine_up(token) ||
        prompt->version != token->version || !computes_prompts(g, prompt) ||
        !gateway_machine_may_decode(g, token))
        return;
    struct message message = {.kind = MESSAGE_PEER};
    snprintf(message.peer.name, sizeof(message.peer.name), "%s", token->config.name);
    snprintf(message.peer.address, sizeof(message.peer.address), "%s", token->connection.address);
    connections_send(g->connections, prompt, &message);
}

void gateway_machine_peers_send(struct gateway *g, struct fleet_machine *m)
{
    for (struct fleet_machine *other = fleet_next(g->fleet, NULL); other != NULL;
         other = fleet_next(g->fleet, other)) {
        gateway_machine_peer_send(g, m, other);
        gateway_machine_peer_send(g, other, m);
    }
}

void gateway_machine_links_forget(struct gateway *g, const struct fleet_machine *m)
{
    struct message message = {.kind = MESSAGE_PEER};
    snprintf(message.peer.name, sizeof(message.peer.name), "%s", m->config.name);
    for (struct fleet_machine *other = fleet_next(g->fleet, NULL); other != NULL;
         other = fleet_next(g->fleet, other)) {
        if (other == m)
            continue;
        if (other->version == m->version)
            connections_send(g->connections, other, &message);
        machine_bits_set(&other->links, m->index, false);
    }
}
