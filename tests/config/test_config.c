/* Goal: a config file is read correctly or refused with one clear line; it survives being written
 * and read again; the reference page matches the table. Method: tables of texts with the exact
 * error; random configs set key by key; `test_config --reference` prints the page. */
#include "common/random.h"
#include "config/config.h"
#include "tests/check.h"
#include "tests/page.h"

#include <glob.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct config parsed(const char *text)
{
    struct config config;
    struct error error = {{0}};
    enum status status = config_parse(text, strlen(text), "cleave.json", &config, &error);
    CHECKF(status == ST_OK, "%s: %s", text, error.text);
    return config;
}

static void test_default(void)
{
    struct config config;
    config_default(&config);
    CHECK(strcmp(config.source, "embedded") == 0);
    CHECK(strcmp(config.model, "SmolLM2-135M-Instruct.Q4_1.gguf") == 0 &&
          config.model_name[0] == 0);
    CHECK(strcmp(config.http.listen, "127.0.0.1:8080") == 0);
    CHECK(config.http.body_bytes_max == 8 << 20 && config.http.connections_max == 4096);
    CHECK(config.scheduler.prompt_batch_tokens == 512 &&
          config.scheduler.mixed_prompt_tokens == CONFIG_AUTO);
    CHECK(config.scheduler.batch_sequences_max == 256 &&
          config.scheduler.queue_requests_max == 1024);
    CHECK(config.scheduler.prompt_queue_threshold_tokens == CONFIG_AUTO);
    CHECK(config.scheduler.context_tokens_max == 0 && config.kv.block_tokens == 16);
    CHECK(config.kv.memory_bytes == 512u << 20 &&
          config.kv.layerwise_threshold_tokens == CONFIG_AUTO);
    CHECK(strcmp(config.kv.dtype, "auto") == 0 && strcmp(config_kv_dtype(&config), "i16") == 0 &&
          strcmp(config.kv.transfer, "auto") == 0);
    CHECK(config.transport.heartbeat_ms == 1000 && config.transport.silence_ms == 5000);
    CHECK(config.transport.connect_ms == 5000 && config.transport.ucx_transports[0] == 0);
    CHECK(config.slo.ttft_ms == 500 && config.slo.tbt_ms == 50);
    CHECK(config.machine_count == 2);
    CHECK(strcmp(config.machines[0].name, "prompt-0") == 0 && config.machines[0].local);
    CHECK(strcmp(config.machines[1].name, "token-0") == 0 && config.machines[1].pool == POOL_TOKEN);
    CHECK(config.machines[1].kv_memory_bytes == 512u << 20 && config.machines[1].threads == 0);
    CHECK(strcmp(config.machines[0].device, "cpu") == 0 && config.machines[0].address[0] == 0);
    CHECK(config.machines[0].nice == 0 && config.machines[1].nice == 1);
    CHECK(config_check(&config, "x", NULL) == ST_OK);
}

/* A stage of T ranks has T consecutive processes. */
static void test_ranks(void)
{
    struct config config =
        parsed("{\"threads\": 8, \"cluster\": {\"allow_insecure\": true}, \"machines\": {"
               "\"prompt-0\": {\"tensor_parallel\": 3, \"device\": \"cuda:1\"},"
               "\"token-0\": {\"stages\": [{\"layers\": \"0-6\", \"threads\": 5},"
               "{\"layers\": \"7-9\", \"tensor_parallel\": 1, \"host\": \"b\"},"
               "{\"layers\": \"10-19\", \"host\": \"c\", \"devices\": [\"cuda:3\", \"cuda:0\"]},"
               "{\"layers\": \"20-29\", \"host\": \"[::1]:9\"}],"
               "\"tensor_parallel\": 2}}}");
    struct config_stages stages;
    config_stages(&config.machines[0], &stages);
    CHECK(stages.count == 3 && config.machines[0].stages[0] == 0);
    for (uint32_t i = 0; i < 3; i++) {
        const struct config_stage *stage = &stages.stages[i];
        char device[32];
        snprintf(device, sizeof(device), "cuda:%u", 1 + i);
        CHECK(stage->rank == i && stage->ranks == 3 && stage->list_index == 0 &&
              stage->threads == 2);
        CHECK(strcmp(stage->device, device) == 0 && stage->address[0] == 0);
    }
    config_stages(&config.machines[1], &stages);
    static const struct {
        uint32_t entry, rank, ranks, threads, first;
        const char *device, *address;
    } wants[] = {{0, 0, 2, 2, 0, "cpu", ""},           {0, 1, 2, 2, 0, "cpu", ""},
                 {1, 0, 1, 0, 7, "cpu", "b:7412"},     {2, 0, 2, 0, 10, "cuda:3", "c:7413"},
                 {2, 1, 2, 0, 10, "cuda:0", "c:7414"}, {3, 0, 2, 0, 20, "cpu", "[::1]:9"},
                 {3, 1, 2, 0, 20, "cpu", "[::1]:10"}};
    CHECK(stages.count == 7);
    for (uint32_t i = 0; i < 7; i++) {
        const struct config_stage *stage = &stages.stages[i];
        CHECK(stage->list_index == wants[i].entry && stage->rank == wants[i].rank &&
              stage->ranks == wants[i].ranks && stage->threads == wants[i].threads);
        CHECK(stage->first_layer == wants[i].first && strcmp(stage->device, wants[i].device) == 0);
        CHECKF(strcmp(stage->address, wants[i].address) == 0, "%s", stage->address);
    }
    struct config_host_share share;
    config_machine_share(&config.machines[0], &share); /* The whole model, in three processes. */
    CHECK(share.processes == 4 && fabs(share.model_copies - 1) < 1e-9);
    config_machine_share(&config.machines[1], &share); /* 7 of 30 layers, in halves. */
    CHECK(share.processes == 3 && fabs(share.model_copies - 7.0 / 30) < 1e-9);
}

