"""The handler of acknowledgements that also publish. Must not know a framework."""

from broker.model.core import Core
from frontends.rest.following import requests
from frontends.rest.http.values import ApiRequest, Response
from frontends.rest.subscriptions import requests as subscription_requests
from frontends.rest.subscriptions.handlers import answer_acknowledged


async def complete_and_publish(core: Core, request: ApiRequest) -> Response:
    """Acknowledge a message and publish others, all or nothing."""
    lock_ref = subscription_requests.lock_ref(request)
    return answer_acknowledged(lock_ref, await core.ask(requests.complete_and_publish(request, lock_ref)))
