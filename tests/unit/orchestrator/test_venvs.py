"""How a component's venv is built: by the real uv, from a wheel that the test writes."""

import asyncio
import fcntl
import subprocess
import zipfile
from pathlib import Path

import pytest

from components.loading import INSTALLED
from orchestrator import venvs
from orchestrator.errors import VenvError
from orchestrator.venvs import Venvs, core_dependencies


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core's own dependencies would have to be downloaded."""
    monkeypatch.setattr(venvs, "core_dependencies", list)


def wheel(folder: Path, name: str, requires: str = "") -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", "ANSWER = 42\n")
        needs = f"Requires-Dist: {requires}\n" if requires else ""
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


def component(folder: Path, *requirements: str) -> Path:
    place = folder / "components" / "models" / "mine"
    place.mkdir(parents=True, exist_ok=True)
    (place / "requirements.txt").write_text("# what it needs\n" + "\n".join(requirements) + "\n")
    return place / "requirements.txt"


def run(python: str, code: str) -> str:
    return subprocess.run([python, "-P", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


async def test_a_venv_has_the_requirements_and_jetgym_and_nothing_else(tmp_path: Path) -> None:
    file = component(tmp_path, str(wheel(tmp_path, "needed")))
    python = await Venvs(tmp_path, lambda _: None).python(file)
    assert run(python.executable, "import needed; print(needed.ANSWER)") == "42"
    assert run(python.executable, "import contracts.ids as m; print(m.MAX_NAME)") == "64"
    found = run(python.executable, "import components, os; print(os.path.realpath(components.__file__))")
    assert found == str((INSTALLED / "components" / "__init__.py").resolve())
    assert run(python.executable, "from importlib.util import find_spec; print(find_spec('orchestrator'))") == "None"
    assert run(python.executable, "from importlib.metadata import version; print(version('jetgym'))")


async def test_a_venv_is_built_once_and_again_when_its_requirements_change(tmp_path: Path) -> None:
    told: list[str] = []
    file = component(tmp_path, str(wheel(tmp_path, "needed")))
    first = await Venvs(tmp_path, told.append).python(file)
    assert told == [
        "building the venv of models/mine (once; it downloads packages)",
        "building the venv of models/mine: downloading up to 1 package",
        "built the venv of models/mine",
    ]
    told.clear()
    assert await Venvs(tmp_path, told.append).python(file) == first
    assert told == []
    component(tmp_path, str(wheel(tmp_path, "other")))
    assert await Venvs(tmp_path, told.append).python(file) != first


async def test_the_order_and_the_comments_of_requirements_do_not_matter(tmp_path: Path) -> None:
    made = Venvs(tmp_path, lambda _: None)
    assert made.place(component(tmp_path, "b>=1", "a")) == made.place(
        component(tmp_path, "a", "", "# x", "b>=1  # why")
    )


async def test_overrides_beside_the_requirements_drop_what_a_package_asks_for(tmp_path: Path) -> None:
    file = component(tmp_path, str(wheel(tmp_path, "needed", requires="no-such-package-anywhere")))
    made = Venvs(tmp_path, lambda _: None)
    before = made.place(file)
    file.with_name("overrides.txt").write_text('no-such-package-anywhere; sys_platform == "never"\n')
    assert made.place(file) != before
    python = await made.python(file)
    assert run(python.executable, "import needed; print(needed.ANSWER)") == "42"


async def test_a_half_built_or_broken_venv_is_built_again(tmp_path: Path) -> None:
    file = component(tmp_path, str(wheel(tmp_path, "needed")))
    made = Venvs(tmp_path, lambda _: None)
    place = made.place(file)
    (place / "bin").mkdir(parents=True)
    (place.with_suffix(".building") / "bin").mkdir(parents=True)
    python = await made.python(file)
    assert run(python.executable, "import needed; print(needed.ANSWER)") == "42"
    (place / "bin" / "python").unlink()
    await made.python(file)
    assert run(python.executable, "import needed; print(needed.ANSWER)") == "42"


async def test_what_cannot_be_had_is_told_in_the_words_of_uv(tmp_path: Path) -> None:
    file = component(tmp_path, str(tmp_path / "absent-1.0-py3-none-any.whl"))
    told: list[str] = []
    made = Venvs(tmp_path, told.append)
    with pytest.raises(VenvError) as raised:
        await made.python(file)
    assert not any("absent" in line for line in told), "the error says it, once"
    assert str(raised.value).startswith("the venv of models/mine could not be built (uv pip ended with")
    assert "absent-1.0" in str(raised.value)
    assert not made.place(file).exists()


async def test_two_processes_do_not_build_the_same_venv_at_once(tmp_path: Path) -> None:
    file = component(tmp_path, str(wheel(tmp_path, "needed")))
    told: list[str] = []
    made = Venvs(tmp_path, told.append)
    lock = made.place(file).with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    waits = asyncio.Event()
    made = Venvs(tmp_path, lambda step: waits.set() if "waiting for it" in step else None)
    with lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        building = asyncio.create_task(made.python(file))
        async with asyncio.timeout(20):
            await waits.wait()
        assert not made.place(file).exists()
    await building
    assert made.place(file).exists()


def test_the_core_leaves_out_what_only_the_orchestrator_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    names = {line.partition(">")[0] for line in core_dependencies()}
    assert {"nats-py", "msgspec", "pydantic"} <= names
    assert not {"omegaconf", "hydra-core", "uv", "rich", "typer"} & names