static void test_stages(void)
{
    struct config config =
        parsed("{\"threads\": 4, \"cluster\": {\"allow_insecure\": true}, \"machines\": {"
               "\"prompt-0\": {\"stages\": 3},"
               "\"token-0\": {\"stages\": [{\"layers\": \"0-6\", \"threads\": 1},"
               "{\"layers\": \"0-6\", \"speed\": 50, \"host\": \"b\"},"
               "{\"layers\": \"7-29\", \"host\": \"c:9\", \"device\": \"wait:5+1\"}]}}}");
    struct config_stages stages;
    config_stages(&config.machines[0], &stages);
    CHECK(stages.count == 3 && stages.stages[2].threads == 1 && stages.stages[2].end_layer == 0);
    CHECK(strcmp(stages.stages[1].device, "cpu") == 0 && stages.stages[1].address[0] == 0);
    config_stages(&config.machines[1], &stages);
    CHECK(stages.count == 3 && stages.stages[0].end_layer == 7 && stages.stages[0].threads == 1);
    CHECK(stages.stages[1].speed == 50 && strcmp(stages.stages[1].address, "b:7411") == 0);
    CHECK(strcmp(stages.stages[2].device, "wait:5+1") == 0 && stages.stages[2].first_layer == 7);
    CHECK(strcmp(stages.stages[2].address, "c:9") == 0 && stages.stages[2].threads == 0);
    CHECK(!config_is_loopback(&config));
    struct config_host_share share;
    config_machine_share(&config.machines[0], &share);
    CHECK(share.processes == 4 && fabs(share.model_copies - 1) < 1e-9);
    config_machine_share(&config.machines[1], &share); /* 7 of 30 layers are on this computer. */
    CHECK(share.processes == 2 && fabs(share.model_copies - 7.0 / 30) < 1e-9);
    test_ranks();
    config = parsed("{\"machines\": {\"prompt-0\": {\"stages\": 1}, \"token-0\": {\"stages\": ["
                    "{\"layers\": \"0-9\"}, {\"layers\": \"0-9\"}, {\"layers\": \"10-19\"}]}}}");
    config_stages(&config.machines[0], &stages);
    CHECK(stages.count == 0 && config_is_loopback(&config));
    config_machine_share(&config.machines[0], &share);
    CHECK(share.processes == 1 && share.model_copies == 1);
    config_machine_share(&config.machines[1], &share);
    CHECK(share.processes == 4 && fabs(share.model_copies - 1.5) < 1e-9);
}

static void test_good(void)
{
    struct config config = parsed("{}");
    CHECK(config.machine_count == 2 && strcmp(config.source, "cleave.json") == 0);

    config =
        parsed("{\"machines\": {\"t0\": {\"threads\": 2, \"kv_memory\": \"1GiB\"},\n"
               "  \"t1\": {\"local\": true, \"address\": \"10.0.0.1:7400\"},\n"
               "  \"p7\": {\"address\": \"[fe80::1%eth0]:7400\", \"device\": \"cpu\"}},\n"
               " \"pools\": {\"token\": [\"t0\", \"t1\"], \"mixed\": 1, \"prompt\": [\"p7\"]},\n"
               " \"cluster\": {\"key_file\": \"k\"},\n"
               " \"kv\": {\"memory\": 2097152, \"dtype\": \"f32\"}, \"threads\": 3}");
    CHECK(config.machine_count == 4 && config_machine_find(&config, "nobody") == -1);
    CHECK(config_machine_find(&config, "p7") == 0 && config_machine_find(&config, "mixed-0") == 3);
    CHECK(!config.machines[0].local &&
          strcmp(config.machines[0].address, "[fe80::1%eth0]:7400") == 0);
    CHECK(config.machines[0].threads == 3 && config.machines[0].kv_memory_bytes == 2097152);
    CHECK(config.machines[1].threads == 2 && config.machines[1].kv_memory_bytes == 1u << 30);
    CHECK(config.machines[2].local && strcmp(config.machines[2].address, "10.0.0.1:7400") == 0);
    CHECK(strcmp(config.kv.dtype, "f32") == 0);

    config =
        parsed("// \"a\n{\"$schema\": \"/* x\", /* {\n */ \"model\": \"a//b\\\"/*c*/\"} // end");
    CHECKF(strcmp(config.model, "a//b\"/*c*/") == 0, "%s", config.model);

    config = parsed("{\"pools\": {\"mixed\": 2}}");
    CHECK(config.machine_count == 2 && config.machines[1].pool == POOL_MIXED);
    config = parsed("{\"source\": \"/etc/cleave.json\", \"http\": {\"listen\": \"[::1]:0\"}}");
    CHECK(strcmp(config.source, "/etc/cleave.json") == 0);
}

