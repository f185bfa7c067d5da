# The container image. deploy/image/README.md says how to build and run it.
#
# Both images are arguments, so that a registry of one's own or images without one do.
# For a release, name them by digest: BASE=debian:bookworm-slim@sha256:...
ARG BUILDER=golang:1.26-bookworm
ARG BASE=debian:bookworm-slim

FROM ${BUILDER} AS build
WORKDIR /src
# The modules first: they stay when only the source has changed.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=0.0.0-dev
ARG COMMIT=unknown
ARG CGO_ENABLED=1
RUN set -eu; \
    deploy/build.sh /out; \
    mkdir /out/bin; \
    mv /out/bot /out/countersign /out/countersign-hook /out/countersign-runner /out/countersign-signer /out/countersign-verify /out/countersign-witness /out/bin/; \
    [ ! -f /out/countersign-parser ] || mv /out/countersign-parser /out/bin/

FROM ${BASE} AS runtime
# Caches, logs and the linker's notes go: they would differ from build to build. Setuid
# programs are of no use to an account without privileges, and a way up for whoever finds a
# hole in one; nor are those with which git serves repositories, sends mail and pushes over
# WebDAV, 17 MB in all, nor Perl's 8 MB of headers without a compiler. The account has a name because ssh, the program, refuses to work without one.
RUN set -eu; \
    export DEBIAN_FRONTEND=noninteractive; \
    apt-get update -qq; \
    apt-get install -y -qq --no-install-recommends ca-certificates git openssh-client tini tmux; \
    apt-get clean; \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache \
      /var/lib/dpkg/*-old /var/log/* /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /root/.gnupg /tmp/* /var/tmp/*; \
    find / -xdev -type f -perm /6000 -exec chmod a-s {} +; \
    for p in git-daemon git-http-backend git-shell git-imap-send git-http-push scalar; do rm -f "/usr/lib/git-core/$p" "/usr/bin/$p"; done; \
    rm -f /usr/lib/*/perl/*/CORE/*.h; \
    chmod 0755 /var/tmp /run/lock; \
    echo 'countersign:x:65532:65532:Countersign:/var/lib/countersign:/bin/bash' >>/etc/passwd; \
    echo 'countersign:x:65532:' >>/etc/group; \
    install -d -m 0770 -o 65532 -g 0 /var/lib/countersign
COPY --from=build /out/LICENSE /out/THIRD_PARTY_LICENSES /out/example.yaml /usr/share/doc/countersign/
COPY --from=build /out/bin/ /usr/local/bin/

ENV HOME=/var/lib/countersign \
    LANG=C.UTF-8 \
    COUNTERSIGN_DATA_DIR=/var/lib/countersign/data \
    COUNTERSIGN_LISTEN=0.0.0.0:8700
WORKDIR /var/lib/countersign
USER 65532:65532
EXPOSE 8700
STOPSIGNAL SIGTERM
# Images in the format of Docker keep this; those in the format of OCI have no place for it.
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["/usr/local/bin/bot", "healthz"]
# tini reaps what terminals and background processes leave behind. -g: a signal is for
# the bot and for what it started in its own group.
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "/usr/local/bin/bot"]
# Inside a container every address is the container's own: who publishes the port decides who
# reaches it.
CMD ["run", "--insecure-http"]

# Last, since they are different each time.
ARG VERSION=0.0.0-dev
ARG COMMIT=unknown
ARG SOURCE=
ARG BASE
LABEL org.opencontainers.image.title="Countersign" \
      org.opencontainers.image.description="A chat-ops bot that asks before it changes anything" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.base.name="${BASE}"
