/* Goal: how a model's files say that an embedding is made is read from both formats. Method: small
 * models in memory. */
#include "model/file/pooling.h"
#include "tests/check.h"
#include "tests/model/file/folder_parts.h"
#include "tests/model/file/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct error error;
static enum pooling pooling;

static enum status read_folder(const char *config)
{
    struct folder_parts parts;
    struct model_file *file;
    struct folder_part with[32];
    folder_parts_make(false, &parts);
    CHECK(parts.count < 32);
    memcpy(with, parts.parts, parts.count * sizeof(with[0]));
    with[parts.count] = (struct folder_part){
        .name = "1_Pooling/config.json", .data = (const uint8_t *)config, .bytes = strlen(config)};
    CHECKF(model_file_open_parts("folder", with, parts.count + (config[0] != 0), &file, &error) ==
               ST_OK,
           "%s", error.text);
    enum status status = model_pooling_read(file, &pooling, &error);
    model_file_close(file);
    folder_parts_done(&parts);
    return status;
}

static enum status read_gguf(const char *key, uint32_t type)
{
    struct gguf_writer *writer = gguf_writer_open(3, 0);
    struct model_file *file;
    size_t bytes;
    gguf_writer_string(writer, "general.architecture", "qwen3");
    gguf_writer_u32(writer, key, type);
    uint8_t *image = gguf_writer_finish(writer, &bytes);
    CHECKF(model_file_open_memory(image, bytes, "model", &file, &error) == ST_OK, "%s", error.text);
    enum status status = model_pooling_read(file, &pooling, &error);
    model_file_close(file);
    free(image);
    return status;
}

int main(void)
{
    static const enum pooling wanted[] = {POOLING_NONE, POOLING_MEAN, POOLING_NONE, POOLING_LAST,
                                          POOLING_NONE};
    for (uint32_t type = 0; type < 5; type++)
        CHECK(read_gguf("qwen3.pooling_type", type) == ST_OK && pooling == wanted[type]);
    CHECK(read_gguf("llama.pooling_type", 3) == ST_OK && pooling == POOLING_NONE);
    CHECK(read_folder("") == ST_OK && pooling == POOLING_NONE);
    CHECK(read_folder("{\"pooling_mode_mean_tokens\": true}") == ST_OK && pooling == POOLING_MEAN);
    CHECK(read_folder("{\"pooling_mode_mean_tokens\": false, \"pooling_mode_lasttoken\": true}") ==
              ST_OK &&
          pooling == POOLING_LAST);
    CHECK(read_folder("{\"pooling_mode_cls_token\": true}") == ST_OK && pooling == POOLING_NONE);
    CHECK(read_folder("[") == ST_INVALID && strstr(error.text, "1_Pooling/config.json") != NULL);
    return 0;
}