static const struct {
    const char *text;
    const char *error;
} bad[] = {
    {"", "cleave.json:1: not JSON: unexpected token near end of file"},
    {"{\n\"a\": 1,\n\"a\": 2}", "cleave.json:3: not JSON: duplicate object key near '\"a\"'"},
    {"{} x", "cleave.json:1: not JSON: end of file expected near 'x'"},
    {"[1]", "cleave.json:1: / = [1]: want an object"},
    {"{\n/* a\n// b", "cleave.json:2: the comment that begins here has no end"},
    {"{ /", "cleave.json:1: not JSON: string or '}' expected near '/'"},
    {"// a\n/* \n \" */ {\n\"xyzzy-plugh\": 1}", "cleave.json:4: /xyzzy-plugh: unknown key"},
    {"{\"$schema\": 1}", "cleave.json:1: /$schema: unknown key"},
    {"{\"http\": {\"$schema\": \"x\"}}", "cleave.json:1: /http/$schema: unknown key"},
    {"{\n \"kv\": {\n  \"dtype\": \"f16\",\n  \"block_tokens\": \"16k\"}}",
     "cleave.json:4: /kv/block_tokens = \"16k\": want a whole number from 8 to 256, a multiple of "
     "8"},
    {"{\"kv\": {\"block_tokens\": 12}}",
     "cleave.json:1: /kv/block_tokens = 12: want a whole number from 8 to 256, a multiple of 8"},
    {"{\"kv\": {\"block_tokens\": 16.0}}",
     "cleave.json:1: /kv/block_tokens = 16.0: want a whole number from 8 to 256, a multiple of 8"},
    {"{\"slo\": {\n\"tbt_ms\": -1}}",
     "cleave.json:2: /slo/tbt_ms = -1: want a whole number from 1 to 3600000"},
    {"{\"slo\": {\"tbt_ms\": null}}",
     "cleave.json:1: /slo/tbt_ms = null: want a whole number from 1 to 3600000"},
    {"{\"scheduler\": {\"turn_ms\": \"automatic\"}}",
     "cleave.json:1: /scheduler/turn_ms = \"automatic\": want \"auto\" or a whole number from 0 to "
     "1000"},
    {"{\"scheduler\": {\"ageing_ms\": \"auto\"}}",
     "cleave.json:1: /scheduler/ageing_ms = \"auto\": want a whole number from 0 to 3600000"},
    {"{\"slo\": 5}", "cleave.json:1: /slo = 5: want an object"},
    {"{\"kv\": {\"dtype\": \"bf16\"}}", "cleave.json:1: /kv/dtype = \"bf16\": want \"auto\" or "
                                        "\"i16\" or \"f16\" or \"f32\" or \"i8\""},
    {"{\"kv\": {\"memory\": \"512MB\"}}",
     "cleave.json:1: /kv/memory = \"512MB\": want a size from 1MiB to "
     "16TiB, such as \"512MiB\""},
    {"{\"kv\": {\"memory\": 5}}",
     "cleave.json:1: /kv/memory = 5: want a size from 1MiB to 16TiB, such as \"512MiB\""},
    {"{\"kv\": {\"memory\": \"99999999999999999999GiB\"}}",
     "cleave.json:1: /kv/memory = \"99999999999999999999GiB\": want a size from 1MiB to 16TiB, "
     "such as "
     "\"512MiB\""},
    {"{\"http\": {\"listen\": \"localhost\"}}",
     "cleave.json:1: /http/listen = \"localhost\": want HOST:PORT, such as \"127.0.0.1:8080\""},
    {"{\"http\": {\"listen\": \"a:70000\"}}",
     "cleave.json:1: /http/listen = \"a:70000\": want HOST:PORT, such as \"127.0.0.1:8080\""},
    {"{\"http\": {\"listen\": \"::1:80\"}}",
     "cleave.json:1: /http/listen = \"::1:80\": want HOST:PORT, such as \"127.0.0.1:8080\""},
    {"{\"model\": \"\"}", "cleave.json:1: /model = \"\": want a text of 1 to 1023 bytes"},
    {"{\"model\": \"a\\nb\"}", "cleave.json:1: /model = \"a\\nb\": want a text of 1 to 1023 bytes"},
    {"{\"http\": {\"lisen\": 1}}",
     "cleave.json:1: /http/lisen: unknown key; did you mean /http/listen?"},
    {"{\"block_tokens\": 16}",
     "cleave.json:1: /block_tokens: unknown key; did you mean /kv/block_tokens?"},
    {"{\"schedular\": {}}", "cleave.json:1: /schedular: unknown key; did you mean /scheduler?"},
    {"{\"http/listen\": \"a:1\"}", "cleave.json:1: /http/listen: unknown key \"http/listen\": want "
                                   "objects without \"/\", such as "
                                   "{\"http\": {\"listen\": …}}"},
    {"{\"log\": {\"ledger_file\": \"a\", \"access_file\": \"a\"}}",
     "cleave.json:1: /log/access_file = \"a\": want another file than log/ledger_file"},
    {"{\"log\": {\"ledger_file\": \"a\", \"events_file\": \"a\"}}",
     "cleave.json:1: /log/events_file = \"a\": want another file than log/ledger_file"},
    {"{\"log\": {\"ledger_file\": \"./a\", \"access_file\": \".//a\"}}",
     "cleave.json:1: /log/access_file = \".//a\": want another file than log/ledger_file"},
    {"{\"log\": {\"otlp_endpoint\": \"a:4318\"}}",
     "cleave.json:1: /log/otlp_endpoint = \"a:4318\": want http://HOST:PORT/v1/traces"},
    {"{\"log\": {\"events_file\": \"a\", \"access_file\": \"a\"}}",
     "cleave.json:1: /log/access_file = \"a\": want another file than log/events_file"},
    {"{\"xyzzy-plugh\": 1}", "cleave.json:1: /xyzzy-plugh: unknown key"},
    {"{\"a\\nb\": 1}", "cleave.json:1: /a\\x0ab: unknown key"},
    {"{\"pools\": {\"promt\": 1}}",
     "cleave.json:1: /pools/promt: unknown key; did you mean /pools/prompt?"},
    {"{\"pools\": {\"prompt\": 1}}", "cleave.json:1: /pools: no machine can serve requests: want a "
                                     "prompt and a token machine, or a mixed one"},
    {"{\n\"pools\": {\"mixed\": 257}}",
     "cleave.json:2: /pools/mixed = 257: want a whole number from 0 to 256, or a list of names"},
    {"{\"pools\": {\"prompt\": 140, \"token\": 140}}",
     "cleave.json:1: /pools/token: more than 256 machines in all"},
    {"{\"pools\": {\n\"mixed\": [\"a\",\n\"a\"]}}",
     "cleave.json:3: /pools/mixed/1 = \"a\": it is in pool mixed already"},
    {"{\"pools\": {\"prompt\": [\"a\"], \"token\": [\"b\", \"a\"]}}",
     "cleave.json:1: /pools/token/1 = \"a\": it is in pool prompt already"},
    {"{\"pools\": {\"mixed\": [\"a b\"]}}",
     "cleave.json:1: /pools/mixed/0 = \"a b\": want a name of at most 31 "
     "letters, digits, dots, dashes"},
    {"{\"pools\": {\"mixed\": [7]}}", "cleave.json:1: /pools/mixed/0 = 7: want a machine's name"},
    {"{\"machines\": {\n\"prompt-0\": {},\n\"ghost\": {\"threads\": 1}}}",
     "cleave.json:3: /machines/ghost: no pool names this machine"},
    {"{\"machines\": {\"prompt-0\": {\"thread\": 1}}}",
     "cleave.json:1: /machines/prompt-0/thread: unknown key; did you mean "
     "/machines/prompt-0/threads?"},
    {"{\"machines\": {\"prompt-0\":\n{\n\"threads\": \"2\"}}}",
     "cleave.json:3: /machines/prompt-0/threads = \"2\": want a whole number from 0 to 1024"},
    {"{\"machines\": {\"prompt-0\": {\"local\": false}}}",
     "cleave.json:1: /machines/prompt-0: it is not local: want its address, HOST:PORT"},
    {"{\"machines\": {\"prompt-0\": {\"address\": \"h:0\"}}}",
     "cleave.json:1: /machines/prompt-0/address = \"h:0\": want HOST:PORT, such as "
     "\"127.0.0.1:8080\""},
    {"{\"machines\": {\"prompt-0\": {\"address\": \"h:1\"}, \"token-0\": {\"address\": \"h:1\"}}}",
     "cleave.json:1: /machines/token-0/address = \"h:1\": machine prompt-0 has it as well"},
    {"{\"machines\": {\"prompt-0\": {\"stages\": 65}}}",
     "cleave.json:1: /machines/prompt-0/stages = 65: want a whole number from 1 to 64, or a list "
     "of at most as many stages"},
    {"{\"machines\": {\"prompt-0\": {\n\"stages\": [{\"layers\": \"0-9\"},\n{\"layers\": "
     "\"11-29\"}]}}}",
     "cleave.json:3: /machines/prompt-0/stages/1/layers = \"11-29\": want layers from 10 on, or "
     "those of the stage before"},
    {"{\"machines\": {\"prompt-0\": {\"stages\": [{\"layers\": \"9-0\"}]}}}",
     "cleave.json:1: /machines/prompt-0/stages/0/layers = \"9-0\": want the first and the last "
     "layer, such as \"0-14\""},
    {"{\"machines\": {\"prompt-0\": {\"stages\": [{\"layers\": \"0-9\"}, {}]}}}",
     "cleave.json:1: /machines/prompt-0/stages: want `layers` of each stage, or of none"},
    {"{\"machines\": {\"prompt-0\": {\"stages\": [{\"device\": \"tpu\"}]}}}",
     "cleave.json:1: /machines/prompt-0/stages/0/device = \"tpu\": want \"cpu\", "
     "\"cuda:N\" or \"wait:LAYER_US+ROW_US\""},
    {"{\"machines\": {\"prompt-0\": {\"stages\": [{\"layer\": \"1\"}]}}}",
     "cleave.json:1: /machines/prompt-0/stages/0/layer: want device, devices, layers, host, "
     "threads, speed or tensor_parallel"},
    {"{\"machines\": {\"prompt-0\": {\"tensor_parallel\": 17}}}",
     "cleave.json:1: /machines/prompt-0/tensor_parallel = 17: want a whole number from 1 to 16"},
    {"{\"machines\": {\"prompt-0\": {\"stages\": [{}, {\"tensor_parallel\": 0}]}}}",
     "cleave.json:1: /machines/prompt-0/stages/1/tensor_parallel = 0: want a whole number from 1 "
     "to "
     "16"},
    {"{\"machines\": {\"prompt-0\": {\"tensor_parallel\": 16,\n\"stages\": 5}}}",
     "cleave.json:2: /machines/prompt-0/stages: 16 ranks behind 64 processes: want at most 64 in "
     "all"},
    {"{\"machines\": {\"prompt-0\": {\"stages\": [{\"devices\": [\"cuda:0\", \"cuda:2\"]}]}}}",
     "cleave.json:1: /machines/prompt-0/stages/0/devices: 2 of them, tensor_parallel is 1: want "
     "one "
     "for each rank"},
    {"{\"machines\": {\"prompt-0\": {\"stages\": [{\"devices\": [\"cuda:0\", \"cpu\"]}]}}}",
     "cleave.json:1: /machines/prompt-0/stages/0/devices = [\"cuda:0\",\"cpu\"]: want devices of "
     "one "
     "kind"},
    {"{\"machines\": {\"prompt-0\": {\"stages\": [{\"devices\": [\"cuda:0\", 1]}]}}}",
     "cleave.json:1: /machines/prompt-0/stages/0/devices/1 = 1: want \"cpu\", \"cuda:N\" or "
     "\"wait:LAYER_US+ROW_US\""},
    {"{\"machines\": {\"prompt-0\": {\"stages\": [{\"devices\": []}]}}}",
     "cleave.json:1: /machines/prompt-0/stages/0/devices = []: want a list of 1 to 16 devices"},
    {"{\"machines\": {\"prompt-0\": {\"stages\": [{\"devices\": [\"cuda\"], \"device\": "
     "\"cuda\"}]}}}",
     "cleave.json:1: /machines/prompt-0/stages/0: want device or devices, not both"},
    {"{\"cluster\": {\"allow_insecure\": true}, \"machines\": {\"prompt-0\": {\"tensor_parallel\": "
     "3, \"stages\": [{\"host\": \"b:65534\"}]}}}",
     "cleave.json:1: /machines/prompt-0/stages/0/host = \"b:65534\": its 3 ranks use consecutive "
     "ports: there is none for rank 2"},
    {"{\"machines\": {\"prompt-0\": {\"tensor_parallel\": 2, \"stages\": [{\"device\": "
     "\"cuda:999\"}]}}}",
     "cleave.json:1: /machines/prompt-0/stages/0/device = \"cuda:999\": its 2 ranks use "
     "consecutive devices: there is none for rank 1"},
    {"{\"pools\": {\"mixed\": [\"a-name-of-30-characters-is-long\"]}, \"machines\": "
     "{\"a-name-of-30-characters-is-long\": {\"tensor_parallel\": 2}}}",
     "cleave.json:1: /machines/a-name-of-30-characters-is-long/stages: a machine with stages has a "
     "name of at most 28 characters"},
    {"{\"machines\": {\"prompt-0\": {\"stages\": [{\"host\": \"b\"}]}}}",
     "cleave.json:1: /machines/prompt-0/stages: stages on other computers: want cluster/key_file, "
     "or cluster/allow_insecure: true"},
    {"{\"http\": {\"web_origins\": \"chat.example\"}}",
     "cleave.json:1: /http/web_origins = \"chat.example\": "
     "want \"*\", or sites such as https://chat.example, without a path, with a "
     "blank between"},
    {"{\"http\": {\"web_origins\": \"https://chat.example/\"}}",
     "cleave.json:1: /http/web_origins = \"https://chat.example/\": "
     "want \"*\", or sites such as https://chat.example, without a path, with a "
     "blank between"},
    {"{\"http\": {\"web_origins\": \"https://\"}}",
     "cleave.json:1: /http/web_origins = \"https://\": "
     "want \"*\", or sites such as https://chat.example, without a path, with a "
     "blank between"},
    {"{\"http\": {\"web_origins\": \"https://a.example b.example\"}}",
     "cleave.json:1: /http/web_origins = \"https://a.example b.example\": "
     "want \"*\", or sites such as https://chat.example, without a path, with a "
     "blank between"},
    {"{\"http\": {\"web_origins\": \"*\"}}",
     "cleave.json:1: /http/web_origins = \"*\": every web page could use this server: want "
     "server/api_keys_file, or a list of sites"},
    {"{\"kv\": {\"checkpoint\": \"idle\", \"prefix_cache\": false}}",
     "cleave.json:1: /kv/checkpoint = \"idle\": want kv/prefix_cache, or off"},
    {"{\"scheduler\": {\"micro_batch_tokens\": 15}}",
     "cleave.json:1: /scheduler/micro_batch_tokens = 15: want 0 or at least 16"},
    {"{\"transport\": {\"silence_ms\": 1500}}",
     "cleave.json:1: /transport/silence_ms = 1500: want at least "
     "two heartbeats (heartbeat_ms = 1000)"},
    {"{\"http\": {\"listen\": \"0.0.0.0:80\"}, \"server\": {\"api_keys_file\": \"k\"}}",
     "cleave.json:1: /http/listen = \"0.0.0.0:80\": other computers reach it: want "
     "server/api_keys_file and server/tls_certificate_file, or server/allow_insecure: true"},
    {"{\"server\": {\"tls_key_file\": \"k\"}}",
     "cleave.json:1: /server/tls_certificate_file: want tls_certificate_file and tls_key_file, or "
     "neither"},
    {"{\"machines\": {\"prompt-0\": {}, \"token-0\":\n{\"local\": true, \"address\": \"h:1\"}}}",
     "cleave.json:2: /machines/token-0/address = \"h:1\": other computers reach it: want "
     "cluster/key_file, or cluster/allow_insecure: true"},
    {"{\"kv\": {\"tiers\": {\"store\":\n{\"servers\": \"127.0.0.1:1, b\"}}}}",
     "cleave.json:2: /kv/tiers/store/servers = \"127.0.0.1:1, b\": want up to 16 addresses "
     "HOST:PORT, separated by commas"},
    {"{\"kv\": {\"tiers\": {\"store\": {\"servers\": \"127.0.0.1:1, b:2\"}}}}",
     "cleave.json:1: /kv/tiers/store/servers: b:2: KV can be read on the way: want "
     "kv/tiers/store/tls, or cluster/allow_insecure: true"},
    {"{\"kv\": {\"tiers\": {\"key_file\": \"k\", \"store\": {\"servers\": \"b:2\",\n"
     "\"password_file\": \"p\"}}}}",
     "cleave.json:1: /kv/tiers/store/servers: b:2: the password can be read on the way: want "
     "kv/tiers/store/tls, or cluster/allow_insecure: true"},
    {"{\"kv\": {\"tiers\": {\"store\": {\"user\": \"u\"}}}}",
     "cleave.json:1: /kv/tiers/store/user: want password_file, too"},
    {"{\"kv\": {\"tiers\": {\"store\": {\"ca_file\": \"c\"}}}}",
     "cleave.json:1: /kv/tiers/store/ca_file: want kv/tiers/store/tls, too"},
    {"{\"kv\": {\"prefix_cache\": false, \"tiers\": {\"memory\": {\"size\": \"1GiB\"}}}}",
     "cleave.json:1: /kv/tiers/memory/size: want kv/prefix_cache, or 0"},
    {"{\"kv\": {\"prefix_cache\": false, \"tiers\": {\"store\": {\"servers\": \"127.0.0.1:1\"}}}}",
     "cleave.json:1: /kv/tiers/store/servers = \"127.0.0.1:1\": want kv/prefix_cache"},
    {"{\"cluster\": {\"membership\": \"etcd\"}}",
     "cleave.json:1: /cluster/etcd_endpoints = \"\": want up to 8 addresses, http://HOST:PORT or "
     "https://HOST:PORT, separated by commas"},
    {"{\"cluster\": {\"membership\": \"etcd\",\n\"etcd_endpoints\": \"http://a:1, b:2\"}}",
     "cleave.json:2: /cluster/etcd_endpoints = \"http://a:1, b:2\": want up to 8 addresses, "
     "http://HOST:PORT or https://HOST:PORT, separated by commas"},
    {"{\"cluster\": {\"membership\": \"etcd\", \"etcd_endpoints\": \"https://a:1, http://b:2\",\n"
     "\"etcd_user\": \"u\", \"etcd_password_file\": \"p\"}}",
     "cleave.json:1: /cluster/etcd_endpoints: http://b:2: the password of etcd_user can be read on "
     "the way: want https://, or cluster/allow_insecure: true"},
    {"{\"cluster\": {\"membership\": \"etcd\", \"etcd_endpoints\": \"http://127.0.0.1:1\",\n"
     "\"etcd_ca_file\": \"c\"}}",
     "cleave.json:1: /cluster/etcd_endpoints: http://127.0.0.1:1: etcd_ca_file and "
     "etcd_certificate_file need https://"},
    {"{\"cluster\": {\"membership\": \"etcd\", \"etcd_endpoints\": \"http://127.0.0.1:1\",\n"
     "\"etcd_user\": \"u\"}}",
     "cleave.json:2: /cluster/etcd_user: want etcd_user and etcd_password_file, or neither"},
    {"{\"cluster\": {\"membership\": \"etcd\", \"etcd_endpoints\": \"https://a:1\",\n"
     "\"etcd_key_file\": \"u\"}}",
     "cleave.json:1: /cluster/etcd_certificate_file: want etcd_certificate_file and "
     "etcd_key_file, or neither"},
};

