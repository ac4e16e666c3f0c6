/* fabric_link: writing into a peer's region. See fabric.h.
 *
 * Where our device can copy into the peer's device (fabric_link_peer.c), UCX is not used. Else
 * writes are puts if the peer's memory can be mapped (ucp_rkey_ptr succeeds), if its first lane is
 * reliable InfiniBand, or between two GPUs over CUDA IPC. Elsewhere UCX would emulate puts by
 * messages of its own. These are slower than ours, and UCX 1.13 aborts the receiving process when
 * it cannot answer one (ucp_put_handler), so they are never used. UCX before 1.14 has no call that
 * names the transports of an endpoint, so the names are read from the text of ucp_ep_print_info. If
 * that text cannot be read, writes are messages, which work everywhere. */
#include "transport/fabric_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Returns the text of ucp_ep_print_info, or NULL. The caller frees it. */
static char *lanes_text(ucp_ep_h ep)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL)
        return NULL;
    ucp_ep_print_info(ep, stream);
    fclose(stream);
    return text;
}

/* Stores the transport of lane 0, such as "sysv" of "lane[0]:  3:sysv/memory.0 md[2] -> …", or
 * "ucx" if it is unknown. */
static void lane_name(const char *text, char *name, size_t capacity)
{
    snprintf(name, capacity, "ucx");
    const char *lane = text != NULL ? strstr(text, "lane[0]:") : NULL;
    if (lane == NULL)
        return;
    const char *begin = strchr(lane + 8, ':');
    size_t length = begin != NULL ? strcspn(begin + 1, "/ \n") : 0;
    if (length > 0 && length < capacity && begin[1 + length] == '/')
        snprintf(name, capacity, "%.*s", (int)length, begin + 1);
}

/* Chooses between puts and messages, and whether data is staged. Puts are possible where the peer's
 * memory is mapped, over InfiniBand, and from one GPU to another of the host. Data goes straight
 * from our device only if UCX has registered its memory and the transport is InfiniBand or CUDA
 * IPC. */
static void link_choose(struct fabric_link *link, enum fabric_memory remote)
{
    const struct fabric *fabric = link->fabric;
    enum fabric_memory own = fabric->address.memory;
    char lane[24];
    void *mapped;
    char *text = lanes_text(link->ep);
    lane_name(text, lane, sizeof(lane));
    bool shared = remote == FABRIC_MEMORY_HOST &&
                  ucp_rkey_ptr(link->rkey, link->remote_region, &mapped) == UCS_OK;
    bool rdma = remote != FABRIC_MEMORY_DEVICE &&
                (strncmp(lane, "rc_", 3) == 0 || strncmp(lane, "dc_", 3) == 0);
    bool ipc = own == FABRIC_MEMORY_CUDA && remote == FABRIC_MEMORY_CUDA && text != NULL &&
               strstr(text, "cuda_ipc/") != NULL;
    free(text);
    link->shared = shared;
    link->direct = (shared || rdma || ipc) && !fabric->messages_only;
    link->staged =
        fabric->staging != NULL && !(link->direct && own == FABRIC_MEMORY_CUDA && (rdma || ipc));
    const char *over = link->direct && ipc ? "cuda_ipc" : lane;
    const char *device = link->staged ? ", staged" : fabric->staging != NULL ? ", direct" : "";
    snprintf(link->way_text, sizeof(link->way_text), "ucx %s over %s%s",
             link->direct ? "put" : "am", over, device);
}

static void on_ep_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct fabric_link *link = arg;
    (void)ep;
    if (!link->by_data)
        fabric_link_fail(link, status);
}

/* The link's writes travel over data connections. */
static void link_data(struct fabric_link *link)
{
    link->by_data = true;
    link->direct = false;
    link->staged = link->fabric->staging != NULL;
    snprintf(link->way_text, sizeof(link->way_text), "messages over %s%s",
             link->fabric->encrypted ? "tls" : "tcp", link->staged ? ", staged" : "");
}

/* Opens the UCX endpoint of a link. Returns false if UCX does not reach the peer. */
static bool link_connect(struct fabric_link *link, const struct fabric_address *peer)
{
    if (link->fabric->worker == NULL || peer->worker_bytes == 0)
        return false;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = peer->worker,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_ep_error, .arg = link},
    };
    ucs_status_t status = ucp_ep_create(link->fabric->worker, &params, &link->ep);
    if (status != UCS_OK) {
        link->ep = NULL;
        return false;
    }
    if (peer->memory != FABRIC_MEMORY_DEVICE)
        status = ucp_ep_rkey_unpack(link->ep, peer->rkey, &link->rkey);
    if (status != UCS_OK) {
        link->rkey = NULL;
        return false; /* The endpoint ends with the link. */
    }
    link_choose(link, peer->memory);
    return true;
}

