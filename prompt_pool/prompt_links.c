/* prompt_links: one entry per machine that a gateway wants. An entry waits for its next attempt, is
 * connecting, is being prepared, or is up. Its index is the target's number and never changes. */
#include "prompt_pool/prompt_links.h"

#include "prompt_pool/push_meter.h"
#include "transport/peer_user.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_FIRST_US 100000
#define RETRY_MAX_US   2000000

/* A measured speed is reported when it differs from the reported one by this percentage, and at
 * most once in this time. */
#define REPORT_PERCENT   10
#define REPORT_PERIOD_US 1000000
/* Differences of the latency up to this one are not reported. */
#define REPORT_LATENCY_US 20

struct link {
    struct peer_user user;     /* The `user` of its connection. */
    struct message_link state; /* The state that was reported last; empty name = unused entry. */
    char address[LIMIT_ADDRESS_BYTES];
    struct transport_peer *peer; /* Connecting or up; NULL = between attempts. */
    uint64_t paths;              /* Paths from STAGES; 0 = not yet received. */
    int64_t retry_at_us;         /* When to connect again, if `peer` is NULL. */
    int64_t retry_us;            /* Length of the next pause. */
    uint32_t wanted;             /* One bit for each gateway that wants the link. */
    struct push_meter meter;
    int64_t measured_us; /* When its speed was reported last. */
};

struct prompt_links {
    struct prompt_links_options options;
    struct link links[LIMIT_MACHINES];
};

enum status prompt_links_open(const struct prompt_links_options *options, struct prompt_links **out)
{
    struct prompt_links *links = calloc(1, sizeof(*links));
    if (links == NULL)
        return ST_NO_MEMORY;
    links->options = *options;
    *out = links;
    return ST_OK;
}

void prompt_links_close(struct prompt_links *links)
{
    if (links == NULL)
        return;
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++)
        if (links->links[i].peer != NULL)
            transport_disconnect(links->options.transport, links->links[i].peer);
    free(links);
}

static bool link_known(const struct link *link)
{
    return link->state.name[0] != 0;
}

static uint32_t link_target(const struct prompt_links *links, const struct link *link)
{
    return (uint32_t)(link - links->links);
}

/* Returns the link to the machine of that name ("" = an unused entry), or NULL. */
static struct link *link_find(const struct prompt_links *links, const char *name)
{
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++)
        if (strcmp(links->links[i].state.name, name) == 0)
            return (struct link *)&links->links[i];
    return NULL;
}

/* Sets the state, and reports it only if it has changed: an absent machine is not reported at every
 * attempt. */
static void link_report(struct prompt_links *links, struct link *link, bool up, const char *text)
{
    bool changed =
        link->state.up != up || strncmp(link->state.text, text, sizeof(link->state.text) - 1) != 0;
    link->state.up = up;
    snprintf(link->state.text, sizeof(link->state.text), "%.255s", text);
    if (changed)
        links->options.link_changed(links->options.self, &link->state);
}

static void link_retry_later(struct link *link, int64_t now_us)
{
    link->retry_at_us = now_us + link->retry_us;
    link->retry_us = 2 * link->retry_us < RETRY_MAX_US ? 2 * link->retry_us : RETRY_MAX_US;
}

/* Makes the next attempt due now. Changes the text, so that link_report reports the result. */
static void link_retry_now(struct link *link, int64_t now_us)
{
    link->retry_us = RETRY_FIRST_US;
    link->retry_at_us = now_us;
    char text[sizeof(link->state.text)];
    snprintf(text, sizeof(text), "connecting to %s", link->address);
    memcpy(link->state.text, text, sizeof(text));
}

static void link_connect(struct prompt_links *links, struct link *link, int64_t now_us)
{
    struct error error;
    link->paths = 0;
    enum status status = transport_connect(links->options.transport, link->address, &link->user,
                                           &link->peer, &error);
    if (status >= 0)
        return;
    link->peer = NULL;
    link_retry_later(link, now_us);
    link_report(links, link, false, error.text);
}

static void link_drop(struct prompt_links *links, struct link *link, const char *text)
{
    struct transport_peer *peer = link->peer;
    if (peer == NULL)
        return;
    link->peer = NULL;
    push_meter_disconnected(&link->meter);
    links->options.target_drop(links->options.self, link_target(links, link));
    transport_disconnect(links->options.transport, peer);
    links->options.peer_lost(links->options.self, peer, text);
}

