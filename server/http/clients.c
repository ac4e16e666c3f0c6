/* http_clients: one list of clients for each state, in the order in which they entered the state.
 * So where the time limit is fixed, the first client of a list is the first to exceed it. */
#include "server/http/clients.h"

#include "common/random.h"
#include "common/secret.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024
/* How often clients with a minimum rate are checked. */
#define RATE_CHECK_US 1000000

/* An address, with the number of its clients that have shown no API key. An IPv6 address stands for
 * its network of 64 bits, which one host usually has for itself. */
struct address {
    struct address *next;
    uint64_t network;
    bool is_v6;
    uint32_t clients;
    uint64_t handshake_turn; /* `turns` at the latest permitted handshake. */
};

struct list {
    struct http_client *first;
    struct http_client *last;
    uint32_t count;
};

struct http_client {
    struct http_clients *all;
    struct http_client *previous;
    struct http_client *next;
    struct address *address; /* NULL = not limited. */
    enum http_client_state state;
    bool works; /* The client counts in all->working. */
    void *request;
    int fd;
    int64_t since_us; /* When the client entered its state. */
    uint64_t bytes;   /* Bytes received from the client, or read by the client, since since_us. */
    int64_t moved_us; /* When `bytes` grew last, or since_us. */
};

struct http_clients {
    struct http_clients_options options;
    struct list lists[HTTP_CLIENT_STATES];
    uint32_t count; /* Without CLOSING. */
    uint32_t working;
    int64_t rates_check_us;  /* When the rates are checked next. */
    uint64_t turns;          /* Number of calls of http_clients_turn, plus 1. */
    int64_t handshakes_us;   /* When the turn's first handshake went on; 0 = none did. */
    uint64_t handshake_turn; /* As in struct address, for all clients without an address. */
    uint64_t hash_key;
    struct address *buckets[BUCKETS];
};

/* --- lists --- */

static void list_push(struct list *list, struct http_client *c)
{
    c->previous = list->last;
    c->next = NULL;
    if (list->last != NULL)
        list->last->next = c;
    else
        list->first = c;
    list->last = c;
    list->count++;
}

static void list_remove(struct list *list, struct http_client *c)
{
    if (c->previous != NULL)
        c->previous->next = c->next;
    else
        list->first = c->next;
    if (c->next != NULL)
        c->next->previous = c->previous;
    else
        list->last = c->previous;
    list->count--;
}

/* --- addresses --- */

/* Reads the network of an address. Returns false for an address without a limit. */
static bool address_read(const struct sockaddr *from, struct address *out)
{
    *out = (struct address){0};
    if (from->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, from, sizeof(v4));
        out->network = ntohl(v4.sin_addr.s_addr);
    } else if (from->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, from, sizeof(v6));
        const uint8_t *bytes = v6.sin6_addr.s6_addr;
        if (IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr))
            return false;
        out->is_v6 = !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
        uint32_t first = out->is_v6 ? 0 : 12, last = out->is_v6 ? 8 : 16;
        for (uint32_t i = first; i < last; i++)
            out->network = out->network << 8 | bytes[i];
    } else {
        return false;
    }
    return out->is_v6 || out->network >> 24 != 127;
}

static struct address **address_find(struct http_clients *all, const struct address *wanted)
{
    uint64_t hash = random_at(all->hash_key + wanted->is_v6, wanted->network);
    struct address **at = &all->buckets[hash % BUCKETS];
    while (*at != NULL && ((*at)->network != wanted->network || (*at)->is_v6 != wanted->is_v6))
        at = &(*at)->next;
    return at;
}

/* Counts a client of the address. Returns NULL if the address has no limit or memory runs out; the
 * client then has no limit for its address. */
static struct address *address_ref(struct http_clients *all, const struct sockaddr *from)
{
    struct address wanted;
    if (!address_read(from, &wanted))
        return NULL;
    struct address **at = address_find(all, &wanted);
    if (*at == NULL && (*at = malloc(sizeof(**at))) != NULL)
        **at = wanted;
    if (*at != NULL)
        (*at)->clients++;
    return *at;
}

static void address_unref(struct http_clients *all, struct address *address)
{
    if (address == NULL || --address->clients > 0)
        return;
    struct address **at = address_find(all, address);
    *at = address->next;
    free(address);
}

/* --- opening and closing --- */

enum status http_clients_open(const struct http_clients_options *options, struct http_clients **out)
{
    struct http_clients *all = calloc(1, sizeof(*all));
    if (all == NULL)
        return ST_NO_MEMORY;
    all->options = *options;
    all->turns = 1;
    secret_random(&all->hash_key, sizeof(all->hash_key));
    *out = all;
    return ST_OK;
}

