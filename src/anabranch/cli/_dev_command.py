"""``anabranch dev``: the tools of some targets in the page of the chat, loaded again when they change.

The user answers the questions of the tools, a model their samples.
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated

from cyclopts import Parameter

from anabranch._terminal import UsageError
from anabranch.cli._options import STORE, Model
from anabranch.cli._target_options import SourceTarget


def dev_command(
    *targets: SourceTarget,
    port: Annotated[int, Parameter(help="Port of the page; 0 for any free port.")] = 8080,
    open_page: Annotated[
        bool, Parameter(name="--open", help="Open the page in the browser.")
    ] = True,
    model: Model = None,
    store: Annotated[
        str | None,
        Parameter(
            env_var=STORE,
            help="Store of conversations and calls: sqlite:///FILE or postgresql://…. Default: memory,"
            " until the command ends.",
        ),
    ] = None,
) -> None:
    """Run the command."""
    import webbrowser

    from anabranch._terminal import Console, log_to_stderr
    from anabranch.agents import BranchSelf
    from anabranch.chat import make_chat_app
    from anabranch.cli._endpoint import Endpoint
    from anabranch.cli._http_server import Bounds, serve_app
    from anabranch.cli._reloading import ReloadedTools
    from anabranch.cli._web_models import WithoutModel
    from anabranch.errors import StoreError
    from anabranch.models import ModelError, open_model
    from anabranch.stores import open_stores

    log_to_stderr(logging.WARNING)
    sys.dont_write_bytecode = True  # it would hide a second change within the same second
    console, endpoint = Console(), Endpoint("http", port=port)
    endpoint.check()
    _check(targets)
    tools = ReloadedTools(targets, console)
    try:
        leads = WithoutModel() if model is None else open_model(model, cache=True)
        calls, tree = open_stores(store or "memory:")
    except (ModelError, StoreError) as error:
        raise UsageError(str(error)) from error
    app = make_chat_app(
        tree,
        leads,
        [BranchSelf(), tools],
        calls=calls,
        recorded_calls="values",
        closes_store=True,
    )
    app.router.routes.insert(0, tools.route())
    app.state.rooms.append("dev")
    with endpoint.listen() as listener:
        address = f"http://{endpoint.host}:{listener.getsockname()[1]}/"

        def on_started() -> None:
            console.say(f"The tools are at {address} and are loaded again when a file changes.")
            if open_page:
                webbrowser.open(address)

        bounds = Bounds(endpoint.concurrency)
        serve_app(app, listener, bounds, on_started=on_started, around=tools.running())


def _check(targets: tuple[str, ...]) -> None:
    from anabranch.cli._targets import is_server

    if not targets:
        raise UsageError("dev needs a TARGET: a Python file, a module, or module:attribute.")
    for target in targets:
        if is_server(target):
            raise UsageError(
                f"{target} has no source here that could be loaded again: anabranch web calls its"
                " tools."
            )