/* The KV will travel another way. */
static void speed_forget(struct link *link)
{
    link->meter.speed = (struct link_speed){.transfers = 0};
    link->state.bytes_per_s = 0;
    link->state.latency_us = link->state.error_percent = 0;
}

static void report_ourselves(struct prompt_links *links)
{
    struct message_link state = {.up = true, .text = "the same memory"};
    snprintf(state.name, sizeof(state.name), "%s", links->options.name);
    links->options.link_changed(links->options.self, &state);
}

/* Ends a link that no gateway wants. */
static void link_forget(struct prompt_links *links, struct link *link)
{
    link_drop(links, link, "it was taken out of the cluster");
    if (link->state.up)
        link_report(links, link, false, "it was taken out of the cluster");
    memset(link, 0, sizeof(*link));
}

void prompt_links_gateway_gone(struct prompt_links *links, uint32_t gateway)
{
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++)
        links->links[i].wanted &= ~(1u << gateway);
}

/* Two gateways may know one machine by two addresses. An address that works for another gateway
 * stays. */
static bool link_stays(const struct link *link, uint32_t gateway, const char *address)
{
    return strcmp(link->address, address) == 0 ||
           (link->state.up && (link->wanted & ~(1u << gateway)) != 0);
}

enum status prompt_links_peer_set(struct prompt_links *links, uint32_t gateway,
                                  const struct message_peer *peer, int64_t now_us)
{
    if (peer->name[0] == 0) /* An empty name marks an unused entry. */
        return ST_INVALID;
    if (strcmp(peer->name, links->options.name) == 0) {
        report_ourselves(links);
        return ST_OK;
    }
    struct link *link = link_find(links, peer->name);
    if (peer->address[0] == 0) {
        if (link != NULL && (link->wanted &= ~(1u << gateway)) == 0)
            link_forget(links, link);
        return ST_OK;
    }
    if (link != NULL && link_stays(link, gateway, peer->address)) {
        link->wanted |= 1u << gateway;
        if (link->state.up)
            links->options.link_asked(links->options.self, &link->state);
        /* A gateway has just reached the machine, so there is no reason to wait. */
        else if (link->peer == NULL)
            link_retry_now(link, now_us);
        return ST_OK;
    }
    bool known = link != NULL;
    if (!known && (link = link_find(links, "")) == NULL)
        return ST_NO_RESOURCE;
    if (!known) {
        link->user = (struct peer_user){PEER_LINK, link};
        memcpy(link->state.name, peer->name, sizeof(link->state.name));
    } else {
        link_drop(links, link, "its address has changed");
        speed_forget(link);
        link_report(links, link, false, "its address has changed");
    }
    memcpy(link->address, peer->address, sizeof(link->address));
    link->wanted |= 1u << gateway;
    link_retry_now(link, now_us);
    link_connect(links, link, now_us);
    return ST_OK;
}

struct transport_peer *prompt_links_find(const struct prompt_links *links, const char *name,
                                         uint32_t *target_out, const char **text_out)
{
    const struct link *link = link_find(links, name);
    if (link != NULL && link->state.up) {
        *target_out = link_target(links, link);
        return link->peer;
    }
    *text_out = link != NULL ? link->state.text : "no gateway has named its address";
    return NULL;
}

bool prompt_links_has_path(const struct prompt_links *links, uint32_t target, uint32_t path)
{
    return (links->links[target].paths >> path & 1) != 0;
}

/* ---- speed ---- */

static bool differs(double a, double b)
{
    return a > b * (1 + REPORT_PERCENT / 100.0) || b > a * (1 + REPORT_PERCENT / 100.0);
}

static bool speed_is_news(const struct message_link *reported, const struct link_estimate *now)
{
    double latency_us = (double)now->latency_us - reported->latency_us;
    return differs((double)now->bytes_per_s, (double)reported->bytes_per_s) ||
           ((latency_us > REPORT_LATENCY_US || latency_us < -REPORT_LATENCY_US) &&
            differs(now->latency_us, reported->latency_us)) ||
           now->error_percent > reported->error_percent + REPORT_PERCENT ||
           reported->error_percent > now->error_percent + REPORT_PERCENT;
}

void prompt_links_written(struct prompt_links *links, uint32_t target, uint64_t bytes,
                          int64_t now_us)
{
    push_meter_write(&links->links[target].meter, bytes, now_us);
}

