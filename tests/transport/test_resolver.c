/* Goal: a name server that does not answer blocks no caller: look-ups run on other threads, the
 * last good answer is kept, the number of look-ups is limited, the names that are used least are
 * forgotten, and closing waits for none. Method: a look-up function that waits until the test opens
 * its gate. */
#include "tests/check.h"
#include "transport/resolver.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool gate_open, fails;
static uint32_t begun, ended;
static uint16_t answer = 1;

static void answer_set(struct address_found *out, uint16_t number)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&out->list[0].address;
    *out = (struct address_found){.count = 1};
    *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = number};
    out->list[0].bytes = sizeof(*in);
}

static uint16_t number_of(const struct address_found *found)
{
    CHECK(found->count == 1);
    return ((const struct sockaddr_in *)&found->list[0].address)->sin_port;
}

static enum status look_up(const struct address *address, bool for_listening,
                           struct address_found *out, struct error *error)
{
    CHECK(!for_listening);
    pthread_mutex_lock(&lock);
    begun++;
    pthread_cond_broadcast(&changed);
    while (!gate_open)
        pthread_cond_wait(&changed, &lock);
    answer_set(out, answer);
    bool bad = fails;
    ended++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return bad ? error_set(error, ST_UNREACHABLE, "%s: no such host", address->host) : ST_OK;
}

static void gate_set(bool open, bool failing, uint16_t number)
{
    pthread_mutex_lock(&lock);
    gate_open = open;
    fails = failing;
    answer = number;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void count_await(const uint32_t *count, uint32_t value)
{
    pthread_mutex_lock(&lock);
    while (*count < value)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void fd_await(const struct resolver *resolver)
{
    struct pollfd fd = {.fd = resolver_fd(resolver), .events = POLLIN};
    CHECK(poll(&fd, 1, 60000) == 1);
}

static struct address host(const char *name)
{
    struct address address = {.port = "1"};
    snprintf(address.host, sizeof(address.host), "%s", name);
    return address;
}

/* Waits until an answer is no longer fresh, which takes a second. */
static void fresh_end(void)
{
    usleep(1100000);
}

static void check_numeric(struct resolver *resolver)
{
    struct address_found found;
    struct error error;
    struct address a = host("127.0.0.1"), b = host("::1");
    CHECK(resolver_find(resolver, &a, false, &found, &error) == ST_OK && found.count == 1);
    CHECK(resolver_find(resolver, &b, false, &found, &error) == ST_OK);
    CHECK(found.list[0].address.ss_family == AF_INET6 && begun == 0);
}

static void check_last_good(struct resolver *resolver)
{
    struct address_found found;
    struct error error;
    const struct address a = host("a");
    CHECK(resolver_find(resolver, &a, false, &found, &error) == ST_IN_PROGRESS);
    /* There is no answer yet. */
    CHECK(resolver_find(resolver, &a, true, &found, &error) == ST_IN_PROGRESS);
    count_await(&begun, 1);
    gate_set(true, false, 7);
    fd_await(resolver);
    CHECK(resolver_find(resolver, &a, false, &found, &error) == ST_OK && number_of(&found) == 7);
    /* The answer is still fresh. */
    CHECK(resolver_find(resolver, &a, false, &found, &error) == ST_OK && begun == 1);

    gate_set(false, false, 8);
    fresh_end();
    CHECK(resolver_find(resolver, &a, false, &found, &error) == ST_IN_PROGRESS);
    CHECK(resolver_find(resolver, &a, true, &found, &error) == ST_OK && number_of(&found) == 7);
    count_await(&begun, 2);
    CHECK(begun == 2); /* One look-up for all callers. */
    gate_set(true, true, 9);
    fd_await(resolver);
    CHECK(resolver_find(resolver, &a, false, &found, &error) == ST_OK && number_of(&found) == 7);

    const struct address b = host("b");
    CHECK(resolver_find(resolver, &b, false, &found, &error) == ST_IN_PROGRESS);
    fd_await(resolver);
    CHECK(resolver_find(resolver, &b, false, &found, &error) == ST_UNREACHABLE);
    CHECKF(strcmp(error.text, "b: no such host") == 0, "%s", error.text);
    CHECK(begun == 3 && ended == 3);
}

/* Look-ups without an answer use at most 32 threads. Closing waits for none of them, and they end
 * by themselves. */
static void check_limits(struct resolver *resolver)
{
    struct address_found found;
    struct error error;
    uint32_t refused = 0;
    char name[24];
    gate_set(false, false, 1);
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof(name), "host-%d", i);
        struct address a = host(name);
        enum status status = resolver_find(resolver, &a, false, &found, &error);
        CHECK(status == ST_IN_PROGRESS || status == ST_NO_RESOURCE);
        refused += status == ST_NO_RESOURCE;
    }
    CHECK(refused == 2000 - 32);
    CHECKF(strstr(error.text, "too many names") != NULL, "%s", error.text);
    count_await(&begun, 3 + 32);
    resolver_close(resolver);
    gate_set(true, false, 1);
    count_await(&ended, 3 + 32);
}

/* Returns the result of a look-up, also if its answer is not fresh any more. */
static enum status found_await(struct resolver *resolver, const struct address *address)
{
    struct address_found found;
    struct error error;
    enum status status;
    while ((status = resolver_find(resolver, address, true, &found, &error)) == ST_IN_PROGRESS)
        fd_await(resolver);
    return status;
}

/* Of more than 1024 names, the one that was not used for the longest time is forgotten: neither the
 * newest one, nor an old one that is still used. */
static void check_forgotten(void)
{
    struct resolver *resolver;
    struct address_found found;
    struct error error;
    char name[24];
    const struct address used = host("used"), unused = host("unused");
    struct address previous = used;
    CHECK(resolver_open(look_up, &resolver, &error) == ST_OK);
    CHECK(found_await(resolver, &unused) == ST_OK && found_await(resolver, &used) == ST_OK);
    for (int i = 0; i < 1100; i++) {
        snprintf(name, sizeof(name), "host-%d", i);
        const struct address next = host(name);
        CHECK(found_await(resolver, &next) == ST_OK);
        CHECKF(resolver_find(resolver, &previous, true, &found, &error) == ST_OK,
               "%s is forgotten after %s", previous.host, name);
        CHECK(resolver_find(resolver, &used, true, &found, &error) == ST_OK);
        previous = next;
    }
    CHECK(resolver_find(resolver, &unused, true, &found, &error) == ST_IN_PROGRESS);
    resolver_close(resolver);
    pthread_mutex_lock(&lock);
    while (ended < begun)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

int main(void)
{
    struct resolver *resolver;
    struct error error;
    CHECK(resolver_open(look_up, &resolver, &error) == ST_OK);
    check_numeric(resolver);
    check_last_good(resolver);
    check_limits(resolver);
    check_forgotten();
    printf("%u look-ups, none of which blocked\n", begun);
    return 0;
}
