/* Goal: `cleave profile` writes a profile of the given model, and names what is wrong with its
 * options. Method: runs the binary (argument 1) with --quick on small synthetic models, reads the
 * file with the strict reader, and compares it with the known model. Times are not checked. With
 * the name of a GPU as argument 2, only this GPU is profiled and nothing else is tested. */
#include "compute/compute.h"
#include "profile/profile.h"
#include "tests/check.h"
#include "tests/model/forward/synthetic.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *cleave;
static char directory[] = "/tmp/cleave-test-profile-XXXXXX";
static char model[64], out[64], text[64];

static const char *said(void)
{
    static char content[65536];
    FILE *file = fopen(text, "r");
    CHECK(file != NULL);
    content[fread(content, 1, sizeof(content) - 1, file)] = 0;
    fclose(file);
    return content;
}

/* Runs the binary and returns its exit status. Both output streams go into the file `text`. */
static int run(const char *const *arguments)
{
    const char *argv[24] = {cleave, "profile"};
    int count = 2, status;
    while (arguments[count - 2] != NULL) {
        argv[count] = arguments[count - 2];
        count++;
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        int fd = open(text, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        execv(cleave, (char *const *)argv);
        _exit(127);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECKF(WIFEXITED(status), "it died of signal %d: %s", WTERMSIG(status), said());
    return WEXITSTATUS(status);
}

static struct profile *run_and_read(const char *const *arguments)
{
    struct profile *p = NULL;
    struct error error = {""};
    CHECKF(run(arguments) == 0, "%s", said());
    CHECKF(profile_load(out, &p, &error) == ST_OK, "%s", error.text);
    return p;
}

static void check_refused(const char *const *arguments, int wanted, const char *part);

static struct synthetic small_model(void)
{
    struct synthetic s = synthetic_default();
    s.layers = 4;
    return s;
}

static void write_model(const struct synthetic *s)
{
    size_t bytes;
    uint8_t *image = synthetic_image(s, &bytes);
    FILE *file = fopen(model, "wb");
    CHECK(file != NULL);
    CHECK(fwrite(image, 1, bytes, file) == bytes);
    CHECK(fclose(file) == 0);
    free(image);
}

static void check_model(const struct profile *p, const struct synthetic *s)
{
    const uint64_t head_dim = s->hidden / s->heads;
    const uint64_t layer_weights =
        4ull * s->hidden * (2 * s->hidden + 2 * s->kv_heads * head_dim + 3ull * s->ffn);
    CHECK(p->model.layer_count == s->layers && p->model.hidden == s->hidden);
    CHECK(p->model.vocab == s->vocab && p->model.metadata_hash != 0);
    CHECK(p->model.tied == s->tied);
    CHECK(p->model.boundary_bytes_per_token == 4ull * s->hidden);
    CHECK(p->model.kv_bytes_per_token ==
          s->kv_heads * compute_kv_token_bytes((uint32_t)head_dim, COMPUTE_KV_I16));
    CHECKF(p->model.layer_weight_bytes[0] >= layer_weights &&
               p->model.layer_weight_bytes[0] < layer_weights * 2,
           "%" PRIu64, p->model.layer_weight_bytes[0]);
    CHECK(p->model.layer_weight_bytes[s->layers - 1] == p->model.layer_weight_bytes[0]);
    CHECK(p->model.embedding_bytes >= 4ull * s->hidden * s->vocab);
    CHECK(p->model.vocabulary_bytes > p->model.embedding_bytes); /* The final norm is added. */
}

static void check_grid(const struct profile_grid *g)
{
    CHECK(g->row_count >= 2 && g->rows[0] == 1 && g->context_count >= 2 && g->contexts[0] == 0);
    CHECK(g->us[g->row_count - 1][g->context_count - 1] > 0);
}

/* The times in the file add up to the sums in the file. */
static void check_sums(const struct profile *p, const struct profile_device *d)
{
    uint32_t prompts = 0, mixed = 0;
    for (uint32_t i = 0; i < d->check_count; i++) {
        const struct profile_check *c = &d->checks[i];
        const struct profile_work prompt = {.prompt_tokens = (uint32_t)c->rows,
                                            .prompt_context = c->context,
                                            .prompts_ending = 1,
                                            .decodes = c->decodes,
                                            .decode_context = PROFILE_CHECK_DECODE_CONTEXT};
        const struct profile_work step = {.decodes = (uint32_t)c->rows,
                                          .decode_context = c->context};
        double sum = profile_stage_us(p, d, 0, p->model.layer_count, c->prompt ? &prompt : &step);
        CHECKF(fabs(sum - c->predicted_us) < 1e-6 * sum, "%g and %g", sum, c->predicted_us);
        CHECK(c->measured_us > 0);
        prompts += c->prompt;
        mixed += c->decodes > 0;
        CHECK(c->prompt || c->decodes == 0);
    }
    CHECK(prompts > mixed && mixed > 0 && prompts < d->check_count);
}

static void check_device(const struct profile *p, const struct profile_device *d, bool alike,
                         uint32_t threads)
{
    CHECK(d->threads == threads && d->memory_bytes > 0 && d->host[0] != 0);
    CHECK(d->layer_count == (alike ? 1 : p->model.layer_count));
    for (uint32_t i = 0; i < d->layer_count; i++) {
        check_grid(&d->layers[i].prompt);
        check_grid(&d->layers[i].token);
    }
    check_grid(&d->last_layer_prompt);
    CHECK(d->embedding.row_count >= 2 && d->vocabulary.row_count >= 2);
    /* Whole microseconds, less the time that others took, so the result may be 0. */
    CHECK(d->batch_us >= 0);
    CHECK(d->vocabulary.us[0] > 0);
    check_sums(p, d);
}

static void check_cpu(void)
{
    const struct synthetic s = small_model();
    const char *const arguments[] = {"--model",   model, "--out",     out, "--quick",
                                     "--threads", "1",   "--threads", "2", NULL};
    write_model(&s);
    struct profile *p = run_and_read(arguments);
    check_model(p, &s);
    CHECK(p->device_count == 2);
    CHECK(profile_device_find_on(p, "cpu", 1, 1, "") == &p->devices[0]);
    check_device(p, &p->devices[0], true, 1);
    check_device(p, &p->devices[1], true, 2);
    const char *host = p->devices[0].host;
    CHECK(p->link_count >= 1 && profile_link_find(p, host, host, "tcp") != NULL);
    for (uint32_t i = 0; i < p->link_count; i++) {
        const struct profile_link *l = &p->links[i];
        CHECK(l->bandwidth_bytes_per_s > 0 && l->latency_us > 0 && l->size_count > 2);
        CHECK(l->path[0] != 0 && l->latency_us == l->sizes_us[0]);
    }
    /* Tables and progress are shown. */
    CHECKF(strstr(said(), "us of each layer, prompt") != NULL, "%s", said());
    CHECK(strstr(said(), "predicted / measured") != NULL);
    CHECK(strstr(said(), "s left") != NULL);
    profile_close(p);
}

/* One layer's weights have another type. */
static void check_layers_differ(void)
{
    struct synthetic s = small_model();
    const char *const arguments[] = {"--model",   model, "--out",      out, "--quick",
                                     "--threads", "1",   "--no-links", NULL};
    s.retype = "blk.1.attn_q.weight";
    write_model(&s);
    struct profile *p = run_and_read(arguments);
    CHECK(p->link_count == 0 && p->device_count == 1);
    check_device(p, &p->devices[0], false, 1);
    CHECK(p->model.layer_weight_bytes[1] < p->model.layer_weight_bytes[0]);
    CHECK(p->model.layer_weight_bytes[2] == p->model.layer_weight_bytes[0]);
    profile_close(p);
}

/* KV of latent attention is one vector per token and layer: rank and rotated dimensions. */
static void check_latent(void)
{
    struct synthetic s = synthetic_latent();
    const char *const arguments[] = {"--model",   model, "--out",      out, "--quick",
                                     "--threads", "1",   "--no-links", NULL};
    write_model(&s);
    struct profile *p = run_and_read(arguments);
    CHECK(p->model.kv_bytes_per_token ==
          compute_kv_token_bytes((s.latent_rank + s.rope_dim) / 2, COMPUTE_KV_I16));
    CHECK(p->model.groups.windowed == 0 && profile_windowed_layers(p) == 0);
    CHECK(p->model.kv_copied); /* Each rank would have all of it. */
    profile_close(p);
}

/* Gemma 2: every second layer has a window, so the layers are measured one by one. With experts,
 * the bytes of a layer are those of all experts. */
static void check_windows_and_experts(void)
{
    struct synthetic s = small_model();
    const char *const arguments[] = {"--model",   model, "--out",      out, "--quick",
                                     "--threads", "1",   "--no-links", NULL};
    s.architecture = "gemma2";
    s.window = 16;
    write_model(&s);
    struct profile *p = run_and_read(arguments);
    CHECK(p->model.groups.count == 2 && p->model.groups.windowed == 1 &&
          p->model.groups.window_tokens == 16 && profile_windowed_layers(p) == 2);
    check_device(p, &p->devices[0], false, 1);
    CHECKF(strstr(said(), "2 layers have a window of 16 tokens") != NULL, "%s", said());
    profile_close(p);
    s = small_model();
    s.architecture = "qwen3moe";
    s.experts = 8;
    s.experts_used = 2;
    s.expert_ffn = 32;
    write_model(&s);
    p = run_and_read(arguments);
    const struct profile_experts *experts = &p->model.experts;
    CHECK(p->model.layer_weight_bytes[0] > 4ull * s.hidden * 3 * s.expert_ffn * s.experts);
    CHECK(experts->count == s.experts && experts->used == s.experts_used);
    CHECK(experts->bytes >= 4ull * s.hidden * 3 * s.expert_ffn &&
          experts->bytes * s.experts < p->model.layer_weight_bytes[0]);
    /* One row chooses `used` experts, four rows more, but not more than there are. */
    CHECK(experts->row_count == 2 && experts->rows[0] == 1 && experts->rows[1] == 4);
    CHECK(experts->chosen[0] == 2 && experts->chosen[1] > 2 && experts->chosen[1] <= 8);
    CHECKF(strstr(said(), "8 experts of ") != NULL, "%s", said());
    profile_close(p);
}

/* For a device that keeps no weights, the sizes in the file count. An untied model has two
 * vocabularies. */
static void check_wait(void)
{
    struct synthetic s = small_model();
    const char *const arguments[] = {"--model",   model,        "--out", out,
                                     "--quick",   "--threads",  "1",     "--device",
                                     "wait:50+1", "--no-links", NULL};
    s.tied = false;
    write_model(&s);
    struct profile *p = run_and_read(arguments);
    check_model(p, &s);
    CHECK(strcmp(p->devices[0].kind, "wait:50+1") == 0);
    check_device(p, &p->devices[0], true, 1);
    profile_close(p);
}

static bool about(uint64_t padded, uint64_t bytes)
{
    return padded >= bytes && padded < bytes + bytes / 4;
}

/* A device of two ranks is a device of its own, beside the one of one rank, and the model is about
 * the same whichever of both is measured first. */
static void check_ranks(void)
{
    struct synthetic s = small_model();
    const char *const both[] = {"--model",    model,       "--out",     out,       "--quick",
                                "--no-links", "--threads", "2",         "--ranks", "1",
                                "--ranks",    "2",         "--threads", "1",       NULL};
    const char *const one[] = {"--model",   model, "--out",   out, "--quick", "--no-links",
                               "--threads", "2",   "--ranks", "2", NULL};
    write_model(&s);
    struct profile *p = run_and_read(both);
    const struct profile_device *d = &p->devices[2];
    CHECK(p->device_count == 3 && strcmp(d->name, "cpu-2-tp2") == 0);
    CHECK(p->devices[0].ranks == 1 && p->devices[1].ranks == 1 && d->ranks == 2);
    CHECK(profile_device_find_ranks(p, &p->devices[1], 2) == d);
    CHECKF(strncmp(d->description, "2 ranks, each ", 14) == 0, "%s", d->description);
    check_device(p, d, true, 2);
    const uint64_t layer_bytes = p->model.layer_weight_bytes[0];
    const uint64_t embedding_bytes = p->model.embedding_bytes;
    const uint64_t vocabulary_bytes = p->model.vocabulary_bytes;
    profile_close(p);
    p = run_and_read(one);
    CHECK(p->device_count == 1 && p->devices[0].ranks == 2 && !p->model.kv_copied);
    check_model(p, &s);
    /* Devices pad each slice. */
    CHECKF(about(p->model.layer_weight_bytes[0], layer_bytes) &&
               about(p->model.embedding_bytes, embedding_bytes) &&
               about(p->model.vocabulary_bytes, vocabulary_bytes),
           "%" PRIu64 " and %" PRIu64, p->model.layer_weight_bytes[0], layer_bytes);
    profile_close(p);
    s = small_model();
    s.architecture = "qwen3moe"; /* Each rank has some of the experts. */
    s.experts = 8;
    s.experts_used = 2;
    s.expert_ffn = 32;
    write_model(&s);
    p = run_and_read(one);
    CHECK(p->model.experts.count == 8 && p->model.experts.chosen[0] == 2);
    CHECK(p->model.layer_weight_bytes[0] > 4ull * s.hidden * 3 * s.expert_ffn * s.experts);
    check_device(p, &p->devices[0], true, 2);
    profile_close(p);
    const char *const many[] = {"--model",   model, "--out",   out,  "--quick", "--no-links",
                                "--threads", "2",   "--ranks", "16", NULL};
    check_refused(many, 1, "KV heads");
    const char *const beside[] = {"--ranks", "2", "--beside", "1", NULL};
    check_refused(beside, 2, "--ranks 2: ranks cannot be measured with --beside");
    const char *const gpu[] = {"--ranks", "2", "--device", "cuda:0", NULL};
    check_refused(gpu, 2, "--ranks 2: ranks cannot be measured on GPUs");
    const char *const busy_gpu[] = {"--beside", "1", "--device", "cuda:0", NULL};
    check_refused(busy_gpu, 2, "--beside 1: GPUs cannot be measured with --beside");
}

/* On a GPU, the profile has the GPU's memory and an f16 cache, and `cleave partition` accepts
 * it. */
static void check_gpu(const char *device)
{
    struct synthetic s = small_model();
    const char *const arguments[] = {"--model", model,      "--out", out,
                                     "--quick", "--device", device,  NULL};
    s.hidden = 128;
    s.ffn = 256;
    s.heads = 4;
    s.kv_heads = 2;
    s.head_dim = 64;
    write_model(&s);
    struct profile *p = run_and_read(arguments);
    CHECK(p->device_count == 1 && p->link_count >= 1);
    CHECK(p->links[0].bandwidth_bytes_per_s > 0 && p->links[0].latency_us > 0);
    const struct profile_device *d = &p->devices[0];
    CHECK(strcmp(d->kind, device) == 0 && strcmp(d->name, device) == 0);
    CHECKF(strstr(d->description, "compute capability") != NULL, "%s", d->description);
    CHECK(p->model.kv_bytes_per_token ==
          s.kv_heads * compute_kv_token_bytes(s.head_dim, COMPUTE_KV_F16));
    check_device(p, d, true, 1);
    CHECK(profile_device_find_on(p, device, 1, 1, "") == d);
    profile_close(p);
    fputs(said(), stdout);
}

/* Starts the other end of a link, and reads the address that it prints. Its standard output stays
 * open. */
static pid_t serve_start(const char *key, char address[128], FILE **out_stream)
{
    int ends[2];
    char line[256] = "";
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], STDOUT_FILENO);
        execl(cleave, cleave, "profile", "--serve-link", "127.0.0.1:0", "--host", "b", "--quick",
              "--key-file", key, "--tls", "tcp", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *out_stream = fdopen(ends[0], "r");
    CHECK(*out_stream != NULL && fgets(line, sizeof(line), *out_stream) != NULL);
    CHECKF(sscanf(line, "links of b end at %127s", address) == 1, "%s", line);
    return pid;
}

static void write_key(const char *path, const char *key)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, key, strlen(key)) == (ssize_t)strlen(key) && close(fd) == 0);
}

