/* completion: opening (check, submit), then tokens and ends as the gateway reports them, then the
 * output. completion_input.c reads the body and makes the tokens. */
#include "server/http/completion_internal.h"

#include "common/pooling.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* When more bytes than this were read, they are removed from the output. So the output does not
 * grow for ever if the reader never reads all of it. */
#define COMPACT_BYTES 65536

/* The scores of a long prompt are streamed in events of about six times this size. */
#define SCORES_EVENT_BYTES 16384

/* Sets the default of max_tokens, and checks that prompt and answer fit the context. */
static bool check_context(struct completion *c, struct api_error *error)
{
    uint32_t context = gateway_context_tokens(c->server->gateway, c->model->version);
    bool chat = api_is_chat(c->request.kind);
    uint32_t longest = 0;
    for (uint32_t i = 0; i < c->prompt_count; i++)
        longest = c->prompts[i].count > longest ? c->prompts[i].count : longest;
    int64_t least = c->request.max_tokens == 0 ? 0 : 1;
    if (longest + least > context) {
        char tokens[32];
        snprintf(tokens, sizeof(tokens), "%u tokens", longest);
        return api_context_refuse(error, api_prompt_field(c->request.kind), context, tokens);
    }
    if (c->request.max_tokens < 0)
        c->request.max_tokens = chat || context - longest < 16 ? context - longest : 16;
    if (longest + c->request.max_tokens > context) {
        const char *field = api_length_field(c->request.kind);
        api_error_set(error, 400, field,
                      "This model's maximum context length is %u tokens here; the prompt has %u "
                      "tokens and %s is %lld: together more",
                      context, longest, field, (long long)c->request.max_tokens);
        error->code = "context_length_exceeded";
        return false;
    }
    return true;
}

/* Checks that the request's stop_token_ids fit beside the model's own end tokens. */
static bool check_ends(const struct completion *c, struct api_error *error)
{
    uint32_t own[SAMPLING_ENDS_MAX];
    uint32_t count = c->request.ignore_eos ? 0 : tokenizer_end_tokens(c->model->tokenizer, own);
    if (count + c->request.sampling.end_count <= SAMPLING_ENDS_MAX)
        return true;
    return api_error_set(error, 400, "stop_token_ids",
                         "stop_token_ids has %u ids: want at most %u beside the %u that end this "
                         "model's answers",
                         c->request.sampling.end_count, SAMPLING_ENDS_MAX - count, count);
}

/* --- tokens and ends --- */

void choice_prompt_count(struct choice *choice, uint32_t cached)
{
    struct completion *c = choice->completion;
    struct token_prompt *prompt = &c->prompts[choice->prompt - c->prompts];
    if (prompt->computed)
        return;
    prompt->computed = true;
    c->prompt_tokens_computed += prompt->count;
    if (c->ledger_entry == NULL)
        return;
    c->ledger_entry->prompt_tokens = c->prompt_tokens_computed;
    c->ledger_entry->cached_tokens += cached;
}

static const char *finish_name(const struct completion *c)
{
    static const char *const names[] = {"left", "stop", "length"};
    if (c->error.status != 0)
        return "error";
    if (!c->finished)
        return "left";
    return choice_ended_with_calls(c->choices) ? "tool_calls" : names[c->choices->finish];
}

/* Ends the answer in the ledger, before the client can see its end. An answer for which nothing was
 * computed gets no line. */
static void ledger_settle(struct completion *c)
{
    const struct completion_usage usage = completion_usage(c);
    struct ledger_entry *entry = c->ledger_entry;
    c->ledger_entry = NULL;
    if (entry == NULL)
        return;
    bool good = c->finished && c->error.status == 0;
    if (!good && c->prompt_tokens_computed == 0) {
        ledger_drop(c->server->ledger, entry);
        return;
    }
    entry->prompt_tokens = good ? usage.prompt : c->prompt_tokens_computed;
    entry->cached_tokens = usage.cached;
    entry->answer_tokens = usage.generated;
    bool begun = c->request.stream && c->output_begun;
    ledger_end(c->server->ledger, entry, good || begun ? 200 : c->error.status, finish_name(c));
}

static void complete(struct completion *c)
{
    if (c->finished)
        return;
    c->finished = true;
    if (c->request.stream && c->output_begun)
        completion_write_stream_end(c);
    else if (c->error.status == 0) {
        completion_choices_select(c);
        completion_write_body(c);
    }
    if (c->output.broken && c->error.status == 0)
        api_error_set(&c->error, 503, NULL, "out of memory");
    ledger_settle(c);
    c->output_begun = true;
}