static void test_openness(void)
{
    static const char *const inside[] = {"127.0.0.1:80", "127.9.9.9:0", "localhost:80", "[::1]:80"};
    static const char *const outside[] = {
        "0.0.0.0:80",       "[::]:80",       "127.0.0.1.example:80", "10.0.0.1:80",
        "localhost.net:80", "[::1%eth0]:80", "127.example:80"};
    for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++)
        CHECK(config_address_is_loopback(inside[i]));
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
        CHECK(!config_address_is_loopback(outside[i]));
    parsed("{\"http\": {\"listen\": \"0.0.0.0:80\"}, \"server\": {\"allow_insecure\": true}}");
    parsed("{\"http\": {\"listen\": \"0.0.0.0:80\"}, \"server\": {\"api_keys_file\": \"k\", "
           "\"tls_certificate_file\": \"c\", \"tls_key_file\": \"d\"}}");
    parsed("{\"machines\": {\"token-0\": {\"address\": \"h:1\"}}, "
           "\"cluster\": {\"allow_insecure\": true}}");
    parsed("{\"pools\": {}, \"cluster\": {\"membership\": \"etcd\", \"etcd_endpoints\": "
           "\"http://a:1, https://b:2\"}}"); /* No machine is named, but machines may register. */
}

struct changes {
    uint32_t count[3];
    char text[512];
};

