/* counters: lists of the counters and gauges in /metrics: of machines and their tiers, of stage
 * processes, of the gateway and of API keys; and the list of the kinds of tiers. A list is a macro
 * that applies the macro X to every line. transport/ and server/ turn the lines into struct fields,
 * enum constants, and the pages /metrics and /admin/state; tier_kind.h and events/ use only the
 * kinds of tiers. docs/contributing/add-a-counter.md says how to add a line. Histograms are in
 * server/metrics/. Macros only: no functions, no threads.
 *
 * Columns; each list says which columns it has:
 *   name    Name of the field. In GATEWAY_COUNTERS: the enum constant without METRICS_.
 *   kind    COUNTER = the value only grows while its process lives. GAUGE = the value now. STATE =
 *           a gauge that /admin/state shows too.
 *   family  Name of the metric family in /metrics.
 *   help    The HELP text in /metrics.
 *   bits    Width of the field, 32 or 64. New lines have 64.
 *   group   Place of the family on the page: the enum constant without METRICS_GROUP_
 *           (server/metrics/internal.h). HIDDEN = the line makes no family of its own; `help` is
 *           then a comment.
 *   factor  Converts the field's unit to the family's: 1e-6 from microseconds to seconds or from
 *           microjoules to joules, 1e-9 from nanoseconds to seconds, 1 = the units are equal.
 */
#ifndef COMMON_COUNTERS_H
#define COMMON_COUNTERS_H

/* Counters and gauges of one machine: struct message_stats. Add new lines at the end of this list:
 * a peer that speaks an older version of the protocol knows only the earlier lines
 * (transport/protocol.h). Counters begin at 0 when the machine's process starts.
 * X(bits, name, kind, group, factor, family, help) */
