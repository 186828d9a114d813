"""The table of operations: each handler by its name in the table of routes. Must not know what they do."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from broker.model.core import Core
from frontends.rest import files, openapi
from frontends.rest.admin import handlers as admin
from frontends.rest.http.values import ApiRequest, Response
from frontends.rest.queues import handlers as queues
from frontends.rest.schedules import handlers as schedules
from frontends.rest.subscriptions import handlers as subscriptions

OPERATIONS: Final[Mapping[str, Callable[[Core, ApiRequest], Awaitable[Response]]]] = {
    operation.__name__: operation
    for operation in (
        queues.list_queues,
        queues.create_queue,
        queues.show_queue,
        queues.put_queue,
        queues.configure_queue,
        queues.delete_queue,
        queues.send_message,
        queues.send_batch,
        queues.redeem_message,
        queues.delete_message,
        queues.show_message,
        queues.show_content,
        subscriptions.create_subscription,
        subscriptions.list_subscriptions,
        subscriptions.show_subscription,
        subscriptions.delete_subscription,
        subscriptions.show_held_message,
        subscriptions.acknowledge_message,
        subscriptions.acknowledge_messages,
        subscriptions.complete_message,
        subscriptions.release_message,
        subscriptions.renew_message,
        subscriptions.bury_message,
        admin.show_overview,
        admin.show_survey,
        admin.list_subscribers,
        admin.list_affiliations,
        admin.change_affiliations,
        admin.list_requests,
        admin.decide_request,
        admin.show_history,
        admin.list_frontends,
        admin.list_quotas,
        admin.put_quota,
        admin.delete_quota,
        admin.redrive,
        admin.release,
        admin.cancel,
        admin.purge,
        schedules.list_schedules,
        schedules.show_schedule,
        schedules.put_schedule,
        schedules.switch_schedule,
        schedules.delete_schedule,
        files.show_page,
        files.show_file,
        openapi.show_openapi,
    )
}
