"""report FOLDER MODE: prints the table of tests/gpu/check from the output of its steps so far: goal, reached fraction
of each limit, and verdict. A step may have ended at any point: incomplete lines are skipped, and a figure that was not
measured is reported as such. Uses the standard library only."""

import os
import re
import statistics
import sys

folder, mode = sys.argv[1:3]
VOCABULARY = {"8b": 128256, "70b": 128256, "1b": 128256, "tiny": 512}


def lines(name, kind="log"):
    try:
        with open(os.path.join(folder, f"{name}.{kind}"), errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def figures(name):
    """Returns {"memory_read": 4100.0} from lines of "name value…"."""
    found = {}
    for line in lines(name):
        words = line.split()
        if len(words) > 1 and re.fullmatch(r"-?\d+(\.\d+)?", words[1]):
            found[words[0]] = float(words[1])
    return found


class Model:
    """The output of bench_model: shape, {("prompt", "4x2048"): ms}, and {"4x2048": [(operation, us)]}."""

    def __init__(self, name):
        self.shape, self.times, self.operations, self.load_ms, self.device = {}, {}, {}, None, ""
        for line in lines(name):
            try:
                self.read(line.split(), line)
            except (IndexError, ValueError):
                pass

    def read(self, words, line):
        if words[:1] == ["shape"] and len(words) % 2 == 0:
            self.shape = {words[i]: words[i + 1] if i == 0 else int(words[i + 1]) for i in range(0, len(words), 2)}
        elif words[:1] in (["prompt"], ["token"]) and words[2] == "ms":
            self.times[words[0], words[1]] = float(words[3])
        elif words[:2] == ["load", "ms"]:
            self.load_ms = float(words[2])
        elif words[:1] == ["op"] and words[3] == "us":
            self.operations.setdefault(words[1], []).append((words[2], float(words[4])))
        elif words[:1] == ["device"]:
            self.device = line


def prompt_flops(shape, count, tokens):
    """Multiplications with weights (for the vocabulary one row per prompt) and of causal attention: q·K and ·V."""
    head = shape["heads"] * shape["head_dim"]
    vocabulary = VOCABULARY.get(shape["shape"], 0) * head
    weights = shape["step_weights"] - vocabulary
    attention = shape["layers"] * 2 * 2 * head * tokens * tokens / 2
    return count * (2 * weights * tokens + 2 * vocabulary + attention)


def clocks(name):
    """The samples of nvidia-smi with the highest power, one half of all: those of the measurement itself."""
    samples = []
    for line in lines(name, "clocks"):
        parts = [part.strip() for part in line.split(",")]
        try:
            samples.append((float(parts[3]), int(parts[1]), int(parts[2]), int(parts[4]), parts[5]))
        except (IndexError, ValueError):
            pass
    if not samples:
        return None
    busy = sorted(samples)[len(samples) // 2:]
    reasons = sorted({sample[4] for sample in busy})
    return (f"{name}: SM {min(s[1] for s in busy)} to {max(s[1] for s in busy)} MHz, memory {busy[-1][2]} MHz, "
            f"{statistics.median(s[0] for s in busy):.0f} W, up to {max(s[3] for s in busy)} °C, "
            f"clock reasons {' '.join(reasons)}")


card, transfer, peers = figures("bench-card"), figures("two-processes"), figures("peers")
rows = []


def row(what, goal, least, reached, detail, most=None):
    """reached: a fraction, or None. least or most: the goal's limit; both None = the step only has to run."""
    verdict = "not measured"
    if reached is not None:
        good = reached >= least if least is not None else reached <= most if most is not None else True
        verdict = "reached" if good else "MISSED"
    if reached is not None and least is None and most is None:
        rows.append((what, goal, "yes", "", detail))
        return
    rows.append((what, goal, "" if reached is None else f"{reached:.2%}" if most else f"{reached:.1%}", verdict, detail))


def add_model(step, goals, large):
    """goals: {(kind, "4x2048"): …} for each wanted row, measured or not."""
    model = Model(step)
    if not model.shape or model.load_ms is None:
        for _, text in goals:
            row(f"{large}: {text}", "", None, None, "")
        return
    name = f"{model.shape['shape'].upper()} ({model.shape['layers']} layers)"
    row(f"{name}: load", "runs", None, 1, f"{model.load_ms / 1e3:.1f} s")
    for kind, text in list(goals) + [key for key in model.times if key not in goals]:
        add_time(name, model, kind, text)


def add_time(name, model, kind, text):
    shape, ms = model.shape, model.times.get((kind, text))
    count, tokens = [int(number) for number in re.split("[x@]", text)]
    if kind == "prompt":
        what, best = f"{name}: prompt {tokens} × {count}", card.get("cublas_square_bf16")
        if ms is None or not best:
            row(what, "≥ 70 % of cuBLAS", 0.7, None, "" if ms is None else f"{ms:.2f} ms; cuBLAS was not measured")
            return
        rate = prompt_flops(shape, count, tokens) / ms * 1e-9
        row(what, "≥ 70 % of cuBLAS", 0.7, rate / best, f"{ms:.2f} ms, {rate:.1f} TFLOP/s of {best:.1f}")
        return
    goal, least = ("≥ 85 % of the bandwidth", 0.85) if count == 1 else ("≥ 75 % of the bound", 0.75)
    what, best = f"{name}: token step, batch {count}, context {tokens}", card.get("memory_read")
    if ms is None or not best:
        row(what, goal, least, None, "" if ms is None else f"{ms:.3f} ms; the memory was not measured")
        return
    # For one sequence, the limit is the time to read the weights.
    data = 2 * shape["step_weights"] + (count * tokens * shape["kv_token_bytes"] if count > 1 else 0)
    rate = data / ms * 1e-6
    row(what, goal, least, rate / best, f"{ms:.3f} ms, {rate:.0f} GB/s of {best:.0f}")


def add_transfer():
    try:
        part = transfer["transfer_exposed_ms"] / transfer["transfer_prompt_ms"]
        row(f"KV transfer between two processes, {transfer['transfer_prompt_tokens']:.0f} tokens: exposed",
            "≤ 2 % of the prompt's time", None, part, f"{transfer['transfer_exposed_ms']:.3f} ms of "
            f"{transfer['transfer_prompt_ms']:.2f} ms, {transfer['transfer_bytes'] / 1e6:.0f} MB in "
            f"{transfer['transfer_ms']:.2f} ms; {way()}", most=0.02)
        staged = figures("two-processes-staged")
        if "transfer_exposed_ms" in staged:
            row("The same through the host's memory", "no bound", None, 1,
                f"{staged['transfer_exposed_ms']:.3f} ms of {staged['transfer_prompt_ms']:.2f} ms, in "
                f"{staged['transfer_ms']:.2f} ms; {way('two-processes-staged')}")
        if "ipc_layer_us" in peers:
            row("One layer's KV of 2048 tokens into another process's memory", "no bound", None, 1,
                f"{peers['ipc_layer_bytes'] / 1e6:.1f} MB in 128 blocks in {peers['ipc_layer_us']:.0f} µs; in one piece "
                f"{peers['ipc_bytes_per_s'] * 1e-9:.0f} GB/s")
    except (KeyError, ZeroDivisionError):
        row("KV transfer between two processes: exposed", "≤ 2 % of the prompt's time", None, None, "")


def way(step="two-processes"):
    for line in lines(step):
        if line.startswith("transfer_path "):
            return line.split(" ", 1)[1]
    return "way unknown"


def print_operations(model):
    for text, operations in model.operations.items():
        whole = sum(us for _, us in operations)
        print(f"\n{text}, each operation on its own: {whole / 1e3:.2f} ms in all: " + ", ".join(
            f"{name} {us:.0f} µs ({us / whole:.0%})" for name, us in sorted(operations, key=lambda each: -each[1])))


def print_variants():
    base = Model("bench-8b").times
    for step, what in (("bench-8b-not-tuned", "kernels of cuBLASLt's heuristic"), ("bench-8b-not-early", "no early launches")):
        found = [f"{kind} {text} {ms:.3f} ms ({ms / base[kind, text] - 1:+.1%})"
                 for (kind, text), ms in Model(step).times.items() if (kind, text) in base]
        if found:
            print(f"\nWith {what}: " + ", ".join(found))


def main():
    print("# cleave on this device\n")
    if mode == "emulated":
        print("Emulated: the figures mean nothing.\n")
    described = Model("bench-8b").device
    for line in lines("bench-card")[1:2] + ([described] if described else []):
        print(f"- {line}")
    for name, value in card.items():
        print(f"- {name} {value:g}")
    for step in ("bench-card", "bench-8b", "bench-70b", "two-processes"):
        told = clocks(step)
        if told:
            print(f"- {told}")
    print()
    add_model("bench-8b", [("prompt", "4x2048"), ("token", "1@128"), ("token", "64@2048")] if mode == "device" else [], "8B")
    add_transfer()
    half = not Model("bench-70b").times and Model("bench-70b-half").times
    add_model("bench-70b-half" if half else "bench-70b",
              [("prompt", "1x2048"), ("token", "1@128"), ("token", "8@2048")] if mode == "device" else [], "70B")
    print("| what | goal | reached | | measured |\n|---|---|---|---|---|")
    for each in rows:
        print("| " + " | ".join(each) + " |")
    print_operations(Model("bench-8b"))
    print_variants()


main()