#define MACHINE_COUNTERS(X)                                                                        \
    X(32, prompts_waiting, STATE, LOAD, 1, "cleave_prompts_waiting",                               \
      "Prompts that wait for a batch.")                                                            \
    X(32, prompts_running, STATE, LOAD, 1, "cleave_prompts_running",                               \
      "Prompts that are partly computed.")                                                         \
    X(64, prompt_tokens_pending, STATE, LOAD, 1, "cleave_prompt_tokens_pending",                   \
      "Prompt tokens not yet computed.")                                                           \
    X(32, reservations_waiting, STATE, LOAD, 1, "cleave_reservations_waiting",                     \
      "Requests that wait for KV memory.")                                                         \
    X(32, transfers_awaited, STATE, LOAD, 1, "cleave_transfers_awaited",                           \
      "Requests whose KV has not arrived yet.")                                                    \
    X(32, decodes_running, STATE, LOAD, 1, "cleave_decodes_running", "Requests that decode.")      \
    X(64, decode_tokens_pending, GAUGE, LOAD, 1, "cleave_decode_tokens_pending",                   \
      "Tokens that running requests may still generate.")                                          \
    X(64, prompt_tokens_done, COUNTER, WORK, 1, "cleave_machine_prompt_tokens_total",              \
      "Prompt tokens that a machine computed.")                                                    \
    X(64, prefix_query_tokens, COUNTER, WORK, 1, "cleave_prefix_cache_queries_tokens_total",       \
      "Prompt tokens looked up in a machine's prefix cache.")                                      \
    X(64, prefix_hit_tokens, COUNTER, WORK, 1, "cleave_prefix_cache_hits_tokens_total",            \
      "Prompt tokens found in a machine's prefix cache.")                                          \
    X(64, kept_tokens, COUNTER, WORK, 1, "cleave_kept_tokens_total",                               \
      "Prompt tokens whose KV a token machine kept although the rest of the prompt was lost.")     \
    X(64, generated_tokens_done, COUNTER, WORK, 1, "cleave_machine_generated_tokens_total",        \
      "Tokens that a machine generated.")                                                          \
    X(64, preemptions, COUNTER, WORK, 1, "cleave_preemptions_total",                               \
      "Preemptions: answers whose KV memory was taken for others.")                                \
    X(64, window_freed_blocks, COUNTER, WORK, 1, "cleave_kv_window_freed_blocks_total",            \
      "KV blocks of layers with an attention window that were reused, because no token reads "     \
      "them any more.")                                                                            \
    X(64, prompt_batches, COUNTER, WORK, 1, "cleave_prompt_batches_total",                         \
      "Batches with prompt tokens.")                                                               \
    X(64, token_batches, COUNTER, WORK, 1, "cleave_token_batches_total",                           \
      "Batches with decode steps.")                                                                \
    X(64, transfer_layers, COUNTER, TRANSFERS, 1, "cleave_transfer_layers_total",                  \
      "Layers of KV written to token machines.")                                                   \
    X(64, transfers_layerwise, COUNTER, HIDDEN, 1, "", "cleave_transfers_total{path=layerwise}")   \
    X(64, transfers_one_piece, COUNTER, HIDDEN, 1, "", "cleave_transfers_total{path=one_piece}")   \
    X(64, transfers_failed, COUNTER, TRANSFERS, 1, "cleave_transfers_failed_total",                \
      "KV transfers that failed.")                                                                 \
    X(64, transfer_us, COUNTER, TRANSFERS, 1e-6, "cleave_transfer_seconds_total",                  \
      "Time of KV transfers, from the first write to the last arrival.")                           \
    X(64, transfer_exposed_us, COUNTER, TRANSFERS, 1e-6, "cleave_transfer_exposed_seconds_total",  \
      "Part of cleave_transfer_seconds_total after the first token, which compute did not hide.")  \
    X(64, transfer_held_bytes, COUNTER, SENT, 1, "cleave_transfer_held_bytes_total",               \
      "KV bytes not written, because the token machine already had them.")                         \
    X(64, checkpoint_bytes, COUNTER, SENT, 1, "cleave_checkpoint_bytes_total",                     \
      "KV bytes of running answers copied to other machines (kv/checkpoint).")                     \
    X(64, resident_bytes, STATE, LOAD, 1, "cleave_machine_resident_bytes",                         \
      "Resident memory of a machine's process.")                                                   \
    X(64, mixed_prompt_tokens, STATE, LOAD, 1, "cleave_mixed_prompt_tokens",                       \
      "Most prompt tokens of a batch that also decodes (scheduler/mixed_prompt_tokens).")          \
    X(64, prompt_fill_tokens, STATE, LOAD, 1, "cleave_prompt_fill_tokens",                         \
      "Prompt tokens at which a batch of prompts is full (scheduler/prompt_fill_tokens).")         \
    X(64, prompt_turn_us, STATE, LOAD, 1e-6, "cleave_prompt_turn_seconds",                         \
      "Length of a turn with prompts on cores that machines share (scheduler/turn_ms).")           \
    X(64, prompt_batch_rows, COUNTER, HIDDEN, 1, "",                                               \
      "Tokens in batches with prompts, for the gateway's estimate of the machine's speed.")        \
    X(64, prompt_batch_us, COUNTER, HIDDEN, 1, "", "Time of batches with prompts.")                \
    X(64, token_batch_rows, COUNTER, HIDDEN, 1, "", "Tokens in decode-only batches.")              \
    X(64, token_batch_us, COUNTER, HIDDEN, 1, "", "Time of decode-only batches.")                  \
    X(64, draft_tokens, COUNTER, SENT, 1, "cleave_spec_decode_num_draft_tokens_total",             \
      "Tokens that were drafted and checked (scheduler/speculative_tokens).")                      \
    X(64, draft_tokens_accepted, COUNTER, SENT, 1, "cleave_spec_decode_num_accepted_tokens_total", \
      "Drafted tokens that the model accepted.")                                                   \
    X(64, drafts, COUNTER, SENT, 1, "cleave_spec_decode_num_drafts_total",                         \
      "Decode steps of single answers that checked drafted tokens.")                               \
    X(64, draft_model_tokens, COUNTER, SENT, 1, "cleave_draft_model_tokens_total",                 \
      "Checked tokens of the draft model or draft layer (scheduler/draft_model, "                  \
      "scheduler/draft_layer).")                                                                   \
    X(64, draft_model_tokens_accepted, COUNTER, SENT, 1,                                           \
      "cleave_draft_model_accepted_tokens_total",                                                  \
      "Accepted tokens of the draft model or draft layer.")                                        \
    DRAFT_POSITION(X, 0)                                                                           \
    DRAFT_POSITION(X, 1)                                                                           \
    DRAFT_POSITION(X, 2)                                                                           \
    DRAFT_POSITION(X, 3)                                                                           \
    DRAFT_POSITION(X, 4)                                                                           \
    DRAFT_POSITION(X, 5)                                                                           \
    DRAFT_POSITION(X, 6)                                                                           \
    DRAFT_POSITION(X, 7)                                                                           \
    DRAFT_POSITION(X, 8)                                                                           \
    DRAFT_POSITION(X, 9)                                                                           \
    DRAFT_POSITION(X, 10)                                                                          \
    DRAFT_POSITION(X, 11)                                                                          \
    DRAFT_POSITION(X, 12)                                                                          \
    DRAFT_POSITION(X, 13)                                                                          \
    DRAFT_POSITION(X, 14)                                                                          \
    DRAFT_POSITION(X, 15)                                                                          \
    TIER_FIELDS(X, tier_file)                                                                      \
    TIER_FIELDS(X, tier_store)                                                                     \
    TIER_FIELDS(X, tier_memory)                                                                    \
    X(64, energy_uj, COUNTER, METERS, 1e-6, "cleave_machine_energy_joules_total",                  \
      "Energy since the machine's start, of its GPU (NVML), or of all CPU packages of its host "   \
      "(RAPL), which all machines of the host report. Absent without a meter.")

