/* completion: one API request in flight: tokenises its prompts, submits a gateway request per
 * choice, turns tokens into text (detokenising, stop strings, log-probabilities), and builds the
 * SSE events or the one JSON body. It does not know HTTP: http.c asks what is ready and sends it.
 * The loop thread owns it. */
#ifndef SERVER_COMPLETION_H
#define SERVER_COMPLETION_H

#include "server/api_keys.h"
#include "server/api_request.h"
#include "server/gateway.h"
#include "server/served_model.h"
#include "server/text.h"

#include <stdbool.h>

/* What completions of one server share; outlives them. */
struct completion_server {
    struct gateway *gateway;
    struct served_model *model; /* of those that are opened from now on */
    struct api_keys *keys;
    uint64_t id_key;     /* random: request ids and seeds are drawn from it … */
    uint64_t id_counter; /* … and this */
};

struct completion;

/* Takes over `request` (and empties it) on success. key: whose it is (API_KEY_NONE: nobody's).
 * arrived_us: when its last byte was there.
 * False: *error has the HTTP error; nothing was submitted. `changed` is called (from gateway calls)
 * when there is something new to send or it has finished. */
bool completion_open(struct completion_server *server, struct api_request *request, uint32_t key,
                     int64_t arrived_us, void (*changed)(void *self), void *self,
                     struct completion **out, struct api_error *error);

/* Releases what is still running at the gateway (its client has gone) and frees it. NULL is fine.
 */
void completion_close(struct completion *c);

/* Releases choices that a stop string ended; call it once a turn of the loop after `changed`. */
void completion_turn(struct completion *c);

bool completion_is_stream(const struct completion *c);
/* True when the HTTP status is known: at the first token, the end, or an error. */
bool completion_begun(const struct completion *c);
/* The error that came before anything was sent, or NULL (status 200). */
const struct api_error *completion_error(const struct completion *c);
/* Nothing will be added to the output any more. */
bool completion_finished(const struct completion *c);
/* The output that was not taken yet; the reader takes bytes from its front by completion_taken. A
 * stream's events as they come; otherwise the body, there once it has finished. */
const char *completion_output(const struct completion *c, size_t *bytes_out);
void completion_taken(struct completion *c, size_t bytes);

#endif
