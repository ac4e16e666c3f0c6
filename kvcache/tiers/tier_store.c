/* tier_store: see the header. */
#include "kvcache/tiers/tier_store.h"

#include "common/clock.h"
#include "common/random.h"
#include "kvcache/tiers/store_session.h"

#include <stdio.h>
#include <stdlib.h>

#define KEY_PREFIX     "cleave:"
#define KEY_BYTES      (sizeof(KEY_PREFIX) - 1 + DIGEST_TEXT_BYTES)
#define COUNT_BATCH    256 /* Names that `stored_count` asks for at once. */
#define PAUSE_FIRST_US 1000000
#define PAUSE_MAX_US   64000000
/* A caller's deadline can be too short for any server. So a server is skipped only after this
 * number of calls in a row that ended because of the caller's deadline. */
#define CUT_CALLS_MAX 3

/* A time from which something that failed is tried again. */
struct pause {
    int64_t until_us;
    int64_t length_us; /* 0 = the last try was good. */
};

struct server {
    char text[LIMIT_ADDRESS_BYTES]; /* HOST:PORT. */
    struct address address;
    uint64_t hash;                 /* Of `text`, for the scores. */
    struct store_session *session; /* NULL = none. */
    struct pause reads;            /* The server is skipped. */
    struct pause writes;           /* The server is only read. */
    struct error refused;          /* Why it is only read. */
    uint32_t cut_calls;            /* Calls in a row that the caller's deadline has ended. */
};

struct tier_store {
    struct tier_backend backend;
    struct server servers[CONFIG_STORE_SERVERS_MAX];
    uint32_t server_count;
    struct resolver *resolver;
    struct store_tls *tls; /* NULL = no TLS. */
    size_t record_bytes;
    char user[LIMIT_USER_BYTES];
    char password_file[LIMIT_PATH_BYTES];
    char expire_s[12]; /* Decimal; "" = never. */
    int64_t call_us;
    struct error failure; /* The last failure of a server. */
    /* Of the call of the backend that runs: */
    int64_t deadline_us;
    bool caller_limits; /* deadline_us is the caller's, because call_us would be later. */
};

/* A key of the servers, as a word of a command. */
struct key {
    char text[KEY_BYTES];
};

static struct store_word word_of(const char *text)
{
    return (struct store_word){text, strlen(text)};
}

static struct store_word key_word(const struct digest *name, struct key *key)
{
    memcpy(key->text, KEY_PREFIX, sizeof(KEY_PREFIX));
    digest_write(name, key->text + sizeof(KEY_PREFIX) - 1, DIGEST_TEXT_BYTES);
    return word_of(key->text);
}

static int64_t now_us(void)
{
    return clock_now_us(&clock_system);
}

/* Begins a call of the backend, which ends at the caller's deadline or after call_us. */
static struct tier_store *call_begin(struct tier_backend *backend, int64_t deadline_us)
{
    struct tier_store *store = (struct tier_store *)backend;
    int64_t own_us = now_us() + store->call_us;
    store->caller_limits = deadline_us < own_us;
    store->deadline_us = store->caller_limits ? deadline_us : own_us;
    return store;
}

/* ---- servers ---- */

static void pause_longer(struct pause *pause)
{
    int64_t next_us = pause->length_us == 0 ? PAUSE_FIRST_US : 2 * pause->length_us;
    pause->length_us = next_us < PAUSE_MAX_US ? next_us : PAUSE_MAX_US;
    pause->until_us = now_us() + pause->length_us;
}

static bool is_paused(const struct pause *pause)
{
    return pause->length_us > 0 && now_us() < pause->until_us;
}

/* Returns the server that a name belongs to now; NULL = all servers are skipped. */
static struct server *server_of(struct tier_store *store, const struct digest *name)
{
    struct server *best = NULL;
    uint64_t best_score = 0, number;
    memcpy(&number, name->bytes, sizeof(number));
    for (uint32_t i = 0; i < store->server_count; i++) {
        struct server *server = &store->servers[i];
        uint64_t score = random_mix(server->hash ^ number);
        if (is_paused(&server->reads) || (best != NULL && score <= best_score))
            continue;
        best = server;
        best_score = score;
    }
    return best;
}

