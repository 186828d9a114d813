-- What a sender's JID says. `subids` are the names of the subscriptions that it may have, by its full JID and its bare one,
-- made by the caller.
local jids = {}

function jids.bare(jid)
  return string.match(jid, '^[^/]*')
end

-- Whether the subscription of `jid` is the sender's.
function jids.covers(jid, sender)
  return jid == sender or jid == jids.bare(sender)
end

-- Whether an entry of the log, if there is one, is the sender's.
function jids.published(sender, entry)
  return entry and entry.by == jids.bare(sender)
end

function jids.subids(text)
  return string.match(text, '^(%d+) (%d+)$')
end
