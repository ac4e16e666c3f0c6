/* fabric: the UCX context, its settings and the worker. See fabric.h.
 *
 * UCX_… variables in the user's environment have priority over the settings below, each of which
 * has its reason. The settings are put into our environment, because UCX 1.13 reads the settings of
 * its transports only from there (ucp_config_modify reports success and then ignores them). So
 * transports must be opened at start-up, before there are other threads. */
#include "transport/fabric_internal.h"

#include <linux/capability.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A worker that was not destroyed, with its context. */
struct worker_left {
    struct worker_left *next;
    ucp_worker_h worker;
    ucp_context_h context;
};

struct setting {
    const char *name;
    const char *value;
};

static const struct setting settings[] = {
    /* A piece of a write (fabric_link.c) is sent as one segment, so the receiver needs one read and
     * one copy. The default, 8 KiB, halves the speed. */
    {"UCX_TCP_TX_SEG_SIZE", "256K"},
    {"UCX_TCP_RX_SEG_SIZE", "256K"},
    /* Handle one event of a socket at a time, because an event may end the endpoint of another
     * event of its batch. No keep-alive, which leaves events to endpoints that are gone: UCX 1.13
     * was seen to abort on such an event, 1.22 crashed in half of our tests. Our heartbeats detect
     * dead peers instead. */
    {"UCX_TCP_MAX_POLL", "1"},
    {"UCX_KEEPALIVE_INTERVAL", "inf"},
    /* Without this, UCX does not choose shared memory for endpoints with error handling. */
    {"UCX_MM_ERROR_HANDLING", "y"},
    /* Memory of the region: SysV segments allocate pages lazily, need no /dev/shm (64 MiB in
     * containers), and are freed with the process. UCX's POSIX allocator touches every page.
     * Without SysV, the region is plain memory and is written by messages. */
    {"UCX_ALLOC_PRIO", "md:sysv,thp,mmap,heap"},
};

/* Where writes over shared memory are puts, UCX's receive buffers carry no KV. The defaults, 256
 * slots and 512 buffers, would take 2 MiB of each machine. (With these settings, messages of 1 MiB
 * take ten times as long.) */
static const struct setting put_settings[] = {
    {"UCX_MM_FIFO_SIZE", "64"},
    {"UCX_MM_RX_BUFS_GROW", "64"},
};

static enum status ucx_error(struct error *error, const char *what, ucs_status_t status)
{
    return error_set(error, ST_IO, "ucx: %s: %s", what, ucs_status_string(status));
}

static enum status context_open(struct fabric *fabric, const struct fabric_selection *selection,
                                struct error *error)
{
    const char *tls = selection->tls;
    ucp_config_t *config;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        (void)setenv(settings[i].name, settings[i].value, 0);
    for (size_t i = 0; !fabric->messages_only && i < sizeof(put_settings) / sizeof(put_settings[0]);
         i++)
        (void)setenv(put_settings[i].name, put_settings[i].value, 0);
    /* UCX's UD, which also connects RC, compares each packet's destination address with a header
     * that soft-RoCE fills in otherwise, and drops all packets (UCX 1.13, 1.18). */
    if (selection->soft_roce)
        (void)setenv("UCX_UD_VERBS_ETH_DGID_CHECK", "n", 0);
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return ucx_error(error, "configuration", status);
    /* UCX logs to stdout; errors reach us as a status. UCX reads UCX_LOG_LEVEL when the library is
     * loaded, so only ucp_config_modify can change it here. */
    if (getenv("UCX_LOG_LEVEL") == NULL)
        (void)ucp_config_modify(config, "LOG_LEVEL", "fatal");
    /* UCX_TLS in the environment does not count: it could open a port that the configuration does
     * not name. */
    if (selection->devices[0] != 0)
        (void)ucp_config_modify(config, "NET_DEVICES", selection->devices);
    status = ucp_config_modify(config, "TLS", tls);
    if (status != UCS_OK) {
        ucp_config_release(config);
        return error_set(error, ST_INVALID, "ucx: UCX_TLS = \"%s\": %s", tls,
                         ucs_status_string(status));
    }
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP,
    };
    status = ucp_init(&params, config, &fabric->context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        fabric->context = NULL;
        return error_set(error, ST_IO, "ucx: UCX_TLS = \"%.64s\": %s", tls,
                         ucs_status_string(status));
    }
    ucp_worker_params_t worker = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE,
    };
    status = ucp_worker_create(fabric->context, &worker, &fabric->worker);
    if (status == UCS_OK)
        return ST_OK;
    ucp_cleanup(fabric->context);
    fabric->context = NULL;
    fabric->worker = NULL;
    return error_set(error, ST_IO, "ucx: UCX_TLS = \"%.64s\": worker: %s", tls,
                     ucs_status_string(status));
}

