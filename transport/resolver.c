/* resolver: one entry per host and port. A look-up is shared by its entry and its thread; the one
 * that ends last frees it. So a silent name server delays neither the event loop nor the end of the
 * process. */
#include "transport/resolver.h"

#include "common/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ENTRIES_MAX  1024
#define LOOK_UPS_MAX 32 /* Threads at the same time. */
#define FRESH_US     1000000
#define THREAD_STACK (256u << 10)

struct look_up {
    atomic_int holders;
    atomic_bool ended; /* The fields below are valid, and the thread no longer writes them. */
    struct address address;
    resolver_look_up *function;
    int wake_fd;
    enum status status;
    struct address_found found;
    struct error error;
};

struct entry {
    struct entry *next;
    struct address address;
    struct look_up *running; /* NULL = none. */
    int64_t ended_us;        /* End of the last look-up; 0 = none has ended. */
    enum status status;      /* Of the last look-up. */
    struct error error;
    struct address_found good; /* The last good answer; count 0 = none. */
};

struct resolver {
    resolver_look_up *function;
    int fd;
    uint32_t entry_count, running_count;
    struct entry *entries; /* The one that was used last comes first. */
};

static void look_up_release(struct look_up *l)
{
    if (atomic_fetch_sub(&l->holders, 1) > 1)
        return;
    close(l->wake_fd);
    free(l);
}

static void *look_up_main(void *argument)
{
    struct look_up *l = argument;
    l->status = l->function(&l->address, false, &l->found, &l->error);
    atomic_store(&l->ended, true);
    (void)eventfd_write(l->wake_fd, 1);
    look_up_release(l);
    return NULL;
}

/* Starts a detached thread, which handles no signals. */
static int thread_start(struct look_up *l)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, &attributes, look_up_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}

static enum status look_up_start(struct resolver *resolver, struct entry *entry,
                                 struct error *error)
{
    if (resolver->running_count == LOOK_UPS_MAX)
        return error_set(error, ST_NO_RESOURCE, "%s: too many names are being looked up",
                         entry->address.host);
    struct look_up *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    atomic_init(&l->holders, 2);
    l->address = entry->address;
    l->function = resolver->function;
    l->wake_fd = dup(resolver->fd);
    int failed = l->wake_fd < 0 ? errno : thread_start(l);
    if (failed != 0) {
        if (l->wake_fd >= 0)
            close(l->wake_fd);
        free(l);
        return error_set(error, ST_NO_RESOURCE, "%s: no look-up: %s", entry->address.host,
                         strerror(failed));
    }
    entry->running = l;
    resolver->running_count++;
    return ST_OK;
}

/* Takes the answer of a look-up that has ended. */
static void entry_update(struct resolver *resolver, struct entry *entry)
{
    struct look_up *l = entry->running;
    if (l == NULL || !atomic_load(&l->ended))
        return;
    entry->status = l->status;
    entry->error = l->error;
    entry->ended_us = clock_now_us(&clock_system);
    if (l->status == ST_OK)
        entry->good = l->found;
    entry->running = NULL;
    resolver->running_count--;
    look_up_release(l);
}

/* If there are too many entries, removes the one that was not used for the longest time. Entries
 * with a look-up stay. */
static void entries_limit(struct resolver *resolver)
{
    struct entry **oldest = NULL;
    if (resolver->entry_count < ENTRIES_MAX)
        return;
    for (struct entry **at = &resolver->entries; *at != NULL; at = &(*at)->next)
        if ((*at)->running == NULL)
            oldest = at;
    if (oldest == NULL)
        return;
    struct entry *entry = *oldest;
    *oldest = entry->next;
    resolver->entry_count--;
    free(entry);
}

/* Takes the entry of the address out of the list. Returns NULL if there is none. */
static struct entry *entry_unlink(struct resolver *resolver, const struct address *address)
{
    for (struct entry **at = &resolver->entries; *at != NULL; at = &(*at)->next) {
        struct entry *entry = *at;
        if (strcmp(entry->address.host, address->host) != 0 ||
            strcmp(entry->address.port, address->port) != 0)
            continue;
        *at = entry->next;
        return entry;
    }
    return NULL;
}

/* Returns the entry of the address, which is now the first one. Returns NULL if memory is short. */
static struct entry *entry_of(struct resolver *resolver, const struct address *address)
{
    struct entry *entry = entry_unlink(resolver, address);
    if (entry == NULL) {
        entries_limit(resolver);
        entry = calloc(1, sizeof(*entry));
        if (entry == NULL)
            return NULL;
        entry->address = *address;
        resolver->entry_count++;
    }
    entry->next = resolver->entries;
    resolver->entries = entry;
    return entry;
}

enum status resolver_open(resolver_look_up *look_up, struct resolver **out, struct error *error)
{
    struct resolver *resolver = calloc(1, sizeof(*resolver));
    if (resolver == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    resolver->function = look_up;
    resolver->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (resolver->fd < 0) {
        free(resolver);
        return error_set(error, ST_IO, "eventfd: %s", strerror(errno));
    }
    *out = resolver;
    return ST_OK;
}

void resolver_close(struct resolver *resolver)
{
    if (resolver == NULL)
        return;
    while (resolver->entries != NULL) {
        struct entry *entry = resolver->entries;
        resolver->entries = entry->next;
        if (entry->running != NULL)
            look_up_release(entry->running);
        free(entry);
    }
    close(resolver->fd);
    free(resolver);
}

int resolver_fd(const struct resolver *resolver)
{
    return resolver->fd;
}

enum status resolver_find(struct resolver *resolver, const struct address *address, bool accept_old,
                          struct address_found *out, struct error *error)
{
    eventfd_t ignored;
    (void)eventfd_read(resolver->fd, &ignored);
    if (address_numeric(address, false, out))
        return ST_OK;
    struct entry *entry = entry_of(resolver, address);
    if (entry == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    for (struct entry *e = resolver->entries; e != NULL; e = e->next)
        entry_update(resolver, e);
    enum status status = ST_IN_PROGRESS;
    bool fresh = entry->ended_us > 0 && clock_now_us(&clock_system) < entry->ended_us + FRESH_US;
    if (fresh) {
        status = entry->status;
        *error = entry->error;
    } else if (entry->running == NULL) {
        status = look_up_start(resolver, entry, error);
        status = status == ST_OK ? ST_IN_PROGRESS : status;
    }
    if (status == ST_IN_PROGRESS && !accept_old)
        return status;
    if (entry->good.count == 0)
        return status;
    *out = entry->good;
    return ST_OK;
}
