-- Deliveries that their receivers have not confirmed yet (urn:xmpp:qos): position -> `stage tries`; `retries` says when each is sent
-- again. The stage says what was sent last: `acknowledged`, or `assured` and then `deliver`. A delivery that needs no
-- confirmation, or has it, has no record. Where nobody ever asked for confirmations, no script looks for any.
local confirmations = {}

-- The stage of a delivery and how often it was sent at it.
function confirmations.of(position)
  local line = call.partition_confirms and redis.call('HGET', key.confirmations, position) or 'unacknowledged 1'
  local stage, sent = string.match(line, '^(%S+) (%d+)$')
  return stage, tonumber(sent)
end

function confirmations.remove(position)
  write_buffer.add('HDEL', key.confirmations, position)
  write_buffer.add('ZREM', key.retries, position)
end
