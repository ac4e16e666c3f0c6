/* store_session: see the header. The reader of hiredis calls the functions `on_…` below, which
 * write the reply into the session, so that no reply is allocated. Nested replies have no function:
 * the reader then returns a pointer that is not the session's reply. */
#include "kvcache/tiers/store_session.h"

#include "common/clock.h"
#include "common/secret.h"

#include <assert.h>
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#define RECEIVE_BYTES (64u << 10)
/* Bytes of the replies besides values: heads, and replies to commands that were sent ahead. */
#define HEADS_BYTES   (64u << 10)
#define PENDING_BYTES (16u << 10)

struct store_session {
    struct store_connection *connection;
    redisReader *reader;
    struct store_reply reply; /* The reply that is being parsed. */
    void *value;
    size_t capacity;
    /* Commands that are not sent yet. A password in it is overwritten after it has been sent. */
    size_t pending_bytes;
    char pending[PENDING_BYTES];
    char received[RECEIVE_BYTES];
};

static struct store_reply *reply_set(const redisReadTask *task, enum store_reply_kind kind)
{
    struct store_session *session = task->privdata;
    session->reply.kind = kind;
    return &session->reply;
}

static void *on_text(const redisReadTask *task, char *text, size_t bytes)
{
    struct store_session *session = task->privdata;
    struct store_reply *reply = &session->reply;
    reply->bytes = bytes;
    if (task->type == REDIS_REPLY_STRING) {
        if (bytes > 0 && bytes <= session->capacity)
            memcpy(session->value, text, bytes);
        return reply_set(task, STORE_REPLY_VALUE);
    }
    size_t kept = bytes < sizeof(reply->text) ? bytes : sizeof(reply->text) - 1;
    for (size_t i = 0; i < kept; i++)
        reply->text[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
    reply->text[kept] = 0;
    return reply_set(task,
                     task->type == REDIS_REPLY_ERROR ? STORE_REPLY_ERROR : STORE_REPLY_STATUS);
}

static void *on_integer(const redisReadTask *task, long long value)
{
    struct store_session *session = task->privdata;
    session->reply.integer = value;
    return reply_set(task, STORE_REPLY_INTEGER);
}

static void *on_nil(const redisReadTask *task)
{
    return reply_set(task, STORE_REPLY_NIL);
}

static redisReplyObjectFunctions functions = {
    .createString = on_text,
    .createInteger = on_integer,
    .createNil = on_nil,
};

static enum status log_in(struct store_session *session,
                          const struct store_session_options *options, struct error *error)
{
    struct store_word words[3] = {{"AUTH", 4}};
    struct store_reply reply;
    int count = 1;
    if (options->password[0] == 0)
        return ST_OK;
    if (options->user[0] != 0)
        words[count++] = (struct store_word){options->user, strlen(options->user)};
    words[count++] = (struct store_word){options->password, strlen(options->password)};
    int64_t deadline_us = options->connection.deadline_us;
    enum status status = store_session_send(session, words, count, deadline_us, error);
    if (status == ST_OK)
        status = store_session_receive(session, NULL, 0, deadline_us, &reply, error);
    secret_wipe(session->pending, sizeof(session->pending));
    if (status != ST_OK || reply.kind == STORE_REPLY_STATUS)
        return status;
    /* Only the first word is shown: the text of an unknown command's error repeats the password. */
    return error_set(error, ST_INVALID, "the server refuses user or password (%.*s)",
                     reply.kind == STORE_REPLY_ERROR ? (int)strcspn(reply.text, " ") : 0,
                     reply.text);
}

enum status store_session_open(const struct store_session_options *options,
                               struct store_session **out, struct error *error)
{
    struct store_session *session = calloc(1, sizeof(*session));
    if (session == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    enum status status = ST_OK;
    session->reader = redisReaderCreateWithFunctions(&functions);
    if (session->reader == NULL) {
        status = error_set(error, ST_NO_MEMORY, "out of memory");
    } else {
        session->reader->privdata = session;
        session->reader->maxbuf = 0; /* The buffer keeps its size between values. */
        status = store_connection_open(&options->connection, &session->connection, error);
    }
    if (status == ST_OK)
        status = log_in(session, options, error);
    if (status != ST_OK) {
        store_session_close(session);
        return status;
    }
    *out = session;
    return ST_OK;
}

void store_session_close(struct store_session *session)
{
    if (session == NULL)
        return;
    store_connection_close(session->connection);
    if (session->reader != NULL)
        redisReaderFree(session->reader);
    free(session);
}

enum status store_session_flush(struct store_session *session, int64_t deadline_us,
                                struct error *error)
{
    size_t bytes = session->pending_bytes;
    session->pending_bytes = 0;
    return store_connection_send(session->connection, session->pending, bytes, deadline_us, error);
}

/* Sends the command now or later. */
static enum status command_add(struct store_session *session, const char *command, size_t bytes,
                               int64_t deadline_us, struct error *error)
{
    enum status status = ST_OK;
    if (bytes > sizeof(session->pending) - session->pending_bytes)
        status = store_session_flush(session, deadline_us, error);
    if (status == ST_OK && bytes > sizeof(session->pending))
        return store_connection_send(session->connection, command, bytes, deadline_us, error);
    if (status != ST_OK)
        return status;
    memcpy(session->pending + session->pending_bytes, command, bytes);
    session->pending_bytes += bytes;
    return ST_OK;
}

enum status store_session_send(struct store_session *session, const struct store_word *words,
                               int word_count, int64_t deadline_us, struct error *error)
{
    const char *data[STORE_COMMAND_WORDS];
    size_t bytes[STORE_COMMAND_WORDS];
    char *command = NULL;
    assert(word_count > 0 && word_count <= STORE_COMMAND_WORDS);
    for (int i = 0; i < word_count; i++) {
        data[i] = words[i].data;
        bytes[i] = words[i].bytes;
    }
    const long long length = redisFormatCommandArgv(&command, word_count, data, bytes);
    if (length < 0)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    enum status status = command_add(session, command, (size_t)length, deadline_us, error);
    if ((size_t)length <= sizeof(session->pending))
        secret_wipe(command, (size_t)length);
    redisFreeCommand(command);
    return status;
}

/* Returns ST_IN_PROGRESS if the received bytes are not a whole reply yet. */
static enum status reply_take(struct store_session *session, struct error *error)
{
    void *reply = NULL;
    const redisReader *reader = session->reader;
    if (redisReaderGetReply(session->reader, &reply) != REDIS_OK)
        return error_set(error, ST_MISMATCH, "the answer is not RESP");
    if (reply == &session->reply)
        return ST_OK;
    if (reply != NULL)
        return error_set(error, ST_MISMATCH, "the answer is of an unexpected kind");
    if (reader->len - reader->pos > session->capacity + HEADS_BYTES)
        return error_set(error, ST_MISMATCH, "the answer is larger than a block");
    return ST_IN_PROGRESS;
}

enum status store_session_receive(struct store_session *session, void *value, size_t capacity,
                                  int64_t deadline_us, struct store_reply *out, struct error *error)
{
    enum status status = store_session_flush(session, deadline_us, error);
    if (status != ST_OK)
        return status;
    memset(&session->reply, 0, sizeof(session->reply));
    session->value = value;
    session->capacity = capacity;
    while ((status = reply_take(session, error)) == ST_IN_PROGRESS) {
        size_t bytes;
        status = store_connection_receive(session->connection, session->received,
                                          sizeof(session->received), deadline_us, &bytes, error);
        if (status != ST_OK)
            return status;
        if (redisReaderFeed(session->reader, session->received, bytes) != REDIS_OK)
            return error_set(error, ST_NO_MEMORY, "out of memory");
        /* A slow server may send a few bytes again and again. */
        if (clock_now_us(&clock_system) >= deadline_us)
            return error_set(error, ST_TIMED_OUT, "no whole answer within the time limit");
    }
    if (status != ST_OK)
        return status;
    *out = session->reply;
    return ST_OK;
}

bool store_session_is_usable(const struct store_session *session)
{
    return session->reader->len == session->reader->pos &&
           !store_connection_has_input(session->connection);
}
