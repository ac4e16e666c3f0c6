"""pydantic-ai: agents with text, structured output and tools; chats, responses and Anthropic's messages."""

import pydantic
from pydantic_ai import Agent, ModelSettings, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

import common

SETTINGS = ModelSettings(max_tokens=200, temperature=0)
PROVIDER = OpenAIProvider(base_url=common.URL + "/v1", api_key="none")


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    people: int = pydantic.Field(ge=0, le=99999999)


def models():
    yield OpenAIChatModel(common.MODEL, provider=PROVIDER)
    yield OpenAIResponsesModel(common.MODEL, provider=PROVIDER)
    yield AnthropicModel(common.MODEL, provider=AnthropicProvider(base_url=common.URL, api_key="none"))


def text():
    for model in models():
        assert Agent(model, model_settings=SETTINGS).run_sync("Say hello.").output


def structured():
    for model in models():
        assert isinstance(Agent(model, output_type=City, model_settings=SETTINGS).run_sync("Name a city.").output, City)
    native = Agent(next(models()), output_type=NativeOutput(City), model_settings=SETTINGS)
    assert isinstance(native.run_sync("Name a city.").output, City)


def streams():
    for model in models():
        result = Agent(model, model_settings=SETTINGS).run_stream_sync("Say hello.")
        assert "".join(result.stream_text(delta=True))


def main():
    common.run(common.version_of("pydantic-ai-slim"), [text, structured, streams])


main()