/* Ends the count of the choice among its key's answers in flight. */
static void choice_settle(struct choice *choice)
{
    const struct completion *c = choice->completion;
    if (choice->in_flight_counted)
        api_keys_answer_end(c->server->keys, c->api_key_index,
                            choice->charged ? choice->charged_tokens : 0);
    choice->in_flight_counted = false;
}

/* Returns the charge for the answer and its prompt to its key. */
static void choice_refund(struct choice *choice)
{
    struct completion *c = choice->completion;
    if (choice->charged)
        api_keys_answer_return(c->server->keys, c->api_key_index, choice->charged_tokens);
    choice->charged = false;
}

static void choice_end(struct choice *choice)
{
    struct completion *c = choice->completion;
    if (choice->ended)
        return;
    choice_settle(choice);
    choice->ended = true;
    assert(c->open_choices > 0);
    if (--c->open_choices == 0)
        complete(c);
}

/* Adds the bytes of one detokenised piece, up to a stop string. As in vLLM, the first min_tokens
 * tokens contain no stop strings. */
static void choice_add_text(struct choice *choice, const char *piece, size_t bytes)
{
    struct completion *c = choice->completion;
    size_t shown = 0;
    char small[1024];
    char *room = small;
    if (choice->stops.held_bytes + bytes > sizeof(small))
        room = malloc(choice->stops.held_bytes + bytes);
    if (room == NULL) {
        c->output.broken = true; /* the answer must not look complete */
        return;
    }
    static const struct stop_strings none = {0};
    bool early = choice->tokens <= c->request.sampling.output_tokens_min;
    bool stopped = stop_matcher_feed(&choice->stops, early ? &none : &c->request.stops, piece,
                                     bytes, room, &shown);
    if (stopped && c->request.include_stop)
        shown += c->request.stops.lengths[choice->stops.found_index];
    choice_text_add(choice, room, shown);
    if (room != small)
        free(room);
    if (stopped) {
        choice->stop_string = (uint32_t)choice->stops.found_index;
        choice->finish = CHOICE_STOP;
        choice->release_due = true;
    }
}

static void choice_finish_text(struct choice *choice)
{
    char tail[LIMIT_STOP_BYTES];
    size_t bytes = detokenizer_finish(&choice->detokenizer, tail);
    if (bytes > 0)
        choice_add_text(choice, tail, bytes);
    if (choice->release_due)
        return; /* the last bytes completed a stop string */
    bytes = stop_matcher_finish(&choice->stops, tail);
    choice_text_add(choice, tail, bytes);
}

static bool choice_is_reasoning(const struct choice *choice)
{
    return choice->parser != NULL && answer_parser_in_reasoning(choice->parser);
}

static void feed_token(struct choice *choice, const struct message_token *token)
{
    struct completion *c = choice->completion;
    size_t bytes = 0;
    const char *piece = tokenizer_piece(c->model->tokenizer, token->id, &bytes);
    if (piece == NULL)
        return;
    struct text *scratch = &c->token_text;
    text_clear(scratch);
    size_t room = DETOKENIZER_OUT_BYTES(bytes);
    if (scratch->capacity < room) {
        char *data = realloc(scratch->data, room);
        if (data == NULL) {
            c->output.broken = true; /* the answer must not look complete */
            return;
        }
        scratch->data = data;
        scratch->capacity = room;
    }
    bool skip = c->request.skip_special_tokens && !choice_needs_token(choice, token->id);
    bool reasoning = choice_is_reasoning(choice);
    bytes =
        detokenizer_feed(&choice->detokenizer, c->model->tokenizer, token->id, skip, scratch->data);
    choice_add_text(choice, scratch->data, bytes);
    choice->reasoning_tokens += reasoning || choice_is_reasoning(choice);
}

static void on_summary(void *self, const struct gateway_summary *summary)
{
    struct choice *choice = self;
    struct completion_facts *facts = choice->completion->facts;
    facts->resumed += summary->resumed;
    facts->last_summary = *summary;
    facts->summarised = true;
}

static bool is_stop_token(const struct completion *c, uint32_t id)
{
    for (uint32_t i = 0; i < c->request.sampling.end_count; i++)
        if (c->request.sampling.end_tokens[i] == id)
            return true;
    return false;
}

