"""litellm: chats, streams, text completions, tools, a prompt that is too long, responses, Anthropic's form."""

import json

import litellm

import common

KEYS = {"api_base": common.URL + "/v1", "api_key": "none"}
CHAT = {"model": f"openai/{common.MODEL}", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16,
        **KEYS}


def chats():
    assert litellm.completion(**CHAT).choices[0].message.content
    text = "".join(event.choices[0].delta.content or "" for event in litellm.completion(**CHAT, stream=True))
    assert text


def text_completions():
    reply = litellm.text_completion(model=f"text-completion-openai/{common.MODEL}", prompt="Hello", max_tokens=8, **KEYS)
    assert reply.choices[0].text


def tools():
    reply = litellm.completion(**{**CHAT, "max_tokens": 200}, tool_choice="required",
                               tools=[{"type": "function", "function": common.WEATHER}])
    common.check_weather(json.loads(reply.choices[0].message.tool_calls[0].function.arguments))


def too_long():
    common.expect(litellm.ContextWindowExceededError, lambda: litellm.completion(
        **{**CHAT, "messages": [{"role": "user", "content": "a " * 20000}]}))


def responses():
    reply = litellm.responses(model=f"openai/{common.MODEL}", input="Say hello.", max_output_tokens=16, **KEYS)
    assert reply.output_text if hasattr(reply, "output_text") else reply.output


def messages():
    reply = litellm.completion(**{**CHAT, "model": f"anthropic/{common.MODEL}", "api_base": common.URL})
    assert reply.choices[0].message.content


def main():
    common.run(common.version_of("litellm"), [chats, text_completions, tools, too_long, responses, messages])


main()
