"""The web app: runs, rollouts and trajectories in a browser on this machine.

`server` answers with JSON that the modules beside it make, and with the files in `static`, which are plain ES modules,
CSS and one page: nothing is built, and nothing is loaded from elsewhere. It reads through `replay.source` and writes
nothing; what a button starts is a command of `replay` like one that is typed.
"""