static void on_token(void *self, const struct message_token *token)
{
    struct choice *choice = self;
    struct completion *c = choice->completion;
    if (choice->ended)
        return;
    c->output_begun = true;
    if (token->scored) {
        uint32_t id = token->index < choice->prompt->count ? choice->prompt->ids[token->index] : 0;
        choice_prompt_count(choice, 0);
        if (token->index < choice->prompt->count && c->request.prompt_logprobs >= 0)
            choice_add_prompt_logprob(choice, id, token);
        if (token->index < choice->prompt->count && c->request.echo &&
            c->request.sampling.logprobs >= 0)
            choice_add_logprob(choice, id, token);
        /* The rest is shown with the first token, or at the end. */
        if (c->request.stream && choice->logprob_tokens.bytes >= SCORES_EVENT_BYTES) {
            completion_write_event(c, choice);
            c->changed(c->self);
        }
        return;
    }
    if (choice->tokens++ == 0) {
        choice->cached_tokens = token->cached_tokens;
        choice_prompt_count(choice, token->cached_tokens);
    }
    if (c->ledger_entry != NULL)
        c->ledger_entry->answer_tokens++;
    api_keys_tokens_charge(c->server->keys, c->api_key_index, 1);
    choice_add_id(choice, token->id);
    if (c->request.sampling.logprobs >= 0)
        choice_add_logprob(choice, token->id, token);
    choice->logprob_sum += (double)token->logprob;
    if (token->finish == FINISH_STOP && is_stop_token(c, token->id))
        choice->stop_token = token->id;
    /* The end token itself is not part of the text. */
    if (token->finish != FINISH_STOP || c->request.include_stop)
        feed_token(choice, token);
    if (token->finish != FINISH_NONE && choice->finish == CHOICE_RUNNING) {
        choice_finish_text(choice);
        if (choice->finish == CHOICE_RUNNING)
            choice->finish = token->finish == FINISH_STOP ? CHOICE_STOP : CHOICE_LENGTH;
        choice->release_due = false; /* the gateway ends it by itself */
    }
    if (choice->finish != CHOICE_RUNNING && choice->parser != NULL)
        answer_parser_finish(choice->parser);
    if (c->request.stream || c->form != NULL)
        completion_write_event(c, choice);
    if (choice->finish != CHOICE_RUNNING)
        choice_end(choice);
    c->changed(c->self);
}

/* Fails the whole completion when one of its choices fails. */
static void completion_fail(struct completion *c, unsigned status, const char *text,
                            uint32_t retry_after_s)
{
    if (c->finished)
        return;
    api_error_set(&c->error, status, NULL, "%s", text);
    c->error.code = status == 401 ? "invalid_api_key" : NULL;
    c->error.retry_after_s = retry_after_s;
    for (uint32_t i = 0; i < c->choice_count; i++) {
        choice_settle(&c->choices[i]);
        c->choices[i].ended = true;
        c->choices[i].release_due = c->choices[i].request != NULL;
    }
    c->open_choices = 0;
    complete(c);
}

void completion_revoke(struct completion *c)
{
    if (c->finished)
        return;
    completion_fail(c, 401, API_KEY_REVOKED_TEXT, 0);
    c->changed(c->self);
}

static void on_ended(void *self, enum gateway_end end, const char *text, uint32_t retry_after_s)
{
    struct choice *choice = self;
    struct completion *c = choice->completion;
    choice->request = NULL;
    choice->release_due = false;
    if (choice->ended)
        return;
    if (end == GATEWAY_REFUSED)
        choice_refund(choice);
    if (end == GATEWAY_REFUSED && retry_after_s > 0) {
        completion_fail(c, 429, text, retry_after_s);
    } else if (end == GATEWAY_REFUSED) {
        completion_fail(c, 400, text, 0);
    } else if (end == GATEWAY_BLAMED) {
        completion_fail(c, 500, text, 0);
        c->error.final = true;
    } else if (end == GATEWAY_FAILED) {
        completion_fail(c, 503, text, retry_after_s > 0 ? retry_after_s : 1);
    } else { /* only scored or pooled, or nothing to compute */
        choice->finish = CHOICE_LENGTH;
        c->output_begun = true;
        if (c->request.stream || c->form != NULL)
            completion_write_event(c, choice);
        choice_end(choice);
    }
    c->changed(c->self);
}

