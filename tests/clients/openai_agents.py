"""openai-agents: agents over the chat API and the responses API, with a tool that they must call."""

import asyncio

from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
                    set_tracing_disabled)
from openai import AsyncOpenAI

import common

CALLED = []


@function_tool
def get_weather(city: str) -> str:
    """Returns the weather of a city."""
    CALLED.append(city)
    return "sunny"


def models():
    client = AsyncOpenAI(base_url=common.URL + "/v1", api_key="none", max_retries=0)
    yield OpenAIChatCompletionsModel(common.MODEL, client)
    yield OpenAIResponsesModel(common.MODEL, client)


def settings(**fields):
    return ModelSettings(max_tokens=100, temperature=0, **fields)


def text():
    for model in models():
        agent = Agent("a", instructions="Be brief.", model=model, model_settings=settings())
        assert Runner.run_sync(agent, "Say hello.").final_output


def tools():
    for model in models():
        CALLED.clear()
        agent = Agent("a", model=model, tools=[get_weather], model_settings=settings(tool_choice="required"))
        assert Runner.run_sync(agent, "Weather in Paris?", max_turns=6).final_output is not None
        assert CALLED, model


def streams():
    async def one(model):
        result = Runner.run_streamed(Agent("a", model=model, model_settings=settings()), "Say hello.")
        return [event.type async for event in result.stream_events()], result.final_output
    for model in models():
        types, output = asyncio.run(one(model))
        assert "raw_response_event" in types and output, types


def main():
    set_tracing_disabled(True)
    common.run(common.version_of("openai-agents"), [text, tools, streams])


main()
