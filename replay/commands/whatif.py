"""`replay whatif`: what an agent's code would do next, had a rollout gone otherwise."""

from pathlib import Path

import typer
from rich.text import Text

from replay.apart import DEADLINE_S
from replay.changed import draw_changes
from replay.commands.common import (
    Config,
    Deadline,
    Files,
    Json,
    Namespace,
    Run,
    Url,
    console,
    resolved,
    run_async,
    use_own_components,
    where,
    write_json,
)
from replay.commands.forking import (
    Agent,
    Asks,
    At,
    Drop,
    Fields,
    Model,
    Rollout,
    Seed,
    SetReply,
    asks,
    planned,
)
from replay.findings import draw_departure
from replay.opening import Where
from replay.page import Page, counted, cut, number, safe
from replay.verify import Resolved
from replay.whatif import Next, Whatif, whatif

_CHANGES = 8
_LINES, _CHARACTERS = 12, 800
_COMPARED = {"same": "as recorded", "differs": "not as recorded", "new": "not recorded"}


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("whatif", no_args_is_help=True)(tell)


def tell(
    rollout: Rollout,
    *,
    at: At,
    set_reply: SetReply = None,
    edit: Fields = None,
    drop: Drop = False,
    agent: Agent = None,
    model: Model = None,
    seed: Seed = None,
    config: Config = None,
    deadline: Deadline = DEADLINE_S,
    run: Run = None,
    url: Url = None,
    namespace: Namespace = "jetgym",
    file: Files = None,
    json: Json = False,
) -> None:
    """Tells what the agent's code would ask next, if its history ended before N, or with an edited reply at N.

    The code that is here now is run again on the recorded replies before N.
    Nothing is called and nothing is written. The calls that it makes then are
    compared with the recorded ones, word by word. `fork` has the same options,
    and goes on from there.

    Ends with 0 if all is as recorded, 1 if not, 2 if it could not be run.

    \b
    replay whatif last --at turn:2
    replay whatif last --at turn:1 --edit text="I cannot do that."
    replay whatif last --at m_2 --edit output=47
    replay whatif last --at m_2 --drop
    replay whatif last --at 0 --edit responses_create_params.temperature=0
    """  # noqa: D301 - the help keeps these lines as they are
    place = where(run, url, namespace, file)
    asked = asks(rollout, at, set_reply=set_reply, fields=edit, drop=drop, agent=agent, models=model, seed=seed)
    override = resolved(config)
    found = run_async(_whatif(place, asked, override, deadline))
    if json:
        write_json(found)
    else:
        draw_whatif(found)
    raise typer.Exit(0 if found.verdict == "same" else 1)


async def _whatif(place: Where, asked: Asks, override: Resolved | None, deadline_s: float) -> Whatif:
    async with planned(place, asked, override, use_own_components(), deadline_s) as (plan, _, bulk):
        return await whatif(plan, bulk)


def draw_whatif(found: Whatif) -> None:
    """Writes what comes next."""
    page = Page(console)
    page.write(Text.assemble((found.rollout_id, "bold"), f", after {counted(found.shared, 'shared call')}"))
    if found.departure is not None:
        draw_departure(found.departure, page)
    elif found.error:
        how = "fails as recorded" if found.verdict == "same" else "fails"
        page.write(Text(f"the rollout {how}: {safe(found.error)}", style="red"), first="  ", rest="  ")
    elif not found.calls:
        page.write(Text(f"the rollout ends with reward {number(found.reward)}", style="green"), first="  ", rest="  ")
        draw_changes(found.changes, console, "    ", _CHANGES)
    for call in found.calls:
        _draw_call(call, page)


def _draw_call(call: Next, page: Page) -> None:
    style = "green" if call.compared == "same" else "yellow"
    how = f"instead of {call.instead_of}, which is recorded" if call.instead_of else _COMPARED[call.compared]
    told = Text.assemble((f"{call.what} {call.instance}", "bold"), "  ", (how, style))
    page.write(told, first="  ", rest="  ", right=Text(f"{call.key} at {Path(call.file).name}:{call.line}", "dim"))
    if call.compared == "new":
        text, left = cut(safe(bytes(call.request).decode(errors="replace")), lines=_LINES, characters=_CHARACTERS)
        page.write(Text(f"{text}…" if left else text, style="dim"), first="    ", rest="    ", wrap="anywhere")
    draw_changes(call.changes, console, "    ", _CHANGES)