static void session_end(struct server *server)
{
    store_session_close(server->session);
    server->session = NULL;
}

static enum status session_begin(struct tier_store *store, struct server *server,
                                 struct error *error)
{
    char *password = NULL;
    if (store->password_file[0] != 0) {
        enum status status = secret_password_read(store->password_file, &password, error);
        if (status != ST_OK)
            return status;
    }
    const struct store_session_options options = {
        .connection = {.address = &server->address,
                       .resolver = store->resolver,
                       .tls = store->tls,
                       .deadline_us = store->deadline_us},
        .user = store->user,
        .password = password != NULL ? password : "",
    };
    enum status status = store_session_open(&options, &server->session, error);
    secret_password_free(password);
    return status;
}

/* Connects if there is no usable connection. A server closes connections that are idle for long;
 * that is no failure. Returns ST_TIMED_OUT or ST_UNREACHABLE. */
static enum status session_need(struct tier_store *store, struct server *server,
                                struct error *error)
{
    if (server->session != NULL && !store_session_is_usable(server->session))
        session_end(server);
    if (server->session != NULL)
        return ST_OK;
    enum status status = session_begin(store, server, error);
    return status == ST_OK || status == ST_TIMED_OUT ? status : ST_UNREACHABLE;
}

static void server_works(struct server *server)
{
    server->reads.length_us = 0;
    server->cut_calls = 0;
}

/* Skips a server for a while. Returns what the caller of the backend gets, or ST_IN_PROGRESS: the
 * failure is known already and another server is left, so try again. */
static enum status server_failed(struct tier_store *store, struct server *server,
                                 enum status status, struct error *error)
{
    bool known = server->reads.length_us > 0;
    session_end(server);
    error_prefix(error, "store %s", server->text);
    if (status == ST_TIMED_OUT && store->caller_limits && ++server->cut_calls < CUT_CALLS_MAX)
        return ST_NOT_FOUND; /* In the time that there was. */
    pause_longer(&server->reads);
    store->failure = *error;
    for (uint32_t i = 0; known && i < store->server_count && now_us() < store->deadline_us; i++)
        if (!is_paused(&store->servers[i].reads))
            return ST_IN_PROGRESS;
    return ST_UNREACHABLE;
}

static enum status all_skipped(const struct tier_store *store, struct error *error)
{
    *error = store->failure;
    return ST_UNREACHABLE;
}

#define KIND(name) (1u << STORE_REPLY_##name)

struct command {
    const struct store_word *words;
    int count;
    void *value;    /* Room for a record, for a reply that is a value; or NULL. */
    unsigned kinds; /* KIND of each kind of reply that is expected. */
};

static enum status reply_check(const struct command *command, const struct store_reply *reply,
                               struct error *error)
{
    if ((command->kinds & 1u << reply->kind) != 0)
        return ST_OK;
    if (reply->kind == STORE_REPLY_ERROR)
        return error_set(error, ST_UNREACHABLE, "%s", reply->text);
    return error_set(error, ST_UNREACHABLE, "the answer is of an unexpected kind");
}

static enum status reply_receive(struct tier_store *store, struct server *server,
                                 const struct command *command, struct store_reply *out,
                                 struct error *error)
{
    enum status status = store_session_receive(server->session, command->value,
                                               command->value != NULL ? store->record_bytes : 0,
                                               store->deadline_us, out, error);
    if (status == ST_OK)
        status = reply_check(command, out, error);
    return status == ST_OK || status == ST_TIMED_OUT ? status : ST_UNREACHABLE;
}

/* Carries out a command on a server. Returns ST_OK, ST_TIMED_OUT or ST_UNREACHABLE. */
static enum status ask(struct tier_store *store, struct server *server,
                       const struct command *command, struct store_reply *out, struct error *error)
{
    enum status status = session_need(store, server, error);
    if (status == ST_OK)
        status = store_session_send(server->session, command->words, command->count,
                                    store->deadline_us, error);
    if (status == ST_OK)
        status = reply_receive(store, server, command, out, error);
    if (status == ST_OK)
        server_works(server);
    return status;
}

