# The image of compose.yaml: `docker compose build`. It installs the wheel in dist/ (`make readme` builds it)
# or, where there is none, the release on the package index.
FROM python:3.13-slim

COPY Dockerfile dis[t]/*.whl /wheels/
RUN pip install --no-cache-dir --find-links /wheels \
    "anabranch[chat,dbos,folding,models]" "opentelemetry-distro[otlp]"

RUN useradd --create-home anabranch
USER anabranch
WORKDIR /srv
ENTRYPOINT ["opentelemetry-instrument", "anabranch"]