/* --- opening: choices --- */

static void sampling_fill(const struct completion *c, const struct choice *choice,
                          struct sampling *out)
{
    const struct api_request *r = &c->request;
    *out = r->sampling;
    out->seed = c->seed + choice->index;
    out->output_tokens_max = (uint32_t)r->max_tokens;
    if (r->prompt_logprobs > out->logprobs)
        out->logprobs = r->prompt_logprobs;
    if (r->best_of > r->n && out->logprobs < 0)
        out->logprobs = 0;
    out->end_count = r->ignore_eos ? 0 : tokenizer_end_tokens(c->model->tokenizer, out->end_tokens);
    for (uint32_t i = 0; i < r->sampling.end_count; i++)
        out->end_tokens[out->end_count++] = r->sampling.end_tokens[i];
}

/* Returns the salt of the request's cached prefixes: requests share prefixes only with requests of
 * an equal salt. It depends on server/prefix_cache_scope, on the request's cache_salt, and on the
 * adapter. No client can choose a cache_salt that gives another client's salt (SHA-256). */
static uint64_t prefix_salt(const struct completion *c)
{
    const char *scope = c->server->config->server.prefix_cache_scope;
    const struct api_key_settings *settings = api_keys_settings(c->server->keys, c->api_key_index);
    char name[2 + LIMIT_KEY_NAME_BYTES] = "";
    uint8_t salted[sizeof(name) + SECRET_HASH_BYTES + ADAPTER_NAME_BYTES] = {0};
    const uint32_t adapter = c->request.sampling.adapter;
    uint8_t hash[SECRET_HASH_BYTES];
    uint64_t salt;
    bool grouped = settings != NULL && strcmp(scope, "group") == 0 && settings->cache_group[0] != 0;
    if (settings != NULL && strcmp(scope, "all") != 0)
        snprintf(name, sizeof(name), "%s %s", grouped ? "g" : "k",
                 grouped ? settings->cache_group : settings->name);
    if (name[0] == 0 && !c->request.has_cache_salt && adapter == 0)
        return 0;
    memcpy(salted, name, strlen(name));
    if (c->request.has_cache_salt)
        memcpy(salted + sizeof(name), c->request.cache_salt_hash, SECRET_HASH_BYTES);
    /* KV computed with an adapter differs. Without an adapter, these bytes stay 0. */
    if (adapter > 0)
        snprintf((char *)salted + sizeof(name) + SECRET_HASH_BYTES, ADAPTER_NAME_BYTES, "%s",
                 served_model_name(c->model, adapter));
    secret_hash(salted, sizeof(salted), hash);
    memcpy(&salt, hash, sizeof(salt));
    return salt != 0 ? salt : 1;
}

/* Returns true if the log-probabilities of the prompt's tokens are wanted. */
static bool wants_scores(const struct completion *c, const struct choice *choice)
{
    bool echoed = c->request.echo && c->request.sampling.logprobs >= 0;
    return (echoed || c->request.prompt_logprobs >= 0) && choice->prompt->count > 1;
}

static bool submit_choice(struct completion *c, struct choice *choice, struct api_error *error)
{
    if (c->request.echo)
        choice_echo_prompt(choice);
    if (c->request.prompt_logprobs >= 0)
        choice_add_prompt_logprob(choice, choice->prompt->ids[0], NULL);
    const struct api_key_settings *settings = api_keys_settings(c->server->keys, c->api_key_index);
    bool score = wants_scores(c, choice);
    if (c->request.max_tokens == 0 && !score && c->pooling == POOLING_NONE) { /* nothing to do */
        on_ended(choice, GATEWAY_DONE, "", 0);
        return true;
    }
    struct gateway_submit submit = {
        .version = c->model->version,
        .client_id = c->request_id,
        .answer_id = c->id,
        .key_name = settings != NULL ? settings->name : NULL,
        .model_name = c->facts->model,
        .prompt = choice->prompt->ids,
        .prompt_count = choice->prompt->count,
        .token_rules = c->rules.words,
        .token_rule_words = c->rules.count,
        .score_prompt = score,
        .pooling = c->pooling,
        .transfer_mode = (uint8_t)c->request.transfer,
        .arrived_us = c->arrived_us,
        .key = c->api_key_index,
        .key_hash = settings != NULL ? settings->name_hash : 0,
        .prefix_salt = prefix_salt(c),
        .weight = settings != NULL ? settings->weight : 1,
        .priority = c->request.priority,
        .constraint = c->request.constraint.text,
        .constraint_bytes = c->request.constraint.bytes,
        .client = {.token = on_token,
                   .event = c->request.life_events ? completion_on_event : NULL,
                   .embedding = completion_on_embedding,
                   .summarise = on_summary,
                   .ended = on_ended,
                   .self = choice},
    };
    sampling_fill(c, choice, &submit.sampling);
    enum status status = gateway_submit(c->server->gateway, &submit, &choice->request);
    if (status == ST_OK)
        return true;
    if (status != ST_NO_RESOURCE) /* check_context has excluded ST_TOO_LARGE */
        return api_error_set(error, 503, NULL, "out of memory");
    api_error_set(error, 429, NULL, "too many requests are open here");
    error->retry_after_s = 1;
    return false;
}

