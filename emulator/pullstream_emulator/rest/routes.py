"""Google's HTTP bindings: the RPC for each verb and path, one row each.

Templates have the syntax of google.api.http: `{topic=projects/*/topics/*}:publish` is a path whose
middle part fills the request's field `topic`. The body is the whole request (`*`), one of its
fields, or empty. The query fills fields that neither path nor body fills.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from pullstream_protocol.rpcs import BY_METHOD, Rpc

_TOPIC = "projects/*/topics/*"
_SUBSCRIPTION = "projects/*/subscriptions/*"
_SNAPSHOT = "projects/*/snapshots/*"
_SCHEMA = "projects/*/schemas/*"

_TEMPLATE = re.compile(r"\{(?P<field>[a-z_.]+)=(?P<name>[^}]+)\}(?P<rest>.*)")


@dataclass(frozen=True)
class Route:
    """The HTTP form of one RPC.

    Attributes:
        method: Name of the RPC.
        verb: The HTTP method.
        template: The path's template.
        body: `*`, the name of a field, or empty.
        name_field: The request's field that the path fills, such as `topic.name`.
        path: Pattern of the path.
    """

    method: str
    verb: str
    template: str
    body: str = ""
    name_field: str = field(init=False)
    path: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        parts = _TEMPLATE.fullmatch(self.template)
        assert parts is not None, self.template
        name = parts["name"].replace("*", "[^/]+")
        if not parts["rest"].startswith("/"):
            # In the last segment of a path, a colon starts a verb. Project names may contain one.
            name = name.removesuffix("[^/]+") + "[^/:]+"
        object.__setattr__(self, "name_field", parts["field"])
        object.__setattr__(self, "path", re.compile(f"/v1/({name}){re.escape(parts['rest'])}"))

    @property
    def rpc(self) -> Rpc:
        """The RPC, with its service and its message types."""
        return BY_METHOD[self.method]


ROUTES: tuple[Route, ...] = (
    Route("CreateTopic", "PUT", f"{{name={_TOPIC}}}", "*"),
    Route("UpdateTopic", "PATCH", f"{{topic.name={_TOPIC}}}", "*"),
    Route("Publish", "POST", f"{{topic={_TOPIC}}}:publish", "*"),
    Route("GetTopic", "GET", f"{{topic={_TOPIC}}}"),
    Route("ListTopics", "GET", "{project=projects/*}/topics"),
    Route("ListTopicSubscriptions", "GET", f"{{topic={_TOPIC}}}/subscriptions"),
    Route("ListTopicSnapshots", "GET", f"{{topic={_TOPIC}}}/snapshots"),
    Route("DeleteTopic", "DELETE", f"{{topic={_TOPIC}}}"),
    Route("DetachSubscription", "POST", f"{{subscription={_SUBSCRIPTION}}}:detach"),
    Route("CreateSubscription", "PUT", f"{{name={_SUBSCRIPTION}}}", "*"),
    Route("GetSubscription", "GET", f"{{subscription={_SUBSCRIPTION}}}"),
    Route("UpdateSubscription", "PATCH", f"{{subscription.name={_SUBSCRIPTION}}}", "*"),
    Route("ListSubscriptions", "GET", "{project=projects/*}/subscriptions"),
    Route("DeleteSubscription", "DELETE", f"{{subscription={_SUBSCRIPTION}}}"),
    Route("ModifyAckDeadline", "POST", f"{{subscription={_SUBSCRIPTION}}}:modifyAckDeadline", "*"),
    Route("Acknowledge", "POST", f"{{subscription={_SUBSCRIPTION}}}:acknowledge", "*"),
    Route("Pull", "POST", f"{{subscription={_SUBSCRIPTION}}}:pull", "*"),
    Route("ModifyPushConfig", "POST", f"{{subscription={_SUBSCRIPTION}}}:modifyPushConfig", "*"),
    Route("Seek", "POST", f"{{subscription={_SUBSCRIPTION}}}:seek", "*"),
    Route("CreateSnapshot", "PUT", f"{{name={_SNAPSHOT}}}", "*"),
    Route("GetSnapshot", "GET", f"{{snapshot={_SNAPSHOT}}}"),
    Route("UpdateSnapshot", "PATCH", f"{{snapshot.name={_SNAPSHOT}}}", "*"),
    Route("ListSnapshots", "GET", "{project=projects/*}/snapshots"),
    Route("DeleteSnapshot", "DELETE", f"{{snapshot={_SNAPSHOT}}}"),
    Route("CreateSchema", "POST", "{parent=projects/*}/schemas", "schema"),
    Route("GetSchema", "GET", f"{{name={_SCHEMA}}}"),
    Route("ListSchemas", "GET", "{parent=projects/*}/schemas"),
    Route("ListSchemaRevisions", "GET", f"{{name={_SCHEMA}}}:listRevisions"),
    Route("CommitSchema", "POST", f"{{name={_SCHEMA}}}:commit", "*"),
    Route("RollbackSchema", "POST", f"{{name={_SCHEMA}}}:rollback", "*"),
    Route("DeleteSchemaRevision", "DELETE", f"{{name={_SCHEMA}}}:deleteRevision"),
    Route("DeleteSchema", "DELETE", f"{{name={_SCHEMA}}}"),
    Route("ValidateSchema", "POST", "{parent=projects/*}/schemas:validate", "*"),
    Route("ValidateMessage", "POST", "{parent=projects/*}/schemas:validateMessage", "*"),
    *(
        Route(method, verb, f"{{resource={resource}}}:{method[0].lower()}{method[1:]}", body)
        for method, verb, body in (
            ("SetIamPolicy", "POST", "*"),
            ("GetIamPolicy", "GET", ""),
            ("TestIamPermissions", "POST", "*"),
        )
        for resource in (_TOPIC, _SUBSCRIPTION, _SNAPSHOT, _SCHEMA)
    ),
)


def find(verb: str, path: str) -> tuple[Route, str] | None:
    """Return the route for a verb and a raw path, and the resource name in the path."""
    for route in ROUTES:
        if route.verb == verb and (found := route.path.fullmatch(path)):
            return route, unquote(found[1])
    return None