/* Carries out a command on the server that the name belongs to, which is *server_out. */
static enum status ask_about(struct tier_store *store, const struct digest *name,
                             const struct command *command, struct server **server_out,
                             struct store_reply *out, struct error *error)
{
    enum status status = ST_IN_PROGRESS;
    while (status == ST_IN_PROGRESS) {
        struct server *server = server_of(store, name);
        if (server == NULL)
            return all_skipped(store, error);
        *server_out = server;
        status = ask(store, server, command, out, error);
        if (status != ST_OK)
            status = server_failed(store, server, status, error);
    }
    return status;
}

/* ---- the functions of the backend ---- */

/* One server that works is enough. The remark names the last server that failed. */
static enum status store_open(struct tier_backend *backend, const struct digest *identity,
                              size_t record_bytes, int64_t deadline_us, struct error *error)
{
    const struct store_word words[] = {word_of("PING")};
    const struct command command = {words, 1, NULL, KIND(STATUS)};
    struct tier_store *store = call_begin(backend, deadline_us);
    struct store_reply reply;
    struct error failure = {0};
    uint32_t failed = 0;
    (void)identity; /* Names depend on it. */
    store->record_bytes = record_bytes;
    for (uint32_t i = 0; i < store->server_count; i++) {
        struct server *server = &store->servers[i];
        if (is_paused(&server->reads)) {
            all_skipped(store, &failure);
            failed++;
            continue;
        }
        struct error why = {0};
        call_begin(backend, deadline_us);
        enum status status = ask(store, server, &command, &reply, &why);
        if (status == ST_OK)
            continue;
        server_failed(store, server, status, &why);
        failure = why;
        failed++;
    }
    *error = failure;
    if (failed == store->server_count)
        return ST_UNREACHABLE;
    if (failed > 0)
        error_prefix(error, "without %u of %u servers", failed, store->server_count);
    return ST_OK;
}

/* The names of one batch of `stored_count`, and the servers that they belong to. */
struct batch {
    const struct digest *names;
    uint32_t count;
    struct server *servers[COUNT_BATCH];
    bool present[COUNT_BATCH];
};

/* A record that is looked for is kept: its time to expire begins again, and a server that evicts
 * records counts it as used. (EXISTS would not count as a use.) */
static enum status batch_send(struct tier_store *store, struct batch *batch, struct server *server,
                              struct error *error)
{
    const bool expires = store->expire_s[0] != 0;
    enum status status = session_need(store, server, error);
    struct key key;
    for (uint32_t i = 0; i < batch->count && status == ST_OK; i++) {
        if (batch->servers[i] != server)
            continue;
        const struct store_word words[] = {word_of(expires ? "EXPIRE" : "TOUCH"),
                                           key_word(&batch->names[i], &key),
                                           word_of(store->expire_s)};
        status =
            store_session_send(server->session, words, expires ? 3 : 2, store->deadline_us, error);
    }
    return status == ST_OK ? store_session_flush(server->session, store->deadline_us, error)
                           : status;
}

static enum status batch_receive(struct tier_store *store, struct batch *batch,
                                 struct server *server, struct error *error)
{
    const struct command command = {.kinds = KIND(INTEGER)};
    enum status status = ST_OK;
    for (uint32_t i = 0; i < batch->count && status == ST_OK; i++) {
        struct store_reply reply;
        if (batch->servers[i] != server)
            continue;
        status = reply_receive(store, server, &command, &reply, error);
        batch->present[i] = status == ST_OK && reply.integer == 1;
    }
    return status;
}

static bool batch_needs(const struct batch *batch, const struct server *server)
{
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->servers[i] == server)
            return true;
    return false;
}

/* Asks all servers of the batch at the same time. The names of a server that fails count as
 * absent. Returns the first failure that the caller must learn. */
