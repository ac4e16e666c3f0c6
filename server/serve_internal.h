/* serve_internal: what the files of `cleave serve` share: serve.c starts everything and runs the
 * loop, serve_files.c reads the files that the config names, serve_stop.c ends it all in good
 * order. */
#ifndef SERVER_SERVE_INTERNAL_H
#define SERVER_SERVE_INTERNAL_H

#include "common/clock.h"
#include "model/chat.h"
#include "model/gguf.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "server/api_keys.h"
#include "server/gateway.h"
#include "server/http.h"
#include "server/launcher.h"
#include "server/metrics.h"
#include "server/serve.h"
#include "transport/transport.h"

struct serve {
    struct serve_options options;
    struct config *config;
    int64_t started_us;
    char model_name[64];
    char bound[LIMIT_ADDRESS_BYTES];
    bool tls;
    bool has_cluster_key;
    uint8_t cluster_key[TRANSPORT_KEY_BYTES];
    int listen_fd;
    int signals;
    int epoll;
    struct gguf *gguf;
    struct model_hyper hyper;
    struct tokenizer *tokenizer;
    struct chat_template *chat;
    struct api_keys *keys;
    struct metrics *metrics;
    struct launcher *launcher;
    struct gateway *gateway;
    struct http *http;
    int64_t servable_us; /* since when both phases can be served; -1: not yet */
    bool announced;
    int64_t drain_us; /* until when requests may finish; -1: not draining */
    int64_t stop_us;  /* when the machines are killed; -1: not stopping */
    bool failed;      /* the exit status */
};

static inline int64_t serve_now_us(void)
{
    return clock_now_us(&clock_system);
}

/* --- serve_files.c --- */

enum status serve_keys_read(struct serve *s, struct error *error);
enum status serve_certificate_read(struct serve *s, struct error *error);
/* Machines that are all our own prove a key that nobody else can know; others have it from a file.
 */
enum status serve_cluster_key_find(struct serve *s, struct error *error);

/* --- serve_stop.c --- */

/* SIGTERM and SIGINT: the first lets requests finish, the second does not, the third kills. */
void serve_signals_turn(struct serve *s);
/* True when everything has ended. */
bool serve_stop_turn(struct serve *s, int *timeout_ms);

#endif
