/* Goal: a model's own values of sampling fields are read from both formats, and wrong ones are
 * errors that name file, key and value. Method: small models in memory. */
#include "model/file/sampling_defaults.h"
#include "tests/check.h"
#include "tests/model/file/folder_parts.h"
#include "tests/model/file/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sampling_defaults defaults;
static struct error error;

static enum status read_folder(const char *values)
{
    struct folder_parts parts;
    struct model_file *file;
    char put[256];
    folder_parts_make(false, &parts);
    snprintf(put, sizeof(put), "{%s%s", values, values[0] != 0 ? ", " : "");
    folder_parts_replace(&parts, "generation_config.json", "{", put);
    CHECKF(model_file_open_parts("folder", parts.parts, parts.count, &file, &error) == ST_OK, "%s",
           error.text);
    enum status status = sampling_defaults_read(file, &defaults, &error);
    model_file_close(file);
    folder_parts_done(&parts);
    return status;
}

static enum status read_gguf(float temperature, int32_t top_k)
{
    struct gguf_writer *writer = gguf_writer_open(3, 0);
    struct model_file *file;
    size_t bytes;
    gguf_writer_string(writer, "general.architecture", "llama");
    gguf_writer_f32(writer, "general.sampling.temp", temperature);
    gguf_writer_i32(writer, "general.sampling.top_k", top_k);
    uint8_t *image = gguf_writer_finish(writer, &bytes);
    CHECKF(model_file_open_memory(image, bytes, "model", &file, &error) == ST_OK, "%s", error.text);
    enum status status = sampling_defaults_read(file, &defaults, &error);
    model_file_close(file);
    free(image);
    return status;
}

int main(void)
{
    CHECK(read_folder("") == ST_OK);
    CHECK(defaults.temperature < 0 && defaults.top_p < 0 && defaults.top_k < 0 &&
          defaults.min_p < 0 && defaults.repetition_penalty < 0);
    CHECK(read_folder("\"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": 20, \"min_p\": 0, "
                      "\"repetition_penalty\": 1.05, \"do_sample\": true") == ST_OK);
    CHECK(defaults.temperature == 0.6f && defaults.top_p == 0.95f && defaults.top_k == 20 &&
          defaults.min_p == 0 && defaults.repetition_penalty == 1.05f);
    CHECK(read_folder("\"temperature\": null, \"top_k\": -1") == ST_OK);
    CHECK(defaults.temperature < 0 && defaults.top_k == 0);
    static const char *const wrong[][2] = {
        {"\"temperature\": 2.5", "temperature = 2.5: want a number of at least 0 and at most 2"},
        {"\"temperature\": \"hot\"", "temperature"},
        {"\"top_p\": 0", "top_p = 0: want a number above 0"},
        {"\"top_k\": 1.5", "top_k = 1.5: want a whole number"},
        {"\"repetition_penalty\": -1", "repetition_penalty = -1"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK(read_folder(wrong[i][0]) == ST_INVALID);
        CHECKF(strstr(error.text, "generation_config.json") != NULL &&
                   strstr(error.text, wrong[i][1]) != NULL,
               "%s", error.text);
    }
    CHECK(read_gguf(0.25f, 40) == ST_OK);
    CHECK(defaults.temperature == 0.25f && defaults.top_k == 40 && defaults.top_p < 0);
    CHECKF(read_gguf(0.25f, -1) == ST_OK && defaults.top_k == 0, "%s", error.text);
    CHECK(read_gguf(-0.5f, 40) == ST_INVALID && strstr(error.text, "general.sampling.temp"));
    CHECK(read_gguf(0.25f, -2) == ST_INVALID &&
          strstr(error.text, "general.sampling.top_k = -2: want a whole number of at least -1"));
    return 0;
}
