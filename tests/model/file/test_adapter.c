/* Goal: the tensors of a low-rank adapter are found by their products, and files in which a product
 * lacks a matrix, or has one twice, are refused with the tensor's name. A file that cannot be mapped
 * and a path that is too long are errors with the reason. Method: the files of adapter_writer.h in
 * memory, with names in the header changed to others of the same length; and a folder whose config
 * is a file of memory that is larger than the address space. */
#include "model/file/adapter.h"
#include "tests/check.h"
#include "tests/model/file/adapter_writer.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct adapter_writer writer = {
    .layers = 2, .hidden = 8, .ffn = 12, .q = 8, .kv = 8, .rank = 2, .alpha = 4, .seed = 1};

struct files {
    char *config;
    uint8_t *weights;
    size_t config_bytes, weights_bytes;
};

static struct files make(void)
{
    struct files f;
    f.config = adapter_writer_config(&writer, &f.config_bytes);
    f.weights = adapter_writer_weights(&writer, &f.weights_bytes);
    return f;
}

static void done(struct files *f)
{
    free(f->config);
    free(f->weights);
}

/* Replaces the first `find` of the weights' header. */
static void replace(struct files *f, const char *find, const char *put)
{
    char *at = memmem(f->weights, f->weights_bytes, find, strlen(find));
    CHECKF(at != NULL && strlen(find) == strlen(put), "%s", find);
    memcpy(at, put, strlen(put));
}

static enum status open_files(const struct files *f, struct adapter **out, struct error *error)
{
    return adapter_open_memory((struct mapped_text){f->config, f->config_bytes},
                               (struct mapped_text){(const char *)f->weights, f->weights_bytes},
                               out, error);
}

static void check_found(void)
{
    struct files f = make();
    struct adapter *a;
    struct error error = {""};
    CHECKF(open_files(&f, &a, &error) == ST_OK, "%s", error.text);
    CHECK(adapter_layer_end(a) == 2);
    for (uint32_t layer = 0; layer < 2; layer++)
        for (int m = 0; m < ADAPTER_MATRIX_COUNT; m++) {
            const struct mapped_tensor *down =
                adapter_tensor(a, layer, (enum adapter_matrix)m, false);
            const struct mapped_tensor *up = adapter_tensor(a, layer, (enum adapter_matrix)m, true);
            CHECK(down != NULL && up != NULL && down->dims[1] == 2 && up->dims[0] == 2);
            CHECK(down->dims[0] == (m == ADAPTER_DOWN ? 12u : 8u));
            CHECK(up->dims[1] == (m == ADAPTER_GATE || m == ADAPTER_UP ? 12u : 8u));
        }
    CHECK(adapter_tensor(a, 2, ADAPTER_Q, false) == NULL);
    adapter_close(a);
    done(&f);
}

static void check_refused(const char *find, const char *put, const char *prefix_find,
                          const char *prefix_put, const char *want)
{
    struct files f = make();
    struct adapter *a = NULL;
    struct error error = {""};
    replace(&f, find, put);
    replace(&f, prefix_find, prefix_put);
    CHECK(open_files(&f, &a, &error) == ST_INVALID && a == NULL);
    CHECKF(strstr(error.text, want) != NULL, "%s", error.text);
    done(&f);
}

static void expect_unread(const char *path, const char *want)
{
    struct adapter *a = NULL;
    struct error error = {""};
    CHECK(adapter_open(path, &a, &error) == ST_IO && a == NULL);
    CHECKF(strstr(error.text, want) != NULL, "%s", error.text);
}

static void check_unmapped(void)
{
    char folder[] = "/tmp/cleave-adapter-XXXXXX", link[64], target[64];
    const int huge = memfd_create("huge", MFD_CLOEXEC);
    CHECK(mkdtemp(folder) != NULL && huge >= 0 && ftruncate(huge, (off_t)1 << 62) == 0);
    snprintf(link, sizeof(link), "%s/adapter_config.json", folder);
    snprintf(target, sizeof(target), "/proc/self/fd/%d", huge);
    CHECK(symlink(target, link) == 0);
    expect_unread(folder, "adapter_config.json: cannot map it: Cannot allocate memory");
    CHECK(ftruncate(huge, 0) == 0);
    expect_unread(folder, "adapter_config.json: cannot read: want a file that is not empty");
    CHECK(unlink(link) == 0 && rmdir(folder) == 0 && close(huge) == 0);
}

/* The folder's path fits, and the paths of its files do not. */
static void check_long(void)
{
    char path[4096];
    for (size_t i = 0; i < sizeof(path) - 1; i++)
        path[i] = i % 2 == 0 ? '/' : '.';
    path[sizeof(path) - 1] = 0;
    expect_unread(path, "File name too long");
}

int main(void)
{
    check_found();
    /* v of layer 0 becomes q with another prefix: q has two of each. */
    check_refused("base_model.model.model.layers.0.self_attn.v_proj.lora_A",
                  "xase_model.model.model.layers.0.self_attn.q_proj.lora_A",
                  "base_model.model.model.layers.0.self_attn.v_proj.lora_B",
                  "xase_model.model.model.layers.0.self_attn.q_proj.lora_B", "of one product");
    /* B of v of layer 1 goes to layer 7. */
    check_refused("layers.1.self_attn.v_proj.lora_B", "layers.7.self_attn.v_proj.lora_B",
                  "base_model", "xase_model", "has no lora_B beside it");
    check_unmapped();
    check_long();
    return 0;
}
