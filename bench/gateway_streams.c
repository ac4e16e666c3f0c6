/* gateway_streams: see the header. With `check`, a stream's bytes are parsed one by one: from
 * chunks to text, and from text to lines. */
#include "bench/gateway_streams.h"

#include "bench/gateway_machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINE_BYTES 4096
#define READ_BYTES 65536

enum part { PART_HEAD, PART_SIZE, PART_DATA, PART_DATA_END };

struct stream {
    int fd; /* -1 = closed. */
    bool begun;
    bool done; /* [DONE] has arrived. */
    enum part part;
    uint32_t newlines; /* Line ends in a row in the head. */
    uint64_t left;     /* Bytes left of the chunk. */
    uint32_t first;    /* First token of the prompt. */
    uint32_t next;     /* Index of the next token. */
    uint32_t line_bytes;
    char *line; /* [LINE_BYTES] with `check`, else NULL. */
};

struct gateway_streams {
    struct gateway_streams_options options;
    uint32_t begun;
    uint32_t ended;
    char failure[600];
    char data[READ_BYTES];
    struct stream streams[];
};

static void stream_end(struct gateway_streams *s, struct stream *stream, const char *why)
{
    if (stream->fd < 0)
        return;
    close(stream->fd);
    stream->fd = -1;
    s->ended++;
    if (why != NULL && s->failure[0] == 0)
        snprintf(s->failure, sizeof(s->failure), "stream %u at token %u: %s: %.400s",
                 (unsigned)(stream - s->streams), stream->next, why,
                 stream->line != NULL ? stream->line : "");
}

/* ---- opening ---- */

