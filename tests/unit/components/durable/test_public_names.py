"""The package's surface."""

import components.durable


def test_the_package_offers_these_names() -> None:
    assert components.durable.__all__ == [
        "AgentFailed",
        "Call",
        "CallFailed",
        "Context",
        "DurableError",
        "Execution",
        "History",
        "InvalidHistory",
        "NondeterminismError",
        "NotInAgents",
        "Reply",
        "UnknownReply",
        "first_difference",
        "from_recorded",
        "reexecute",
    ]
    assert all(hasattr(components.durable, name) for name in components.durable.__all__)
