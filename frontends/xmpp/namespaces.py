"""The table of XML namespaces: no other module spells one."""

from typing import Final

XML: Final = "http://www.w3.org/XML/1998/namespace"
XMLNS: Final = "http://www.w3.org/2000/xmlns/"
CLIENT: Final = "jabber:client"
COMPONENT: Final = "jabber:component:accept"
STREAM: Final = "http://etherx.jabber.org/streams"
STANZAS: Final = "urn:ietf:params:xml:ns:xmpp-stanzas"
FORM: Final = "jabber:x:data"
DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
DISCO_ITEMS: Final = "http://jabber.org/protocol/disco#items"
COMMANDS: Final = "http://jabber.org/protocol/commands"
HINTS: Final = "urn:xmpp:hints"
JSON: Final = "urn:xmpp:json:0"
QOS: Final = "urn:xmpp:qos"
PING: Final = "urn:xmpp:ping"
VERSION: Final = "jabber:iq:version"
RSM: Final = "http://jabber.org/protocol/rsm"
SHIM: Final = "http://jabber.org/protocol/shim"

PUBSUB: Final = "http://jabber.org/protocol/pubsub"
PUBSUB_OWNER: Final = f"{PUBSUB}#owner"
PUBSUB_EVENT: Final = f"{PUBSUB}#event"
PUBSUB_ERRORS: Final = f"{PUBSUB}#errors"
PUBSUB_NODE_CONFIG: Final = f"{PUBSUB}#node_config"
PUBSUB_PUBLISH_OPTIONS: Final = f"{PUBSUB}#publish-options"
PUBSUB_SUBSCRIBE_OPTIONS: Final = f"{PUBSUB}#subscribe_options"
PUBSUB_SUBSCRIBE_AUTHORIZATION: Final = f"{PUBSUB}#subscribe_authorization"
PUBSUB_GET_PENDING: Final = f"{PUBSUB}#get-pending"
PUBSUB_META_DATA: Final = f"{PUBSUB}#meta-data"

QUEUEING: Final = "urn:xmpp:pubsub:queueing:0"
QUEUEING_TYPO: Final = "urn:xmpp:queueing:0"
"""The namespace in XEP-0254's example of the unlock notification, which contradicts its registration (QX4)."""

EVENT_LOG: Final = "urn:xmpp:eventlog"

ENVELOPE: Final = (
    HINTS,
    "urn:xmpp:receipts",
    "urn:xmpp:chat-markers:0",
    "http://jabber.org/protocol/chatstates",
    "urn:xmpp:sid:0",
    "urn:xmpp:delay",
    "jabber:x:delay",
    "urn:xmpp:carbons:2",
    "http://jabber.org/protocol/nick",
)
"""Namespaces of elements that clients and servers add to a message beside its content."""

STANZAQ: Final = "urn:stanzaq:0"
ADMIN_OVERVIEW: Final = f"{STANZAQ}#overview"
ADMIN_PAUSE: Final = f"{STANZAQ}#pause"
ADMIN_RESUME: Final = f"{STANZAQ}#resume"
ADMIN_DRAIN: Final = f"{STANZAQ}#drain"
ADMIN_RELEASE: Final = f"{STANZAQ}#release"
ADMIN_REDRIVE: Final = f"{STANZAQ}#redrive"
ADMIN_MOVE: Final = f"{STANZAQ}#move"
ADMIN_DISCONNECT: Final = f"{STANZAQ}#disconnect"
ADMIN_SCHEDULES: Final = f"{STANZAQ}#schedules"
ADMIN_SCHEDULE: Final = f"{STANZAQ}#schedule"
ADMIN_PAUSE_SCHEDULE: Final = f"{STANZAQ}#pause-schedule"
ADMIN_RESUME_SCHEDULE: Final = f"{STANZAQ}#resume-schedule"
ADMIN_UNSCHEDULE: Final = f"{STANZAQ}#unschedule"
BATCH: Final = f"{STANZAQ}#batch"
"""A feature, not a namespace: nodes take several items in one request."""

STREAMS: Final = f"{STANZAQ}#streams"
"""A feature, not a namespace: nodes can be read as logs (EX18)."""