static enum status request_send(const struct gateway_streams *s, struct stream *stream,
                                struct error *error)
{
    const struct gateway_streams_options *options = &s->options;
    char *body = malloc(options->prompt_tokens * 8u + 512);
    char head[256];
    if (body == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    int bytes = sprintf(body, "{\"prompt\":[%u", stream->first);
    for (uint32_t i = 1; i < options->prompt_tokens; i++)
        bytes += sprintf(body + bytes, ",%u", 1000 + i % 1000);
    bytes += sprintf(body + bytes,
                     "],\"max_tokens\":%u,\"temperature\":0,\"ignore_eos\":true,\"stream\":true%s}",
                     options->answer_tokens, options->check ? ",\"return_token_ids\":true" : "");
    int head_bytes = snprintf(head, sizeof(head),
                              "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                              "Content-Type: application/json\r\nConnection: close\r\n"
                              "Content-Length: %d\r\n\r\n",
                              bytes);
    bool sent = write(stream->fd, head, (size_t)head_bytes) == head_bytes &&
                write(stream->fd, body, (size_t)bytes) == bytes;
    free(body);
    return sent ? ST_OK : error_set(error, ST_IO, "send: %s", strerror(errno));
}

static enum status stream_open(struct gateway_streams *s, uint32_t index, struct error *error)
{
    struct stream *stream = &s->streams[index];
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(s->options.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = index | GATEWAY_STREAMS_TAG};
    *stream = (struct stream){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                              .first = 1000 + index};
    if (s->options.check && (stream->line = calloc(1, LINE_BYTES)) == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    if (stream->fd < 0 || connect(stream->fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        epoll_ctl(s->options.epoll, EPOLL_CTL_ADD, stream->fd, &event) != 0)
        return error_set(error, ST_IO, "stream %u: %s", index, strerror(errno));
    return request_send(s, stream, error);
}

enum status gateway_streams_open(const struct gateway_streams_options *options,
                                 struct gateway_streams **out, struct error *error)
{
    struct gateway_streams *s = calloc(1, sizeof(*s) + options->count * sizeof(struct stream));
    if (s == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    s->options = *options;
    for (uint32_t i = 0; i < options->count; i++)
        s->streams[i].fd = -1;
    for (uint32_t i = 0; i < options->count; i++) {
        enum status status = stream_open(s, i, error);
        if (status != ST_OK) {
            gateway_streams_close(s);
            return status;
        }
    }
    *out = s;
    return ST_OK;
}

void gateway_streams_close(struct gateway_streams *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->options.count; i++) {
        stream_end(s, &s->streams[i], NULL);
        free(s->streams[i].line);
    }
    free(s);
}

/* ---- reading ---- */

/* Checks one event of an answer with token ids: data: {… "token_ids":[17,18] …} */
static void line_check(struct gateway_streams *s, struct stream *stream)
{
    const char *ids = strstr(stream->line, "\"token_ids\":[");
    if (strcmp(stream->line, "data: [DONE]") == 0) {
        stream->done = true;
        return;
    }
    if (strncmp(stream->line, "data: {\"error\":", 15) == 0)
        stream_end(s, stream, "an error event");
    for (const char *at = ids != NULL ? ids + 13 : ""; *at >= '0' && *at <= '9'; at++) {
        char *end;
        unsigned long id = strtoul(at, &end, 10);
        if (id != gateway_machine_token(stream->first, stream->next)) {
            stream_end(s, stream, "not the token that comes next");
            return;
        }
        stream->next++;
        at = end;
    }
}

static void text_take(struct gateway_streams *s, struct stream *stream, char byte)
{
    if (byte != '\n') {
        if (stream->line_bytes + 1 < LINE_BYTES)
            stream->line[stream->line_bytes++] = byte;
        return;
    }
    stream->line[stream->line_bytes] = 0;
    if (stream->line_bytes > 0)
        line_check(s, stream);
    stream->line_bytes = 0;
}

/* Parses one byte of an HTTP answer in chunks. */
static void byte_take(struct gateway_streams *s, struct stream *stream, char byte)
{
    switch (stream->part) {
    case PART_HEAD:
        if (byte != '\r')
            stream->newlines = byte == '\n' ? stream->newlines + 1 : 0;
        if (stream->newlines == 2)
            stream->part = PART_SIZE;
        break;
    case PART_SIZE:
        if (byte == '\n')
            stream->part = stream->left > 0 ? PART_DATA : PART_DATA_END;
        else if (byte != '\r')
            stream->left =
                stream->left * 16 + (uint64_t)(byte <= '9' ? byte - '0' : (byte | 32) - 'a' + 10);
        break;
    case PART_DATA:
        text_take(s, stream, byte);
        if (--stream->left == 0)
            stream->part = PART_DATA_END;
        break;
    case PART_DATA_END:
        if (byte == '\n')
            stream->part = PART_SIZE;
        break;
    }
}

static void data_take(struct gateway_streams *s, struct stream *stream, size_t bytes)
{
    static const char end[] = "data: [DONE]";
    if (!stream->begun && memmem(s->data, bytes, "data: ", 6) != NULL) {
        stream->begun = true;
        s->begun++;
    }
    if (memcmp(s->data, "HTTP/1.1 ", 9) == 0 && memcmp(s->data, "HTTP/1.1 200", 12) != 0)
        stream_end(s, stream, strndupa(s->data, bytes < 500 ? bytes : 500));
    for (size_t i = 0; s->options.check && i < bytes && stream->fd >= 0; i++)
        byte_take(s, stream, s->data[i]);
    if (!s->options.check) /* The server writes each event at once, so it is not cut. */
        stream->done |= memmem(s->data, bytes, end, sizeof(end) - 1) != NULL;
}

void gateway_streams_turn(struct gateway_streams *s, uint32_t index)
{
    struct stream *stream = &s->streams[index];
    if (stream->fd < 0)
        return;
    ssize_t got = read(stream->fd, s->data, sizeof(s->data));
    if (got > 0)
        data_take(s, stream, (size_t)got);
    else if (stream->done && (!s->options.check || stream->next == s->options.answer_tokens))
        stream_end(s, stream, NULL);
    else
        stream_end(s, stream, got == 0 ? "it ended early" : strerror(errno));
}

uint32_t gateway_streams_begun(const struct gateway_streams *s)
{
    return s->begun;
}

uint32_t gateway_streams_ended(const struct gateway_streams *s)
{
    return s->ended;
}

const char *gateway_streams_failure(const struct gateway_streams *s)
{
    return s->failure[0] != 0 ? s->failure : NULL;
}
