/* fake_gateway: see the header. */
#include "tests/server/http/fake_gateway.h"

#include "common/clock.h"
#include "model/text/chat.h"
#include "model/text/tokenizer.h"
#include "server/metrics/metrics.h"
#include "tests/check.h"

#include <string.h>
#include <unistd.h>

#define PACE_US 5000

struct gateway_request {
    struct gateway_request *next;
    struct gateway_submit submit;
    uint32_t prompt[65536];
    uint32_t sent;
    uint32_t scored;
    bool routed;
    int64_t next_us; /* Script 'p': when its next token is due. */
};

struct gateway {
    struct gateway_request *requests;
};

static struct gateway the_gateway;

atomic_uint fake_submitted, fake_open, fake_clients_gone, fake_stopped, fake_weight;
atomic_int fake_priority;
atomic_uint fake_submits_left = UINT32_MAX;
atomic_int fake_submit_failure = ST_NO_RESOURCE;
atomic_ullong fake_seed, fake_salt;
atomic_uint fake_end_count, fake_model_ends = 1;
atomic_size_t fake_metrics_bytes = 6, fake_control_bytes;
atomic_bool fake_ready = true, fake_hold_fails, fake_prompts_shared, fake_encode_holds;
atomic_uint fake_encode_held;
atomic_uint fake_http_codes[600], fake_access_dropped;
struct sampling fake_sampling;
char fake_name[GATEWAY_CLIENT_ID_BYTES];
uint32_t fake_rules[LIMIT_RULE_WORDS], fake_rule_count;

struct gateway *fake_gateway(void)
{
    return &the_gateway;
}

bool gateway_ready(const struct gateway *g)
{
    (void)g;
    return fake_ready;
}

void gateway_health_text(const struct gateway *g, char *out, size_t capacity)
{
    (void)g;
    snprintf(out, capacity, fake_ready ? "all machines serve" : "machine token-0 is \"down\"");
}

void gateway_health_summary(const struct gateway *g, char *out, size_t capacity)
{
    (void)g;
    snprintf(out, capacity, "%d of 1 machines serve", fake_ready ? 1 : 0);
}

uint32_t gateway_context_tokens(const struct gateway *g, uint32_t version)
{
    (void)version;
    (void)g;
    return 60000;
}

bool gateway_prompts_shared(const struct gateway *g, uint32_t version)
{
    (void)g;
    (void)version;
    return fake_prompts_shared;
}

enum status gateway_submit(struct gateway *g, const struct gateway_submit *submit,
                           struct gateway_request **out)
{
    if (fake_submits_left == 0)
        return (enum status)fake_submit_failure;
    fake_submits_left--;
    fake_seed = submit->sampling.seed;
    fake_sampling = submit->sampling;
    snprintf(fake_name, sizeof(fake_name), "%s", submit->client_id);
    fake_rule_count = submit->token_rule_words;
    if (submit->token_rule_words > 0)
        memcpy(fake_rules, submit->token_rules, submit->token_rule_words * sizeof(fake_rules[0]));
    fake_salt = submit->prefix_salt;
    fake_end_count = submit->sampling.end_count;
    struct gateway_request *r = calloc(1, sizeof(*r));
    CHECK(r != NULL && submit->prompt_count >= 1 && submit->prompt_count <= 65536);
    r->submit = *submit;
    memcpy(r->prompt, submit->prompt, submit->prompt_count * sizeof(*r->prompt));
    r->next = g->requests;
    g->requests = r;
    fake_weight = submit->weight;
    fake_priority = submit->priority;
    fake_submitted++;
    fake_open++;
    *out = r;
    return ST_OK;
}

static void forget(struct gateway_request *r)
{
    struct gateway_request **link = &the_gateway.requests;
    while (*link != r) {
        CHECK(*link != NULL); /* a handle that is not ours any more */
        link = &(*link)->next;
    }
    *link = r->next;
    fake_open--;
    free(r);
}

/* The summary of a request that took fixed times. */
static void over_report(const struct gateway_request *r)
{
    const struct gateway_client *client = &r->submit.client;
    struct gateway_summary summary = {.id = 0xabc,
                                      .prompt_machine = "prompt-0",
                                      .token_machine = "token-0",
                                      .first_us = r->sent > 0 ? r->submit.arrived_us + 6000000 : -1,
                                      .queue_us = 1000000,
                                      .reserve_us = 2000000,
                                      .prompt_us = 3000000,
                                      .transfer_us = 4000,
                                      .decode_us = 500000};
    if (client->summarise != NULL)
        client->summarise(client->self, &summary);
}

void gateway_release(struct gateway *g, struct gateway_request *request, enum gateway_release why)
{
    over_report(request);
    if (why == GATEWAY_CLIENT_GONE)
        fake_clients_gone++;
    else
        fake_stopped++;
    forget(request);
    /* As when the scheduler gives the free place to requests that wait. */
    for (struct gateway_request *r = g->requests; r != NULL; r = r->next)
        if (r->submit.client.event != NULL)
            r->submit.client.event(r->submit.client.self,
                                   &(struct gateway_event){.kind = GATEWAY_EVENT_QUEUED});
}

