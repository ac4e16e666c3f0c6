"""Goal: the page of GET / works in a real browser, against a real cluster: a chat with its tokens' probabilities, and
the life of each request, also of one that loses its machine.

Method: a headless Chromium sends chats as a user does. Machines behind gates wait where the page's state is checked.
The text must be that of the API's own answer. The page may fetch nothing from elsewhere, and its console must stay
empty. Without Chromium the test is skipped."""
import json
import os
import signal
import sys

from browser import Browser, find_chromium
from cluster import Cluster, need_model, skip, wait_until

MESSAGE = "Write one sentence about the sea."
MARKUP = "<script>document.title = 'broken'</script><img src=x onerror=alert(1)>"
CONFIG = {"pools": {"prompt": 1, "token": 2}, "threads": 1, "kv": {"memory": "64MiB"},
          "transport": {"silence_ms": 60000}}
KEYS = {"keys": [{"name": "user", "key": "sk-user-0123456789"},
                 {"name": "operator", "key": "sk-operator-0123456789", "admin": True}]}
TEXT = "document.querySelector('.assistant:last-child .body').textContent"
STATE = "at('state').textContent"


def fill(page, field, value):
    page.run(f"at('{field}').value = {json.dumps(value)}; at('{field}').dispatchEvent(new Event('change'))")


def send(page, text):
    page.run("at('text').focus()")
    page.call("Input.insertText", text=text)
    page.press("Enter", text="\r")


def wait_state(page, words):
    page.wait(f"{STATE}.startsWith({json.dumps(words)})", f"the state '{words}'")


def wait_end(page):
    page.wait("document.querySelector('.assistant:last-child .foot')", "the end of the answer")


def open_page(page, cluster):
    page.errors.clear()
    page.open(f"http://{cluster.host}:{cluster.port}/")


def check_probabilities(page, want):
    """The token under the mouse shows what the API says about it."""
    page.point("document.querySelectorAll('.t')[1]")
    page.wait("!at('tip').hidden", "the probabilities of a token")
    chosen = page.run("[...document.querySelectorAll('#tip .chosen td')].map(node => node.textContent)")
    assert float(chosen[-1]) == round(want[1]["logprob"], 2), (chosen, want[1])
    assert page.run("document.querySelectorAll('#tip tr').length") >= 5
    page.run("tip_hide(); document.querySelector('.assistant .body').focus()")
    page.press("ArrowRight")
    page.wait("!at('tip').hidden && document.querySelectorAll('.t.at').length === 1", "the keyboard on a token")
    page.run("at('shade').click()")
    page.wait("getComputedStyle(document.querySelectorAll('.t.has')[0]).backgroundColor !== 'rgba(0, 0, 0, 0)'",
              "the shades of tokens")


def check_chat(page, cluster):
    """One chat, of which every phase is seen; its token machine dies after the first tokens."""
    fill(page, "temperature", "0")
    fill(page, "max_tokens", "12")
    want = cluster.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": MESSAGE}], "temperature": 0, "max_tokens": 12, "logprobs": True})
    choice = want["choices"][0]
    assert want["usage"]["completion_tokens"] >= 4, want
    cluster.hold("prompt-0")
    send(page, MESSAGE)
    wait_state(page, "Prompt on prompt-0")
    cluster.hold("token-0")
    cluster.hold("token-1")
    cluster.release("prompt-0")
    wait_state(page, "Tokens from token-")
    lost = page.run(STATE).split()[-1]
    other = "token-1" if lost == "token-0" else "token-0"
    page.wait("document.querySelectorAll('#lane-kv .layer').length === 30", "the layers of KV")
    cluster.wait_held(lost)
    os.kill(cluster.children()[lost], signal.SIGKILL)
    cluster.release()
    wait_state(page, "Done")
    wait_end(page)
    events = page.run("at('events').innerText")
    for words in ("Goes to prompt-0", "A machine or a link was lost after 1 token.", f"to {other} for the tokens",
                  "KV of 30 layers is on", "First token"):
        assert words in events, (words, events)
    assert page.run(TEXT) == choice["message"]["content"], (page.run(TEXT), choice)
    figures = page.run("at('figures').innerText")
    assert f"Answer tokens\n{want['usage']['completion_tokens']}" in figures and "Tokens per second" in figures, figures
    assert page.run("document.querySelectorAll('#lane-wait .lost').length") == 1
    check_probabilities(page, choice["logprobs"]["content"])


