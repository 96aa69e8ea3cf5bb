"""The errors that agents' authors meet beside `CallFailed`.

AgentError
├── AgentMisused      the agent reaches for something that its config does not name
└── WrongType         the agent returned or passed something of another type than is needed there
"""


class AgentError(Exception):
    """An agent's code or config is at fault."""


class AgentMisused(AgentError):
    """The agent uses a handle for which its config names no instance."""


class WrongType(AgentError, TypeError):
    """The agent returned or passed a value of a wrong type."""