static void unchanged(void *self)
{
    (void)self;
}

/* Stores the HMAC-SHA-256 of the counter, which does not reveal the counter without the secret. */
static void draw(const uint8_t secret[SECRET_HASH_BYTES], uint64_t counter,
                 uint8_t out[SECRET_HASH_BYTES])
{
    struct secret_piece piece = {&counter, sizeof(counter)};
    secret_mac(secret, SECRET_HASH_BYTES, &piece, 1, out);
}

static uint64_t seed_draw(const struct completion_server *server)
{
    uint8_t hash[SECRET_HASH_BYTES];
    uint64_t seed;
    draw(server->seed_secret, server->id_counter, hash);
    memcpy(&seed, hash, sizeof(seed));
    return seed;
}

void completion_id_draw(struct completion_server *server, uint64_t out[2])
{
    uint8_t hash[SECRET_HASH_BYTES];
    draw(server->id_secret, server->id_counter++, hash);
    memcpy(out, hash, 2 * sizeof(out[0]));
}

/* Returns true if the choice shall wait until its prompt is computed for the first choice: it then
 * finds the prompt in a prefix cache. Prompts of the same batch share nothing. */
static bool shares_prompt(const struct completion *c, const struct choice *choice)
{
    return choice->prompt->count >= 2 * c->server->config->kv.block_tokens &&
           c->request.max_tokens > 0 && !wants_scores(c, choice) &&
           gateway_prompts_shared(c->server->gateway, c->model->version);
}

/* Submits the deferred choices whose prompt is computed. */
static void submit_deferred(struct completion *c)
{
    struct api_error error = {0};
    for (uint32_t i = 0; i < c->choice_count && !c->finished; i++) {
        struct choice *choice = &c->choices[i];
        const struct choice *first = &c->choices[i / c->request.best_of * c->request.best_of];
        if (!choice->deferred || (first->tokens == 0 && !first->ended))
            continue;
        choice->deferred = false;
        if (!submit_choice(c, choice, &error))
            completion_fail(c, error.status, error.message, error.retry_after_s);
    }
}

static bool submit_choices(struct completion *c, struct api_error *error)
{
    uint64_t prompt_tokens = 0;
    c->seed = c->request.has_seed ? c->request.sampling.seed : seed_draw(c->server);
    for (uint32_t i = 0; i < c->choice_count; i++) {
        struct choice *choice = &c->choices[i];
        choice->completion = c;
        choice->index = i;
        choice->prompt = &c->prompts[i / c->request.best_of];
        choice->stop_string = choice->stop_token = STOP_NONE;
        if (choice_parts_open(choice) != ST_OK)
            return api_error_set(error, 503, NULL, "out of memory");
        if (i % c->request.best_of == 0)
            prompt_tokens += choice->prompt->count;
        else
            choice->deferred = shares_prompt(c, choice);
    }
    if (!api_keys_answers_begin(c->server->keys, c->api_key_index, c->choice_count, prompt_tokens,
                                c->arrived_us, error))
        return false;
    for (uint32_t i = 0; i < c->choice_count; i++) {
        c->choices[i].in_flight_counted = c->choices[i].charged = true;
        /* A prompt is charged once, as `usage` counts it. */
        if (i % c->request.best_of == 0)
            c->choices[i].charged_tokens = c->choices[i].prompt->count;
    }
    for (uint32_t i = 0; i < c->choice_count; i++)
        if (!c->choices[i].deferred && !submit_choice(c, &c->choices[i], error)) {
            /* None is computed: completion_close releases those that were submitted. */
            for (uint32_t j = 0; j < c->choice_count; j++)
                choice_refund(&c->choices[j]);
            return false;
        }
    return true;
}

