"""A server for the protocol's own conformance suite, ``@modelcontextprotocol/conformance``.

The suite plays a client and calls fixtures whose names and replies it prescribes. Most fixtures
are tools of this library. For roots, prompts and resources, which this library leaves to the SDK,
the same server has plain SDK functions. Every fixture works in both eras.

``anabranch serve conformance.py --transport http`` serves it; then
``conformance server --url http://127.0.0.1:8000/mcp --requirements 2026-07-28`` tests it.
"""

import base64
import json
from typing import Annotated, Any, Literal

import mcp_types as types
from mcp.server.mcpserver import Context, Elicit, ListRoots, Resolve, Sample, UserMessage
from pydantic import BaseModel, Field, WithJsonSchema

from anabranch import Accepted, BranchContext, CapabilityError, ElicitResult, ToolError, tool
from anabranch.mcp import create_server

# -- the questions to the user -----------------------------------------------------------------


class Name(BaseModel):
    """A name."""

    name: str


class Color(BaseModel):
    """A colour."""

    color: str


class Consent(BaseModel):
    """Yes or no."""

    ok: bool


class Setting(BaseModel):
    """The context of a prompt."""

    context: str


class Contact(BaseModel):
    """The recipient of a message."""

    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Profile(BaseModel):
    """A form with defaults: one field of each kind."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


Plain = Literal["option1", "option2", "option3"]
Titled = Literal["value1", "value2", "value3"]
TITLES = [
    {"const": "value1", "title": "First Option"},
    {"const": "value2", "title": "Second Option"},
    {"const": "value3", "title": "Third Option"},
]


class Choices(BaseModel):
    """Every kind of choice in a form. Titles need a hand-written JSON Schema."""

    untitled_single: Plain = Field(alias="untitledSingle")
    titled_single: Annotated[Titled, WithJsonSchema({"type": "string", "oneOf": TITLES})] = Field(
        alias="titledSingle"
    )
    legacy_enum: Annotated[
        Literal["opt1", "opt2", "opt3"],
        WithJsonSchema(
            {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            }
        ),
    ] = Field(alias="legacyEnum")
    untitled_multi: list[Plain] = Field(alias="untitledMulti")
    titled_multi: Annotated[
        list[Titled], WithJsonSchema({"type": "array", "items": {"anyOf": TITLES}})
    ] = Field(alias="titledMulti")


# -- tools of this library, one for each feature of a tool -------------------------------------


def summary(answer: ElicitResult[Any]) -> str:
    """Describe the answer of the user."""
    content = answer.content.model_dump_json(by_alias=True) if answer.action == "accept" else "{}"
    return f"action={answer.action}, content={content}"


@tool
async def test_input_required_result_elicitation(ctx: BranchContext) -> str:
    """Ask the user for a name."""
    answer = await ctx.elicit(Name, "What is your name?", key="user_name")
    return f"Hello, {answer.content.name}!" if isinstance(answer, Accepted) else "Hello!"


@tool
async def test_input_required_result_sampling(ctx: BranchContext) -> str:
    """Ask the model a question."""
    question = "What is the capital of France?"
    return (await ctx.sample(question, max_tokens=100, key="capital_question")).text


@tool
async def test_input_required_result_request_state(ctx: BranchContext) -> str:
    """Ask once; the server checks the returned state before this function runs."""
    await ctx.elicit(Consent, "Please confirm", key="confirm")
    return "state-ok"


@tool
async def test_input_required_result_tampered_state(ctx: BranchContext) -> str:
    """Ask once; the server refuses a changed state before this function runs."""
    return (await ctx.elicit(Consent, "Please confirm", key="confirm")).action


@tool
async def test_input_required_result_multi_round(ctx: BranchContext) -> str:
    """Ask one thing after the other."""
    name = await ctx.elicit(Name, "Step 1: What is your name?", key="step1")
    color = await ctx.elicit(Color, "Step 2: What is your favorite color?", key="step2")
    return f"{summary(name)}; {summary(color)}"


@tool
async def test_input_required_result_capabilities(ctx: BranchContext) -> str:
    """Ask the user; ask the model if the client shows no questions."""
    try:
        return summary(await ctx.elicit(Name, "What is your name?"))
    except CapabilityError:
        return (await ctx.sample("Invent a name.")).text


@tool(requires={"sampling"})
async def test_missing_capability(ctx: BranchContext) -> str:
    """Declare that the tool needs a model."""
    return (await ctx.sample("Are you there?")).text


@tool
async def test_elicitation(ctx: BranchContext, message: str) -> str:
    """Ask the user for an address."""
    return f"User response: {summary(await ctx.elicit(Contact, message))}"


@tool
async def test_elicitation_sep1034_defaults(ctx: BranchContext) -> str:
    """Show a form with defaults."""
    return f"Elicitation completed: {summary(await ctx.elicit(Profile, 'Is that right?'))}"


@tool
async def test_elicitation_sep1330_enums(ctx: BranchContext) -> str:
    """Show a form with choices of every kind."""
    return f"Elicitation completed: {summary(await ctx.elicit(Choices, 'Choose.'))}"


@tool
async def test_streaming_elicitation(ctx: BranchContext) -> str:
    """Report the progress, and then ask."""
    await ctx.notify("about to ask")
    return summary(await ctx.elicit(Name, "What is your name?"))


@tool
async def test_sampling(ctx: BranchContext, prompt: str) -> str:
    """Pass a prompt on to the model."""
    return f"LLM response: {(await ctx.sample(prompt, max_tokens=100)).text}"


@tool
async def test_tool_with_progress(ctx: BranchContext) -> str:
    """Report the progress three times."""
    for progress in (0, 50, 100):
        await ctx.notify(f"{progress} of 100", progress=progress, total=100)
    return "done"


@tool
async def test_tool_with_logging(ctx: BranchContext) -> str:
    """Write three lines into the client's log."""
    for line in ("started", "processing data", "completed"):
        await ctx.log("info", f"Tool execution {line}")
    return "done"


