/* stage_message: see the header. The wire structs are the fixed parts. The arrays follow in the
 * order in which the struct in the header names them, which puts those with 64-bit members
 * first. */
#include "transport/stage_message.h"

#include "transport/message_cursor.h"
#include "transport/message_wire.h"

#include <math.h>

static_assert(sizeof(struct stage_sequence) == 20, "wire size");
static_assert(sizeof(struct stage_push) == 32, "wire size");
static_assert(sizeof(struct stage_sample) == 104, "wire size");
static_assert(sizeof(struct stage_score) == 12, "wire size");
static_assert(sizeof(struct sampled) == 12 + 8 * LIMIT_LOGPROBS, "wire size");

struct wire_open {
    uint32_t stage;
    uint32_t first_layer;
    uint32_t last_layer;
    uint32_t block_count;
    uint32_t rows_max;
    uint32_t slots;
    uint32_t context_blocks;
    uint32_t rank;
    uint32_t ranks;
    uint32_t next_count;
};
static_assert(sizeof(struct wire_open) == 40, "wire size");

/* The wire form of struct stage_group is the struct itself. */
static_assert(sizeof(struct stage_group) == 16 + STAGE_GROUP_ID_BYTES, "wire size");

struct wire_state {
    uint8_t ready;
    uint8_t padding[7];
    char text[256];
};

struct wire_job {
    uint64_t serial;
    uint32_t slot;
    uint32_t path;
    uint32_t row_count;
    uint32_t turn_us;
    uint32_t sequence_count;
    uint32_t push_count;
    uint32_t sample_count;
    uint32_t score_count;
    uint32_t token_count;
    uint32_t block_count;
    uint32_t target_count;
    uint32_t score_row_count;
};
static_assert(sizeof(struct wire_job) == 56, "wire size");

struct wire_activations {
    uint64_t serial;
    uint32_t slot;
    uint32_t padding;
};

struct wire_done {
    uint64_t serial;
    uint32_t result_count;
    uint32_t padding;
};

struct wire_target {
    uint32_t target;
    uint32_t serial;
    char name[LIMIT_NAME_BYTES];
    uint32_t count;
    uint32_t padding;
};
static_assert(sizeof(struct wire_target) == 48, "wire size");

struct wire_target_link {
    uint32_t target;
    uint32_t serial;
    uint8_t up;
    uint8_t padding[7];
    char text[256];
};

struct wire_flush {
    uint64_t cookie;
    uint32_t target;
    uint32_t path;
};

struct wire_flushed {
    uint64_t cookie;
    int32_t status;
    uint32_t padding;
};
static_assert(sizeof(struct wire_flushed) == 16, "wire size");

struct wire_writer {
    char name[LIMIT_NAME_BYTES];
    uint8_t up;
    uint8_t padding[7];
    char text[256];
};

const char *stage_message_name(enum stage_message_kind kind)
{
    static const char *const names[] = {
        [STAGE_OPEN - STAGE_OPEN] = "OPEN",
        [STAGE_STATE - STAGE_OPEN] = "STATE",
        [STAGE_JOB - STAGE_OPEN] = "JOB",
        [STAGE_ACTIVATIONS - STAGE_OPEN] = "ACTIVATIONS",
        [STAGE_DONE - STAGE_OPEN] = "DONE",
        [STAGE_TARGET - STAGE_OPEN] = "TARGET",
        [STAGE_TARGET_LINK - STAGE_OPEN] = "TARGET_LINK",
        [STAGE_FLUSH - STAGE_OPEN] = "FLUSH",
        [STAGE_FLUSHED - STAGE_OPEN] = "FLUSHED",
        [STAGE_WRITER - STAGE_OPEN] = "WRITER",
        [STAGE_LOAD - STAGE_OPEN] = "LOAD",
        [STAGE_GROUP - STAGE_OPEN] = "GROUP",
    };
    return kind >= STAGE_OPEN && kind < STAGE_KIND_END ? names[kind - STAGE_OPEN] : "unknown";
}

bool stage_message_is(const uint8_t *data, size_t bytes)
{
    uint32_t kind = 0;
    if (bytes >= sizeof(kind))
        memcpy(&kind, data, sizeof(kind));
    return kind >= STAGE_OPEN && kind < STAGE_KIND_END;
}

/* ---- encoding ---- */

struct array {
    const void *data;
    size_t bytes;
};

/* Writes the fixed part and the arrays. */
static enum status put_all(struct message_buffer *buffer, const void *fixed, size_t bytes,
                           const struct array *arrays, uint32_t count)
{
    enum status status = message_buffer_put(buffer, fixed, bytes);
    for (uint32_t i = 0; i < count && status == ST_OK; i++)
        status = message_buffer_put(buffer, arrays[i].data, arrays[i].bytes);
    return status;
}

