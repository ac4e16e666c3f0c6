/* plan_memo: see the header. The journal is text with one line for each attempt: the two kinds of
 * machines, the two counts, whether machines that do both phases use the split of prompt machines,
 * the rate, and whether the SLO was met. */
#include "tools/plan/memo.h"

#include "common/random.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD      "cleave-plan 2 %016" PRIx64 "\n"
#define LINE_MOST 128

static bool entry_matches(const struct plan_memo_entry *entry, const struct plan_mix *mix,
                          double rate)
{
    return entry->rate_per_s == rate && entry->mix.prompt_kind == mix->prompt_kind &&
           entry->mix.token_kind == mix->token_kind &&
           entry->mix.prompt_count == mix->prompt_count &&
           entry->mix.token_count == mix->token_count &&
           entry->mix.prompt_layer_split == mix->prompt_layer_split;
}

/* Returns the entry of this mix and rate, or the empty entry where it belongs. */
static struct plan_memo_entry *entry_of(const struct plan_memo *memo, const struct plan_mix *mix,
                                        double rate_per_s)
{
    uint64_t bits;
    memcpy(&bits, &rate_per_s, sizeof(bits));
    uint64_t at = random_at((uint64_t)mix->prompt_count << 32 | mix->token_count,
                            bits ^ ((uint64_t)mix->prompt_layer_split << 16 |
                                    (uint64_t)mix->prompt_kind << 8 | mix->token_kind));
    for (;; at++) {
        struct plan_memo_entry *entry = &memo->entries[at & (memo->capacity - 1)];
        if (entry->rate_per_s == 0 || entry_matches(entry, mix, rate_per_s))
            return entry;
    }
}

static enum status entries_grow(struct plan_memo *memo)
{
    struct plan_memo_entry *old = memo->entries;
    uint64_t old_room = memo->capacity;
    struct plan_memo_entry *entries = calloc(old_room == 0 ? 1024 : 2 * old_room, sizeof(*entries));
    if (entries == NULL)
        return ST_NO_MEMORY;
    memo->entries = entries;
    memo->capacity = old_room == 0 ? 1024 : 2 * old_room;
    for (uint64_t i = 0; i < old_room; i++)
        if (old[i].rate_per_s != 0)
            *entry_of(memo, &old[i].mix, old[i].rate_per_s) = old[i];
    free(old);
    return ST_OK;
}

/* *new_out: true if the entry did not exist. */
static enum status entry_put(struct plan_memo *memo, const struct plan_memo_entry *entry,
                             bool *new_out)
{
    enum status status = 2 * memo->count >= memo->capacity ? entries_grow(memo) : ST_OK;
    if (status != ST_OK)
        return status;
    struct plan_memo_entry *place = entry_of(memo, &entry->mix, entry->rate_per_s);
    *new_out = place->rate_per_s == 0;
    if (*new_out) {
        *place = *entry;
        memo->count++;
    }
    return ST_OK;
}

/* ---- the journal ---- */

static bool line_read(const char *line, struct plan_memo_entry *out)
{
    unsigned met;
    int used = 0;
    *out = (struct plan_memo_entry){.met = false};
    if (sscanf(line, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %lf %u%n",
               &out->mix.prompt_kind, &out->mix.token_kind, &out->mix.prompt_count,
               &out->mix.token_count, &out->mix.prompt_layer_split, &out->rate_per_s, &met,
               &used) != 7 ||
        strcmp(line + used, "\n") != 0)
        return false;
    out->met = met == 1;
    return met <= 1 && out->rate_per_s > 0 && out->mix.prompt_count > 0 &&
           out->mix.prompt_kind < PLAN_KINDS_MAX && out->mix.token_kind < PLAN_KINDS_MAX;
}

/* Reads from after the head to the last whole line. *end_out: position of the next line to write.
 */
static enum status lines_read(struct plan_memo *memo, FILE *file, const char *path, long *end_out,
                              struct error *error)
{
    char line[LINE_MOST];
    bool new;
    for (uint64_t number = 2;; number++) {
        struct plan_memo_entry entry;
        *end_out = ftell(file);
        if (fgets(line, sizeof(line), file) == NULL)
            return ST_OK;
        if (strchr(line, '\n') == NULL && feof(file))
            return ST_OK; /* This line was being written when the plan was stopped. */
        if (!line_read(line, &entry))
            return error_set(error, ST_INVALID, "%s:%" PRIu64 ": not a line of a plan's state",
                             path, number);
        if (entry_put(memo, &entry, &new) != ST_OK)
            return error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
        memo->entries_read = memo->count;
    }
}

