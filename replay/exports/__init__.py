"""What leaves a log, and in which form.

`lines` writes events so that nothing is lost and `golden` a test's file of them; `conversation` writes what was said,
`otlp` and `chrome` what happened when, `page` a rollout for a reader without JetGym. Each module is pure but for what
it reads through a `Source`. None of them writes into a log; `replay.imports` does, from the first form only.
"""