static bool check_priority(const struct completion *c, struct api_error *error)
{
    const struct api_key_settings *settings = api_keys_settings(c->server->keys, c->api_key_index);
    if (settings == NULL || c->request.priority >= settings->priority_best)
        return true;
    return api_error_set(error, 400, "priority",
                         "priority is %d: key %s may ask for %d (lower is earlier) at best",
                         c->request.priority, settings->name, settings->priority_best);
}

/* Gives the fields that the body does not have the model's own defaults. */
static void defaults_apply(struct api_request *request, const struct sampling_defaults *defaults)
{
    struct sampling *sampling = &request->sampling;
    uint32_t wanted = request->absent_fields;
    if ((wanted & API_DEFAULT_TEMPERATURE) != 0 && defaults->temperature >= 0)
        sampling->temperature = defaults->temperature;
    if ((wanted & API_DEFAULT_TOP_P) != 0 && defaults->top_p >= 0)
        sampling->top_p = defaults->top_p;
    if ((wanted & API_DEFAULT_TOP_K) != 0 && defaults->top_k >= 0)
        sampling->top_k = (uint32_t)defaults->top_k;
    if ((wanted & API_DEFAULT_MIN_P) != 0 && defaults->min_p >= 0)
        sampling->min_p = defaults->min_p;
    if ((wanted & API_DEFAULT_REPETITION_PENALTY) != 0 && defaults->repetition_penalty >= 0)
        sampling->repetition_penalty = defaults->repetition_penalty;
}

/* The answer's id contains the request's id, so that either finds the other. */
static void id_set(struct completion *c, const char *name)
{
    snprintf(c->request_id, sizeof(c->request_id), "%s", name);
    if (c->form != NULL)
        completion_form_id(c);
    else
        snprintf(c->id, sizeof(c->id), "%s-%s", c->request.kind == API_CHAT ? "chatcmpl" : "cmpl",
                 c->request_id);
}

static void facts_begin(struct completion *c)
{
    struct completion_facts *facts = c->facts;
    uint32_t adapter = c->request.sampling.adapter;
    *facts = (struct completion_facts){
        .is_adapter = adapter > 0, .streams = c->request.stream, .choices = c->choice_count};
    snprintf(facts->answer_id, sizeof(facts->answer_id), "%s", c->id);
    snprintf(facts->model, sizeof(facts->model), "%s", served_model_name(c->model, adapter));
}

/* Begins the answer in the ledger. */
static void ledger_enter(struct completion *c)
{
    const struct api_key_settings *settings = api_keys_settings(c->server->keys, c->api_key_index);
    if (c->server->ledger != NULL)
        c->ledger_entry = ledger_begin(c->server->ledger, c->request_id, c->id,
                                       settings != NULL ? settings->name : "", c->facts->model);
}

/* Fills in what is known when no more tokens follow. */
static void facts_end(const struct completion *c)
{
    struct completion_facts *facts = c->facts;
    const struct completion_usage usage = completion_usage(c);
    bool good = c->finished && c->error.status == 0;
    facts->prompt_tokens = good ? usage.prompt : c->prompt_tokens_computed;
    facts->cached_tokens = usage.cached;
    facts->answer_tokens = usage.generated;
    if (c->error.status != 0)
        snprintf(facts->error, sizeof(facts->error), "%.127s", c->error.message);
    facts->finish = finish_name(c);
}

