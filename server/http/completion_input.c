/* completion_input: from the body of a request to tokens. It runs on the text threads; completion.c
 * does the rest. */
#include "server/http/completion_internal.h"

#include "model/grammar/grammar.h"
#include "server/api/answer_constraint.h"

#include <stdlib.h>
#include <string.h>

struct api_encode completion_encode_options(const struct completion_server *server,
                                            const struct served_model *model)
{
    return (struct api_encode){
        .tokenizer = model->tokenizer,
        .chat = model->chat,
        .format = model->format,
        .control = api_control_tokens_parse(server->config->server.control_tokens_in_text),
        .templates_allowed = server->config->server.chat_template_in_requests};
}

static bool check_ids(const struct api_encode *encode, const char *field,
                      const struct api_prompt *given, struct api_error *error)
{
    uint32_t vocab = tokenizer_token_count(encode->tokenizer);
    for (uint32_t i = 0; i < given->count; i++)
        if (given->ids[i] >= vocab)
            return api_error_set(error, 400, field,
                                 "%s token %u is %u: the model's vocabulary has ids 0 to %u", field,
                                 i, given->ids[i], vocab - 1);
    return true;
}

/* Replaces an empty prompt by the model's start token, as other servers do. */
static bool fill_empty(const struct api_encode *encode, const char *field,
                       struct token_prompt *prompt, struct api_error *error)
{
    uint32_t start = tokenizer_bos(encode->tokenizer);
    if (start == TOKENIZER_NO_TOKEN)
        start = tokenizer_eos(encode->tokenizer);
    if (start == TOKENIZER_NO_TOKEN)
        return api_error_set(error, 400, field, "the %s is empty", field);
    uint32_t *ids = realloc(prompt->ids, sizeof(*ids));
    if (ids == NULL)
        return api_error_set(error, 503, NULL, "out of memory");
    ids[0] = start;
    prompt->ids = ids;
    prompt->count = 1;
    return true;
}

static bool prepare_prompts(struct completion_input *input, const struct api_encode *encode,
                            struct api_error *error)
{
    size_t count = 0;
    struct api_request *request = &input->request;
    const char *field = api_prompt_field(request->kind);
    if (api_is_chat(request->kind)) {
        bool good = api_encode_chat(encode, field, &request->chat, &input->prompts[0].ids, &count,
                                    &input->begin, error);
        input->prompts[0].count = (uint32_t)count;
        return good;
    }
    for (uint32_t i = 0; i < input->prompt_count; i++) {
        struct api_prompt *given = &request->prompts[i];
        struct token_prompt *prompt = &input->prompts[i];
        if (given->text != NULL) {
            const bool special = request->add_special_tokens;
            if (!api_encode_prompt(encode, field, given->text, given->bytes, special,
                                   special && request->kind == API_EMBEDDINGS, &prompt->ids, &count,
                                   error))
                return false;
            prompt->count = (uint32_t)count;
        } else {
            if (!check_ids(encode, field, given, error))
                return false;
            prompt->ids = given->ids;
            prompt->count = given->count;
            given->ids = NULL; /* moved */
        }
        if (prompt->count == 0 && !fill_empty(encode, field, prompt, error))
            return false;
    }
    return true;
}

static bool check_model(struct api_request *request, const struct served_model *model,
                        struct api_error *error)
{
    if (request->model == NULL || request->model[0] == 0 ||
        served_model_find(model, request->model, &request->sampling.adapter))
        return true;
    api_error_set(error, 404, "model", "there is no model '%.128s' here: want '%s'%s",
                  request->model, model->name,
                  model->adapter_count > 0 ? ", or one of its adapters (/v1/models)" : "");
    error->code = "model_not_found";
    return false;
}

/* Adds the tool calls and the reasoning to the constraint of a chat. */
static bool complete_constraint(struct completion_input *input, const struct api_encode *encode,
                                struct api_error *error)
{
    struct api_request *request = &input->request;
    input->format = encode->format;
    return !api_is_chat(request->kind) ||
           (api_answer_constraint(&input->format, input->begin, request->chat.tools,
                                  &request->tools, &request->constraint, error) &&
            api_request_constraint_check(request, error));
}

/* Compiles the constraint here, so that the client gets an error for a wrong constraint at once. */
static bool check_constraint(const struct api_request *request, struct api_error *error)
{
    struct grammar *grammar;
    struct error why;
    if (request->constraint.text == NULL)
        return true;
    enum status status =
        grammar_open(request->constraint.text, request->constraint.bytes, NULL, &grammar, &why);
    if (status == ST_OK) {
        struct grammar_run *run = NULL;
        status = grammar_run_open(grammar, &run, &why);
        grammar_run_close(run);
        grammar_close(grammar);
    }
    if (status == ST_OK)
        return true;
    return api_error_set(error, status == ST_NO_MEMORY ? 503 : 400, request->constraint.field,
                         "%s: %s", request->constraint.field, why.text);
}

struct completion_input *completion_input_read(const struct api_encode *encode,
                                               const struct served_model *model, enum api_kind kind,
                                               const char *body, size_t bytes,
                                               struct api_error *error)
{
    struct completion_input *input = calloc(1, sizeof(*input));
    if (input == NULL) {
        api_error_set(error, 503, NULL, "out of memory");
        return NULL;
    }
    bool good = api_request_parse(kind, body, bytes, &input->request, error) &&
                check_model(&input->request, model, error);
    if (good) {
        input->prompt_count = api_is_chat(kind) ? 1 : input->request.prompt_count;
        input->prompts = calloc(input->prompt_count, sizeof(*input->prompts));
        good = input->prompts != NULL ? prepare_prompts(input, encode, error)
                                      : api_error_set(error, 503, NULL, "out of memory");
    }
    good = good && api_logit_rules_words(&input->request.logit_rules, encode->tokenizer,
                                         &input->rules, error);
    good = good && complete_constraint(input, encode, error) &&
           check_constraint(&input->request, error);
    api_request_input_free(&input->request); /* the prompts are tokens now */
    if (good)
        return input;
    completion_input_free(input);
    return NULL;
}

void completion_input_free(struct completion_input *input)
{
    if (input == NULL)
        return;
    for (uint32_t i = 0; input->prompts != NULL && i < input->prompt_count; i++)
        free(input->prompts[i].ids);
    free(input->prompts);
    free(input->rules.words);
    api_request_done(&input->request);
    free(input);
}

uint32_t completion_input_unknown_fields(const struct completion_input *input)
{
    return input->request.unknown_fields;
}