static void on_change(void *self, const struct config_change *change)
{
    struct changes *changes = self;
    changes->count[change->reload]++;
    size_t used = strlen(changes->text);
    snprintf(changes->text + used, sizeof(changes->text) - used, "%s %s %s;", change->path,
             change->old_value, change->new_value);
}

static void test_changes(void)
{
    struct config now = parsed("{}");
    struct config next =
        parsed("{\"source\": \"other\", \"slo\": {\"ttft_ms\": 7}, \"threads\": 3,"
               " \"http\": {\"listen\": \"127.0.0.1:9\"}, \"pools\": {\"mixed\": 1}}");
    struct changes changes = {.text = ""};
    config_diff(&now, &now, on_change, &changes);
    CHECK(changes.text[0] == 0);
    config_diff(&now, &next, on_change, &changes);
    CHECKF(strcmp(changes.text, "threads 0 3;http/listen \"127.0.0.1:8080\" \"127.0.0.1:9\";"
                                "slo/ttft_ms 500 7;") == 0,
           "%s", changes.text);
    CHECK(changes.count[CONFIG_RELOAD_NEVER] == 1 && changes.count[CONFIG_RELOAD_YES] == 1);
    config_reload_copy(&now, &next);
    CHECK(now.slo.ttft_ms == 7 && now.threads == 3 && now.machine_count == 2);
    CHECK(strcmp(now.http.listen, "127.0.0.1:8080") == 0 && strcmp(now.source, "cleave.json") == 0);
    changes.text[0] = 0;
    config_machine_diff(&now.machines[0], &next.machines[0], on_change, &changes);
    CHECKF(strcmp(changes.text, "machines/prompt-0/threads 0 3;") == 0, "%s", changes.text);
    /* An empty entry is not a machine. */
    now.machines[0] = (struct config_machine){.name = ""};
    CHECK(!config_machine_present(&now, 0) && config_machine_present(&now, 1));
    CHECK(config_machine_find(&now, "") == -1 && config_machine_find(&now, "token-0") == 1);
}

