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

const struct config_key config_keys[] = {
    {"model", CONFIG_STRING, FIELD(model), 1, LIMIT_PATH_BYTES - 1,
     .default_text = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .help = "The model: a GGUF file, or a folder with config.json, tokenizer.json and "
             "safetensors. Looked for in the current folder, beside the config file, in "
             "~/.cache/cleave and /var/lib/cleave/models."},
    {"chat_template_file", CONFIG_STRING, FIELD(chat_template_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help = "A file with a chat template that replaces the model's own; a relative path is beside "
             "the config file. Empty: the model's."},
    {"adapters", CONFIG_STRING, FIELD(adapters), 0, 4095, .default_text = "",
     .help = "Low-rank adapters (LoRA) of the model, which requests choose by their `model` "
             "(models.md): \"NAME=FOLDER, NAME=FOLDER\"; relative paths are beside the config "
             "file."},
    {"tool_parser", CONFIG_CHOICE, FIELD(tool_parser), .maximum = 11,
     .choices = "auto none hermes llama3 mistral deepseek harmony json", .default_text = "auto",
     .help = "The form in which the model calls tools (tools.md). auto: as its chat template "
             "shows. none: only demanded calls are found."},
    {"reasoning_parser", CONFIG_CHOICE, FIELD(reasoning_parser), .maximum = 11,
     .choices = "auto none think mistral harmony", .default_text = "auto",
     .help = "The form of the model's reasoning (tools.md), a field of its own in chats. auto: as "
             "its chat template shows. none: it stays in the content."},
    {"profile", CONFIG_STRING, FIELD(profile), 0, LIMIT_PATH_BYTES - 1, .default_text = "",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "A file of `cleave profile`, whose times decide the layers of each stage "
             "(pipelines.md). Empty: the sizes of the weights decide."},
    {"model_name", CONFIG_STRING, FIELD(model_name), 0, 63, .default_text = "",
     .help = "The model's name in /v1/models. Empty: the name of the file (without .gguf) or "
             "folder."},
    {"threads", CONFIG_WHOLE, FIELD(threads), 0, 1024, .default_text = "0",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Threads of each machine that has no `threads` of its own. 0 = the number of cores "
             "of its host."},
    {"source", CONFIG_STRING, FIELD(source), 1, LIMIT_PATH_BYTES - 1,
     .default_words = "the file's path",
     .help = "The config file; relative paths start at its directory. The gateway sets this key "
             "for its machines."},

    {"http/listen", CONFIG_ADDRESS, FIELD(http.listen), 0, 0, .default_text = "127.0.0.1:8080",
     .help = "Address of the HTTP server. Port 0 = any free port."},
    {"http/admin_socket", CONFIG_STRING, FIELD(http.admin_socket), 0, 100, .default_text = "",
     .help = "Path of a Unix socket, mode 0600, that serves /admin to this user without an API "
             "key; a relative path is beside the config file. Empty: no socket."},
    {"http/web_origins", CONFIG_STRING, FIELD(http.web_origins), 0, 511, .default_text = "",
     .reload = CONFIG_RELOAD_YES,
     .help = "Sites whose web pages may use the API from a browser (CORS), such as "
             "\"https://chat.example http://localhost:3000\". \"*\": all sites; needs API keys."},
    {"http/page", CONFIG_CHOICE, FIELD(http.page), .maximum = 7, .choices = "auto on off",
     .default_text = "auto", .reload = CONFIG_RELOAD_YES,
     .help = "Whether `GET /` answers with a page to try the server. auto: if http/listen is a "
             "loopback address."},
    {"http/body_bytes_max", CONFIG_BYTES, FIELD(http.body_bytes_max), KIB, 1024 * MIB,
     .default_text = "8MiB", .reload = CONFIG_RELOAD_YES,
     .help = "Largest request body. Larger ones get status 413."},
    {"http/bodies_bytes_max", CONFIG_BYTES, FIELD(http.bodies_bytes_max), KIB, 65536 * MIB,
     .default_text = "64MiB", .reload = CONFIG_RELOAD_YES,
     .help = "Most bytes of all bodies that are being received and read. Beyond it, requests get "
             "status 503 with Retry-After."},
    {"http/answers_bytes_max", CONFIG_BYTES, FIELD(http.answers_bytes_max), KIB, 65536 * MIB,
     .default_text = "256MiB", .reload = CONFIG_RELOAD_YES,
     .help = "Most bytes of all unread answers. Beyond it, the client that has not read for the "
             "longest time is disconnected."},
    {"http/connections_max", CONFIG_WHOLE, FIELD(http.connections_max), 1, 65536,
     .default_text = "4096",
     .help = "Most open HTTP connections. A new one then replaces the one that has been without a "
             "request for the longest time; a few are kept for /health."},
    {"http/connections_per_address_max", CONFIG_WHOLE, FIELD(http.connections_per_address_max), 1,
     65536, .default_text = "1024", .reload = CONFIG_RELOAD_YES,
     .help = "Most open connections from one IPv4 address or IPv6 network of 64 bits. Clients on "
             "this computer, or with an API key, do not count."},
    {"http/headers_ms", CONFIG_WHOLE, FIELD(http.headers_ms), 1, HOUR_MS, .default_text = "30000",
     .reload = CONFIG_RELOAD_YES,
     .help = "Time limit for a new connection's TLS handshake and first headers."},
    {"http/bytes_per_second_min", CONFIG_WHOLE, FIELD(http.bytes_per_second_min), 1,
     1024 * 1024 * 1024, .default_text = "8192", .reload = CONFIG_RELOAD_YES,
     .help = "Least mean rate at which a client must send a body and read an answer. A slower "
             "client is disconnected after 30 seconds."},
    {"http/text_threads", CONFIG_WHOLE, FIELD(http.text_threads), 1, 64, .default_text = "2",
     .help = "Threads of the gateway that parse bodies and make tokens of prompts. With 2 or "
             "more, one of them reads no body above 64 KiB."},
    {"http/ping_ms", CONFIG_WHOLE, FIELD(http.ping_ms), 0, HOUR_MS, .default_text = "15000",
     .reload = CONFIG_RELOAD_YES,
     .help = "A stream without an event for this time gets a comment (`: ping`), so that proxies "
             "do not close it. The first comment sends the status 200. 0 = no comments."},

    {"server/api_keys_file", CONFIG_STRING, FIELD(server.api_keys_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "A JSON file with the API keys of clients (operation.md), mode 0600; a relative path "
             "is beside the config file. Empty: clients need no key."},
    {"server/prefix_cache_scope", CONFIG_CHOICE, FIELD(server.prefix_cache_scope), .maximum = 7,
     .choices = "all key group", .default_text = "key", .reload = CONFIG_RELOAD_YES,
     .help = "Which requests may share cached prefixes: all, those of one API key, or those of "
             "keys with one `cache_group`. Without API keys: all. A request's `cache_salt` "
             "narrows it."},
    {"server/embeddings", CONFIG_CHOICE, FIELD(server.embeddings), .maximum = 7,
     .choices = "auto off last mean", .default_text = "auto", .reload = CONFIG_RELOAD_YES,
     .help = "How /v1/embeddings makes one vector of a text (models.md). last: that of the last "
             "token. mean: the mean of all tokens. auto: as the model's files say. off: never."},
    {"server/sampling_defaults", CONFIG_CHOICE, FIELD(server.sampling_defaults), .maximum = 7,
     .choices = "model none", .default_text = "model", .reload = CONFIG_RELOAD_YES,
     .help = "Defaults of temperature, top_p, top_k, min_p and repetition_penalty. model: those "
             "of the model's files, if any. none: those of the API."},
    {"server/control_tokens_in_text", CONFIG_CHOICE, FIELD(server.control_tokens_in_text),
     .maximum = 7, .choices = "allow prompts as_text", .default_text = "prompts",
     .reload = CONFIG_RELOAD_YES,
     .help = "In which texts of clients a control token such as <|im_start|> acts as one "
             "(security.md). prompts: in prompts of completions, not in chat messages. allow: in "
             "both. as_text: in none."},
    {"server/chat_template_in_requests", CONFIG_BOOL, FIELD(server.chat_template_in_requests), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_YES,
     .help = "true: a request may replace the model's chat template (`chat_template`), also with "
             "control tokens."},
    {"server/tls_certificate_file", CONFIG_STRING, FIELD(server.tls_certificate_file), 0,
     LIMIT_PATH_BYTES - 1, .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "Certificate chain in PEM, the server's own first. Empty: no TLS."},
    {"server/tls_key_file", CONFIG_STRING, FIELD(server.tls_key_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "Private key of the certificate, in PEM, mode 0600, without a password."},

    {"server/drain_ms", CONFIG_WHOLE, FIELD(server.drain_ms), 0, HOUR_MS, .default_text = "600000",
     .reload = CONFIG_RELOAD_YES,
     .help = "Time that running requests get after SIGTERM; then they end with an error."},
    {"server/drain_notice_ms", CONFIG_WHOLE, FIELD(server.drain_notice_ms), 0, 30000,
     .default_text = "0", .reload = CONFIG_RELOAD_YES,
     .help = "Time before drain_ms in which `/health` answers 503 and new requests are still "
             "served, so that load balancers notice."},
    {"server/update_ms", CONFIG_WHOLE, FIELD(server.update_ms), 1, HOUR_MS,
     .default_text = "300000", .reload = CONFIG_RELOAD_YES,
     .help = "Time limit of a model update. After that the old model stays."},
    {"server/update_memory_check", CONFIG_BOOL, FIELD(server.update_memory_check), 0, 0,
     .default_text = "true", .reload = CONFIG_RELOAD_YES,
     .help = "true: refuse a model update if its local machines need more memory than is "
             "available."},
    {"server/allow_insecure", CONFIG_BOOL, FIELD(server.allow_insecure), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_YES,
     .help = "true: HTTP may listen for other hosts without API keys and TLS (behind a proxy, or "
             "in a private network)."},

    {"log/level", CONFIG_CHOICE, FIELD(log.level), .maximum = 7, .choices = "debug info warn error",
     .default_text = "info", .reload = CONFIG_RELOAD_YES,
     .help = "Least level of log lines; the option --log-level overrides it. A reload changes it "
             "in the gateway and in its local machines, `kill -USR2` in a single machine."},
    {"log/format", CONFIG_CHOICE, FIELD(log.format), .maximum = 7, .choices = "text json",
     .default_text = "text", .reload = CONFIG_RELOAD_YES,
     .help = "Form of log lines and of the access log. Machines use it from their start."},
    {"log/access_file", CONFIG_STRING, FIELD(log.access_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "Access log (operation.md): a line for each answer. \"-\": with the other log lines. "
             "Empty: none."},
    {"log/slow_s", CONFIG_WHOLE, FIELD(log.slow_s), 0, 86400, .default_text = "0",
     .reload = CONFIG_RELOAD_YES,
     .help = "Requests that take at least this many seconds are logged. 0 = none."},
    {"log/ledger_file", CONFIG_STRING, FIELD(log.ledger_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help = "Usage ledger (operation.md): a JSON line for each answer, with its tokens. Empty: "
             "none."},
    {"log/otlp_endpoint", CONFIG_STRING, FIELD(log.otlp_endpoint), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help = "An OpenTelemetry collector (OTLP/HTTP, JSON) that gets the spans of each request, "
             "such as http://127.0.0.1:4318/v1/traces. Empty: none."},
    {"log/requests_kept", CONFIG_WHOLE, FIELD(log.requests_kept), 16, 16384, .default_text = "1024",
     .help = "Latest requests that the gateway remembers for `cleave requests`, 1.7 KiB each."},
    {"log/events_file", CONFIG_STRING, FIELD(log.events_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_YES,
     .help = "Event log (operation.md): events and decisions of the cluster scheduler, one JSON "
             "line each. Empty: none."},

    {"cluster/key_file", CONFIG_STRING, FIELD(cluster.key_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help = "File with the cluster key, mode 0600 (operation.md). It is read again by a reload, "
             "and by a machine at SIGHUP. Empty: if all machines are local, the gateway makes a "
             "key at each start; else none."},

    {"cluster/allow_insecure", CONFIG_BOOL, FIELD(cluster.allow_insecure), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_YES,
     .help = "true: machines may listen for other hosts without a cluster key. Anyone who "
             "reaches them can read every prompt."},

    {"cluster/membership", CONFIG_CHOICE, FIELD(cluster.membership), .maximum = 7,
     .choices = "file etcd", .default_text = "file",
     .help = "Where the gateway finds its machines. file: in this file. etcd: also in etcd, where "
             "machines register themselves (operation.md)."},
    {"cluster/etcd_endpoints", CONFIG_STRING, FIELD(cluster.etcd_endpoints), 0, 511,
     .default_text = "",
     .help = "Addresses of etcd, http://HOST:PORT or https://HOST:PORT, up to 8, separated by "
             "commas."},
    {"cluster/etcd_prefix", CONFIG_STRING, FIELD(cluster.etcd_prefix), 0, 128,
     .default_text = "/cleave/", .help = "Prefix of all keys in etcd. Each cluster needs its own."},
    {"cluster/etcd_lease_s", CONFIG_WHOLE, FIELD(cluster.etcd_lease_s), 2, 3600,
     .default_text = "10",
     .help = "A machine's entry in etcd ends if it is not renewed for this many seconds."},
    {"cluster/etcd_user", CONFIG_STRING, FIELD(cluster.etcd_user), 0, LIMIT_USER_BYTES - 1,
     .default_text = "", .help = "User name for etcd. Empty: etcd has no users."},
    {"cluster/etcd_password_file", CONFIG_STRING, FIELD(cluster.etcd_password_file), 0,
     LIMIT_PATH_BYTES - 1, .default_text = "",
     .help = "File with that user's password in its first line, mode 0600."},
    {"cluster/etcd_ca_file", CONFIG_STRING, FIELD(cluster.etcd_ca_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "",
     .help = "Certificates of the CAs that may have signed etcd's certificate, in PEM. Empty: "
             "those of the system."},
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
     .default_words = "1 (0 where `pools` is given)", .reload = CONFIG_RELOAD_YES,
     .help = "Machines that compute prompts. A number makes local machines prompt-0, prompt-1, …"},
    {"pools/token", CONFIG_POOL, POOL_TOKEN, 0, LIMIT_MACHINES,
     .default_words = "1 (0 where `pools` is given)", .reload = CONFIG_RELOAD_YES,
     .help = "Machines that generate tokens. A number makes local machines token-0, token-1, …"},
    {"pools/mixed", CONFIG_POOL, POOL_MIXED, 0, LIMIT_MACHINES, .default_words = "0",
     .reload = CONFIG_RELOAD_YES,
     .help = "Machines that do both phases. A number makes local machines mixed-0, mixed-1, …"},

    {"machines/NAME/local", CONFIG_BOOL, MACHINE_FIELD(local), 0, 0,
     .default_words = "true where there is no `address`",
     .help = "true: `cleave serve` starts this machine on its own host."},
    {"machines/NAME/address", CONFIG_ADDRESS, MACHINE_FIELD(address), 1, 0,
     .default_words = "none: any free port of this computer", .reload = CONFIG_RELOAD_YES,
     .help = "Address that the machine listens on. Required if the machine is not local."},
    {"machines/NAME/device", CONFIG_DEVICE, MACHINE_FIELD(device), .maximum = 31,
     .default_words = "cpu", .reload = CONFIG_RELOAD_MACHINES,
     .help = "cpu; cuda:N, GPU number N of the host (gpu.md); or a device that only waits "
             "(profile.md): LAYER_US microseconds for each layer and ROW_US for each token in it."},
    {"machines/NAME/fallback", CONFIG_BOOL, MACHINE_FIELD(cpu_fallback), 0, 0,
     .default_words = "false", .reload = CONFIG_RELOAD_MACHINES,
     .help = "If the GPU cannot be used: false = do not start; true = compute on the CPU, with a "
             "warning in the log and in `cleave status`."},
    {"machines/NAME/f8_activations", CONFIG_BOOL, MACHINE_FIELD(f8_activations), 0, 0,
     .default_words = "true", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Prompts of models with E4M3 weights, on GPUs that multiply E4M3. true: E4M3 "
             "activations. false: bf16, more exact and slower (gpu.md)."},
    {"machines/NAME/stages", CONFIG_STAGES, MACHINE_FIELD(stages),
     .default_words = "1: the machine computes all layers by itself",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Pipeline stages: consecutive layers, each run by a process of its own. A number "
             "splits the layers evenly; a list has an object per stage (pipelines.md)."},
    {"machines/NAME/tensor_parallel", CONFIG_WHOLE, MACHINE_FIELD(tensor_parallel), 1, LIMIT_RANKS,
     .default_words = "1", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Ranks in each stage without a number of its own: processes that compute every layer "
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
     .help = "Most watts of the machine's GPU, or of all CPU packages of its host together, while "
             "the machine runs (operation.md). 0 = no limit."},

    /* A CPU gains nothing from more tokens (docs/performance.md), and all prompts of a batch wait
     * for its last token. */
    {"scheduler/prompt_batch_tokens", CONFIG_WHOLE, FIELD(scheduler.prompt_batch_tokens),
     LIMIT_CHUNK_TOKENS_MIN, LIMIT_BATCH_TOKENS, .default_text = "512",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Most prompt tokens in one batch. Longer prompts are computed in chunks."},
    {"scheduler/prompt_fill_tokens", CONFIG_WHOLE, FIELD(scheduler.prompt_fill_tokens), 1,
     LIMIT_BATCH_TOKENS, .accepts_auto = true, .default_text = "auto",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Waiting prompts join a batch until it has this many prompt tokens. auto: measured "
             "by each machine (95 % of its highest rate); 128 until then."},
    {"scheduler/micro_batch_tokens", CONFIG_WHOLE, FIELD(scheduler.micro_batch_tokens), 0,
     LIMIT_BATCH_TOKENS, .default_text = "0", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Prompt tokens of a micro-batch on a machine with stages (pipelines.md). 0 = the "
             "best by `profile`, or `prompt_fill_tokens` without one."},
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
     .help = "Most tokens that a token machine drafts from an answer's context and constraint, and "
             "checks in one step (scheduling.md). Answers stay the same; text that repeats is "
             "faster. 0 = none."},
    {"scheduler/speculative_always", CONFIG_BOOL, FIELD(scheduler.speculative_always), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_MACHINES,
     .help = "true: every draft is checked as a whole, even if that takes more time. For tests."},
    {"scheduler/draft_model", CONFIG_STRING, FIELD(scheduler.draft_model), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "A small model with the same vocabulary, with which token machines without stages "
             "draft tokens, too (scheduling.md). Looked for like `model`. Empty: none."},
    {"scheduler/draft_layer", CONFIG_BOOL, FIELD(scheduler.draft_layer), 0, 0,
     .default_text = "false", .reload = CONFIG_RELOAD_MACHINES,
     .help =
         "true: token machines without stages, on a CPU, draft tokens with the model's own draft "
         "layer (multi-token prediction), too (scheduling.md)."},
    {"scheduler/growth_tokens", CONFIG_WHOLE, FIELD(scheduler.growth_tokens), 1,
     LIMIT_CONTEXT_TOKENS, .default_text = "32", .reload = CONFIG_RELOAD_MACHINES,
     .help = "KV memory for this many answer tokens is reserved with the prompt's; after that an "
             "answer takes one block at a time."},
    {"scheduler/handover_tokens_min", CONFIG_WHOLE, FIELD(scheduler.handover_tokens_min), 1,
     LIMIT_CONTEXT_TOKENS, .default_text = "32", .reload = CONFIG_RELOAD_YES,
     .help = "A draining machine hands an answer over with its KV if it may have this many tokens "
             "left; shorter answers finish there."},
    {"scheduler/growth_reserve_percent", CONFIG_WHOLE, FIELD(scheduler.growth_reserve_percent), 0,
     50, .default_text = "5", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Percent of a machine's KV memory that new requests leave free for running answers "
             "(at least one block for each of these)."},
    {"scheduler/preemptions_max", CONFIG_WHOLE, FIELD(scheduler.preemptions_max), 0, 100,
     .default_text = "3", .reload = CONFIG_RELOAD_MACHINES,
     .help = "If an answer needs a block and none is free, one answer is preempted and computed "
             "again later. After this many preemptions a request gets memory for its whole "
             "answer."},
    {"scheduler/turn_ms", CONFIG_WHOLE, FIELD(scheduler.turn_ms), 0, 1000, .accepts_auto = true,
     .default_text = "auto", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Local machines with more threads together than the host has cores take turns "
             "(scheduling.md). While another machine waits, a turn ends at the first layer "
             "boundary after this many milliseconds. auto: from measured times and `slo`. 0 = no "
             "turns: the machines count as having cores of their own."},
    {"scheduler/ageing_ms", CONFIG_WHOLE, FIELD(scheduler.ageing_ms), 0, HOUR_MS,
     .default_text = "10000", .reload = CONFIG_RELOAD_YES,
     .help = "A request that has waited this long moves to the next more urgent priority that "
             "is waiting. 0 = never, so urgent requests can starve others."},
    {"scheduler/prompt_queue_threshold_tokens", CONFIG_WHOLE,
     FIELD(scheduler.prompt_queue_threshold_tokens), 1, 1u << 30, .default_text = "8192",
     .reload = CONFIG_RELOAD_YES,
     .help = "A prompt machine with more pending prompt tokens than this counts as overloaded; "
             "other machines then help."},
    {"scheduler/prompt_queue_threshold_ms", CONFIG_WHOLE,
     FIELD(scheduler.prompt_queue_threshold_ms), 0, HOUR_MS, .accepts_auto = true,
     .default_text = "auto", .reload = CONFIG_RELOAD_YES,
     .help = "As `prompt_queue_threshold_tokens`, for the time that the prompts need. auto: half "
             "of `slo/ttft_ms` with `placement` split, else 0. 0 = only the tokens count."},
    {"scheduler/machine_pending_ms", CONFIG_WHOLE, FIELD(scheduler.machine_pending_ms), 0, HOUR_MS,
     .accepts_auto = true, .default_text = "auto", .reload = CONFIG_RELOAD_YES,
     .help =
         "A machine gets no further prompt while its prompts would take at least this time; "
         "prompts wait in the gateway. auto: `slo/ttft_ms`, at least 100. 0 = no bound in time."},
    {"scheduler/queue_requests_max", CONFIG_WHOLE, FIELD(scheduler.queue_requests_max), 0,
     LIMIT_CLUSTER_REQUESTS, .default_text = "1024", .reload = CONFIG_RELOAD_YES,
     .help = "Most requests that wait in the gateway. Further ones are refused with 429 and "
             "Retry-After."},
    {"scheduler/queue_ms", CONFIG_WHOLE, FIELD(scheduler.queue_ms), 0, HOUR_MS,
     .default_text = "60000", .reload = CONFIG_RELOAD_YES,
     .help = "Longest wait of a new request in the gateway's queue. One that would wait longer is "
             "refused with 429 and Retry-After at once, one that has waited so long then "
             "(scheduling.md). 0 = no limit."},
    {"scheduler/crashes_max", CONFIG_WHOLE, FIELD(scheduler.crashes_max), 0, 100,
     .default_text = "3", .reload = CONFIG_RELOAD_YES,
     .help = "A request fails after machines crashed this often in a row while they computed it "
             "(operation.md). Machines that are killed from outside do not count. 0 = no limit."},
    {"scheduler/compare_time", CONFIG_BOOL, FIELD(scheduler.compare_time), .default_text = "true",
     .reload = CONFIG_RELOAD_YES,
     .help =
         "true: machines whose measured rates differ by more than a quarter are compared by "
         "the time that their work takes, and stored KV is loaded if that is faster than computing "
         "it. false: by tokens, and always. For loads, a running machine keeps the old value."},
    {"scheduler/placement", CONFIG_CHOICE, FIELD(scheduler.placement), .maximum = 7,
     .choices = "auto split", .default_text = "auto", .reload = CONFIG_RELOAD_YES,
     .help = "Whether a request's prompt and answer are computed on two machines (scheduling.md). "
             "split: always, if the pools have two. auto: by measured times and `slo`; never on "
             "machines that share cores."},
    {"scheduler/policy", CONFIG_CHOICE, FIELD(scheduler.policy), .maximum = 15,
     .choices = "jsq prefix deadline", .default_text = "jsq", .reload = CONFIG_RELOAD_YES,
     .help = "Which machine gets a prompt (scheduling.md). jsq: the fewest pending tokens. "
             "prefix: the shortest time, counting cached KV. deadline: like jsq, but requests "
             "that would miss `slo/ttft_ms` get 429 at once."},
    {"scheduler/prefix_slack_tokens", CONFIG_WHOLE, FIELD(scheduler.prefix_slack_tokens), 0,
     1u << 30, .default_text = "2048", .reload = CONFIG_RELOAD_YES,
     .help = "For `policy` prefix: a machine with a cached prefix is chosen only while its queue "
             "is at most this many tokens longer than the shortest."},
    {"scheduler/adaptive_pools", CONFIG_BOOL, FIELD(scheduler.adaptive_pools), 0, 0,
     .default_text = "true", .reload = CONFIG_RELOAD_YES,
     .help =
         "true: a machine helps the other pool while that pool is over its limits, but not with "
         "prompts if its cores compute prompts already. false: only if the other phase has no "
         "machine left."},
    {"scheduler/wait_ms", CONFIG_WHOLE, FIELD(scheduler.wait_ms), 0, HOUR_MS,
     .default_text = "30000", .reload = CONFIG_RELOAD_YES,
     .help = "A request that no connected machine can take fails after this time. 0 = never."},
    {"scheduler/takeover_delay_ms", CONFIG_WHOLE, FIELD(scheduler.takeover_delay_ms), 0, HOUR_MS,
     .old_path = "scheduler/cover_ms", .default_text = "5000", .reload = CONFIG_RELOAD_YES,
     .help = "Time after start-up during which machines of one pool do not take over the work of "
             "the other pool."},
    {"scheduler/repurpose_window_ms", CONFIG_WHOLE, FIELD(scheduler.repurpose_window_ms), 0,
     HOUR_MS, .default_text = "120000", .reload = CONFIG_RELOAD_YES,
     .help = "The load of both phases is measured over this time. If it keeps calling for other "
             "pool sizes, a machine changes its pool for good. 0 = never."},
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
     .help = "Memory for the KV-cache of each machine that has no `kv_memory` of its own."},
    {"kv/dtype", CONFIG_CHOICE, FIELD(kv.dtype), .maximum = 7, .choices = "auto i16 f16 f32 i8",
     .default_text = "auto",
     .help = "Number format of KV, equal on all machines (numbers.md). i16: as exact as f16 and "
             "fastest on CPUs. i8: half the memory, less accurate. auto: f16 if all machines of "
             "the file use GPUs, else i16."},
    {"kv/layerwise_threshold_tokens", CONFIG_WHOLE, FIELD(kv.layerwise_threshold_tokens), 0,
     LIMIT_CONTEXT_TOKENS, .accepts_auto = true, .default_text = "auto",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "With `kv/transfer` auto, prompts of this many tokens or more send their KV layer by "
             "layer, shorter ones in one piece. auto: from the measured speeds of link and machine "
             "(transport.md)."},
    {"kv/transfer", CONFIG_CHOICE, FIELD(kv.transfer), .maximum = 15,
     .choices = "auto layerwise one-piece", .default_text = "auto",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "How KV is sent. auto: by `kv/layerwise_threshold_tokens`. layerwise, one-piece: "
             "always so."},
    {"kv/prefix_cache", CONFIG_BOOL, FIELD(kv.prefix_cache), 0, 0, .default_text = "true",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "true: machines keep KV of earlier requests while memory allows. A prompt with the "
             "same beginning computes and sends only the rest."},
    {"kv/checkpoint", CONFIG_CHOICE, FIELD(kv.checkpoint), .maximum = 7,
     .choices = "off idle always", .default_text = "off", .reload = CONFIG_RELOAD_YES,
     .help =
         "Whether KV of running answers is copied to a second machine, so that a death costs few "
         "tokens (operation.md). idle: while no request waits for KV on that link. Needs "
         "`kv/prefix_cache`."},
    {"kv/checkpoint_ms", CONFIG_WHOLE, FIELD(kv.checkpoint_ms), 0, HOUR_MS, .default_text = "500",
     .reload = CONFIG_RELOAD_YES,
     .help = "With `kv/checkpoint`: least time between two copies of an answer, each of all its "
             "full blocks. A death costs the tokens of that time. 0: a block is copied as soon as "
             "it is full."},
    {"kv/prefault", CONFIG_BOOL, FIELD(kv.prefault), 0, 0, .default_text = "true",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "true: KV memory is allocated in the background after start-up. false: at first use, "
             "which delays the first requests."},

    {"kv/tiers/wait_ms", CONFIG_WHOLE, FIELD(kv.tiers.wait_ms), 1, HOUR_MS, .default_text = "2000",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Most time that a prompt waits for stored KV (scheduling.md). Then it is computed."},
    {"kv/tiers/key_file", CONFIG_STRING, FIELD(kv.tiers.key_file), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "File with a key, mode 0600, that encrypts stored KV (AES-256-GCM): 64 hexadecimal "
             "digits, or the like. Empty: stored KV can be read by whoever can read the store."},
    {"kv/tiers/memory/size", CONFIG_BYTES, FIELD(kv.tiers.memory.bytes), 0, 16 * TIB,
     .default_text = "0", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Memory of the host, beside its `kv_memory`, in which each machine keeps KV until it "
             "ends. 0 = none."},
    {"kv/tiers/file/path", CONFIG_STRING, FIELD(kv.tiers.file.path), 0, LIMIT_PATH_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Folder, on an SSD of each host, where every machine keeps KV that leaves its memory, "
             "in a file NAME.kv. A relative path is beside the config file. Empty: none."},
    {"kv/tiers/file/size", CONFIG_BYTES, FIELD(kv.tiers.file.bytes), MIB, 1024 * TIB,
     .default_text = "16GiB", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Size of each of these files, which is allocated when the machine starts."},
    {"kv/tiers/store/servers", CONFIG_STRING, FIELD(kv.tiers.store.servers), 0, 511,
     .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Servers that speak RESP (Valkey, Redis), HOST:PORT separated by commas, in which all "
             "machines share KV (scheduling.md). Each record is in one of them. Empty: none."},
    {"kv/tiers/store/user", CONFIG_STRING, FIELD(kv.tiers.store.user), 0, LIMIT_USER_BYTES - 1,
     .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "User name for these servers. Empty: their default user."},
    {"kv/tiers/store/password_file", CONFIG_STRING, FIELD(kv.tiers.store.password_file), 0,
     LIMIT_PATH_BYTES - 1, .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "File with the password in its first line, mode 0600; it is read at each login. "
             "Empty: no login."},
    {"kv/tiers/store/tls", CONFIG_BOOL, FIELD(kv.tiers.store.tls), 0, 0, .default_text = "false",
     .reload = CONFIG_RELOAD_MACHINES,
     .help = "Whether connections to these servers use TLS. Without it, servers on other hosts "
             "need kv/tiers/key_file and no password, or cluster/allow_insecure."},
    {"kv/tiers/store/ca_file", CONFIG_STRING, FIELD(kv.tiers.store.ca_file), 0,
     LIMIT_PATH_BYTES - 1, .default_text = "", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Certificates of the CAs that may have signed those of the servers, in PEM. Empty: "
             "the CAs of the system."},
    {"kv/tiers/store/expire_s", CONFIG_WHOLE, FIELD(kv.tiers.store.expire_s), 0, 365 * 86400,
     .default_text = "86400", .reload = CONFIG_RELOAD_MACHINES,
     .help = "A server removes a record that no machine has looked for in this time. 0 = never."},
    {"kv/tiers/store/deadline_ms", CONFIG_WHOLE, FIELD(kv.tiers.store.deadline_ms), 1, 60000,
     .default_text = "500", .reload = CONFIG_RELOAD_MACHINES,
     .help = "Time limit of one call to a server. A server that does not keep it is not asked for "
             "1 s, and for up to 64 s if it fails again."},

    {"transport/ucx_transports", CONFIG_STRING, FIELD(transport.ucx_transports), 0, 127,
     .default_text = "", .old_path = "transport/tls",
     .help = "The transports that UCX may use (UCX_TLS). Empty: shared memory within a host, RDMA "
             "hardware between hosts. none: no UCX. With tcp, anyone who reaches UCX's port reads "
             "and writes the machine's memory."},
    {"transport/ucx_devices", CONFIG_STRING, FIELD(transport.ucx_devices), 0, 127,
     .default_text = "",
     .help = "RDMA devices that UCX may use between hosts, such as mlx5_0:1, separated by commas. "
             "Empty: those that are active."},
    {"transport/data_connections", CONFIG_WHOLE, FIELD(transport.data_connections), 1, 16,
     .default_text = "2",
     .help = "TCP connections for KV between two machines that UCX does not connect."},
    {"transport/data_window", CONFIG_BYTES, FIELD(transport.data_window_bytes), MIB, 1024 * MIB,
     .default_text = "8MiB",
     .help = "Bytes sent over these connections to one machine that it has not received yet. Want "
             "bandwidth times round trip at least."},
    {"transport/heartbeat_ms", CONFIG_WHOLE, FIELD(transport.heartbeat_ms), 10, HOUR_MS,
     .default_text = "1000",
     .help = "Interval between heartbeats on a connection that sends nothing else."},
    {"transport/silence_ms", CONFIG_WHOLE, FIELD(transport.silence_ms), 20, HOUR_MS,
     .default_text = "5000",
     .help = "A peer that is silent this long is treated as gone. At least twice "
             "`heartbeat_ms`."},
    {"transport/connect_ms", CONFIG_WHOLE, FIELD(transport.connect_ms), 10, HOUR_MS,
     .default_text = "5000", .help = "Time limit for connecting and the hand-shake."},
    {"transport/link_ms", CONFIG_WHOLE, FIELD(transport.link_ms), 10, HOUR_MS,
     .default_text = "2000",
     .help = "Time in which UCX must carry a first message over RDMA. Else KV travels over "
             "cleave's own connections (transport.md)."},

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
