# Flink and the streaming job: a job manager, a task manager, and who submits the job.
FROM python:3.11.14-slim-bookworm AS build

RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev maven openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/sotto
COPY deploy /opt/sotto/deploy
COPY sotto /opt/sotto/sotto
RUN SOTTO_CACHE=/opt/cache python -c "from deploy.flink import archives as a; a.archives(), a.connector()" \
 && rm -rf /opt/cache/maven
RUN python -m venv .venv-flink \
 && .venv-flink/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check \
    --require-hashes -r deploy/flink/job.requirements.lock

FROM python:3.11.14-slim-bookworm

RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --create-home sotto \
 && install --directory --owner=sotto --group=sotto /var/lib/flink /opt/cache
COPY --from=build /opt/sotto/.venv-flink /opt/sotto/.venv-flink
COPY --from=build --chown=sotto:sotto /opt/cache /opt/cache
COPY pyproject.toml README.md LICENSE /opt/sotto/
COPY mechanisms /opt/sotto/mechanisms
COPY sotto /opt/sotto/sotto
COPY clientsdk /opt/sotto/clientsdk
COPY pipelines /opt/sotto/pipelines
COPY deploy /opt/sotto/deploy
WORKDIR /opt/sotto
RUN .venv-flink/bin/python -m pip install --quiet --disable-pip-version-check \
    --no-deps --no-build-isolation -e .

# Linear algebra here is small: threads would only contend with each other.
ENV PATH=/opt/sotto/.venv-flink/bin:$PATH SOTTO_CACHE=/opt/cache PYTHONUNBUFFERED=1 OPENBLAS_NUM_THREADS=1
USER sotto
ENTRYPOINT ["python", "-m"]
CMD ["deploy.images.node", "jobmanager"]
