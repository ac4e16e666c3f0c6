/* fabric_link: writing into a peer's region. See fabric.h.
 *
 * Writes are puts if the peer's memory can be mapped (ucp_rkey_ptr succeeds), or its first lane is
 * reliable InfiniBand. Elsewhere UCX emulates puts by messages of its own: slower than ours, and
 * 1.13 aborts the receiving process when it cannot answer one (ucp_put_handler), so they are never
 * used. UCX before 1.14 has no call that names the transports of an endpoint; they are read from
 * ucp_ep_print_info, and a text that cannot be read means messages, which work everywhere. */
#include "transport/fabric_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A write by message is sent in pieces that fit one TCP segment of UCX (256 KiB), eagerly.
 * Rendezvous is hardly faster, but lands in the region without asking us: after its connection has
 * ended as well. */
#define MESSAGE_PIECE ((size_t)192 << 10)

struct link_flush {
    uint64_t cookie;
    bool done;
};

struct fabric_link {
    struct fabric *fabric;
    struct fabric_link *next;
    ucp_ep_h ep;
    ucp_rkey_h rkey;
    uint64_t remote_region;
    uint64_t token;
    bool put;
    char path[48];
    struct fabric_op *ops;
    uint32_t epoch_writes;      /* since the last flush */
    struct link_flush *flushes; /* ring: flush n is at n % capacity; n is its epoch as well */
    uint64_t first, count, capacity;
    ucs_status_t failure;
    void *close_request; /* of a closing link: NULL when UCX is done */
};

/* The transport of lane 0 in the output of ucp_ep_print_info, such as
 * "lane[0]:  3:sysv/memory.0 md[2] -> …". */
static void lane_name(ucp_ep_h ep, char *name, size_t capacity)
{
    char *text = NULL;
    size_t bytes = 0;
    snprintf(name, capacity, "ucx");
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL)
        return;
    ucp_ep_print_info(ep, stream);
    fclose(stream);
    const char *lane = text != NULL ? strstr(text, "lane[0]:") : NULL;
    if (lane != NULL) {
        const char *begin = strchr(lane + 8, ':');
        size_t length = begin != NULL ? strcspn(begin + 1, "/ \n") : 0;
        if (length > 0 && length < capacity && begin[1 + length] == '/')
            snprintf(name, capacity, "%.*s", (int)length, begin + 1);
    }
    free(text);
}

static void link_choose(struct fabric_link *link)
{
    char lane[24];
    void *mapped;
    lane_name(link->ep, lane, sizeof(lane));
    link->put = ucp_rkey_ptr(link->rkey, link->remote_region, &mapped) == UCS_OK ||
                strncmp(lane, "rc_", 3) == 0 || strncmp(lane, "dc_", 3) == 0;
    link->put = link->put && !link->fabric->messages_only;
    snprintf(link->path, sizeof(link->path), "ucx %s over %s", link->put ? "put" : "am", lane);
}

static void on_ep_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct fabric_link *link = arg;
    (void)ep;
    link->failure = status;
}

enum status fabric_link_open(struct fabric *fabric, const struct fabric_address *peer,
                             uint64_t token, struct fabric_link **out, struct error *error)
{
    struct fabric_link *link = calloc(1, sizeof(*link));
    if (link == NULL)
        return error_set(error, ST_NO_MEMORY, "ucx: out of memory");
    link->fabric = fabric;
    link->remote_region = peer->region;
    link->token = token;
    link->capacity = 64;
    link->flushes = calloc(link->capacity, sizeof(*link->flushes));
    if (link->flushes == NULL)
        goto undo_link;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = peer->worker,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_ep_error, .arg = link},
    };
    ucs_status_t status = ucp_ep_create(fabric->worker, &params, &link->ep);
    if (status != UCS_OK) {
        error_set(error, ST_UNREACHABLE, "ucx: endpoint: %s", ucs_status_string(status));
        goto undo_flushes;
    }
    link->next = fabric->links;
    fabric->links = link;
    status = ucp_ep_rkey_unpack(link->ep, peer->rkey, &link->rkey);
    if (status != UCS_OK) {
        fabric_link_close(link);
        return error_set(error, ST_UNREACHABLE, "ucx: memory key: %s", ucs_status_string(status));
    }
    link_choose(link);
    *out = link;
    return ST_OK;

undo_flushes:
    free(link->flushes);
undo_link:
    free(link);
    return ST_UNREACHABLE;
}

static void link_destroy(struct fabric_link *link)
{
    fabric_ops_orphan(&link->ops);
    free(link->flushes);
    free(link);
}

void fabric_link_close(struct fabric_link *link)
{
    if (link == NULL)
        return;
    struct fabric *fabric = link->fabric;
    struct fabric_link **at = &fabric->links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
    };
    void *request = ucp_ep_close_nbx(link->ep, &param);
    link->close_request = UCS_PTR_IS_PTR(request) ? request : NULL;
    link->next = fabric->closing;
    fabric->closing = link;
}

void fabric_links_reap(struct fabric *fabric, bool all)
{
    struct fabric_link **at = &fabric->closing;
    while (*at != NULL) {
        struct fabric_link *link = *at;
        bool open = link->close_request != NULL &&
                    ucp_request_check_status(link->close_request) == UCS_INPROGRESS;
        if (open && !all) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        if (link->close_request != NULL && !open)
            ucp_request_free(link->close_request);
        if (link->rkey != NULL)
            ucp_rkey_destroy(link->rkey);
        link_destroy(link);
    }
}

