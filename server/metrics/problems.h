/* metrics_problems: the kinds of problems that a gateway reports to its operator, in `cleave
 * status` and on the page of GET /. problems.c looks for problems on the gateway's event loop
 * thread. This header has constants only. Each kind belongs to an alarm of
 * deploy/prometheus/cleave-alarms.yaml (column `alarm`); two kinds may share one. */
#ifndef SERVER_METRICS_PROBLEMS_H
#define SERVER_METRICS_PROBLEMS_H

/* X(NAME, scope, severity, hold_s, alarm, what_to_do), the worst first. scope: GATEWAY = at most
 * one problem of this kind; MACHINE = at most one for each machine. hold_s: seconds for which the
 * condition must hold before the problem is shown. what_to_do: the last column of the table "At
 * three o'clock" of docs/operation.md. */
#define METRICS_PROBLEMS(X)                                                                        \
    X(NOT_READY, GATEWAY, critical, 0, CleaveNotReady,                                             \
      "start or mend the machines that are missing")                                               \
    X(MACHINE_DOWN, MACHINE, critical, 0, CleaveMachineDown, "act on the reason")                  \
    X(MACHINE_RESTARTS, MACHINE, critical, 0, CleaveMachineRestarts, "read the machine's log")     \
    X(MACHINE_MISMATCH, MACHINE, warning, 0, CleaveMachineMismatch,                                \
      "give both the same model and kv settings")                                                  \
    X(MEMBER_MISMATCH, GATEWAY, warning, 0, CleaveMachineMismatch,                                 \
      "give both the same model and kv settings")                                                  \
    X(MACHINE_ON_CPU, MACHINE, warning, 0, CleaveMachineOnCpu,                                     \
      "see nvidia-smi, the kernel's log and cleave doctor on that host")                           \
    X(MACHINE_CRASHES, MACHINE, warning, 0, CleaveMachineCrashes,                                  \
      "see nvidia-smi, the kernel's log and cleave doctor on that host")                           \
    X(LINK_DOWN, MACHINE, warning, 5, CleaveLinkDown,                                              \
      "read the prompt machine's log; the machine's port must be reachable")                       \
    X(LINK_SLOW, MACHINE, warning, 0, CleaveLinkSlow,                                              \
      "see the label path of cleave_link_up; cleave doctor measures paths")                        \
    X(TRANSFERS_FAIL, MACHINE, warning, 0, CleaveTransfersFail, "read the prompt machine's log")   \
    X(KV_FULL, GATEWAY, warning, 5, CleaveKvFull,                                                  \
      "add kv_memory or machines, or raise scheduler/growth_reserve_percent")                      \
    X(PREEMPTIONS, MACHINE, warning, 0, CleavePreemptions,                                         \
      "add kv_memory or machines, or raise scheduler/growth_reserve_percent")                      \
    X(KV_QUARANTINED, MACHINE, warning, 5, CleaveKvQuarantined,                                    \
      "continue or kill the process that the log names")                                           \
    X(KV_TIER_DOWN, MACHINE, warning, 5, CleaveKvTierDown,                                         \
      "mend what the machine's log names; if the log says 'is off', restart the machine (kill a "  \
      "local machine's process)")                                                                  \
    X(SLO_MISSED, GATEWAY, warning, 0, CleaveSloMissed, "add machines")                            \
    X(REQUESTS_REFUSED, GATEWAY, warning, 0, CleaveRequestsRefused, "add machines")                \
    X(REQUESTS_RESUMED, GATEWAY, warning, 0, CleaveRequestsResumed,                                \
      "find 'machine X is down' in the log")                                                       \
    X(REQUESTS_BLAMED, GATEWAY, warning, 0, CleaveRequestsBlamed,                                  \
      "find the request's id in the log")                                                          \
    X(HOT_TENANT, GATEWAY, warning, 5, CleaveHotTenant, "change the key's limits or weight")       \
    X(LOOP_STALLED, GATEWAY, warning, 0, CleaveEventLoopStalled,                                   \
      "look at the host's CPU load, memory and disks")                                             \
    X(FILES_SHORT, GATEWAY, warning, 0, CleaveFilesShort, "set a higher LimitNOFILE")              \
    X(LOG_LOSES_LINES, GATEWAY, warning, 0, CleaveLogLosesLines,                                   \
      "free the disk; an event log with lost lines cannot be replayed")                            \
    X(RELOAD_FAILED, GATEWAY, warning, 0, CleaveReloadFailed,                                      \
      "mend what cleave check reports, then reload")                                               \
    X(KEY_EXPIRES, GATEWAY, warning, 0, CleaveKeyExpires,                                          \
      "give the key a later expires, or replace it by a new key, then reload")                     \
    X(CERTIFICATE_EXPIRES, GATEWAY, warning, 0, CleaveCertificateExpires,                          \
      "renew the certificate, then reload")                                                        \
    X(ETCD_LOST, GATEWAY, warning, 0, CleaveEtcdLost, "check etcd and cluster/etcd_endpoints")

#define METRICS_PROBLEM_ENUM(name, ...) METRICS_PROBLEM_##name,
enum metrics_problem { METRICS_PROBLEMS(METRICS_PROBLEM_ENUM) METRICS_PROBLEM_COUNT };
#undef METRICS_PROBLEM_ENUM

#endif
