"""Each trainer gets its own fields, with the types that it documents, and in them exactly the sample."""

import dataclasses
from dataclasses import replace
from typing import Any, get_type_hints

import msgspec
import numpy as np

from orchestrator.adapters import areal, prime_rl, skyrl, slime, verl
from tests.unit.orchestrator.adapters.trained_samples import logprobs, trained

FIRST: dict[str, Any] = {
    "prompt": [1, 2, 3],
    "response": [4, 5, 6, 7],
    "mask": [1, 1, 0, 1],
    "logprobs": logprobs(4, 5, 0, 7),
}
SECOND: dict[str, Any] = {
    "prompt": [1, 2, 3, 4, 5, 8, 9],
    "response": [10, 11],
    "mask": [1, 1],
    "logprobs": logprobs(10, 11),
}
"""The shared call is trained on in the first branch; to the second it is prompt."""


def plain(value: Any) -> bool:
    """Whether it is made of what JSON has: no scalar or array of numpy hides in it."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(each) for key, each in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (bool, int, float, str)


def test_verl_gets_an_agent_loop_output() -> None:
    """verl/experimental/agent_loop/agent_loop.py, AgentLoopOutput and AgentLoopMetrics (0.9.1)."""
    first, second = map(verl.agent_loop_output, trained())
    fields = {"prompt_ids", "response_ids", "response_mask", "response_logprobs", "routed_experts", "multi_modal_data"}
    fields |= {"reward_score", "num_turns", "metrics", "extra_fields", "mm_processor_kwargs", "mm_processor_output"}
    for found, expected in ((first, FIRST), (second, SECOND)):
        assert set(found) <= fields
        assert plain(found)
        assert [found["prompt_ids"], found["response_ids"], found["response_mask"]] == [
            expected["prompt"],
            expected["response"],
            expected["mask"],
        ]
        assert found["response_logprobs"] == expected["logprobs"]
        assert (found["reward_score"], found["num_turns"]) == (0.5, 4)
        assert set(found["metrics"]) == {"generate_sequences", "tool_calls", "compute_score", "num_preempted"}
    assert first["metrics"]["generate_sequences"] == 4.0
    versions = [
        (each["extra_fields"]["min_global_steps"], each["extra_fields"]["max_global_steps"]) for each in (first, second)
    ]
    assert versions == [(3, 4), (5, 5)]
    assert first["extra_fields"]["uid"] == second["extra_fields"]["uid"] == "run-e0-ab"


def test_skyrl_gets_a_generator_output() -> None:
    """skyrl/train/generators/base.py, GeneratorOutput and TrajectoryID (0.3.0)."""
    found = skyrl.generator_output(trained())
    assert found["trajectory_generation_times"] == [8.5, 8.5]
    assert found["prompt_token_ids"] == [FIRST["prompt"], SECOND["prompt"]]
    assert found["response_ids"] == [FIRST["response"], SECOND["response"]]
    assert found["loss_masks"] == [FIRST["mask"], SECOND["mask"]]
    assert found["rollout_logprobs"] == [FIRST["logprobs"], SECOND["logprobs"]]
    assert found["rewards"] == [0.5, 0.5]
    assert found["stop_reasons"] == ["stop", "length"]
    assert found["is_last_step"] == [False, True]
    assert found["trajectory_ids"] is not None
    assert [dataclasses.asdict(each) for each in found["trajectory_ids"]] == 2 * [
        {"instance_id": "run-e0-ab", "repetition_id": 2}
    ]
    assert found["trajectory_ids"][0].to_string() == "run-e0-ab_2"
    assert plain({name: value for name, value in found.items() if name != "trajectory_ids"})
    assert skyrl.generator_output(trained()[1:])["is_last_step"] == [True]


def test_prime_rl_gets_a_training_sample_that_its_own_struct_decodes() -> None:
    """src/prime_rl/transport/types.py, TrainingSample and TrainingAdvantage (main, mid-2026): arrays, in this order."""
    advantage = msgspec.defstruct(
        "TrainingAdvantage", [("loss", str), ("values", list[float]), ("mask", list[bool])], array_like=True
    )
    theirs = msgspec.defstruct(
        "TrainingSample",
        [
            ("token_ids", list[int]),
            ("mask", list[bool]),
            ("logprobs", list[float]),
            ("temperatures", list[float]),
            ("env_name", str),
            ("advantages", list[advantage]),  # type: ignore[valid-type]
            ("reward", float | None, None),
            ("mm_kwargs", dict[str, Any] | None, None),
            ("routed_experts", Any, None),
            ("mm_token_type_ids", list[int] | None, None),
        ],
        array_like=True,
    )
    sent = msgspec.msgpack.encode(prime_rl.training_sample(trained()[0], env_name="calc", temperature=0.7))
    found: Any = msgspec.msgpack.decode(sent, type=theirs)
    mask = [False, False, False, True, True, False, True]
    assert (found.token_ids, found.mask) == ([1, 2, 3, 4, 5, 6, 7], mask)
    assert found.logprobs == logprobs(0, 0, 0, 4, 5, 0, 7)
    assert (found.temperatures, found.env_name, found.reward) == ([0.7] * 7, "calc", 0.5)
    (told,) = found.advantages
    assert (told.loss, told.values, told.mask) == ("rl", [-0.25] * 7, mask)


def test_areal_gets_padded_tensors() -> None:
    """areal/workflow/rlvr.py, the dict of `arun_episode` (1.0.4), padded as `concat_padded_tensors` does."""
    found = areal.trajectories(trained())
    assert found is not None
    kinds = {"input_ids": "int32", "loss_mask": "int32", "logprobs": "float32", "versions": "int32"}
    kinds |= {"attention_mask": "bool", "rewards": "float32"}
    arrays: dict[str, Any] = dict(found)
    assert {name: array.dtype.name for name, array in arrays.items()} == kinds
    assert found["input_ids"].tolist() == [[1, 2, 3, 4, 5, 6, 7, 0, 0], [1, 2, 3, 4, 5, 8, 9, 10, 11]]
    assert found["loss_mask"].tolist() == [[0, 0, 0, 1, 1, 0, 1, 0, 0], [0] * 7 + [1, 1]]
    assert found["versions"].tolist() == [[-1, -1, -1, 3, 4, -1, 4, -1, -1], [-1] * 7 + [5, 5]]
    assert found["attention_mask"].tolist() == [[True] * 7 + [False] * 2, [True] * 9]
    assert found["logprobs"].tolist() == [logprobs(0, 0, 0, 4, 5, 0, 7, 0, 0), logprobs(*[0] * 7, 10, 11)]
    assert found["rewards"].tolist() == [0.5, 0.5]
    assert areal.trajectories([]) is None


def test_slime_gets_the_fields_of_its_sample() -> None:
    """slime/utils/types.py, Sample and Sample.from_dict (main, mid-2026)."""
    first, second = map(slime.slime_sample, trained())
    fields = {"group_index", "index", "prompt", "tokens", "response", "response_length", "label", "reward", "loss_mask"}
    fields |= {"weight_versions", "rollout_log_probs", "remove_sample", "status", "metadata"}
    for found, expected in ((first, FIRST), (second, SECOND)):
        assert set(found) == set(get_type_hints(slime.SlimeSample)) <= fields
        assert plain(found)
        assert found["tokens"] == [*expected["prompt"], *expected["response"]]
        assert found["response_length"] == len(expected["response"]) == len(found["rollout_log_probs"])
        assert (found["loss_mask"], found["rollout_log_probs"]) == (expected["mask"], expected["logprobs"])
    assert [each["status"] for each in (first, second)] == ["completed", "truncated"]
    assert [each["weight_versions"] for each in (first, second)] == [["3", "4"], ["5"]]
    assert (first["index"], first["reward"]) == (2, 0.5)


def test_groups_of_one_task_in_two_epochs_are_two_to_slime() -> None:
    """A number that follows from the group's ID; the samples of one group have the same."""
    first, second = trained()
    again = replace(first, group="run-e1-ab")
    numbers = [slime.slime_sample(each)["group_index"] for each in (first, second, again)]
    assert numbers[0] == numbers[1] != numbers[2]
    assert all(0 <= number < 2**56 for number in numbers)


def test_every_sampled_token_is_trained_on_once_by_each_trainer() -> None:
    """T6, through the adapters."""
    batch = trained()
    counts = [
        sum(sum(verl.agent_loop_output(each)["response_mask"]) for each in batch),
        sum(map(sum, skyrl.generator_output(batch)["loss_masks"])),
        sum(sum(prime_rl.training_sample(each, env_name="calc").mask) for each in batch),
        sum(sum(slime.slime_sample(each)["loss_mask"]) for each in batch),
    ]
    tensors = areal.trajectories(batch)
    assert tensors is not None
    assert [*counts, int(np.sum(tensors["loss_mask"]))] == [5] * 5
