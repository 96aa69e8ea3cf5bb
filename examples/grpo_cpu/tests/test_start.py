"""Tasks, demonstrations and the warm-up."""

from itertools import islice

from contracts import chat
from examples.grpo_cpu.demonstrations import Example, conversations, offered
from examples.grpo_cpu.tasks import tasks
from examples.grpo_cpu.tokens import Tokenizer
from examples.grpo_cpu.warmup import make_tokenizer, warm_up


def test_a_seed_gives_the_same_tasks_and_another_one_others() -> None:
    one, same, other = (list(islice(tasks(seed), 20)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_the_code_is_not_in_what_the_model_reads_of_a_task() -> None:
    for task in islice(tasks(0), 200):
        (message,) = task["responses_create_params"]["input"]
        assert f'"{task["path"][0]}"' in message["content"]
        assert task["code"] == task["path"][0] or task["code"] not in message["content"].split('"')


def test_the_clumsy_agent_sometimes_finds_the_code_and_mostly_does_not() -> None:
    said = list(islice(conversations(0), 300))
    told = [
        conversation
        for conversation in said
        if any(isinstance(m, chat.ToolMessage) and str(m.content).startswith("The code") for m in conversation)
    ]
    assert 0.2 < len(told) / len(said) < 0.8


def test_an_example_is_in_the_tokens_of_the_prompts_that_the_server_would_make() -> None:
    tokenizer = make_tokenizer(0)
    for conversation in islice(conversations(0), 20):
        example = Example(tokenizer, conversation, offered())
        for index, message in enumerate(conversation):
            if isinstance(message, chat.AssistantMessage):
                prompt = tokenizer.prompt(conversation[:index], offered())
                reply = tokenizer.reply(message)
                assert example.tokens[: len(prompt) + len(reply)] == [*prompt, *reply]
                assert example.mask[len(prompt) : len(prompt) + len(reply)] == [True] * len(reply)
        replies = [tokenizer.reply(m) for m in conversation if isinstance(m, chat.AssistantMessage)]
        assert sum(example.mask) == sum(len(reply) for reply in replies)


def test_the_warm_up_gives_the_same_policy_for_the_same_seed(tokenizer: Tokenizer) -> None:
    one, other = (warm_up(tokenizer, 3, steps=2).state_dict() for _ in range(2))
    assert all(one[name].equal(other[name]) for name in one)
