/* Goal: a client that is slow, or many of one address, cannot keep others out; a client that asks
 * for little always gets a place. Method: connections without sockets, in virtual time; then random
 * operations, whose counts are compared with a plain list. */
#include "server/http/clients.h"
#include "tests/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_US 1000000ll

static int closed[4096];
static uint32_t closed_count;

static void on_close(void *self, struct http_client *client, const char *why)
{
    (void)self;
    CHECK(why[0] != 0 && closed_count < 4096);
    closed[closed_count++] = http_client_fd(client);
}

static uint32_t places_new; /* Option of the clients that are opened next. */

static struct http_clients *clients_open(uint32_t places, uint32_t kept, uint32_t per_address)
{
    struct http_clients *all;
    struct http_clients_options options = {
        .connections_max = places,
        .connections_surplus = places_new,
        .connections_reserved = kept,
        .per_address_max = per_address,
        .arriving_us = 30 * SECOND_US,
        .idle_us = 120 * SECOND_US,
        .grace_us = 30 * SECOND_US,
        .bytes_per_second_min = 1000,
        .close = on_close,
    };
    closed_count = 0;
    CHECK(http_clients_open(&options, &all) == ST_OK);
    return all;
}

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage out = {0};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        memcpy(&out, &v4, sizeof(v4));
    else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
        memcpy(&out, &v6, sizeof(v6));
    else
        CHECKF(false, "%s", text);
    return out;
}

/* Returns NULL if it is not admitted. */
static struct http_client *arrive(struct http_clients *all, const char *text, int fd,
                                  int64_t now_us)
{
    struct sockaddr_storage address = address_of(text);
    const struct sockaddr *from = (const struct sockaddr *)&address;
    if (!http_clients_admit(all, from, now_us))
        return NULL;
    struct http_client *client = http_client_add(all, from, fd, now_us);
    CHECK(client != NULL && http_client_state(client) == HTTP_CLIENT_ARRIVING);
    return client;
}

static void work(struct http_client *client, int64_t now_us)
{
    http_client_state_set(client, HTTP_CLIENT_RECEIVING, now_us);
    CHECK(http_client_work_begin(client));
    http_client_state_set(client, HTTP_CLIENT_WORKING, now_us);
}

/* F-18 of the security review: connections without a request kept everybody else out. */
static void check_slow_connections_are_replaced(void)
{
    enum { PLACES = 8 };
    struct http_clients *all = clients_open(PLACES, 2, 100);
    struct http_client *clients[PLACES];
    for (int i = 0; i < PLACES; i++)
        clients[i] = arrive(all, "10.0.0.1", i, i);
    const int64_t late_us = PLACES + HTTP_CLIENT_YOUNG_US;
    struct http_client *new = arrive(all, "10.0.0.2", 100, late_us);
    CHECK(new != NULL &&closed_count == 1 && closed[0] == 0);
    work(clients[1], late_us + 1); /* this one's headers came in time */
    struct http_client *another = arrive(all, "10.0.0.2", 101, late_us + 2);
    CHECK(another != NULL && closed_count == 2 && closed[1] == 2);
    http_client_state_set(clients[1], HTTP_CLIENT_ANSWERING, late_us + 3);
    http_client_state_set(clients[1], HTTP_CLIENT_IDLE, late_us + 4);
    CHECK(http_clients_count(all) == PLACES);
    for (int i = 0; i < PLACES; i++)
        http_client_remove(clients[i]);
    http_client_remove(new);
    http_client_remove(another);
    http_clients_close(all);
}

/* A flood of handshakes of one address delays neither the event loop nor other addresses. */
static void check_handshakes_share_their_time(void)
{
    const int64_t half_us = HTTP_CLIENT_HANDSHAKES_US / 2, now_us = SECOND_US;
    struct http_clients *all = clients_open(8, 2, 100);
    struct http_client *flood[2] = {arrive(all, "10.0.0.1", 0, 0), arrive(all, "10.0.0.1", 1, 0)};
    struct http_client *local = arrive(all, "127.0.0.1", 2, 0);
    struct http_client *other = arrive(all, "10.0.0.2", 3, 0);
    struct http_client *late = arrive(all, "10.0.0.3", 4, 0);
    CHECK(http_client_handshake_permit(flood[0], now_us));
    CHECK(http_client_handshake_permit(local, now_us + half_us - 1));
    CHECK(http_client_handshake_permit(flood[1], now_us + half_us - 1));
    CHECK(!http_client_handshake_permit(flood[0], now_us + half_us));
    CHECK(!http_client_handshake_permit(local, now_us + half_us));
    CHECK(http_client_handshake_permit(other, now_us + half_us));
    CHECK(!http_client_handshake_permit(other, now_us + half_us));
    CHECK(!http_client_handshake_permit(late, now_us + 2 * half_us));
    http_clients_turn(all, now_us + 2 * half_us);
    CHECK(http_client_handshake_permit(late, now_us + 2 * half_us));
    CHECK(http_client_handshake_permit(local, now_us + 3 * half_us));
    CHECK(http_client_handshake_permit(flood[0], now_us + 3 * half_us - 1));
    struct http_client *clients[] = {flood[0], flood[1], local, other, late};
    for (int i = 0; i < 5; i++)
        http_client_remove(clients[i]);
    http_clients_close(all);
}

