"""What `jetgym rebuild` says of the files that it found."""

from pathlib import Path

from orchestrator.commands.rebuild import lines_of


def test_a_file_whose_lines_stand_in_another_order_has_the_same(tmp_path: Path) -> None:
    """A run writes the lines of several partitions as they come, and `rebuild` those of one after the other."""
    one, other = tmp_path / "one", tmp_path / "other"
    assert lines_of(one) is None
    one.write_text("a\nb\nb\n")
    other.write_text("b\na\nb\n")
    assert lines_of(one) == lines_of(other)
    for changed in ("a\nb\n", "a\na\nb\n", "a\nb\nb", "a\nb\nc\n", ""):
        other.write_text(changed)
        assert lines_of(one) != lines_of(other)
