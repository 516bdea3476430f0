# syntax=docker/dockerfile:1
# A device that only infers: no torch, no MQTT. From the repository root, for both architectures:
#   docker buildx build --platform linux/amd64,linux/arm64 -f deploy/docker/infer.Dockerfile -t edge-federation/infer .
#   docker run --rm -v "$PWD:/data:ro" edge-federation/infer infer /data/tier-1.onnx /data/photo.png
FROM python:3.13-slim-trixie AS build
ARG PIP_ARGS=""
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY edge_client edge_client
COPY edge_server edge_server
COPY deploy/constraints.txt constraints.txt
# [trust] is cryptography, for --trust signing.pub.
# hadolint ignore=SC2086
RUN python -m venv /opt/edge \
    && /opt/edge/bin/pip install --no-cache-dir ${PIP_ARGS} --constraint constraints.txt '.[trust]' \
    && find /opt/edge -name tests -type d -path '*/site-packages/*' -prune -exec rm -rf {} +

FROM python:3.13-slim-trixie
COPY --from=build /opt/edge /opt/edge
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/edge-client --shell /usr/sbin/nologin edge
ENV PATH=/opt/edge/bin:$PATH PYTHONUNBUFFERED=1 XDG_STATE_HOME=/var/lib/edge-client
USER 10001:10001
WORKDIR /var/lib/edge-client
EXPOSE 8093
# `edge-client serve` answers there; a single `infer` ends before the first check.
HEALTHCHECK --interval=15s --timeout=5s --start-period=1m --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8093/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["edge-client"]
CMD ["serve", "--host", "0.0.0.0", "--state-dir", "/var/lib/edge-client/state"]