/* --add adds a link to another computer, and this computer's devices under another name. */
static void check_added(void)
{
    const struct synthetic s = small_model();
    char key[80], other_key[80], address[128];
    FILE *stream;
    snprintf(key, sizeof(key), "%s/key", directory);
    snprintf(other_key, sizeof(other_key), "%s/other-key", directory);
    write_key(key, "0123456789abcdef0123456789abcdef");
    write_key(other_key, "0123456789abcdef0123456789abcdeX");
    write_model(&s);
    const char *const first[] = {"--model",   model,      "--out",      out,      "--quick",
                                 "--threads", "1",        "--no-links", "--host", "a",
                                 "--device",  "wait:1+1", NULL};
    profile_close(run_and_read(first));
    pid_t pid = serve_start(key, address, &stream);
    const char *const link[] = {"--model",    model,     "--out",  out,          "--add",
                                out,          "--quick", "--host", "a",          "--no-devices",
                                "--no-links", "--link",  address,  "--key-file", key,
                                "--tls",      "tcp",     NULL};
    struct profile *p = run_and_read(link);
    CHECK(p->device_count == 1 && p->link_count == 1);
    const struct profile_link *l = profile_link_find(p, "a", "b", "tcp");
    CHECK(l != NULL && l->bandwidth_bytes_per_s > 0 && l->size_count > 2);
    profile_close(p);
    const char *const wrong_key[] = {
        "--model",      model,        "--out",  out,     "--add",      out,       "--quick",
        "--no-devices", "--no-links", "--link", address, "--key-file", other_key, NULL};
    check_refused(wrong_key, 1, address);
    CHECK(kill(pid, SIGTERM) == 0 && waitpid(pid, NULL, 0) == pid);
    fclose(stream);
    const char *const more[] = {"--model", model,     "--out",     out,        "--add",
                                out,       "--quick", "--threads", "1",        "--no-links",
                                "--host",  "b",       "--device",  "wait:1+1", NULL};
    p = run_and_read(more);
    CHECK(p->device_count == 2 && p->link_count == 1);
    CHECK(strcmp(p->devices[0].name, "wait:1+1-1") == 0 && strcmp(p->devices[0].host, "a") == 0);
    CHECK(strcmp(p->devices[1].name, "b/wait:1+1-1") == 0 && strcmp(p->devices[1].host, "b") == 0);
    profile_close(p);
    const char *const open_door[] = {"--serve-link", "0.0.0.0:0", NULL};
    check_refused(open_door, 1, "want --key-file");
    struct synthetic other = small_model();
    other.seed++;
    other.layers++;
    write_model(&other);
    check_refused(more, 1, "the profile is of another model");
    unlink(key);
    unlink(other_key);
}