static void end(struct gateway_request *r, enum gateway_end why, const char *text, uint32_t retry)
{
    struct gateway_client client = r->submit.client;
    over_report(r);
    forget(r);
    client.ended(client.self, why, text, retry);
}

static void send(struct gateway_request *r, uint32_t id, uint8_t finish)
{
    struct message_token token = {
        .index = r->sent++,
        .id = id,
        .finish = finish,
        .has_logprob = r->submit.sampling.logprobs >= 0,
        .logprob = -0.5f,
        .top_count = 2,
        .top_ids = {id, 'z'},
        .top_logprobs = {-0.5f, -1.5f},
    };
    r->submit.client.token(r->submit.client.self, &token);
}

static void score(struct gateway_request *r)
{
    while (++r->scored < r->submit.prompt_count) {
        struct message_token token = {.index = r->scored,
                                      .scored = true,
                                      .has_logprob = true,
                                      .id = r->prompt[r->scored],
                                      .logprob = -0.25f};
        r->submit.client.token(r->submit.client.self, &token);
    }
}

static void events_report(struct gateway_request *r)
{
    const struct gateway_client *client = &r->submit.client;
    char name[LIMIT_NAME_BYTES];
    struct gateway_event event = {.kind = GATEWAY_EVENT_ROUTED,
                                  .after_us = 1234,
                                  .prompt_machine = "prompt-0",
                                  .token_machine = "token-0"};
    if (client->event == NULL || r->routed)
        return;
    r->routed = true;
    client->event(client->self, &event);
    for (uint32_t i = 0; r->prompt[0] == 'v' && i < 300; i++) {
        snprintf(name, sizeof(name), "machine-of-others-%u", i / 2 % 20);
        event.kind = i % 2 == 0 ? GATEWAY_EVENT_RESUMING : GATEWAY_EVENT_ROUTED;
        event.prompt_machine = i % 2 == 0 ? NULL : name;
        event.token_machine = NULL;
        client->event(client->self, &event);
    }
}

/* One step of one request; it may be gone afterwards. */
static void step(struct gateway_request *r)
{
    uint32_t most = r->submit.sampling.output_tokens_max;
    char script = (char)r->prompt[0];
    if (r->submit.score_prompt)
        score(r);
    if (script != 'r' && script != 'R')
        events_report(r);
    if (most == 0) {
        end(r, GATEWAY_DONE, "", 0);
    } else if (script == 'r') {
        end(r, GATEWAY_REFUSED, "the queue is full", 7);
    } else if (script == 'R') {
        end(r, GATEWAY_REFUSED, "larger than any machine", 0);
    } else if (script == 'x' || (script == 'h' && fake_hold_fails) ||
               (script == 'f' && r->sent == 2)) {
        end(r, GATEWAY_FAILED, "machine \"token-0\" is lost", 0);
    } else if (script == 'e') {
        bool last = r->sent + 1 >= r->submit.prompt_count;
        send(r, last ? 256 : r->prompt[r->sent + 1], last ? FINISH_STOP : FINISH_NONE);
        if (last)
            end(r, GATEWAY_DONE, "", 0);
    } else if (script == 'a' || script == 'f' || script == 'v') {
        bool last = script != 'f' && r->sent + 1 == most;
        send(r, 'a', last ? FINISH_LENGTH : FINISH_NONE);
        if (last)
            end(r, GATEWAY_DONE, "", 0);
    } else if (script == 'l') { /* one token, the seed; the higher, the likelier */
        uint32_t id = (uint32_t)r->submit.sampling.seed;
        struct message_token token = {
            .id = id, .finish = FINISH_LENGTH, .logprob = (float)id - 100};
        r->submit.client.token(r->submit.client.self, &token);
        end(r, GATEWAY_DONE, "", 0);
    } else if (script == 's') {
        send(r, 'a', FINISH_NONE);
    } else if (script == 'p' && clock_now_us(&clock_system) >= r->next_us) {
        r->next_us = clock_now_us(&clock_system) + PACE_US;
        send(r, 'a', FINISH_NONE);
    }
}

void fake_gateway_turn(void)
{
    for (struct gateway_request *r = the_gateway.requests, *next; r != NULL; r = next) {
        next = r->next;
        step(r);
    }
}

bool fake_gateway_busy(void)
{
    for (struct gateway_request *r = the_gateway.requests; r != NULL; r = r->next)
        if ((r->prompt[0] != 'h' || fake_hold_fails) && r->prompt[0] != 'p')
            return true;
    return false;
}

/* --- metrics --- */

void metrics_http_done(struct metrics *m, unsigned code)
{
    (void)m;
    fake_http_codes[code < 600 ? code : 0]++;
}