def check_history(page, cluster):
    """The next message goes with the whole conversation; a new chat begins without it."""
    wait_until(lambda: cluster.request("GET", "/health")[0] == 200, "the cluster is ready", cluster=cluster)
    body = "JSON.stringify(history)"
    assert [each["role"] for each in json.loads(page.run(body))] == ["user", "assistant"]
    send(page, "And one about the sky.")
    page.wait("document.querySelectorAll('.foot').length === 2", "the second answer")
    assert [each["role"] for each in json.loads(page.run(body))] == ["user", "assistant"] * 2
    page.run("at('new').click()")
    assert page.run(body) == "[]" and page.run("document.querySelectorAll('.message').length") == 0


def check_stop(page, cluster):
    cluster.hold("token-0")
    cluster.hold("token-1")
    send(page, MESSAGE)
    wait_state(page, "Tokens from token-")
    page.run("at('stop').click()")
    wait_state(page, "Stopped")
    page.run("at('new').click()")
    send(page, MESSAGE)
    wait_state(page, "Tokens from token-")
    page.run("at('new').click()")  # While the answer is on its way.
    cluster.release()
    send(page, MESSAGE)
    wait_end(page)
    wait_state(page, "Done")
    assert page.run("[history.length, document.querySelectorAll('.message').length]") == [2, 2]
    page.run("at('new').click()")


def check_markup(page):
    """An answer that is HTML is shown as text."""
    title = page.run("document.title")
    fill(page, "schema", json.dumps({"const": MARKUP}))
    fill(page, "max_tokens", "200")
    send(page, "Go.")
    wait_end(page)
    assert json.loads(page.run(TEXT)) == MARKUP, page.run(TEXT)
    assert page.run("document.querySelectorAll('#messages script, #messages img').length") == 0
    assert page.run("document.title") == title
    fill(page, "schema", "")


def check_calls(page):
    """An answer that calls a tool, as the API streams it: the next message is the tool's result."""
    part = {"index": 0, "id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"city":'}}
    chunks = [{"delta": {"tool_calls": [part]}},
              {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ' "Oslo"}'}}]}},
              {"delta": {}, "finish_reason": "tool_calls"}]
    page.run(f"""{{
      const answer = answer_open();
      for (const choice of {json.dumps(chunks)}) chunk_take(answer, {{choices: [choice]}});
      answer.status = 'done';
      answer_close(answer);
    }}""")
    assert page.run("document.querySelector('.call').textContent") == 'weather({"city": "Oslo"})'
    assert page.run("at('text-label').textContent") == "Result of weather"
    send(page, "Rain.")
    page.wait("document.querySelectorAll('.foot').length === 2", "the answer after the tool's result")
    told = json.loads(page.run("JSON.stringify(history)"))
    call = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    assert told[0] == {"role": "assistant", "content": None, "tool_calls": [call]}, told
    # The API of this version may refuse tool calls: the result is then kept, to be sent again.
    if len(told) > 1:
        assert told[1] == {"role": "tool", "tool_call_id": "call-1", "content": "Rain."}, told
    else:
        assert page.run("at('text').value") == "Rain."
    page.run("at('text').value = ''; at('new').click()")


def contrast(page, front, back):
    """The contrast of two colours of the page, as WCAG defines it."""
    return page.run(f"""(() => {{
        const light = name => {{
          const probe = make('i');
          probe.style.color = `var(${{name}})`;
          document.body.append(probe);
          const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(value => value / 255)
            .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
          probe.remove();
          return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05;
        }};
        const [a, b] = [light('{front}'), light('{back}')];
        return a > b ? a / b : b / a;
      }})()""")


def check_looks(page):
    backs = set()
    for theme in ("light", "dark"):
        page.theme(theme)
        backs.add(page.run("getComputedStyle(document.body).backgroundColor"))
        for front in ("--text", "--dim", "--accent", "--bad"):
            for back in ("--back", "--panel"):
                assert contrast(page, front, back) >= 4.5, (theme, front, back, contrast(page, front, back))
        assert contrast(page, "--on-accent", "--accent") >= 4.5 and contrast(page, "--edge", "--back") >= 3, theme
        for width in (360, 900, 1440):
            page.size(width, 800)
            assert page.run("document.documentElement.scrollWidth") <= width, (theme, width)
    assert len(backs) == 2, backs
    unnamed = page.run("[...document.querySelectorAll('input, select, textarea')]"
                       ".filter(node => !node.labels.length).map(node => node.id)")
    assert unnamed == [], unnamed


