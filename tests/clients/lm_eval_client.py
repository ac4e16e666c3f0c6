"""lm-eval: `local-completions` with a multiple-choice task (log-probabilities of echoed prompts) and a generating one,
and `local-chat-completions`. The tasks are files of this script: no dataset is downloaded."""

import json
import os
import subprocess
import sys
import tempfile

import common
import hf_tokenizer

TASK = """task: %s
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
doc_to_text: "The capital of {{country}} is"
%s"""
TASKS = {
    "capitals": """output_type: multiple_choice
doc_to_choice: ["Paris", "Rome", "Berlin"]
doc_to_target: "{{answer}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
""",
    "generated": """output_type: generate_until
doc_to_target: "{{['Paris', 'Rome', 'Berlin'][answer]}}"
generation_kwargs: {until: ["."], max_gen_toks: 8}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
}
ROWS = [{"country": "France", "answer": 0}, {"country": "Italy", "answer": 1}, {"country": "Germany", "answer": 2}]


def evaluate(folder, kind, path, task):
    arguments = (f"model={common.MODEL},base_url={common.URL}{path},"
                 f"tokenizer_backend=huggingface,tokenizer={folder}/tokenizer,tokenized_requests=False,"
                 "num_concurrent=2,max_retries=1,max_length=2048")
    more = ["--apply_chat_template"] if kind == "local-chat-completions" else []
    subprocess.run([sys.executable, "-m", "lm_eval", "--model", kind, "--model_args", arguments, "--tasks", task,
                    "--include_path", folder, "--output_path", folder + "/out", *more], check=True, timeout=300,
                   env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": folder + "/hf"})
    newest = max((os.path.join(at, name) for at, _, names in os.walk(folder + "/out") for name in names
                  if name.startswith("results")), key=os.path.getmtime)
    with open(newest) as file:
        return json.load(file)["results"][task]


def log_probabilities(folder):
    found = evaluate(folder, "local-completions", "/v1/completions", "capitals")
    assert found["acc,none"] == 1, found


def generation(folder):
    found = evaluate(folder, "local-completions", "/v1/completions", "generated")
    assert "exact_match,none" in found, found


def chats(folder):
    assert "exact_match,none" in evaluate(folder, "local-chat-completions", "/v1/chat/completions", "generated")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(folder + "/tokenizer")
        hf_tokenizer.write(common.MODEL_FILE, folder + "/tokenizer")
        rows = os.path.join(folder, "rows.json")
        with open(rows, "w") as file:
            json.dump(ROWS, file)
        for name, rest in TASKS.items():
            with open(os.path.join(folder, name + ".yaml"), "w") as file:
                file.write(TASK % (name, rows, rest))
        common.run(common.version_of("lm_eval"), [log_probabilities, generation, chats], folder)


main()