/* Returns false with an error if the kernel would not let an RDMA device use a region of this size:
 * registered memory is locked. CAP_IPC_LOCK, which root has, lifts the limit. */
static bool memory_lockable(uint64_t bytes, struct error *error)
{
    struct rlimit limit;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {0};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= bytes)
        return true;
    if (syscall(SYS_capget, &header, caps) == 0 &&
        (caps[0].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0)
        return true;
    error_set(error, ST_NO_MEMORY,
              "RDMA needs %llu MiB of locked memory for the KV region, and this process may lock "
              "%llu KiB: raise the limit (ulimit -l, LimitMEMLOCK of a systemd unit), or set "
              "transport/ucx_transports to \"none\"",
              (unsigned long long)((bytes + (1u << 20) - 1) >> 20),
              (unsigned long long)limit.rlim_cur >> 10);
    return false;
}

/* Opens UCX with the selected transports. Without shared memory, such as where no SysV segment can
 * be made, UCX gets RDMA hardware only, or is not opened: data connections then carry the
 * writes. */
static enum status worker_open(struct fabric *fabric, const struct fabric_options *options,
                               struct error *error)
{
    struct fabric_selection selection;
    fabric_selection_make(options, &selection);
    fabric->beyond_shared_memory =
        selection.transports_named || strstr(selection.tls, ",rc") != NULL;
    if (selection.ucx_off)
        return ST_OK;
    if (selection.rdma && options->device == NULL && !memory_lockable(options->region_bytes, error))
        return ST_NO_MEMORY;
    enum status status = context_open(fabric, &selection, error);
    if (status == ST_OK || selection.transports_named)
        return status;
    const char *rdma = strstr(selection.tls, ",rc");
    if (rdma == NULL)
        return ST_OK;
    snprintf(selection.tls, sizeof(selection.tls), "self,rc,dc");
    (void)context_open(fabric, &selection, error);
    return ST_OK;
}

static void worker_close(struct fabric *fabric)
{
    if (fabric->worker == NULL)
        return;
    ucp_worker_destroy(fabric->worker);
    ucp_cleanup(fabric->context);
}

static enum status address_open(struct fabric *fabric, struct error *error)
{
    ucp_address_t *worker;
    void *rkey = NULL;
    fabric->address.region = (uint64_t)(uintptr_t)fabric->region;
    fabric->address.region_bytes = fabric->region_bytes;
    if (fabric->worker == NULL)
        return ST_OK;
    ucs_status_t status =
        ucp_worker_get_address(fabric->worker, &worker, &fabric->address.worker_bytes);
    if (status != UCS_OK)
        return ucx_error(error, "address", status);
    if (fabric->registration != NULL)
        status = ucp_rkey_pack(fabric->context, fabric->registration, &rkey,
                               &fabric->address.rkey_bytes);
    if (status != UCS_OK) {
        ucp_worker_release_address(fabric->worker, worker);
        return ucx_error(error, "memory key", status);
    }
    fabric->address.worker = worker;
    fabric->address.rkey = rkey;
    return ST_OK;
}

static void address_close(struct fabric *fabric)
{
    if (fabric->address.rkey != NULL)
        ucp_rkey_buffer_release((void *)(uintptr_t)fabric->address.rkey);
    if (fabric->address.worker != NULL)
        ucp_worker_release_address(fabric->worker, (void *)(uintptr_t)fabric->address.worker);
}

