-- Deliveries that their receivers have not confirmed yet (urn:xmpp:qos): position -> `stage tries`; `retries` has when each is sent
-- again. The stage is what was sent last: `acknowledged`, or `assured` and then `deliver`, which is followed by the name of the message
-- if several items came in it: `deliver tries message`. A delivery that needs no confirmation, or has it, has no record. Operations skip
-- this until a subscription asks for confirmations.
local confirmations = {}

-- Returns the stage of a delivery, how often it was sent at that stage, and the name of its message or an empty text.
function confirmations.of(position)
  local line = call.partition_before.confirms and redis.call('HGET', key.confirmations, position) or 'unacknowledged 1'
  local stage, sent, message = string.match(line, '^(%S+) (%d+) ?(.*)$')
  return stage, tonumber(sent), message
end

function confirmations.remove(position)
  write_buffer.add('HDEL', key.confirmations, position)
  write_buffer.add('ZREM', key.retries, position)
end