static enum status journal_read(struct plan_memo *memo, const char *path, uint64_t inputs_hash,
                                struct error *error)
{
    char head[LINE_MOST];
    char line[LINE_MOST];
    FILE *file = memo->journal;
    snprintf(head, sizeof(head), HEAD, inputs_hash);
    bool none = fgets(line, sizeof(line), file) == NULL;
    if (none || (feof(file) && strncmp(line, head, strlen(line)) == 0)) {
        /* The file is new, or the plan was stopped while the head was being written. */
        if (fseek(file, 0, SEEK_SET) != 0 || fputs(head, file) < 0 || fflush(file) != 0)
            return error_set(error, ST_IO, "%s: %s", path, strerror(errno));
        return ST_OK;
    }
    if (strncmp(line, "cleave-plan ", 12) != 0)
        return error_set(error, ST_INVALID, "%s:1: not the state of a plan", path);
    if (strcmp(line, head) != 0)
        return error_set(error, ST_MISMATCH,
                         "%s: the state of another plan (other requests, hardware, times or "
                         "model): remove it, or name another file",
                         path);
    long end;
    enum status status = lines_read(memo, file, path, &end, error);
    if (status == ST_OK && (ftruncate(fileno(file), end) != 0 || fseek(file, end, SEEK_SET) != 0))
        status = error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    return status;
}

enum status plan_memo_open(struct plan_memo *memo, const char *path, uint64_t inputs_hash,
                           struct error *error)
{
    *memo = (struct plan_memo){.journal = NULL};
    pthread_mutex_init(&memo->mutex, NULL);
    enum status status = entries_grow(memo);
    if (status != ST_OK)
        return error_set(error, status, "out of memory");
    if (path == NULL)
        return ST_OK;
    memo->journal = fopen(path, "r+");
    if (memo->journal == NULL && errno == ENOENT)
        memo->journal = fopen(path, "w+");
    if (memo->journal == NULL)
        status = error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    else
        status = journal_read(memo, path, inputs_hash, error);
    if (status != ST_OK)
        plan_memo_close(memo, path, NULL);
    return status;
}

enum status plan_memo_close(struct plan_memo *memo, const char *path, struct error *error)
{
    bool failed = memo->write_failed;
    if (memo->journal != NULL)
        failed |= fclose(memo->journal) != 0;
    memo->journal = NULL;
    free(memo->entries);
    memo->entries = NULL;
    pthread_mutex_destroy(&memo->mutex);
    return failed ? error_set(error, ST_IO, "%s: could not be written", path) : ST_OK;
}

/* ---- the table ---- */

bool plan_memo_find(struct plan_memo *memo, const struct plan_mix *mix, double rate_per_s,
                    bool *met_out)
{
    pthread_mutex_lock(&memo->mutex);
    const struct plan_memo_entry *entry = entry_of(memo, mix, rate_per_s);
    bool found = entry->rate_per_s != 0;
    if (found)
        *met_out = entry->met;
    pthread_mutex_unlock(&memo->mutex);
    return found;
}

enum status plan_memo_add(struct plan_memo *memo, const struct plan_mix *mix, double rate_per_s,
                          bool met)
{
    bool new = false;
    const struct plan_memo_entry entry = {*mix, rate_per_s, met};
    pthread_mutex_lock(&memo->mutex);
    enum status status = entry_put(memo, &entry, &new);
    if (status == ST_OK && new && memo->journal != NULL)
        memo->write_failed |= fprintf(memo->journal, "%u %u %u %u %u %.17g %d\n", mix->prompt_kind,
                                      mix->token_kind, mix->prompt_count, mix->token_count,
                                      mix->prompt_layer_split, rate_per_s, met) < 0 ||
                              fflush(memo->journal) != 0;
    pthread_mutex_unlock(&memo->mutex);
    return status;
}