static void test_machine(void)
{
    struct config config = parsed("{\"threads\": 3}");
    struct config_machine machine;
    struct error error;
    const char *text = "{\"name\": \"t7\", \"pool\": \"token\", \"kv_memory\": \"2MiB\", "
                       "\"ucx_devices\": \"mlx5_1:1\"}";
    CHECK(config_machine_parse(text, strlen(text), "x", &config, &machine, &error) == ST_OK);
    CHECK(strcmp(machine.name, "t7") == 0 && machine.pool == POOL_TOKEN && machine.local);
    CHECK(machine.threads == 3 && machine.kv_memory_bytes == 2 << 20);
    CHECK(strcmp(machine.ucx_devices, "mlx5_1:1") == 0);
    CHECK(machine.nice == config.machines[1].nice &&
          machine.nice == 1); /* As in the config file. */
    text = "{\"name\": \"t7\", \"pool\": \"mixed\", \"local\": true, \"address\": \"h:1\"}";
    CHECK(config_machine_parse(text, strlen(text), "x", &config, &machine, &error) == ST_OK);
    CHECK(machine.local && strcmp(machine.address, "h:1") == 0);
    static const char *const wrong[][2] = {
        {"{", "x: not JSON"},
        {"[]", "x: /name: want"},
        {"{\"name\": \"a b\"}", "x: /name: want"},
        {"{\"name\": \"a\"}", "x: /pool: want"},
        {"{\"name\": \"a\", \"pool\": \"tokens\"}", "x: /pool = \"tokens\": want"},
        {"{\"name\": \"a\", \"pool\": \"token\", \"thread\": 1}", "x: /thread: want name"},
        {"{\"name\": \"a\", \"pool\": \"token\", \"threads\": -1}", "x: /threads = -1: want"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK(config_machine_parse(wrong[i][0], strlen(wrong[i][0]), "x", &config, &machine,
                                   &error) == ST_INVALID);
        CHECKF(strncmp(error.text, wrong[i][1], strlen(wrong[i][1])) == 0, "%s", error.text);
    }
}

static void test_bad(void)
{
    struct config config;
    struct config before;
    memset(&config, 7, sizeof(config));
    memcpy(&before, &config, sizeof(config));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct error error = {{0}};
        enum status status =
            config_parse(bad[i].text, strlen(bad[i].text), "cleave.json", &config, &error);
        CHECKF(status == ST_INVALID, "%s", bad[i].text);
        CHECKF(strcmp(error.text, bad[i].error) == 0, "%s\n  gives %s\n  not   %s", bad[i].text,
               error.text, bad[i].error);
        CHECK(memcmp(&before, &config, sizeof(config)) == 0);
    }
}