/* A new client may send its headers, even if all places are taken: it is then refused with an
 * answer. Only when it is no longer young does it have to leave. */
static void check_new_clients_wait_beyond_the_places(void)
{
    enum { PLACES = 8, NEW = 2, ALL = PLACES + NEW };
    places_new = NEW;
    struct http_clients *all = clients_open(PLACES, 2, 100);
    struct http_client *clients[ALL];
    places_new = 0;
    for (int i = 0; i < ALL; i++) {
        CHECK((clients[i] = arrive(all, "10.0.0.1", i, i)) != NULL);
        if (i < PLACES - 2)
            work(clients[i], i);
    }
    CHECK(closed_count == 0 && arrive(all, "10.0.0.2", 100, 20) == NULL);
    CHECK(http_clients_turn(all, 20) == PLACES - 2 + HTTP_CLIENT_YOUNG_US - 20);
    http_clients_turn(all, PLACES - 2 + HTTP_CLIENT_YOUNG_US);
    CHECK(closed_count == 1 && closed[0] == PLACES - 2);
    http_clients_turn(all, 60 * HTTP_CLIENT_YOUNG_US); /* Not more than needed. */
    CHECK(closed_count == 2 && closed[1] == PLACES - 1 && http_clients_count(all) == PLACES);
    for (int i = 0; i < ALL; i++)
        http_client_remove(clients[i]);
    http_clients_close(all);
}

/* However many tenants have work, a client that asks for /health gets in. */
static void check_places_are_kept(void)
{
    enum { PLACES = 8, KEPT = 2 };
    struct http_clients *all = clients_open(PLACES, KEPT, 100);
    struct http_client *clients[PLACES];
    for (int i = 0; i < PLACES; i++) {
        clients[i] = arrive(all, "10.0.0.1", i, i);
        http_client_state_set(clients[i], HTTP_CLIENT_RECEIVING, i);
        CHECK(http_client_work_begin(clients[i]) == (i < PLACES - KEPT));
    }
    CHECK(closed_count == 0);
    http_client_state_set(clients[6], HTTP_CLIENT_IDLE, 20); /* refused and answered */
    struct http_client *health = arrive(all, "10.0.0.9", 100, 21);
    CHECK(health != NULL && closed_count == 1 && closed[0] == 6);
    http_client_state_set(clients[0], HTTP_CLIENT_IDLE, 22);
    CHECK(http_client_work_begin(clients[7])); /* the first one's work has ended */
    for (int i = 0; i < PLACES; i++)
        http_client_remove(clients[i]);
    http_client_remove(health);
    http_clients_close(all);
}

static void check_one_address_has_a_limit(void)
{
    struct http_clients *all = clients_open(100, 2, 2);
    static const char *const same[][3] = {{"10.0.0.1", "10.0.0.1", "10.0.0.1"},
                                          {"2001:db8::1", "2001:db8::2", "2001:db8::ffff:1"},
                                          {"10.0.0.2", "::ffff:10.0.0.2", "10.0.0.2"}};
    for (int i = 0; i < 3; i++) {
        closed_count = 0;
        struct http_client *a = arrive(all, same[i][0], 1, 1), *b = arrive(all, same[i][1], 2, 2);
        struct http_client *c = arrive(all, same[i][2], 3, 3);
        CHECK(c != NULL && closed_count == 1 && closed[0] == 1);
        work(b, 4);
        work(c, 4);
        CHECK(arrive(all, same[i][0], 4, 5) == NULL); /* both have work */
        http_client_key_shown(c); /* behind a key, all its clients may come from one address */
        struct http_client *d = arrive(all, same[i][0], 4, 6);
        CHECK(d != NULL && closed_count == 1);
        http_client_remove(a);
        http_client_remove(b);
        http_client_remove(c);
        http_client_remove(d);
    }
    struct http_client *own[5]; /* no limit on this computer */
    for (int i = 0; i < 5; i++)
        CHECK((own[i] = arrive(all, i % 2 ? "127.0.0.1" : "::1", i, i)) != NULL);
    for (int i = 0; i < 5; i++)
        http_client_remove(own[i]);
    http_clients_close(all);
}

