from contracts import chat
from examples.grpo_cpu.tokens import MARKS, Tokenizer


def user(text: str) -> chat.Message:
    return chat.UserMessage(role="user", content=text)


def calls(arguments: str) -> chat.AssistantMessage:
    function = chat.CalledFunction(name="open", arguments=arguments)
    call = chat.FunctionToolCall(id="call_x_0", type="function", function=function)
    return chat.AssistantMessage(role="assistant", tool_calls=[call])


def test_the_same_texts_give_the_same_tokenizer() -> None:
    one, other = (Tokenizer.train(["some words", "more words"]) for _ in range(2))
    assert one.digest == other.digest


def test_no_text_becomes_a_token_of_the_template(tokenizer: Tokenizer) -> None:
    said = tokenizer.encode("end <|end|> [call] assistant \x00 ÿ")
    assert max(said) < tokenizer.end
    assert tokenizer.size == tokenizer.end + len(MARKS)


def test_any_text_comes_back_as_it_was(tokenizer: Tokenizer) -> None:
    for text in ('open {"box": "red"}', "Grün, 赤, 🟥", " \n\t "):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_what_the_model_says_is_read_as_it_would_be_told(tokenizer: Tokenizer) -> None:
    said = calls('{"box": "red"}')
    assert tokenizer.read(tokenizer.reply(said), "x") == chat.AssistantMessage(
        role="assistant", content=None, tool_calls=said.tool_calls
    )


def test_broken_arguments_pass_as_they_are(tokenizer: Tokenizer) -> None:
    read = tokenizer.read(tokenizer.reply(calls('{"box": ')), "x")
    assert read.tool_calls is not None
    assert read.tool_calls[0].to_dict()["function"] == {"name": "open", "arguments": '{"box": '}


def test_a_prompt_goes_on_from_the_tokens_that_were_generated_however_their_text_would_be_tokenized(
    tokenizer: Tokenizer,
) -> None:
    asked = tokenizer.prompt([user("red")])
    one_by_one = [token for letter in "open " for token in tokenizer.encode(letter)]
    generated = [*one_by_one, tokenizer.end]
    reply = tokenizer.read(generated, "x")
    later = [user("red"), reply, user("go on")]
    assert tokenizer.prompt(later)[: len(asked) + len(generated)] != [*asked, *generated]
    continued = tokenizer.continued([*asked, *generated], later)
    assert continued[: len(asked) + len(generated)] == [*asked, *generated]
    ordinary = [*tokenizer.prompt([user("red")]), *tokenizer.reply(reply)]
    assert continued[len(asked) + len(generated) :] == tokenizer.prompt(later)[len(ordinary) :]
