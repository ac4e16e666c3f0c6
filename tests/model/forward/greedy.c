/* greedy: see the header. */
#include "tests/model/forward/greedy.h"

#include "tests/check.h"

#include <jansson.h>
#include <math.h>

static void read_ids(json_t *array, uint32_t *out)
{
    size_t i;
    json_t *value;
    json_array_foreach(array, i, value)
    {
        CHECK(json_is_integer(value));
        out[i] = (uint32_t)json_integer_value(value);
    }
}

static void read_case(json_t *source, struct greedy_case *c)
{
    json_t *prompt = json_object_get(source, "prompt_ids");
    json_t *greedy = json_object_get(source, "greedy_ids");
    json_t *top = json_object_get(source, "top5");
    CHECK(json_array_size(prompt) > 0 && json_array_size(greedy) > 0);
    CHECK(json_array_size(top) == json_array_size(greedy));
    c->prompt_count = (uint32_t)json_array_size(prompt);
    c->step_count = (uint32_t)json_array_size(greedy);
    c->ids = calloc(c->prompt_count + c->step_count, sizeof(*c->ids));
    c->steps = calloc(c->step_count, sizeof(*c->steps));
    CHECK(c->ids != NULL && c->steps != NULL);
    read_ids(prompt, c->ids);
    read_ids(greedy, c->ids + c->prompt_count);
    for (uint32_t i = 0; i < c->step_count; i++) {
        json_t *five = json_array_get(top, i);
        CHECK(json_array_size(five) == GREEDY_TOP);
        for (size_t j = 0; j < GREEDY_TOP; j++) {
            json_t *pair = json_array_get(five, j);
            c->steps[i].ids[j] = (uint32_t)json_integer_value(json_array_get(pair, 0));
            c->steps[i].logprobs[j] = json_number_value(json_array_get(pair, 1));
        }
    }
}

uint32_t greedy_read(struct greedy_case **cases_out)
{
    json_error_t error;
    json_t *root = json_load_file(test_data_path("model/greedy.json"), 0, &error);
    CHECKF(root != NULL, "greedy.json:%d: %s", error.line, error.text);
    json_t *cases = json_object_get(root, "cases");
    size_t count = json_array_size(cases);
    CHECK(count > 0);
    struct greedy_case *out = calloc(count, sizeof(*out));
    CHECK(out != NULL);
    for (size_t i = 0; i < count; i++)
        read_case(json_array_get(cases, i), &out[i]);
    json_decref(root);
    *cases_out = out;
    return (uint32_t)count;
}

void greedy_free(struct greedy_case *cases, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(cases[i].ids);
        free(cases[i].steps);
    }
    free(cases);
}

void greedy_compare(const struct greedy_step *step, const float *logits, uint32_t vocab,
                    struct greedy_compared *out)
{
    uint32_t best = 0;
    double sum = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - (double)logits[best]);
    double normaliser = (double)logits[best] + log(sum);
    out->best = best;
    out->error_max = 0;
    for (uint32_t i = 0; i < GREEDY_TOP; i++) {
        double error = fabs((double)logits[step->ids[i]] - normaliser - step->logprobs[i]);
        out->errors[i] = error;
        if (!(error <= out->error_max)) /* a NaN must not pass */
            out->error_max = error;
    }
}
