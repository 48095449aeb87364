"""Forged tokens, states and answers: the server accepts none, survives all, and gives no reason.

The test plays honest calls first. Then it makes every attack from their messages, and from states
that another tool, another server and another key have sealed.
"""

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from anabranch import BranchContext, tool
from anabranch.mcp import create_server
from anabranch.tool import Tool
from tests.mcp.harness import KEY, MODERN, Answers, connected
from tests.randomised import SEED, times
from tests.sagas.harness import REFUSED, Number, accepted, failed, raw, said

ATTACKS = times(5_000, gate=1_000)
CALL, SAGA, RESUME = "tools/call", "tools/callSaga", "tools/resumeSaga"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
ODD = "=.+/ \n\0é"
"""Letters that no sealed text has."""
STATE_REFUSED = types.ErrorData(
    code=-32602, message="Invalid or expired requestState", data={"reason": "invalid_request_state"}
)

pytestmark = pytest.mark.usefixtures("quiet")

Params = dict[str, Any]
Attack = tuple[str, Params, Any]
"""A method, its parameters, and what must come of it: an error, a field's name, or a reply."""


def target(effects: list[str], name: str = "pay") -> Tool[int]:
    @tool(name=name)
    async def body(ctx: BranchContext, amount: int) -> int:
        """Three turns with questions, four effects."""
        await ctx.step(effects.append, "one")
        await ctx.elicit(Number, f"{amount}?")
        await ctx.step(effects.append, "two")
        await ctx.gather(ctx.elicit(Number, "And?"), ctx.sample("Sure?"))
        await ctx.step(effects.append, "three")
        await ctx.elicit(Number, "Last?")
        await ctx.step(effects.append, "four")
        return amount

    return body


def turns(name: str) -> list[list[Params]]:
    """Return the honest answers, turn by turn."""
    return [
        [accepted(f"{name}/elicit.1", n=1)],
        [accepted(f"{name}/elicit.2", n=2), said(f"{name}/sample.1", "Yes.")],
        [accepted(f"{name}/elicit.3", n=3)],
    ]


@dataclass
class Sent:
    """The messages of honest clients and the server's replies: method, parameters, reply."""

    requests: list[tuple[str, Params, Params]] = field(
        default_factory=list[tuple[str, Params, Params]]
    )

    def of(self, method: str) -> list[tuple[Params, Params]]:
        """Return the messages that carry a token or a state."""
        sealed = {"sagaToken", "requestState"}
        return [(p, r) for m, p, r in self.requests if m == method and sealed & p.keys()]

    def sealed(self) -> list[str]:
        """Return all tokens and states."""
        return [
            text
            for _, _, reply in self.requests
            for name in ("sagaToken", "requestState")
            if (text := reply.get(name))
        ]


async def play(client: Client, name: str, amount: int, sent: Sent) -> None:
    """Call the tool honestly, as a saga and in rounds."""

    async def send(method: str, params: Params) -> Params:
        reply = await raw(client, method, params)
        sent.requests.append((method, params, reply))
        return reply

    call: Params = {"name": name, "arguments": {"amount": amount}}
    reply = await send(SAGA, call)
    completed: list[Params] = []
    for steps in turns(name):
        completed = [*completed, *steps]
        reply = await send(RESUME, {"sagaToken": reply["sagaToken"], "completedSteps": completed})
    reply = await send(CALL, call)
    for steps in turns(name):
        answers = {step["stepId"]: step["result"] for step in steps}
        again = {"requestState": reply["requestState"], "inputResponses": answers}
        reply = await send(CALL, {**call, **again})


