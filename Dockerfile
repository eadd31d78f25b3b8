# An image with Penstock for every process of a cluster: hosts, drivers, commands. It has no application: let an image of
# your own begin with this one, and copy the application into /app (docs/howto/kubernetes.md).
#   docker build --tag penstock .

FROM python:3.12-slim AS build
# Debian keeps the newest version of a package only, so none is named.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/penstock
WORKDIR /source
COPY requirements.lock ./
# The versions of the lock, without its tools for developers.
RUN sed -e 's/ *\\$//' -e '/--hash=/d' requirements.lock >/opt/versions.txt
COPY pyproject.toml README.md LICENSE ./
COPY scripts scripts
COPY examples examples
COPY src src
# A compiled implementation, or no image.
ENV PENSTOCK_NATIVE=require PIP_CONSTRAINT=/opt/versions.txt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN /opt/penstock/bin/pip install '.[server,cluster,postgres,search,telemetry]'

FROM python:3.12-slim
# tini ends what a killed process leaves behind.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends tini && rm -rf /var/lib/apt/lists/* \
  && useradd --uid 1000 --create-home penstock && install --directory --owner penstock /var/lib/penstock /app
COPY --from=build /opt/penstock /opt/penstock
ENV PATH=/opt/penstock/bin:$PATH PYTHONUNBUFFERED=1 XDG_DATA_HOME=/var/lib
# By number: Kubernetes can then tell that it is not root.
USER 1000
WORKDIR /app
VOLUME /var/lib/penstock
EXPOSE 8000 7077
ENTRYPOINT ["tini", "--", "penstock"]
CMD ["host"]
