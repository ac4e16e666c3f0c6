/* write_folder: writes a GGUF file's model as a safetensors folder, for
 * tests/cluster/test_folder.py and for comparing the formats: F32 or BF16, in the given number of
 * files (0 = one, without an index). If a name is given, also writes a GGUF file of that type. */
#include "tests/check.h"
#include "tests/model/file/file_gguf.h"
#include "tests/model/file/folder_writer.h"

#include <string.h>

int main(int argc, char **argv)
{
    struct model_file *file, *twin;
    struct error error = {""};
    size_t bytes;
    CHECKF(argc == 5 || argc == 6, "usage: write_folder GGUF FOLDER F32|BF16 FILES [GGUF-OUT]");
    enum compute_type type = strcmp(argv[3], "BF16") == 0 ? COMPUTE_BF16 : COMPUTE_F32;
    CHECKF(model_file_open(argv[1], &file, &error) == ST_OK, "%s", error.text);
    uint8_t *image = gguf_retype(file_gguf(file), type, &bytes);
    CHECKF(model_file_open_memory(image, bytes, "twin", &twin, &error) == ST_OK, "%s", error.text);
    const struct folder_writer options = {.shards = (uint32_t)atoi(argv[4]), .merge_pairs = true};
    folder_write(twin, &options, argv[2]);
    FILE *out = argc == 6 ? fopen(argv[5], "wb") : NULL;
    CHECK(argc == 5 || (out != NULL && fwrite(image, 1, bytes, out) == bytes && fclose(out) == 0));
    model_file_close(twin);
    model_file_close(file);
    free(image);
    return 0;
}
