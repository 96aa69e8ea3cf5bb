"""The compose file is a compose file, and its services are the demo's pools."""

import subprocess
import sys
from pathlib import Path

import yaml

from orchestrator.config import load_config

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "docker-compose.yml"


def test_the_compose_file_fits_the_compose_schema() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


def test_a_file_that_does_not_fit_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(COMPOSE.read_text().replace("image: nats", "imagine: nats"))
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(broken)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 1
    assert "imagine" in checked.stdout


def test_there_is_one_service_for_each_pool_of_the_demo() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    instances = load_config(["configs/demo.yaml"], folder=ROOT).instances
    assert set(services) == {"nats", "run", *instances}
    for name in instances:
        assert services[name]["command"][:4] == ["worker", "configs/demo.yaml", "--instance", name]
        assert name in services["run"]["depends_on"]


def test_the_image_holds_every_package_and_what_the_demo_reads() -> None:
    copied = {
        word
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY")
        for word in line.split()[1:-1]
    }
    assert copied >= {"contracts", "bus", "components", "orchestrator", "replay", "configs", "datasets"}
    assert all((ROOT / name).exists() for name in copied)
