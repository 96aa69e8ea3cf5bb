"""Google-style docstrings are taken apart into what the model reads."""

from components.resources.docstrings import parse


def test_a_single_line_is_the_description() -> None:
    assert parse("Adds to the counter.") == ("Adds to the counter.", {})


def test_line_breaks_within_a_paragraph_are_joined_and_paragraphs_are_kept() -> None:
    text = """Adds to
        the counter.

        Negative numbers
        take away.
        """
    assert parse(text).description == "Adds to the counter.\nNegative numbers take away."


def test_parameters_are_read_over_several_lines_and_with_types() -> None:
    text = """Moves.

        Args:
            north (int): How far
                to the north: metres.
            east: How far east.

        Returns:
            Where it is: a pair.
        """
    said = parse(text)
    assert said.description == "Moves."
    assert said.parameters == {"north": "How far to the north: metres.", "east": "How far east."}


def test_sections_after_the_description_are_not_shown_to_the_model() -> None:
    assert parse("Looks.\n\nReturns:\n    A view.\n\nRaises:\n    ToolError: it is dark.") == ("Looks.", {})


def test_a_sentence_that_ends_in_a_colon_is_no_section() -> None:
    assert parse("One of these:\n- a\n- b").description == "One of these: - a - b"


def test_text_after_the_parameters_at_their_depth_is_none_of_them() -> None:
    said = parse("Looks.\n\nArgs:\n    far: How far.\n\nMind: the cliff.")
    assert said.parameters == {"far": "How far."}


def test_an_empty_section_says_nothing() -> None:
    assert parse("Looks.\n\nArgs:\n") == ("Looks.", {})