enum status fabric_link_open(struct fabric *fabric, const struct fabric_address *peer,
                             uint64_t token, bool by_data, struct fabric_link **out,
                             struct error *error)
{
    struct fabric_link *link = calloc(1, sizeof(*link));
    if (link == NULL)
        return error_set(error, ST_NO_MEMORY, "ucx: out of memory");
    link->fabric = fabric;
    link->remote_region = peer->region;
    link->token = token;
    link->peer_socket = -1;
    link->flush_capacity = 64;
    link->flushes = calloc(link->flush_capacity, sizeof(*link->flushes));
    if (link->flushes == NULL) {
        free(link);
        return error_set(error, ST_NO_MEMORY, "ucx: out of memory");
    }
    link->next = fabric->links;
    fabric->links = link;
    if (by_data || (!fabric_link_import(link, peer) && !link_connect(link, peer)))
        link_data(link);
    *out = link;
    return ST_OK;
}

void fabric_writes_end(int fd)
{
    if (fd < 0)
        return;
    (void)shutdown(fd, SHUT_WR);
    close(fd);
}

static void link_destroy(struct fabric_link *link)
{
    fabric_ops_orphan(&link->ops);
    fabric_writes_end(link->peer_socket);
    free(link->flushes);
    free(link);
}

void fabric_link_close(struct fabric_link *link, int peer_socket)
{
    struct fabric *fabric = link->fabric;
    struct fabric_link **at = &fabric->links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    if (fabric_link_import_release(link, peer_socket))
        peer_socket = -1;
    if (link->direct)
        link->peer_socket = peer_socket;
    else
        fabric_writes_end(peer_socket); /* The receiver takes no messages after the end. */
    fabric_link_unstage(link);
    fabric_link_data_close(link);
    if (link->ep == NULL) {
        link_destroy(link);
        return;
    }
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
        if (open) {
            link->next = fabric->leftover_links;
            fabric->leftover_links = link;
        } else {
            link_destroy(link);
        }
    }
}

void fabric_links_left_close(struct fabric *fabric)
{
    while (fabric->leftover_links != NULL) {
        struct fabric_link *link = fabric->leftover_links;
        fabric->leftover_links = link->next;
        link_destroy(link);
    }
}

/* A host whose id is not known may be this one. */
static bool host_may_be_same(const uint8_t *a, const uint8_t *b)
{
    static const uint8_t unknown[FABRIC_HOST_BYTES];
    return memcmp(a, b, FABRIC_HOST_BYTES) == 0 || memcmp(a, unknown, FABRIC_HOST_BYTES) == 0 ||
           memcmp(b, unknown, FABRIC_HOST_BYTES) == 0;
}

bool fabric_writes_directly(const struct fabric *fabric, const struct fabric_address *peer,
                            bool *same_host_out)
{
    const struct fabric_address *own = &fabric->address;
    bool same_host = host_may_be_same(own->host, peer->host);
    bool ucx = own->rkey_bytes > 0 && peer->worker_bytes > 0;
    bool device = own->handle_bytes > 0 && peer->handle_bytes > 0;
    *same_host_out = same_host;
    return (ucx && (same_host || fabric->beyond_shared_memory)) || (device && same_host);
}

bool fabric_link_idle(const struct fabric_link *link)
{
    return link->flush_count == 0 && link->epoch_writes == 0;
}

void fabric_link_epochs_continue(struct fabric_link *link, const struct fabric_link *before)
{
    link->flush_first = before->flush_first;
}

const char *fabric_link_path(const struct fabric_link *link)
{
    return link->way_text;
}

const char *fabric_link_indirect_reason(const struct fabric_link *link)
{
    return link->indirect_reason;
}

enum status fabric_link_failed(const struct fabric_link *link, struct error *error)
{
    if (link->device_failed != ST_OK)
        return error_set(error, link->device_failed, "%s", link->device_failure.text);
    if (link->failure == UCS_OK)
        return ST_OK;
    return error_set(error, link->failure == UCS_ERR_NO_MEMORY ? ST_NO_MEMORY : ST_UNREACHABLE,
                     "ucx: %s", ucs_status_string(link->failure));
}

void fabric_link_fail(struct fabric_link *link, ucs_status_t status)
{
    if (link->failure == UCS_OK)
        link->failure = status;
}

static void flush_done(struct fabric_link *link, uint64_t number)
{
    if (number - link->flush_first < link->flush_count)
        link->flushes[number % link->flush_capacity].done = true;
}

/* UCX has finished an op without an error. */
static void op_done(struct fabric_op *op)
{
    if (op->is_probe)
        op->link->probed = true;
    else if (op->is_flush)
        flush_done(op->link, op->number);
}