static enum status encode_job(const struct stage_job *from, struct message_buffer *buffer)
{
    const struct wire_job to = {
        .serial = from->serial,
        .slot = from->slot,
        .path = from->path,
        .row_count = from->row_count,
        .turn_us = from->turn_us,
        .sequence_count = from->sequence_count,
        .push_count = from->push_count,
        .sample_count = from->sample_count,
        .score_count = from->score_count,
        .token_count = from->token_count,
        .block_count = from->block_count,
        .target_count = from->target_count,
        .score_row_count = from->score_row_count,
    };
    const struct array arrays[] = {
        {from->pushes, from->push_count * sizeof(from->pushes[0])},
        {from->samples, from->sample_count * sizeof(from->samples[0])},
        {from->sequences, from->sequence_count * sizeof(from->sequences[0])},
        {from->scores, from->score_count * sizeof(from->scores[0])},
        {from->tokens, from->token_count * sizeof(uint32_t)},
        {from->blocks, from->block_count * sizeof(uint32_t)},
        {from->targets, from->target_count * sizeof(uint32_t)},
        {from->score_ids, from->score_row_count * sizeof(uint32_t)},
    };
    return put_all(buffer, &to, sizeof(to), arrays, sizeof(arrays) / sizeof(arrays[0]));
}

static enum status encode_setup(const struct stage_message *message, struct message_buffer *buffer)
{
    if (message->kind == STAGE_OPEN) {
        const struct stage_open *from = &message->open;
        const struct wire_open to = {
            .stage = from->stage,
            .first_layer = from->first_layer,
            .last_layer = from->last_layer,
            .block_count = from->block_count,
            .rows_max = from->rows_max,
            .slots = from->slots,
            .context_blocks = from->context_blocks,
            .rank = from->rank,
            .ranks = from->ranks,
            .next_count = from->next.count,
        };
        const struct array next = {from->next.stages,
                                   from->next.count * sizeof(struct message_stage)};
        return put_all(buffer, &to, sizeof(to), &next, 1);
    }
    const struct stage_target *from = &message->target;
    struct wire_target to = {
        .target = from->target, .serial = from->serial, .count = from->stages.count};
    encode_text(to.name, from->name, sizeof(to.name));
    const struct array stages = {from->stages.stages,
                                 from->stages.count * sizeof(struct message_stage)};
    return put_all(buffer, &to, sizeof(to), &stages, 1);
}

