"""Metrics of plan usage, version 1, of collector apps.example.

Made by `sotto plan generate`: change the plan and make it anew.

Fingerprint: a97eb6428dde9bd1e256a5c621d7549586e163ab3b5cfd00d8ab4d68305bbb81
"""

from __future__ import annotations

from typing import Final, Literal

from clientsdk import Client
from clientsdk.typed import Metric, check_plan

#: The compiled plan, for the client.
PLAN: Final[bytes] = (
    b'{"ceilings":{"lifetime":1200000000,"period":12000000},"collector":"apps.'
    b'example","expires":2114380800000,"format":2,"grace":86400000,"metrics":['
    b'{"domain":["convert","resize","show"],"ladder":[{"after":0,"epsilon":500'
    b'000},{"after":86400000,"epsilon":1000000}],"mechanism":{"domain_size":4,'
    b'"name":"grr"},"missing":false,"name":"command","outside":"other","repeat'
    b'":{"kind":"every","limit":2},"type":"category","window":2419200000},{"do'
    b'main":["/convert","/resize","/show"],"ladder":[{"after":0,"epsilon":5000'
    b'00},{"after":86400000,"epsilon":1000000}],"mechanism":{"domain_size":4,"'
    b'name":"grr"},"missing":false,"name":"route","outside":"other","repeat":{'
    b'"kind":"every","limit":2},"type":"category","window":2419200000},{"ladde'
    b'r":[{"after":0,"epsilon":500000},{"after":86400000,"epsilon":1000000}],"'
    b'mechanism":{"missing":false,"name":"threshold"},"missing":false,"name":"'
    b'job_seconds","outside":"clip","range":[0.0,60.0],"repeat":{"kind":"every'
    b'","limit":2},"type":"number","unit":"s","window":2419200000}],"owner":"t'
    b'elemetry@apps.example","period":86400000,"plan":"usage","resolution":100'
    b'0,"retention":2592000000,"shards":64,"version":1}'
)

CommandValue = Literal[
    "convert",
    "resize",
    "show",
    "other",
]

RouteValue = Literal[
    "/convert",
    "/resize",
    "/show",
    "other",
]


class CommandMetric(Metric[CommandValue]):
    """One of convert, resize, show; any other counts as other.

    Reported: the first 2 values in 1 day, at epsilon 0.5 at once; 1.0 after 1 day. That
    costs at most epsilon 2.0 a period.
    """

    __slots__ = ()
    name = "command"


class RouteMetric(Metric[RouteValue]):
    """One of /convert, /resize, /show; any other counts as other.

    Reported: the first 2 values in 1 day, at epsilon 0.5 at once; 1.0 after 1 day. That
    costs at most epsilon 2.0 a period.
    """

    __slots__ = ()
    name = "route"


class JobSecondsMetric(Metric[float]):
    """A number from 0 to 60 s; what lies outside is clipped.

    Reported: the first 2 values in 1 day, at epsilon 0.5 at once; 1.0 after 1 day. That
    costs at most epsilon 2.0 a period.
    """

    __slots__ = ()
    name = "job_seconds"


class Metrics:
    """All metrics of the plan.

    Parameters
    ----------
    client : Client
        Made with PLAN.

    Raises
    ------
    PlanError
        The client has another plan.
    """

    def __init__(self, client: Client) -> None:
        check_plan(client, PLAN)
        self.command: Final = CommandMetric(client)
        self.route: Final = RouteMetric(client)
        self.job_seconds: Final = JobSecondsMetric(client)
