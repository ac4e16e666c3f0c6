/* mapping: see the header. The signal handler reads the table of mappings without a lock: `end` is
 * written last and cleared first. */
#include "model/file/mapping.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENTRIES    4352 /* Files of a folder: 4,096 shards, and others. */
#define NAME_BYTES 128

static struct entry {
    _Atomic uintptr_t end; /* 0 = the entry is free. */
    uintptr_t begin;
    char name[NAME_BYTES];
} entries[ENTRIES];

static _Atomic size_t used; /* The entries below are or were in use. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const void *mapping_open(int fd, size_t bytes, const char *name)
{
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return NULL;
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < ENTRIES && entries[i].end != 0)
        i++;
    if (i < ENTRIES) { /* without an entry, a fault has no message */
        entries[i].begin = (uintptr_t)data;
        strncpy(entries[i].name, name, NAME_BYTES - 1);
        entries[i].end = (uintptr_t)data + bytes;
        if (i >= used)
            used = i + 1;
    }
    pthread_mutex_unlock(&lock);
    return data;
}

void mapping_close(const void *data, size_t bytes)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < used; i++)
        if (entries[i].end != 0 && entries[i].begin == (uintptr_t)data) {
            entries[i].end = 0;
            memset(entries[i].name, 0, NAME_BYTES);
        }
    pthread_mutex_unlock(&lock);
    munmap((void *)(uintptr_t)data, bytes);
}

static void say(const char *text)
{
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr;
    for (size_t i = 0; info->si_code > 0 && i < used; i++) {
        if (at >= entries[i].end || at < entries[i].begin)
            continue;
        say("cleave: the model file ");
        say(entries[i].name);
        say(" has become shorter while it is in use, or cannot be read: this process ends. Put the "
            "file back, and replace model files under new names only\n");
        _exit(1);
    }
    signal(number, SIG_DFL);
    raise(number);
}

void mapping_fault_handler_install(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
}