def check_mistakes(page):
    """What is wrong with a setting is shown at its place."""
    fill(page, "schema", '{"type": ')
    fill(page, "top_p", "3")
    send(page, MESSAGE)
    assert "Not JSON" in page.run("at('schema-problem').textContent")
    assert "Want a number from 0.01 to 1" in page.run("at('top_p-problem').textContent")
    assert page.run("at('top_p').getAttribute('aria-invalid')") == "true"
    assert page.run("document.querySelectorAll('.message').length") == 0
    fill(page, "top_p", "")
    fill(page, "schema", '{"type": "no such type"}')
    page.run("at('send').click()")
    wait_state(page, "Failed")
    page.wait("at('schema-problem').textContent.includes('#/type')", "the API's error at its place")
    fill(page, "schema", "")


def check_open(page):
    with Cluster(CONFIG, gates=True) as cluster:
        page.size(1440, 900)
        open_page(page, cluster)
        page.wait("at('model').value", "the model's name")
        check_chat(page, cluster)
        check_history(page, cluster)
        check_stop(page, cluster)
        check_markup(page)
        check_looks(page)
        assert page.errors == [], page.errors
        page.run("at('new').click()")
        check_mistakes(page)
        page.run("at('text').value = ''; at('new').click()")
        check_calls(page)
        site = f"http://{cluster.host}:{cluster.port}/"
        assert all(url.startswith(site) for url in page.requests), page.requests
        assert all("status of 400" in text for text in page.errors), page.errors


def check_keys(page):
    with Cluster({"server": {"api_keys_file": "keys.json"}, "threads": 1}, files={"keys.json": KEYS}) as cluster:
        open_page(page, cluster)
        page.wait("at('key-problem').textContent.includes('an API key is wanted')", "the wish for a key")
        fill(page, "key", "wrong")
        page.wait("at('key-problem').textContent.includes('not known here')", "the refusal of a key")
        fill(page, "key", KEYS["keys"][0]["key"])
        page.wait("at('model').value && !at('key-problem').textContent", "the model's name")
        fill(page, "max_tokens", "4")
        send(page, MESSAGE)
        wait_state(page, "Done")
        events = page.run("at('events').innerText")
        # This key may not read /metrics, so it learns no names of machines.
        assert "Goes to machine 1 for the prompt and to machine 2 for the tokens" in events, events
        assert "prompt-0" not in page.run("document.body.innerText")
        assert page.run("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
        # The page also asks for the problems once, which needs an administrator's key.
        assert all("status of 401" in text or "status of 403" in text for text in page.errors), page.errors


def check_headroom(page):
    """An administrator sees the head-room when there is some traffic."""
    with Cluster({"server": {"api_keys_file": "keys.json"}, "threads": 1}, files={"keys.json": KEYS}) as cluster:
        cluster.headers["Authorization"] = f"Bearer {KEYS['keys'][1]['key']}"
        for _ in range(25):
            cluster.post("/v1/completions", {"prompt": "A sea", "max_tokens": 3, "ignore_eos": True})
        wait_until(lambda: json.loads(cluster.request("GET", "/admin/state")[2])["headroom"], "the head-room", cluster=cluster)
        open_page(page, cluster)
        fill(page, "key", KEYS["keys"][1]["key"])
        page.wait("/^head-room (at least )?[0-9.]+ ×$/.test(at('headroom').textContent)", "the head-room on the page")


def check_gone(page):
    """An answer that fails because the gateway has died also corrects the state of the server, without its timer."""
    with Cluster({"threads": 1}) as cluster:
        open_page(page, cluster)
        page.wait("at('health').textContent.startsWith('ready')", "the state of the server")
        page.run("for (let timer = 1; timer < 1000; timer++) clearInterval(timer)")
        cluster.process.kill()
        cluster.process.wait()
        send(page, MESSAGE)
        wait_state(page, "Failed")
        page.wait("at('health').textContent === 'The server does not answer.'", "the new state")


def main():
    need_model()
    path = find_chromium()
    if path is None:
        skip("there is no chromium (on Debian: apt-get install chromium-headless-shell)")
    with Browser(path) as page:
        check_open(page)
        check_keys(page)
        check_headroom(page)
        check_gone(page)
    print("the page works")


sys.exit(main())
