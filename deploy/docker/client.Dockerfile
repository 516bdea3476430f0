# syntax=docker/dockerfile:1
# A device that trains. From the repository root, for both architectures:
#   docker buildx build --platform linux/amd64,linux/arm64 -f deploy/docker/client.Dockerfile -t edge-federation/client .
FROM python:3.13-slim-trixie AS build
# As in server.Dockerfile.
ARG PIP_ARGS=""
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY edge_client edge_client
COPY edge_server edge_server
COPY deploy/constraints.txt constraints.txt
# hadolint ignore=SC2086
RUN python -m venv /opt/edge \
    && /opt/edge/bin/pip install --no-cache-dir ${PIP_ARGS} --constraint constraints.txt '.[client]' \
    && find /opt/edge -name tests -type d -path '*/site-packages/*' -prune -exec rm -rf {} +

FROM python:3.13-slim-trixie
COPY --from=build /opt/edge /opt/edge
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/edge-client --shell /usr/sbin/nologin edge
ENV PATH=/opt/edge/bin:$PATH PYTHONUNBUFFERED=1 EDGE_HEARTBEAT=/tmp/alive \
    XDG_STATE_HOME=/var/lib/edge-client
USER 10001:10001
# Blobs, checkpoints, private state and the served model: mount a volume.
WORKDIR /var/lib/edge-client
VOLUME /var/lib/edge-client
# The device's loop touches the file three times in 30 s, with or without a broker; loading torch may delay it.
HEALTHCHECK --interval=30s --timeout=10s --start-period=3m --retries=4 \
    CMD ["sh", "-c", "test -n \"$(find /tmp/alive -newermt '-60 seconds')\""]
STOPSIGNAL SIGTERM
ENTRYPOINT ["edge-client"]
CMD ["run", "--config", "/etc/edge-client/client.toml", "--keep-trying"]
