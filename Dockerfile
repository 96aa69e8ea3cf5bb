# One image for every role: a pool's worker, and the command line.
FROM python:3.12-slim

WORKDIR /jetgym
COPY requirements.lock pyproject.toml README.md LICENSE ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY contracts contracts
COPY bus bus
COPY components components
COPY orchestrator orchestrator
COPY replay replay
COPY configs configs
COPY datasets datasets
RUN pip install --no-cache-dir --no-deps --editable .

# Component venvs and results stay out of the image; mount volumes there to keep them.
VOLUME ["/jetgym/.jetgym", "/jetgym/results"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["jetgym"]
CMD ["--help"]