bool completion_open(struct completion_server *server, const struct completion_start *start,
                     struct completion **out, struct api_error *error)
{
    struct completion_input *input = start->input;
    struct served_model *model = start->model;
    struct completion *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        completion_input_free(input);
        return api_error_set(error, 503, NULL, "out of memory");
    }
    c->server = server;
    c->model = served_model_ref(model);
    c->request = input->request;
    c->prompts = input->prompts;
    c->prompt_count = input->prompt_count;
    c->rules = input->rules;
    c->format = input->format;
    c->begin = input->begin;
    free(input); /* the completion has its contents */
    c->api_key_index = start->api_key_index;
    c->arrived_us = start->arrived_us;
    c->facts = start->facts;
    c->created = (int64_t)time(NULL); /* shown to the client only */
    c->changed = unchanged; /* choices that end at once must not call back before *out is set */
    bool good = completion_form_open(c);
    if (good)
        id_set(c, start->request_id);
    if (strcmp(server->config->server.sampling_defaults, "model") == 0)
        defaults_apply(&c->request, &model->defaults);
    c->choice_count = c->prompt_count * c->request.best_of;
    c->open_choices = c->choice_count;
    c->choices = calloc(c->choice_count, sizeof(*c->choices));
    good = good && c->choices != NULL && completion_events_begin(c);
    facts_begin(c);
    if (good)
        ledger_enter(c);
    if (!good)
        api_error_set(error, 503, NULL, "out of memory");
    good = good &&
           (c->request.kind != API_EMBEDDINGS || completion_pooling_find(c, &c->pooling, error));
    good = good && check_priority(c, error) && check_context(c, error) && check_ends(c, error) &&
           submit_choices(c, error);
    if (!good) {
        completion_close(c);
        return false;
    }
    c->changed = start->changed;
    c->self = start->self;
    *out = c;
    return true;
}

/* Releases the gateway request of a choice: its answer is complete if a stop string ended it, and
 * unwanted if the completion failed or the client left. */
static void choice_release(struct choice *choice)
{
    const struct completion *c = choice->completion;
    const bool stopped =
        choice->release_due && choice->finish == CHOICE_STOP && c->error.status == 0;
    gateway_release(c->server->gateway, choice->request,
                    stopped ? GATEWAY_STOPPED : GATEWAY_CLIENT_GONE);
    choice->release_due = false;
    choice->request = NULL;
}

void completion_turn(struct completion *c)
{
    submit_deferred(c);
    for (uint32_t i = 0; i < c->choice_count; i++)
        if (c->choices[i].release_due && c->choices[i].request != NULL)
            choice_release(&c->choices[i]);
}

void completion_close(struct completion *c)
{
    if (c == NULL)
        return;
    completion_events_end(c); /* a release below can cause an event of another choice */
    if (c->choices != NULL) {
        ledger_settle(c);
        facts_end(c);
    }
    for (uint32_t i = 0; c->choices != NULL && i < c->choice_count; i++) {
        struct choice *choice = &c->choices[i];
        if (choice->request != NULL)
            choice_release(choice);
        choice_settle(choice);
        choice_parts_done(choice);
        choice_texts_done(choice);
        free(choice->vector);
    }
    for (uint32_t i = 0; c->prompts != NULL && i < c->prompt_count; i++)
        free(c->prompts[i].ids);
    free(c->prompts);
    free(c->rules.words);
    free(c->choices);
    completion_form_close(c);
    text_done(&c->output);
    text_done(&c->event_head);
    text_done(&c->token_text);
    api_request_done(&c->request);
    served_model_unref(c->model);
    free(c);
}

void completion_ping_write(struct completion *c)
{
    if (c->finished)
        return;
    c->output_begun = true;
    text_string_add(&c->output, ": ping\n\n");
    c->changed(c->self);
}

bool completion_is_stream(const struct completion *c)
{
    return c->request.stream;
}

bool completion_status_known(const struct completion *c)
{
    return c->request.stream ? c->output_begun : c->finished;
}

const struct api_error *completion_error(const struct completion *c)
{
    /* A stream that has begun carries its error as an event. */
    return c->error.status != 0 && (!c->request.stream || c->output.bytes == 0) ? &c->error : NULL;
}

bool completion_finished(const struct completion *c)
{
    return c->finished;
}

const char *completion_output(const struct completion *c, size_t *bytes_out)
{
    *bytes_out = c->output.bytes - c->read_bytes;
    return c->output.data != NULL ? c->output.data + c->read_bytes : NULL;
}

void completion_output_remove(struct completion *c, size_t bytes)
{
    c->read_bytes += bytes;
    assert(c->read_bytes <= c->output.bytes);
    if (c->read_bytes == c->output.bytes || c->read_bytes > COMPACT_BYTES) {
        c->removed_bytes += c->read_bytes;
        c->output.bytes -= c->read_bytes;
        memmove(c->output.data, c->output.data + c->read_bytes, c->output.bytes);
        c->read_bytes = 0;
    }
}

uint64_t completion_output_bytes(const struct completion *c)
{
    return c->removed_bytes + c->output.bytes;
}

struct text completion_body_take(struct completion *c)
{
    struct text body = c->output;
    c->output = (struct text){0};
    return body;
}