static enum status batch_run(struct tier_store *store, struct batch *batch, struct error *error)
{
    enum status sent[CONFIG_STORE_SERVERS_MAX], result = ST_OK;
    struct error why[CONFIG_STORE_SERVERS_MAX];
    memset(batch->present, 0, sizeof(batch->present));
    for (uint32_t i = 0; i < store->server_count; i++)
        if (batch_needs(batch, &store->servers[i]))
            sent[i] = batch_send(store, batch, &store->servers[i], &why[i]);
    for (uint32_t i = 0; i < store->server_count; i++) {
        struct server *server = &store->servers[i];
        if (!batch_needs(batch, server))
            continue;
        if (sent[i] == ST_OK)
            sent[i] = batch_receive(store, batch, server, &why[i]);
        if (sent[i] == ST_OK) {
            server_works(server);
            continue;
        }
        enum status status = server_failed(store, server, sent[i], &why[i]);
        if (result == ST_OK && status != ST_IN_PROGRESS) {
            result = status;
            *error = why[i];
        }
    }
    return result;
}

static enum status store_stored_count(struct tier_backend *backend, const struct digest *names,
                                      uint32_t count, int64_t deadline_us, uint32_t *count_out,
                                      struct error *error)
{
    struct tier_store *store = call_begin(backend, deadline_us);
    struct batch batch;
    uint32_t found = 0, present;
    do {
        batch.names = names + found;
        batch.count = count - found < COUNT_BATCH ? count - found : COUNT_BATCH;
        for (uint32_t i = 0; i < batch.count; i++) {
            batch.servers[i] = server_of(store, &batch.names[i]);
            if (batch.servers[i] == NULL)
                return all_skipped(store, error);
        }
        enum status status = batch_run(store, &batch, error);
        if (status != ST_OK)
            return status;
        for (present = 0; present < batch.count && batch.present[present];)
            present++;
        found += present;
    } while (present == batch.count && found < count);
    *count_out = found;
    return ST_OK;
}

static enum status store_get(struct tier_backend *backend, const struct digest *name,
                             void *record_out, int64_t deadline_us, struct error *error)
{
    struct tier_store *store = call_begin(backend, deadline_us);
    struct server *server;
    struct store_reply reply;
    struct key key;
    const struct store_word words[] = {word_of("GET"), key_word(name, &key)};
    const struct command command = {words, 2, record_out, KIND(VALUE) | KIND(NIL)};
    enum status status = ask_about(store, name, &command, &server, &reply, error);
    if (status != ST_OK)
        return status;
    if (reply.kind == STORE_REPLY_NIL)
        return error_set(error, ST_NOT_FOUND, "store %s: no record", server->text);
    if (reply.bytes != store->record_bytes)
        return error_set(error, ST_INVALID, "store %s: a record has %zu bytes instead of %zu",
                         server->text, reply.bytes, store->record_bytes);
    return ST_OK;
}

static enum status store_put(struct tier_backend *backend, const struct digest *name,
                             const void *record, int64_t deadline_us, struct error *error)
{
    struct tier_store *store = call_begin(backend, deadline_us);
    struct server *server = server_of(store, name);
    struct store_reply reply;
    struct key key;
    const struct store_word words[] = {
        word_of("SET"), key_word(name, &key), {record, store->record_bytes},
        word_of("NX"),  word_of("EX"),        word_of(store->expire_s)};
    const struct command command = {words, store->expire_s[0] != 0 ? 6 : 4, NULL,
                                    KIND(STATUS) | KIND(NIL) | KIND(ERROR)};
    if (server != NULL && is_paused(&server->writes)) {
        *error = server->refused;
        return ST_NO_RESOURCE;
    }
    enum status status = ask_about(store, name, &command, &server, &reply, error);
    if (status == ST_NOT_FOUND) /* Not stored in the time that there was. */
        return ST_NO_RESOURCE;
    if (status != ST_OK)
        return status;
    if (reply.kind != STORE_REPLY_ERROR) { /* NIL: there is a record with this name. */
        server->writes.length_us = 0;
        return ST_OK;
    }
    pause_longer(&server->writes);
    error_set(&server->refused, ST_NO_RESOURCE, "store %s stores nothing: %s", server->text,
              reply.text);
    *error = server->refused;
    return ST_NO_RESOURCE;
}

