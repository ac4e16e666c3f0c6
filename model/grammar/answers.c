/* answers: see the header. */
#include "model/grammar/answers.h"

#include "model/grammar/turns.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ENTRIES_MAX TURNS_MAX

/* Most work (grammar.h) of a mask in a batch whose masks have already taken BATCH_WORK_MAX. The
 * first mask of an ordinary constraint takes less than half of BATCH_LATE_WORK. */
#define BATCH_WORK_MAX  (1u << 28)
#define BATCH_LATE_WORK (1u << 21)

/* A constraint is large if it has more bytes than LARGE_BYTES when it is compiled. All large
 * constraints in use together leave a quarter of the cache to others, so that a client with large
 * constraints cannot keep ordinary constraints of other clients out. */
#define LARGE_BYTES     (1u << 20)
#define LARGE_BYTES_MAX (GRAMMAR_CACHE_BYTES / 4 * 3)

struct constraint {         /* A constraint in the cache. */
    struct turns_item wait; /* Its key is that of the first request with the constraint. */
    struct constraint *next;
    char *text;
    uint32_t bytes;
    uint64_t used_at; /* Number of the latest use. */
    uint32_t users;   /* Open answers. */
    bool done;        /* The thread has compiled it; `grammar` NULL = `status` and `error`. */
    enum status status;
    struct error error;
    struct grammar *grammar;
    size_t compiled_bytes; /* Memory of the grammar before its first use. */
};

struct grammar_cache {
    grammar_vocabulary_make *make; /* Called by the thread; `self` is its first argument. */
    void *self;
    /* Made by the thread before the first constraint is `done`; NULL = `vocabulary_status` and
     * `vocabulary_error` say why there is none. */
    struct grammar_vocabulary *vocabulary;
    enum status vocabulary_status;
    struct error vocabulary_error;
    struct constraint *constraints; /* The loop thread's; the thread gets one at a time. */
    uint32_t count;
    uint64_t uses;
    uint64_t batch_work; /* Work of the masks since grammar_cache_batch_begin. */
    pthread_t thread;
    pthread_mutex_t mutex; /* Guards `done` of all constraints, `waiting` and `stop`. */
    pthread_cond_t changed;
    struct turns waiting;
    bool stop;
    int fd;            /* eventfd; the thread writes it before it counts in `ended`. */
    atomic_uint ended; /* Compilations that have ended. */
    uint32_t seen;     /* Value of `ended` at the last grammar_cache_ended. */
};

struct grammar_answer {
    struct grammar_cache *cache;
    uint32_t *tokens; /* Until the run is open. */
    uint32_t token_count, token_capacity;
    struct constraint *constraint; /* NULL only with an error in `status`. */
    struct grammar_run *run;       /* NULL = not yet. */
    /* After the drafted tokens, and scratch memory; NULL = there never were any drafted tokens. */
    struct grammar_run *drafted, *tried;
    uint32_t draft_count;
    uint32_t *masks[1 + LIMIT_DRAFT_TOKENS]; /* By the drafted tokens; NULL = not used yet. */
    enum status status;                      /* The first error. */
    struct error error;
};

/* ---- compiling ---- */

static void constraint_compile(struct grammar_cache *cache, struct constraint *c)
{
    c->status = cache->vocabulary_status;
    if (c->status == ST_OK)
        c->status = grammar_open(c->text, c->bytes, cache->vocabulary, &c->grammar, &c->error);
    else
        c->error = cache->vocabulary_error;
    if (c->status == ST_OK)
        c->compiled_bytes = grammar_bytes(c->grammar);
}

