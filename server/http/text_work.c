/* http_text_work: what the text threads do for an exchange: they parse the body of a completion and
 * make tokens of its prompts, or answer /tokenize and /detokenize. Meanwhile the connection is
 * suspended. The loop thread begins the work, resumes the connection when the work is done, and
 * then answers. */
#include "server/http/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct http_text_work {
    struct text_job job;
    struct exchange *exchange;  /* NULL = the client has gone: the result is not wanted. */
    struct served_model *model; /* The model when the work began. */
    struct api_tokenize settings;
    const struct http_text_kind *kind;
    struct text body;       /* Counted in http->bodies_bytes. */
    uint32_t api_key_index; /* API_KEY_NONE = the work does not count as a text of a key. */
    bool done;              /* Collected: the thread no longer uses it. */
    /* Results: an error (status not 0), the input of a completion, or a whole answer. */
    struct api_error error;
    struct completion_input *input;
    struct text answer;
};

struct http_text_kind {
    enum api_kind api;
    /* NULL = a completion of kind `api`. */
    bool (*work)(const struct api_tokenize *settings, const char *body, size_t bytes,
                 struct text *out, struct api_error *error);
};

const struct http_text_kind http_text_completion = {.api = API_COMPLETION};
const struct http_text_kind http_text_chat = {.api = API_CHAT};
const struct http_text_kind http_text_responses = {.api = API_RESPONSES};
const struct http_text_kind http_text_messages = {.api = API_MESSAGES};
const struct http_text_kind http_text_embeddings = {.api = API_EMBEDDINGS};
const struct http_text_kind http_text_count = {.work = api_count_tokens};
const struct http_text_kind http_text_tokenize = {.work = api_tokenize};
const struct http_text_kind http_text_detokenize = {.work = api_detokenize};

static void run(struct text_job *job)
{
    struct http_text_work *w = (struct http_text_work *)job;
    if (w->kind->work != NULL)
        (void)w->kind->work(&w->settings, w->body.data, w->body.bytes, &w->answer, &w->error);
    else
        w->input = completion_input_read(&w->settings.encode, w->model, w->kind->api, w->body.data,
                                         w->body.bytes, &w->error);
}

static void body_free(struct http *h, struct http_text_work *w)
{
    h->bodies_bytes -= w->body.bytes;
    text_done(&w->body);
}

/* Ends the count of the text among its key's texts. */
static void key_settle(struct http *h, struct http_text_work *w)
{
    api_keys_text_end(h->options.keys, w->api_key_index);
    w->api_key_index = API_KEY_NONE;
}

static void work_free(struct http *h, struct http_text_work *w)
{
    body_free(h, w);
    key_settle(h, w);
    completion_input_free(w->input);
    text_done(&w->answer);
    served_model_unref(w->model);
    free(w);
}

enum MHD_Result http_text_begin(struct exchange *x, const struct http_text_kind *kind)
{
    struct http *h = x->http;
    struct api_error error = {0};
    if (!api_keys_text_begin(h->options.keys, x->api_key_index, x->arrived_us, &error))
        return http_answer_error(x, &error);
    struct http_text_work *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        api_keys_text_end(h->options.keys, x->api_key_index);
        api_error_set(&error, 503, NULL, "out of memory");
        return http_answer_error(x, &error);
    }
    w->api_key_index = x->api_key_index;
    w->job = (struct text_job){
        .run = run, .tenant = x->api_key_index, .is_large = x->body.bytes > HTTP_LARGE_BYTES};
    w->exchange = x;
    w->model = served_model_ref(h->completions.model);
    w->kind = kind;
    w->settings = (struct api_tokenize){
        .encode = completion_encode_options(&h->completions, w->model),
        .context_tokens = gateway_context_tokens(h->options.gateway, w->model->version),
    };
    if (kind->work == NULL)
        w->settings.encode.context_tokens = w->settings.context_tokens;
    w->body = x->body;
    memset(&x->body, 0, sizeof(x->body));
    if (!text_jobs_add(h->text_jobs, &w->job)) {
        work_free(h, w);
        api_error_set(&error, 503, NULL, "too many requests wait to be read");
        error.retry_after_s = 1;
        return http_answer_error(x, &error);
    }
    x->text_work = w;
    h->open_answers++;
    x->counts_as_open = true;
    http_exchange_watch(x);
    http_exchange_suspend(x);
    return MHD_YES;
}

void http_text_collect(struct http *h)
{
    struct text_job *job;
    while ((job = text_jobs_done(h->text_jobs)) != NULL) {
        struct http_text_work *w = (struct http_text_work *)job;
        body_free(h, w);
        w->done = true;
        if (w->exchange == NULL)
            work_free(h, w);
        else
            http_exchange_resume(w->exchange);
    }
}

void http_text_drop(struct exchange *x)
{
    struct http_text_work *w = x->text_work;
    if (w == NULL)
        return;
    x->text_work = NULL;
    w->exchange = NULL;
    if (w->done || text_jobs_cancel(x->http->text_jobs, &w->job))
        work_free(x->http, w);
}

enum MHD_Result http_text_answer(struct exchange *x)
{
    struct http *h = x->http;
    struct http_text_work *w = x->text_work;
    struct api_error error = w->error;
    enum MHD_Result result;
    assert(w->done);
    x->text_work = NULL;
    http_exchange_unwatch(x);
    if (error.status == 0)
        http_access_check_again(x, &error); /* the key may have been revoked meanwhile */
    if (error.status != 0)
        result = http_answer_error(x, &error);
    else if (w->kind->work != NULL)
        result = http_answer_json(x, 200, &w->answer);
    else {
        key_settle(h, w); /* the answers count now */
        result = http_completion_begin(x, w->model, w->input);
        w->input = NULL; /* taken over */
    }
    work_free(h, w);
    return result;
}
