"""report FOLDER MODE: the table of tests/gpu/check, from what its steps have written: goal and reached fraction of
each bound. A figure that was not measured is told as such. Standard library only."""

import os
import re
import sys

folder, mode = sys.argv[1:3]


def lines(name):
    try:
        with open(os.path.join(folder, name + ".log")) as file:
            return file.read().splitlines()
    except OSError:
        return []


def figures(name):
    """{"memory_read": 4100.0} of lines of "name value…"."""
    found = {}
    for line in lines(name):
        words = line.split()
        if len(words) > 1 and re.fullmatch(r"-?\d+(\.\d+)?", words[1]):
            found[words[0]] = float(words[1])
    return found


def words(name, key):
    return next((line[len(key) + 1:] for line in lines(name) if line.startswith(key + " ")), "?")


def model(name):
    """What bench_model said: its shape, and {"prompt 4x2048": ms}."""
    shape, times = {}, {}
    for line in lines(name):
        words = line.split()
        if words[:1] == ["shape"]:
            shape |= {words[i]: words[i + 1] if i == 0 else int(words[i + 1]) for i in range(0, len(words), 2)}
        elif words[:1] in (["prompt"], ["token"]) and words[2] == "ms":
            times[words[0], words[1]] = float(words[3])
        elif words[:1] == ["load"]:
            shape["load_ms"] = float(words[2])
    return shape, times


def prompt_flops(shape, count, tokens):
    """Products with weights (of the vocabulary's, one row a prompt), and attention, causal: q·K and ·V."""
    head = shape["heads"] * shape["head_dim"]
    vocabulary = VOCABULARY.get(shape["shape"], 0) * head
    weights = shape["step_weights"] - vocabulary
    attention = shape["layers"] * 2 * 2 * head * tokens * tokens / 2
    return count * (2 * weights * tokens + 2 * vocabulary + attention)


VOCABULARY = {"8b": 128256, "70b": 128256, "1b": 128256, "tiny": 512}
card, transfer, peers = figures("bench-card"), figures("two-processes"), figures("peers")
rows = []


def row(what, goal, reached, detail):
    rows.append((what, goal, reached, detail))


def add_model(step):
    shape, times = model(step)
    if "shape" not in shape:
        row(f"{step[6:].upper()} shape, bf16: load, prompt, tokens", "runs", "not measured", "")
        return
    name = shape["shape"].upper()
    row(f"{name} shape, bf16: load", "runs", "yes", f"{shape['load_ms'] / 1e3:.1f} s")
    for (kind, text), ms in times.items():
        count, tokens = [int(number) for number in re.split("[x@]", text)]
        if kind == "prompt":
            rate, best = prompt_flops(shape, count, tokens) / ms * 1e-9, card.get("cublas_square_bf16")
            row(f"{name}: prompt {tokens} × {count}", "≥ 70 % of cuBLAS", f"{rate / best:.1%}" if best else "?",
                f"{ms:.2f} ms, {rate:.1f} TFLOP/s of {best or 0:.1f}")
            continue
        data = 2 * shape["step_weights"] + count * tokens * shape["kv_token_bytes"]
        bound, best = data / ms * 1e-6, card.get("memory_read")
        goal = "≥ 85 % of the bandwidth" if count == 1 else "≥ 75 % of the bound"
        row(f"{name}: token step, batch {count}, context {tokens}", goal, f"{bound / best:.1%}" if best else "?",
            f"{ms:.3f} ms, {bound:.0f} GB/s of {best or 0:.0f}")


def main():
    print("# cleave on this device\n")
    if mode == "emulated":
        print("Emulated: the figures mean nothing.\n")
    for line in lines("bench-card")[1:2] + [line for line in lines("bench-8b") if line.startswith("device ")]:
        print(f"- {line}")
    print("".join(f"- {name} {value:g}\n" for name, value in card.items()))
    add_model("bench-8b")
    add_model("bench-70b")
    if "transfer_exposed_ms" in transfer:
        part = transfer["transfer_exposed_ms"] / transfer["transfer_prompt_ms"]
        row(f"KV transfer between two processes, {transfer['transfer_prompt_tokens']:.0f} tokens: exposed",
            "≤ 2 % of the prompt's time", f"{part:.2%}",
            f"{transfer['transfer_exposed_ms']:.3f} ms of {transfer['transfer_prompt_ms']:.2f} ms, "
            f"{transfer['transfer_bytes'] / 1e6:.0f} MB in {transfer['transfer_ms']:.2f} ms by {words('two-processes', 'transfer_path')}")
        if "ipc_layer_us" in peers:
            row("One layer's KV of 2048 tokens into another process's memory", "no bound", "",
                f"{peers['ipc_layer_bytes'] / 1e6:.1f} MB in 128 blocks in {peers['ipc_layer_us']:.0f} us; in one piece "
                f"{peers['ipc_bytes_per_s'] * 1e-9:.0f} GB/s")
    else:
        row("KV transfer between two processes: exposed", "≤ 2 % of the prompt's time", "not measured", "")
    print("| what | goal | reached | measured |\n|---|---|---|---|")
    for each in rows:
        print("| " + " | ".join(each) + " |")


main()