void prompt_links_flush_begun(struct prompt_links *links, uint32_t target, uint64_t cookie)
{
    push_meter_flush(&links->links[target].meter, cookie);
}

void prompt_links_flushed(struct prompt_links *links, uint32_t target, uint64_t cookie,
                          int64_t now_us)
{
    struct link *link = &links->links[target];
    if (!push_meter_flushed(&link->meter, cookie, now_us) || !link->state.up)
        return;
    const struct link_estimate estimate = link_speed_estimate(&link->meter.speed);
    bool is_first = link->state.bytes_per_s == 0;
    if (!is_first &&
        (now_us < link->measured_us + REPORT_PERIOD_US || !speed_is_news(&link->state, &estimate)))
        return;
    link->measured_us = now_us;
    link->state.latency_us = estimate.latency_us;
    link->state.error_percent = estimate.error_percent;
    link->state.bytes_per_s = estimate.bytes_per_s;
    links->options.link_measured(links->options.self, &link->state);
}

struct link_estimate prompt_links_speed(const struct prompt_links *links, uint32_t target)
{
    return link_speed_estimate(&links->links[target].meter.speed);
}

void prompt_links_peer_up(struct prompt_links *links, struct transport_peer *peer, int64_t now_us)
{
    struct link *link = peer_object_of(peer);
    assert(link->peer == peer);
    const char *name = transport_peer_identity(peer)->name;
    if (strcmp(name, link->state.name) != 0) {
        char text[sizeof(link->state.text)];
        snprintf(text, sizeof(text), "%.100s is machine \"%s\", want \"%s\"", link->address, name,
                 link->state.name);
        link_drop(links, link, text);
        link_retry_later(link, now_us);
        link_report(links, link, false, text);
        return;
    }
    /* STAGES follows. */
}

void prompt_links_stages_take(struct prompt_links *links, struct transport_peer *peer,
                              const struct message_stages *stages, int64_t now_us)
{
    struct link *link = peer_object_of(peer);
    struct message_peer machine;
    assert(link->peer == peer);
    /* To take new stages would forget the writes that are on their way to the earlier ones. */
    if (link->paths != 0) {
        prompt_links_target_prepared(links, link_target(links, link), false,
                                     "it has sent the places of its layers twice", now_us);
        return;
    }
    for (uint32_t i = 0; i < stages->count; i++)
        link->paths |= stages->stages[i].paths;
    memcpy(machine.name, link->state.name, sizeof(machine.name));
    memcpy(machine.address, link->address, sizeof(machine.address));
    links->options.target_prepare(links->options.self, link_target(links, link), &machine, peer,
                                  stages);
}

void prompt_links_target_prepared(struct prompt_links *links, uint32_t target, bool up,
                                  const char *text, int64_t now_us)
{
    struct link *link = &links->links[target];
    /* The connection has ended in the meantime. */
    if (!link_known(link) || link->peer == NULL)
        return;
    if (up) {
        link->retry_us = RETRY_FIRST_US;
        link_report(links, link, true, text);
        return;
    }
    link_retry_later(link, now_us);
    link_report(links, link, false,
                text); /* Report before the drop, as in prompt_links_peer_down. */
    link_drop(links, link, text);
}

void prompt_links_transport_changed(struct prompt_links *links, struct transport_peer *peer,
                                    const char *text)
{
    struct link *link = peer_object_of(peer);
    speed_forget(link);
    if (link->peer == peer && link->state.up)
        link_report(links, link, true, text);
}

void prompt_links_peer_down(struct prompt_links *links, struct transport_peer *peer,
                            const char *text, int64_t now_us)
{
    struct link *link = peer_object_of(peer);
    assert(link->peer == peer);
    link->peer = NULL;
    push_meter_disconnected(&link->meter);
    links->options.target_drop(links->options.self, link_target(links, link));
    link_retry_later(link, now_us);
    /* Report first, so that no lost request is sent over this link again. */
    link_report(links, link, false, text);
    links->options.peer_lost(links->options.self, peer, text);
}

int64_t prompt_links_turn(struct prompt_links *links, int64_t now_us)
{
    int64_t next_us = INT64_MAX;
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++) {
        struct link *link = &links->links[i];
        if (!link_known(link))
            continue;
        if (link->peer == NULL && link->retry_at_us <= now_us)
            link_connect(links, link, now_us);
        if (link->peer == NULL && link->retry_at_us < next_us)
            next_us = link->retry_at_us;
    }
    return next_us;
}