static void test_set(void)
{
    struct config config;
    struct error error = {{0}};
    config_default(&config);
    CHECK(config_set(&config, "--listen", "http/listen", "0.0.0.0:9000", &error) == ST_OK);
    CHECK(strcmp(config.http.listen, "0.0.0.0:9000") == 0);
    CHECK(config_set(&config, "--set", "machines/token-0/kv_memory", "64MiB", &error) == ST_OK);
    CHECK(config_set(&config, "--set", "kv/memory", "16MiB", &error) == ST_OK);
    CHECK(config_set(&config, "--set", "threads", "2", &error) == ST_OK);
    CHECK(config_set(&config, "--prompt", "pools/prompt", "3", &error) == ST_OK);
    CHECK(config.machine_count == 4 && config_machine_find(&config, "token-0") == 3);
    CHECK(config.machines[3].kv_memory_bytes == 64 << 20 && config.machines[3].threads == 2);
    CHECK(config.machines[2].kv_memory_bytes == 16 << 20 && config.machines[2].threads == 2);
    CHECK(config_set(&config, "--prompt", "pools/prompt", "a,b", &error) == ST_OK);
    CHECK(config_machine_find(&config, "b") == 1 && config.machine_count == 3);
    CHECK(config_set(&config, "--prompt", "pools/prompt", "0", &error) == ST_OK);
    CHECK(config_check(&config, "cleave", &error) == ST_INVALID);
    CHECK(strncmp(error.text, "cleave: /pools: no machine", 26) == 0);
    CHECK(config_set(&config, "--set", "machines/token-0/local", "false", &error) == ST_OK);
    CHECK(!config.machines[0].local);

    struct config before = config;
    CHECK(config_set(&config, "--listen", "http/listen", "foo", &error) == ST_INVALID);
    CHECK(strcmp(error.text, "--listen: /http/listen = \"foo\": want HOST:PORT, such as "
                             "\"127.0.0.1:8080\"") == 0);
    CHECK(config_set(&config, "--set", "kv/blok_tokens", "16", &error) == ST_INVALID);
    CHECK(strcmp(error.text,
                 "--set: /kv/blok_tokens: unknown key; did you mean /kv/block_tokens?") == 0);
    CHECK(config_set(&config, "--set", "machines/x/threads", "1", &error) == ST_INVALID);
    CHECK(config_set(&config, "--set", "pools/mixed", "a,token-0", &error) == ST_INVALID);
    CHECK(config_set(&config, "--set", "slo/tbt_ms", "99999999999999999999", &error) == ST_INVALID);
    CHECK(config_set(&config, "--set", "model", "\xff\xfe", &error) == ST_INVALID);
    CHECK(memcmp(&before, &config, sizeof(config)) == 0);
}

static struct config written_and_read(const struct config *config)
{
    char *text = NULL;
    size_t bytes = 0;
    struct config back;
    struct error error = {{0}};
    FILE *file = open_memstream(&text, &bytes);
    CHECK(file != NULL && config_write(config, file) == ST_OK);
    fclose(file);
    CHECKF(config_parse(text, bytes, "pipe", &back, &error) == ST_OK, "%s\n%s", error.text, text);
    free(text);
    return back;
}

/* Compares as text: bytes after the end of a string in its array do not count. */
static void check_same(const struct config *a, const struct config *b)
{
    char *text[2] = {NULL, NULL};
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        FILE *file = open_memstream(&text[i], &bytes[i]);
        CHECK(file != NULL && config_write(i == 0 ? a : b, file) == ST_OK);
        fclose(file);
    }
    CHECKF(strcmp(text[0], text[1]) == 0, "%s\n%s", text[0], text[1]);
    free(text[0]);
    free(text[1]);
    CHECK(a->machine_count == b->machine_count);
    for (uint32_t i = 0; i < a->machine_count; i++)
        CHECK(strcmp(a->machines[i].name, b->machines[i].name) == 0 &&
              a->machines[i].pool == b->machines[i].pool &&
              a->machines[i].local == b->machines[i].local &&
              a->machines[i].threads == b->machines[i].threads &&
              a->machines[i].kv_memory_bytes == b->machines[i].kv_memory_bytes &&
              strcmp(a->machines[i].address, b->machines[i].address) == 0);
}

static void test_round_trip(uint64_t seed)
{
    static const char *const settings[][2] = {
        {"pools/prompt", "3"},
        {"pools/token", "t9,t1,x"},
        {"pools/mixed", "2"},
        {"pools/mixed", "0"},
        {"kv/memory", "3MiB"},
        {"kv/tiers/memory/size", "0"},
        {"kv/memory", "1048577"},
        {"threads", "5"},
        {"machines/x/threads", "1"},
        {"machines/x/address", "localhost:1"},
        {"machines/x/local", "true"},
        {"machines/prompt-0/kv_memory", "7GiB"},
        {"model", "a \"b\" \xc3\xa9"},
        {"transport/ucx_transports", "tcp"},
        {"slo/ttft_ms", "1"},
        {"http/body_bytes_max", "1025"},
        {"kv/transfer", "one-piece"},
        {"source", "dir/c.json"},
        {"machines/x/stages", "3"},
        {"machines/x/tensor_parallel", "2"},
        {"machines/x/stages",
         "[{\"layers\": \"0-1\"}, {\"layers\": \"2-5\", \"host\": \"[::1]:7\"}]"},
    };
    for (uint64_t round = 0; round < 300; round++) {
        struct config config;
        config_default(&config);
        for (uint64_t i = 0; i < 12; i++) {
            uint64_t pick =
                random_at(seed, round * 64 + i) % (sizeof(settings) / sizeof(settings[0]));
            config_set(&config, "x", settings[pick][0], settings[pick][1], NULL);
        }
        CHECK(config_check(&config, "x", NULL) == ST_OK);
        struct config back = written_and_read(&config);
        check_same(&config, &back);
        CHECK(strcmp(config.source, back.source) == 0 && strcmp(config.model, back.model) == 0);
    }
}

/* The old name of a key sets the same field and leaves a warning. */
static void test_renamed(void)
{
    static const char text[] = "{\"transport\": {\"tls\": \"tcp,self\"}}";
    static const char now[] = "{\"transport\": {\"ucx_transports\": \"tcp,self\"}}";
    struct config config;
    struct error error = {{0}};
    CHECKF(config_parse(text, strlen(text), "c", &config, &error) == ST_OK, "%s", error.text);
    CHECK(strcmp(config.transport.ucx_transports, "tcp,self") == 0);
    CHECK(strcmp(config.renamed_warning, "/transport/tls is now /transport/ucx_transports") == 0);
    CHECK(config_parse(now, strlen(now), "c", &config, &error) == ST_OK);
    CHECK(strcmp(config.transport.ucx_transports, "tcp,self") == 0 &&
          config.renamed_warning[0] == 0);
    CHECK(config_set(&config, "--set", "transport/tls", "sysv", &error) == ST_OK);
    CHECK(strcmp(config.transport.ucx_transports, "sysv") == 0 && config.renamed_warning[0] != 0);
}

