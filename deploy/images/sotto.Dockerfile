# The `sotto` command with all that a run, a sink and an exporter need.
FROM python:3.11.14-slim-bookworm AS build

COPY deploy/images/requirements.lock /build/
RUN python -m venv /opt/sotto/.venv \
 && /opt/sotto/.venv/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check \
    --require-hashes -r /build/requirements.lock

FROM python:3.11.14-slim-bookworm

RUN useradd --uid 10001 --create-home sotto \
 && install --directory --owner=sotto --group=sotto /var/lib/sotto /var/lib/alerts
COPY --from=build /opt/sotto/.venv /opt/sotto/.venv
COPY mechanisms /opt/sotto/mechanisms
COPY sotto /opt/sotto/sotto
COPY clientsdk /opt/sotto/clientsdk
COPY pipelines /opt/sotto/pipelines
COPY sotto_cli /opt/sotto/sotto_cli

# Linear algebra here is small: threads would only contend with each other.
ENV PATH=/opt/sotto/.venv/bin:$PATH PYTHONPATH=/opt/sotto PYTHONUNBUFFERED=1 OPENBLAS_NUM_THREADS=1
USER sotto
WORKDIR /var/lib/sotto
ENTRYPOINT ["python", "-m", "sotto"]