static void *compile_main(void *self)
{
    struct grammar_cache *cache = self;
    const uint64_t one = 1;
    pthread_setname_np(pthread_self(), "grammar");
    cache->vocabulary_status =
        cache->make(cache->self, &cache->vocabulary, &cache->vocabulary_error);
    pthread_mutex_lock(&cache->mutex);
    while (!cache->stop) {
        if (cache->waiting.count == 0) {
            pthread_cond_wait(&cache->changed, &cache->mutex);
            continue;
        }
        struct turns_item *next = turns_pop(&cache->waiting);
        struct constraint *c =
            (struct constraint *)(void *)((char *)next - offsetof(struct constraint, wait));
        pthread_mutex_unlock(&cache->mutex);
        constraint_compile(cache, c);
        pthread_mutex_lock(&cache->mutex);
        c->done = true;
        pthread_cond_broadcast(&cache->changed);
        /* In this order: otherwise the reader could count the end first and never clear the fd. */
        ssize_t written = write(cache->fd, &one, sizeof(one));
        assert(written == sizeof(one));
        (void)written;
        atomic_fetch_add(&cache->ended, 1);
    }
    pthread_mutex_unlock(&cache->mutex);
    return NULL;
}

enum status grammar_cache_open(grammar_vocabulary_make *make, void *self,
                               struct grammar_cache **out, struct error *error)
{
    struct grammar_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL)
        return error_set(error, ST_NO_MEMORY, "constraints: out of memory");
    cache->make = make;
    cache->self = self;
    cache->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (cache->fd < 0) {
        free(cache);
        return error_set(error, ST_NO_RESOURCE, "constraints: eventfd: %s", strerror(errno));
    }
    pthread_mutex_init(&cache->mutex, NULL);
    pthread_cond_init(&cache->changed, NULL);
    int failed = pthread_create(&cache->thread, NULL, compile_main, cache);
    if (failed != 0) {
        pthread_mutex_destroy(&cache->mutex);
        pthread_cond_destroy(&cache->changed);
        close(cache->fd);
        free(cache);
        return error_set(error, ST_NO_RESOURCE, "constraints: no thread: %s", strerror(failed));
    }
    *out = cache;
    return ST_OK;
}

static void constraint_free(struct constraint *c)
{
    grammar_close(c->grammar);
    free(c->text);
    free(c);
}

void grammar_cache_close(struct grammar_cache *cache)
{
    if (cache == NULL)
        return;
    pthread_mutex_lock(&cache->mutex);
    cache->stop = true;
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->mutex);
    pthread_join(cache->thread, NULL);
    while (cache->constraints != NULL) {
        struct constraint *c = cache->constraints;
        cache->constraints = c->next;
        assert(c->users == 0);
        constraint_free(c);
    }
    pthread_mutex_destroy(&cache->mutex);
    pthread_cond_destroy(&cache->changed);
    close(cache->fd);
    grammar_vocabulary_close(cache->vocabulary);
    free(cache);
}

/* ---- the cache ---- */

static bool is_done(struct grammar_cache *cache, const struct constraint *c)
{
    pthread_mutex_lock(&cache->mutex);
    bool done = c->done;
    pthread_mutex_unlock(&cache->mutex);
    return done;
}

/* Frees what the constraints have learnt since they were compiled. */
static void constraints_shrink(struct grammar_cache *cache)
{
    for (struct constraint *c = cache->constraints; c != NULL; c = c->next)
        if (is_done(cache, c) && c->grammar != NULL)
            (void)grammar_shrink(c->grammar);
}

/* Frees constraints without users, those first that were not used for the longest time, until the
 * bounds are kept; then, if that suffices, what the others have learnt. Returns false if the others
 * exceed GRAMMAR_CACHE_BYTES. */
static bool make_room(struct grammar_cache *cache)
{
    for (;;) {
        struct constraint **oldest = NULL;
        size_t bytes = 0, learnt = 0;
        for (struct constraint **at = &cache->constraints; *at != NULL; at = &(*at)->next) {
            struct constraint *c = *at;
            if (!is_done(cache, c))
                continue;
            const size_t now = c->grammar != NULL ? grammar_bytes(c->grammar) : 0;
            bytes += c->bytes + now;
            learnt += now > c->compiled_bytes ? now - c->compiled_bytes : 0;
            if (c->users == 0 && (oldest == NULL || c->used_at < (*oldest)->used_at))
                oldest = at;
        }
        if (bytes <= GRAMMAR_CACHE_BYTES && cache->count < ENTRIES_MAX)
            return true;
        if (oldest == NULL && cache->count < ENTRIES_MAX && bytes - learnt <= GRAMMAR_CACHE_BYTES) {
            constraints_shrink(cache);
            return true;
        }
        if (oldest == NULL)
            return false;
        struct constraint *c = *oldest;
        *oldest = c->next;
        cache->count--;
        constraint_free(c);
    }
}

