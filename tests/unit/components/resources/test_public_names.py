"""What authors and workers import from the package stays as few names as it is."""

import components.resources


def test_the_public_names_are_these() -> None:
    assert components.resources.__all__ == [
        "Described",
        "History",
        "InvalidResources",
        "Resources",
        "ResourcesConfig",
        "ResourcesError",
        "Reward",
        "Runtime",
        "TaskFields",
        "ToolError",
        "tool",
    ]