class Attacker:
    """Makes attacks from messages to this server, and from states that others have sealed."""

    def __init__(self, chance: random.Random, here: Sent, elsewhere: Sent, *, keeps: bool) -> None:
        self.chance = chance
        self.resumes = here.of(RESUME)
        self.rounds = here.of(CALL)
        self.mine = here.sealed()
        self.known = {*self.mine, *elsewhere.sealed()}
        self.foreign = elsewhere.sealed()
        self.tokens = {params["sagaToken"] for params, _ in self.resumes}
        # A repeated turn does no harm where the server recognises the repetition.
        self.kinds: list[Callable[[], Attack]] = [self.forged] * 5 + [self.answered] * 4
        self.kinds += [self.misused] * 2 + ([self.replayed, self.otherwise] if keeps else [])

    def __call__(self) -> Attack:
        """Return one attack."""
        return self.chance.choice(self.kinds)()

    def forged(self) -> Attack:
        """Return a state that was not sealed, or that another key sealed."""
        return self._with(self._forgery())

    def misused(self) -> Attack:
        """Return a state sealed here for another use: a token as a state, or another tool's state."""
        if self.chance.random() < 0.4:
            states = [text for text in self.mine if text not in self.tokens]
            params, _ = self.chance.choice(self.resumes)
            if self.chance.random() < 0.5:
                return RESUME, {**params, "sagaToken": self.chance.choice(states)}, REFUSED
            params, _ = self.chance.choice(self.rounds)
            return CALL, {**params, "requestState": self._token()}, STATE_REFUSED
        params, _ = self.chance.choice(self.rounds)
        others = [p for p, _ in self.rounds if self._called(p) != self._called(params)]
        state = self.chance.choice(others)["requestState"]
        return CALL, {**params, "requestState": state}, STATE_REFUSED

    def answered(self) -> Attack:
        """Return a valid token with steps that no user has completed in this way."""
        params, _ = self.chance.choice(self.resumes)
        steps = [dict(step) for step in params["completedSteps"]]
        open_ids = {step["stepId"] for turn in turns(self._tool(steps)) for step in turn}
        later = sorted(open_ids - {step["stepId"] for step in steps}) or ["x"]
        index = self.chance.randrange(len(steps))
        wanted: Any = "completedSteps"
        match self.chance.randrange(7):
            case 0:
                steps.append(accepted(self.chance.choice([*later, "", "0", "../x"]), n=9))
            case 1:
                steps.insert(index, dict(self.chance.choice(steps)))
            case 2:
                del steps[index]
            case 3:
                steps[-1] = {"stepId": steps[-1]["stepId"], **self._garbage()}
            case 4:
                steps[index] = {**steps[index], "error": {"code": 1, "message": "both"}}
            case 5:
                steps[index]["stepId"] = self.chance.choice(later)
            case _:  # history: the steps of all turns but the last are final
                settled = self._settled(steps)
                if not settled:
                    return self.forged()
                index = self.chance.randrange(settled)
                steps[index] = self._rewritten(steps[index], steps)
                wanted = REFUSED
        return RESUME, {**params, "completedSteps": steps}, wanted

    def replayed(self) -> Attack:
        """Return an earlier message unchanged."""
        method = self.chance.choice([RESUME, CALL])
        params, reply = self.chance.choice(self.resumes if method == RESUME else self.rounds)
        return method, params, reply

    def otherwise(self) -> Attack:
        """Return an earlier turn with a different, valid answer."""
        params, _ = self.chance.choice(self.resumes)
        steps = list(params["completedSteps"])
        steps[-1] = failed(steps[-1]["stepId"], str(self.chance.random()))
        return RESUME, {**params, "completedSteps": steps}, REFUSED

    def _with(self, sealed: str) -> Attack:
        if self.chance.random() < 0.7:
            params, _ = self.chance.choice(self.resumes)
            return RESUME, {**params, "sagaToken": sealed}, REFUSED
        params, _ = self.chance.choice(self.rounds)
        return CALL, {**params, "requestState": sealed}, STATE_REFUSED

    def _forgery(self) -> str:
        one, two = self.chance.choice(self.mine), self.chance.choice([*self.mine, *self.foreign])
        place, other = self.chance.randrange(len(one)), self.chance.randrange(len(two))
        letter = self.chance.choice([*LETTERS, *ODD])
        match self.chance.randrange(10):
            case 0 | 1:
                made = one[:place] + letter + one[place + 1 :]
            case 2:
                made = one[:place]
            case 3:
                made = one[:place] + one[place + self.chance.randint(1, 9) :]
            case 4:
                made = one[:place] + letter + one[place:]
            case 5:
                made = one[:place] + two[other:]
            case 6:
                made = one[:place] + two[place:]
            case 7:
                made = "v1." + "".join(self.chance.choices(LETTERS, k=place))
            case 8:
                made = _flipped(one, self.chance)
            case _:
                return self.chance.choice(self.foreign)
        return made if made not in self.known else f"{made}{letter}"

    def _garbage(self) -> Params:
        return self.chance.choice(
            [
                {"result": {}},
                {"result": {"action": "perhaps"}},
                {"result": {"roots": []}},
                {"result": {"action": "accept", "content": {"n": {"n": 1}}}},
                {"result": None},
                {"result": "accept"},
                {"result": [1]},
                {"error": {"code": 1}},
                {"error": "no"},
                {},
            ]
        )

    def _rewritten(self, step: Params, steps: list[Params]) -> Params:
        forms = [
            accepted(step["stepId"], n=self.chance.randint(10, 99)),
            {"stepId": step["stepId"], "result": {"action": "decline"}},
            failed(step["stepId"]),
            {**steps[-1], "stepId": step["stepId"]},
        ]
        return self.chance.choice([form for form in forms if form != step])

    def _settled(self, steps: list[Params]) -> int:
        """Return how many of ``steps`` belong to turns before the last."""
        count = 0
        for turn in turns(self._tool(steps)):
            if count + len(turn) >= len(steps):
                break
            count += len(turn)
        return count

    def _token(self) -> str:
        params, _ = self.chance.choice(self.resumes)
        token: str = params["sagaToken"]
        return token

    @staticmethod
    def _tool(steps: list[Params]) -> str:
        return str(steps[0]["stepId"]).partition("/")[0]

    @staticmethod
    def _called(params: Params) -> tuple[str, str]:
        return params["name"], json.dumps(params["arguments"])