static enum status events_open(struct fabric *fabric, struct error *error)
{
    if (fabric->worker == NULL)
        return ST_OK;
    ucs_status_t ucs = ucp_worker_get_efd(fabric->worker, &fabric->fd);
    if (ucs != UCS_OK)
        return ucx_error(error, "event descriptor", ucs);
    enum status status = fabric_inboxes_start(fabric);
    if (status != ST_OK)
        error_set(error, status, "ucx: no active messages");
    return status;
}

enum status fabric_open(const struct fabric_options *options, struct fabric **out,
                        struct error *error)
{
    struct fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL)
        return error_set(error, ST_NO_MEMORY, "ucx: out of memory");
    enum status status = ST_INVALID;
    const char *way = getenv("CLEAVE_KV_WRITE");
    if (way != NULL && strcmp(way, "put") != 0 && strcmp(way, "am") != 0) {
        error_set(error, status, "CLEAVE_KV_WRITE = \"%.32s\": want put (where it can be) or am",
                  way);
        goto undo_alloc;
    }
    fabric->messages_only = way != NULL && strcmp(way, "am") == 0;
    fabric->ucx_only = way != NULL;
    fabric->fd = -1;
    fabric->encrypted = options->encrypted;
    fabric->window_bytes = options->window_bytes > 0 ? options->window_bytes : (uint64_t)8 << 20;
    fabric->write_wanted = options->write_wanted;
    fabric->self = options->self;
    fabric->host_known = fabric_host_read(fabric->address.host);
    status = worker_open(fabric, options, error);
    if (status != ST_OK)
        goto undo_alloc;
    status = fabric_region_open(fabric, options, error);
    if (status != ST_OK)
        goto undo_worker;
    if (options->share)
        fabric_share(fabric);
    status = address_open(fabric, error);
    if (status != ST_OK)
        goto undo_region;
    status = events_open(fabric, error);
    if (status != ST_OK)
        goto undo_address;
    *out = fabric;
    return ST_OK;

undo_address:
    address_close(fabric);
undo_region:
    fabric_region_unmap(fabric);
undo_worker:
    worker_close(fabric);
    fabric_region_free(fabric);
undo_alloc:
    free(fabric);
    return status;
}

/* UCX 1.13 aborts the process ("got REP message") when a worker is destroyed, or learns that a peer
 * is gone, while it still has an answer for a peer whose connection was being set up. A flush of
 * such a worker does not complete at once. Such a worker is kept until the process ends; usually
 * that is soon, because a transport is closed when its process ends. Returns whether the worker is
 * left. Always false under AddressSanitizer, whose leak check would report UCX's memory. */
static bool worker_leave(const struct fabric *fabric)
{
#ifdef __SANITIZE_ADDRESS__
    (void)fabric;
    return false;
#else
    static _Atomic(struct worker_left *) all_left;
    const ucp_request_param_t param = {0};
    if (!UCS_PTR_IS_PTR(ucp_worker_flush_nbx(fabric->worker, &param)))
        return false;
    struct worker_left *left = malloc(sizeof(*left));
    if (left == NULL)
        return true;
    *left = (struct worker_left){.worker = fabric->worker, .context = fabric->context};
    left->next = atomic_exchange(&all_left, left);
    return true;
#endif
}

void fabric_close(struct fabric *fabric)
{
    if (fabric == NULL)
        return;
    while (fabric->links != NULL)
        fabric_link_close(fabric->links, -1);
    while (fabric->inboxes != NULL)
        fabric_inbox_close(fabric->inboxes);
    time_t begin = time(NULL);
    while (fabric->closing != NULL && time(NULL) - begin < 2)
        fabric_progress(fabric);
    /* Endpoints that UCX did not close in time end with the worker. */
    fabric_links_reap(fabric, true);
    address_close(fabric);
    bool leave = fabric->worker != NULL && worker_leave(fabric);
    fabric_region_unmap(fabric); /* Before the worker is destroyed, else UCX 1.13 aborts. */
    if (!leave) {
        worker_close(fabric);
        fabric_links_left_close(fabric);
    }
    fabric_region_free(fabric);
    while (fabric->slabs != NULL) {
        struct fabric_slab *slab = fabric->slabs;
        fabric->slabs = slab->next;
        free(slab);
    }
    free(fabric);
}

