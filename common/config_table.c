/* config_table: every key of the config file, once. Parser, command line, help and the reference
 * page use this table. */
#include "common/config_table.h"

#include <ctype.h>
#include <string.h>

#define FIELD(member)         offsetof(struct config, member)
#define MACHINE_FIELD(member) offsetof(struct config_machine, member)
#define KIB                   1024ull
#define MIB                   (1024 * KIB)
#define TIB                   (1024 * 1024 * MIB)
#define HOUR_MS               3600000

const struct config_key config_keys[] = {
    {"model", CONFIG_STRING, FIELD(model), 1, LIMIT_PATH_BYTES - 1,
     .default_text = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .help =
         "The model: a GGUF file, or a folder with config.json, tokenizer.json and safetensors; as "
         "given, or beside the config file, or in ~/.cache/cleave. A "
         "reload with another one puts it in the place of the one that is served (operation.md)."},
    {"profile", CONFIG_STRING, FIELD(profile), 0, LIMIT_PATH_BYTES - 1, .default_text = "",
     .reload = CONFIG_RELOAD_MACHINES,
     .help =
         "A file that `cleave profile` wrote, beside the config file unless absolute: layers are "
         "split over the stages of a machine, and micro-batches chosen, by the times in it "
         "(pipelines.md). Empty: by the size of the weights."},
    {"model_name", CONFIG_STRING, FIELD(model_name), 0, 63, .default_text = "",
     .help = "What /v1/models calls it; empty: the file's name without .gguf, or the "
             "folder's."},
    {"threads", CONFIG_WHOLE, FIELD(threads), 0, 1024, .default_text = "0",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Threads of each machine that does not say its own; 0: as many as its computer has "
             "cores."},
    {"source", CONFIG_STRING, FIELD(source), 1, LIMIT_PATH_BYTES - 1,
     .default_words = "the file's path",
     .help = "Where the config came from: a relative `model` is looked for beside it. The gateway "
             "writes "
             "it for the machines that it starts."},

    {"http/listen", CONFIG_ADDRESS, FIELD(http.listen), 0, 0, .default_text = "127.0.0.1:8080",
     .help = "Where the gateway listens; port 0: any free one."},
    {"http/body_bytes_max", CONFIG_BYTES, FIELD(http.body_bytes_max), KIB, 1024 * MIB,
     .default_text = "8MiB", .reload = CONFIG_RELOAD_YES,
     .help = "A larger request body is refused with 413."},
    {"http/connections_max", CONFIG_WHOLE, FIELD(http.connections_max), 1, 65536,
     .default_text = "4096", .help = "Open connections; more are not accepted."},

    {"server/api_keys_file", CONFIG_STRING, FIELD(server.api_keys_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "A JSON file of the keys that clients must show (operation.md), mode 0600, beside the "
             "config file unless absolute; empty: no keys are wanted."},
    {"server/tls_certificate_file", CONFIG_STRING, FIELD(server.tls_certificate_file), 0,
     LIMIT_PATH_BYTES - 1, .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help =
         "The certificate and its chain, in PEM: HTTP is served over TLS only; empty: without."},
    {"server/tls_key_file", CONFIG_STRING, FIELD(server.tls_key_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "The certificate's private key, in PEM, mode 0600."},

    {"server/drain_ms", CONFIG_WHOLE, FIELD(server.drain_ms), 0, HOUR_MS, .default_text = "600000",
     .reload = CONFIG_RELOAD_YES,
     .help =
         "After SIGTERM, requests that run may finish for so long; then they end with an error."},
    {"server/update_ms", CONFIG_WHOLE, FIELD(server.update_ms), 1, HOUR_MS,
     .default_text = "300000", .reload = CONFIG_RELOAD_YES,
     .help =
         "A reload with another `model` starts its machines beside the old ones; if they do not "
         "serve after so long, it is given up."},
    {"server/update_memory_check", CONFIG_BOOL, FIELD(server.update_memory_check), 0, 0,
     .default_text = "true", .reload = CONFIG_RELOAD_YES,
     .help = "Such a reload is refused if the weights and the KV memory of the new local machines "
             "are more than the memory that is available."},
    {"server/allow_insecure", CONFIG_BOOL, FIELD(server.allow_insecure), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_YES,
     .help = "HTTP may listen where other computers reach it without both keys and TLS: behind a "
             "proxy, or in a network of yours alone."},

    {"log/events_file", CONFIG_STRING, FIELD(log.events_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help =
         "A line of JSON per event of the cluster scheduler and what it decided (operation.md) is "
         "appended to this file; no text of any request. Empty: none."},

    {"cluster/key_file", CONFIG_STRING, FIELD(cluster.key_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help =
         "A file with the key that gateways and machines prove to each other, 32 bytes or more, "
         "mode 0600; empty: none (a gateway whose machines are all local makes one up)."},

    {"cluster/allow_insecure", CONFIG_BOOL, FIELD(cluster.allow_insecure), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_YES,
     .help = "Machines may listen where other computers reach them without a key: whoever reaches "
             "them reads every prompt."},

    {"cluster/membership", CONFIG_CHOICE, FIELD(cluster.membership), .maximum = 7,
     .choices = "file etcd", .default_text = "file",
     .help =
         "Where machines are named: in this file, or, beside those, in etcd, where they register "
         "themselves (operation.md)."},
    {"cluster/etcd_endpoints", CONFIG_STRING, FIELD(cluster.etcd_endpoints), 0, 511,
     .default_text = "",
     .help =
         "etcd's addresses, http://HOST:PORT or https://…, up to 8 with commas between; the next "
         "one is asked when one fails."},
    {"cluster/etcd_prefix", CONFIG_STRING, FIELD(cluster.etcd_prefix), 0, 128,
     .default_text = "/cleave/", .help = "What the keys in etcd begin with: one for each cluster."},
    {"cluster/etcd_lease_s", CONFIG_WHOLE, FIELD(cluster.etcd_lease_s), 2, 3600,
     .default_text = "10",
     .help = "A machine that is not heard of for so many seconds is taken out of etcd."},

    {"pools/prompt", CONFIG_POOL, CONFIG_POOL_PROMPT, 0, LIMIT_MACHINES,
     .default_words = "1 (0 where `pools` is given)", .reload = CONFIG_RELOAD_YES,
     .help = "Machines that compute prompts: how many on this computer (prompt-0, prompt-1, …), or "
             "their names."},
    {"pools/token", CONFIG_POOL, CONFIG_POOL_TOKEN, 0, LIMIT_MACHINES,
     .default_words = "1 (0 where `pools` is given)", .reload = CONFIG_RELOAD_YES,
     .help = "Machines that generate tokens."},
    {"pools/mixed", CONFIG_POOL, CONFIG_POOL_MIXED, 0, LIMIT_MACHINES, .default_words = "0",
     .reload = CONFIG_RELOAD_YES, .help = "Machines that do both."},

    {"machines/NAME/local", CONFIG_BOOL, MACHINE_FIELD(local), 0, 0,
     .default_words = "true where there is no `address`",
     .help = "`cleave serve` starts it on this computer."},
    {"machines/NAME/address", CONFIG_ADDRESS, MACHINE_FIELD(address), 1, 0,
     .default_words = "none: any free port of this computer", .reload = CONFIG_RELOAD_YES,
     .help = "Where it listens; needed if it is not local."},
    {"machines/NAME/device", CONFIG_DEVICE, MACHINE_FIELD(device), .maximum = 31,
     .default_words = "cpu", .reload = CONFIG_RELOAD_MACHINES,
     .help =
         "What computes: cpu; cuda:N, the N-th GPU of its computer (gpu.md); or "
         "wait:LAYER_US+ROW_US, which computes nothing and takes so many "
         "microseconds for a layer and for each row in it (for tests of pipelines: profile.md)."},
    {"machines/NAME/fallback", CONFIG_BOOL, MACHINE_FIELD(fallback), 0, 0, .default_words = "true",
     .reload = CONFIG_RELOAD_MACHINES,
     .help =
         "Where its GPU cannot be had (no plugin, no driver, no such device) it computes on the "
         "CPU and says so once; false: it does not start."},
    {"machines/NAME/f8_activations", CONFIG_BOOL, MACHINE_FIELD(f8_activations), 0, 0,
     .default_words = "true", .reload = CONFIG_RELOAD_MACHINES,
     .help =
         "Prompts of models with E4M3 weights are computed with activations of E4M3 too, on a GPU "
         "that multiplies such; false: with those of bf16, more exact and slower (gpu.md)."},
    {"machines/NAME/stages", CONFIG_STAGES, MACHINE_FIELD(stages),
     .default_words = "1: the machine computes all layers by itself",
     .reload = CONFIG_RELOAD_MACHINES,
     .help =
         "Its layers are pipelined over so many processes (pipelines.md): a number, and they are "
         "split evenly; or a list, each with any of device, threads, layers (\"0-14\"), host "
         "(HOST:PORT of another computer, where it is started by hand), speed (of replicas: "
         "stages with equal layers), tensor_parallel and devices (one for each rank)."},
    {"machines/NAME/tensor_parallel", CONFIG_WHOLE, MACHINE_FIELD(tensor_parallel), 1, LIMIT_RANKS,
     .default_words = "1", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Each of its stages, or the machine if it has none, is computed by so many processes "
             "together, each with a slice of every layer and a device: cuda:N and those after it "
             "(pipelines.md). Stages may say their own."},
    {"machines/NAME/threads", CONFIG_WHOLE, MACHINE_FIELD(threads), 0, 1024,
     .default_words = "`threads`", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Threads; 0: as many as its computer has cores."},
    {"machines/NAME/kv_memory", CONFIG_BYTES, MACHINE_FIELD(kv_memory_bytes), MIB, 16 * TIB,
     .default_words = "`kv/memory`", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Memory for its KV-cache."},
    {"machines/NAME/nice", CONFIG_WHOLE, MACHINE_FIELD(nice), 0, 19,
     .default_words = "1 in `pools/token`, else 0", .reload = CONFIG_RELOAD_MACHINES,
     .help = "How far it steps back behind other processes of its computer (nice of Unix): first "
             "tokens come sooner where prompt and token machines share cores."},

    /* A CPU gains nothing from more tokens (docs/performance.md), and all prompts of a batch wait
     * for its last token. */
    {"scheduler/prompt_batch_tokens", CONFIG_WHOLE, FIELD(scheduler.prompt_batch_tokens), 16,
     LIMIT_BATCH_TOKENS, .default_text = "512", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Prompt tokens of one batch; longer prompts run in chunks."},
    {"scheduler/prompt_fill_tokens", CONFIG_WHOLE, FIELD(scheduler.prompt_fill_tokens), 1,
     LIMIT_BATCH_TOKENS, .default_text = "128", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Waiting prompts join a batch while it has fewer prompt tokens: as many as the device "
             "needs for its full speed. All prompts of a batch wait for its last row."},
    {"scheduler/micro_batch_tokens", CONFIG_WHOLE, FIELD(scheduler.micro_batch_tokens), 0,
     LIMIT_BATCH_TOKENS, .default_text = "0", .reload = CONFIG_RELOAD_MACHINES,
     .help =
         "Prompt tokens of a batch on a machine with stages, where several batches are in flight: "
         "fewer fill the pipeline sooner, more are computed faster (pipelines.md). 0: what is best "
         "by "
         "the `profile`; without one, as many as `prompt_fill_tokens`."},
    {"scheduler/mixed_prompt_tokens", CONFIG_WHOLE, FIELD(scheduler.mixed_prompt_tokens), 16,
     LIMIT_BATCH_TOKENS, .default_text = "512", .reload = CONFIG_RELOAD_MACHINES,
     .help = "The same in a batch of a mixed machine that has decodes as well: less means smoother "
             "tokens and later first ones."},
    {"scheduler/batch_sequences_max", CONFIG_WHOLE, FIELD(scheduler.batch_sequences_max), 1,
     LIMIT_BATCH_SEQUENCES, .default_text = "256", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Requests of one batch."},
    {"scheduler/growth_tokens", CONFIG_WHOLE, FIELD(scheduler.growth_tokens), 1,
     LIMIT_CONTEXT_TOKENS, .default_text = "32", .reload = CONFIG_RELOAD_MACHINES,
     .help =
         "Tokens of an answer whose KV memory is booked with its prompt's; for more it takes a "
         "block at a time as it grows. As large as the context: the whole answer is booked, and "
         "nothing is ever preempted."},
    {"scheduler/handover_tokens_min", CONFIG_WHOLE, FIELD(scheduler.handover_tokens_min), 1,
     LIMIT_CONTEXT_TOKENS, .default_text = "32", .reload = CONFIG_RELOAD_YES,
     .help =
         "An answer that may have so many tokens left is handed over, with its KV, by a machine "
         "that drains; others are finished there. As large as the context: none is handed "
         "over."},
    {"scheduler/growth_reserve_percent", CONFIG_WHOLE, FIELD(scheduler.growth_reserve_percent), 0,
     50, .default_text = "5", .reload = CONFIG_RELOAD_MACHINES,
     .help =
         "Of a machine's KV memory, new requests leave so much to answers that grow, and a block "
         "for each of these at least."},
    {"scheduler/preemptions_max", CONFIG_WHOLE, FIELD(scheduler.preemptions_max), 0, 100,
     .default_text = "3", .reload = CONFIG_RELOAD_MACHINES,
     .help = "When an answer grows and no block is left, another one gives up its memory and is "
             "computed again later. After so many times a request's whole answer is booked, and it "
             "is not chosen again."},
    {"scheduler/turn_ms", CONFIG_WHOLE, FIELD(scheduler.turn_ms), 0, 1000, .default_text = "6",
     .reload = CONFIG_RELOAD_MACHINES,
     .help =
         "Machines that `cleave serve` starts take turns on this computer's cores if they have "
         "more threads together than it has cores. While others wait, a turn ends with the layer "
         "that is over after so long, and with a batch; a batch of tokens only may take four. 0: "
         "all compute at once."},
    {"scheduler/ageing_ms", CONFIG_WHOLE, FIELD(scheduler.ageing_ms), 0, HOUR_MS,
     .default_text = "10000", .reload = CONFIG_RELOAD_YES,
     .help = "A request that has waited for so long counts as one of the next more urgent priority "
             "that waits; 0: never, so urgent ones may starve others."},
    {"scheduler/prompt_queue_threshold_tokens", CONFIG_WHOLE,
     FIELD(scheduler.prompt_queue_threshold_tokens), 1, 1u << 30, .default_text = "8192",
     .reload = CONFIG_RELOAD_YES,
     .help = "A prompt machine with so many tokens pending is too busy: mixed machines help out."},
    {"scheduler/queue_requests_max", CONFIG_WHOLE, FIELD(scheduler.queue_requests_max), 0,
     LIMIT_CLUSTER_REQUESTS, .default_text = "1024", .reload = CONFIG_RELOAD_YES,
     .help = "Requests that wait for a machine; more are refused with 429 and Retry-After."},
    {"scheduler/policy", CONFIG_CHOICE, FIELD(scheduler.policy), .maximum = 15,
     .choices = "jsq prefix deadline", .default_text = "jsq", .reload = CONFIG_RELOAD_YES,
     .help =
         "Which machine a prompt gets. jsq: the one with the fewest pending tokens. prefix: where "
         "it takes the least time by what machines hold of it, the next turn of a conversation "
         "too, unless a queue is much longer. "
         "deadline: as jsq, and a request whose first token would come after `slo/ttft_ms` is "
         "refused at once, with 429 and when to try again."},
    {"scheduler/prefix_slack_tokens", CONFIG_WHOLE, FIELD(scheduler.prefix_slack_tokens), 0,
     1u << 30, .default_text = "2048", .reload = CONFIG_RELOAD_YES,
     .help = "With `policy` prefix: a queue longer by more than so many tokens is too long."},
    {"scheduler/adaptive_pools", CONFIG_BOOL, FIELD(scheduler.adaptive_pools), 0, 0,
     .default_text = "true", .reload = CONFIG_RELOAD_YES,
     .help = "A machine helps the other pool while that one is over its limits, and goes home when "
             "its work of that kind is done. false: only while nobody else is left for a kind."},
    {"scheduler/wait_ms", CONFIG_WHOLE, FIELD(scheduler.wait_ms), 0, HOUR_MS,
     .default_text = "30000", .reload = CONFIG_RELOAD_YES,
     .help = "A request that no machine which is up can take waits so long, then it fails; 0: for "
             "ever."},
    {"scheduler/cover_ms", CONFIG_WHOLE, FIELD(scheduler.cover_ms), 0, HOUR_MS,
     .default_text = "5000", .reload = CONFIG_RELOAD_YES,
     .help = "After a start, machines of one pool wait so long for those of the other before they "
             "do their work as well."},
    {"scheduler/repurpose_window_ms", CONFIG_WHOLE, FIELD(scheduler.repurpose_window_ms), 0,
     HOUR_MS, .default_text = "120000", .reload = CONFIG_RELOAD_YES,
     .help = "The work of both kinds is measured over so long; when it keeps asking for other pool "
             "sizes, a machine changes its pool for good. 0: never."},
    {"scheduler/repurpose_interval_ms", CONFIG_WHOLE, FIELD(scheduler.repurpose_interval_ms), 0,
     HOUR_MS, .default_text = "300000", .reload = CONFIG_RELOAD_YES,
     .help = "Between two such changes, at least."},
    {"scheduler/repurpose_gain_percent", CONFIG_WHOLE, FIELD(scheduler.repurpose_gain_percent), 1,
     90, .default_text = "20", .reload = CONFIG_RELOAD_YES,
     .help = "By so much a change must lower the load of the busier pool."},
    {"scheduler/context_tokens_max", CONFIG_WHOLE, FIELD(scheduler.context_tokens_max), 0,
     LIMIT_CONTEXT_TOKENS, .default_text = "0",
     .help = "Prompt and answer of one request; 0: what the model says."},

    {"kv/block_tokens", CONFIG_WHOLE, FIELD(kv.block_tokens), 8, LIMIT_BLOCK_TOKENS, .step = 8,
     .default_text = "16", .help = "Tokens of one KV block."},
    {"kv/memory", CONFIG_BYTES, FIELD(kv.memory_bytes), MIB, 16 * TIB, .default_text = "512MiB",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "KV-cache of each machine that does not say its own."},
    {"kv/dtype", CONFIG_CHOICE, FIELD(kv.dtype), .maximum = 7, .choices = "auto i16 f16 f32 i8",
     .default_text = "auto",
     .help =
         "How keys and values are stored: i16, 14-bit integers with a scale per token and head, "
         "is as exact as f16 and the fastest on CPUs; i8 halves the memory, and costs some "
         "accuracy (docs/numbers.md). auto: f16 if all machines of this file compute on GPUs, else "
         "i16. It must be the same on all machines of a cluster."},
    /* The default is a guess until the link is measured. For shorter prompts, one piece costs less
     * than a notification per layer. */
    {"kv/layerwise_threshold_tokens", CONFIG_WHOLE, FIELD(kv.layerwise_threshold_tokens), 0,
     LIMIT_CONTEXT_TOKENS, .default_text = "16", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Prompts from this size on are pushed layer by layer, smaller ones in one piece: over "
             "links "
             "of 100 Mbit/s to 10 Gbit/s that is sooner there from 16 tokens on (transport.md)."},
    {"kv/transfer", CONFIG_CHOICE, FIELD(kv.transfer), .maximum = 15,
     .choices = "auto layerwise one-piece", .default_text = "auto",
     .reload = CONFIG_RELOAD_MACHINES, .help = "auto: by the threshold above; else always so."},
    {"kv/prefix_cache", CONFIG_BOOL, FIELD(kv.prefix_cache), 0, 0, .default_text = "true",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Machines keep the KV of prompts and answers while its memory is not needed; of a "
             "prompt that begins like an earlier request only what is new is computed and sent."},
    {"kv/prefault", CONFIG_BOOL, FIELD(kv.prefault), 0, 0, .default_text = "true",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Machines take all memory of the KV-cache soon after they started, in the background "
             "and while a quarter of the computer's stays free. false: as it is used, page by "
             "page, which holds up the first requests."},

    {"transport/tls", CONFIG_STRING, FIELD(transport.tls), 0, 127, .default_text = "",
     .help = "UCX_TLS for the machines, such as tcp; empty: UCX chooses."},
    {"transport/heartbeat_ms", CONFIG_WHOLE, FIELD(transport.heartbeat_ms), 10, HOUR_MS,
     .default_text = "1000", .help = "How often a connection says that it lives."},
    {"transport/silence_ms", CONFIG_WHOLE, FIELD(transport.silence_ms), 20, HOUR_MS,
     .default_text = "5000", .help = "A peer silent for so long is gone; at least two heartbeats."},
    {"transport/connect_ms", CONFIG_WHOLE, FIELD(transport.connect_ms), 10, HOUR_MS,
     .default_text = "5000", .help = "Connecting and the hand-shake may take so long."},

    {"slo/ttft_ms", CONFIG_WHOLE, FIELD(slo.ttft_ms), 1, HOUR_MS, .default_text = "500",
     .reload = CONFIG_RELOAD_YES, .help = "The time to the first token that is wanted."},
    {"slo/tbt_ms", CONFIG_WHOLE, FIELD(slo.tbt_ms), 1, HOUR_MS, .default_text = "50",
     .reload = CONFIG_RELOAD_YES, .help = "The time between tokens that is wanted."},
};

const size_t config_key_count = sizeof(config_keys) / sizeof(config_keys[0]);

#define MACHINES_PREFIX "machines/"
#define MACHINE_PREFIX  MACHINES_PREFIX "NAME/"

/* Turns "machines/p0/threads" into the table's "machines/NAME/threads". Copies other paths. */
static void path_to_table(const char *path, char out[CONFIG_KEY_BYTES])
{
    const char *rest = NULL;
    if (strncmp(path, MACHINES_PREFIX, strlen(MACHINES_PREFIX)) == 0)
        rest = strchr(path + strlen(MACHINES_PREFIX), '/');
    if (rest == NULL)
        snprintf(out, CONFIG_KEY_BYTES, "%s", path);
    else
        snprintf(out, CONFIG_KEY_BYTES, MACHINES_PREFIX "NAME%.100s", rest);
}

const struct config_key *config_key_find(const char *path)
{
    char wanted[CONFIG_KEY_BYTES];
    path_to_table(path, wanted);
    for (size_t i = 0; i < config_key_count; i++) {
        if (strcmp(config_keys[i].path, wanted) == 0)
            return &config_keys[i];
    }
    return NULL;
}

bool config_key_of_machine(const struct config_key *key)
{
    return strncmp(key->path, MACHINES_PREFIX, strlen(MACHINES_PREFIX)) == 0;
}

bool config_section_known(const char *path)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < config_key_count; i++) {
        if (strncmp(config_keys[i].path, path, length) == 0 && config_keys[i].path[length] == '/')
            return true;
    }
    return false;
}

/* Levenshtein distance. Both texts have at most CONFIG_KEY_BYTES bytes. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned row[CONFIG_KEY_BYTES + 1];
    size_t length = strlen(b);
    for (size_t j = 0; j <= length; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; a[i - 1] != 0; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= length; j++) {
            unsigned above = row[j];
            bool same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            unsigned change = diagonal + (same ? 0 : 1);
            unsigned least = above < row[j - 1] ? above + 1 : row[j - 1] + 1;
            row[j] = least < change ? least : change;
            diagonal = above;
        }
    }
    return row[length];
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Distance between `path` and `known`: of the whole paths, or of the last parts alone if the
 * section is missing or wrong. */
static unsigned path_distance(const char *path, const char *known)
{
    unsigned whole = edit_distance(path, known);
    unsigned last = edit_distance(last_part(path), last_part(known)) + 1;
    return whole < last ? whole : last;
}

void config_section_of(const char *path, char out[CONFIG_KEY_BYTES])
{
    size_t length = strcspn(path, "/");
    if (length >= CONFIG_KEY_BYTES)
        length = CONFIG_KEY_BYTES - 1;
    memcpy(out, path, length);
    out[length] = 0;
}

bool config_key_nearest(const char *path, char out[CONFIG_KEY_BYTES])
{
    char wanted[CONFIG_KEY_BYTES];
    path_to_table(path, wanted);
    /* A larger distance is not a typing error. */
    unsigned best = (unsigned)strlen(last_part(wanted)) / 3 + 2;
    bool found = false;
    for (size_t i = 0; i < config_key_count; i++) {
        const char *known = config_keys[i].path;
        char section[CONFIG_KEY_BYTES];
        config_section_of(known, section);
        unsigned distance = path_distance(wanted, known);
        if (distance < best) {
            best = distance;
            found = true;
            snprintf(out, CONFIG_KEY_BYTES, "%s", known);
        }
        distance = edit_distance(wanted, section);
        if (distance < best) {
            best = distance;
            found = true;
            snprintf(out, CONFIG_KEY_BYTES, "%s", section);
        }
    }
    if (found && strcmp(wanted, path) != 0 &&
        strncmp(out, MACHINE_PREFIX, strlen(MACHINE_PREFIX)) == 0) {
        /* Name the key with the machine's own name. */
        const char *name = path + strlen(MACHINES_PREFIX);
        char last[CONFIG_KEY_BYTES];
        snprintf(last, sizeof(last), "%s", last_part(out));
        snprintf(out, CONFIG_KEY_BYTES, MACHINES_PREFIX "%.*s/%.64s", (int)strcspn(name, "/"), name,
                 last);
    }
    return found;
}
