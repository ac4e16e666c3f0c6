"""Goal: a chat is rendered by the template that the operator chose, with the request's variables, and by the request's
own template only where the operator allows it.

Method: a template that shows its variables, in a file beside the config; /tokenize returns the prompt's tokens, whose
texts are the prompt. The model's own template must give the known prompt. A file that does not compile ends the start
with an error."""
import json
import signal

from cluster import Cluster, Failure, need_model, wait_until

SHOWN = """{%- for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}
{%- if add_generation_prompt %}<answer>{% endif %}{{ mode }}{% for d in documents or [] %}({{ d.text }}){% endfor %}"""
MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
OWN = {"messages": MESSAGES, "chat_template": "{{ messages | length }} messages"}


def prompt(cluster, **fields):
    answer = cluster.post("/tokenize", {"messages": MESSAGES, "return_token_strs": True, **fields})
    return "".join(answer["token_strs"])


def refused(cluster, fields, words, param="messages"):
    try:
        cluster.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1, **fields})
    except Failure as failure:
        error = json.loads(failure.body)["error"]
        assert failure.status == 400 and words in error["message"] and error["param"] == param, failure.body
        return
    raise AssertionError(f"{fields} is accepted")


def check_file():
    with Cluster({"chat_template_file": "shown.jinja"}, files={"shown.jinja": SHOWN}) as cluster:
        assert prompt(cluster) == "<user>Hi<assistant>Ho<answer>"
        assert prompt(cluster, add_generation_prompt=False, chat_template_kwargs={"mode": "M"},
                      documents=[{"text": "D"}]) == "<user>Hi<assistant>HoM(D)"
        assert prompt(cluster, continue_final_message=True) == "<user>Hi<assistant>Ho"
        parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
        assert prompt(cluster, messages=parts) == "<user>ab<answer>"
        answer = cluster.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 3, "ignore_eos": True})
        assert answer["usage"]["completion_tokens"] == 3, answer
        refused(cluster, OWN, "chat_template is not allowed", "chat_template")
        refused(cluster, {"continue_final_message": True, "add_generation_prompt": True}, "both true",
                "continue_final_message")
        cluster.write("config.json", {**cluster.config, "server": {"chat_template_in_requests": True}})
        cluster.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: server/chat_template_in_requests" in cluster.logged(), "the reload", cluster=cluster)
        assert prompt(cluster, **OWN) == "2 messages"
        refused(cluster, {**OWN, "chat_template": "a\n{{ 1 +"}, "chat template, line 2: want ",
                "chat_template")
        refused(cluster, {**OWN, "chat_template": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
                                                  "{% endfor %}"}, "chat template, line 1: ", "chat_template")
        assert prompt(cluster) == "<user>Hi<assistant>Ho<answer>"


def check_model():
    with Cluster() as cluster:
        assert prompt(cluster, messages=MESSAGES[:1]) == (
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def check_wrong_file():
    for content, words in (("{% if %}", "chat template, line 1"), (None, "No such file")):
        cluster = Cluster({"chat_template_file": "wrong.jinja"}, ready=False,
                          files={} if content is None else {"wrong.jinja": content})
        with cluster:
            assert cluster.process.wait(60) != 0
            assert "chat_template_file: " in cluster.logged() and words in cluster.logged(), cluster.logged()


def main():
    need_model()
    check_file()
    check_model()
    check_wrong_file()


if __name__ == "__main__":
    main()
