# The image of the service and the tool: built from the lock file, small, and nobody's root.
#   docker build --tag call-budget:0.1.0 .

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends pkg-config libssl-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --release --locked --bin call-budget && strip target/release/call-budget

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libssl3 \
    && apt-get clean && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin call-budget
COPY --from=build /source/target/release/call-budget /usr/local/bin/call-budget
USER 10001
# Inside a container loopback is nobody's: another address needs a token for callers.
ENV CALL_BUDGET_SERVE_LISTEN=0.0.0.0:8181 \
    CALL_BUDGET_SERVE_CALLER_TOKEN_FILE=/run/secrets/caller_token \
    CALL_BUDGET_LOG_FORMAT=json
EXPOSE 8181
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s --retries=3 CMD ["call-budget", "serve", "--check"]
ENTRYPOINT ["call-budget"]
CMD ["serve"]
