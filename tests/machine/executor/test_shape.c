/* Goal: machines that would compute other KV than their peers say so in the hand-shake, and a
 * machine's KV memory counts the copies that its ranks have. Method: shapes made by hand, and
 * shapes of a file with latent attention. */
#include "machine/executor/shape.h"
#include "tests/check.h"
#include "tests/model/forward/synthetic.h"

#include <string.h>
#include <unistd.h>

static struct config config;

static const struct config_machine *config_read(const char *text)
{
    struct error error = {0};
    enum status status = config_parse(text, strlen(text), "test", &config, &error);
    CHECKF(status == ST_OK, "%s: %s", text, error.text);
    return &config.machines[config_machine_find(&config, "a0")];
}

/* Which list LongRoPE takes depends on the config, not on the model file. */
static void test_rope_list(void)
{
    const struct config_machine *entry = config_read("{\"pools\": {\"mixed\": [\"a0\"]}}");
    struct machine_shape shape = {
        .hyper.rope_scaling = {.kind = MODEL_ROPE_LONG, .context_tokens = 4096},
        .context_tokens = 4096,
    };
    CHECK(machine_shape_transport_options(&config, entry, &shape).identity.rope_list ==
          TRANSPORT_ROPE_LIST_SHORT);
    shape.context_tokens = 4097;
    CHECK(machine_shape_transport_options(&config, entry, &shape).identity.rope_list ==
          TRANSPORT_ROPE_LIST_LONG);
    shape.hyper.rope_scaling.kind = MODEL_ROPE_YARN;
    CHECK(machine_shape_transport_options(&config, entry, &shape).identity.rope_list ==
          TRANSPORT_ROPE_LIST_NONE);
}

/* Returns the shape of a machine of `ranks` ranks with 16 MiB of KV memory. */
static void shape_read(const char *path, uint32_t ranks, struct machine_shape *out)
{
    struct error error = {0};
    struct model_file *file;
    char text[512];
    snprintf(
        text, sizeof(text),
        "{\"model\": \"%s\", \"kv\": {\"memory\": \"16MiB\"}, \"pools\": {\"mixed\": [\"a0\"]}, "
        "\"machines\": {\"a0\": {\"tensor_parallel\": %u}}}",
        path, ranks);
    enum status status = machine_shape_read(&config, config_read(text), &file, out, &error);
    CHECKF(status == ST_OK, "%s", error.text);
    model_file_close(file);
}

static void test_copies(void)
{
    static struct machine_shape one, three;
    char path[] = "/tmp/cleave-shape-XXXXXX";
    const struct synthetic s = synthetic_latent();
    size_t bytes;
    uint8_t *image = synthetic_image(&s, &bytes);
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, image, bytes) == (ssize_t)bytes && close(fd) == 0);
    shape_read(path, 1, &one);
    shape_read(path, 3, &three);
    unlink(path);
    free(image);
    CHECK(one.plan.process_count == 0 && one.arena.copy_count == 1 && one.arena.copy_index == 0);
    CHECK(three.plan.process_count == 3);
    CHECK(three.arena.block_count == one.arena.block_count / 3);
    uint64_t all = 0;
    for (uint32_t i = 0; i < 3; i++) {
        const struct kv_arena arena = machine_shape_arena(&three, &three.plan.processes[i]);
        CHECK(arena.copy_count == 3 && arena.copy_index == i);
        CHECK(arena.head_first == 0 && arena.head_count == 1);
        all += kv_arena_bytes(&arena);
    }
    CHECK(all <= 16 << 20 && all > 15 << 20);
}

int main(void)
{
    test_rope_list();
    test_copies();
    return 0;
}