void http_clients_close(struct http_clients *all)
{
    if (all == NULL)
        return;
    for (int state = 0; state < HTTP_CLIENT_STATES; state++)
        assert(all->lists[state].count == 0);
    free(all);
}

void http_clients_limits_set(struct http_clients *all, uint32_t per_address_max,
                             int64_t arriving_us, uint64_t bytes_per_second_min)
{
    all->options.per_address_max = per_address_max;
    all->options.arriving_us = arriving_us;
    all->options.bytes_per_second_min = bytes_per_second_min;
}

static void work_end(struct http_client *c)
{
    if (!c->works)
        return;
    c->works = false;
    assert(c->all->working > 0);
    c->all->working--;
}

static void client_close(struct http_client *c, const char *why)
{
    struct http_clients *all = c->all;
    work_end(c);
    address_unref(all, c->address);
    c->address = NULL;
    list_remove(&all->lists[c->state], c);
    c->state = HTTP_CLIENT_CLOSING;
    list_push(&all->lists[c->state], c);
    all->count--;
    all->options.close(all->options.self, c, why);
}

static struct http_client *first_of(struct list *list, const struct address *address)
{
    struct http_client *c = list->first;
    while (c != NULL && address != NULL && c->address != address)
        c = c->next;
    return c;
}

/* Returns the client that has waited longest without a request. address NULL = a client of any
 * address, which is not young. */
static struct http_client *client_to_replace(struct http_clients *all,
                                             const struct address *address, int64_t now_us)
{
    struct http_client *arriving = first_of(&all->lists[HTTP_CLIENT_ARRIVING], address);
    struct http_client *idle = first_of(&all->lists[HTTP_CLIENT_IDLE], address);
    if (address == NULL && arriving != NULL && now_us - arriving->since_us < HTTP_CLIENT_YOUNG_US)
        arriving = NULL;
    if (arriving == NULL || idle == NULL)
        return arriving != NULL ? arriving : idle;
    return idle->since_us < arriving->since_us ? idle : arriving;
}

bool http_clients_admit(struct http_clients *all, const struct sockaddr *from, int64_t now_us)
{
    struct address wanted;
    const struct address *address = NULL;
    if (address_read(from, &wanted))
        address = *address_find(all, &wanted);
    struct http_client *replaced = NULL;
    if (address != NULL && address->clients >= all->options.per_address_max) {
        replaced = client_to_replace(all, address, now_us);
        if (replaced == NULL)
            return false;
        client_close(replaced, "its address has too many connections");
    } else if (all->count >= all->options.connections_max) {
        replaced = client_to_replace(all, NULL, now_us);
        if (replaced == NULL)
            return all->count < all->options.connections_max + all->options.connections_surplus;
        client_close(replaced, "a new connection needs its place");
    }
    return true;
}

struct http_client *http_client_add(struct http_clients *all, const struct sockaddr *from, int fd,
                                    int64_t now_us)
{
    struct http_client *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return NULL;
    *c = (struct http_client){.all = all, .fd = fd, .since_us = now_us};
    c->address = address_ref(all, from);
    list_push(&all->lists[c->state], c);
    all->count++;
    return c;
}

void http_client_remove(struct http_client *c)
{
    struct http_clients *all = c->all;
    work_end(c);
    address_unref(all, c->address);
    all->count -= c->state != HTTP_CLIENT_CLOSING;
    list_remove(&all->lists[c->state], c);
    free(c);
}

void http_client_close(struct http_client *c, const char *why)
{
    if (c->state != HTTP_CLIENT_CLOSING)
        client_close(c, why);
}

int http_client_fd(const struct http_client *c)
{
    return c->fd;
}

void http_client_request_set(struct http_client *c, void *request)
{
    c->request = request;
}

void *http_client_request(const struct http_client *c)
{
    return c->request;
}

bool http_client_handshake_permit(struct http_client *c, int64_t now_us)
{
    struct http_clients *all = c->all;
    if (all->handshakes_us == 0)
        all->handshakes_us = now_us;
    uint64_t *turn = c->address != NULL ? &c->address->handshake_turn : &all->handshake_turn;
    if (now_us - all->handshakes_us >= HTTP_CLIENT_HANDSHAKES_US / (*turn == all->turns ? 2 : 1))
        return false;
    *turn = all->turns;
    return true;
}

/* --- states --- */

void http_client_state_set(struct http_client *c, enum http_client_state state, int64_t now_us)
{
    assert(state != HTTP_CLIENT_ARRIVING && state != HTTP_CLIENT_CLOSING);
    if (c->state == HTTP_CLIENT_CLOSING)
        return;
    if (state == HTTP_CLIENT_IDLE)
        work_end(c);
    list_remove(&c->all->lists[c->state], c);
    list_push(&c->all->lists[state], c);
    c->state = state;
    c->since_us = now_us;
    c->moved_us = now_us;
    c->bytes = 0;
}

