# The supervisor, for compose.yaml. It holds the workspace, the keys and the record, and runs no agent's code.
FROM debian:trixie-slim

RUN apt-get -q update \
    && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends \
        ca-certificates git libseccomp2 openssh-client python3 python3-venv ripgrep \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /gatehouse
COPY requirements.lock .
RUN python3 -m venv .venv \
    && .venv/bin/pip install -q --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY supervisor supervisor
COPY agent_image agent_image
COPY policy policy
COPY web web
COPY scripts/compose-start scripts/compose-start
RUN .venv/bin/pip install -q --no-deps --no-build-isolation --no-index --editable . \
    && .venv/bin/python -m compileall -q supervisor \
    # Whoever GATEHOUSE_UID names writes there: what it makes is its own.
    && mkdir -p /data /workspace/host /workspace/merged /run/gatehouse/control/agent /run/gatehouse/control/tools \
    && chmod 1777 /data /workspace/merged /run/gatehouse/control/agent /run/gatehouse/control/tools
ENV HOME=/tmp PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["/gatehouse/scripts/compose-start"]