static void file_make(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

static void test_files(void)
{
    char directory[] = "/tmp/cleave-config-XXXXXX";
    char path[128];
    char cache[128];
    char found[LIMIT_PATH_BYTES];
    struct config config;
    struct error error = {{0}};
    CHECK(mkdtemp(directory) != NULL);
    CHECK(config_load("/nowhere/cleave.json", &config, &error) == ST_NOT_FOUND);
    CHECK(strcmp(error.text, "/nowhere/cleave.json: No such file or directory") == 0);
    CHECK(config_load(directory, &config, &error) == ST_IO);

    snprintf(path, sizeof(path), "%s/c.json", directory);
    file_make(path, "{\"model\": \"m.gguf\"}");
    CHECKF(config_load(path, &config, &error) == ST_OK, "%s", error.text);
    CHECK(strcmp(config.source, path) == 0);

    setenv("XDG_CACHE_HOME", directory, 1);
    CHECK(config_model_path(&config, found, &error) == ST_NOT_FOUND);
    char wanted[512];
    snprintf(wanted, sizeof(wanted),
             "no model file; looked at m.gguf, %s/m.gguf, %s/cleave/m.gguf, "
             "/var/lib/cleave/models/m.gguf (cleave model fetch downloads models)",
             directory, directory);
    CHECKF(strcmp(error.text, wanted) == 0, "%s", error.text);

    snprintf(path, sizeof(path), "%s/cleave", directory);
    CHECK(mkdir(path, 0700) == 0);
    snprintf(cache, sizeof(cache), "%s/cleave/m.gguf", directory);
    file_make(cache, "x");
    CHECK(config_model_path(&config, found, &error) == ST_OK && strcmp(found, cache) == 0);
    snprintf(path, sizeof(path), "%s/m.gguf", directory);
    file_make(path, "x");
    CHECK(config_model_path(&config, found, &error) == ST_OK && strcmp(found, path) == 0);
    /* An absolute path is not changed. */
    snprintf(config.model, sizeof(config.model), "%s", cache);
    CHECK(config_model_path(&config, found, &error) == ST_OK && strcmp(found, cache) == 0);

    unlink(path);
    unlink(cache);
    snprintf(path, sizeof(path), "%s/cleave", directory);
    rmdir(path);
    snprintf(path, sizeof(path), "%s/c.json", directory);
    unlink(path);
    rmdir(directory);
}

/* "auto" is the best type that all machines of the file support. */
static void test_kv_dtype(void)
{
    static const struct {
        const char *p, *t; /* Keys of the two machines. */
        const char *dtype;
    } cases[] = {
        {"\"device\": \"cuda:0\"", "\"device\": \"cuda:1\"", "f16"},
        {"\"device\": \"cuda:0\"", "", "i16"},
        {"", "", "i16"},
        {"\"device\": \"cuda\", \"tensor_parallel\": 2", "\"device\": \"cuda:1\"", "f16"},
        {"\"device\": \"cuda\", \"stages\": 2", "\"device\": \"cuda:1\"", "f16"},
        {"\"stages\": [{\"device\": \"cuda:0\"}, {\"device\": \"cuda:1\"}]",
         "\"device\": \"cuda:2\"", "f16"},
        {"\"stages\": [{\"device\": \"cuda:0\"}, {\"device\": \"cpu\"}]", "\"device\": \"cuda:2\"",
         "i16"},
    };
    struct config config;
    struct error error;
    char text[512];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int set = 0; set < 2; set++) {
            snprintf(text, sizeof(text),
                     "{\"pools\": {\"prompt\": [\"p\"], \"token\": [\"t\"]}, "
                     "\"machines\": {\"p\": {%s}, \"t\": {%s}}%s}",
                     cases[i].p, cases[i].t, set ? ", \"kv\": {\"dtype\": \"i8\"}" : "");
            CHECKF(config_parse(text, strlen(text), "test", &config, &error) == ST_OK, "%s",
                   error.text);
            const char *dtype = config_kv_dtype(&config);
            CHECKF(strcmp(dtype, set ? "i8" : cases[i].dtype) == 0, "%s: %s", text, dtype);
            /* Removed machines do not count. */
            config.machines[0].name[0] = 0;
            config.machines[1].name[0] = 0;
            CHECK(strcmp(config_kv_dtype(&config), set ? "i8" : "i16") == 0);
        }
    }
}

static void test_reference(void)
{
    page_check("docs/configuration.md", "build/tests/config/test_config --reference",
               config_print_reference);
}

/* Checks the examples that operators start from. */
static void test_examples(void)
{
    char pattern[1024];
    glob_t found;
    const char *source = getenv("CLEAVE_SOURCE");
    snprintf(pattern, sizeof(pattern), "%s/deploy/*.json", source != NULL ? source : ".");
    CHECK(glob(pattern, 0, NULL, &found) == 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct config config;
        struct error error = {{0}};
        CHECKF(config_load(found.gl_pathv[i], &config, &error) == ST_OK, "%s", error.text);
    }
    globfree(&found);
}

/* The names appear in config files, in metrics and in the entries of members in etcd. */
static void test_pool_names(void)
{
    static const char *const names[POOL_COUNT] = {"prompt", "token", "mixed"};
    enum pool found = POOL_COUNT;
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        CHECK(strcmp(pool_name((enum pool)pool), names[pool]) == 0);
        CHECK(pool_by_name(names[pool], &found) && found == (enum pool)pool);
    }
    found = POOL_TOKEN;
    CHECK(!pool_by_name("Prompt", &found) && !pool_by_name("", &found) &&
          !pool_by_name(NULL, &found));
    CHECK(found == POOL_TOKEN);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--reference") == 0) {
        config_print_reference(stdout);
        return 0;
    }
    uint64_t seed = test_seed();
    test_default();
    test_good();
    test_stages();
    test_bad();
    test_openness();
    test_changes();
    test_machine();
    test_set();
    test_round_trip(seed);
    test_renamed();
    test_files();
    test_examples();
    test_kv_dtype();
    test_pool_names();
    test_reference();
    return 0;
}