/* The line of the accepted tokens at one position of their drafts; position 0 is the first drafted
 * token. */
#define DRAFT_POSITION(X, position)                                                                \
    X(64, draft_accepted_##position, COUNTER, HIDDEN, 1, "",                                       \
      "cleave_spec_decode_num_accepted_tokens_per_pos_total{position=" #position "}")

/* The kinds of tiers, in the order in which a machine asks its tiers for KV. X(KIND, kind) */
#define TIER_KINDS(X) X(MEMORY, memory) X(FILE, file) X(STORE, store)

/* The lines of MACHINE_COUNTERS for one tier: the state of the tier, then the lines of
 * TIER_COUNTERS in their order. `tier` is the beginning of the names, such as tier_file. */
#define TIER_FIELDS(X, tier)                                                                       \
    X(64, tier##_state, GAUGE, HIDDEN, 1, "", "See enum message_tier_state.")                      \
    X(64, tier##_hit_tokens, COUNTER, HIDDEN, 1, "", "See TIER_COUNTERS.")                         \
    X(64, tier##_miss_tokens, COUNTER, HIDDEN, 1, "", "See TIER_COUNTERS.")                        \
    X(64, tier##_loaded_bytes, COUNTER, HIDDEN, 1, "", "See TIER_COUNTERS.")                       \
    X(64, tier##_load_us, COUNTER, HIDDEN, 1, "", "See TIER_COUNTERS.")                            \
    X(64, tier##_stored_bytes, COUNTER, HIDDEN, 1, "", "See TIER_COUNTERS.")                       \
    X(64, tier##_dropped_tokens, COUNTER, HIDDEN, 1, "", "See TIER_COUNTERS.")                     \
    X(64, tier##_damaged, COUNTER, HIDDEN, 1, "", "See TIER_COUNTERS.")                            \
    X(64, tier##_load_fixed_us, GAUGE, HIDDEN, 1, "", "See TIER_COUNTERS.")                        \
    X(64, tier##_load_token_ns, GAUGE, HIDDEN, 1, "", "See TIER_COUNTERS.")                        \
    X(64, tier##_least_tokens, GAUGE, HIDDEN, 1, "", "See TIER_COUNTERS.")

/* The counters and gauges of one tier, with the label `tier` in /metrics. /admin/state shows all
 * lines. X(name, kind, factor, family, help) */
#define TIER_COUNTERS(X)                                                                           \
    X(hit_tokens, COUNTER, 1, "cleave_kv_tier_hits_tokens_total",                                  \
      "Prompt tokens whose KV was loaded from a tier.")                                            \
    X(miss_tokens, COUNTER, 1, "cleave_kv_tier_misses_tokens_total",                               \
      "Prompt tokens whose KV was not found in a tier.")                                           \
    X(loaded_bytes, COUNTER, 1, "cleave_kv_tier_loaded_bytes_total",                               \
      "KV bytes loaded from a tier.")                                                              \
    X(load_us, COUNTER, 1e-6, "cleave_kv_tier_load_seconds_total",                                 \
      "Time of loads from a tier, including waits.")                                               \
    X(stored_bytes, COUNTER, 1, "cleave_kv_tier_stored_bytes_total", "KV bytes stored in a tier.") \
    X(dropped_tokens, COUNTER, 1, "cleave_kv_tier_dropped_tokens_total",                           \
      "Tokens whose KV was not stored, because memory was short, or the tier slow or full.")       \
    X(damaged, COUNTER, 1, "cleave_kv_tier_damaged_total", "Damaged records found in a tier.")     \
    X(load_fixed_us, GAUGE, 1e-6, "cleave_kv_tier_load_fixed_seconds",                             \
      "Measured time of a load, without the time for its tokens.")                                 \
    X(load_token_ns, GAUGE, 1e-9, "cleave_kv_tier_load_token_seconds",                             \
      "Measured time that a token adds to a load.")                                                \
    X(least_tokens, GAUGE, 1, "cleave_kv_tier_least_tokens",                                       \
      "Fewest tokens that are loaded instead of computed; 4294967295 = always computed.")

/* Copies of KV, and of the activations that travel between stages, between GPU memory and host
 * memory, and between GPUs: struct message_copies. out = from GPU memory to host memory; in = from
 * host memory to GPU memory; peer = to another process's GPU memory. X(bits, name, kind, group,
 * factor, family, help) */
#define COPY_COUNTERS(X)                                                                           \
    X(32, way, GAUGE, COPIES, 1, "cleave_kv_way",                                                  \
      "Where KV is and how it is sent: 0 = host memory; 1 = GPU memory, directly where the link "  \
      "allows it; 2 = GPU memory, through host memory; 3 = as 2, but directly between GPUs of "    \
      "one host (CUDA IPC).")                                                                      \
    X(64, out_bytes, COUNTER, COPIES, 1, "cleave_kv_staged_out_bytes_total",                       \
      "KV bytes copied out of GPU memory to be sent.")                                             \
    X(64, out_us, COUNTER, COPIES, 1e-6, "cleave_kv_staged_out_seconds_total",                     \
      "Time of copies out of GPU memory.")                                                         \
    X(64, in_bytes, COUNTER, COPIES, 1, "cleave_kv_staged_in_bytes_total",                         \
      "Received KV bytes copied into GPU memory.")                                                 \
    X(64, in_us, COUNTER, COPIES, 1e-6, "cleave_kv_staged_in_seconds_total",                       \
      "Time of copies into GPU memory.")                                                           \
    X(64, peer_bytes, COUNTER, COPIES, 1, "cleave_kv_ipc_bytes_total",                             \
      "KV and activations copied from GPU memory into another process's GPU memory.")              \
    X(64, peer_us, COUNTER, COPIES, 1e-6, "cleave_kv_ipc_seconds_total",                           \
      "Time of copies between GPU memories.")

/* The load of one stage process: struct message_process. Counters begin at 0 when the stage process
 * starts. X(bits, name, kind, factor, family, help) */
#define PROCESS_COUNTERS(X)                                                                        \
    X(64, batches, COUNTER, 1, "cleave_stage_batches_total", "Batches that a stage computed.")     \
    X(64, rows, COUNTER, 1, "cleave_stage_rows_total", "Tokens in batches that a stage computed.") \
    X(64, busy_us, COUNTER, 1e-6, "cleave_stage_busy_seconds_total",                               \
      "Time in which a stage computed. The busiest stage is the machine's bottleneck.")            \
    X(64, resident_bytes, GAUGE, 1, "cleave_stage_resident_bytes",                                 \
      "Resident memory of a stage's process.")

/* Counters of MACHINE_COUNTERS whose sum over all machines, including removed machines, has a
 * family of its own. X(name, family, help) */
#define CLUSTER_COUNTERS(X)                                                                        \
    X(prefix_query_tokens, "vllm:prefix_cache_queries_total",                                      \
      "Prompt tokens looked up in prefix caches.")                                                 \
    X(prefix_hit_tokens, "vllm:prefix_cache_hits_total", "Prompt tokens found in prefix caches.")  \
    X(preemptions, "vllm:num_preemptions_total",                                                   \
      "Preemptions: answers whose KV memory was taken for others.")

/* Counters and gauges of the gateway: enum metrics_value. X(name, kind, group, family, help) */
#define GATEWAY_COUNTERS(X)                                                                        \
    X(REQUESTS_RUNNING, GAUGE, REQUESTS, "vllm:num_requests_running",                              \
      "Requests that a machine has begun to compute.")                                             \
    X(REQUESTS_WAITING, GAUGE, REQUESTS, "vllm:num_requests_waiting",                              \
      "Requests that no machine has begun to compute.")                                            \
    X(PROMPT_TOKENS, COUNTER, REQUESTS, "vllm:prompt_tokens_total",                                \
      "Prompt tokens, computed or cached.")                                                        \
    X(GENERATED_TOKENS, COUNTER, REQUESTS, "vllm:generation_tokens_total", "Generated tokens.")    \
    X(ACCESS_DROPPED, COUNTER, REQUESTS, "cleave_access_lines_dropped_total",                      \
      "Lines missing from log/access_file: its disk was full or too slow.")                        \
    X(SPANS_DROPPED, COUNTER, REQUESTS, "cleave_spans_dropped_total",                              \
      "Spans that did not reach the collector at log/otlp_endpoint.")                              \
    X(LEDGER_WAITING, GAUGE, REQUESTS, "cleave_ledger_lines_waiting",                              \
      "Ended answers that have no line in log/ledger_file yet.")                                   \
    X(LEDGER_LOST, COUNTER, REQUESTS, "cleave_ledger_answers_lost_total",                          \
      "Answers without a line in log/ledger_file, because too many waited for its disk.")          \
    X(UNKNOWN_FIELDS, COUNTER, REQUESTS, "cleave_unknown_fields_total",                            \
      "Fields of requests that this server does not know (docs/api.md); they had no effect.")      \
    X(READY, GAUGE, ROUTING, "cleave_ready",                                                       \
      "1 while the machines that are up can serve requests, else 0.")                              \
    X(REQUESTS_UNROUTED, GAUGE, ROUTING, "cleave_requests_unrouted",                               \
      "Requests in the gateway's queue, without a machine yet.")                                   \
    X(REQUESTS_BLAMED, COUNTER, ROUTING, "cleave_requests_blamed_total",                           \
      "Requests that failed because machines crashed while computing them.")                       \
    X(MACHINE_CRASHES, COUNTER, ROUTING, "cleave_machine_crashes_total",                           \
      "Crashes of local machines, except machines killed from outside.")                           \
    X(ROUTES_SPLIT, COUNTER, ROUTING, "cleave_routes_split_total",                                 \
      "Requests whose prompt and answer were sent to two machines.")                               \
    X(ROUTES_TOGETHER, COUNTER, ROUTING, "cleave_routes_together_total",                           \
      "Requests whose prompt and answer were sent to one machine.")                                \
    X(REQUESTS_RESUMED, COUNTER, ROUTING, "cleave_requests_resumed_total",                         \
      "Times that a request lost its machines and resumed on others.")                             \
    X(TOKENS_RECOMPUTED, COUNTER, ROUTING, "cleave_tokens_recomputed_total",                       \
      "Prompt and answer tokens computed again for resumed requests.")                             \
    X(TOKENS_REUSED, COUNTER, ROUTING, "cleave_tokens_reused_total",                               \
      "Prompt and answer tokens of resumed requests whose KV a machine still had.")                \
    X(CHECKPOINTS, COUNTER, ROUTING, "cleave_checkpoints_total",                                   \
      "Copies of KV of running answers to other machines.")                                        \
    X(CHECKPOINT_TOKENS_USED, COUNTER, ROUTING, "cleave_checkpoint_tokens_used_total",             \
      "Tokens of resumed requests whose KV was found in checkpoints.")                             \
    X(REQUESTS_HANDED_OVER, COUNTER, ROUTING, "cleave_requests_handed_over_total",                 \
      "Answers that left a draining machine with their KV.")                                       \
    X(EVENTS_WRITTEN, COUNTER, EVENTS, "cleave_events_written_total", "Lines of log/events_file.") \
    X(EVENTS_DROPPED, COUNTER, EVENTS, "cleave_events_dropped_total",                              \
      "Lines missing from log/events_file: its disk was full or too slow.")                        \
    X(CERTIFICATE_EXPIRES, GAUGE, CERTIFICATE, "cleave_certificate_expiry_timestamp_seconds",      \
      "Expiry of the TLS certificate, in Unix time.")                                              \
    X(ETCD_UP, GAUGE, ETCD, "cleave_etcd_up", "1 while etcd answers.")                             \
    X(ETCD_REFUSED, COUNTER, ETCD, "cleave_etcd_machines_refused_total",                           \
      "Registrations in etcd that the gateway does not use, such as with another model.")          \
    X(RELOAD_GOOD, GAUGE, RELOAD, "cleave_config_last_reload_successful",                          \
      "1 = the latest reload succeeded, or there was no reload.")                                  \
    X(RELOAD_TIME, GAUGE, RELOAD, "cleave_config_last_reload_success_timestamp_seconds",           \
      "Latest start or successful reload, in Unix time.")

/* Counters and gauges of one API key: struct api_key_counts. /admin/state shows all lines. X(name,
 * kind, family, help) */
#define KEY_COUNTERS(X)                                                                            \
    X(requests, COUNTER, "cleave_key_requests_total", "Answers that began for an API key.")        \
    X(refused, COUNTER, "cleave_key_refused_total",                                                \
      "Requests refused because of a limit of their API key.")                                     \
    X(prompt_tokens, COUNTER, "cleave_key_prompt_tokens_total",                                    \
      "Prompt tokens of ended answers of an API key.")                                             \
    X(generated_tokens, COUNTER, "cleave_key_generated_tokens_total",                              \
      "Tokens generated for an API key.")                                                          \
    X(in_flight, GAUGE, "cleave_key_requests_in_flight", "Running answers of an API key.")         \
    X(day_requests, GAUGE, "cleave_key_day_requests",                                              \
      "Answers that began for an API key on this day (UTC).")                                      \
    X(day_tokens, GAUGE, "cleave_key_day_tokens",                                                  \
      "Prompt and answer tokens of an API key on this day (UTC).")

/* Field declarations for the lists with the column `bits`: COUNTER_FIELD_32 for the lines of 32
 * bits, COUNTER_FIELD_64 for the lines of 64 bits. In a struct, use COUNTER_FIELD_32 before
 * COUNTER_FIELD_64. Between them, add padding or other fields, so that the fields of 64 bits begin
 * at a multiple of eight bytes. */
#define COUNTER_FIELD_32(bits, name, ...) COUNTER_FIELD_32_##bits(name)
#define COUNTER_FIELD_32_32(name)         uint32_t name;
#define COUNTER_FIELD_32_64(name)
#define COUNTER_FIELD_64(bits, name, ...) COUNTER_FIELD_64_##bits(name)
#define COUNTER_FIELD_64_32(name)
#define COUNTER_FIELD_64_64(name) uint64_t name;

/* Makes the statement `to->name += from->name;` of a counter, in a list with the column `bits`. A
 * gauge has no statement. */
#define COUNTER_ADD(bits, name, kind, ...) COUNTER_ADD_##kind(name)
#define COUNTER_ADD_COUNTER(name)          to->name += from->name;
#define COUNTER_ADD_GAUGE(name)
#define COUNTER_ADD_STATE(name)

/* The text after "# TYPE" in /metrics, for each kind. */
#define COUNTER_TYPE_COUNTER "counter"
#define COUNTER_TYPE_GAUGE   "gauge"
#define COUNTER_TYPE_STATE   "gauge"

#endif