@tool
async def test_logging_tool(ctx: BranchContext) -> str:
    """Write one line; only a client that asked for the log receives it."""
    await ctx.log("info", "working")
    return "done"


@tool
async def test_error_handling(ctx: BranchContext) -> str:
    """Fail with a message for the caller."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool
async def test_simple_text(ctx: BranchContext) -> str:
    """Return a text."""
    return "This is a simple text response for testing."


PICTURE = types.ImageContent(
    type="image",
    data="iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC",
    mime_type="image/png",
)
SOUND = types.AudioContent(
    type="audio",
    data="UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA==",
    mime_type="audio/wav",
)


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> types.EmbeddedResource:
    """Return a resource inside a result."""
    contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.EmbeddedResource(type="resource", resource=contents)


@tool
async def test_image_content(ctx: BranchContext) -> types.ImageContent:
    """Return a picture."""
    return PICTURE


@tool
async def test_audio_content(ctx: BranchContext) -> types.AudioContent:
    """Return a sound."""
    return SOUND


@tool
async def test_embedded_resource(ctx: BranchContext) -> types.EmbeddedResource:
    """Return a resource."""
    return embedded("test://embedded-resource", "This is an embedded resource content.")


@tool
async def test_multiple_content_types(ctx: BranchContext) -> list[types.ContentBlock]:
    """Return a text, a picture and a resource."""
    text = types.TextContent(type="text", text="Multiple content types test:")
    data = '{"test":"data","value":123}'
    return [text, PICTURE, embedded("test://mixed-content-resource", data, "application/json")]


server = create_server(
    "conformance",
    [
        test_input_required_result_elicitation,
        test_input_required_result_sampling,
        test_input_required_result_request_state,
        test_input_required_result_tampered_state,
        test_input_required_result_multi_round,
        test_input_required_result_capabilities,
        test_missing_capability,
        test_elicitation,
        test_elicitation_sep1034_defaults,
        test_elicitation_sep1330_enums,
        test_streaming_elicitation,
        test_sampling,
        test_tool_with_progress,
        test_tool_with_logging,
        test_logging_tool,
        test_error_handling,
        test_simple_text,
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
    ],
    version="1",
)


# -- the SDK's own part: roots -----------------------------------------------------------------


def ask_roots() -> ListRoots:
    """Ask the client for its roots."""
    return ListRoots()


def ask_name() -> Elicit[Name]:
    """Ask the user."""
    return Elicit("What is your name?", Name)


def ask_greeting() -> Sample:
    """Ask the model."""
    text = types.TextContent(type="text", text="Generate a greeting")
    return Sample([types.SamplingMessage(role="user", content=text)], max_tokens=50)


Roots = Annotated[types.ListRootsResult, Resolve(ask_roots)]


@server.tool()
def test_input_required_result_list_roots(roots: Roots) -> str:
    """Name the client's roots."""
    return ", ".join(str(root.uri) for root in roots.roots)


@server.tool()
def test_input_required_result_multiple_inputs(
    roots: Roots,
    name: Annotated[Name, Resolve(ask_name)],
    greeting: Annotated[types.CreateMessageResult, Resolve(ask_greeting)],
) -> str:
    """Ask three things in one round."""
    return f"{greeting.content}, {name.name}, at {len(roots.roots)} roots"


@server.tool()
async def test_trigger_tool_change(ctx: Context) -> str:
    """Say that the list of tools has changed."""
    await ctx.notify_tools_changed()
    return "told"


@server.tool()
async def test_trigger_prompt_change(ctx: Context) -> str:
    """Say that the list of prompts has changed."""
    await ctx.notify_prompts_changed()
    return "told"


# -- the SDK's own part: prompts ---------------------------------------------------------------


@server.prompt()
async def test_input_required_result_prompt(ctx: Context) -> types.InputRequiredResult | str:
    """Ask the user for a context."""
    answer = (ctx.input_responses or {}).get("user_context")
    if isinstance(answer, types.ElicitResult):
        return f"The context: {(answer.content or {}).get('context')}"
    question = types.ElicitRequestFormParams(
        message="What context should the prompt use?", requested_schema=Setting.model_json_schema()
    )
    return types.InputRequiredResult(
        input_requests={"user_context": types.ElicitRequest(params=question)}
    )


@server.prompt()
def test_simple_prompt() -> str:
    """Return one text."""
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Return a text with two arguments in it."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803 - prescribed
    """Return a resource and a text."""
    return [
        UserMessage(content=embedded(resourceUri, "Embedded resource content for testing.")),
        UserMessage(content="Please process the embedded resource above."),
    ]


@server.prompt()
def test_prompt_with_image() -> list[UserMessage]:
    """Return a picture and a text."""
    return [UserMessage(content=PICTURE), UserMessage(content="Please analyze the image above.")]


@server.completion()  # type: ignore[no-untyped-call, untyped-decorator]  # the SDK leaves it untyped
async def complete(
    ref: types.PromptReference | types.ResourceTemplateReference,
    argument: types.CompletionArgument,
    context: types.CompletionContext | None,
) -> types.Completion:
    """Complete an argument from a short list."""
    cities = ["paris", "park", "party"]
    return types.Completion(values=[city for city in cities if city.startswith(argument.value)])


# -- the SDK's own part: resources -------------------------------------------------------------


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """Return a text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """Return a picture."""
    return base64.b64decode(PICTURE.data)


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:  # noqa: A002 - prescribed
    """Return the requested resource."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