/* Returns NULL if the cache does not have the constraint. */
static struct constraint *constraint_find(struct grammar_cache *cache, const char *text,
                                          uint32_t bytes)
{
    struct constraint *c = cache->constraints;
    while (c != NULL && (c->bytes != bytes || memcmp(c->text, text, bytes) != 0))
        c = c->next;
    if (c != NULL)
        c->used_at = ++cache->uses;
    return c;
}

/* Begins to compile the constraint if the cache does not have it. Returns NULL if the cache has no
 * room. */
static struct constraint *constraint_take(struct grammar_cache *cache, const char *text,
                                          uint32_t bytes, uint64_t key)
{
    struct constraint *c = constraint_find(cache, text, bytes);
    if (c == NULL && make_room(cache)) {
        c = calloc(1, sizeof(*c));
        if (c == NULL)
            return NULL;
        c->text = malloc(bytes + 1u);
        if (c->text == NULL) {
            free(c);
            return NULL;
        }
        memcpy(c->text, text, bytes);
        c->bytes = bytes;
        c->wait.key = key;
        c->used_at = ++cache->uses;
        c->next = cache->constraints;
        cache->constraints = c;
        cache->count++;
        pthread_mutex_lock(&cache->mutex);
        turns_push(&cache->waiting, &c->wait);
        pthread_cond_broadcast(&cache->changed);
        pthread_mutex_unlock(&cache->mutex);
    }
    return c;
}

bool grammar_cache_prepare(struct grammar_cache *cache, const char *text, uint32_t bytes,
                           uint64_t key)
{
    if (cache == NULL || bytes == 0)
        return true;
    const struct constraint *c = constraint_take(cache, text, bytes, key);
    return c == NULL || is_done(cache, c);
}

int grammar_cache_fd(const struct grammar_cache *cache)
{
    return cache->fd;
}

void grammar_cache_batch_begin(struct grammar_cache *cache)
{
    if (cache != NULL)
        cache->batch_work = 0;
}

bool grammar_cache_ended(struct grammar_cache *cache)
{
    uint64_t count;
    const uint32_t ended = cache != NULL ? atomic_load(&cache->ended) : 0;
    if (cache == NULL || ended == cache->seen)
        return false;
    cache->seen = ended;
    ssize_t got = read(cache->fd, &count, sizeof(count));
    (void)got; /* it only clears the descriptor */
    return true;
}

/* ---- answers ---- */

/* Returns false if the constraint is large, no answer uses it, and the large constraints in use
 * leave no room for it. */
static bool may_use(struct grammar_cache *cache, const struct constraint *wanted)
{
    size_t bytes = 0;
    if (wanted->users > 0 || !is_done(cache, wanted) || wanted->compiled_bytes <= LARGE_BYTES)
        return true;
    for (const struct constraint *c = cache->constraints; c != NULL; c = c->next)
        if (c->users > 0 && is_done(cache, c) && c->compiled_bytes > LARGE_BYTES)
            bytes += c->compiled_bytes;
    return bytes + wanted->compiled_bytes <= LARGE_BYTES_MAX;
}

enum status grammar_answer_open(struct grammar_cache *cache, const char *text, uint32_t bytes,
                                const uint32_t *tokens, uint32_t token_count,
                                struct grammar_answer **out)
{
    struct grammar_answer *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return ST_NO_MEMORY;
    a->cache = cache;
    a->token_capacity = token_count + 8;
    a->tokens = malloc(a->token_capacity * sizeof(*a->tokens));
    if (a->tokens == NULL) {
        grammar_answer_close(a);
        return ST_NO_MEMORY;
    }
    if (token_count > 0)
        memcpy(a->tokens, tokens, token_count * sizeof(*tokens));
    a->token_count = token_count;
    a->constraint = cache != NULL ? constraint_find(cache, text, bytes) : NULL;
    if (a->constraint != NULL && !may_use(cache, a->constraint))
        a->constraint = NULL;
    if (a->constraint != NULL)
        a->constraint->users++;
    else if (cache == NULL)
        a->status = error_set(&a->error, ST_UNSUPPORTED, "this machine's model has no tokenizer");
    else
        a->status = error_set(&a->error, ST_NO_RESOURCE,
                              "the constraints of other answers take all memory for constraints");
    *out = a;
    return ST_OK;
}

