"""langchain-openai: invoke, stream, tools, structured output, the responses API."""

import pydantic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI

import common


class City(pydantic.BaseModel):
    """A city."""
    name: str = pydantic.Field(max_length=20)
    people: int = pydantic.Field(ge=0, le=99999999)


@tool
def get_weather(city: str) -> str:
    """Returns the weather of a city."""
    return f"sunny in {city}"


def model(**fields):
    return ChatOpenAI(model=common.MODEL, base_url=common.URL + "/v1", api_key="none", max_tokens=200, temperature=0,
                      max_retries=0, **fields)


def chats():
    assert model().invoke("Say hello.").content
    assert "".join(piece.content for piece in model().stream("Say hello."))


def completions():
    text = OpenAI(model=common.MODEL, base_url=common.URL + "/v1", api_key="none", max_tokens=8).invoke("Hello")
    assert text


def tools():
    call = model().bind_tools([get_weather], tool_choice="get_weather").invoke("Weather in Paris?").tool_calls[0]
    assert call["name"] == "get_weather" and isinstance(call["args"]["city"], str), call


def structured():
    for method in ("json_schema", "function_calling"):
        found = model().with_structured_output(City, method=method).invoke("Name a city.")
        assert isinstance(found, City), (method, found)


def responses():
    reply = model(use_responses_api=True).invoke("Say hello.")
    assert reply.text
    assert "".join(piece.text for piece in model(use_responses_api=True).stream("Say hello."))


def main():
    common.run(common.version_of("langchain-openai"), [chats, completions, tools, structured, responses])


main()
