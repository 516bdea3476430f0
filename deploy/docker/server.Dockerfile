# syntax=docker/dockerfile:1
# The federation's server. From the repository root, for both architectures:
#   docker buildx build --platform linux/amd64,linux/arm64 -f deploy/docker/server.Dockerfile -t edge-federation/server .
FROM python:3.13-slim-trixie AS build
# For example an index with CPU builds of torch: --build-arg PIP_ARGS="--extra-index-url URL". Without it amd64
# gets the index's own torch, with several GB of CUDA.
ARG PIP_ARGS=""
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY edge_client edge_client
COPY edge_server edge_server
COPY deploy/constraints.txt constraints.txt
# hadolint ignore=SC2086
RUN python -m venv /opt/edge \
    && /opt/edge/bin/pip install --no-cache-dir ${PIP_ARGS} --constraint constraints.txt '.[fleet]' \
    && find /opt/edge -name tests -type d -path '*/site-packages/*' -prune -exec rm -rf {} +

FROM python:3.13-slim-trixie
COPY --from=build /opt/edge /opt/edge
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/edge-server --shell /usr/sbin/nologin edge
ENV PATH=/opt/edge/bin:$PATH PYTHONUNBUFFERED=1 EDGE_HEARTBEAT=/tmp/alive
USER 10001:10001
# Runs are written to runs/: mount a volume.
WORKDIR /var/lib/edge-server
VOLUME /var/lib/edge-server
# `--metrics 0.0.0.0:9464` serves /metrics there; without the option no port is open.
EXPOSE 9464
# The server's loop touches the file three times in 30 s.
HEALTHCHECK --interval=30s --timeout=10s --start-period=10m --retries=2 \
    CMD ["sh", "-c", "test -n \"$(find /tmp/alive -newermt '-60 seconds')\""]
# SIGTERM suspends a run; the same command continues it.
STOPSIGNAL SIGTERM
ENTRYPOINT ["edge-server"]
CMD ["run", "/etc/edge-server/federation.toml", "--broker", "mqtt://mosquitto:1883"]
