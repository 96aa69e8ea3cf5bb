"""The log lines of a worker: JSON on standard error, one event a line, IDs bound at the edge.

It has a descriptor of its own, so that an author's code may close its output and harms no line. Called once by the
worker process; everything else asks structlog for a logger.
"""

import logging
import os
import sys

import structlog


def configure(worker: str, kind: str, instance: str) -> None:
    """Sends structlog's and the standard library's records to standard error as JSON lines."""
    stream = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="backslashreplace")
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        processor=structlog.processors.JSONRenderer(), foreign_pre_chain=shared
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    structlog.contextvars.bind_contextvars(worker=worker, kind=kind, instance=instance)