/* Releases an op that UCX has finished. */
static void op_end(struct fabric_op *op)
{
    if (op->link != NULL)
        op->link->under_way_bytes -= op->bytes;
    if (op->link != NULL && op->slot != NULL)
        op->link->sending_bytes -= op->bytes;
    fabric_op_give(op);
}

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    struct fabric_op *op = user_data;
    if (op->link != NULL && status != UCS_OK)
        fabric_link_fail(op->link, status);
    else if (op->link != NULL)
        op_done(op);
    ucp_request_free(request);
    op_end(op);
}

/* Handles the result of starting an operation. If UCX has finished the operation at once, on_sent
 * never runs. */
static void op_begun(struct fabric_op *op, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request))
        return;
    if (UCS_PTR_IS_ERR(request))
        fabric_link_fail(op->link, UCS_PTR_STATUS(request));
    else
        op_done(op);
    op_end(op);
}

/* Takes an op that sends `bytes` from `slot`. The op takes over the caller's use of a non-NULL
 * slot. */
static struct fabric_op *op_begin(struct fabric_link *link, size_t bytes, struct fabric_slot *slot)
{
    struct fabric_op *op = fabric_op_take(link->fabric, &link->ops);
    if (op == NULL) {
        fabric_link_fail(link, UCS_ERR_NO_MEMORY);
        fabric_slot_drop(slot);
        return NULL;
    }
    op->link = link;
    op->slot = slot;
    op->bytes = bytes;
    link->under_way_bytes += bytes;
    return op;
}

/* Adds the region's memory handle if the data lies in the region, not in a slot. */
static void param_memory(ucp_request_param_t *param, const struct fabric_op *op)
{
    const struct fabric *fabric = op->fabric;
    if (op->slot != NULL)
        return;
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param->memh = fabric->registration;
    if (fabric->address.memory == FABRIC_MEMORY_CUDA) {
        param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        param->memory_type = UCS_MEMORY_TYPE_CUDA;
    }
}

static void write_put(struct fabric_link *link, const struct data_write *write)
{
    struct fabric_op *op = op_begin(link, write->bytes, write->slot);
    if (op == NULL)
        return;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = on_sent,
        .user_data = op,
    };
    param_memory(&param, op);
    op_begun(op, ucp_put_nbx(link->ep, write->memory, write->bytes,
                             link->remote_region + write->offset, link->rkey, &param));
}

static void write_message(struct fabric_link *link, const struct data_write *write)
{
    struct fabric_op *op = op_begin(link, write->bytes, write->slot);
    if (op == NULL)
        return;
    op->header = (struct fabric_write_header){
        .token = link->token,
        .offset = write->offset,
        .request_id = write->request.id,
        .request_generation = write->request.generation,
        .epoch = write->epoch,
    };
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = on_sent,
        .user_data = op,
    };
    param_memory(&param, op);
    op_begun(op, ucp_am_send_nbx(link->ep, FABRIC_AM_WRITE, &op->header, sizeof(op->header),
                                 write->memory, write->bytes, &param));
}

static bool window_open(const struct fabric_link *link, size_t bytes)
{
    return link->under_way_bytes == 0 ||
           link->under_way_bytes + bytes <= link->fabric->window_bytes;
}

static void flush_begin(struct fabric_link *link, struct fabric_op *op)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = on_sent,
        .user_data = op,
    };
    op_begun(op, ucp_ep_flush_nbx(link->ep, &param));
}

static void flush_put(struct fabric_link *link, uint64_t number)
{
    struct fabric_op *op = op_begin(link, 0, NULL);
    if (op == NULL)
        return;
    op->is_flush = true;
    op->number = number;
    flush_begin(link, op);
}

bool fabric_link_probe(struct fabric_link *link)
{
    if (link->ep == NULL || link->by_data || link->shared)
        return false;
    struct fabric_op *message = op_begin(link, 0, NULL);
    struct fabric_op *flush = message != NULL ? op_begin(link, 0, NULL) : NULL;
    if (flush == NULL)
        return true; /* The link has failed. */
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = on_sent,
        .user_data = message,
    };
    message->header.token = link->token;
    op_begun(message, ucp_am_send_nbx(link->ep, FABRIC_AM_PROBE, &message->header.token,
                                      sizeof(message->header.token), NULL, 0, &param));
    flush->is_probe = true;
    flush_begin(link, flush);
    return true;
}

bool fabric_link_probed(const struct fabric_link *link)
{
    return link->probed;
}

static void write_begin(struct fabric_link *link, const struct data_write *write)
{
    if (write->is_flush)
        flush_put(link, write->number);
    else if (link->direct)
        write_put(link, write);
    else
        write_message(link, write);
}

