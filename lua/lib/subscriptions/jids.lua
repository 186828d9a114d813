-- Compares JIDs. `subids` are the subids of a sender's full JID and of its bare one, made by the caller.
local jids = {}

function jids.bare(jid)
  return string.match(jid, '^[^/]*')
end

-- Whether the sender may use the subscription of `jid`.
function jids.covers(jid, sender)
  return jid == sender or jid == jids.bare(sender)
end

-- Whether the sender published an entry of the log, if there is one.
function jids.is_publisher(sender, entry)
  return entry and entry.by == jids.bare(sender)
end

function jids.subids(text)
  return string.match(text, '^(%d+) (%d+)$')
end
