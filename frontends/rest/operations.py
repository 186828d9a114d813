"""The table of operations: each handler by its name in the table of routes. Must not know what they do."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from broker.model.core import Core
from frontends.rest import files, openapi
from frontends.rest.admin import handlers as admin
from frontends.rest.following import handlers as following
from frontends.rest.http.values import ApiRequest, Response
from frontends.rest.queues import handlers as queues
from frontends.rest.routes import ROUTES
from frontends.rest.schedules import handlers as schedules
from frontends.rest.subscriptions import handlers as subscriptions

_ROOMS: Final = (queues, subscriptions, following, admin, schedules, files, openapi)

_NAMES: Final = {operation.name for methods in ROUTES.values() for operation in methods.values()}

OPERATIONS: Final[Mapping[str, Callable[[Core, ApiRequest], Awaitable[Response]]]] = {
    name: getattr(room, name) for room in _ROOMS for name in _NAMES & vars(room).keys()
}
