"""aiperf: a profile of eight streamed chats."""

import glob
import json
import os
import subprocess
import sys
import tempfile

import common
import hf_tokenizer


def profile(folder):
    tokenizer, artifacts = os.path.join(folder, "tokenizer"), os.path.join(folder, "artifacts")
    os.mkdir(tokenizer)
    hf_tokenizer.write(common.MODEL_FILE, tokenizer)
    program = os.path.join(os.path.dirname(sys.executable), "aiperf")
    subprocess.run([program, "profile", "--model", common.MODEL, "--url", common.URL, "--endpoint-type", "chat", "--streaming", "--tokenizer", tokenizer, "--request-count", "8",
                    "--concurrency", "2", "--prompt-input-tokens-mean", "60", "--output-tokens-mean", "8",
                    "--artifact-dir", artifacts, "--ui", "none"], check=True, timeout=300)
    [path] = glob.glob(artifacts + "/**/profile_export_aiperf.json", recursive=True)
    with open(path) as file:
        found = json.load(file)
    assert found["request_count"]["avg"] == 8 and found["time_to_first_token"]["avg"] > 0, found


def main():
    with tempfile.TemporaryDirectory() as folder:
        common.run(common.version_of("aiperf"), [profile], folder)


main()