def _flipped(sealed: str, chance: random.Random) -> str:
    """Return the sealed text with one bit flipped."""
    body = sealed.removeprefix("v1.")
    inside = bytearray(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    inside[chance.randrange(len(inside))] ^= 1 << chance.randrange(8)
    return "v1." + base64.urlsafe_b64encode(bytes(inside)).decode().rstrip("=")


def fits(outcome: Any, wanted: Any) -> bool:
    """Return whether the reply to an attack is the expected refusal or result, and names no reason."""
    if isinstance(wanted, str):
        error = isinstance(outcome, types.ErrorData) and outcome.code == types.INVALID_PARAMS
        return error and outcome.message.startswith(wanted)
    if isinstance(wanted, dict):
        return _spelled(outcome) == _spelled(wanted)
    return bool(outcome == wanted)


def _spelled(reply: Any) -> str:
    """Return a reply without its state, which the SDK seals afresh each time."""
    if isinstance(reply, types.ErrorData):
        return str(reply)
    return json.dumps({**reply, "requestState": ""})


@pytest.mark.parametrize("store", [None, "memory:"])
async def test_every_attack_gets_the_expected_refusal(store: str | None) -> None:
    effects: list[str] = []
    here, elsewhere = Sent(), Sent()
    tools = [target(effects), target(effects, "other")]
    server = create_server("here", tools, keys=[KEY], store=store)
    strangers = [
        create_server("elsewhere", tools, keys=[KEY]),
        create_server("here", tools, keys=["another secret of thirty-two bytes"]),
    ]
    for stranger in strangers:
        async with connected(stranger, MODERN, Answers(_never, _never)) as client:
            await play(client, "pay", 5, elsewhere)
    async with connected(server, MODERN, Answers(_never, _never)) as client:
        for name, amount in (("pay", 5), ("pay", 6), ("other", 5)):
            effects.clear()
            await play(client, name, amount, here)
            assert effects == ["one", "two", "three", "four"] * 2
        effects.clear()
        chance = random.Random(f"{SEED}/{store}")
        attack = Attacker(chance, here, elsewhere, keeps=store is not None)
        for number in range(ATTACKS):
            method, params, wanted = attack()
            try:
                outcome: Any = await raw(client, method, params)
            except MCPError as error:
                outcome = error.error
            assert fits(outcome, wanted), f"attack {number}: {method} {params}: {outcome}"
    assert effects == []


def _never(params: object) -> object:
    raise AssertionError(f"a client that plays by hand was asked {params}")
