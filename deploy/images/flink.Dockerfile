# Flink, Beam's job server, and the Python in which workers run pipelines.
FROM python:3.11.14-slim-bookworm AS build

RUN apt-get update \
 && apt-get install --yes --no-install-recommends maven openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/sotto
COPY deploy /opt/sotto/deploy
COPY mechanisms /opt/sotto/mechanisms
COPY sotto /opt/sotto/sotto
RUN SOTTO_CACHE=/opt/cache python -c "from deploy.flink.archives import archives; archives()" \
 && rm -rf /opt/cache/maven
RUN python -m venv .venv \
 && .venv/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check \
    --require-hashes -r deploy/images/requirements.lock

FROM python:3.11.14-slim-bookworm

RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --create-home sotto \
 && install --directory --owner=sotto --group=sotto /var/lib/flink /opt/cache
COPY --from=build /opt/sotto/.venv /opt/sotto/.venv
COPY --from=build --chown=sotto:sotto /opt/cache /opt/cache
COPY mechanisms /opt/sotto/mechanisms
COPY sotto /opt/sotto/sotto
COPY clientsdk /opt/sotto/clientsdk
COPY pipelines /opt/sotto/pipelines
COPY sotto_cli /opt/sotto/sotto_cli
COPY deploy /opt/sotto/deploy

# Linear algebra here is small: threads would only contend with each other.
ENV PATH=/opt/sotto/.venv/bin:$PATH PYTHONPATH=/opt/sotto SOTTO_CACHE=/opt/cache PYTHONUNBUFFERED=1 OPENBLAS_NUM_THREADS=1
USER sotto
WORKDIR /var/lib/flink
ENTRYPOINT ["python", "-m"]
CMD ["deploy.images.node", "jobmanager"]