static enum status encode_texts(const struct stage_message *message, struct message_buffer *buffer)
{
    if (message->kind == STAGE_STATE) {
        struct wire_state to = {.ready = message->state.ready};
        encode_text(to.text, message->state.text, sizeof(to.text));
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    if (message->kind == STAGE_WRITER) {
        struct wire_writer to = {.up = message->writer.up};
        encode_text(to.name, message->writer.name, sizeof(to.name));
        encode_text(to.text, message->writer.text, sizeof(to.text));
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    struct wire_target_link to = {.target = message->target_link.target,
                                  .serial = message->target_link.serial,
                                  .up = message->target_link.up};
    encode_text(to.text, message->target_link.text, sizeof(to.text));
    return message_buffer_put(buffer, &to, sizeof(to));
}

static enum status encode_body(const struct stage_message *message, struct message_buffer *buffer)
{
    switch (message->kind) {
    case STAGE_OPEN:
    case STAGE_TARGET:
        return encode_setup(message, buffer);
    case STAGE_STATE:
    case STAGE_WRITER:
    case STAGE_TARGET_LINK:
        return encode_texts(message, buffer);
    case STAGE_JOB:
        return encode_job(&message->job, buffer);
    case STAGE_ACTIVATIONS: {
        const struct wire_activations to = {.serial = message->activations.serial,
                                            .slot = message->activations.slot};
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case STAGE_DONE: {
        const struct stage_done *from = &message->done;
        const struct wire_done to = {.serial = from->serial, .result_count = from->result_count};
        const struct array results = {from->results, from->result_count * sizeof(from->results[0])};
        return put_all(buffer, &to, sizeof(to), &results, 1);
    }
    case STAGE_FLUSH: {
        const struct wire_flush to = {.cookie = message->flush.cookie,
                                      .target = message->flush.target,
                                      .path = message->flush.path};
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case STAGE_FLUSHED: {
        const struct wire_flushed to = {.cookie = message->flushed.cookie,
                                        .status = message->flushed.status};
        return message_buffer_put(buffer, &to, sizeof(to));
    }
    case STAGE_LOAD:
        return message_buffer_put(buffer, &message->load, sizeof(message->load));
    case STAGE_GROUP:
        return message_buffer_put(buffer, &message->group, sizeof(message->group));
    case STAGE_KIND_END:
        break;
    }
    return ST_INVALID;
}

enum status stage_message_encode(const struct stage_message *message, struct message_buffer *buffer)
{
    buffer->bytes = 0;
    struct wire_header header = {.kind = (uint32_t)message->kind};
    enum status status = message_buffer_put(buffer, &header, sizeof(header));
    if (status == ST_OK)
        status = encode_body(message, buffer);
    if (status != ST_OK)
        return status;
    if (buffer->bytes > LIMIT_MESSAGE_BYTES)
        return ST_TOO_LARGE;
    header.bytes = (uint32_t)buffer->bytes;
    memcpy(buffer->data, &header, sizeof(header));
    return ST_OK;
}

/* ---- decoding ---- */

static enum status decode_open(struct cursor *cursor, struct stage_open *to)
{
    const struct wire_open *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    *to = (struct stage_open){
        .stage = from->stage,
        .first_layer = from->first_layer,
        .last_layer = from->last_layer,
        .block_count = from->block_count,
        .rows_max = from->rows_max,
        .slots = from->slots,
        .context_blocks = from->context_blocks,
        .rank = from->rank,
        .ranks = from->ranks,
    };
    enum status status;
    if ((status = check_range(cursor, "stage", from->stage, 0, LIMIT_STAGES - 1)) != ST_OK ||
        (status = check_range(cursor, "ranks", from->ranks, 1, LIMIT_RANKS)) != ST_OK ||
        (status = check_range(cursor, "rank", from->rank, 0, (int64_t)from->ranks - 1)) != ST_OK ||
        (status = check_range(cursor, "rows_max", from->rows_max, 1, LIMIT_BATCH_TOKENS)) !=
            ST_OK ||
        (status = check_range(cursor, "slots", from->slots, 1, LIMIT_BATCHES_IN_FLIGHT)) != ST_OK ||
        (status = check_range(cursor, "context_blocks", from->context_blocks, 1,
                              LIMIT_CONTEXT_TOKENS)) != ST_OK ||
        (status = check_range(cursor, "next_count", from->next_count, 0, LIMIT_STAGES)) != ST_OK)
        return status;
    return cursor_stages(cursor, from->next_count, &to->next);
}

static enum status decode_group(struct cursor *cursor, struct stage_group *to)
{
    const struct stage_group *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    *to = *from;
    return check_text(cursor, "device", from->device, sizeof(from->device));
}

static enum status decode_target(struct cursor *cursor, struct stage_target *to)
{
    const struct wire_target *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    *to = (struct stage_target){.target = from->target, .serial = from->serial};
    memcpy(to->name, from->name, sizeof(to->name));
    enum status status;
    if ((status = check_text(cursor, "name", from->name, sizeof(from->name))) != ST_OK ||
        (status = check_range(cursor, "target", from->target, 0, LIMIT_MACHINES - 1)) != ST_OK ||
        (status = check_range(cursor, "count", from->count, 0, LIMIT_STAGES)) != ST_OK)
        return status;
    return cursor_stages(cursor, from->count, &to->stages);
}

/* Checks every sum that a reader of the arrays relies on. */
static enum status check_job(struct cursor *cursor, const struct stage_job *job)
{
    uint64_t rows = 0, blocks = 0, targets = 0, scored = 0;
    enum status status = ST_OK;
    for (uint32_t i = 0; i < job->sequence_count && status == ST_OK; i++) {
        const struct stage_sequence *s = &job->sequences[i];
        rows += s->row_count;
        blocks += s->block_count;
        status = check_range(cursor, "table", s->table, 0, LIMIT_MACHINE_REQUESTS - 1);
        if (status == ST_OK)
            status = check_range(cursor, "sequence's row_count", s->row_count, 1, job->row_count);
        if (status == ST_OK)
            status = check_range(cursor, "first_position", s->first_position, 0,
                                 LIMIT_CONTEXT_TOKENS - s->row_count);
    }
    for (uint32_t i = 0; i < job->push_count && status == ST_OK; i++) {
        const struct stage_push *p = &job->pushes[i];
        targets += p->count;
        status = check_range(cursor, "push's sequence", p->sequence, 0,
                             (int64_t)job->sequence_count - 1);
        if (status == ST_OK)
            status = check_range(cursor, "push's target", p->target, 0, LIMIT_MACHINES - 1);
        if (status == ST_OK)
            status = check_range(cursor, "push's path", p->path, 0, LIMIT_STAGE_PATHS - 1);
    }
    for (uint32_t i = 0; i < job->sample_count && status == ST_OK; i++) {
        status = check_range(cursor, "sample's row", job->samples[i].row,
                             i > 0 ? job->samples[i - 1].row + 1 : 0, (int64_t)job->row_count - 1);
        if (status == ST_OK)
            status = check_range(cursor, "masked_count", job->samples[i].masked_count, 0, 16);
        if (status == ST_OK)
            status = check_range(cursor, "logprobs", job->samples[i].logprobs, -1, LIMIT_LOGPROBS);
    }
    for (uint32_t i = 0; i < job->score_count && status == ST_OK; i++) {
        const struct stage_score *s = &job->scores[i];
        scored += s->row_count;
        status = check_range(cursor, "score's rows", (int64_t)s->first_row + s->row_count, 1,
                             job->row_count);
        if (status == ST_OK)
            status = check_range(cursor, "logprobs", s->logprobs, -1, LIMIT_LOGPROBS);
    }
    if (status != ST_OK)
        return status;
    if (rows != job->row_count)
        return check_range(cursor, "row_count", job->row_count, (int64_t)rows, (int64_t)rows);
    if (blocks != job->block_count)
        return check_range(cursor, "block_count", job->block_count, (int64_t)blocks,
                           (int64_t)blocks);
    if (targets != job->target_count)
        return check_range(cursor, "target_count", job->target_count, (int64_t)targets,
                           (int64_t)targets);
    return check_range(cursor, "score_row_count", job->score_row_count, (int64_t)scored,
                       (int64_t)scored);
}

static enum status decode_job(struct cursor *cursor, struct stage_job *to)
{
    const struct wire_job *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    *to = (struct stage_job){
        .serial = from->serial,
        .slot = from->slot,
        .path = from->path,
        .row_count = from->row_count,
        .turn_us = from->turn_us,
        .sequence_count = from->sequence_count,
        .push_count = from->push_count,
        .sample_count = from->sample_count,
        .score_count = from->score_count,
        .token_count = from->token_count,
        .block_count = from->block_count,
        .target_count = from->target_count,
        .score_row_count = from->score_row_count,
    };
    enum status status;
    if ((status = check_range(cursor, "row_count", from->row_count, 1, LIMIT_BATCH_TOKENS)) !=
            ST_OK ||
        (status = check_range(cursor, "path", from->path, 0, LIMIT_STAGE_PATHS - 1)) != ST_OK)
        return status;
    if (from->token_count != 0 && from->token_count != from->row_count)
        return check_range(cursor, "token_count", from->token_count, from->row_count,
                           from->row_count);
    to->pushes = cursor_take(cursor, from->push_count * sizeof(to->pushes[0]), "pushes");
    if (to->pushes != NULL)
        to->samples = cursor_take(cursor, from->sample_count * sizeof(to->samples[0]), "samples");
    if (to->samples != NULL)
        to->sequences =
            cursor_take(cursor, from->sequence_count * sizeof(to->sequences[0]), "sequences");
    if (to->sequences != NULL)
        to->scores = cursor_take(cursor, from->score_count * sizeof(to->scores[0]), "scores");
    if (to->scores != NULL)
        to->tokens = cursor_take(cursor, from->token_count * sizeof(uint32_t), "tokens");
    if (to->tokens != NULL)
        to->blocks = cursor_take(cursor, from->block_count * sizeof(uint32_t), "blocks");
    if (to->blocks != NULL)
        to->targets = cursor_take(cursor, from->target_count * sizeof(uint32_t), "targets");
    if (to->targets != NULL)
        to->score_ids = cursor_take(cursor, from->score_row_count * sizeof(uint32_t), "score_ids");
    return to->score_ids == NULL ? ST_INVALID : check_job(cursor, to);
}

static enum status decode_done(struct cursor *cursor, struct stage_done *to)
{
    const struct wire_done *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    *to = (struct stage_done){.serial = from->serial, .result_count = from->result_count};
    to->results = cursor_take(cursor, from->result_count * sizeof(to->results[0]), "results");
    if (to->results == NULL)
        return ST_INVALID;
    for (uint32_t i = 0; i < to->result_count; i++) {
        enum status status =
            check_range(cursor, "top_count", to->results[i].top_count, 0, LIMIT_LOGPROBS);
        if (status != ST_OK)
            return status;
    }
    return ST_OK;
}

static enum status decode_texts(struct cursor *cursor, struct stage_message *out)
{
    if (out->kind == STAGE_STATE) {
        const struct wire_state *from = cursor_take(cursor, sizeof(*from), "fields");
        if (from == NULL)
            return ST_INVALID;
        out->state.ready = from->ready != 0;
        memcpy(out->state.text, from->text, sizeof(from->text));
        return check_text(cursor, "text", from->text, sizeof(from->text));
    }
    if (out->kind == STAGE_TARGET_LINK) {
        const struct wire_target_link *from = cursor_take(cursor, sizeof(*from), "fields");
        if (from == NULL)
            return ST_INVALID;
        out->target_link = (struct stage_target_link){
            .target = from->target, .serial = from->serial, .up = from->up != 0};
        memcpy(out->target_link.text, from->text, sizeof(from->text));
        enum status status = check_range(cursor, "target", from->target, 0, LIMIT_MACHINES - 1);
        return status != ST_OK ? status
                               : check_text(cursor, "text", from->text, sizeof(from->text));
    }
    const struct wire_writer *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    out->writer.up = from->up != 0;
    memcpy(out->writer.name, from->name, sizeof(from->name));
    memcpy(out->writer.text, from->text, sizeof(from->text));
    enum status status = check_text(cursor, "name", from->name, sizeof(from->name));
    return status != ST_OK ? status : check_text(cursor, "text", from->text, sizeof(from->text));
}

static enum status decode_body(struct cursor *cursor, struct stage_message *out)
{
    switch (out->kind) {
    case STAGE_OPEN:
        return decode_open(cursor, &out->open);
    case STAGE_TARGET:
        return decode_target(cursor, &out->target);
    case STAGE_STATE:
    case STAGE_TARGET_LINK:
    case STAGE_WRITER:
        return decode_texts(cursor, out);
    case STAGE_JOB:
        return decode_job(cursor, &out->job);
    case STAGE_DONE:
        return decode_done(cursor, &out->done);
    case STAGE_ACTIVATIONS: {
        const struct wire_activations *from = cursor_take(cursor, sizeof(*from), "fields");
        if (from == NULL)
            return ST_INVALID;
        out->activations = (struct stage_activations){.serial = from->serial, .slot = from->slot};
        return check_range(cursor, "slot", from->slot, 0, LIMIT_BATCHES_IN_FLIGHT - 1);
    }
    case STAGE_FLUSH: {
        const struct wire_flush *from = cursor_take(cursor, sizeof(*from), "fields");
        if (from == NULL)
            return ST_INVALID;
        out->flush = (struct stage_flush){
            .cookie = from->cookie, .target = from->target, .path = from->path};
        enum status status = check_range(cursor, "target", from->target, 0, LIMIT_MACHINES - 1);
        return status != ST_OK ? status
                               : check_range(cursor, "path", from->path, 0, LIMIT_STAGE_PATHS - 1);
    }
    case STAGE_FLUSHED: {
        const struct wire_flushed *from = cursor_take(cursor, sizeof(*from), "fields");
        if (from == NULL)
            return ST_INVALID;
        out->flushed = (struct stage_flushed){.cookie = from->cookie, .status = from->status};
        return ST_OK;
    }
    case STAGE_LOAD: {
        const struct message_process *from = cursor_take(cursor, sizeof(*from), "fields");
        if (from == NULL)
            return ST_INVALID;
        out->load = *from;
        return ST_OK;
    }
    case STAGE_GROUP:
        return decode_group(cursor, &out->group);
    case STAGE_KIND_END:
        break;
    }
    return error_set(cursor->error, ST_INVALID, "stage message of unknown kind %u",
                     (unsigned)out->kind);
}

enum status stage_message_decode(const uint8_t *data, size_t bytes, struct stage_message *out,
                                 struct error *error)
{
    assert((uintptr_t)data % 8 == 0);
    struct cursor cursor = {.at = data, .end = data + bytes, .kind = "a stage", .error = error};
    const struct wire_header *header = cursor_take(&cursor, sizeof(*header), "header");
    if (header == NULL)
        return ST_INVALID;
    memset(out, 0, sizeof(*out));
    out->kind = header->kind;
    cursor.kind = stage_message_name(out->kind);
    if (header->bytes != bytes)
        return error_set(error, ST_INVALID, "%s message: bytes = %u: %zu have come", cursor.kind,
                         header->bytes, bytes);
    enum status status = decode_body(&cursor, out);
    if (status == ST_OK && cursor.at != cursor.end)
        status = error_set(error, ST_INVALID, "%s message: %zu bytes follow its end", cursor.kind,
                           (size_t)(cursor.end - cursor.at));
    return status;
}