static void check_refused(const char *const *arguments, int wanted, const char *part)
{
    int status = run(arguments);
    CHECKF(status == wanted && strstr(said(), part) != NULL, "status %d: %s", status, said());
}

static void check_mistakes(void)
{
    const char *const no_model[] = {"--model", "/nowhere/m.gguf", "--no-links", NULL};
    const char *const no_device[] = {"--model", model, "--device", "gpu", NULL};
    const char *const no_threads[] = {"--threads", "0", NULL};
    const char *const bad_seconds[] = {"--seconds", "soon", NULL};
    const char *const no_option[] = {"--fast", NULL};
    const char *const argument[] = {"model.gguf", NULL};
    const char *const no_place[] = {"--model",         model,       "--out",
                                    "/nowhere/p.json", "--threads", "1",
                                    "--no-links",      "--quick",   NULL};
    const char *const nothing[] = {"--no-devices", NULL};
    const char *const long_host[] = {"--host", "a-host-whose-name-is-far-too-long", NULL};
    const char *const help[] = {"--help", NULL};
    check_refused(no_model, 1, "/nowhere/m.gguf");
    check_refused(no_device, 1, "device = \"gpu\"");
    check_refused(no_threads, 2, "--threads = \"0\": want a whole number from 1");
    check_refused(bad_seconds, 2, "--seconds = \"soon\"");
    check_refused(nothing, 2, "--no-devices: want --add");
    check_refused(long_host, 2, "want a name of 1 to 31 bytes");
    check_refused(no_option, 2, "unknown option --fast");
    check_refused(argument, 2, "\"model.gguf\"");
    check_refused(no_place, 1, "/nowhere/p.json: No such file");
    check_refused(help, 0, "usage: cleave profile");
}

int main(int argc, char **argv)
{
    CHECK(argc == 2 || argc == 3);
    cleave = argv[1];
    CHECK(mkdtemp(directory) != NULL);
    snprintf(model, sizeof(model), "%s/m.gguf", directory);
    snprintf(out, sizeof(out), "%s/p.json", directory);
    snprintf(text, sizeof(text), "%s/text", directory);
    if (argc == 3) {
        check_gpu(argv[2]);
    } else {
        check_cpu();
        check_layers_differ();
        check_latent();
        check_windows_and_experts();
        check_wait();
        check_ranks();
        check_added();
        check_mistakes();
    }
    unlink(model);
    unlink(out);
    unlink(text);
    rmdir(directory);
    return 0;
}