void grammar_answer_close(struct grammar_answer *a)
{
    if (a == NULL)
        return;
    grammar_run_close(a->run);
    grammar_run_close(a->drafted);
    grammar_run_close(a->tried);
    if (a->constraint != NULL)
        a->constraint->users--;
    free(a->tokens);
    for (uint32_t i = 0; i <= LIMIT_DRAFT_TOKENS; i++)
        free(a->masks[i]);
    free(a);
}

void grammar_answer_add(struct grammar_answer *a, uint32_t token)
{
    assert(a->draft_count == 0);
    if (a->status != ST_OK)
        return;
    if (a->run != NULL) {
        a->status = grammar_run_token(a->run, token, &a->error);
        return;
    }
    if (a->token_count == a->token_capacity) {
        uint32_t more = 2 * a->token_capacity;
        uint32_t *tokens = realloc(a->tokens, more * sizeof(*tokens));
        if (tokens == NULL) {
            a->status = error_set(&a->error, ST_NO_MEMORY, "the constraint: out of memory");
            return;
        }
        a->tokens = tokens;
        a->token_capacity = more;
    }
    a->tokens[a->token_count++] = token;
}

static enum status answer_begin(struct grammar_answer *a)
{
    struct grammar_cache *cache = a->cache;
    const struct constraint *c = a->constraint;
    pthread_mutex_lock(&cache->mutex);
    while (!c->done)
        pthread_cond_wait(&cache->changed, &cache->mutex);
    pthread_mutex_unlock(&cache->mutex);
    a->error = c->error;
    enum status status = c->status;
    if (status == ST_OK)
        status = grammar_run_open(c->grammar, &a->run, &a->error);
    if (status != ST_OK)
        return status;
    for (uint32_t i = 0; i < a->token_count && status == ST_OK; i++)
        status = grammar_run_token(a->run, a->tokens[i], &a->error);
    free(a->tokens);
    a->tokens = NULL;
    return status;
}

/* Opens the run, if it is not open. Returns false after an error. */
static bool answer_ready(struct grammar_answer *a)
{
    if (a->status == ST_OK && a->run == NULL)
        a->status = answer_begin(a);
    return a->status == ST_OK;
}

/* Opens the runs for drafted tokens, if they are not open. Returns false after an error. */
static bool drafts_ready(struct grammar_answer *a)
{
    struct error error;
    return answer_ready(a) &&
           (a->drafted != NULL ||
            grammar_run_open(a->constraint->grammar, &a->drafted, &error) == ST_OK) &&
           (a->tried != NULL ||
            grammar_run_open(a->constraint->grammar, &a->tried, &error) == ST_OK);
}

/* Returns the run after the answer and its drafted tokens. */
static struct grammar_run *latest_run(const struct grammar_answer *a)
{
    return a->draft_count > 0 ? a->drafted : a->run;
}

bool grammar_answer_draft_add(struct grammar_answer *a, uint32_t token)
{
    struct error error;
    assert(a->draft_count < LIMIT_DRAFT_TOKENS);
    if (!drafts_ready(a))
        return false;
    grammar_run_copy(a->drafted, latest_run(a));
    if (grammar_run_token(a->drafted, token, &error) != ST_OK)
        return false;
    a->draft_count++;
    return true;
}

bool grammar_answer_allows(struct grammar_answer *a, uint32_t token)
{
    struct error error;
    if (!drafts_ready(a))
        return false;
    grammar_run_copy(a->tried, latest_run(a));
    return grammar_run_token(a->tried, token, &error) == ST_OK;
}

uint32_t grammar_answer_shape(struct grammar_answer *a)
{
    return answer_ready(a) ? grammar_run_shape(latest_run(a)) : 0;
}