void *fabric_region(struct fabric *fabric)
{
    return fabric->region;
}

const struct fabric_address *fabric_address(const struct fabric *fabric)
{
    return &fabric->address;
}

int fabric_fd(struct fabric *fabric)
{
    return fabric->fd;
}

int fabric_device_fd(struct fabric *fabric)
{
    if (fabric->staging == NULL)
        return -1;
    return fabric->staging->device->ops->event_fd(fabric->staging->device->self);
}

void fabric_memory_state(const struct fabric *fabric, struct transport_memory *out)
{
    *out = (struct transport_memory){.way = TRANSPORT_WAY_HOST};
    if (fabric->staging == NULL)
        return;
    if (fabric->address.memory == FABRIC_MEMORY_CUDA)
        out->way = TRANSPORT_WAY_DIRECT;
    else
        out->way = fabric->handle.bytes > 0 ? TRANSPORT_WAY_PEER : TRANSPORT_WAY_STAGED;
    memcpy(out->why, fabric->staged_why, sizeof(out->why));
    for (int i = 0; i < DEVICE_DIRECTIONS; i++)
        out->copy_counts[i] = fabric->staging->copies[i].copy_counts;
}

void fabric_deadlines_check(struct fabric *fabric)
{
    if (fabric->staging != NULL)
        fabric_staging_tick(fabric);
}

/* While the device has too much to copy, messages wait in the network. */
bool fabric_progress(struct fabric *fabric)
{
    bool done = fabric->staging != NULL && fabric_staging_progress(fabric);
    if (fabric->worker != NULL && !fabric_inboxes_full(fabric))
        done = ucp_worker_progress(fabric->worker) != 0 || done;
    for (struct fabric_link *link = fabric->links; link != NULL; link = link->next)
        done = fabric_link_window_pump(link) || done;
    if (fabric->closing != NULL)
        fabric_links_reap(fabric, false);
    return done;
}

bool fabric_wait_prepare(struct fabric *fabric)
{
    /* The device wakes us. UCX's descriptor is not needed until then. */
    if (fabric->staging != NULL && !fabric_staging_arm(fabric))
        return true;
    return fabric->worker == NULL || ucp_worker_arm(fabric->worker) != UCS_ERR_BUSY;
}

/* ---- operations ---- */

static void op_link(struct fabric_op *op, struct fabric_op **owner)
{
    op->next = *owner;
    if (op->next != NULL)
        op->next->list_link = &op->next;
    op->list_link = owner;
    *owner = op;
}

static void op_unlink(struct fabric_op *op)
{
    if (op->list_link == NULL)
        return;
    *op->list_link = op->next;
    if (op->next != NULL)
        op->next->list_link = op->list_link;
    op->list_link = NULL;
}

struct fabric_op *fabric_op_take(struct fabric *fabric, struct fabric_op **owner)
{
    if (fabric->free_ops == NULL) {
        struct fabric_slab *slab = calloc(1, sizeof(*slab));
        if (slab == NULL)
            return NULL;
        slab->next = fabric->slabs;
        fabric->slabs = slab;
        for (size_t i = 0; i < FABRIC_OPS_SLAB; i++) {
            slab->ops[i].next = fabric->free_ops;
            fabric->free_ops = &slab->ops[i];
        }
    }
    struct fabric_op *op = fabric->free_ops;
    fabric->free_ops = op->next;
    *op = (struct fabric_op){.fabric = fabric};
    op_link(op, owner);
    return op;
}

void fabric_op_give(struct fabric_op *op)
{
    op_unlink(op);
    fabric_slot_drop(op->slot);
    op->slot = NULL;
    op->link = NULL;
    op->next = op->fabric->free_ops;
    op->fabric->free_ops = op;
}

void fabric_ops_orphan(struct fabric_op **owner)
{
    while (*owner != NULL) {
        struct fabric_op *op = *owner;
        op_unlink(op);
        op->link = NULL;
    }
}
