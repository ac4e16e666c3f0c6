/* config_table: every key of the config file, once. Parser, command line, help and the reference
 * page use this table. */
#include "config/table.h"

#include <ctype.h>
#include <string.h>

#define FIELD(member)         offsetof(struct config, member)
#define MACHINE_FIELD(member) offsetof(struct config_machine, member)
#define KIB                   1024ull
#define MIB                   (1024 * KIB)
#define TIB                   (1024 * 1024 * MIB)
#define HOUR_MS               3600000
#define TEXT_OF_TOKEN(token)  #token
#define TEXT_OF(constant)     TEXT_OF_TOKEN(constant) /* The constant's value as a text. */
#define THRESHOLD_TEXT        TEXT_OF(CONFIG_THRESHOLD_TOKENS)

const struct config_key config_keys[] = {
    {"model", CONFIG_STRING, FIELD(model), 1, LIMIT_PATH_BYTES - 1,
     .default_text = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .help = "The model: a GGUF file, or a folder with config.json, tokenizer.json and "
             "safetensors. A relative path is searched in the current folder, beside the config "
             "file, in ~/.cache/cleave and /var/lib/cleave/models."},
    {"chat_template_file", CONFIG_STRING, FIELD(chat_template_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help = "File with a chat template that replaces the model's. Empty: the model's template."},
    {"adapters", CONFIG_STRING, FIELD(adapters), 0, 4095, .default_text = "",
     .help = "LoRA adapters of the model: \"NAME=FOLDER, NAME=FOLDER\". A request chooses one by "
             "its field `model` (models.md). Empty: none."},
    {"tool_parser", CONFIG_CHOICE, FIELD(tool_parser), .maximum = 11,
     .choices = "auto none hermes llama3 mistral deepseek harmony json", .default_text = "auto",
     .help = "Format of the model's tool calls (tools.md). auto: as its chat template shows. none: "
             "only calls that a request demands are found."},
    {"reasoning_parser", CONFIG_CHOICE, FIELD(reasoning_parser), .maximum = 11,
     .choices = "auto none think mistral harmony", .default_text = "auto",
     .help = "Format of the model's reasoning (tools.md), which chats return in a separate field. "
             "auto: as its chat template shows. none: reasoning stays in the content."},
    {"profile", CONFIG_STRING, FIELD(profile), 0, LIMIT_PATH_BYTES - 1, .default_text = "",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "A file of `cleave profile`. Its times decide which layers each stage gets "
             "(pipelines.md). Empty: the sizes of the weights decide."},
    {"model_name", CONFIG_STRING, FIELD(model_name), 0, 63, .default_text = "",
     .help = "The model's name in /v1/models. Empty: the name of the file (without .gguf) or "
             "folder."},
    {"threads", CONFIG_WHOLE, FIELD(threads), 0, 1024, .default_text = "0",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Threads of each machine without `threads` of its own. 0 = the number of cores of its "
             "host."},
    {"source", CONFIG_STRING, FIELD(source), 1, LIMIT_PATH_BYTES - 1,
     .default_words = "the file's path",
     .help = "The config file; relative paths start at its folder. The gateway sets this key for "
             "its machines."},

    {"http/listen", CONFIG_ADDRESS, FIELD(http.listen), 0, 0, .default_text = "127.0.0.1:8080",
     .help = "Address of the HTTP server. Port 0 = any free port."},
    {"http/admin_socket", CONFIG_STRING, FIELD(http.admin_socket), 0, 100, .default_text = "",
     .help = "Path of a Unix socket (mode 0600) over which the gateway's user may use /admin "
             "without an API key. Empty: no socket."},
    {"http/web_origins", CONFIG_STRING, FIELD(http.web_origins), 0, 511, .default_text = "",
     .reload = CONFIG_RELOAD_YES,
     .help = "Sites whose web pages may use the API from a browser (CORS), such as "
             "\"https://chat.example http://localhost:3000\". \"*\": all sites; needs API keys. "
             "Empty: none."},
    {"http/page", CONFIG_CHOICE, FIELD(http.page), .maximum = 7, .choices = "auto on off",
     .default_text = "auto", .reload = CONFIG_RELOAD_YES,
     .help = "Whether `GET /` answers with a page to try the server. auto: only if http/listen is "
             "a loopback address."},
    {"http/body_bytes_max", CONFIG_BYTES, FIELD(http.body_bytes_max), KIB, 1024 * MIB,
     .default_text = "8MiB", .reload = CONFIG_RELOAD_YES,
     .help = "Largest request body. Larger ones get status 413."},
    {"http/bodies_bytes_max", CONFIG_BYTES, FIELD(http.bodies_bytes_max), KIB, 65536 * MIB,
     .default_text = "64MiB", .reload = CONFIG_RELOAD_YES,
     .help = "Most bytes of all request bodies that are being received or read. Further requests "
             "get status 503 with Retry-After."},
    {"http/answers_bytes_max", CONFIG_BYTES, FIELD(http.answers_bytes_max), KIB, 65536 * MIB,
     .default_text = "256MiB", .reload = CONFIG_RELOAD_YES,
     .help = "Most bytes of all answers that clients have not read yet. Beyond it, the client that "
             "has not read for the longest time is disconnected."},
    {"http/connections_max", CONFIG_WHOLE, FIELD(http.connections_max), 1, 65536,
     .default_text = "4096",
     .help = "Most open HTTP connections. Beyond it, a new one replaces the one that has been "
             "without a request for the longest time. A few are kept for /health and /admin."},
    {"http/connections_per_address_max", CONFIG_WHOLE, FIELD(http.connections_per_address_max), 1,
     65536, .default_text = "1024", .reload = CONFIG_RELOAD_YES,
     .help = "Most open connections from one IPv4 address or IPv6 network of 64 bits. Clients on "
             "this host, or with an API key, have no such limit."},
    {"http/headers_ms", CONFIG_WHOLE, FIELD(http.headers_ms), 1, HOUR_MS, .default_text = "30000",
     .reload = CONFIG_RELOAD_YES,
     .help = "Time limit for a new connection's TLS handshake and first headers."},
    {"http/bytes_per_second_min", CONFIG_WHOLE, FIELD(http.bytes_per_second_min), 1,
     1024 * 1024 * 1024, .default_text = "8192", .reload = CONFIG_RELOAD_YES,
     .help = "Lowest mean rate at which a client must send a body and read an answer. A slower "
             "client is disconnected after 30 seconds."},
    {"http/text_threads", CONFIG_WHOLE, FIELD(http.text_threads), 1, 64, .default_text = "2",
     .help = "Threads of the gateway that parse bodies and tokenize prompts. With 2 or more, one "
             "of them takes only bodies of up to 64 KiB."},
    {"http/ping_ms", CONFIG_WHOLE, FIELD(http.ping_ms), 0, HOUR_MS, .default_text = "15000",
     .reload = CONFIG_RELOAD_YES,
     .help = "After this time without an event, a stream gets a comment (`: ping`), so that "
             "proxies do not close it. The first comment sends the status 200: later errors are "
             "events. 0 = no comments."},

    {"server/api_keys_file", CONFIG_STRING, FIELD(server.api_keys_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "JSON file with the API keys of clients (operation.md), mode 0600. Empty: clients "
             "need no key."},
    {"server/prefix_cache_scope", CONFIG_CHOICE, FIELD(server.prefix_cache_scope), .maximum = 7,
     .choices = "all key group", .default_text = "key", .reload = CONFIG_RELOAD_YES,
     .help = "Which requests may share cached prefixes. all: all. key: those with the same API "
             "key. group: those whose keys have the same `cache_group`. Without API keys: all. A "
             "request's `cache_salt` narrows this."},
    {"server/embeddings", CONFIG_CHOICE, FIELD(server.embeddings), .maximum = 7,
     .choices = "auto off last mean", .default_text = "auto", .reload = CONFIG_RELOAD_YES,
     .help = "How /v1/embeddings makes one vector of a text (models.md). last: the last token's "
             "vector. mean: the mean of all tokens. auto: as the model's files say. off: never."},
    {"server/sampling_defaults", CONFIG_CHOICE, FIELD(server.sampling_defaults), .maximum = 7,
     .choices = "model none", .default_text = "model", .reload = CONFIG_RELOAD_YES,
     .help = "Defaults of temperature, top_p, top_k, min_p and repetition_penalty. model: from the "
             "model's files, else the API's. none: the API's."},
    {"server/control_tokens_in_text", CONFIG_CHOICE, FIELD(server.control_tokens_in_text),
     .maximum = 7, .choices = "allow prompts as_text", .default_text = "prompts",
     .reload = CONFIG_RELOAD_YES,
     .help = "Where a control token (such as the end of a turn) that a client writes as text has "
             "an effect (security.md). prompts: in prompts of completions, not in chats. allow: in "
             "both. as_text: in neither."},
    {"server/chat_template_in_requests", CONFIG_BOOL, FIELD(server.chat_template_in_requests), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_YES,
     .help = "true: a request may bring its own chat template (`chat_template`), which can write "
             "control tokens."},
    {"server/tls_certificate_file", CONFIG_STRING, FIELD(server.tls_certificate_file), 0,
     LIMIT_PATH_BYTES - 1, .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "Certificate chain in PEM, first the server's certificate. Empty: no TLS."},
    {"server/tls_key_file", CONFIG_STRING, FIELD(server.tls_key_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "Private key of the certificate, in PEM, mode 0600, without a password."},

    {"server/drain_ms", CONFIG_WHOLE, FIELD(server.drain_ms), 0, HOUR_MS, .default_text = "600000",
     .reload = CONFIG_RELOAD_YES,
     .help = "Time that running requests get after SIGTERM. Then they end with an error."},
    {"server/drain_notice_ms", CONFIG_WHOLE, FIELD(server.drain_notice_ms), 0, 30000,
     .default_text = "0", .reload = CONFIG_RELOAD_YES,
     .help = "Time before `drain_ms` in which `/health` answers 503 and new requests are still "
             "served, so that load balancers notice."},
    {"server/update_ms", CONFIG_WHOLE, FIELD(server.update_ms), 1, HOUR_MS,
     .default_text = "300000", .reload = CONFIG_RELOAD_YES,
     .help = "Time limit of a model update. If it takes longer, the old model stays."},
    {"server/update_memory_check", CONFIG_BOOL, FIELD(server.update_memory_check), 0, 0,
     .default_text = "true", .reload = CONFIG_RELOAD_YES,
     .help = "true: refuse a model update if its local machines need more memory than is "
             "available."},
    {"server/allow_insecure", CONFIG_BOOL, FIELD(server.allow_insecure), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_YES,
     .help = "true: without API keys and TLS, HTTP may also listen for other hosts (behind a "
             "proxy, or in a private network)."},

    {"log/level", CONFIG_CHOICE, FIELD(log.level), .maximum = 7, .choices = "debug info warn error",
     .default_text = "info", .reload = CONFIG_RELOAD_YES,
     .help = "Lowest level that is logged; --log-level overrides it. A reload changes it in the "
             "gateway and its local machines; `kill -USR2` switches one machine to debug and "
             "back."},
    {"log/format", CONFIG_CHOICE, FIELD(log.format), .maximum = 7, .choices = "text json",
     .default_text = "text", .reload = CONFIG_RELOAD_YES,
     .help = "Format of log lines and of the access log. Machines keep the format of their start."},
    {"log/access_file", CONFIG_STRING, FIELD(log.access_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "Access log (operation.md): one line for each answer. \"-\": among the other log "
             "lines. Empty: none."},
    {"log/slow_s", CONFIG_WHOLE, FIELD(log.slow_s), 0, 86400, .default_text = "0",
     .reload = CONFIG_RELOAD_YES,
     .help = "Requests that take at least this many seconds get a log line. 0 = none."},
    {"log/ledger_file", CONFIG_STRING, FIELD(log.ledger_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help = "Usage ledger (operation.md): one JSON line for each answer, with its tokens. Empty: "
             "none."},
    {"log/otlp_endpoint", CONFIG_STRING, FIELD(log.otlp_endpoint), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help = "OpenTelemetry collector (OTLP/HTTP, JSON) that gets the spans of each request, such "
             "as http://127.0.0.1:4318/v1/traces. Empty: none."},
    {"log/requests_kept", CONFIG_WHOLE, FIELD(log.requests_kept), 16, 16384, .default_text = "1024",
     .help = "Number of latest requests that `cleave requests` can show, 1.7 KiB each."},
    {"log/events_file", CONFIG_STRING, FIELD(log.events_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "Event log (operation.md): one JSON line for each event and decision of the cluster "
             "scheduler. Empty: none."},

    {"cluster/key_file", CONFIG_STRING, FIELD(cluster.key_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help = "File with the cluster key, mode 0600 (operation.md). A reload reads it again, and so "
             "does a machine at SIGHUP. Empty: if all machines are local, the gateway makes a key "
             "at each start; else there is none."},

    {"cluster/allow_insecure", CONFIG_BOOL, FIELD(cluster.allow_insecure), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_YES,
     .help = "true: without a cluster key, machines may also listen for other hosts. Anyone who "
             "reaches them can read every prompt."},

    {"cluster/membership", CONFIG_CHOICE, FIELD(cluster.membership), .maximum = 7,
     .choices = "file etcd", .default_text = "file",
     .help = "Where the gateway finds its machines. file: in the config file. etcd: also in etcd, "
             "where machines register themselves (operation.md)."},
    {"cluster/etcd_endpoints", CONFIG_STRING, FIELD(cluster.etcd_endpoints), 0, 511,
     .default_text = "",
     .help = "Addresses of etcd, up to 8, separated by commas: http://HOST:PORT or "
             "https://HOST:PORT."},
    {"cluster/etcd_prefix", CONFIG_STRING, FIELD(cluster.etcd_prefix), 0, 128,
     .default_text = "/cleave/", .help = "Prefix of all keys in etcd. Each cluster needs its own."},
    {"cluster/etcd_lease_s", CONFIG_WHOLE, FIELD(cluster.etcd_lease_s), 2, 3600,
     .default_text = "10",
     .help = "A machine's entry in etcd expires if it is not renewed for this many seconds."},
    {"cluster/etcd_user", CONFIG_STRING, FIELD(cluster.etcd_user), 0, LIMIT_USER_BYTES - 1,
     .default_text = "", .help = "User name for etcd. Empty: no login."},
    {"cluster/etcd_password_file", CONFIG_STRING, FIELD(cluster.etcd_password_file), 0,
     LIMIT_PATH_BYTES - 1, .default_text = "",
     .help = "File with the password of `etcd_user` in its first line, mode 0600."},
    {"cluster/etcd_ca_file", CONFIG_STRING, FIELD(cluster.etcd_ca_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help = "CA certificates for etcd's certificate, in PEM. Empty: those of the system."},
    {"cluster/etcd_certificate_file", CONFIG_STRING, FIELD(cluster.etcd_certificate_file), 0,
     LIMIT_PATH_BYTES - 1, .default_text = "",
     .help = "Client certificate for etcd, in PEM. Empty: none."},
    {"cluster/etcd_key_file", CONFIG_STRING, FIELD(cluster.etcd_key_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help = "Private key of the client certificate, in PEM, mode 0600, without a password."},

    {"cluster/core_dumps", CONFIG_BOOL, FIELD(cluster.core_dumps), 0, 0, .default_text = "false",
     .help = "true: a process that crashes may write a core dump, which contains keys and "
             "prompts."},
    {"cluster/sandbox", CONFIG_BOOL, FIELD(cluster.sandbox), 0, 0, .default_text = "true",
     .help = "true: gateways and machines give up rights that they do not need (security.md)."},

    {"pools/prompt", CONFIG_POOL, POOL_PROMPT, 0, LIMIT_MACHINES,
     .default_words = "1; 0 if the file has `pools`", .reload = CONFIG_RELOAD_YES,
     .help = "Machines that compute prompts: their names, or a number of local machines prompt-0, "
             "prompt-1, …"},
    {"pools/token", CONFIG_POOL, POOL_TOKEN, 0, LIMIT_MACHINES,
     .default_words = "1; 0 if the file has `pools`", .reload = CONFIG_RELOAD_YES,
     .help = "Machines that generate tokens: their names, or a number of local machines token-0, "
             "token-1, …"},
    {"pools/mixed", CONFIG_POOL, POOL_MIXED, 0, LIMIT_MACHINES, .default_words = "0",
     .reload = CONFIG_RELOAD_YES,
     .help = "Machines that do both phases: their names, or a number of local machines mixed-0, "
             "mixed-1, …"},

    {"machines/NAME/local", CONFIG_BOOL, MACHINE_FIELD(local), 0, 0,
     .default_words = "true without `address`, else false",
     .help = "true: `cleave serve` starts this machine on the gateway's host."},
    {"machines/NAME/address", CONFIG_ADDRESS, MACHINE_FIELD(address), 1, 0,
     .default_words = "any free port of the host", .reload = CONFIG_RELOAD_YES,
     .help = "Address that the machine listens on. Required if the machine is not local."},
    {"machines/NAME/device", CONFIG_DEVICE, MACHINE_FIELD(device), .maximum = 31,
     .default_words = "cpu", .reload = CONFIG_RELOAD_MACHINES,
     .help = "cpu; cuda:N: GPU number N of the host (gpu.md); or wait, which computes nothing: "
             "each layer takes LAYER_US microseconds plus ROW_US for each token (profile.md)."},
    {"machines/NAME/fallback", CONFIG_BOOL, MACHINE_FIELD(cpu_fallback), 0, 0,
     .default_words = "false", .reload = CONFIG_RELOAD_MACHINES,
     .help = "If the GPU cannot be used: false = the machine does not start; true = it computes on "
             "the CPU, with a warning in the log and in `cleave status`."},
    {"machines/NAME/f8_activations", CONFIG_BOOL, MACHINE_FIELD(f8_activations), 0, 0,
     .default_words = "true", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Activations of prompts, for models with E4M3 weights on GPUs that multiply E4M3 "
             "(FP8). true: E4M3. false: bf16, more exact and slower (gpu.md)."},
    {"machines/NAME/stages", CONFIG_STAGES, MACHINE_FIELD(stages),
     .default_words = "1: the machine computes all layers by itself",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Pipeline stages: consecutive layers, each stage computed by its own process. A "
             "number splits the layers evenly by cost; a list has one object per stage "
             "(pipelines.md)."},
    {"machines/NAME/tensor_parallel", CONFIG_WHOLE, MACHINE_FIELD(tensor_parallel), 1, LIMIT_RANKS,
     .default_words = "1", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Ranks of each stage that sets no number itself: processes that compute every layer "
             "together (pipelines.md)."},
    {"machines/NAME/threads", CONFIG_WHOLE, MACHINE_FIELD(threads), 0, 1024,
     .default_words = "`threads`", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Threads of this machine. 0 = the number of cores of its host."},
    {"machines/NAME/kv_memory", CONFIG_BYTES, MACHINE_FIELD(kv_memory_bytes), MIB, 16 * TIB,
     .default_words = "`kv/memory`", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Memory for this machine's KV-cache."},
    {"machines/NAME/ucx_devices", CONFIG_STRING, MACHINE_FIELD(ucx_devices), 0, 127,
     .default_words = "`transport/ucx_devices`", .reload = CONFIG_RELOAD_MACHINES,
     .help = "RDMA devices of this machine."},
    {"machines/NAME/nice", CONFIG_WHOLE, MACHINE_FIELD(nice), 0, 19,
     .default_words = "1 in `pools/token`, else 0", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Unix nice value. The default lets prompt machines go first on shared cores."},
    {"machines/NAME/power_limit_w", CONFIG_WHOLE, MACHINE_FIELD(power_limit_w), 0, 100000,
     .default_words = "0", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Highest power in watts of the machine's GPU, or of all CPU packages of its host "
             "together, while the machine runs (operation.md). 0 = no limit."},

    /* A CPU gains nothing from more tokens (docs/performance.md), and all prompts of a batch wait
     * for its last token. */
    {"scheduler/prompt_batch_tokens", CONFIG_WHOLE, FIELD(scheduler.prompt_batch_tokens),
     LIMIT_CHUNK_TOKENS_MIN, LIMIT_BATCH_TOKENS, .default_text = "512",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Most prompt tokens in one batch. Longer prompts are computed in chunks."},
    {"scheduler/prompt_fill_tokens", CONFIG_WHOLE, FIELD(scheduler.prompt_fill_tokens), 1,
     LIMIT_BATCH_TOKENS, .accepts_auto = true, .default_text = "auto",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Waiting prompts join a batch until it has this many prompt tokens. auto: the number "
             "with which a machine reaches 95 % of its highest rate; 128 until measured."},
    {"scheduler/micro_batch_tokens", CONFIG_WHOLE, FIELD(scheduler.micro_batch_tokens), 0,
     LIMIT_BATCH_TOKENS, .default_text = "0", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Prompt tokens of a micro-batch on a machine with stages (pipelines.md). 0 = the best "
             "size by `profile`; without a profile, `prompt_fill_tokens`."},
    {"scheduler/mixed_prompt_tokens", CONFIG_WHOLE, FIELD(scheduler.mixed_prompt_tokens),
     LIMIT_CHUNK_TOKENS_MIN, LIMIT_BATCH_TOKENS, .accepts_auto = true, .default_text = "auto",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Most prompt tokens in a batch that also decodes. Lower = steadier token rate, "
             "higher TTFT. auto: from measured times and `slo` (scheduling.md)."},
    {"scheduler/batch_sequences_max", CONFIG_WHOLE, FIELD(scheduler.batch_sequences_max), 1,
     LIMIT_BATCH_SEQUENCES, .default_text = "256", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Most requests in one batch."},
    {"scheduler/speculative_tokens", CONFIG_WHOLE, FIELD(scheduler.speculative_tokens), 0,
     LIMIT_DRAFT_TOKENS, .default_text = "0", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Most tokens that a token machine drafts from an answer's context and constraint and "
             "checks in one decode step (scheduling.md). Answers stay the same; repetitive text "
             "gets faster. 0 = none."},
    {"scheduler/speculative_always", CONFIG_BOOL, FIELD(scheduler.speculative_always), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_MACHINES,
     .help = "true: every draft is checked completely, even if this takes more time. For tests."},
    {"scheduler/draft_model", CONFIG_STRING, FIELD(scheduler.draft_model), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Small model with the same vocabulary, which also drafts tokens on token machines "
             "without stages (scheduling.md). Searched like `model`. Empty: none."},
    {"scheduler/draft_layer", CONFIG_BOOL, FIELD(scheduler.draft_layer), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_MACHINES,
     .help = "true: on token machines without stages, on a CPU, the model's own draft layer "
             "(multi-token prediction) also drafts tokens (scheduling.md)."},
    {"scheduler/growth_tokens", CONFIG_WHOLE, FIELD(scheduler.growth_tokens), 1,
     LIMIT_CONTEXT_TOKENS, .default_text = "32", .reload = CONFIG_RELOAD_MACHINES,
     .help = "KV memory for this many answer tokens is reserved together with the prompt's. After "
             "that, an answer takes one block at a time."},
    {"scheduler/handover_tokens_min", CONFIG_WHOLE, FIELD(scheduler.handover_tokens_min), 1,
     LIMIT_CONTEXT_TOKENS, .default_text = "32", .reload = CONFIG_RELOAD_YES,
     .help = "A draining machine hands over, with its KV, each answer that may have at least this "
             "many tokens left. Shorter answers finish there."},
    {"scheduler/growth_reserve_percent", CONFIG_WHOLE, FIELD(scheduler.growth_reserve_percent), 0,
     50, .default_text = "5", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Percent of a machine's KV memory that new requests leave free for running answers "
             "(at least one block for each running answer)."},
    {"scheduler/preemptions_max", CONFIG_WHOLE, FIELD(scheduler.preemptions_max), 0, 100,
     .default_text = "3", .reload = CONFIG_RELOAD_MACHINES,
     .help = "If an answer needs a block and none is free, one answer is preempted and computed "
             "again later. After this many preemptions, a request gets memory for its whole "
             "answer; 0 = at once."},
    {"scheduler/turn_ms", CONFIG_WHOLE, FIELD(scheduler.turn_ms), 0, 1000, .accepts_auto = true,
     .default_text = "auto", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Local machines that together have more threads than the host has cores take turns "
             "(scheduling.md). While another machine waits, a turn ends at the first layer "
             "boundary after this many milliseconds. auto: from measured times and `slo`. 0 = no "
             "turns; each machine counts as having its own cores."},
    {"scheduler/ageing_ms", CONFIG_WHOLE, FIELD(scheduler.ageing_ms), 0, HOUR_MS,
     .default_text = "10000", .reload = CONFIG_RELOAD_YES,
     .help = "After waiting for this time, a request moves to the next more urgent priority that "
             "has waiting requests. 0 = never, so urgent requests can starve others."},
    {"scheduler/prompt_queue_threshold_tokens", CONFIG_WHOLE,
     FIELD(scheduler.prompt_queue_threshold_tokens), 1, 1u << 30, .accepts_auto = true,
     .default_text = "auto", .reload = CONFIG_RELOAD_YES,
     .help = "A prompt machine with more pending prompt tokens than this is overloaded: other "
             "machines help. auto: " THRESHOLD_TEXT " until the machine's speed is measured, or "
             "always if `prompt_queue_threshold_ms` is 0; else no limit."},
    {"scheduler/prompt_queue_threshold_ms", CONFIG_WHOLE,
     FIELD(scheduler.prompt_queue_threshold_ms), 0, HOUR_MS, .accepts_auto = true,
     .default_text = "auto", .reload = CONFIG_RELOAD_YES,
     .help = "A prompt machine whose pending prompts need more time than this is overloaded, too. "
             "auto: half of `slo/ttft_ms` with `placement` split, else 0. 0 = only the tokens "
             "count."},
    {"scheduler/machine_pending_ms", CONFIG_WHOLE, FIELD(scheduler.machine_pending_ms), 0, HOUR_MS,
     .accepts_auto = true, .default_text = "auto", .reload = CONFIG_RELOAD_YES,
     .help = "While the prompts of a machine would take at least this time, further prompts wait "
             "in the gateway. auto: `slo/ttft_ms`, at least 100. 0 = no limit."},
    {"scheduler/queue_requests_max", CONFIG_WHOLE, FIELD(scheduler.queue_requests_max), 0,
     LIMIT_CLUSTER_REQUESTS, .default_text = "1024", .reload = CONFIG_RELOAD_YES,
     .help = "Most requests that wait in the gateway. If more wait, the last in their order "
             "(scheduling.md) gets 429 with Retry-After."},
    {"scheduler/queue_ms", CONFIG_WHOLE, FIELD(scheduler.queue_ms), 0, HOUR_MS,
     .default_text = "60000", .reload = CONFIG_RELOAD_YES,
     .help = "Longest wait of a new request (scheduling.md). One that would probably wait longer "
             "gets 429 with Retry-After at once; one that has waited for this time gets it then. 0 "
             "= no limit."},
    {"scheduler/crashes_max", CONFIG_WHOLE, FIELD(scheduler.crashes_max), 0, 100,
     .default_text = "3", .reload = CONFIG_RELOAD_YES,
     .help = "A request fails after this many crashes in a row of machines that were computing it "
             "(operation.md). Machines that are killed from outside do not count. 0 = no limit."},
    {"scheduler/compare_time", CONFIG_BOOL, FIELD(scheduler.compare_time), .default_text = "true",
     .reload = CONFIG_RELOAD_YES,
     .help = "true: machines whose measured rates differ by more than a quarter are compared by "
             "the time for their work, and stored KV is loaded only if that is faster than "
             "computing it. false: machines are compared by tokens, and stored KV is always "
             "loaded. A reload does not change loads on running machines."},
    {"scheduler/placement", CONFIG_CHOICE, FIELD(scheduler.placement), .maximum = 7,
     .choices = "auto split", .default_text = "auto", .reload = CONFIG_RELOAD_YES,
     .help = "Whether two machines compute a request's prompt and answer (scheduling.md). split: "
             "always, if the pools have two. auto: if measured times and `slo` favour it; never on "
             "machines that share cores."},
    {"scheduler/policy", CONFIG_CHOICE, FIELD(scheduler.policy), .maximum = 15,
     .choices = "jsq prefix deadline", .default_text = "jsq", .reload = CONFIG_RELOAD_YES,
     .help = "Which machine gets a prompt (scheduling.md). jsq: the one with the fewest pending "
             "tokens. prefix: the fastest one, counting cached KV. deadline: like jsq, but "
             "requests that would miss `slo/ttft_ms` get 429 at once."},
    {"scheduler/prefix_slack_tokens", CONFIG_WHOLE, FIELD(scheduler.prefix_slack_tokens), 0,
     1u << 30, .default_text = "2048", .reload = CONFIG_RELOAD_YES,
     .help = "For `policy` prefix: a machine with a cached prefix is chosen only if its queue is "
             "at most this many tokens longer than the shortest."},
    {"scheduler/adaptive_pools", CONFIG_BOOL, FIELD(scheduler.adaptive_pools), 0, 0,
     .default_text = "true", .reload = CONFIG_RELOAD_YES,
     .help = "true: while a pool is over its limits, machines of the other pool help, except with "
             "prompts if their cores all compute prompts already. false: they help only if the "
             "other phase has no machine left."},
    {"scheduler/wait_ms", CONFIG_WHOLE, FIELD(scheduler.wait_ms), 0, HOUR_MS,
     .default_text = "30000", .reload = CONFIG_RELOAD_YES,
     .help = "A request fails if no connected machine can take it for this time. 0 = it waits on."},
    {"scheduler/takeover_delay_ms", CONFIG_WHOLE, FIELD(scheduler.takeover_delay_ms), 0, HOUR_MS,
     .old_path = "scheduler/cover_ms", .default_text = "5000", .reload = CONFIG_RELOAD_YES,
     .help = "Time after start-up that a pool without machines gets until machines of the other "
             "pool take over its work."},
    {"scheduler/repurpose_window_ms", CONFIG_WHOLE, FIELD(scheduler.repurpose_window_ms), 0,
     HOUR_MS, .default_text = "120000", .reload = CONFIG_RELOAD_YES,
     .help = "Time over which the load of both phases is measured. If the load keeps asking for "
             "other pool sizes, a machine changes its pool permanently (scheduling.md). 0 = "
             "never."},
    {"scheduler/repurpose_interval_ms", CONFIG_WHOLE, FIELD(scheduler.repurpose_interval_ms), 0,
     HOUR_MS, .default_text = "300000", .reload = CONFIG_RELOAD_YES,
     .help = "Shortest time between two permanent pool changes."},
    {"scheduler/repurpose_gain_percent", CONFIG_WHOLE, FIELD(scheduler.repurpose_gain_percent), 1,
     90, .default_text = "20", .reload = CONFIG_RELOAD_YES,
     .help = "A permanent pool change must lower the load of the busier pool by at least this "
             "many percent."},
    {"scheduler/context_tokens_max", CONFIG_WHOLE, FIELD(scheduler.context_tokens_max), 0,
     LIMIT_CONTEXT_TOKENS, .default_text = "0",
     .help = "Most tokens of one request, prompt and answer together. 0 = the model's limit."},

    {"kv/block_tokens", CONFIG_WHOLE, FIELD(kv.block_tokens), 8, LIMIT_BLOCK_TOKENS, .step = 8,
     .default_text = "16", .help = "Tokens in one KV block."},
    {"kv/memory", CONFIG_BYTES, FIELD(kv.memory_bytes), MIB, 16 * TIB, .default_text = "512MiB",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Memory for the KV-cache of each machine without `kv_memory` of its own."},
    {"kv/dtype", CONFIG_CHOICE, FIELD(kv.dtype), .maximum = 7, .choices = "auto i16 f16 f32 i8",
     .default_text = "auto",
     .help = "Number format of KV, the same on all machines (numbers.md). i16: as exact as f16, "
             "and fastest on CPUs. i8: half the memory, less accurate. auto: f16 if all machines "
             "in the file use GPUs, else i16."},
    {"kv/layerwise_threshold_tokens", CONFIG_WHOLE, FIELD(kv.layerwise_threshold_tokens), 0,
     LIMIT_CONTEXT_TOKENS, .accepts_auto = true, .default_text = "auto",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "With `kv/transfer` auto, prompts of at least this many tokens send their KV layer by "
             "layer, shorter ones in one piece. auto: from the measured speeds of link and machine "
             "(transport.md)."},
    {"kv/transfer", CONFIG_CHOICE, FIELD(kv.transfer), .maximum = 15,
     .choices = "auto layerwise one-piece", .default_text = "auto",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "How KV is sent: layerwise, while the prompt is computed; one-piece, after the "
             "prompt; or auto, by `kv/layerwise_threshold_tokens`."},
    {"kv/prefix_cache", CONFIG_BOOL, FIELD(kv.prefix_cache), 0, 0, .default_text = "true",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "true: machines keep KV of earlier requests while memory allows. Of a prompt that "
             "begins in the same way, only the rest is computed and sent."},
    {"kv/checkpoint", CONFIG_CHOICE, FIELD(kv.checkpoint), .maximum = 7,
     .choices = "off idle always", .default_text = "off", .reload = CONFIG_RELOAD_YES,
     .help = "Whether KV of running answers is copied to a second machine, so that a death costs "
             "few tokens (operation.md). idle: only while no request waits for KV on the same "
             "link. Needs `kv/prefix_cache`."},
    {"kv/checkpoint_ms", CONFIG_WHOLE, FIELD(kv.checkpoint_ms), 0, HOUR_MS, .default_text = "500",
     .reload = CONFIG_RELOAD_YES,
     .help = "With `kv/checkpoint`: shortest time between two copies of an answer's full blocks. "
             "After a death, the tokens of this time are computed again. 0 = each block is copied "
             "when it is full."},
    {"kv/prefault", CONFIG_BOOL, FIELD(kv.prefault), 0, 0, .default_text = "true",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "true: KV memory is allocated in the background after start-up. false: at first use, "
             "which delays the first requests."},

    {"kv/tiers/wait_ms", CONFIG_WHOLE, FIELD(kv.tiers.wait_ms), 1, HOUR_MS, .default_text = "2000",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Longest time that a prompt waits for stored KV (scheduling.md). After that it is "
             "computed."},
    {"kv/tiers/key_file", CONFIG_STRING, FIELD(kv.tiers.key_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "File with a key that encrypts stored KV (AES-256-GCM); mode 0600, same format as "
             "`cluster/key_file`. Empty: anyone who can read the store can read the KV."},
    {"kv/tiers/memory/size", CONFIG_BYTES, FIELD(kv.tiers.memory.bytes), 0, 16 * TIB,
     .default_text = "0", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Host memory, in addition to `kv_memory`, in which each machine stores KV until it "
             "ends. 0 = none."},
    {"kv/tiers/file/path", CONFIG_STRING, FIELD(kv.tiers.file.path), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Folder, on an SSD of each host, in which each machine stores KV in a file NAME.kv "
             "(scheduling.md). Empty: none."},
    {"kv/tiers/file/size", CONFIG_BYTES, FIELD(kv.tiers.file.bytes), MIB, 1024 * TIB,
     .default_text = "16GiB", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Size of each machine's file, which is allocated when the machine starts."},
    {"kv/tiers/store/servers", CONFIG_STRING, FIELD(kv.tiers.store.servers), 0, 511,
     .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Servers (Valkey, Redis) through which all machines share KV (scheduling.md): "
             "HOST:PORT, separated by commas. Each record is on one server. Empty: none."},
    {"kv/tiers/store/user", CONFIG_STRING, FIELD(kv.tiers.store.user), 0, LIMIT_USER_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "User name for these servers. Empty: their default user."},
    {"kv/tiers/store/password_file", CONFIG_STRING, FIELD(kv.tiers.store.password_file), 0,
     LIMIT_PATH_BYTES - 1, .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "File with the password in its first line, mode 0600; it is read at each login. "
             "Empty: no login."},
    {"kv/tiers/store/tls", CONFIG_BOOL, FIELD(kv.tiers.store.tls), 0, 0, .default_text = "false",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "true: connections to these servers use TLS. Without TLS, servers on other hosts need "
             "`kv/tiers/key_file` and no password, or `cluster/allow_insecure`."},
    {"kv/tiers/store/ca_file", CONFIG_STRING, FIELD(kv.tiers.store.ca_file), 0,
     LIMIT_PATH_BYTES - 1, .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "CA certificates for the servers' certificates, in PEM. Empty: those of the system."},
    {"kv/tiers/store/expire_s", CONFIG_WHOLE, FIELD(kv.tiers.store.expire_s), 0, 365 * 86400,
     .default_text = "86400", .reload = CONFIG_RELOAD_MACHINES,
     .help = "A server removes a record that no machine has looked up for this many seconds. 0 = "
             "never."},
    {"kv/tiers/store/deadline_ms", CONFIG_WHOLE, FIELD(kv.tiers.store.deadline_ms), 1, 60000,
     .default_text = "500", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Time limit of one call to a server. A server that exceeds it is skipped for 1 s; if "
             "it fails again, for up to 64 s."},

    {"transport/ucx_transports", CONFIG_STRING, FIELD(transport.ucx_transports), 0, 127,
     .default_text = "", .old_path = "transport/tls",
     .help = "Transports that UCX may use (UCX_TLS). Empty: shared memory within a host, RDMA "
             "hardware between hosts. none: no UCX. With tcp, anyone who reaches UCX's port can "
             "read and write the machine's memory."},
    {"transport/ucx_devices", CONFIG_STRING, FIELD(transport.ucx_devices), 0, 127,
     .default_text = "",
     .help = "RDMA devices that UCX may use between hosts, such as mlx5_0:1, separated by commas. "
             "Empty: all active devices."},
    {"transport/data_connections", CONFIG_WHOLE, FIELD(transport.data_connections), 1, 16,
     .default_text = "2",
     .help = "TCP connections for KV between two machines that UCX does not connect."},
    {"transport/data_window", CONFIG_BYTES, FIELD(transport.data_window_bytes), MIB, 1024 * MIB,
     .default_text = "8MiB",
     .help = "Most bytes on their way to one machine over these connections. Want bandwidth times "
             "round-trip time at least."},
    {"transport/heartbeat_ms", CONFIG_WHOLE, FIELD(transport.heartbeat_ms), 10, HOUR_MS,
     .default_text = "1000",
     .help = "Interval between heartbeats on a connection that sends nothing else."},
    {"transport/silence_ms", CONFIG_WHOLE, FIELD(transport.silence_ms), 20, HOUR_MS,
     .default_text = "5000",
     .help = "A peer that sends nothing for this time counts as gone. At least twice "
             "`heartbeat_ms`."},
    {"transport/connect_ms", CONFIG_WHOLE, FIELD(transport.connect_ms), 10, HOUR_MS,
     .default_text = "5000", .help = "Time limit for connecting and hand-shake together."},
    {"transport/link_ms", CONFIG_WHOLE, FIELD(transport.link_ms), 10, HOUR_MS,
     .default_text = "2000",
     .help = "Time limit for UCX's first message over RDMA. If it is exceeded, KV travels over "
             "data connections (transport.md)."},

    {"slo/ttft_ms", CONFIG_WHOLE, FIELD(slo.ttft_ms), 1, HOUR_MS, .default_text = "500",
     .reload = CONFIG_RELOAD_YES, .help = "Target for the time to the first token (TTFT)."},
    {"slo/tbt_ms", CONFIG_WHOLE, FIELD(slo.tbt_ms), 1, HOUR_MS, .default_text = "50",
     .reload = CONFIG_RELOAD_YES, .help = "Target for the time between tokens (TBT)."},
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
        const struct config_key *key = &config_keys[i];
        if (strcmp(key->path, wanted) == 0 ||
            (key->old_path != NULL && strcmp(key->old_path, wanted) == 0))
            return key;
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
    const bool machine = strncmp(path, MACHINES_PREFIX, strlen(MACHINES_PREFIX)) == 0;
    const char *slash = machine ? strchr(path, '/') : strrchr(path, '/');
    size_t length = slash != NULL ? (size_t)(slash - path) : strlen(path);
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
