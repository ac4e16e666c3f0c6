/* transport: calls the implementation, and contains what all implementations share: the checks of
 * send and write, the comparison of identities, and that a disconnected peer leaves its list of
 * doomed peers. */
#include "transport/transport.h"

#include "transport/doomed.h"
#include "transport/transport_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status transport_open(const struct transport_ops *ops, const struct transport_options *options,
                           struct transport **out, struct error *error)
{
    assert(memchr(options->identity.name, 0, LIMIT_NAME_BYTES) != NULL);
    struct transport *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return error_set(error, ST_NO_MEMORY, "transport: out of memory");
    t->ops = ops;
    enum status status = ops->open(options, &t->impl, error);
    if (status != ST_OK) {
        free(t);
        return status;
    }
    *out = t;
    return ST_OK;
}

void transport_close(struct transport *t)
{
    if (t == NULL)
        return;
    t->ops->close(t->impl);
    free(t);
}

enum status transport_listen(struct transport *t, const char *address,
                             char bound_out[LIMIT_ADDRESS_BYTES], struct error *error)
{
    return t->ops->listen(t->impl, address, bound_out, error);
}

enum status transport_connect(struct transport *t, const char *address, void *user,
                              struct transport_peer **out, struct error *error)
{
    return t->ops->connect(t->impl, address, user, out, error);
}

void transport_disconnect(struct transport *t, struct transport_peer *peer)
{
    doomed_remove(peer);
    t->ops->disconnect(t->impl, peer);
}

void transport_metadata_hash_set(struct transport *t, uint64_t metadata_hash)
{
    t->ops->metadata_hash_set(t->impl, metadata_hash);
}

enum status transport_keys_set(struct transport *t, const struct secret_keys *keys,
                               struct error *error)
{
    return t->ops->keys_set(t->impl, keys, error);
}

enum status transport_send(struct transport *t, struct transport_peer *peer, const void *data,
                           size_t bytes)
{
    if (bytes > LIMIT_MESSAGE_BYTES)
        return ST_TOO_LARGE;
    return t->ops->send(t->impl, peer, data, bytes);
}

enum status transport_write(struct transport *t, struct transport_peer *peer, const void *local,
                            size_t bytes, uint64_t remote_offset)
{
    static const struct transport_request none;
    return transport_write_for(t, peer, local, bytes, remote_offset, &none);
}

enum status transport_write_for(struct transport *t, struct transport_peer *peer, const void *local,
                                size_t bytes, uint64_t remote_offset,
                                const struct transport_request *request)
{
    if (bytes > peer->region.bytes || remote_offset > peer->region.bytes - bytes)
        return ST_INVALID;
    if (bytes == 0)
        return ST_OK;
    return t->ops->write(t->impl, peer, local, bytes, remote_offset, request);
}

void transport_flush(struct transport *t, struct transport_peer *peer, uint64_t cookie)
{
    t->ops->flush(t->impl, peer, cookie);
}

void *transport_region(struct transport *t)
{
    return t->ops->region(t->impl);
}

void transport_memory(struct transport *t, struct transport_memory *out)
{
    t->ops->memory(t->impl, out);
}

const char *transport_memory_way_name(enum transport_memory_way way)
{
    static const char *const names[] = {"host", "direct", "staged", "ipc"};
    return names[way];
}

int transport_fd(struct transport *t)
{
    return t->ops->fd(t->impl);
}

void transport_progress(struct transport *t)
{
    t->ops->progress(t->impl);
}

const struct transport_identity *transport_peer_identity(const struct transport_peer *peer)
{
    return &peer->identity;
}

const struct transport_region_info *transport_peer_region(const struct transport_peer *peer)
{
    return &peer->region;
}

uint32_t transport_peer_version(const struct transport_peer *peer)
{
    return peer->version;
}

bool transport_peer_versions_equal(const struct transport_peer *peer)
{
    return peer->versions_equal;
}

const char *transport_peer_path(const struct transport_peer *peer)
{
    return peer->path;
}

const char *transport_peer_note(const struct transport_peer *peer)
{
    return peer->note;
}

uint64_t transport_peer_number(const struct transport_peer *peer)
{
    return peer->number;
}

bool transport_writes_await(struct transport *t, struct transport_peer *peer)
{
    return t->ops->writes_await(t->impl, peer);
}

void *transport_peer_user(const struct transport_peer *peer)
{
    return peer->user;
}

void transport_peer_set_user(struct transport_peer *peer, void *user)
{
    peer->user = user;
}

static const char *rope_list_text(enum transport_rope_list list)
{
    return list == TRANSPORT_ROPE_LIST_NONE    ? "none"
           : list == TRANSPORT_ROPE_LIST_SHORT ? "short"
                                               : "long";
}

enum status transport_identity_check(const struct transport_identity *first,
                                     const struct transport_identity *second, struct error *error)
{
    const struct {
        const char *name;
        uint64_t first, second;
        bool hex;
        bool machines_only;
    } fields[] = {
        {"metadata_hash", first->metadata_hash, second->metadata_hash, true, false},
        {"layer_count", first->layer_count, second->layer_count, false, true},
        {"block_tokens", first->block_tokens, second->block_tokens, false, true},
        {"block_bytes", first->block_bytes, second->block_bytes, false, true},
    };
    char texts[2][DIGEST_SHORT_BYTES];
    bool machines = first->role == TRANSPORT_MACHINE && second->role == TRANSPORT_MACHINE;
    /* A gateway with two models compares by itself. */
    if (!machines && (first->metadata_hash == 0 || second->metadata_hash == 0))
        return ST_OK;
    /* Compared before block_bytes, which depends on it. */
    if (machines && first->metadata_hash == second->metadata_hash &&
        strncmp(first->kv_dtype, second->kv_dtype, sizeof(first->kv_dtype)) != 0)
        return error_set(error, ST_MISMATCH, "%s and %s do not match: kv/dtype is %.7s and %.7s",
                         first->name, second->name, first->kv_dtype, second->kv_dtype);
    if (machines && first->metadata_hash == second->metadata_hash &&
        !digest_equal(&first->model_hash, &second->model_hash))
        return error_set(error, ST_MISMATCH, "%s and %s do not match: model_hash is %s and %s",
                         first->name, second->name,
                         digest_write(&first->model_hash, texts[0], sizeof(texts[0])),
                         digest_write(&second->model_hash, texts[1], sizeof(texts[1])));
    if (machines && first->metadata_hash == second->metadata_hash &&
        first->rope_list != second->rope_list)
        return error_set(
            error, ST_MISMATCH,
            "%s and %s do not match: the list of LongRoPE's factors is %s and %s: want "
            "one scheduler/context_tokens_max",
            first->name, second->name, rope_list_text(first->rope_list),
            rope_list_text(second->rope_list));
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].first == fields[i].second || (fields[i].machines_only && !machines))
            continue;
        const char *format = fields[i].hex ? "%s and %s do not match: %s is %016llx and %016llx"
                                           : "%s and %s do not match: %s is %llu and %llu";
        return error_set(error, ST_MISMATCH, format, first->name, second->name, fields[i].name,
                         (unsigned long long)fields[i].first, (unsigned long long)fields[i].second);
    }
    return ST_OK;
}
