/* store_session: commands to one server of the shared store (tier_store.h) in RESP, the protocol of
 * Valkey and Redis. A session owns its connection (store_connection.h) and the commands that are
 * not sent yet; hiredis formats commands and parses replies. Commands may be sent before the
 * replies to earlier commands are received; replies arrive in the order of the commands. After any
 * result except ST_OK, the session can only be closed. A call with a deadline waits at most until
 * the deadline. A deadline is a time of clock_system in microseconds. tier_store.c calls the
 * functions, on one thread at a time (tier_backend.h). The session does not know the meaning of
 * commands, except AUTH. */
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

#define STORE_COMMAND_WORDS 8 /* Most words of a command. */

/* Queues one command, which is sent by the next flush or receive at the latest. Requires 1 to
 * STORE_COMMAND_WORDS words. Returns the errors of store_connection_send, and ST_NO_MEMORY. */
enum status store_session_send(struct store_session *session, const struct store_word *words,
                               int word_count, int64_t deadline_us, struct error *error);
/* Sends the commands that are not sent yet. Returns the errors of store_connection_send. */
enum status store_session_flush(struct store_session *session, int64_t deadline_us,
                                struct error *error);

enum store_reply_kind {
    STORE_REPLY_STATUS,  /* The command was carried out; `text` is "OK", for example. */
    STORE_REPLY_ERROR,   /* The server refused the command, for the reason in `text`. */
    STORE_REPLY_INTEGER, /* The reply is the number `integer`. */
    STORE_REPLY_NIL,     /* There is no value. */
    STORE_REPLY_VALUE,   /* The reply is a value of `bytes` bytes. */
};

struct store_reply {
    enum store_reply_kind kind;
    int64_t integer;
    size_t bytes;   /* Size of the value or text, also of a value or text that did not fit. */
    char text[200]; /* Has only printable characters; cut if it is too long. */
};

/* Flushes, then receives one reply. A value of at most `capacity` bytes is stored in `value`; a
 * larger value is not stored. Returns ST_TIMED_OUT, ST_UNREACHABLE or ST_NO_MEMORY. Returns
 * ST_MISMATCH if the received bytes are not RESP, if the reply has a kind that is not in
 * store_reply_kind, or if more than `capacity` + 64 KiB have arrived and the reply is still not
 * complete. */
enum status store_session_receive(struct store_session *session, void *value, size_t capacity,
                                  int64_t deadline_us, struct store_reply *out,
                                  struct error *error);

/* Returns false if the server has closed the connection or has sent bytes that no command asked
 * for; with TLS, only a hint (store_connection_has_input). Requires that no reply is awaited. Does
 * not wait. */
bool store_session_is_usable(const struct store_session *session);

#endif
