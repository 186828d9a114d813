"""Handlers of operations on schedules: commands to the core, results to an answer. Must not know a framework."""

from http import HTTPStatus

from broker.model.core import Core
from broker.model.results import Done, Scheduled, ScheduleList
from frontends.rest.core_client import result
from frontends.rest.http.values import ApiRequest, Response
from frontends.rest.schedules import requests, views


async def list_schedules(core: Core, request: ApiRequest) -> Response:
    """List schedules."""
    command = requests.page(request)
    return views.page(command, await result(core, command, ScheduleList))


async def show_schedule(core: Core, request: ApiRequest) -> Response:
    """Show a schedule with its message."""
    command = requests.one(request)
    (found,) = (await result(core, command, ScheduleList)).schedules
    return views.write_schedule(command.node, found)


async def put_schedule(core: Core, request: ApiRequest) -> Response:
    """Make or replace a schedule."""
    command = requests.put(request)
    return views.write_schedule(command.node, (await result(core, command, Scheduled)).status)


async def switch_schedule(core: Core, request: ApiRequest) -> Response:
    """Pause or resume a schedule."""
    command = requests.switch(request)
    return views.write_schedule(command.node, (await result(core, command, Scheduled)).status)


async def delete_schedule(core: Core, request: ApiRequest) -> Response:
    """Delete a schedule."""
    await result(core, requests.remove(request), Done)
    return Response(HTTPStatus.NO_CONTENT)
