/* store_session: commands to one server of the shared store in RESP, the protocol of Valkey and
 * Redis. hiredis formats commands and parses replies; store_connection.h moves the bytes.
 * Commands may be sent before the replies to earlier commands are received; replies arrive in
 * the order of the commands. After any result except ST_OK, a reply may be left half-received,
 * and the session can only be closed. Every call waits at most until its deadline, a time of
 * clock_system in microseconds. Only files of this folder and tests include it; the thread of
 * the store's tier makes every call. It knows no meaning of commands, except that of AUTH. */
#ifndef KVCACHE_TIERS_STORE_SESSION_H
#define KVCACHE_TIERS_STORE_SESSION_H

#include "kvcache/tiers/store_connection.h"

struct store_session;

struct store_session_options {
    struct store_connection_options connection;
    const char *user;     /* "" = the user `default`. */
    const char *password; /* "" = the server asks for no password. */
};

/* Connects and logs in. Sends no AUTH if the password is empty. Returns the errors of
 * store_connection_open and store_session_receive, and ST_INVALID if the server refuses user or
 * password. */
enum status store_session_open(const struct store_session_options *options,
                               struct store_session **out, struct error *error);
void store_session_close(struct store_session *session); /* NULL is fine. */

/* One word of a command. */
struct store_word {
    const void *data;
    size_t bytes;
};

/* Queues one command, which the next flush or receive sends. Commands that do not fit into the
 * session's buffer are sent at once. Requires 1 to STORE_COMMAND_WORDS words. Returns the errors of
 * store_connection_send, and ST_NO_MEMORY. */
#define STORE_COMMAND_WORDS 8
enum status store_session_send(struct store_session *session, const struct store_word *words,
                               int count, int64_t deadline_us, struct error *error);
/* Sends the commands that are not sent yet. Returns the errors of store_connection_send. */
enum status store_session_flush(struct store_session *session, int64_t deadline_us,
                                struct error *error);

enum store_reply_kind {
    STORE_REPLY_STATUS,  /* Such as OK, in `text`. */
    STORE_REPLY_ERROR,   /* The server refused the command, for the reason in `text`. */
    STORE_REPLY_INTEGER, /* In `integer`. */
    STORE_REPLY_NIL,     /* There is no value. */
    STORE_REPLY_VALUE,   /* `bytes` bytes. */
};

struct store_reply {
    enum store_reply_kind kind;
    int64_t integer;
    size_t bytes;   /* Size of the value, also if it did not fit. */
    char text[200]; /* Printable. */
};

/* Flushes, then receives one reply. A value is stored in `value`, unless it has more than
 * `capacity` bytes; then none of it is stored. Returns ST_TIMED_OUT, ST_UNREACHABLE or
 * ST_NO_MEMORY, and ST_MISMATCH if the bytes are not RESP, are a reply of a kind that no command of
 * cleave has, or are more than `capacity` and 64 KiB. */
enum status store_session_receive(struct store_session *session, void *value, size_t capacity,
                                  int64_t deadline_us, struct store_reply *out,
                                  struct error *error);

/* Returns false if the server has closed the connection or has sent bytes that no command asked
 * for. Call it while no reply is awaited. Does not wait. */
bool store_session_is_usable(const struct store_session *session);

#endif