const char *fabric_link_path(const struct fabric_link *link)
{
    return link->path;
}

enum status fabric_link_failed(const struct fabric_link *link, struct error *error)
{
    if (link->failure == UCS_OK)
        return ST_OK;
    return error_set(error, ST_UNREACHABLE, "ucx: %s", ucs_status_string(link->failure));
}

static void link_fail(struct fabric_link *link, ucs_status_t status)
{
    if (link->failure == UCS_OK)
        link->failure = status;
}

static void link_flush_done(struct fabric_link *link, uint64_t number)
{
    if (number - link->first < link->count)
        link->flushes[number % link->capacity].done = true;
}

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    struct fabric_op *op = user_data;
    if (op->link != NULL && status != UCS_OK)
        link_fail(op->link, status);
    else if (op->link != NULL && op->is_flush)
        link_flush_done(op->link, op->number);
    ucp_request_free(request);
    fabric_op_give(op);
}

/* What became of an operation that UCX may have finished at once (then on_sent never runs). */
static void op_begun(struct fabric_op *op, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request))
        return;
    if (UCS_PTR_IS_ERR(request))
        link_fail(op->link, UCS_PTR_STATUS(request));
    else if (op->is_flush)
        link_flush_done(op->link, op->number);
    fabric_op_give(op);
}

static struct fabric_op *op_begin(struct fabric_link *link)
{
    struct fabric_op *op = fabric_op_take(link->fabric, &link->ops);
    if (op == NULL)
        link_fail(link, UCS_ERR_NO_MEMORY);
    else
        op->link = link;
    return op;
}

static void write_put(struct fabric_link *link, const void *local, size_t bytes,
                      uint64_t remote_offset)
{
    struct fabric_op *op = op_begin(link);
    if (op == NULL)
        return;
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMH,
        .cb.send = on_sent,
        .user_data = op,
        .memh = link->fabric->memory,
    };
    op_begun(op, ucp_put_nbx(link->ep, local, bytes, link->remote_region + remote_offset,
                             link->rkey, &param));
}

static void write_message(struct fabric_link *link, const void *local, size_t bytes,
                          uint64_t remote_offset)
{
    struct fabric_op *op = op_begin(link);
    if (op == NULL)
        return;
    op->header = (struct fabric_write_header){
        .token = link->token,
        .offset = remote_offset,
        .epoch = (uint32_t)(link->first + link->count),
    };
    link->epoch_writes++;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = on_sent,
        .user_data = op,
        .memh = link->fabric->memory,
    };
    op_begun(op, ucp_am_send_nbx(link->ep, FABRIC_AM_WRITE, &op->header, sizeof(op->header), local,
                                 bytes, &param));
}

void fabric_link_write(struct fabric_link *link, const void *local, size_t bytes,
                       uint64_t remote_offset)
{
    if (link->put && link->failure == UCS_OK) {
        write_put(link, local, bytes, remote_offset);
        return;
    }
    while (bytes > 0 && link->failure == UCS_OK) {
        size_t piece = bytes < MESSAGE_PIECE ? bytes : MESSAGE_PIECE;
        write_message(link, local, piece, remote_offset);
        local = (const uint8_t *)local + piece;
        remote_offset += piece;
        bytes -= piece;
    }
}

static bool flush_append(struct fabric_link *link, uint64_t cookie)
{
    if (link->count == link->capacity) {
        uint64_t capacity = link->capacity * 2;
        struct link_flush *flushes = calloc(capacity, sizeof(*flushes));
        if (flushes == NULL)
            return false;
        for (uint64_t n = link->first; n < link->first + link->count; n++)
            flushes[n % capacity] = link->flushes[n % link->capacity];
        free(link->flushes);
        link->flushes = flushes;
        link->capacity = capacity;
    }
    link->flushes[(link->first + link->count) % link->capacity] =
        (struct link_flush){.cookie = cookie};
    link->count++;
    return true;
}

bool fabric_link_flush(struct fabric_link *link, uint64_t cookie, struct fabric_mark *mark_out)
{
    uint64_t number = link->first + link->count;
    if (link->count >= FABRIC_EPOCHS_MAX / 2 || !flush_append(link, cookie)) {
        link_fail(link, UCS_ERR_NO_MEMORY);
        return false;
    }
    if (!link->put) {
        *mark_out = (struct fabric_mark){.epoch = (uint32_t)number, .count = link->epoch_writes};
        link->epoch_writes = 0;
        return link->failure == UCS_OK;
    }
    struct fabric_op *op = link->failure == UCS_OK ? op_begin(link) : NULL;
    if (op == NULL)
        return false;
    op->is_flush = true;
    op->number = number;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = on_sent,
        .user_data = op,
    };
    op_begun(op, ucp_ep_flush_nbx(link->ep, &param));
    return false;
}

enum status fabric_link_confirm(struct fabric_link *link, uint32_t epoch)
{
    uint32_t place = epoch - (uint32_t)link->first;
    if (link->put || place >= link->count)
        return ST_INVALID;
    link_flush_done(link, link->first + place);
    return ST_OK;
}

bool fabric_link_flushed(struct fabric_link *link, bool any, uint64_t *cookie_out)
{
    if (link->count == 0)
        return false;
    const struct link_flush *flush = &link->flushes[link->first % link->capacity];
    if (!flush->done && !any)
        return false;
    *cookie_out = flush->cookie;
    link->first++;
    link->count--;
    return true;
}
