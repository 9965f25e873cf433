"""The contents of a broker's ``server.properties``."""

from __future__ import annotations

from pathlib import Path

from deploy.certificates import Keys
from deploy.ports import HOST

#: The user who may do everything, and roles, which may do what ``sotto topics create`` allows.
USER = "sotto"
ROLES = ("devices", "aggregator", "reader", "operator")
MECHANISM = "SCRAM-SHA-512"


def common(data: Path, client: int, controller: int) -> dict[str, object]:
    """Return what both profiles say: one node, ports on loopback, little memory."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"CLIENT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"CLIENT://{HOST}:{client}",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
        "log.dirs": data,
        # A topic is made on purpose, with the settings that reports need.
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # One that was killed is let in again only once its session has expired.
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 500,
        "num.network.threads": 2,
        "num.io.threads": 4,
        # Its default alone would fill a small heap.
        "log.cleaner.dedupe.buffer.size": 8 << 20,
    }


def plain() -> dict[str, object]:
    """Return what the profile without encryption adds."""
    return {"listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT"}


def tls(keys: Keys, password: str) -> dict[str, object]:
    """Return what the other adds: clients prove by SCRAM who they are, the node by certificate."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keys.server,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": keys.authority,
        "listener.name.controller.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        # Nobody may do what no rule allows them; the node itself is known by its certificate.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": f"User:{USER};User:CN=localhost",
        f"listener.name.client.{MECHANISM.lower()}.sasl.jaas.config": (
            f'{login} required username="{USER}" password="{password}";'
        ),
    }
