#!/usr/bin/env python3
"""Goal: the alarms of deploy/prometheus/ and the dashboards of deploy/grafana/ ask for metrics that exist, each alarm fires
for its fault and for no other, and has a row in docs/operation.md. Method: reads names and labels out of the expressions
and compares them with docs/metrics.md, which another test compares with the page /metrics. Where promtool is installed, it
checks the files and runs each fault: metrics as gateways show them, and the alarms that must fire."""
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile

SOURCE = os.environ["CLEAVE_SOURCE"]
ALARMS = os.path.join(SOURCE, "deploy/prometheus/cleave-alarms.yaml")
KEYWORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
MATCHING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
DAY_S = 86400


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def metrics_read():
    """Returns {name: labels} of all series of the page, and of the series that Prometheus adds."""
    found = {"up": set()}
    for name, kind, labels in re.findall(r"^\| `([\w:]+)` \| (\w+)((?:, `\w+`)*) \|", read("docs/metrics.md"), re.M):
        names = set(re.findall(r"`(\w+)`", labels))
        names |= {"model_name", "engine"} if name.startswith("vllm:") else set()
        names |= {"pool"} if "machine" in names else set()
        if kind == "histogram":
            found.update({f"{name}_bucket": names | {"le"}, f"{name}_sum": names, f"{name}_count": names})
        else:
            found[name] = names
    assert len(found) > 100, f"docs/metrics.md has another form: {len(found)} rows"
    return {name: labels | {"job", "instance"} for name, labels in found.items()}


METRICS = metrics_read()


def check_expression(expression, where):
    """Each metric exists, and has the labels that its selector names."""
    named = 0
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    text = re.sub(r"\[[^\]]*\]", " ", text)
    for name, selector in re.findall(r"([a-zA-Z_:][\w:]*)\s*(\{[^}]*\}|\()?", re.sub(r"\b\d[\w.]*", " ", text)):
        if selector == "(" or name in KEYWORDS or name in MATCHING:
            continue
        if re.fullmatch(r"\w+", name) and re.search(r"\{[^}]*\b%s\s*[=!]" % name, text) and name not in METRICS:
            continue
        assert name in METRICS, f"{where}: no metric {name} in docs/metrics.md: {expression}"
        named += 1
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector or ""):
            assert label in METRICS[name], f"{where}: {name} has no label {label}: {expression}"
    assert named > 0, f"{where}: no metric in {expression}"


def alarms_read():
    """Returns {alarm: (expression, runbook)}."""
    found = {}
    for block in re.split(r"^ *- alert: ", read("deploy/prometheus/cleave-alarms.yaml"), flags=re.M)[1:]:
        name = block.split("\n", 1)[0].strip()
        expression = re.search(r"expr: >-\n((?: {10}.*\n)+)", block)
        runbook = re.search(r'runbook: "(.*)"', block)
        assert name not in found and expression and runbook and "summary:" in block, name
        found[name] = (" ".join(expression.group(1).split()), runbook.group(1))
    return found


def check_rows(alarms):
    """Each alarm names its row of docs/operation.md, and each row that names an alarm has one."""
    table = read("docs/operation.md").split("\n## At three o'clock\n", 1)[1]
    rows = set(re.findall(r"`(Cleave[A-Z]\w+)`", "\n".join(re.findall(r"^\| ([^|]*) \|", table, re.M))))
    assert rows == set(alarms), (rows ^ set(alarms))
    for name, (_, runbook) in alarms.items():
        assert runbook == f"docs/operation.md#at-three-oclock, {name}", runbook