void fabric_link_send(struct fabric_link *link, const struct data_write *write)
{
    if (link->by_data || link->queue.count > 0 || !window_open(link, write->bytes))
        fabric_link_data_add(link, write);
    else
        write_begin(link, write);
}

bool fabric_link_window_pump(struct fabric_link *link)
{
    const struct data_queue *queue = &link->queue;
    struct data_write write;
    bool did = false;
    while (!link->by_data && queue->count > 0 && !fabric_link_failing(link) &&
           window_open(link, queue->writes[queue->first % queue->capacity].bytes)) {
        (void)fabric_link_data_take(link, &write);
        write_begin(link, &write);
        did = true;
    }
    return did;
}

void fabric_link_write(struct fabric_link *link, const void *local, size_t bytes,
                       uint64_t remote_offset, const struct transport_request *request)
{
    const struct fabric *fabric = link->fabric;
    uint32_t epoch = (uint32_t)(link->flush_first + link->flush_count);
    if (!link->direct)
        link->epoch_writes +=
            (uint32_t)((bytes + FABRIC_PIECE_BYTES_MAX - 1) / FABRIC_PIECE_BYTES_MAX);
    if (link->failure != UCS_OK)
        return;
    if (link->staged) {
        const struct staged_write staged = {.request = *request,
                                            .local = local,
                                            .bytes = bytes,
                                            .offset = remote_offset,
                                            .epoch = epoch};
        fabric_link_stage(link, &staged);
        return;
    }
    /* A write over data connections is not cut here. */
    size_t most = link->by_data  ? bytes
                  : link->direct ? fabric->window_bytes
                                 : FABRIC_PIECE_BYTES_MAX;
    struct data_write write = {
        .request = *request, .memory = local, .offset = remote_offset, .epoch = epoch};
    while (bytes > 0 && link->failure == UCS_OK) {
        write.bytes = bytes < most ? bytes : most;
        fabric_link_send(link, &write);
        write.memory += write.bytes;
        write.offset += write.bytes;
        bytes -= write.bytes;
    }
}

static bool flush_append(struct fabric_link *link, uint64_t cookie)
{
    if (link->flush_count == link->flush_capacity) {
        uint64_t capacity = link->flush_capacity * 2;
        struct link_flush *flushes = calloc(capacity, sizeof(*flushes));
        if (flushes == NULL)
            return false;
        for (uint64_t n = link->flush_first; n < link->flush_first + link->flush_count; n++)
            flushes[n % capacity] = link->flushes[n % link->flush_capacity];
        free(link->flushes);
        link->flushes = flushes;
        link->flush_capacity = capacity;
    }
    link->flushes[(link->flush_first + link->flush_count) % link->flush_capacity] =
        (struct link_flush){.cookie = cookie};
    link->flush_count++;
    return true;
}

bool fabric_link_flush(struct fabric_link *link, uint64_t cookie, struct fabric_mark *mark_out)
{
    uint64_t number = link->flush_first + link->flush_count;
    if (link->flush_count >= FABRIC_EPOCHS_MAX / 2) {
        fabric_link_fail(link, UCS_ERR_EXCEEDS_LIMIT);
        return false;
    }
    if (!flush_append(link, cookie)) {
        fabric_link_fail(link, UCS_ERR_NO_MEMORY);
        return false;
    }
    if (!link->direct) {
        *mark_out = (struct fabric_mark){.epoch = (uint32_t)number, .count = link->epoch_writes};
        link->epoch_writes = 0;
        return link->failure == UCS_OK;
    }
    if (link->failure != UCS_OK)
        return false;
    const struct staged_write behind = {.is_flush = true, .number = number};
    if (link->staged)
        fabric_link_stage(link, &behind);
    else
        fabric_link_flush_put(link, number);
    return false;
}

void fabric_link_flush_put(struct fabric_link *link, uint64_t number)
{
    const struct data_write flush = {.is_flush = true, .number = number};
    fabric_link_send(link, &flush);
}

enum status fabric_link_confirm(struct fabric_link *link, uint32_t epoch)
{
    uint32_t place = epoch - (uint32_t)link->flush_first;
    if (link->direct || place >= link->flush_count)
        return ST_INVALID;
    flush_done(link, link->flush_first + place);
    return ST_OK;
}

bool fabric_link_flushed(struct fabric_link *link, bool unfinished_too, uint64_t *cookie_out)
{
    if (link->flush_count == 0)
        return false;
    const struct link_flush *flush = &link->flushes[link->flush_first % link->flush_capacity];
    if (!flush->done && !unfinished_too)
        return false;
    *cookie_out = flush->cookie;
    link->flush_first++;
    link->flush_count--;
    return true;
}
