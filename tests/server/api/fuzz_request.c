/* Goal: no body crashes the request parsers or makes them leak. Seeds: bodies of all kinds. */
#include "server/api/request.h"
#include "tests/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct api_request request;
    struct api_error error;
    for (int kind = API_COMPLETION; kind < API_KINDS; kind++)
        if (api_request_parse((enum api_kind)kind, (const char *)data, size, &request, &error))
            api_request_done(&request);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const char *const seeds[] = {
        "{\"prompt\": [[1, 2], \"b\", [3]], \"model\": \"m\", \"max_tokens\": 7.0, \"n\": 2, "
        "\"temperature\": 0,"
        "\"top_p\": 0.5, \"stop\": [\"x\", \"yy\"], \"stop_token_ids\": [4, 5], \"logprobs\": 20, "
        "\"echo\": true,"
        "\"stream\": true, \"stream_options\": {\"include_usage\": true}}",
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
        "\"\\u00e9\"}]},"
        "{\"role\": \"system\", \"content\": \"s\"}], \"logprobs\": true, \"top_logprobs\": 3, "
        "\"user\": null}",
        "{\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": "
        "\"a\"}, {\"type\": \"input_text\", \"text\": \"b\"}]}, {\"type\": \"reasoning\", "
        "\"content\": [{\"text\": \"r\"}]}, {\"type\": \"function_call\", \"call_id\": \"c\", "
        "\"name\": \"f\", \"arguments\": \"{}\"}, {\"type\": \"function_call_output\", "
        "\"call_id\": \"c\", \"output\": \"o\"}], \"instructions\": \"i\", \"tools\": [{\"type\": "
        "\"function\", \"name\": \"f\", \"parameters\": {}}], \"tool_choice\": {\"type\": "
        "\"function\", \"name\": \"f\"}, \"text\": {\"format\": {\"type\": \"json_schema\", "
        "\"schema\": {}}}, \"reasoning\": {\"effort\": \"low\"}, \"include\": "
        "[\"message.output_text.logprobs\"], \"top_logprobs\": 2}",
        "{\"max_tokens\": 5, \"system\": [{\"type\": \"text\", \"text\": \"s\"}], \"messages\": "
        "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
        "[{\"type\": \"thinking\", \"thinking\": \"t\"}, {\"type\": \"text\", \"text\": \"x\"}, "
        "{\"type\": \"tool_use\", \"id\": \"c\", \"name\": \"f\", \"input\": {}}]}, {\"role\": "
        "\"user\", \"content\": [{\"type\": \"tool_result\", \"tool_use_id\": \"c\"}, {\"type\": "
        "\"text\", \"text\": \"y\"}]}], \"tools\": [{\"name\": \"f\", \"input_schema\": {}}], "
        "\"tool_choice\": {\"type\": \"any\", \"disable_parallel_tool_use\": true}, \"thinking\": "
        "{\"type\": \"enabled\", \"budget_tokens\": 9}, \"output_config\": {\"effort\": \"low\"}, "
        "\"stop_sequences\": [\"z\"]}",
    };
    if (index >= sizeof(seeds) / sizeof(seeds[0]) || strlen(seeds[index]) > capacity)
        return 0;
    memcpy(buffer, seeds[index], strlen(seeds[index]));
    return strlen(seeds[index]);
}
