"""Turns results into answers. Pure; must not know the core."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from broker import codec, payloads
from broker.model.items.outcomes import ItemOutcome
from broker.model.results import Published, Renewed, Reserved
from broker.model.times import moment
from frontends.rest import paths
from frontends.rest.errors import MEDIA, Fault, row, write_problem
from frontends.rest.formats import atom, documents
from frontends.rest.formats.views import HeldMessages, Message, Page
from frontends.rest.http import conditions, negotiation
from frontends.rest.http.values import Response

OWNED_SECONDS: Final = 5
"""How long a client waits before it asks again whether a partition is free."""


def page(shown: Page, kind: str) -> Response:
    """Answer with a page of a queue or the tree."""
    body = atom.page(shown) if kind == negotiation.ATOM else documents.page(shown)
    link = {"Link": f'<{shown.following}>; rel="next"'} if shown.following else {}
    return Response(HTTPStatus.OK, body, _add_type(kind, "feed"), link)


def message(shown: Message, kind: str) -> Response:
    """Answer with a message."""
    body = atom.message(shown) if kind == negotiation.ATOM else documents.message(shown)
    return Response(HTTPStatus.OK, body, _add_type(kind, "entry"))


def outcome(node: str, ended: ItemOutcome) -> Response:
    """Answer how a message has ended, with its worker's result if there is one; raises CorruptRecord."""
    said = _end(node, ended.item_id, ended.state.value, ended.reason)
    if ended.envelope:
        result = codec.unpack(ended.envelope)
        said["result"] = documents.body(result.body) | {"content_type": payloads.kind(result)}
    return json(said)


def answer_pending(node: str, item: str) -> Response:
    """Answer that a message has not ended, to its publisher, who may not see it."""
    return json(_end(node, item, documents.PENDING, ""))


def _end(node: str, item: str, state: str, reason: str) -> dict[str, object]:
    return {"id": item, "href": paths.message(node, item), "state": state, "reason": reason}


def content(shown: Message) -> Response:
    """Answer with a message's body, guarded so that it cannot act as a page of this server."""
    guarded = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'"}
    return Response(HTTPStatus.OK, shown.body, shown.content_type, guarded)


def answer_declared(node: str, *, made: bool) -> Response:
    """Answer that a queue exists, and where."""
    said = {"name": node, "href": paths.queue(node)}
    status = HTTPStatus.CREATED if made else HTTPStatus.OK
    return Response(status, documents.write_json(said), negotiation.JSON, {"Location": paths.queue(node)})


def answer_reserved(node: str, result: Reserved) -> Response:
    """Answer where to send the body of a reserved message, and until when."""
    where = paths.message(node, result.item_id)
    said = {"id": result.item_id, "href": where, "expires": moment(result.until_ms)}
    return Response(HTTPStatus.CREATED, documents.write_json(said), negotiation.JSON, {"Location": where})


def answer_published(node: str, result: Published, status: HTTPStatus) -> Response:
    """Answer that a message is in its queue, or was before."""
    said = answer_result(node, result)
    return Response(status, documents.write_json(said), negotiation.JSON, {"Location": str(said["href"])})


def answer_result(node: str, result: Published) -> dict[str, str | bool]:
    """Return the result of a published message."""
    return {"id": result.item_id, "href": paths.message(node, result.item_id), "duplicate": result.duplicate}


def held_messages(shown: HeldMessages, kind: str) -> Response:
    """Answer with the messages that a subscription holds."""
    body = atom.write_held(shown) if kind == negotiation.ATOM else documents.write_held(shown)
    # Each read extends the expiry, which alone must not change the tag.
    holds = repr(
        (kind, shown.more, shown.owned, [(each.href, each.lock and each.lock.expires_ms) for each in shown.messages])
    )
    headers = {"ETag": conditions.weaken(conditions.tag(holds.encode()))}
    if shown.owned:
        headers["Retry-After"] = str(OWNED_SECONDS)
    return Response(HTTPStatus.OK, body, _add_type(kind, "feed"), headers)


def answer_settled(results: Sequence[Fault | None], more: Mapping[str, object] | None = None) -> Response:
    """Answer for each message, in order, whether the request was carried out."""
    said = [{"status": HTTPStatus.OK.value} if each is None else row(each) for each in results]
    faults = tuple(each for each in results if each)
    body = documents.write_json({"results": said, **(more or {})})
    return Response(HTTPStatus.OK, body, negotiation.JSON, refusals=faults)


def answer_next(
    results: Sequence[Fault | None], messages: Sequence[Message], refused: Fault | None, *, more: bool
) -> Response:
    """Answer the same, with the messages that were received after that, or why none could be."""
    said = {"messages": [documents.show_message(each) for each in messages], "more": more}
    return answer_settled(results, said | ({"refused": row(refused)} if refused else {}))


def answer_renewed(result: Renewed) -> Response:
    """Answer with the new expiry of a lock."""
    return Response(HTTPStatus.OK, documents.write_json({"expires": moment(result.deadline_ms)}), negotiation.JSON)


def answer_done() -> Response:
    """Answer that the request was carried out."""
    return Response(HTTPStatus.OK, b"{}", negotiation.JSON)


def batch(node: str, results: list[Published | Fault]) -> Response:
    """Answer with the result of each message of a batch, in order."""
    said = [
        row(each) if isinstance(each, Fault) else {"status": HTTPStatus.CREATED.value, **answer_result(node, each)}
        for each in results
    ]
    faults = tuple(each for each in results if isinstance(each, Fault))
    return Response(HTTPStatus.OK, documents.write_json({"results": said}), negotiation.JSON, refusals=faults)


def json(said: Mapping[str, object]) -> Response:
    """Answer with JSON."""
    return Response(HTTPStatus.OK, documents.write_json(said), negotiation.JSON)


def answer_refused(refusal: Fault) -> Response:
    """Answer with a refusal."""
    return Response(refusal.status, write_problem(refusal), MEDIA, refusal.headers)


def _add_type(kind: str, what: str) -> str:
    return f"{kind};type={what}" if kind == negotiation.ATOM else kind
