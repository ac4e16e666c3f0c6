"""anthropic: messages, streams, tools, counting, stop sequences, errors."""

import anthropic

import common


def body(**fields):
    return {"model": common.MODEL, "max_tokens": 16, "extra_body": {"temperature": 0}, "system": "Be brief.",
            "messages": [{"role": "user", "content": "Say hello."}], **fields}


def messages(client):
    reply = client.messages.create(**body())
    assert reply.content[0].text and reply.stop_reason in ("end_turn", "max_tokens") and reply.usage.output_tokens > 0
    with client.messages.stream(**body()) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == reply.content[0].text == final.content[0].text and final.stop_reason == reply.stop_reason
    events = [event.type for event in client.messages.create(**body(), stream=True)]
    assert events[0] == "message_start" and events[-1] == "message_stop" and "content_block_delta" in events, events


def prefilled(client):
    reply = client.messages.create(**body(messages=[{"role": "user", "content": "Count."},
                                                    {"role": "assistant", "content": "One, two,"}]))
    assert reply.content


def stop_sequences(client):
    whole = client.messages.create(**body(max_tokens=30)).content[0].text
    stop = whole[len(whole) // 2:len(whole) // 2 + 3]
    reply = client.messages.create(**body(max_tokens=30, stop_sequences=[stop]))
    assert reply.stop_reason == "stop_sequence" and reply.stop_sequence == stop, reply


def tools(client):
    tool = {"name": "get_weather", "description": "The weather.", "input_schema": common.WEATHER["parameters"]}
    fields = body(tools=[tool], tool_choice={"type": "any"}, max_tokens=200)
    call = client.messages.create(**fields).content[-1]
    assert call.type == "tool_use"
    common.check_weather(call.input)
    with client.messages.stream(**fields) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use" and final.content[-1].input == call.input
    history = [*fields["messages"], {"role": "assistant", "content": [call.model_dump()]},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]}]
    assert client.messages.create(**body(messages=history, tools=[tool])).content


def counting(client):
    few = client.messages.count_tokens(model=common.MODEL, messages=[{"role": "user", "content": "a"}]).input_tokens
    more = client.messages.count_tokens(model=common.MODEL, messages=[{"role": "user", "content": "a b c d"}])
    assert 0 < few < more.input_tokens
    used = client.messages.create(**body(messages=[{"role": "user", "content": "a"}], system=anthropic.omit)).usage
    assert used.input_tokens + used.cache_read_input_tokens == few, (used, few)


def errors(client):
    common.expect(anthropic.NotFoundError, lambda: client.messages.create(**body(model="nope")))
    common.expect(anthropic.BadRequestError, lambda: client.messages.create(**body(
        messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x/"}}]}])))


def main():
    client = anthropic.Anthropic(base_url=common.URL, api_key="none", max_retries=0)
    common.run(anthropic.__version__, [messages, prefilled, stop_sequences, tools, counting, errors], client)


main()
