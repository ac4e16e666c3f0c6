"""instructor: objects of a pydantic model by tools and by JSON schemas."""

import instructor
import openai
import pydantic

import common


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    people: int = pydantic.Field(ge=0, le=99999999)


def objects(mode):
    client = instructor.from_openai(openai.OpenAI(base_url=common.URL + "/v1", api_key="none"), mode=mode)
    found = client.chat.completions.create(model=common.MODEL, response_model=City, max_tokens=200, temperature=0,
                                           max_retries=0, messages=[{"role": "user", "content": "Name a city."}])
    assert isinstance(found, City), found


def by_tools():
    objects(instructor.Mode.TOOLS)


def by_schema():
    objects(instructor.Mode.JSON_SCHEMA)


def main():
    common.run(common.version_of("instructor"), [by_tools, by_schema])


main()