void grammar_answer_draft_drop(struct grammar_answer *a)
{
    a->draft_count = 0;
}

/* Bounds the work of the answer's next call in this batch. Requires that the run is open. Returns
 * the work of the constraint so far, for batch_work_end. */
static uint64_t batch_work_begin(struct grammar_answer *a)
{
    struct grammar *g = a->constraint->grammar;
    grammar_mask_work_bound(g, a->cache->batch_work < BATCH_WORK_MAX ? GRAMMAR_WORK_MASK_MAX
                                                                     : BATCH_LATE_WORK);
    return grammar_work(g);
}

static void batch_work_end(struct grammar_answer *a, uint64_t before)
{
    a->cache->batch_work += grammar_work(a->constraint->grammar) - before;
}

enum grammar_forced grammar_answer_forced(struct grammar_answer *a, uint32_t *token_out)
{
    enum grammar_forced forced = GRAMMAR_FORCED_NONE;
    struct error error;
    if (!answer_ready(a))
        return GRAMMAR_FORCED_NONE;
    const uint64_t before = batch_work_begin(a);
    if (grammar_run_forced(latest_run(a), &forced, token_out, &error) != ST_OK)
        forced = GRAMMAR_FORCED_NONE;
    batch_work_end(a, before);
    return forced;
}

/* Writes the mask without the end tokens. */
static enum status mask_write(struct grammar_run *run, uint32_t vocabulary, uint32_t *mask,
                              struct error *error)
{
    enum grammar_forced forced;
    uint32_t token;
    const enum status status = grammar_run_forced(run, &forced, &token, error);
    if (status != ST_OK)
        return status;
    if (forced != GRAMMAR_FORCED_TOKEN)
        return grammar_run_mask(run, mask, error);
    memset(mask, 0, GRAMMAR_MASK_WORDS(vocabulary) * sizeof(uint32_t));
    mask[token / 32] |= 1u << token % 32;
    return ST_OK;
}

/* Adds the end tokens where the answer may end. Returns false if no token is left. */
static bool mask_complete(const struct grammar_run *run, uint32_t vocabulary,
                          const uint32_t *end_tokens, uint32_t end_count, uint32_t *mask)
{
    const bool accepts = grammar_run_may_end(run);
    for (uint32_t i = 0; i < end_count; i++) {
        if (end_tokens[i] >= vocabulary)
            continue;
        uint32_t *word = &mask[end_tokens[i] / 32], bit = 1u << end_tokens[i] % 32;
        *word = accepts ? *word | bit : *word & ~bit;
    }
    for (uint32_t i = 0; i < GRAMMAR_MASK_WORDS(vocabulary); i++)
        if (mask[i] != 0)
            return true;
    return false;
}

enum status grammar_answer_mask(struct grammar_answer *a, const uint32_t *end_tokens,
                                uint32_t end_count, const uint32_t **mask_out, struct error *error)
{
    const uint32_t at = a->draft_count;
    if (!answer_ready(a)) {
        *error = a->error;
        return a->status;
    }
    const uint32_t vocabulary = grammar_vocabulary_count(a->cache->vocabulary);
    const uint64_t before = batch_work_begin(a);
    struct grammar_run *run = latest_run(a);
    enum status status = ST_OK;
    if (a->masks[at] == NULL)
        a->masks[at] = malloc(GRAMMAR_MASK_WORDS(vocabulary) * sizeof(uint32_t));
    if (a->masks[at] == NULL)
        status = error_set(error, ST_NO_MEMORY, "the constraint: out of memory");
    if (status == ST_OK)
        status = mask_write(run, vocabulary, a->masks[at], error);
    batch_work_end(a, before);
    if (status == ST_OK && !mask_complete(run, vocabulary, end_tokens, end_count, a->masks[at]))
        status = error_set(error, ST_UNSUPPORTED,
                           "no token of the model continues or ends the constrained text");
    if (status == ST_OK) {
        *mask_out = a->masks[at];
    } else if (at == 0) {
        a->status = status;
        a->error = *error;
    }
    return status;
}
