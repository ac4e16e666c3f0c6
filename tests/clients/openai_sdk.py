"""openai: completions, chats, streams, tools, `parse` with pydantic, responses and their events, embeddings, models."""

import json

import openai
import pydantic

import common


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    people: int = pydantic.Field(ge=0, le=99999999)


def completions(client):
    reply = client.completions.create(model=common.MODEL, prompt="The capital of France is", max_tokens=8, logprobs=2)
    assert reply.choices[0].text and len(reply.choices[0].logprobs.tokens) == reply.usage.completion_tokens
    pieces = [event.choices[0].text for event in client.completions.create(
        model=common.MODEL, prompt="The capital of France is", max_tokens=8, stream=True)]
    assert "".join(pieces)


def chats(client):
    messages = [{"role": "user", "content": "Say hello."}]
    body = {"model": common.MODEL, "messages": messages, "max_tokens": 200, "temperature": 0, "seed": 1}
    whole = client.chat.completions.create(**body).choices[0]
    stream = client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True})
    events = list(stream)
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert text == whole.message.content and whole.finish_reason in ("stop", "length")
    assert events[-1].usage.completion_tokens > 0
    with client.chat.completions.stream(**body) as manager:
        assert manager.get_final_completion().choices[0].message.content == text


def parsed(client):
    body = {"model": common.MODEL, "max_tokens": 200, "temperature": 0,
            "messages": [{"role": "user", "content": "Name a city and how many people live there."}]}
    found = client.chat.completions.parse(**body, response_format=City).choices[0].message.parsed
    assert isinstance(found, City), found


def tools(client):
    body = {"model": common.MODEL, "messages": [{"role": "user", "content": "Weather in Paris?"}], "max_tokens": 200,
            "tools": [{"type": "function", "function": common.WEATHER}], "tool_choice": "required", "temperature": 0}
    call = client.chat.completions.create(**body).choices[0].message.tool_calls[0]
    common.check_weather(json.loads(call.function.arguments))
    with client.chat.completions.stream(**body) as manager:
        message = manager.get_final_completion().choices[0].message
    assert message.tool_calls[0].function.arguments == call.function.arguments
    history = [*body["messages"], {"role": "assistant", "tool_calls": [call.model_dump()]},
               {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    reply = client.chat.completions.create(model=common.MODEL, messages=history, max_tokens=16)
    assert reply.choices[0].message.role == "assistant"


def responses(client):
    body = {"model": common.MODEL, "input": "Say hello.", "instructions": "Be brief.", "max_output_tokens": 200,
            "temperature": 0}
    whole = client.responses.create(**body)
    assert whole.output_text and whole.usage.output_tokens > 0 and whole.instructions == "Be brief."
    with client.responses.stream(**body) as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    assert types[:2] == ["response.created", "response.in_progress"] and "response.output_text.delta" in types, types
    assert final.output_text == whole.output_text and types[-1] in ("response.completed", "response.incomplete")
    raw = [event.type for event in client.responses.create(**body, stream=True)]
    assert raw[0] == "response.created" and raw[-1] == types[-1]


def response_formats(client):
    body = {"model": common.MODEL, "input": "Name a city.", "max_output_tokens": 200, "temperature": 0}
    assert isinstance(client.responses.parse(**body, text_format=City).output_parsed, City)
    tool = {"type": "function", **common.WEATHER, "strict": True}
    with client.responses.stream(**body, tools=[tool], tool_choice="required") as stream:
        types = [event.type for event in stream]
        call = stream.get_final_response().output[0]
    assert "response.function_call_arguments.done" in types and call.type == "function_call"
    common.check_weather(json.loads(call.arguments))
    items = [{"role": "user", "content": "Weather?"}, call.model_dump(),
             {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    assert client.responses.create(model=common.MODEL, input=items, max_output_tokens=16).output


def embeddings(client):
    found = client.embeddings.create(model=common.MODEL, input=["The cat sat.", "Stocks fell."])
    assert len(found.data) == 2 and abs(sum(x * x for x in found.data[0].embedding) - 1) < 1e-4
    plain = client.embeddings.create(model=common.MODEL, input="The cat sat.", encoding_format="float")
    assert max(abs(a - b) for a, b in zip(plain.data[0].embedding, found.data[0].embedding)) < 1e-6


def errors(client):
    common.expect(openai.NotFoundError, lambda: client.completions.create(model="nope", prompt="a"))
    common.expect(openai.BadRequestError, lambda: client.chat.completions.create(
        model=common.MODEL, messages=[{"role": "user", "content": "a " * 20000}]))
    common.expect(openai.BadRequestError, lambda: client.responses.create(
        model=common.MODEL, input="a", previous_response_id="resp_1"))


def main():
    client = openai.OpenAI(base_url=common.URL + "/v1", api_key="none", max_retries=0)
    assert common.MODEL in [model.id for model in client.models.list()]
    common.run(openai.__version__, [completions, chats, parsed, tools, responses, response_formats, embeddings, errors], client)


main()