static enum status store_drop(struct tier_backend *backend, const struct digest *name,
                              int64_t deadline_us, struct error *error)
{
    struct tier_store *store = call_begin(backend, deadline_us);
    struct server *server;
    struct store_reply reply;
    struct key key;
    const struct store_word words[] = {word_of("DEL"), key_word(name, &key)};
    const struct command command = {words, 2, NULL, KIND(INTEGER)};
    return ask_about(store, name, &command, &server, &reply, error);
}

static void store_close(struct tier_backend *backend)
{
    struct tier_store *store = (struct tier_store *)backend;
    for (uint32_t i = 0; i < store->server_count; i++)
        session_end(&store->servers[i]);
    resolver_close(store->resolver);
    store_tls_close(store->tls);
    free(store);
}

static const struct tier_backend_ops store_ops = {
    .kind = TIER_KIND_STORE,
    .open = store_open,
    .stored_count = store_stored_count,
    .get = store_get,
    .put = store_put,
    .drop = store_drop,
    .close = store_close,
};

/* ---- options ---- */

static enum status servers_parse(struct tier_store *store, const char *text, struct error *error)
{
    const char *at = text;
    char address[LIMIT_ADDRESS_BYTES];
    while (config_address_next(&at, address)) {
        struct server *server = &store->servers[store->server_count];
        struct digest digest;
        if (store->server_count == CONFIG_STORE_SERVERS_MAX)
            return error_set(error, ST_INVALID, "\"%.200s\": want up to %d addresses HOST:PORT",
                             text, CONFIG_STORE_SERVERS_MAX);
        enum status status = address_parse(address, &server->address, error);
        if (status != ST_OK)
            return status;
        memcpy(server->text, address, sizeof(server->text));
        secret_hash(address, strlen(address), digest.bytes);
        memcpy(&server->hash, digest.bytes, sizeof(server->hash));
        store->server_count++;
    }
    return store->server_count > 0 ? ST_OK
                                   : error_set(error, ST_INVALID, "want an address HOST:PORT");
}

/* Stores the path of a file of the config; "" = none. */
static enum status path_take(const struct config *config, const char *file,
                             char out[LIMIT_PATH_BYTES], struct error *error)
{
    out[0] = 0;
    return file[0] != 0 ? config_file_path(config, file, out, error) : ST_OK;
}

static enum status password_check(const char *path, struct error *error)
{
    char *password;
    if (path[0] == 0)
        return ST_OK;
    enum status status = secret_password_read(path, &password, error);
    if (status != ST_OK)
        return status;
    secret_password_free(password);
    return ST_OK;
}

enum status tier_store_make(const struct config *config, const char *servers,
                            struct tier_backend **out, struct error *error)
{
    char ca_file[LIMIT_PATH_BYTES];
    struct tier_store *store = calloc(1, sizeof(*store));
    if (store == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    store->backend.ops = &store_ops;
    store->call_us = (int64_t)config->kv.tiers.store.deadline_ms * 1000;
    memcpy(store->user, config->kv.tiers.store.user, sizeof(store->user));
    if (config->kv.tiers.store.expire_s > 0)
        snprintf(store->expire_s, sizeof(store->expire_s), "%u", config->kv.tiers.store.expire_s);
    enum status status = servers_parse(store, servers, error);
    if (status == ST_OK)
        status =
            path_take(config, config->kv.tiers.store.password_file, store->password_file, error);
    if (status == ST_OK)
        status = path_take(config, config->kv.tiers.store.ca_file, ca_file, error);
    if (status == ST_OK)
        status = password_check(store->password_file, error);
    if (status == ST_OK)
        status = resolver_open(address_resolve, &store->resolver, error);
    if (status == ST_OK && config->kv.tiers.store.tls)
        status = store_tls_open(ca_file, &store->tls, error);
    if (status != ST_OK) {
        store_close(&store->backend);
        return status;
    }
    *out = &store->backend;
    return ST_OK;
}
