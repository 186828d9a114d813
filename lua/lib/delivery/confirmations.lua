-- Deliveries that their receivers have yet to confirm (urn:xmpp:qos): position -> `stage tries`, and in `retries` when each
-- is tried again. A stage says what was sent last: `acknowledged`, or `assured` and then `deliver`. What needs no
-- confirmation, or has it, has no record; a partition that nobody ever asked for one is not searched for any.
local confirmations = {}

-- The stage of a delivery and how often it was sent at it.
function confirmations.of(position)
  local line = call.partition_confirms and redis.call('HGET', key.unconfirmed, position) or 'unacknowledged 1'
  local stage, sent = string.match(line, '^(%S+) (%d+)$')
  return stage, tonumber(sent)
end

function confirmations.remove(position)
  write_buffer.add('HDEL', key.unconfirmed, position)
  write_buffer.add('ZREM', key.retries, position)
end