enum http_client_state http_client_state(const struct http_client *c)
{
    return c->state;
}

void http_client_bytes_add(struct http_client *c, uint64_t bytes, int64_t now_us)
{
    c->bytes += bytes;
    if (bytes > 0)
        c->moved_us = now_us;
}

void http_client_key_shown(struct http_client *c)
{
    address_unref(c->all, c->address);
    c->address = NULL;
}

bool http_client_work_begin(struct http_client *c)
{
    const struct http_clients_options *options = &c->all->options;
    if (c->works || c->state == HTTP_CLIENT_CLOSING)
        return true;
    if (c->all->working + options->connections_reserved >= options->connections_max)
        return false;
    c->works = true;
    c->all->working++;
    return true;
}

/* --- time limits --- */

/* Closes the clients that have been in a state for longer than limit_us. Returns when the next
 * client exceeds the limit. */
static int64_t late_close(struct http_clients *all, enum http_client_state state, int64_t limit_us,
                          int64_t now_us, const char *why)
{
    struct http_client *c;
    while ((c = all->lists[state].first) != NULL && c->since_us + limit_us <= now_us)
        client_close(c, why);
    return c != NULL ? c->since_us + limit_us : INT64_MAX;
}

/* Returns the time at which a client with a minimum rate is closed if no more bytes move. */
static int64_t rate_limit_us(const struct http_client *c)
{
    const struct http_clients_options *options = &c->all->options;
    double earned_us = (double)c->bytes * 1e6 / (double)options->bytes_per_second_min;
    return c->since_us + options->grace_us + (int64_t)earned_us;
}

static void slow_close(struct http_clients *all, enum http_client_state state, int64_t now_us,
                       const char *why)
{
    for (struct http_client *c = all->lists[state].first, *next; c != NULL; c = next) {
        next = c->next;
        if (rate_limit_us(c) <= now_us)
            client_close(c, why);
    }
}

struct http_client *http_clients_stalled(struct http_clients *all)
{
    struct http_client *stalled = NULL;
    for (struct http_client *c = all->lists[HTTP_CLIENT_ANSWERING].first; c != NULL; c = c->next)
        if (stalled == NULL || c->moved_us < stalled->moved_us)
            stalled = c;
    return stalled;
}

static int64_t rates_check(struct http_clients *all, int64_t now_us)
{
    if (all->lists[HTTP_CLIENT_RECEIVING].count + all->lists[HTTP_CLIENT_ANSWERING].count == 0)
        return INT64_MAX;
    if (all->rates_check_us <= now_us) {
        slow_close(all, HTTP_CLIENT_RECEIVING, now_us, "it sends its request too slowly");
        slow_close(all, HTTP_CLIENT_ANSWERING, now_us, "it reads its answer too slowly");
        all->rates_check_us = now_us + RATE_CHECK_US;
    }
    return all->rates_check_us;
}

/* Closes waiting clients while there are more connections than places. Returns when the next client
 * may be closed (HTTP_CLIENT_YOUNG_US). */
static int64_t surplus_close(struct http_clients *all, int64_t now_us)
{
    struct http_client *c;
    while (all->count > all->options.connections_max &&
           (c = client_to_replace(all, NULL, now_us)) != NULL)
        client_close(c, "a new connection needs its place");
    c = all->lists[HTTP_CLIENT_ARRIVING].first;
    return all->count > all->options.connections_max && c != NULL
               ? c->since_us + HTTP_CLIENT_YOUNG_US
               : INT64_MAX;
}

int64_t http_clients_turn(struct http_clients *all, int64_t now_us)
{
    const struct http_clients_options *options = &all->options;
    all->turns++;
    all->handshakes_us = 0;
    int64_t next_us = rates_check(all, now_us);
    int64_t arriving_us = late_close(all, HTTP_CLIENT_ARRIVING, options->arriving_us, now_us,
                                     "its first request did not arrive");
    int64_t idle_us =
        late_close(all, HTTP_CLIENT_IDLE, options->idle_us, now_us, "it sent no further request");
    int64_t surplus_us = surplus_close(all, now_us);
    next_us = arriving_us < next_us ? arriving_us : next_us;
    next_us = surplus_us < next_us ? surplus_us : next_us;
    next_us = idle_us < next_us ? idle_us : next_us;
    return next_us == INT64_MAX ? -1 : next_us - now_us;
}

uint32_t http_clients_count(const struct http_clients *all)
{
    return all->count;
}
