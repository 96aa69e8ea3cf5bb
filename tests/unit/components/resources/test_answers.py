"""The last box in a text is found with the braces that it holds."""

import pytest

from components.resources.answers import last_boxed


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{42}", "42"),
        (r"\boxed{1} and \boxed{ 2 }.", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{}", ""),
        (r"\boxed{1", None),
        (r"\boxed{1} \boxed{2", None),
        (r"\boxed 1", None),
        ("", None),
    ],
)
def test_the_last_box_counts_and_must_be_closed(text: str, content: str | None) -> None:
    assert last_boxed(text) == content
