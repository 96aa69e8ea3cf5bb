"""What the package offers."""

from contracts import convert


def test_the_public_names_are_these() -> None:
    assert convert.__all__ == [
        "TOKEN_FIELDS",
        "ChatStyle",
        "request_from_chat",
        "request_to_chat",
        "response_from_chat",
        "response_to_chat",
    ]
