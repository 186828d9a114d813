-- Deliveries that their receivers have yet to confirm (urn:xmpp:qos): position -> `stage tries`, and in `retries` when each
-- is tried again. A stage says what was sent last: `acknowledged`, or `assured` and then `deliver`. What needs no
-- confirmation, or has it, has no record; a partition that nobody ever asked for one is not searched for any.
local unconfirmed = {}

-- The stage of a delivery and how often it was sent at it.
function unconfirmed.of(position)
  local line = call.partition_confirms and redis.call('HGET', key.unconfirmed, position) or 'unacknowledged 1'
  local stage, sent = string.match(line, '^(%S+) (%d+)$')
  return stage, tonumber(sent)
end

function unconfirmed.forget(position)
  writes.add('HDEL', key.unconfirmed, position)
  writes.add('ZREM', key.retries, position)
end
