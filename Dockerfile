# The page and JSON API of `kinspace serve`, on a CPU. The run folder is mounted, read and written:
#
#   docker build -t kinspace .
#   docker run --rm -p 8000:8000 -e KINSPACE_TOKEN=secret -v "$PWD/runs/photos-nra-1:/run-folder" kinspace
#
# The gallery is made before: kinspace index runs/photos-nra-1
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/kinspace \
    && /opt/kinspace/bin/pip install --no-cache-dir \
        --extra-index-url https://download.pytorch.org/whl/cpu ".[serve,pretrained]"

FROM python:3.12-slim
COPY --from=build /opt/kinspace /opt/kinspace
RUN useradd --create-home --uid 1000 kinspace
USER 1000
ENV PATH=/opt/kinspace/bin:$PATH HF_HUB_OFFLINE=1
WORKDIR /home/kinspace
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz')"]
ENTRYPOINT ["kinspace", "serve"]
CMD ["/run-folder", "--host", "0.0.0.0", "--port", "8000"]