def cell_plain(text):
    """A cell of a table as the list of problems has it: without code, links and their targets."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "").strip()


def check_problems():
    """The problems that a gateway finds itself are the alarms, except that it is gone, with the severity of the alarm and
    what the table of docs/operation.md says is to do."""
    table = read("docs/operation.md").split("\n## At three o'clock\n", 1)[1]
    rows = [(set(re.findall(r"`(Cleave\w+)`", first)), cell_plain(last))
            for first, last in re.findall(r"(?m)^\| ([^|]*) \|[^|]*\| (.*) \|$", table)]
    severities = dict(re.findall(r"- alert: (\w+)\n(?:.*\n)+?.*severity: (\w+)", read("deploy/prometheus/cleave-alarms.yaml")))
    text = re.sub(r'" *\\\n *"', "", read("server/metrics/problems.h"))
    found = re.findall(r'X\(\w+, \w+, (\w+), \d+, (Cleave\w+),[\s\\]*"([^"]*)"\)', text)
    text = read("tools/admin/view.c")
    found.append(("critical", "CleaveGatewayDown", re.search(r'"what_to_do", "([^"]*)"', text).group(1)))
    assert "CleaveGatewayDown" in text and {name for _, name, _ in found} == set(severities), (found, severities)
    for severity, name, to_do in found:
        assert severities[name] == severity, (name, severity)
        assert [to_do] == [last for names, last in rows if name in names], (name, to_do)


def dashboard_expressions(path):
    """Yields the expressions of a dashboard, with its variables replaced."""
    with open(path, encoding="utf-8") as file:
        dashboard = json.load(file)
    assert dashboard["title"] and dashboard["uid"] and dashboard["schemaVersion"] >= 36, path
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)), f"{path}: an id occurs twice"
    cells = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not mine & cells, f"{path}: {panel['title']} covers another panel"
        cells |= mine
        assert panel["targets"] and panel["title"] and panel["description"], panel
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], re.search(r"label_values\((.*), *\w+\)", variable["query"]).group(1)


def check_dashboards():
    paths = sorted(glob.glob(os.path.join(SOURCE, "deploy/grafana/*.json")))
    for path in paths:
        for panel, expression in dashboard_expressions(path):
            check_expression(expression, f"{os.path.basename(path)}: {panel}")
    return paths


# ---- faults ----


def series(name, **labels):
    """The text of a series of gateway g."""
    assert name in METRICS, name
    assert set(labels) <= METRICS[name], (name, labels)
    pairs = {"job": "cleave", "instance": "g", **labels}
    return name + "{" + ",".join(f'{k}="{v}"' for k, v in sorted(pairs.items())) + "}"


def always(value):
    return f"{value}+0x60"


def until_ten(before, after):
    """One value for ten minutes, another afterwards."""
    return f"{before}+0x9 {after}+0x49"


def growing(per_minute):
    return f"0+{per_minute}x60"


def of(machine, pool):
    return {"machine": machine, "pool": pool}


P0, T0 = of("p0", "prompt"), of("t0", "token")
HEALTHY = {
    series("up"): always(1), series("cleave_ready"): always(1),
    series("cleave_event_loop_seconds_count"): growing(1000),
    series("cleave_event_loop_seconds_bucket", le="1"): growing(1000),
    series("process_open_fds"): always(40), series("process_max_fds"): always(1024),
    series("cleave_config_last_reload_successful"): always(1),
    series("cleave_certificate_expiry_timestamp_seconds"): always(60 * DAY_S),
    series("cleave_key_expiry_timestamp_seconds", key="team-a"): always(60 * DAY_S),
    series("cleave_events_dropped_total"): always(0), series("cleave_access_lines_dropped_total"): always(0),
    series("cleave_ledger_answers_lost_total"): always(0), series("cleave_ledger_lines_waiting"): "0 3 0+0x58",
    series("cleave_etcd_up"): always(1),
    series("cleave_etcd_machines_refused_total"): always(0), series("cleave_machine_crashes_total"): always(0),
    series("cleave_requests_blamed_total"): always(0), series("cleave_requests_resumed_total"): always(3),
    series("cleave_requests_unrouted"): always(0), series("cleave_requests_refused_total", reason="queue_full"): always(1),
    series("vllm:kv_cache_usage_perc"): always(0.5),
    series("cleave_slo_limit_seconds", slo="ttft"): always(0.5), series("cleave_slo_limit_seconds", slo="tbt"): always(0.05),
    series("cleave_slo_answers_total", slo="all", met="true"): growing(99),
    series("cleave_slo_answers_total", slo="all", met="false"): growing(1),
    series("cleave_link_up", prompt="p0", token="t0", path="ucx put over sysv"): always(1),
    series("cleave_transfers_total", **P0, path="layerwise"): growing(60),
    series("cleave_transfers_total", **P0, path="one_piece"): growing(0),
    series("cleave_transfer_exposed_seconds_total", **P0): growing(0.6),
    series("cleave_transfers_failed_total", **P0): always(0),
    series("cleave_kv_tier_up", **P0, tier="file"): always(1), series("cleave_kv_tier_up", **P0, tier="store"): always(1),
    series("cleave_kv_blocks", **T0, state="quarantined"): always(0), series("cleave_preemptions_total", **T0): always(2),
}
for each in (P0, T0):
    HEALTHY.update({series("cleave_machine_up", **each): always(1), series("cleave_machine_mismatch", **each): always(0),
                    series("cleave_machine_starts_total", **each): always(1),
                    series("cleave_machine_losses_total", **each): always(0)})
for key, tokens in (("a", 500), ("b", 400)):
    HEALTHY.update({series("cleave_key_prompt_tokens_total", key=key): growing(tokens),
                    series("cleave_key_generated_tokens_total", key=key): growing(tokens),
                    series("cleave_key_requests_total", key=key): growing(5)})


def info(fallback, device):
    return series("cleave_machine_info", **T0, host="node1", device=device, build="0.1.0", fallback=fallback)


HOT = {series("cleave_key_prompt_tokens_total", key="a"): growing(90000), series("cleave_requests_unrouted"): always(7)}
# (fault, minute, changed series, alarms that fire then: (name, labels that name the culprit)). The fault begins in minute 10,
# or is always there.
FAULTS = [
    ("none", 50, {}, []),
    ("a device is gone, and its machine ends", 14,
     {series("cleave_machine_up", **T0): until_ten(1, 0), series("cleave_machine_crashes_total"): until_ten(0, 1)},
     [("CleaveMachineDown", {"machine": "t0"}), ("CleaveMachineCrashes", {})]),
    ("a device is gone, and its machine computes on the CPU", 14,
     {info("false", "cuda:0"): "1+0x9 stale", info("true", "cpu, 4 threads"): "_x9 1+0x50"},
     [("CleaveMachineOnCpu", {"machine": "t0"})]),
    ("a link is slow", 40, {series("cleave_transfer_exposed_seconds_total", **P0): growing(12)},
     [("CleaveLinkSlow", {"machine": "p0"})]),
    ("a link is down", 16, {series("cleave_link_up", prompt="p0", token="t0", path="ucx put over sysv"): "1+0x9 stale",
                            series("cleave_link_up", prompt="p0", token="t0", path=""): "_x9 0+0x50"},
     [("CleaveLinkDown", {"prompt": "p0", "token": "t0"})]),
    ("transfers fail", 14, {series("cleave_transfers_failed_total", **P0): until_ten(0, 2)},
     [("CleaveTransfersFail", {"machine": "p0"})]),
    ("a store is down", 16, {series("cleave_kv_tier_up", **P0, tier="store"): until_ten(1, 0)},
     [("CleaveKvTierDown", {"machine": "p0", "tier": "store"})]),
    ("a store is down for a moment", 16, {series("cleave_kv_tier_up", **P0, tier="store"): "1+0x9 0+0x2 1+0x40"}, []),
    ("KV memory is full", 30,
     {series("vllm:kv_cache_usage_perc"): until_ten(0.5, 0.99), series("cleave_preemptions_total", **T0): growing(30)},
     [("CleaveKvFull", {}), ("CleavePreemptions", {"machine": "t0"})]),
    ("KV memory is full for a moment", 15, {series("vllm:kv_cache_usage_perc"): until_ten(0.5, 0.99)}, []),
    ("a writer is silent", 25, {series("cleave_kv_blocks", **T0, state="quarantined"): until_ten(0, 4)},
     [("CleaveKvQuarantined", {"machine": "t0"})]),
    ("a tenant is hot", 30, HOT, [("CleaveHotTenant", {"key": "a"})]),
    ("a tenant is hot, and no request waits", 30, {**HOT, series("cleave_requests_unrouted"): always(0)}, []),
    ("a tenant is alone", 30, {**HOT, series("cleave_key_requests_total", key="b"): always(9)}, []),
    ("the event loop stood still once", 14, {series("cleave_event_loop_seconds_count"): "0+1000x9 10001+1000x49"},
     [("CleaveEventLoopStalled", {})]),
    ("the event loop stands still, or the gateway is gone", 14, {series("up"): until_ten(1, 0)}, [("CleaveGatewayDown", {})]),
    ("etcd is lost", 14, {series("cleave_etcd_up"): until_ten(1, 0)}, [("CleaveEtcdLost", {})]),
    ("a host has the wrong model", 14,
     {series("cleave_machine_mismatch", **T0): until_ten(0, 1), series("cleave_machine_up", **T0): until_ten(1, 0)},
     [("CleaveMachineMismatch", {"machine": "t0"}), ("CleaveMachineDown", {"machine": "t0"})]),
    ("a host in etcd has the wrong model", 50, {series("cleave_etcd_machines_refused_total"): until_ten(0, 1)},
     [("CleaveMachineMismatch", {})]),
    ("an API key expires", 1, {series("cleave_key_expiry_timestamp_seconds", key="team-a"): always(6 * DAY_S)},
     [("CleaveKeyExpires", {"key": "team-a"})]),
    ("the certificate ends", 1, {series("cleave_certificate_expiry_timestamp_seconds"): always(13 * DAY_S)},
     [("CleaveCertificateExpires", {})]),
    ("the disk of the event log is full", 12, {series("cleave_events_dropped_total"): until_ten(0, 7)},
     [("CleaveLogLosesLines", {})]),
    ("the disk of the access log is full", 12, {series("cleave_access_lines_dropped_total"): until_ten(0, 7)},
     [("CleaveLogLosesLines", {})]),
    ("the disk of the usage ledger is full", 17, {series("cleave_ledger_lines_waiting"): until_ten(0, 7)},
     [("CleaveLogLosesLines", {})]),
    ("answers miss in the usage ledger", 12, {series("cleave_ledger_answers_lost_total"): until_ten(0, 7)},
     [("CleaveLogLosesLines", {})]),
    ("a local machine starts for ever", 40, {series("cleave_machine_starts_total", **P0): "1+0x9 1+1x49"},
     [("CleaveMachineRestarts", {"machine": "p0"})]),
    ("a remote machine starts for ever", 40, {series("cleave_machine_losses_total", **T0): "0+0x9 0+1x49"},
     [("CleaveMachineRestarts", {"machine": "t0"})]),
    ("a machine was restarted twice", 40, {series("cleave_machine_starts_total", **P0): "1+0x9 2+0x9 3+0x40"}, []),
    ("no machines serve", 12, {series("cleave_ready"): until_ten(1, 0)}, [("CleaveNotReady", {})]),
    ("files run out", 20, {series("process_open_fds"): until_ten(40, 1000)}, [("CleaveFilesShort", {})]),
    ("a reload failed", 12, {series("cleave_config_last_reload_successful"): until_ten(1, 0)}, [("CleaveReloadFailed", {})]),
    ("answers are late", 40, {series("cleave_slo_answers_total", slo="all", met="false"): growing(30)},
     [("CleaveSloMissed", {})]),
    ("requests are refused", 40, {series("cleave_requests_refused_total", reason="queue_full"): growing(60)},
     [("CleaveRequestsRefused", {"reason": "queue_full"})]),
    ("a request kills machines", 14, {series("cleave_requests_blamed_total"): until_ten(0, 1)},
     [("CleaveRequestsBlamed", {})]),
    ("requests resume all the time", 40, {series("cleave_requests_resumed_total"): growing(20)},
     [("CleaveRequestsResumed", {})]),
]
CULPRIT = "machine, key, prompt, token, reason, tier"


def fault_test(fault):
    name, minute, changes, fire = fault
    samples = [{"labels": "{" + ", ".join(f'{k}="{v}"' for k, v in {"alertname": alarm, **labels}.items()) + "}",
                "value": 1} for alarm, labels in fire]
    return {"name": name, "interval": "1m",
            "input_series": [{"series": text, "values": values} for text, values in {**HEALTHY, **changes}.items()],
            "promql_expr_test": [{"expr": f'count by (alertname, {CULPRIT}) (ALERTS{{alertstate="firing"}})',
                                  "eval_time": f"{minute}m", "exp_samples": samples}]}


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)


def check_syntax(folder, expressions):
    """promtool reads each expression, as that of a rule."""
    path = os.path.join(folder, "dashboards.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"groups": [{"name": "all", "rules": [{"record": f"r{i}", "expr": text.replace("$", "")}
                                                        for i, text in enumerate(expressions)]}]}, file)
    promtool("check", "rules", path)


def check_promtool(paths):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("cleave-alarms.yaml", "prometheus.yaml"):
            shutil.copy(os.path.join(SOURCE, "deploy/prometheus", name), folder)
        with open(os.path.join(folder, "prometheus.key"), "w", encoding="utf-8") as file:
            file.write("secret")
        promtool("check", "config", os.path.join(folder, "prometheus.yaml"))
        check_syntax(folder, [text for path in paths for _, text in dashboard_expressions(path)])
        path = os.path.join(folder, "faults.yaml")
        for fault in FAULTS:
            with open(path, "w", encoding="utf-8") as file:  # JSON is YAML.
                json.dump({"rule_files": ["cleave-alarms.yaml"], "evaluation_interval": "1m",
                           "tests": [fault_test(fault)]}, file)
            done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
            assert done.returncode == 0, (fault[0], done.stdout, done.stderr)


def check_itself():
    for expression, wrong in (("sum by (x) (rate(up[5m]))", None), ('up{job="a"} == 0 and on (a) time() > 1e3', None),
                              ("cleave_gone > 0", "cleave_gone"), ('up{gone=~"x"}', "gone"),
                              ("rate(cleave_event_loop_seconds[5m])", "cleave_event_loop_seconds"), ("1 + 1", "no metric")):
        try:
            check_expression(expression, "self-check")
            said = None
        except AssertionError as error:
            said = str(error)
        assert said is None if wrong is None else said and wrong in said, (expression, said)


check_itself()
alarms = alarms_read()
for alarm, (text, _) in alarms.items():
    check_expression(text, alarm)
fired = {alarm for fault in FAULTS for alarm, _ in fault[3]}
assert fired == set(alarms), f"no fault for {set(alarms) - fired}, no alarm {fired - set(alarms)}"
check_rows(alarms)
check_problems()
dashboards = check_dashboards()
assert len(dashboards) >= 5, dashboards
if shutil.which("promtool"):
    check_promtool(dashboards)
    print(f"{len(FAULTS)} faults, {len(alarms)} alarms, {len(dashboards)} dashboards")
else:
    print(f"{len(alarms)} alarms, {len(dashboards)} dashboards; promtool is not installed, so no alarm was fired "
          "(Debian: prometheus)")
