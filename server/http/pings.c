/* http_pings: comments in streams without events, so that proxies and clients do not close a
 * connection that waits for its first token. Streams are in the order of their last event, so each
 * call checks only the first stream. */
#include "server/http/internal.h"

static void link_last(struct http *h, struct exchange *x)
{
    x->older = h->newest_stream;
    x->newer = NULL;
    *(h->newest_stream != NULL ? &h->newest_stream->newer : &h->oldest_stream) = x;
    h->newest_stream = x;
    x->last_event_us = h->now_us;
}

static void unlink_stream(struct http *h, struct exchange *x)
{
    *(x->older != NULL ? &x->older->newer : &h->oldest_stream) = x->newer;
    *(x->newer != NULL ? &x->newer->older : &h->newest_stream) = x->older;
}

void http_stream_begin(struct exchange *x)
{
    x->streams = true;
    link_last(x->http, x);
}

void http_stream_wrote(struct exchange *x)
{
    if (!x->streams)
        return;
    unlink_stream(x->http, x);
    link_last(x->http, x);
}

void http_stream_end(struct exchange *x)
{
    if (x->streams)
        unlink_stream(x->http, x);
    x->streams = false;
}

int http_pings_write(struct http *h)
{
    const int64_t ping_us = h->options.config->http.ping_ms * 1000ll;
    const int64_t now_us = h->now_us;
    if (ping_us == 0)
        return -1;
    for (; h->oldest_stream != NULL && h->oldest_stream->last_event_us + ping_us <= now_us;) {
        struct exchange *x = h->oldest_stream;
        completion_ping_write(x->completion);
        http_stream_wrote(x);
    }
    if (h->oldest_stream == NULL)
        return -1;
    return (int)((h->oldest_stream->last_event_us + ping_us - now_us) / 1000) + 1;
}