void metrics_counter_add(struct metrics *m, enum metrics_value counter, uint64_t by)
{
    (void)m;
    if (counter == METRICS_ACCESS_DROPPED)
        fake_access_dropped += (unsigned)by;
}

void metrics_value_set(struct metrics *m, enum metrics_value gauge, uint64_t value)
{
    (void)m;
    (void)gauge;
    (void)value;
}

char *metrics_render(const struct metrics *m, size_t *bytes_out)
{
    (void)m;
    *bytes_out = fake_metrics_bytes;
    char *page = malloc(fake_metrics_bytes);
    CHECK(page != NULL);
    memset(page, '\n', fake_metrics_bytes);
    return page;
}

/* --- tokens are bytes --- */

uint32_t tokenizer_token_count(const struct tokenizer *t)
{
    (void)t;
    return 258;
}

uint32_t tokenizer_bos(const struct tokenizer *t)
{
    (void)t;
    return 257;
}

uint32_t tokenizer_eos(const struct tokenizer *t)
{
    (void)t;
    return 256;
}

uint32_t tokenizer_end_tokens(const struct tokenizer *t, uint32_t ends_out[16])
{
    (void)t;
    for (uint32_t i = 0; i < fake_model_ends; i++)
        ends_out[i] = 256 + i;
    return fake_model_ends;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
    (void)t;
    return id >= 256 || id == FAKE_CONTROL_TOKEN;
}

const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *bytes_out)
{
    (void)t;
    static char pieces[256];
    if (id > 257)
        return NULL;
    if (id >= 256) {
        *bytes_out = 5;
        return id == 256 ? "<end>" : "<bos>";
    }
    if (id == FAKE_CONTROL_TOKEN) {
        *bytes_out = strlen(FAKE_CONTROL_TEXT);
        return FAKE_CONTROL_TEXT;
    }
    pieces[id] = (char)id;
    *bytes_out = 1;
    return &pieces[id];
}

size_t tokenizer_tokens_min(const struct tokenizer *t, const char *text, size_t bytes)
{
    (void)t;
    (void)text;
    return bytes;
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                             const struct tokenizer_encode_options *options, uint32_t **ids_out,
                             size_t *capacity, size_t *count_out, struct error *error)
{
    (void)t;
    (void)error;
    size_t control = options->parse_special ? bytes : 0;
    for (size_t i = 0; i < options->plain_count; i++)
        control -= options->plain_ranges[i].end - options->plain_ranges[i].begin;
    fake_control_bytes = control;
    fake_encode_held++;
    while (bytes > 0 && text[0] == 'W' && fake_encode_holds)
        usleep(100);
    fake_encode_held--;
    uint32_t *ids = realloc(*ids_out, (bytes + 1) * sizeof(*ids));
    CHECK(ids != NULL);
    for (size_t i = 0; i < bytes; i++)
        ids[i] = (uint8_t)text[i];
    *ids_out = ids;
    *capacity = bytes + 1;
    *count_out = bytes;
    return ST_OK;
}

/* Waits for whole characters, as the real one does; broken ones do not occur here. */
size_t detokenizer_feed(struct detokenizer *d, const struct tokenizer *t, uint32_t id,
                        bool skip_special, char *out)
{
    (void)t;
    if (id >= 256)
        return skip_special ? 0 : (size_t)sprintf(out, id == 256 ? "<end>" : "<bos>");
    if (id == FAKE_CONTROL_TOKEN)
        return skip_special ? 0 : (size_t)sprintf(out, "%s", FAKE_CONTROL_TEXT);
    d->pending[d->pending_bytes++] = (uint8_t)id;
    uint8_t first = d->pending[0];
    size_t need = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (d->pending_bytes < need)
        return 0;
    memcpy(out, d->pending, need);
    d->pending_bytes = 0;
    return need;
}

size_t detokenizer_finish(struct detokenizer *d, char out[3])
{
    (void)out;
    d->pending_bytes = 0;
    return 0;
}

enum status chat_render(const struct chat_template *c, const struct chat_request *request,
                        struct chat_text *out, struct error *error)
{
    (void)c;
    (void)error;
    const json_t *last = json_array_get(request->messages, json_array_size(request->messages) - 1);
    const json_t *content = json_object_get(last, "content");
    size_t bytes = json_string_length(content);
    char *text = malloc(bytes + 1);
    struct tokenizer_range *contents = malloc(sizeof(*contents));
    CHECK(json_is_string(content) && text != NULL && contents != NULL);
    memcpy(text, json_string_value(content), bytes);
    *contents = (struct tokenizer_range){0, bytes};
    *out =
        (struct chat_text){.text = text, .bytes = bytes, .contents = contents, .content_count = 1};
    return ST_OK;
}

void chat_text_done(struct chat_text *text)
{
    free(text->text);
    free(text->contents);
}
