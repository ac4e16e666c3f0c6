"""guidellm: a benchmark of eight requests from a file of prompts, two at a time."""

import json
import os
import subprocess
import sys
import tempfile

import common
import hf_tokenizer


def benchmark(folder):
    prompts = os.path.join(folder, "prompts.jsonl")
    with open(prompts, "w") as file:
        for number in range(8):
            line = {"prompt": f"Tell me something about the number {number}.", "output_tokens_count": 8}
            print(json.dumps(line), file=file)
    report = os.path.join(folder, "report.json")
    program = os.path.join(os.path.dirname(sys.executable), "guidellm")
    subprocess.run([program, "run",
                    "--backend", f"kind=openai_http,target={common.URL},model={common.MODEL}",
                    "--tokenizer", f"kind=huggingface_auto,model={hf_tokenizer.write(common.MODEL_FILE, folder)}",
                    "--data", f"kind=json_file,path={prompts}", "--profile", "kind=concurrent,streams=2",
                    "--constraint", "kind=max_requests,count=8", "--output", f"kind=json,path={report}"], check=True,
                   timeout=300, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.DEVNULL)
    with open(report) as file:
        found = json.load(file)["benchmarks"]
    assert found and all(each["metrics"]["request_totals"]["successful"] == 8 and
                         each["metrics"]["request_totals"]["errored"] == 0 for each in found), found


def main():
    with tempfile.TemporaryDirectory() as folder:
        common.run(common.version_of("guidellm"), [benchmark], folder)


main()