static void check_time_limits(void)
{
    struct http_clients *all = clients_open(100, 2, 100);
    struct http_client *c[5];
    for (int i = 0; i < 5; i++)
        c[i] = arrive(all, "10.0.0.1", i, 0);
    CHECK(http_clients_turn(all, 0) == 30 * SECOND_US);
    http_client_state_set(c[1], HTTP_CLIENT_RECEIVING, 10 * SECOND_US);
    work(c[2], 10 * SECOND_US);
    http_client_state_set(c[3], HTTP_CLIENT_ANSWERING, 10 * SECOND_US);
    http_client_state_set(c[4], HTTP_CLIENT_IDLE, 10 * SECOND_US);
    http_client_bytes_add(c[1], 5000, 11 * SECOND_US); /* 5 seconds at 1000 bytes a second */
    CHECK(http_clients_turn(all, 29 * SECOND_US) > 0 && closed_count == 0);
    http_clients_turn(all, 30 * SECOND_US);
    CHECK(closed_count == 1 && closed[0] == 0); /* its headers */
    http_clients_turn(all, 40 * SECOND_US);
    CHECK(closed_count == 2 && closed[1] == 3); /* nothing of its answer was read */
    http_clients_turn(all, 44 * SECOND_US);
    CHECK(closed_count == 2);
    http_clients_turn(all, 45 * SECOND_US);
    CHECK(closed_count == 3 && closed[2] == 1); /* its body */
    CHECK(http_clients_turn(all, 46 * SECOND_US) == 84 * SECOND_US);
    CHECK(http_clients_turn(all, 130 * SECOND_US) == -1);
    CHECK(closed_count == 4 && closed[3] == 4);
    CHECK(http_client_state(c[2]) == HTTP_CLIENT_WORKING); /* computing has no limit */
    for (int i = 0; i < 5; i++)
        http_client_remove(c[i]);
    http_clients_close(all);
}

static void check_stalled_reader(void)
{
    struct http_clients *all = clients_open(100, 2, 100);
    struct http_client *c[3];
    CHECK(http_clients_stalled(all) == NULL);
    for (int i = 0; i < 3; i++) {
        c[i] = arrive(all, "10.0.0.1", i, i);
        http_client_state_set(c[i], HTTP_CLIENT_ANSWERING, i);
    }
    CHECK(http_clients_stalled(all) == c[0]);
    http_client_bytes_add(c[0], 1, 5);
    http_client_bytes_add(c[1], 1000000, 4);
    http_client_bytes_add(c[2], 0, 9); /* nothing */
    CHECK(http_clients_stalled(all) == c[2]);
    http_client_close(c[2], "test");
    CHECK(http_clients_stalled(all) == c[1] && closed_count == 1);
    for (int i = 0; i < 3; i++)
        http_client_remove(c[i]);
    http_clients_close(all);
}

static void check_random(void)
{
    enum { CLIENTS = 40, PLACES = 20 };
    static const char *const addresses[] = {"10.0.0.1", "10.0.0.2", "10.0.0.3", "::1"};
    struct http_clients *all = clients_open(PLACES, 4, 8);
    struct http_client *clients[CLIENTS] = {NULL};
    bool works[CLIENTS] = {false};
    uint64_t seed = test_seed();
    srand((unsigned)seed);
    int64_t now_us = 0;
    for (int step = 0; step < 20000; step++) {
        int i = rand() % CLIENTS;
        now_us += rand() % SECOND_US;
        closed_count = 0;
        if (clients[i] == NULL) {
            clients[i] = arrive(all, addresses[rand() % 4], i, now_us);
        } else if (http_client_state(clients[i]) == HTTP_CLIENT_CLOSING || rand() % 8 == 0) {
            http_client_remove(clients[i]);
            clients[i] = NULL;
            works[i] = false;
        } else {
            int state = HTTP_CLIENT_RECEIVING + rand() % 4;
            http_client_state_set(clients[i], (enum http_client_state)state, now_us);
            if (state == HTTP_CLIENT_IDLE)
                works[i] = false;
            else if (http_client_work_begin(clients[i]))
                works[i] = true;
            http_client_bytes_add(clients[i], (uint64_t)(rand() % 100000), now_us);
        }
        if (rand() % 4 == 0)
            http_clients_turn(all, now_us);
        uint32_t open = 0, working = 0;
        for (int j = 0; j < CLIENTS; j++) {
            bool closing =
                clients[j] != NULL && http_client_state(clients[j]) == HTTP_CLIENT_CLOSING;
            works[j] = works[j] && !closing;
            open += clients[j] != NULL && !closing;
            working += works[j];
        }
        CHECK(http_clients_count(all) == open && open <= PLACES && working <= PLACES - 4);
    }
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i] != NULL)
            http_client_remove(clients[i]);
    http_clients_close(all);
}

int main(void)
{
    check_slow_connections_are_replaced();
    check_handshakes_share_their_time();
    check_new_clients_wait_beyond_the_places();
    check_places_are_kept();
    check_one_address_has_a_limit();
    check_time_limits();
    check_stalled_reader();
    check_random();
    return 0;
}
